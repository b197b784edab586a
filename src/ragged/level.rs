//! One level of rows: what is done to its offsets, lengths and validity, and which elements it passes on. On the host.

use std::ops::Range;

use arrow_schema::{DataType, Field, FieldRef};

use super::elements::{RaggedPart, hiding_matters, leaf_column, spanned};
use super::part::Part;
use crate::alloc::fallible;
use crate::arrow::{DeviceArray, Hidden, ListChunk, Validated};
use crate::convert::{beyond_int32, collect_bools, collect_ints, lengths_view, offsets_view, zero};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Remedy, Result};
use crate::plan::{Action, Plan};
use crate::spec::{CopyMode, NullPolicy, Options, PossibleStep, Spec};
use crate::tensor::Tensor;

/// Converts elements of rows, for what it finds.
pub(super) type Convert<'a> = &'a dyn Fn(Vec<RaggedPart>) -> Result<()>;

/// One level of rows, in whatever memory: the plans of its parts, and how each of them is made.
pub(super) trait RaggedRows: Send + Sync {
    /// The plan of a bool for each row, where null rows are kept.
    fn validity_part(&self) -> Option<Part>;

    /// A bool for each row, true where it is not null.
    fn validity(&self) -> Result<Tensor>;

    /// The plan of the offsets: one more than rows, or for list views as many.
    fn offsets_part(&self) -> Part;

    /// Reads of a device's memory what the plan of the offsets depends on, and returns that plan; `None` where it was known.
    fn read_offsets(&self) -> Result<Option<Part>> {
        Ok(None)
    }

    /// The offsets, by their plan; on a device, once [`RaggedRows::read_offsets`] has read what it depends on.
    fn offsets(&self, plan: &Plan) -> Result<Tensor>;

    /// The plan of the lengths of list views.
    fn lengths_part(&self) -> Option<Part> {
        None
    }

    /// The lengths of list views, by their plan.
    fn lengths(&self, _: &Plan) -> Result<Tensor> {
        Err(Error::internal("these rows have no lengths"))
    }

    /// The plan of elements that are bytes to be gathered.
    fn bytes_part(&self, _: &FieldRef) -> Option<Part> {
        None
    }

    /// The bytes of all rows, gathered.
    fn bytes(&self) -> Result<Tensor> {
        Err(Error::internal("these rows are not gathered"))
    }

    /// The elements that become values; `None` on a device, until the offsets are made.
    fn items(&self, _: &FieldRef) -> Result<Option<Vec<RaggedPart>>> {
        Ok(None)
    }

    /// Elements that are no rows, as a column with the options that are left to it.
    fn column(&self, _: &FieldRef, _: &[RaggedPart]) -> Result<(Spec, Vec<DeviceArray>, Options)> {
        Err(Error::internal("these rows have no column of elements"))
    }

    /// The error of an element, at the row that has it. `convert` converts elements of rows.
    fn at_row(&self, _: &FieldRef, error: Error, _: Convert<'_>) -> Error {
        error
    }

    /// What a report needs to know of rows whose elements nobody has looked at.
    fn unread(&self) -> Option<UnreadRows> {
        None
    }
}

/// Rows on a device, whose elements nobody has looked at.
#[derive(Debug)]
pub(super) struct UnreadRows {
    pub(super) device: Device,
    /// How many chunks have rows.
    pub(super) chunks: usize,
    /// What the host waits for to make the offsets.
    pub(super) waits: Vec<&'static str>,
    /// All elements that the rows can refer to; none of texts, whose offsets alone tell their number.
    pub(super) items: Vec<RaggedPart>,
}

/// The chunks of a column of lists or strings.
#[derive(Debug)]
pub(super) struct Level<'a> {
    field: &'a FieldRef,
    options: &'a Options,
    chunks: Vec<LevelChunk<'a>>,
    /// Whether null rows give up their elements: offsets cannot step over them.
    gathered: bool,
    /// Whether null rows of list views lose their lengths.
    emptied: bool,
}

#[derive(Debug)]
struct LevelChunk<'a> {
    part: &'a RaggedPart,
    list: ListChunk<'a>,
    /// The elements that become values, where none are left out for null rows.
    span: Range<usize>,
}

