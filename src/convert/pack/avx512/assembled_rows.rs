//! Writes rows of 4-byte elements that share cache lines with the next row: assembles a few rows in the first-level cache, and
//! streams their lines.

use std::arch::x86_64::{
    __m512, _mm_storeu_ps, _mm512_castpd_ps, _mm512_castps512_ps128, _mm512_extractf32x4_ps, _mm512_load_ps,
    _mm512_loadu_ps, _mm512_setzero_ps, _mm512_store_ps, _mm512_storeu_ps, _mm512_stream_ps,
};

use super::super::assembled_rows::{AssembledRows, Assembler};
use super::super::stream::{LINE, prefetch_to_second};
use super::{LANES4, quad4, tile4};

/// Rows that are assembled at a time: two lines of each column, and two lines of the result for each.
const ASSEMBLED: usize = 2 * LANES4;
/// Lines that a column's elements fill in so many rows.
const COLUMN_LINES: usize = ASSEMBLED / LANES4;
/// Bytes of an element.
const SIZE: usize = 4;
/// Columns of a quarter of a line.
const QUAD: usize = 4;

/// Assembles with 64-byte vectors.
pub(in super::super) static ASSEMBLER: Assembler = Assembler { rows: ASSEMBLED, assemble, stream };

/// Puts 32 rows together in the buffer, the first of them row `first` of the columns.
///
/// # Safety
/// As [`Assembler`] says, for 32 rows; the processor has AVX-512F.
#[target_feature(enable = "avx512f")]
unsafe fn assemble(block: &AssembledRows<'_>, first: usize) {
    let (groups, rest) = block.columns.as_chunks::<LANES4>();
    for (number, group) in groups.iter().enumerate() {
        // SAFETY: `columns`, `buffer` and `isa` are promised; these are columns `16 * number` and the 15 behind it.
        unsafe { sixteen(block, group, number * LANES4, first) };
    }
    // The last columns come with as many of those before them as fill a tile, which are written again.
    if let (true, Some(columns)) = (rest.len() <= QUAD, block.columns.last_chunk::<QUAD>()) {
        // SAFETY: `columns`, `buffer` and `isa` are promised; these are the last four columns.
        unsafe { four(block, columns, block.columns.len() - QUAD, first) };
    } else if let Some(columns) = block.columns.last_chunk::<LANES4>() {
        // SAFETY: `columns`, `buffer` and `isa` are promised; these are the last 16 columns.
        unsafe { sixteen(block, columns, block.columns.len() - LANES4, first) };
    }
}

/// As [`assemble`], 16 columns, the first of which is number `column`.
///
/// # Safety
/// As [`assemble`]; there are 16 columns from `column` on.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn sixteen(block: &AssembledRows<'_>, columns: &[*const u8; LANES4], column: usize, first: usize) {
    for row in (0..ASSEMBLED).step_by(LANES4) {
        let mut tile = [_mm512_setzero_ps(); LANES4];
        for lane in 0..LANES4 {
            // SAFETY: `columns`: 16 rows from `first + row` on, as `row + 16` is at most 32.
            tile[lane] = unsafe { load(columns[lane], first + row) };
        }
        let rows = tile4(tile);
        for line in 0..LANES4 {
            // SAFETY: `buffer`: a row of it has 16 elements from `column` on, and `row + line` is less than 32.
            unsafe { _mm512_storeu_ps(block.element(row + line, column), rows[line]) };
        }
    }
}

/// As [`sixteen`], four columns.
///
/// # Safety
/// As [`assemble`]; there are four columns from `column` on.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn four(block: &AssembledRows<'_>, columns: &[*const u8; QUAD], column: usize, first: usize) {
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
                let to = block.element(row + index + QUAD * quarter, column);
                // SAFETY: `buffer`: a row of it has four elements from `column` on, and the row's number is at most
                // 16 + 3 + 4 * 3, which is less than 32.
                unsafe { _mm_storeu_ps(to, quarters[quarter]) };
            }
        }
    }
}

/// As [`Assembler::stream`]. Prefetches the columns of the next rows, a line of each with each line that is written.
///
/// # Safety
/// As [`Assembler`] says, for 32 rows; the processor has AVX-512F.
#[target_feature(enable = "avx512f")]
unsafe fn stream(block: &AssembledRows<'_>, out: *mut u8, left_out: usize, next: usize) {
    for (number, column) in block.columns.iter().enumerate() {
        // If elements start inside a line, the rows before have prefetched that line.
        let ahead = column.wrapping_add(next * SIZE + LINE - 1);
        for index in 0..COLUMN_LINES {
            prefetch_to_second(ahead.wrapping_add(index * LINE));
            let line = number * COLUMN_LINES + index;
            if line < left_out {
                continue;
            }
            // SAFETY: `buffer`: `line` is less than twice the columns; each line is aligned, as the first one is.
            let bytes = unsafe { _mm512_load_ps(block.line_at(line)) };
            // SAFETY: `room`: the line is not left out, and less than twice the columns; each is on a cache line.
            unsafe { _mm512_stream_ps(out.wrapping_add(line * LINE).cast(), bytes) };
        }
    }
    // SAFETY: `buffer`: the line behind those of the rows is the last one.
    let bytes = unsafe { _mm512_load_ps(block.line_at(block.columns.len() * COLUMN_LINES)) };
    // SAFETY: `buffer`: the first line.
    unsafe { _mm512_store_ps(block.line_at(0), bytes) };
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
