//! [`Rows`]: the memory that the rows of a matrix are written to.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

use crate::alloc::HostBuffer;

/// Memory for `count` rows of a matrix, `stride` bytes apart, of `width` writable bytes each.
#[derive(Debug)]
pub(crate) struct Rows<'a> {
    start: *mut u8,
    stride: usize,
    count: usize,
    width: usize,
    huge_pages: bool,
    memory: PhantomData<&'a mut [MaybeUninit<u8>]>,
}

// SAFETY: the rows are borrowed exclusively, and are plain bytes.
unsafe impl Send for Rows<'_> {}
// SAFETY: a shared reference only gives their address.
unsafe impl Sync for Rows<'_> {}

impl<'a> Rows<'a> {
    /// As many whole rows of `stride` bytes as `out` has room for, one after the other; none where rows have no bytes.
    pub(crate) fn new(out: &'a mut [MaybeUninit<u8>], stride: usize) -> Self {
        let count = out.len().checked_div(stride).unwrap_or(0);
        Self { start: out.as_mut_ptr().cast(), stride, count, width: stride, huge_pages: false, memory: PhantomData }
    }

    /// As [`Self::new`], in memory that this crate allocated, with huge pages if it is large.
    pub(crate) fn in_buffer(out: &'a mut HostBuffer, stride: usize) -> Self {
        Self::in_huge_pages(out.as_uninit_mut(), stride)
    }

    /// As [`Self::in_buffer`], in a part of such memory.
    pub(crate) fn in_huge_pages(out: &'a mut [MaybeUninit<u8>], stride: usize) -> Self {
        Self { huge_pages: true, ..Self::new(out, stride) }
    }

    /// Rows in the caller's memory.
    ///
    /// # Safety
    /// From `start` on there are `count` rows, `stride` bytes apart, of `width` writable bytes each; nobody else reads or
    /// writes those bytes for `'a`. `width` is at most `stride`.
    pub(crate) unsafe fn from_raw(start: *mut u8, stride: usize, count: usize, width: usize) -> Self {
        Self { start, stride, count, width, huge_pages: false, memory: PhantomData }
    }

    /// Returns a range of the rows, clipped to the rows that exist.
    ///
    /// # Safety
    /// No other reference uses these rows at the same time.
    pub(crate) unsafe fn part(&self, rows: Range<usize>) -> Rows<'_> {
        let first = rows.start.min(self.count);
        let count = rows.end.clamp(first, self.count) - first;
        Rows { start: self.start.wrapping_add(first * self.stride), count, ..*self }
    }

    /// Returns some bytes of each row, from `start` on; rows without bytes where there are fewer.
    ///
    /// # Safety
    /// No other reference uses these bytes at the same time.
    pub(crate) unsafe fn behind(&self, start: usize, width: usize) -> Rows<'_> {
        let fits = start.checked_add(width).is_some_and(|end| end <= self.width);
        let (start, width) = if fits { (start, width) } else { (0, 0) };
        Rows { start: self.start.wrapping_add(start), width, ..*self }
    }

    /// Where the first row starts.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }

    /// Bytes from one row to the next.
    pub(crate) fn stride(&self) -> usize {
        self.stride
    }

    /// How many rows there are.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Whether the memory is known to be in huge pages, if it is large.
    pub(super) fn huge_pages(&self) -> bool {
        self.huge_pages
    }

    /// Bytes of a row that may be written.
    pub(crate) fn width(&self) -> usize {
        self.width
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_whole_and_parts_are_cut_to_them() {
        let mut bytes = [MaybeUninit::new(0); 23];
        let start = bytes.as_mut_ptr().cast();
        let rows = Rows::new(&mut bytes, 4);
        assert_eq!((rows.start(), rows.stride(), rows.count(), rows.width()), (start, 4, 5, 4));
        for (range, at, count) in [(0..2, 0, 2), (2..9, 8, 3), (5..5, 20, 0), (7..8, 20, 0)] {
            // SAFETY: one part at a time.
            let part = unsafe { rows.part(range) };
            assert_eq!((part.start(), part.count(), part.width()), (start.wrapping_add(at), count, 4));
        }
        assert_eq!(Rows::new(&mut bytes, 0).count(), 0);
    }
}