impl LevelChunk<'_> {
    /// Whether a row is null in sight.
    fn is_null(&self, row: usize) -> bool {
        self.list.is_null(row) && !self.part.is_hidden(row)
    }

    /// Whether a row's elements are seen.
    fn is_shown(&self, row: usize) -> bool {
        !self.list.is_null(row) && !self.part.is_hidden(row)
    }

    /// Whether every row is seen.
    fn all_shown(&self) -> bool {
        self.list.valid.is_none() && self.part.hidden.is_none()
    }

    fn rows(&self) -> Range<usize> {
        0..self.list.rows
    }

    /// The position of a row's first element among those that become values; of an empty row that of any.
    fn start(&self, row: usize) -> usize {
        self.list.row(row).start.clamp(self.span.start, self.span.end) - self.span.start
    }

    /// Whether its rows are list views of the same items as those of the chunk before.
    fn shares_items(&self) -> bool {
        self.part.follows && self.list.lengths().is_some()
    }

    /// Shows the elements of a span that these rows show.
    fn show(&self, rows: Range<usize>, span: &Range<usize>, hidden: &mut Hidden) {
        for row in rows.filter(|row| self.is_shown(*row)).map(|row| self.list.row(row)) {
            hidden.show(&(row.start.saturating_sub(span.start)..row.end.saturating_sub(span.start)));
        }
    }

    /// Whether a row that is not seen spans elements.
    fn spans_unseen(&self) -> bool {
        !self.all_shown() && self.rows().any(|row| !self.is_shown(row) && !self.list.row(row).is_empty())
    }
}

impl<'a> Level<'a> {
    /// Reads and checks the rows.
    ///
    /// # Errors
    /// When offsets lead out of the elements, or a row is null and that is refused.
    pub(super) fn new(field: &'a FieldRef, parts: &'a [RaggedPart], options: &'a Options) -> Result<Self> {
        let mut chunks = fallible::with_room(parts.len())?;
        let mut first = 0_usize;
        for part in parts {
            let list = part.array.lists().map_err(|error| error.behind(first))?;
            let chunk = LevelChunk { part, span: list.span(), list };
            if options.nulls == NullPolicy::Error && chunk.list.valid.is_some() {
                let null = chunk.rows().find(|row| chunk.is_null(*row));
                null.map_or(Ok(()), |row| Err(null_row(first + row)))?;
            }
            first = first.saturating_add(chunk.list.rows);
            chunks.push(chunk);
        }
        let fills = matches!(options.nulls, NullPolicy::Nan | NullPolicy::Fill(_));
        let spans = fills && chunks.iter().any(LevelChunk::spans_unseen);
        let views = has_lengths(field);
        let mut level = Self { field, options, chunks, gathered: spans && !views, emptied: spans && views };
        // Of whole children, so that what is refused does not depend on how sparse the rows are.
        level.require_offsets()?;
        if views {
            narrow(&mut level.chunks);
        }
        Ok(level)
    }

    /// Refuses chunks whose elements 32-bit offsets can count in each of them, but not in all together.
    fn require_offsets(&self) -> Result<()> {
        if self.chunks.len() < 2 || ints_dtype(self.field) != DType::Int32 {
            return Ok(());
        }
        let is_beyond = |offset: usize| i32::try_from(offset).is_err();
        let mut base = 0_usize;
        for (chunk, group) in self.groups() {
            let elements =
                if self.gathered { chunk.rows().map(|row| self.length(chunk, row)).sum() } else { chunk.span.len() };
            let end = base.saturating_add(elements);
            // Rows of list views may all begin below the last element.
            let begins_beyond =
                |chunk: &LevelChunk<'_>| chunk.rows().any(|row| is_beyond(base.saturating_add(chunk.start(row))));
            if is_beyond(end) && (!self.has_lengths() || group.iter().any(begins_beyond)) {
                return Err(beyond_int32());
            }
            base = end;
        }
        Ok(())
    }

    fn rows(&self) -> usize {
        self.chunks.iter().fold(0, |rows, chunk| rows.saturating_add(chunk.list.rows))
    }

    fn has_lengths(&self) -> bool {
        has_lengths(self.field)
    }

    /// How many elements a row keeps.
    fn length(&self, chunk: &LevelChunk<'_>, row: usize) -> usize {
        let dropped = (self.gathered || self.emptied) && !chunk.is_shown(row);
        if dropped { 0 } else { chunk.list.row(row).len() }
    }

