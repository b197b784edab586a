//! Writes rows of 4-byte elements that share cache lines with the next row: assembles a few rows in the first-level cache, and
//! streams their lines.

use std::arch::x86_64::{
    __m512, _mm_storeu_ps, _mm512_castpd_ps, _mm512_castps512_ps128, _mm512_extractf32x4_ps, _mm512_load_ps,
    _mm512_loadu_ps, _mm512_setzero_ps, _mm512_store_ps, _mm512_storeu_ps, _mm512_stream_ps,
};

use super::super::stream::{LINE, prefetch_to_second};
use super::{LANES4, quad4, tile4};

/// Rows that are assembled at a time: two lines of each column, and two lines of the result for each.
pub(in super::super) const ASSEMBLED: usize = 2 * LANES4;
/// Lines that a column's elements fill in so many rows.
const COLUMN_LINES: usize = ASSEMBLED / LANES4;
/// Bytes of an element.
const SIZE: usize = 4;
/// Columns of a quarter of a line.
const QUAD: usize = 4;

/// Rows to assemble, and the buffer for it.
pub(in super::super) struct AssembledRows<'a> {
    /// Where each column's first element is.
    pub(in super::super) columns: &'a [*const u8],
    /// Bytes of the buffer before the first row.
    pub(in super::super) before: usize,
    /// The buffer, from the start of a line on.
    pub(in super::super) buffer: *mut u8,
}

