//! Splits one block of rows, which stays in the cache, into columns, tile by tile.
//! Dispatch table: `avx2.rs` and `avx512.rs` use its types.

use std::mem::MaybeUninit;
use std::ops::Range;

use super::vectors;
#[cfg(target_arch = "aarch64")]
use crate::convert::pack::Neon;
use crate::convert::pack::{Baseline, Isa, Vector, prefetch_to_second};

/// Elements in rows and columns, and the target of the columns.
#[derive(Clone, Copy)]
pub(super) struct Grid {
    /// The first element.
    pub(super) source: *const u8,
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// Bytes from one row to the next.
    pub(super) row_step: isize,
    /// Bytes from one column to the next in the target.
    pub(super) column_step: isize,
    /// Where the first column goes.
    pub(super) out: *mut u8,
    /// Bytes of an element.
    pub(super) size: usize,
    /// Bytes from one column to the next in the target.
    pub(super) stride: usize,
    /// Whether columns start on cache lines, and are not read again soon: non-temporal stores write them.
    pub(super) stream: bool,
}

// SAFETY: threads that share a grid write rows of their own, which its users promise (`split`); the source is not written.
unsafe impl Sync for Grid {}

/// Rows per block of the portable code: they stay in the first-level cache, a cache line each.
const ROWS: usize = 64;

impl Grid {
    /// From this row and column on.
    #[inline(always)]
    pub(super) fn part(self, row: usize, column: usize) -> Self {
        let step = |step: isize, count: usize| step.wrapping_mul(count.cast_signed());
        Self {
            source: self.source.wrapping_offset(step(self.row_step, row).wrapping_add(step(self.column_step, column))),
            out: self.out.wrapping_add(column.wrapping_mul(self.stride)).wrapping_add(row.wrapping_mul(self.size)),
            rows: self.rows.saturating_sub(row),
            columns: self.columns.saturating_sub(column),
            ..self
        }
    }

    /// From so many columns before this one on.
    #[inline(always)]
    pub(super) fn columns_from(self, column: usize, before: usize) -> Self {
        let part = self.part(0, column);
        Self {
            source: part.source.wrapping_offset(part.column_step.wrapping_mul(before.cast_signed()).wrapping_neg()),
            out: part.out.wrapping_sub(before.wrapping_mul(part.stride)),
            ..part
        }
    }

    /// Its first rows and columns.
    pub(super) fn first(self, rows: usize, columns: usize) -> Self {
        Self { rows: self.rows.min(rows), columns: self.columns.min(columns), ..self }
    }
}

/// A contiguous copy of a tile's lines. Rows that are a multiple of 4 KiB apart would share one set of the first-level
/// cache, and evict each other before a whole line is read.
#[repr(align(64))]
struct Lines([MaybeUninit<[u8; 64]>; 64]);

impl Lines {
    /// Bytes after which addresses fall into the same set of the first-level cache again.
    const SETS: usize = 4096;

    const fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; 64])
    }

    /// Returns whether this many rows of a grid share sets of the cache.
    fn are_crowded(grid: Grid, rows: usize) -> bool {
        let apart = grid.row_step.unsigned_abs();
        // The number of rows until one maps to the cache set of the first again, for a stride with this power of two, in lines.
        let cycle = Self::SETS >> apart.trailing_zeros().min(Self::SETS.trailing_zeros());
        rows > 4 * cycle
    }

    /// Returns the same part of the grid, over a copy of its lines.
    ///
    /// # Safety
    /// The part has `rows` rows, 64 at most, of 64 readable bytes each.
    #[inline(always)]
    unsafe fn copy(&mut self, part: Grid, rows: usize) -> Grid {
        for (row, line) in self.0.iter_mut().take(rows).enumerate() {
            // SAFETY: `row < rows`, and each row has 64 bytes; bytes need no alignment.
            line.write(unsafe { part.part(row, 0).source.cast::<[u8; 64]>().read() });
        }
        Grid { source: self.0.as_ptr().cast(), row_step: 64, ..part }
    }
}