    fn part(&self, name: &'static str, count: usize, own: [Option<Action>; 2]) -> Part {
        let filled = || self.chunks.iter().filter(|chunk| chunk.list.rows > 0);
        let is_aligned = filled().all(|chunk| chunk.list.is_aligned());
        let chunks = filled().filter(|chunk| !chunk.part.follows).count();
        let is_divided = filled().any(|chunk| chunk.part.follows) && !own.contains(&Some(Action::EmptyNullRows));
        let own = own.into_iter().chain([is_divided.then_some(Action::EmptyNullRows)]).flatten();
        ints_part((name, count), self.field, (chunks, is_aligned), own, self.options)
    }

    /// The column's own integers as a view, or a tensor of what `ints` gives.
    fn ints(
        &self,
        plan: &Plan,
        count: usize,
        ints: impl Iterator<Item = usize>,
        own: impl Fn(&ListChunk<'a>) -> Result<Tensor>,
    ) -> Result<Tensor> {
        match self.chunks.iter().find(|chunk| chunk.list.rows > 0) {
            Some(chunk) if plan.is_view() => own(&chunk.list),
            _ => collect_ints(ints_dtype(self.field), count, ints),
        }
    }

    /// The chunks, those that share their items together, with one that has these: chunks without rows have none.
    fn groups(&self) -> impl Iterator<Item = (&LevelChunk<'a>, &[LevelChunk<'a>])> {
        let groups = self.chunks.chunk_by(|_, next| next.shares_items());
        groups.filter_map(|group| {
            let filled = group.iter().find(|chunk| chunk.list.rows > 0);
            Some((filled.or(group.first())?, group))
        })
    }

    /// The ranges of the elements that become values, in order, of a chunk that does not share those of another.
    fn runs(&self, chunk: &LevelChunk<'_>) -> impl Iterator<Item = Range<usize>> {
        let gathered = self.gathered && chunk.spans_unseen();
        let whole = (!gathered).then(|| chunk.span.clone());
        let rows = if gathered { chunk.rows() } else { 0..0 };
        let rows = rows.filter(|row| chunk.is_shown(*row)).map(|row| chunk.list.row(row));
        let mut rows = rows.filter(|row| !row.is_empty()).peekable();
        whole.into_iter().chain(std::iter::from_fn(move || {
            let mut run = rows.next()?;
            while let Some(next) = rows.next_if(|next| next.start == run.end) {
                run.end = next.end;
            }
            Some(run)
        }))
    }

    /// The error of the lowest row with an element that is refused, of rows whose elements lie in any order; by halving.
    fn lowest_error(&self, item: &FieldRef, error: &Error, convert: Convert<'_>) -> Option<Error> {
        let mut end = error.row().and_then(|element| self.row_of(element)).map_or(self.rows(), |row| row + 1);
        let refused = |rows| self.items_of_first(item, rows).and_then(convert).err().filter(is_of_element);
        let (mut start, mut lowest) = (0, None);
        while start < end {
            let middle = start + (end - start) / 2;
            match refused(middle + 1) {
                Some(error) => (end, lowest) = (middle, Some(error)),
                None => start = middle + 1,
            }
        }
        // All nulls are counted where only nulls are refused, not those of the first rows.
        let is_same = |lowest: &Error| lowest.kind() == ErrorKind::Null && lowest.remedy() == error.remedy();
        lowest.map(|lowest| if is_same(&lowest) { error.clone() } else { lowest }.at_row(start))
    }

    /// The elements that the first rows show.
    fn items_of_first(&self, item: &FieldRef, rows: usize) -> Result<Vec<RaggedPart>> {
        let (mut items, mut left) = (Vec::new(), rows);
        for (chunk, group) in self.groups() {
            let span = chunk.span.clone();
            let array = chunk.list.items.clipped(&span).relabel(item.clone())?;
            let mut hidden = Hidden::all(span.len())?;
            for chunk in group {
                chunk.show(0..left.min(chunk.list.rows), &span, &mut hidden);
                left = left.saturating_sub(chunk.list.rows);
            }
            fallible::push(&mut items, RaggedPart { array, hidden: Some(hidden), follows: false })?;
        }
        Ok(items)
    }

