//! Writes rows of 4-byte elements that share cache lines with the next row: assembles 64 of them, eight columns at a time, in a buffer
//! whose lines it streams, or where they belong.

use std::arch::x86_64::{
    _mm_storeu_ps, _mm256_castpd_ps, _mm256_castps256_ps128, _mm256_extractf128_ps, _mm256_load_ps, _mm256_store_ps,
    _mm256_storeu_ps, _mm256_stream_ps,
};

use super::super::assembled_rows::{AssembledRows, Assembler};
use super::super::isa::BLOCK_ROWS;
use super::super::stream::{LINE, prefetch};
use super::{LANES4, loaded, octets, quad4};

/// Bytes of an element.
const SIZE: usize = 4;
/// Lines that a column's elements fill in 64 rows.
const COLUMN_LINES: usize = BLOCK_ROWS * SIZE / LINE;
/// Columns of 16 bytes of a row.
const QUAD: usize = 4;
/// Elements of half a line.
const HALF: usize = LINE / 2 / SIZE;

/// Assembles with 32-byte vectors.
pub(in super::super) static ASSEMBLER: Assembler = Assembler { rows: BLOCK_ROWS, assemble, stream };

/// As [`Assembler::assemble`]. Eight columns are prefetched while those before them are read: large columns start at one place of their pages, and
/// evict each other from the first-level cache if more are.
///
/// # Safety
/// As [`Assembler`] says, for 64 rows; the processor has AVX2.
#[target_feature(enable = "avx2")]
unsafe fn assemble(block: &AssembledRows<'_>, first: usize) {
    let (groups, rest) = block.columns.as_chunks::<LANES4>();
    for (number, group) in groups.iter().enumerate() {
        let next = (number + 1) * LANES4;
        match block.columns.get(next..block.columns.len().min(next + LANES4)) {
            Some(columns) if !columns.is_empty() => fetch(columns, first),
            _ => fetch(block.columns.first_chunk::<LANES4>().map_or(&[], |first| first), first + BLOCK_ROWS),
        }
        // SAFETY: `columns`, `buffer` and `isa` are promised; these are columns `8 * number` and the seven behind it.
        unsafe { eight(block, group, number * LANES4, first) };
    }
    // The last columns come with as many of those before them as fill a tile, which are written again.
    if rest.is_empty() {
        return;
    }
    fetch(block.columns.first_chunk::<LANES4>().map_or(&[], |first| first), first + BLOCK_ROWS);
    if let (true, Some(columns)) = (rest.len() <= QUAD, block.columns.last_chunk::<QUAD>()) {
        // SAFETY: `columns`, `buffer` and `isa` are promised; these are the last four columns.
        unsafe { four(block, columns, block.columns.len() - QUAD, first) };
    } else if let Some(columns) = block.columns.last_chunk::<LANES4>() {
        // SAFETY: `columns`, `buffer` and `isa` are promised; these are the last eight columns.
        unsafe { eight(block, columns, block.columns.len() - LANES4, first) };
    }
}

/// Prefetches 64 rows of columns, the first of them row `first`.
#[inline(always)]
fn fetch(columns: &[*const u8], first: usize) {
    for column in columns {
        // If elements start inside a line, the rows before have prefetched that line.
        let ahead = column.wrapping_add(first * SIZE + LINE - 1);
        for line in 0..COLUMN_LINES {
            prefetch(ahead.wrapping_add(line * LINE));
        }
    }
}

/// As [`assemble`], eight columns, the first of which is number `column`.
///
/// # Safety
/// As [`assemble`]; there are eight columns from `column` on.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn eight(block: &AssembledRows<'_>, columns: &[*const u8; LANES4], column: usize, first: usize) {
    for row in (0..BLOCK_ROWS).step_by(LANES4) {
        // SAFETY: `columns`: 8 rows from `first + row` on, as `row + 8` is at most 64.
        let rows = octets(unsafe { loaded(columns, first + row) });
        for line in 0..LANES4 {
            let elements = _mm256_castpd_ps(rows[line]);
            // SAFETY: `buffer`: a row of it has eight elements from `column` on, and `row + line` is less than 64.
            unsafe { _mm256_storeu_ps(block.element(row + line, column), elements) };
        }
    }
}

/// As [`eight`], four columns.
///
/// # Safety
/// As [`assemble`]; there are four columns from `column` on.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn four(block: &AssembledRows<'_>, columns: &[*const u8; QUAD], column: usize, first: usize) {
    for row in (0..BLOCK_ROWS).step_by(LANES4) {
        // SAFETY: `columns`: 8 rows from `first + row` on, as `row + 8` is at most 64.
        let rows = quad4(unsafe { loaded(columns, first + row) });
        for line in 0..QUAD {
            let elements = _mm256_castpd_ps(rows[line]);
            let (low, high) = (_mm256_castps256_ps128(elements), _mm256_extractf128_ps::<1>(elements));
            // SAFETY: `buffer`: a row of it has four elements from `column` on, and `row + line` is less than 64.
            unsafe { _mm_storeu_ps(block.element(row + line, column), low) };
            // SAFETY: `buffer`: row `row + line + 4`, which is less than 64, has four elements from `column` on.
            unsafe { _mm_storeu_ps(block.element(row + line + QUAD, column), high) };
        }
    }
}

/// As [`Assembler::stream`].
///
/// # Safety
/// As [`Assembler`] says, for 64 rows; the processor has AVX2.
#[target_feature(enable = "avx2")]
unsafe fn stream(block: &AssembledRows<'_>, out: *mut u8, left_out: usize, _next: usize) {
    let lines = block.columns.len() * COLUMN_LINES;
    for line in left_out..lines {
        for half in 0..2 {
            let from = block.line_at(line).wrapping_add(half * HALF);
            // SAFETY: `buffer`: `line` is less than four times the columns; each line is aligned, as the first one is.
            let elements = unsafe { _mm256_load_ps(from) };
            let to = out.wrapping_add(line * LINE).cast::<f32>().wrapping_add(half * HALF);
            // SAFETY: `room`: the line is not left out, and less than four times the columns; each is on a cache line.
            unsafe { _mm256_stream_ps(to, elements) };
        }
    }
    for half in 0..2 {
        // SAFETY: `buffer`: the line behind those of the rows is the last one.
        let elements = unsafe { _mm256_load_ps(block.line_at(lines).wrapping_add(half * HALF)) };
        // SAFETY: `buffer`: the first line.
        unsafe { _mm256_store_ps(block.line_at(0).wrapping_add(half * HALF), elements) };
    }
}