/// Prefetches the rows behind a grid, which usually come next, while the grid's own are written, line by line in memory
/// order. The processor's own prefetcher sees columns of lines instead.
struct TilePrefetch {
    row: *const u8,
    row_step: isize,
    line: usize,
    /// Lines of a row.
    lines: usize,
    /// Lines that are prefetched with each tile; none if the processor's prefetcher does well.
    share: usize,
}

impl TilePrefetch {
    /// The rows behind a grid of which tiles of so many rows, a line of each, are written.
    fn of(grid: Grid, tile: usize) -> Self {
        let row = grid.part(grid.rows, 0).source;
        let (apart, bytes) = (grid.row_step.unsigned_abs(), grid.columns.saturating_mul(grid.size));
        // A line that two rows share is prefetched once.
        let before = if apart > bytes { row.addr() % 64 } else { 0 };
        let lines = (before + bytes).div_ceil(64);
        let share = if grid.stream && apart > 64 { (tile * lines).div_ceil(bytes.div_ceil(64).max(1)) } else { 0 };
        Self { row, row_step: grid.row_step, line: 0, lines, share }
    }

    /// Asks for the next ones.
    #[inline(always)]
    fn fetch(&mut self) {
        for _ in 0..self.share {
            prefetch_to_second(self.row.wrapping_add(self.line * 64));
            self.line += 1;
            if self.line == self.lines {
                (self.row, self.line) = (self.row.wrapping_offset(self.row_step), 0);
            }
        }
    }
}

/// Calls `write` with each full tile of a grid with dense rows, and the columns that it has. Such a tile has `tile` rows, and a
/// cache line of each; the last ones of the rows may have fewer columns. Returns the number of rows in full tiles.
///
/// # Safety
/// As [`split`]; elements are `64 / tile` bytes.
#[inline(always)]
pub(super) unsafe fn each_tile(grid: Grid, tile: usize, mut write: impl FnMut(Grid, Range<usize>)) -> usize {
    let rows = grid.rows / tile * tile;
    let mut ahead = TilePrefetch::of(grid, tile);
    let mut lines = Lines::new();
    let crowded = Lines::are_crowded(grid, tile);
    for band in (0..grid.columns).step_by(tile) {
        let end = grid.columns.min(band + tile);
        for row in (0..rows).step_by(tile) {
            ahead.fetch();
            let start = grid.part(row, band);
            let start = match crowded && end - band == tile {
                // SAFETY: `end - band == tile`: each of `tile` rows, 64 at most, has 64 bytes from here on.
                true => unsafe { lines.copy(start, tile) },
                false => start,
            };
            write(start, band..end);
        }
    }
    rows
}

/// Writes the columns of a grid.
///
/// # Safety
/// - `source`: each row has a readable element of each column, of any alignment.
/// - `out`: each column has room for its rows, on a cache line where it is to be streamed, and overlaps nothing. Nobody
///   reads what was streamed before [`crate::convert::pack::fence`].
/// - `isa`: the processor has it.
pub(super) unsafe fn split(isa: Isa, grid: Grid) {
    // SAFETY: `source`, `out` and `isa` are promised, in the same words.
    let (columns, rows) = unsafe { vectorised(isa, grid) };
    // The columns that no tile covered, and the rows that none did.
    // SAFETY: `source` and `out` for the columns that no tile covered: `columns` is at most the grid's.
    unsafe { portable(grid.part(0, columns)) };
    // SAFETY: `source` and `out` for the rows that no tile covered, of the other columns.
    unsafe { portable(grid.part(rows, 0).first(grid.rows, columns)) };
}