    /// The row of the column that has this element of the values. Of lists, a hidden element is that of the next row that shows one: a
    /// value of a run is refused for any row that shows the run.
    fn row_of(&self, element: usize) -> Option<usize> {
        let (mut first_row, mut first_item) = (0_usize, 0_usize);
        for (first, group) in self.groups() {
            for run in self.runs(first) {
                if element - first_item < run.len() {
                    let local = run.start + (element - first_item);
                    let has = |items: Range<usize>| {
                        items.contains(&if self.has_lengths() { local } else { local.max(items.start) })
                    };
                    return group.iter().find_map(|chunk| {
                        let shows = |row: &usize| chunk.is_shown(*row) && has(chunk.list.row(*row));
                        let row = chunk.rows().find(shows).map(|row| first_row + row);
                        first_row = first_row.saturating_add(chunk.list.rows);
                        row
                    });
                }
                first_item = first_item.saturating_add(run.len());
            }
            first_row = group.iter().fold(first_row, |rows, chunk| rows.saturating_add(chunk.list.rows));
        }
        None
    }
}

impl RaggedRows for Level<'_> {
    fn validity_part(&self) -> Option<Part> {
        (self.options.nulls == NullPolicy::Keep).then(|| validity_part(self.field, self.rows()))
    }

    fn validity(&self) -> Result<Tensor> {
        collect_bools(self.rows(), self.chunks.iter().flat_map(|chunk| chunk.rows().map(|row| chunk.is_shown(row))))
    }

    fn offsets_part(&self) -> Part {
        let rebased = !self.has_lengths() && self.chunks.iter().any(|chunk| chunk.list.span().start > 0);
        let own = [rebased.then_some(Action::RebaseOffsets), self.gathered.then_some(Action::EmptyNullRows)];
        self.part("offsets", self.rows() + usize::from(!self.has_lengths()), own)
    }

    fn offsets(&self, plan: &Plan) -> Result<Tensor> {
        let rows = self.rows();
        if self.has_lengths() {
            let mut end = 0_usize;
            let starts = self.groups().flat_map(|(first, group)| {
                let base = end;
                end = end.saturating_add(first.span.len());
                group.iter().flat_map(|chunk| chunk.rows().map(|row| chunk.start(row))).map(move |start| base + start)
            });
            return self.ints(plan, rows, starts, offsets_view);
        }
        if rows == 0 && !self.options.copy.asks_for_own(self.options.writable) {
            return zero(ints_dtype(self.field));
        }
        let mut end = 0;
        let lengths = self.chunks.iter().flat_map(|chunk| chunk.rows().map(|row| self.length(chunk, row)));
        let ends = std::iter::once(0).chain(lengths.map(|length| {
            end += length;
            end
        }));
        self.ints(plan, rows + 1, ends, offsets_view)
    }

    fn lengths_part(&self) -> Option<Part> {
        let own = [self.emptied.then_some(Action::EmptyNullRows), None];
        self.has_lengths().then(|| self.part("lengths", self.rows(), own))
    }

    fn lengths(&self, plan: &Plan) -> Result<Tensor> {
        let lengths = self.chunks.iter().flat_map(|chunk| chunk.rows().map(|row| self.length(chunk, row)));
        self.ints(plan, self.rows(), lengths, lengths_view)
    }

    /// The elements, and which of them no row shows, where that matters.
    fn items(&self, item: &FieldRef) -> Result<Option<Vec<RaggedPart>>> {
        let (mut items, mut first, mut follows, known) = (Vec::new(), 0_usize, false, Validated::default());
        for (chunk, group) in self.groups() {
            follows &= group.first().is_some_and(|first| first.part.follows);
            for run in self.runs(chunk) {
                let array = chunk.list.items.clipped(&run);
                let array = if array.field() == item { array } else { array.relabel(item.clone())? };
                let may_hide = !self.gathered && (self.has_lengths() || chunk.spans_unseen());
                let matters = may_hide
                    && hiding_matters(item, &array, self.options, &known).map_err(|error| error.behind(first))?;
                first = first.saturating_add(run.len());
                let hidden = if matters { Some(hidden_in(group, &run)?).filter(Hidden::is_any) } else { None };
                fallible::push(&mut items, RaggedPart { array, hidden, follows })?;
                follows = true;
            }
        }
        Ok(Some(items))
    }

    fn column(&self, item: &FieldRef, items: &[RaggedPart]) -> Result<(Spec, Vec<DeviceArray>, Options)> {
        leaf_column(item, items, self.options)
    }

    fn at_row(&self, item: &FieldRef, error: Error, convert: Convert<'_>) -> Error {
        // Rows of list views stand in any order: the first element is not that of the first row that has one.
        let is_anywhere = self.has_lengths() && is_of_element(&error);
        let lowest = if is_anywhere { self.lowest_error(item, &error, convert) } else { None };
        lowest.unwrap_or_else(|| match error.row().and_then(|element| self.row_of(element)) {
            Some(row) => error.at_row(row),
            None => error,
        })
    }
}

