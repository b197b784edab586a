//! Decides for one level of lists what becomes of its rows, before anything is converted.

use std::ops::Range;

use arrow_schema::{DataType, FieldRef};
use smallvec::SmallVec;

use super::part::Part;
use crate::alloc::fallible;
use crate::arrow::{DeviceArray, Hidden, ListChunk};
use crate::convert::{collect_ints, lengths_view, offsets_view, zero};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Remedy, Result};
use crate::plan::{Action, Plan};
use crate::spec::{CopyMode, NullPolicy, Options};
use crate::tensor::Tensor;

/// An array, and which of its slots no row of an enclosing list shows.
#[derive(Clone, Debug)]
pub(super) struct RaggedPart {
    pub(super) array: DeviceArray,
    pub(super) hidden: Option<Hidden>,
}

impl RaggedPart {
    pub(super) fn is_hidden(&self, index: usize) -> bool {
        self.hidden.as_ref().is_some_and(|hidden| hidden.contains(index))
    }
}

/// The chunks of a column of lists or strings.
#[derive(Debug)]
pub(super) struct Level<'a> {
    field: &'a FieldRef,
    options: &'a Options,
    pub(super) chunks: Vec<LevelChunk<'a>>,
    /// Whether null rows give up their elements: offsets cannot step over them.
    gathered: bool,
    /// Whether null rows of list views lose their lengths.
    emptied: bool,
}

#[derive(Debug)]
pub(super) struct LevelChunk<'a> {
    part: &'a RaggedPart,
    pub(super) list: ListChunk<'a>,
}