/// Writes as many columns and rows as full tiles cover, and tells how many those are.
///
/// # Safety
/// As [`split`].
unsafe fn vectorised(isa: Isa, grid: Grid) -> (usize, usize) {
    if grid.column_step != grid.size.cast_signed() {
        return (0, 0);
    }
    match (isa, grid.size) {
        // SAFETY: the processor has AVX-512 (`isa`); `source` and `out` are promised, and rows are dense:
        // `column_step` is the size, 1.
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx512, 1) => unsafe { super::avx512::split::<1, 8>(grid) },
        // SAFETY: the processor has AVX-512 (`isa`); `source` and `out` are promised, for dense rows of 2-byte
        // elements.
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx512, 2) => unsafe { super::avx512::split::<2, 8>(grid) },
        // SAFETY: the processor has AVX-512 (`isa`); `source` and `out` are promised, for dense rows of 4-byte
        // elements.
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx512, 4) => unsafe { super::avx512::split::<4, 4>(grid) },
        // SAFETY: the processor has AVX-512 (`isa`); `source` and `out` are promised, for dense rows of 8-byte
        // elements.
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx512, 8) => unsafe { super::avx512::split::<8, 2>(grid) },
        // SAFETY: the processor has AVX-512 (`isa`); `source` and `out` are promised, for dense rows of 16-byte
        // elements.
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx512, 16) => unsafe { super::avx512::split::<16, 1>(grid) },
        // SAFETY: the processor has AVX2 (`isa`); `source` and `out` are promised, for dense rows of single bytes.
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx2, 1) => unsafe { super::avx2::split::<1, 8>(grid) },
        // SAFETY: the processor has AVX2 (`isa`); `source` and `out` are promised, for dense rows of 2-byte
        // elements.
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx2, 2) => unsafe { super::avx2::split::<2, 8>(grid) },
        // SAFETY: the processor has AVX2 (`isa`); `source` and `out` are promised, for dense rows of 4-byte
        // elements.
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx2, 4) => unsafe { super::avx2::split::<4, 4>(grid) },
        // SAFETY: the processor has AVX2 (`isa`); `source` and `out` are promised, for dense rows of 8-byte
        // elements.
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx2, 8) => unsafe { super::avx2::split::<8, 2>(grid) },
        // SAFETY: the processor has AVX2 (`isa`); `source` and `out` are promised, for dense rows of 16-byte
        // elements.
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx2, 16) => unsafe { super::avx2::split::<16, 1>(grid) },
        // SAFETY: every AArch64 processor has NEON; `source` and `out` are promised, for dense rows.
        #[cfg(target_arch = "aarch64")]
        (Isa::Neon, _) => unsafe { of_vectors::<Neon>(grid) },
        // SAFETY: `source` and `out` are promised, for dense rows.
        _ => unsafe { of_vectors::<Baseline>(grid) },
    }
}

/// As [`vectorised`], with 16-byte vectors.
///
/// # Safety
/// As [`split`], for dense rows.
unsafe fn of_vectors<V: Vector>(grid: Grid) -> (usize, usize) {
    match grid.size {
        // SAFETY: `source` and `out` are promised, for dense rows of single bytes.
        1 => unsafe { vectors::split::<V, 1, 8>(grid) },
        // SAFETY: `source` and `out` are promised, for dense rows of 2-byte elements.
        2 => unsafe { vectors::split::<V, 2, 8>(grid) },
        // SAFETY: `source` and `out` are promised, for dense rows of 4-byte elements.
        4 => unsafe { vectors::split::<V, 4, 4>(grid) },
        // SAFETY: `source` and `out` are promised, for dense rows of 8-byte elements.
        8 => unsafe { vectors::split::<V, 8, 2>(grid) },
        // SAFETY: `source` and `out` are promised, for dense rows of 16-byte elements.
        16 => unsafe { vectors::split::<V, 16, 1>(grid) },
        _ => (0, 0),
    }
}

