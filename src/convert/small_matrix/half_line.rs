//! Packs columns that make half a cache line of each row.
//! Dispatch table: `avx2.rs` and `avx512.rs` use its types.

use std::ops::Range;

#[cfg(target_arch = "aarch64")]
use crate::convert::pack::Neon;
use crate::convert::pack::{Baseline, Isa, LINE, Vector, WIDTH, transposed};

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
            // SAFETY: every AArch64 processor has NEON; `columns` and `room` are promised for values of 4 bytes.
            #[cfg(target_arch = "aarch64")]
            (Isa::Neon, 4) => unsafe { self.tiled::<Neon, 4, 4>(rows) },
            // SAFETY: every AArch64 processor has NEON; `columns` and `room` are promised for values of 8 bytes.
            #[cfg(target_arch = "aarch64")]
            (Isa::Neon, _) => unsafe { self.tiled::<Neon, 8, 2>(rows) },
            // SAFETY: `columns` and `room` are promised for values of 4 bytes.
            (_, 4) => unsafe { self.tiled::<Baseline, 4, 4>(rows) },
            // SAFETY: `columns` and `room` are promised for values of 8 bytes.
            _ => unsafe { self.tiled::<Baseline, 8, 2>(rows) },
        }
    }

    /// # Safety
    /// As [`Self::write`], for values of `SIZE` bytes, `COUNT` of which make a vector.
    unsafe fn tiled<V: Vector, const SIZE: usize, const COUNT: usize>(&self, rows: Range<usize>) {
        for row in tiles(rows, COUNT) {
            for (half, lanes) in self.lanes.as_chunks::<COUNT>().0.iter().take(HALF / WIDTH).enumerate() {
                // SAFETY: `columns`: each has `COUNT` values from `row` on, as `tiles` ends with the rows: a vector.
                let lines = lanes.map(|lane| unsafe { V::load(lane.wrapping_add(row * SIZE)) });
                for (index, line) in transposed::<V, SIZE, COUNT>(lines).into_iter().enumerate() {
                    // SAFETY: `room`: row `row + index` is of the tile, and has `HALF` bytes, two vectors; any alignment
                    // is written.
                    unsafe { line.store(self.row(row + index).wrapping_add(half * WIDTH)) };
                }
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