impl AssembledRows<'_> {
    /// Returns how many lines the buffer has for so many columns: those of the rows, and one for the bytes before the first row.
    pub(in super::super) const fn line_count(columns: usize) -> usize {
        columns * COLUMN_LINES + 1
    }

    /// Puts 32 rows together in the buffer, the first of them row `first` of the columns.
    ///
    /// # Safety
    /// - `columns`: there are more than 16, with 32 rows from `first` on, of any alignment.
    /// - `buffer`: it has [`Self::line_count`] lines, the first of which starts on a line of the cache, and nobody else uses them.
    ///   `before` is less than a line.
    /// - `isa`: the processor has AVX-512F.
    #[target_feature(enable = "avx512f")]
    pub(in super::super) unsafe fn assemble(&self, first: usize) {
        let (groups, rest) = self.columns.as_chunks::<LANES4>();
        for (number, group) in groups.iter().enumerate() {
            // SAFETY: `columns`, `buffer` and `isa` are promised; these are columns `16 * number` and the 15 behind it.
            unsafe { self.group(group, number * LANES4, first) };
        }
        // The last columns come with as many of those before them as fill a tile, which are written again.
        if let (true, Some(columns)) = (rest.len() <= QUAD, self.columns.last_chunk::<QUAD>()) {
            // SAFETY: `columns`, `buffer` and `isa` are promised; these are the last four columns.
            unsafe { self.quad(columns, self.columns.len() - QUAD, first) };
        } else if let Some(columns) = self.columns.last_chunk::<LANES4>() {
            // SAFETY: `columns`, `buffer` and `isa` are promised; these are the last 16 columns.
            unsafe { self.group(columns, self.columns.len() - LANES4, first) };
        }
    }

    /// As [`Self::assemble`], 16 columns, the first of which is number `column`.
    ///
    /// # Safety
    /// As [`Self::assemble`]; there are 16 columns from `column` on.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn group(&self, columns: &[*const u8; LANES4], column: usize, first: usize) {
        for row in (0..ASSEMBLED).step_by(LANES4) {
            let mut tile = [_mm512_setzero_ps(); LANES4];
            for lane in 0..LANES4 {
                // SAFETY: `columns`: 16 rows from `first + row` on, as `row + 16` is at most 32.
                tile[lane] = unsafe { load(columns[lane], first + row) };
            }
            let rows = tile4(tile);
            for line in 0..LANES4 {
                // SAFETY: `buffer`: a row of it has 16 elements from `column` on, and `row + line` is less than 32.
                unsafe { _mm512_storeu_ps(self.element(row + line, column), rows[line]) };
            }
        }
    }

    /// As [`Self::group`], four columns.
    ///
    /// # Safety
    /// As [`Self::assemble`]; there are four columns from `column` on.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn quad(&self, columns: &[*const u8; QUAD], column: usize, first: usize) {
        for row in (0..ASSEMBLED).step_by(LANES4) {
            let mut lanes = [_mm512_setzero_ps(); QUAD];
            for lane in 0..QUAD {
                // SAFETY: `columns`: 16 rows from `first + row` on, as `row + 16` is at most 32.
                lanes[lane] = unsafe { load(columns[lane], first + row) };
            }
            // Rows n, n + 4, n + 8 and n + 12 are the quarters of a vector.
            let quads = quad4(lanes);
            for index in 0..QUAD {
                let rows = _mm512_castpd_ps(quads[index]);
                let quarters = [
                    _mm512_castps512_ps128(rows),
                    _mm512_extractf32x4_ps::<1>(rows),
                    _mm512_extractf32x4_ps::<2>(rows),
                    _mm512_extractf32x4_ps::<3>(rows),
                ];
                for quarter in 0..QUAD {
                    let to = self.element(row + index + QUAD * quarter, column);
                    // SAFETY: `buffer`: a row of it has four elements from `column` on, and the row's number is at most
                    // 16 + 3 + 4 * 3, which is less than 32.
                    unsafe { _mm_storeu_ps(to, quarters[quarter]) };
                }
            }
        }
    }

    /// Writes the whole lines of the assembled rows by non-temporal stores, but for the first `left_out` ones, and moves the bytes
    /// behind them to the buffer's start, for the next rows. Prefetches the columns from row `next` on meanwhile, so that reads and
    /// writes wait for memory at the same time.
    ///
    /// # Safety
    /// - `buffer`: as [`Self::assemble`], which wrote it, the bytes before the first row too unless those lines are left out.
    /// - `room`: `out` is the place of the buffer's first line, at the start of a line of the cache. Of the `2 * columns` lines from
    ///   there on, those behind the first `left_out` may be written, and nobody else uses them.
    /// - `isa`: the processor has AVX-512F.
    #[target_feature(enable = "avx512f")]
    pub(in super::super) unsafe fn stream(&self, out: *mut u8, left_out: usize, next: usize) {
        for (number, column) in self.columns.iter().enumerate() {
            // If elements start inside a line, the rows before have prefetched that line.
            let ahead = column.wrapping_add(next * SIZE + LINE - 1);
            for index in 0..COLUMN_LINES {
                prefetch_to_second(ahead.wrapping_add(index * LINE));
                let line = number * COLUMN_LINES + index;
                if line < left_out {
                    continue;
                }
                // SAFETY: `buffer`: `line` is less than twice the columns; each line is aligned, as the first one is.
                let bytes = unsafe { _mm512_load_ps(self.line_at(line)) };
                // SAFETY: `room`: the line is not left out, and less than twice the columns; each is on a cache line.
                unsafe { _mm512_stream_ps(out.wrapping_add(line * LINE).cast(), bytes) };
            }
        }
        // SAFETY: `buffer`: the line behind those of the rows is the last one.
        let bytes = unsafe { _mm512_load_ps(self.line_at(self.columns.len() * COLUMN_LINES)) };
        // SAFETY: `buffer`: the first line.
        unsafe { _mm512_store_ps(self.line_at(0), bytes) };
    }

    /// Where an element of an assembled row is.
    #[inline(always)]
    fn element(&self, row: usize, column: usize) -> *mut f32 {
        self.buffer.wrapping_add(self.before + (row * self.columns.len() + column) * SIZE).cast()
    }

    /// Where a line of the buffer is.
    #[inline(always)]
    fn line_at(&self, number: usize) -> *mut f32 {
        self.buffer.wrapping_add(number * LINE).cast()
    }
}

/// 16 elements of a column.
///
/// # Safety
/// The column has 16 rows from `row` on; the processor has AVX-512F.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn load(column: *const u8, row: usize) -> __m512 {
    // SAFETY: 16 elements of 4 bytes, of any alignment.
    unsafe { _mm512_loadu_ps(column.cast::<f32>().wrapping_add(row)) }
}
