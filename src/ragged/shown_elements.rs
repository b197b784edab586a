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
        let mut shown = fallible::filled(self.values.len(), false)?;
        for span in spans.iter().flatten() {
            shown.get_mut(span.clone()).into_iter().flatten().for_each(|shown| *shown = true);
        }
        let valid = collect_bools(shown.len(), shown.iter().copied())?;
        to_arrow(elements, Some(&valid), copy).map_err(|error| {
            // Ragged rows have no place for a validity of elements.
            let row = error.row().and_then(|element| row_of(&spans, element));
            let error = error.remedy_is("set it to a code that there is, for null elements by a fill");
            row.map_or(error.clone(), |row| error.at_row(row))
        })
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

/// Returns the first row that shows an element.
fn row_of(spans: &[Option<Range<usize>>], element: usize) -> Option<usize> {
    spans.iter().position(|span| span.as_ref().is_some_and(|span| span.contains(&element)))
}
