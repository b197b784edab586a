//! How large is what kernels write, and how do its elements lie?

use crate::cuda::MatrixLayout;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};

/// Where the elements of a matrix are written; a single column is a matrix of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) dtype: DType,
    pub(crate) is_row_major: bool,
}

impl Shape {
    pub(super) fn bytes(&self) -> Result<usize> {
        let elements = self.rows.checked_mul(self.columns);
        let bytes = elements.and_then(|elements| elements.checked_mul(self.dtype.itemsize()));
        bytes.ok_or_else(|| Error::new(ErrorKind::Memory, "the result is larger than memory can be"))
    }

    /// Returns the elements as a contiguous tensor.
    pub(super) fn dense(&self) -> MatrixLayout {
        if self.is_row_major {
            MatrixLayout::RowMajor { stride: self.columns as u64 }
        } else {
            MatrixLayout::ColumnMajor { stride: self.rows as u64 }
        }
    }
}
