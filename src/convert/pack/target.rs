//! [`Target`]: the rows of a matrix that one thread writes.

use std::ops::Range;

/// Rows of a matrix that one thread writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    start: *mut u8,
    stride: usize,
    count: usize,
}

// SAFETY: an address and two sizes, which any thread may hold; each write through the address has its own `unsafe`.
unsafe impl Send for Target {}
// SAFETY: a shared target only gives copies of the address and the sizes.
unsafe impl Sync for Target {}

impl Target {
    /// `count` rows, `stride` bytes from one to the next, the first of them at `start`.
    pub(crate) fn new(start: *mut u8, stride: usize, count: usize) -> Self {
        Self { start, stride, count }
    }

    /// Returns a range of the rows.
    #[inline]
    pub(crate) fn part(self, rows: Range<usize>) -> Self {
        let start = self.start.wrapping_add(rows.start.wrapping_mul(self.stride));
        Self { start, count: rows.len(), ..self }
    }

    /// Returns the rows without their first bytes.
    #[inline]
    pub(super) fn behind(self, bytes: usize) -> Self {
        Self { start: self.start.wrapping_add(bytes), ..self }
    }

    /// Returns the rows moved back by so many bytes, so that each starts with the end of the row before.
    #[inline]
    pub(super) fn before(self, bytes: usize) -> Self {
        Self { start: self.start.wrapping_sub(bytes), ..self }
    }

    /// Returns the address of the first row.
    #[inline]
    pub(super) fn start(self) -> *mut u8 {
        self.start
    }

    /// Bytes from one row to the next.
    #[inline]
    pub(super) fn stride(self) -> usize {
        self.stride
    }

    /// Returns the number of rows.
    #[inline]
    pub(super) fn count(self) -> usize {
        self.count
    }
}
