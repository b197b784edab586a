//! Which elements the rows show, for errors of elements: those that no row shows are nobody's.

use std::ops::Range;

use super::Ragged;
use crate::alloc::fallible;
use crate::arrow::DeviceArray;
use crate::column::to_arrow;
use crate::convert::collect_bools;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::spec::CopyMode;
use crate::tensor::{Native, Tensor};

impl Ragged {
    /// Returns the elements as an Arrow array, in which codes that are none of their dictionary are null if no row shows them.
    ///
    /// # Errors
    /// As [`to_arrow`]; names the row.
    pub(super) fn elements_to_arrow(&self, elements: &Tensor, copy: CopyMode) -> Result<DeviceArray> {
        let error = match to_arrow(elements, None, copy) {
            Err(error) if error.row().is_some() && elements.dictionary().is_some() => error,
            made => return made,
        };
        let Some(spans) = self.spans()? else { return Err(error) };
        let of_first = |rows: usize| {
            let shown = shown_by(spans.get(..rows).unwrap_or(&spans), self.values.len())?;
            to_arrow(elements, Some(&collect_bools(shown.len(), shown.iter().copied())?), copy)
        };
        let row_of = |error: &Error| error.row().and_then(|element| row_of(&spans, element));
        let mut error = match of_first(spans.len()) {
            Err(error) => error,
            made => return made,
        };
        let mut row = row_of(&error);
        // Rows of list views stand in any order: one before may show a later code. Found by halving.
        let (mut start, mut end) = (0, row.filter(|_| self.lengths.is_some()).unwrap_or(0));
        while start < end {
            let middle = start + (end - start) / 2;
            match of_first(middle + 1) {
                Err(lower) if lower.row().is_some() => (end, row, error) = (middle, row_of(&lower), lower),
                _ => start = middle + 1,
            }
        }
        // Ragged rows have no place for a validity of elements.
        let error = error.remedy_is("set it to a code that there is, for null elements by a fill");
        Err(row.map_or(error.clone(), |row| error.at_row(row)))
    }

    /// Returns the error of a row of the elements, which are rows themselves, as that of the row that shows it.
    pub(super) fn error_at_row(&self, error: Error) -> Error {
        let spans = self.spans().ok().flatten();
        let row = spans.zip(error.row()).and_then(|(spans, element)| row_of(&spans, element));
        row.map_or(error.clone(), |row| error.at_row(row))
    }

    /// Returns the elements of each row, of rows that are not null; `None` if offsets are not in host memory.
    fn spans(&self) -> Result<Option<Vec<Option<Range<usize>>>>> {
        if !self.offsets.device().is_cpu() {
            return Ok(None);
        }
        match self.offsets.dtype() {
            DType::Int32 => self.spans_of::<i32>(),
            _ => self.spans_of::<i64>(),
        }
        .map(Some)
    }

    fn spans_of<T: Native + Into<i64>>(&self) -> Result<Vec<Option<Range<usize>>>> {
        let at = |offset: &T| usize::try_from((*offset).into()).unwrap_or(usize::MAX);
        let offsets = self.offsets.peek::<T>()?;
        let shown = |(row, span): (usize, Range<usize>)| Ok(self.is_valid(row).then_some(span));
        match &self.lengths {
            Some(lengths) => {
                let rows = offsets.iter().zip(lengths.peek::<T>()?);
                let rows = rows.map(|(start, length)| at(start)..at(start).saturating_add(at(length)));
                fallible::collected(rows.enumerate().map(shown))
            }
            None => {
                let rows = offsets.iter().zip(offsets.iter().skip(1)).map(|(start, end)| at(start)..at(end));
                fallible::collected(rows.enumerate().map(shown))
            }
        }
    }
}

/// Returns which of so many elements these rows show. Rows may lie over each other: each element is looked at once.
fn shown_by(spans: &[Option<Range<usize>>], elements: usize) -> Result<Vec<bool>> {
    let mut shown = fallible::filled(elements, false)?;
    let mut sorted = fallible::with_room(spans.len())?;
    sorted.extend(spans.iter().flatten().cloned());
    sorted.sort_unstable_by_key(|span: &Range<usize>| span.start);
    let mut end = 0;
    for span in sorted {
        shown.get_mut(span.start.max(end)..span.end).unwrap_or_default().fill(true);
        end = end.max(span.end);
    }
    Ok(shown)
}

/// Returns the first row that shows an element.
fn row_of(spans: &[Option<Range<usize>>], element: usize) -> Option<usize> {
    spans.iter().position(|span| span.as_ref().is_some_and(|span| span.contains(&element)))
}