impl LevelChunk<'_> {
    /// Whether a row is null in sight.
    pub(super) fn is_null(&self, row: usize) -> bool {
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
        let mut first = 0;
        for part in parts {
            let at_row = |error: Error| match error.row() {
                Some(row) => error.at_row(first + row),
                None => error,
            };
            let chunk = LevelChunk { part, list: part.array.lists().map_err(at_row)? };
            if options.nulls == NullPolicy::Error && chunk.list.valid.is_some() {
                let null = chunk.rows().find(|row| chunk.is_null(*row));
                null.map_or(Ok(()), |row| Err(null_row(first + row)))?;
            }
            first += chunk.list.rows;
            chunks.push(chunk);
        }
        let fills = matches!(options.nulls, NullPolicy::Nan | NullPolicy::Fill(_));
        let spans = fills && chunks.iter().any(LevelChunk::spans_unseen);
        let views = matches!(field.data_type(), DataType::ListView(_) | DataType::LargeListView(_));
        Ok(Self { field, options, chunks, gathered: spans && !views, emptied: spans && views })
    }

    pub(super) fn rows(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.list.rows).sum()
    }

    pub(super) fn has_lengths(&self) -> bool {
        matches!(self.field.data_type(), DataType::ListView(_) | DataType::LargeListView(_))
    }

    fn dtype(&self) -> DType {
        match self.field.data_type() {
            DataType::List(_) | DataType::ListView(_) | DataType::Utf8 | DataType::Binary => DType::Int32,
            _ => DType::Int64,
        }
    }

    /// For each row whether it is not null.
    pub(super) fn shown(&self) -> impl Iterator<Item = bool> {
        self.chunks.iter().flat_map(|chunk| chunk.rows().map(|row| chunk.is_shown(row)))
    }

    /// How many elements a row keeps.
    fn length(&self, chunk: &LevelChunk<'_>, row: usize) -> usize {
        let dropped = (self.gathered || self.emptied) && !chunk.is_shown(row);
        if dropped { 0 } else { chunk.list.row(row).len() }
    }

    /// What offsets or lengths need beside what is special to them: nothing, where they can be the column's own.
    fn actions(&self, own: impl IntoIterator<Item = Action>) -> SmallVec<[Action; 4]> {
        let filled = || self.chunks.iter().filter(|chunk| chunk.list.rows > 0);
        let chunks = filled().count();
        let mut actions = SmallVec::new();
        if chunks == 0 {
            return actions;
        }
        actions.extend((chunks > 1).then_some(Action::Concatenate { chunks }));
        let misaligned = filled().any(|chunk| !chunk.list.is_aligned());
        actions.extend(misaligned.then_some(Action::Realign { dtype: self.dtype() }));
        actions.extend(own);
        actions.extend((!shares_memory(self.options)).then_some(Action::Private));
        actions
    }

    /// The plan of the offsets: one more than rows, or for list views as many.
    pub(super) fn offsets_part(&self) -> Part {
        let (rows, has_lengths) = (self.rows(), self.has_lengths());
        let rebased = !has_lengths && self.chunks.iter().any(|chunk| chunk.list.span().start > 0);
        let own = [rebased.then_some(Action::RebaseOffsets), self.gathered.then_some(Action::EmptyNullRows)];
        let count = if has_lengths { rows } else { rows + 1 };
        let actions = self.actions(own.into_iter().flatten());
        Part::new("offsets", self.field, (self.dtype(), count), actions, self.options.copy)
    }

    /// The plan of the lengths of list views.
    pub(super) fn lengths_part(&self) -> Part {
        let actions = self.actions(self.emptied.then_some(Action::EmptyNullRows));
        Part::new("lengths", self.field, (self.dtype(), self.rows()), actions, self.options.copy)
    }

    /// The offsets, by their plan.
    pub(super) fn offsets(&self, plan: &Plan) -> Result<Tensor> {
        let rows = self.rows();
        if self.has_lengths() {
            let mut base = 0;
            let starts = self.chunks.iter().flat_map(|chunk| {
                let first = base;
                base += chunk.list.items.len();
                chunk.rows().map(move |row| first + chunk.list.row(row).start)
            });
            return self.ints(plan, rows, starts, offsets_view);
        }
        if rows == 0 && shares_memory(self.options) {
            return zero(self.dtype());
        }
        let mut end = 0;
        let lengths = self.chunks.iter().flat_map(|chunk| chunk.rows().map(|row| self.length(chunk, row)));
        let ends = std::iter::once(0).chain(lengths.map(|length| {
            end += length;
            end
        }));
        self.ints(plan, rows + 1, ends, offsets_view)
    }

    /// The lengths of list views, by their plan.
    pub(super) fn lengths(&self, plan: &Plan) -> Result<Tensor> {
        let lengths = self.chunks.iter().flat_map(|chunk| chunk.rows().map(|row| self.length(chunk, row)));
        self.ints(plan, self.rows(), lengths, lengths_view)
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
            _ => collect_ints(self.dtype(), count, ints),
        }
    }

    /// The ranges of each chunk's elements that become values, in order.
    fn runs(&self, chunk: &LevelChunk<'_>) -> impl Iterator<Item = Range<usize>> {
        let gathered = self.gathered && chunk.spans_unseen();
        let whole = (!gathered).then(|| chunk.list.span());
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

    /// The elements that become values, and which of them no row shows, of arrays for which that `matters`.
    pub(super) fn items(
        &self,
        item: &FieldRef,
        matters: impl Fn(&DeviceArray) -> Result<bool>,
    ) -> Result<Vec<RaggedPart>> {
        let mut items = Vec::new();
        for chunk in &self.chunks {
            for run in self.runs(chunk) {
                let array = chunk.list.items.slice(&run);
                let array = if array.field() == item { array } else { array.relabel(item.clone())? };
                let may_hide = !self.gathered && (self.has_lengths() || chunk.spans_unseen());
                let hidden = if may_hide && matters(&array)? { self.hidden(chunk, &run)? } else { None };
                fallible::push(&mut items, RaggedPart { array, hidden })?;
            }
        }
        Ok(items)
    }

    fn hidden(&self, chunk: &LevelChunk<'_>, span: &Range<usize>) -> Result<Option<Hidden>> {
        let mut hidden = Hidden::all(span.len())?;
        for row in chunk.rows().filter(|row| chunk.is_shown(*row)).map(|row| chunk.list.row(row)) {
            hidden.show(&(row.start.saturating_sub(span.start)..row.end.saturating_sub(span.start)));
        }
        Ok(hidden.is_any().then_some(hidden))
    }

    /// The first row that is shown and whose elements are so.
    pub(super) fn first_row(&self, item: &FieldRef, is_so: impl Fn(&[RaggedPart]) -> bool) -> Option<usize> {
        let mut first = 0;
        for chunk in &self.chunks {
            let is_so = |row: &usize| {
                let array = chunk.list.items.slice(&chunk.list.row(*row)).relabel(item.clone());
                array.is_ok_and(|array| is_so(&[RaggedPart { array, hidden: None }]))
            };
            if let Some(row) = chunk.rows().filter(|row| chunk.is_shown(*row)).find(is_so) {
                return Some(first + row);
            }
            first += chunk.list.rows;
        }
        None
    }

    /// The row of the column that has this element of the values.
    pub(super) fn row_of(&self, element: usize) -> Option<usize> {
        let (mut first_row, mut first_item) = (0, 0);
        for chunk in &self.chunks {
            for run in self.runs(chunk) {
                if element < first_item + run.len() {
                    let local = run.start + (element - first_item);
                    let shows = |row: &usize| chunk.is_shown(*row) && chunk.list.row(*row).contains(&local);
                    return chunk.rows().find(shows).map(|row| first_row + row);
                }
                first_item += run.len();
            }
            first_row += chunk.list.rows;
        }
        None
    }
}

/// The error for a null row.
pub(super) fn null_row(row: usize) -> Error {
    Error::new(ErrorKind::Null, "the row is null").at_row(row).remedy_is(Remedy::KeepRowsOrFill)
}

/// Whether the caller asked for no memory of its own.
pub(super) fn shares_memory(options: &Options) -> bool {
    options.copy != CopyMode::Always && !options.writable
}