/// # Safety
/// As [`split`].
unsafe fn portable(grid: Grid) {
    match grid.size {
        // SAFETY: `source` and `out` are promised, for elements of one byte.
        1 => unsafe { portable_of::<1>(grid) },
        // SAFETY: `source` and `out` are promised, for elements of 2 bytes.
        2 => unsafe { portable_of::<2>(grid) },
        // SAFETY: `source` and `out` are promised, for elements of 4 bytes.
        4 => unsafe { portable_of::<4>(grid) },
        // SAFETY: `source` and `out` are promised, for elements of 8 bytes.
        8 => unsafe { portable_of::<8>(grid) },
        // SAFETY: `source` and `out` are promised, for elements of 16 bytes, the only size that is left.
        _ => unsafe { portable_of::<16>(grid) },
    }
}

/// # Safety
/// As [`split`], for elements of `N` bytes.
unsafe fn portable_of<const N: usize>(grid: Grid) {
    for band in (0..grid.columns).step_by(64 / N) {
        for row in (0..grid.rows).step_by(ROWS) {
            let block = grid.part(row, band).first(ROWS, 64 / N);
            for column in 0..block.columns {
                let column = block.part(0, column);
                for row in 0..column.rows {
                    let start = column.source.wrapping_offset(column.row_step.wrapping_mul(row.cast_signed()));
                    // SAFETY: `source`: the grid has an element of this row and column; bytes need no alignment.
                    let element = unsafe { start.cast::<[u8; N]>().read() };
                    // SAFETY: `out`: the column has room for its rows, of which this is one; bytes need no alignment.
                    unsafe { column.out.cast::<[u8; N]>().wrapping_add(row).write(element) };
                }
            }
        }
    }
}

#[cfg(test)]
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "the numbers of a test are small"
)]
mod tests {
    use super::*;
    use crate::alloc::HostBuffer;
    use crate::convert::pack::fence;

    /// Sources of any strides, and their columns element by element.
    fn check(size: usize, (rows, columns): (usize, usize), (row_step, column_step): (isize, isize), stream: bool) {
        let reach = |step: isize, extent: usize| step * (extent as isize - 1);
        let steps = [reach(row_step, rows), reach(column_step, columns)];
        let before = steps.iter().filter(|reach| **reach < 0).sum::<isize>().unsigned_abs();
        let after = steps.iter().filter(|reach| **reach > 0).sum::<isize>().unsigned_abs() + size;
        // An odd address: no alignment is assumed.
        let memory: Vec<u8> = (0..before + after + 1).map(|index| (index * 131 + index / 251) as u8).collect();
        let first = before + 1;
        let at = |row: usize, column: usize| {
            let start = first as isize + row as isize * row_step + column as isize * column_step;
            &memory[start as usize..][..size]
        };
        let stride = ((rows * size).div_ceil(64) | 1) * 64;
        for isa in Isa::available() {
            let buffer = HostBuffer::uninitialised(stride * columns).unwrap();
            // SAFETY: the buffer has so many bytes, and nobody else uses it.
            unsafe { buffer.as_ptr().write_bytes(0xee, buffer.len()) };
            // Rows may lie before the first one: a pointer to all of the memory.
            let (source, out) = (memory.as_ptr().wrapping_add(first), buffer.as_ptr());
            let grid = Grid { source, rows, columns, row_step, column_step, out, size, stride, stream };
            // SAFETY: the memory has every element, and the buffer `stride` bytes for each column, on cache lines.
            unsafe { split(*isa, grid) };
            fence();
            // SAFETY: written above, byte by byte.
            let written = unsafe { std::slice::from_raw_parts(out, stride * columns) };
            for column in 0..columns {
                let (dense, rest) = written[column * stride..][..stride].split_at(rows * size);
                let what = (isa, size, rows, columns, row_step, column_step, column);
                assert!((0..rows).all(|row| dense[row * size..][..size] == *at(row, column)), "{what:?}");
                assert!(*rest == vec![0xee; rest.len()], "written beyond the column: {what:?}");
            }
        }
    }

