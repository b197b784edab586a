//! Decides for one level of lists what becomes of its rows, before anything is converted.

use std::ops::Range;

use arrow_schema::{DataType, FieldRef};

use super::plan::PartPlan;
use crate::alloc::fallible;
use crate::arrow::{DeviceArray, Hidden, ListChunk};
use crate::convert::{collect_bools, collect_ints, lengths_view, offsets_view, zero};
use crate::copy_log::{self, Copied};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Remedy, Result};
use crate::plan::Action;
use crate::spec::{CopyMode, NullPolicy, Options};
use crate::tensor::Tensor;

const EMPTIED: &str = "null rows made empty";

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

    /// A bool for each row, true where it is not null.
    pub(super) fn validity(&self) -> Result<Tensor> {
        let flags = self.chunks.iter().flat_map(|chunk| chunk.rows().map(|row| chunk.is_shown(row)));
        row_validity(self.field, self.rows(), flags)
    }

    /// How many elements a row keeps.
    fn length(&self, chunk: &LevelChunk<'_>, row: usize) -> usize {
        let dropped = (self.gathered || self.emptied) && !chunk.is_shown(row);
        if dropped { 0 } else { chunk.list.row(row).len() }
    }

    /// Why offsets or lengths cannot be the column's own, if `own_reasons` are all that is special to them.
    fn reasons(&self, own_reasons: &[(bool, &str)]) -> Vec<String> {
        let mut reasons = Vec::new();
        let filled: Vec<_> = self.chunks.iter().filter(|chunk| chunk.list.rows > 0).collect();
        if filled.is_empty() {
            return reasons;
        }
        if filled.len() > 1 {
            reasons.push(Action::Concatenate { chunks: filled.len() }.to_string());
        }
        if filled.iter().any(|chunk| !chunk.list.is_aligned()) {
            reasons.push(Action::Realign { dtype: self.dtype() }.to_string());
        }
        reasons.extend(own_reasons.iter().filter(|(applies, _)| *applies).map(|(_, reason)| (*reason).to_owned()));
        if self.options.copy == CopyMode::Always || self.options.writable {
            reasons.push(Action::Private.to_string());
        }
        reasons
    }

    fn offsets_reasons(&self) -> Vec<String> {
        if self.has_lengths() {
            return self.reasons(&[]);
        }
        let rebased = self.chunks.iter().any(|chunk| chunk.list.span().start > 0);
        self.reasons(&[(rebased, "offsets of a slice rebased"), (self.gathered, EMPTIED)])
    }

    fn lengths_reasons(&self) -> Vec<String> {
        self.reasons(&[(self.emptied, EMPTIED)])
    }

    /// Offsets, lengths and validity as they would be.
    pub(super) fn plan(&self) -> Vec<PartPlan> {
        let (rows, dtype) = (self.rows(), self.dtype());
        let part = |name, count, reasons| PartPlan::new(name, self.field, dtype, count, reasons, self.options);
        let mut parts = Vec::new();
        if self.has_lengths() {
            parts.push(part("offsets", rows, self.offsets_reasons()));
            parts.push(part("lengths", rows, self.lengths_reasons()));
        } else {
            parts.push(part("offsets", rows + 1, self.offsets_reasons()));
        }
        parts
    }

    /// The offsets: one more than rows, or for list views as many.
    pub(super) fn offsets(&self) -> Result<Tensor> {
        let rows = self.rows();
        if self.has_lengths() {
            let mut base = 0;
            let starts = self.chunks.iter().flat_map(|chunk| {
                let first = base;
                base += chunk.list.items.len();
                chunk.rows().map(move |row| first + chunk.list.row(row).start)
            });
            return self.ints("offsets", rows, starts, offsets_view, &self.offsets_reasons());
        }
        let mut end = 0;
        let lengths = self.chunks.iter().flat_map(|chunk| chunk.rows().map(|row| self.length(chunk, row)));
        let ends = std::iter::once(0).chain(lengths.map(|length| {
            end += length;
            end
        }));
        let shared = self.options.copy != CopyMode::Always && !self.options.writable;
        if rows == 0 && shared {
            return zero(self.dtype());
        }
        self.ints("offsets", rows + 1, ends, offsets_view, &self.offsets_reasons())
    }

    /// The lengths of list views.
    pub(super) fn lengths(&self) -> Result<Option<Tensor>> {
        if !self.has_lengths() {
            return Ok(None);
        }
        let lengths = self.chunks.iter().flat_map(|chunk| chunk.rows().map(|row| self.length(chunk, row)));
        self.ints("lengths", self.rows(), lengths, lengths_view, &self.lengths_reasons()).map(Some)
    }

    /// The column's own integers where no reason speaks against it, else a tensor of what `ints` gives.
    fn ints(
        &self,
        name: &str,
        count: usize,
        ints: impl Iterator<Item = usize>,
        own: impl Fn(&ListChunk<'a>) -> Result<Tensor>,
        reasons: &[String],
    ) -> Result<Tensor> {
        match self.chunks.iter().find(|chunk| chunk.list.rows > 0) {
            Some(chunk) if reasons.is_empty() => own(&chunk.list),
            _ => {
                record_or_refuse(self.field, self.options, name, reasons, count, self.dtype())?;
                collect_ints(self.dtype(), count, ints)
            }
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

/// A bool for each row, as a copy that is always allowed: Arrow has bits.
pub(super) fn row_validity(field: &FieldRef, rows: usize, flags: impl Iterator<Item = bool>) -> Result<Tensor> {
    if rows > 0 {
        copy_log::record(|| Copied {
            what: format!("validity of column {:?}: {rows} rows of {}", field.name(), field.data_type()),
            why: "bits unpacked to bytes".to_owned(),
            bytes: rows,
        });
    }
    collect_bools(rows, flags)
}

/// Puts a copy of integers on the record, where one is allowed.
pub(super) fn record_or_refuse(
    field: &FieldRef,
    options: &Options,
    name: &str,
    reasons: &[String],
    count: usize,
    dtype: DType,
) -> Result<()> {
    let (bytes, reasons) = (count.saturating_mul(dtype.itemsize()), reasons.join(", "));
    if bytes == 0 || reasons.is_empty() {
        return Ok(());
    }
    refuse_copy(options, name, &reasons, bytes)?;
    copy_log::record(|| Copied {
        what: format!("{name} of column {:?}: {} of {}", field.name(), count, field.data_type()),
        why: reasons,
        bytes,
    });
    Ok(())
}

/// Refuses a copy where none is allowed.
pub(super) fn refuse_copy(options: &Options, name: &str, reasons: &str, bytes: usize) -> Result<()> {
    if options.copy != CopyMode::Never {
        return Ok(());
    }
    let reason = format!("a copy of {bytes} bytes is needed ({name}: {reasons})");
    Err(Error::new(ErrorKind::Copy, reason).remedy_is(Remedy::AllowCopy))
}
