//! Packs columns that make half a cache line of each row.
//! Dispatch table: `avx2.rs` and `avx512.rs` use its types.

use std::mem::MaybeUninit;
use std::ops::Range;

use crate::convert::pack::{Isa, LINE};

/// Bytes of a row.
pub(super) const HALF: usize = LINE / 2;
/// The most columns that make a row.
pub(super) const LANES: usize = 8;
/// The most rows that a kernel takes at once.
pub(super) const TILE: usize = 16;

/// Columns, and where their rows go.
#[derive(Clone, Copy)]
pub(super) struct Strip<'a> {
    /// The first value of each column; of 8 bytes each, four are used.
    pub(super) lanes: &'a [*const u8; LANES],
    /// Where the first row goes.
    pub(super) out: *mut u8,
    /// Bytes from one row to the next.
    pub(super) stride: usize,
}

impl Strip<'_> {
    /// Writes these rows, at least [`TILE`] of them, of values of 4 or 8 bytes.
    ///
    /// # Safety
    /// - `columns`: they have these rows, at least [`TILE`] of them.
    /// - `room`: each row has room for [`HALF`] bytes, apart from the columns.
    /// - `isa`: the processor has it.
    #[inline(always)]
    pub(super) unsafe fn write(&self, isa: Isa, size: usize, rows: Range<usize>) {
        match (isa, size) {
            // SAFETY: the processor has AVX-512 (`isa`); `columns` and `room` are promised for values of 4 bytes.
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512, 4) => unsafe { super::avx512::rows4(self, rows) },
            // SAFETY: the processor has AVX-512 (`isa`); `columns` and `room` are promised for values of 8 bytes.
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512, _) => unsafe { super::avx512::rows8(self, rows) },
            // SAFETY: the processor has AVX2 (`isa`); `columns` and `room` are promised for values of 4 bytes.
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx2, 4) => unsafe { super::avx2::rows4(self, rows) },
            // SAFETY: the processor has AVX2 (`isa`); `columns` and `room` are promised for values of 8 bytes.
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx2, _) => unsafe { super::avx2::rows8(self, rows) },
            // SAFETY: `columns` and `room` are promised for values of 4 bytes.
            (_, 4) => unsafe { self.portable::<4>(rows) },
            // SAFETY: `columns` and `room` are promised for values of 8 bytes.
            _ => unsafe { self.portable::<8>(rows) },
        }
    }

    /// # Safety
    /// As [`Self::write`], for values of `N` bytes.
    unsafe fn portable<const N: usize>(&self, rows: Range<usize>) {
        for row in rows {
            let out = self.row(row).cast::<MaybeUninit<[u8; N]>>();
            for (index, lane) in self.lanes.iter().take(HALF / N).enumerate() {
                // SAFETY: `columns`: each has this row; bytes need no alignment.
                let value = unsafe { lane.cast::<MaybeUninit<[u8; N]>>().wrapping_add(row).read() };
                // SAFETY: `room`: the row has `HALF` bytes, and `index < HALF / N`; bytes need no alignment.
                unsafe { out.wrapping_add(index).write(value) };
            }
        }
    }

    /// Where a row goes.
    #[inline(always)]
    pub(super) fn row(&self, row: usize) -> *mut u8 {
        self.out.wrapping_add(row * self.stride)
    }
}

/// The first rows of tiles of so many that make up these: the last one ends with them, and has rows of the one before where
/// they are no multiple.
#[inline(always)]
pub(super) fn tiles(rows: Range<usize>, tile: usize) -> impl Iterator<Item = usize> {
    let last = rows.end - tile;
    rows.step_by(tile).map(move |row| row.min(last))
}