/// How many times the elements that rows span the items of all chunks have to be, for list views to leave the others out.
const SPARSE: usize = 4;
/// How many items all chunks may have beside.
const FEW: usize = 1 << 20;

/// Leaves the items of several chunks out that lie before all rows of a chunk or behind them, where these are most of very many: each of
/// many slices of one array would have all of its items.
fn narrow(chunks: &mut [LevelChunk<'_>]) {
    let whole = chunks.iter().map(|chunk| chunk.span.len()).fold(0, usize::saturating_add);
    if whole <= FEW || chunks.chunk_by(|_, next| next.shares_items()).nth(1).is_none() {
        return;
    }
    let span_of =
        |group: &[LevelChunk<'_>]| spanned(group.iter().flat_map(|chunk| chunk.rows().map(|row| chunk.list.row(row))));
    let (mut whole, mut most) = (0_usize, FEW);
    for group in chunks.chunk_by(|_, next| next.shares_items()) {
        whole = whole.saturating_add(group.iter().map(|chunk| chunk.span.len()).max().unwrap_or(0));
        most = most.saturating_add(span_of(group).len().saturating_mul(SPARSE));
    }
    if whole > most {
        for group in chunks.chunk_by_mut(|_, next| next.shares_items()) {
            let span = span_of(group);
            group.iter_mut().for_each(|chunk| chunk.span = span.clone());
        }
    }
}

/// Which elements of a span no row of these chunks shows.
fn hidden_in(chunks: &[LevelChunk<'_>], span: &Range<usize>) -> Result<Hidden> {
    let mut hidden = Hidden::all(span.len())?;
    chunks.iter().for_each(|chunk| chunk.show(chunk.rows(), span, &mut hidden));
    Ok(hidden)
}

/// Whether an element is refused that another row may have, too.
fn is_of_element(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Null | ErrorKind::Cast)
}

/// The plan of offsets or lengths: a view, where they can be the only filled chunk's own. `own`: what is special to them.
pub(super) fn ints_part(
    (name, count): (&'static str, usize),
    field: &FieldRef,
    (chunks, is_aligned): (usize, bool),
    own: impl IntoIterator<Item = Action>,
    options: &Options,
) -> Part {
    let dtype = ints_dtype(field);
    let joined = (chunks > 1).then_some(Action::Concatenate { chunks });
    let realigned = (!is_aligned).then_some(Action::Realign { dtype });
    let private = options.copy.asks_for_own(options.writable).then_some(Action::Private);
    let actions = [joined, realigned].into_iter().flatten().chain(own).chain(private).filter(|_| chunks > 0);
    Part::new(name, field, (dtype, count), actions, options.copy)
}

/// The condition for null rows to be made empty.
pub(super) const SPAN_ELEMENTS: &str = "null rows span elements";

/// What offsets need that may be those of a slice.
pub(super) fn rebased_if_slice() -> PossibleStep {
    let text = format!("{}, if it is one", Action::RebaseOffsets);
    PossibleStep { text, only_if: Some("they are those of a slice") }
}

/// The plan of a bool for each row. Arrow has bits, so that this copy is always allowed.
pub(super) fn validity_part(field: &FieldRef, rows: usize) -> Part {
    Part::new("validity", field, (DType::Bool, rows), [Action::UnpackValidity], CopyMode::IfNeeded)
}

/// Whether rows have lengths beside offsets: those of list views.
pub(crate) fn has_lengths(field: &Field) -> bool {
    matches!(field.data_type(), DataType::ListView(_) | DataType::LargeListView(_))
}

pub(super) fn ints_dtype(field: &FieldRef) -> DType {
    match field.data_type() {
        DataType::List(_) | DataType::ListView(_) | DataType::Utf8 | DataType::Binary => DType::Int32,
        _ => DType::Int64,
    }
}

/// The error for a null row.
pub(super) fn null_row(row: usize) -> Error {
    Error::new(ErrorKind::Null, "the row is null").at_row(row).remedy_is(Remedy::KeepRowsOrFill)
}
