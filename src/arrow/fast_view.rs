//! Locates plain number columns without bitmaps, for the fast paths.

use std::marker::PhantomData;
use std::ops::Range;

use arrow_schema::DataType;
use smallvec::SmallVec;

use super::foreign::{buffer, child, slot};
use super::view::ArrayView;
use crate::dtype::DType;

/// The addresses of columns; this many need no allocation.
pub(crate) type Starts = SmallVec<[*const u8; 32]>;

/// Columns of plain numbers of one dtype without bitmaps, over the same rows. Their values are initialised, of any
/// alignment, and never change.
#[derive(Debug)]
pub(crate) struct PlainColumns<'a> {
    starts: Starts,
    rows: usize,
    dtype: DType,
    array: PhantomData<&'a [u8]>,
}

// SAFETY: the pointers lead into an array that is borrowed for 'a, whose memory is immutable by Arrow's specification.
unsafe impl Send for PlainColumns<'_> {}
// SAFETY: shared references only give the addresses, and the memory behind them does not change.
unsafe impl Sync for PlainColumns<'_> {}

impl PlainColumns<'_> {
    /// Returns the address of each column's first value.
    pub(crate) fn starts(&self) -> &[*const u8] {
        &self.starts
    }

    /// How many values each column has.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// The dtype of all values.
    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns whether the values overlap these bytes.
    pub(crate) fn overlap(&self, bytes: &Range<usize>) -> bool {
        let size = self.rows.saturating_mul(self.dtype.itemsize());
        let overlaps = |start: &*const u8| start.addr() < bytes.end && start.addr().saturating_add(size) > bytes.start;
        self.starts.iter().any(overlaps)
    }
}

impl<'a> ArrayView<'a> {
    /// Returns the columns of a struct at these positions; `None` without rows, or if one is not of plain numbers of
    /// this dtype without a bitmap.
    #[inline]
    pub(crate) fn plain_columns(
        &self,
        positions: impl Iterator<Item = usize>,
        dtype: DType,
    ) -> Option<PlainColumns<'a>> {
        let DataType::Struct(fields) = self.field.data_type() else { return None };
        if self.array.null_count != 0 || !self.inherited.is_empty() || self.length == 0 {
            return None;
        }
        let mut starts = Starts::new();
        for position in positions {
            if DType::of_arrow(fields.get(position)?.data_type()) != Some(dtype) {
                return None;
            }
            let column = child(self.array, position).ok()?;
            if !buffer(column, 0)?.is_null() {
                return None;
            }
            // Import checked that the array has offset + length values, so the product cannot overflow.
            let offset = slot(column).ok()?.checked_add(self.offset)?.wrapping_mul(dtype.itemsize());
            starts.push(buffer(column, 1)?.wrapping_add(offset));
        }
        Some(PlainColumns { starts, rows: self.length, dtype, array: PhantomData })
    }
}