    #[test]
    fn every_set_of_instructions_and_shape_matches_the_definition() {
        for size in [1, 2, 4, 8, 16] {
            // Miri has portable code alone: 64 rows and a rest, the columns of a line and a rest.
            let few = [(65, 1), (3, 64 / size + 1)];
            for columns in (1..20).chain([31, 32, 33, 63, 64, 65, 100, 130]) {
                let rows = [1, 3, 4, 8, 15, 16, 17, 31, 64, 65, 150];
                for rows in rows.into_iter().filter(|rows| !cfg!(miri) || few.contains(&(*rows, columns))) {
                    let row = (columns * size) as isize;
                    check(size, (rows, columns), (row, size as isize), rows % 2 == 1);
                    check(size, (rows, columns), (row + 3 * size as isize, size as isize), rows % 2 == 0);
                }
            }
        }
    }

    #[test]
    fn every_stride_matches_the_definition() {
        for size in [1, 2, 4, 8, 16_isize] {
            for columns in if cfg!(miri) { &[5][..] } else { &[1, 2, 5, 17, 70] }.iter().copied() {
                let row = columns as isize * size;
                for steps in [
                    (-row, size),
                    (row, -size),
                    (-row, -size),
                    (0, size),
                    (row, 0),
                    (0, 0),
                    (size, 90 * size),
                    (-size, 90 * size),
                    (2 * size, -200 * size),
                    (3 * row, 3 * size),
                    (row + 1, size),
                ] {
                    check(size as usize, (if cfg!(miri) { 5 } else { 83 }, columns), steps, columns % 2 == 1);
                }
            }
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    #[cfg_attr(miri, ignore = "Miri has no mprotect")]
    fn nothing_around_the_elements_is_read() {
        let (page, length) = (1 << 16, 1 << 17);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: fresh memory, wherever the system has room; to read it ends the process.
        let all = unsafe { libc::mmap(std::ptr::null_mut(), length + 2 * page, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(all, libc::MAP_FAILED);
        let start = all.cast::<u8>().wrapping_add(page);
        // SAFETY: pages of those, all but the first and the last.
        assert_eq!(unsafe { libc::mprotect(start.cast(), length, libc::PROT_READ) }, 0);
        for size in [1_usize, 2, 4, 8, 16] {
            for (rows, columns) in (1..20).map(|columns| (70, columns)).chain([(17, 33), (64, 70), (3, 130)]) {
                let (row, stride) = (columns * size, ((rows * size).div_ceil(64) | 1) * 64);
                let buffer = HostBuffer::uninitialised(stride * columns).unwrap();
                let out = buffer.as_ptr();
                for source in [start, start.wrapping_add(length - rows * row)] {
                    let (row_step, column_step) = (row as isize, size as isize);
                    let grid = Grid { source, rows, columns, row_step, column_step, out, size, stride, stream: false };
                    for isa in Isa::available() {
                        // SAFETY: the elements start or end where the readable pages do; the buffer has room.
                        unsafe { split(*isa, grid) };
                    }
                }
            }
        }
        // SAFETY: mapped above, and not used any more.
        unsafe { libc::munmap(all, length + 2 * page) };
    }

    #[test]
    fn wide_matrices_match_the_definition() {
        let (wide, rows, apart) = if cfg!(miri) {
            (&[(1, 300), (16, 20)][..], 3, 1 << 10)
        } else {
            (&[(1, 4096), (4, 1000), (4, 4096), (16, 300)][..], 70, 1 << 16)
        };
        for &(size, columns) in wide {
            check(size, (rows, columns), ((columns * size) as isize, size as isize), true);
            // Some columns of a wider matrix, whose rows crowd into one set of the cache.
            check(size, (rows, columns / 3), (apart, size as isize), false);
        }
    }
}
