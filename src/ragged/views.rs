//! Rows of string views: they lie in any order, some of them inside the views themselves, and are gathered.

use arrow_schema::FieldRef;

use super::elements::RaggedPart;
use super::level::{Convert, RaggedRows, null_row, validity_part};
use super::part::Part;
use crate::alloc::fallible;
use crate::arrow::ViewChunk;
use crate::convert::{LOOK_UP, bytes_of_views, collect_bools, collect_ints, in_rounds, zero};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::{Action, Plan};
use crate::spec::{NullPolicy, Options};
use crate::tensor::Tensor;

/// The chunks of a column of string or binary views.
pub(super) struct ViewRows<'a> {
    field: &'a FieldRef,
    options: &'a Options,
    chunks: Vec<(ViewChunk<'a>, &'a RaggedPart)>,
    /// The bytes of each row that is shown and not null.
    lengths: Vec<Option<usize>>,
    /// Those of all rows.
    total: usize,
}

impl<'a> ViewRows<'a> {
    /// Reads and checks the views.
    ///
    /// # Errors
    /// When a view leads out of its buffers, a row is null and that is refused, or the strings are larger than memory can be.
    pub(super) fn new(field: &'a FieldRef, parts: &'a [RaggedPart], options: &'a Options) -> Result<Self> {
        let mut chunks = fallible::with_room(parts.len())?;
        for part in parts {
            let before = chunks.last().map(|(before, _)| before);
            let chunk = part.array.views_behind(before)?;
            chunks.push((chunk, part));
        }
        let mut lengths = fallible::with_room(chunks.iter().map(|(chunk, _)| chunk.rows()).sum())?;
        for (chunk, part) in &chunks {
            in_rounds(chunk.rows(), LOOK_UP, |mut rows| {
                rows.try_for_each(|row| {
                    let (at, is_shown) = (lengths.len(), !part.is_hidden(row));
                    let length = shown(chunk, part, row).map_err(|error| error.at_row(at))?.map(<[u8]>::len);
                    if is_shown && length.is_none() && options.nulls == NullPolicy::Error {
                        return Err(null_row(at));
                    }
                    lengths.push(length);
                    Ok(())
                })
            })?;
        }
        let total = lengths.iter().flatten().try_fold(0_usize, |total, length| total.checked_add(*length));
        let total = total.ok_or_else(|| Error::new(ErrorKind::Memory, "the strings are larger than memory can be"))?;
        Ok(Self { field, options, chunks, lengths, total })
    }
}

/// The bytes of a row, unless it is null or no row of an enclosing list shows it.
fn shown<'a>(chunk: &ViewChunk<'a>, part: &RaggedPart, row: usize) -> Result<Option<&'a [u8]>> {
    if part.is_hidden(row) { Ok(None) } else { chunk.bytes(row) }
}

impl RaggedRows for ViewRows<'_> {
    fn validity_part(&self) -> Option<Part> {
        (self.options.nulls == NullPolicy::Keep).then(|| validity_part(self.field, self.lengths.len()))
    }

    fn validity(&self) -> Result<Tensor> {
        collect_bools(self.lengths.len(), self.lengths.iter().map(Option::is_some))
    }

    fn offsets_part(&self) -> Part {
        let rows = self.lengths.len();
        let gathered = (rows > 0).then_some(Action::GatherViews);
        Part::new("offsets", self.field, (DType::Int64, rows + 1), gathered, self.options.copy)
    }

    fn offsets(&self, _: &Plan) -> Result<Tensor> {
        if self.lengths.is_empty() && !self.options.copy.asks_for_own(self.options.writable) {
            return zero(DType::Int64);
        }
        let mut end = 0;
        let ends = self.lengths.iter().map(|length| {
            end += length.unwrap_or(0);
            end
        });
        collect_ints(DType::Int64, self.lengths.len() + 1, std::iter::once(0).chain(ends))
    }

    fn bytes_part(&self, item: &FieldRef) -> Option<Part> {
        Some(Part::new("values", item, (DType::UInt8, self.total), [Action::GatherViews], self.options.copy))
    }

    fn bytes(&self) -> Result<Tensor> {
        let rows = |(chunk, part)| (0..ViewChunk::rows(chunk)).map(move |row| shown(chunk, part, row));
        let rows = self.chunks.iter().map(|(chunk, part)| (chunk, *part)).flat_map(rows);
        bytes_of_views(self.total, rows.enumerate().map(|(at, bytes)| bytes.map_err(|error| error.at_row(at))))
    }

    fn at_row(&self, _: &FieldRef, error: Error, _: Convert<'_>) -> Error {
        let Some(byte) = error.row() else { return error };
        let mut end = 0;
        let row = self.lengths.iter().position(|length| {
            end += length.unwrap_or(0);
            byte < end
        });
        match row {
            Some(row) => error.at_row(row),
            None => error,
        }
    }
}
