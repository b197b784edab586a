//! [`Target`]: the rows of a matrix that one thread writes.

use std::ops::Range;

/// Rows of a matrix that are to be written.
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

    /// Some of the rows.
    #[inline]
    pub(crate) fn part(self, rows: Range<usize>) -> Self {
        let start = self.start.wrapping_add(rows.start.wrapping_mul(self.stride));
        Self { start, count: rows.len(), ..self }
    }

    /// The rows without their first bytes.
    #[inline]
    pub(super) fn behind(self, bytes: usize) -> Self {
        Self { start: self.start.wrapping_add(bytes), ..self }
    }

    /// The rows with as many bytes of the ones before.
    #[inline]
    pub(super) fn before(self, bytes: usize) -> Self {
        Self { start: self.start.wrapping_sub(bytes), ..self }
    }

    /// Where the first row is.
    #[inline]
    pub(super) fn start(self) -> *mut u8 {
        self.start
    }

    /// Bytes from one row to the next.
    #[inline]
    pub(super) fn stride(self) -> usize {
        self.stride
    }

    /// How many rows.
    #[inline]
    pub(super) fn count(self) -> usize {
        self.count
    }
}
