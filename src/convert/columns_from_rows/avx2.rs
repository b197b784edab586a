//! Transposes tiles with 32-byte vectors.

use std::arch::x86_64::{
    __m128i, __m256i, _mm_loadl_epi64, _mm_loadu_si128, _mm_unpacklo_epi64, _mm256_castsi128_si256,
    _mm256_inserti128_si256, _mm256_setzero_si256, _mm256_storeu_si256, _mm256_stream_si256, _mm256_unpackhi_epi8,
    _mm256_unpackhi_epi16, _mm256_unpackhi_epi32, _mm256_unpackhi_epi64, _mm256_unpacklo_epi8, _mm256_unpacklo_epi16,
    _mm256_unpacklo_epi32, _mm256_unpacklo_epi64,
};
use std::ops::Range;

use super::tile_grid::{Grid, each_tile};

/// Writes the columns of a grid with dense rows of `SIZE`-byte elements, `GROUP` columns at a time: the rows of full
/// tiles, and all columns unless there are fewer than a tile has. Returns the number of columns and rows written.
///
/// # Safety
/// As [`super::tile_grid::split`]; the processor has these instructions.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn split<const SIZE: usize, const GROUP: usize>(grid: Grid) -> (usize, usize) {
    // A tile reads a cache line of each row, and writes a cache line of each column, in two halves.
    let tile = 64 / SIZE;
    if grid.columns < GROUP {
        return (0, 0);
    }
    let write_tile = |start: Grid, band: Range<usize>| {
        for column in band.clone().step_by(GROUP) {
            // The last columns are read together with some before them, which are already written.
            let written = GROUP.saturating_sub(band.end - column);
            for half in [0, tile / 2] {
                // Before the band there are columns wherever it has too few.
                let part = start.part(half, 0).columns_from(column - band.start, written);
                // SAFETY: the part has half a tile's rows and `GROUP` columns: `written` of them lie before
                // `column`, which are columns of the grid, as it has `GROUP` or more, and bands before the last are
                // whole; a copy is made of whole bands only.
                let lines = unsafe { read::<SIZE, GROUP>(part) };
                // SAFETY: each column from `written` on has room for half a line from the part's first row on, on half a cache
                // line if streamed.
                unsafe { write(part, written, lines) };
            }
        }
    };
    // SAFETY: as promised, and elements have `SIZE` bytes.
    let rows = unsafe { each_tile(grid, tile, write_tile) };
    (grid.columns, rows)
}

/// Half a line of each of the first columns.
///
/// # Safety
/// The part has as many rows as half a line has elements, with `GROUP` readable elements each.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn read<const SIZE: usize, const GROUP: usize>(part: Grid) -> [__m256i; GROUP] {
    let mut lines = [_mm256_setzero_si256(); GROUP];
    for (index, line) in lines.iter_mut().enumerate() {
        let lane = |number: usize| {
            if SIZE == 1 {
                let first = part.part(number * 16 + 2 * index, 0);
                // SAFETY: the row has 8 elements of one byte.
                let even = unsafe { read_row::<8>(first.source) };
                // SAFETY: the row behind has 8 elements of one byte.
                let odd = unsafe { read_row::<8>(first.part(1, 0).source) };
                return _mm_unpacklo_epi64(even, odd);
            }
            // SAFETY: the row has `GROUP` elements, 16 bytes.
            unsafe { read_row::<16>(part.part(number * GROUP + index, 0).source) }
        };
        *line = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(lane(0)), lane(1));
    }
    // Each step doubles the adjacent rows of a column in a lane. Unrolled by hand, because a loop would keep the lines
    // in memory.
    let lines = if SIZE < 16 { weave::<SIZE, GROUP>(lines) } else { lines };
    let lines = if SIZE < 8 { weave::<SIZE, GROUP>(lines) } else { lines };
    let lines = if SIZE < 4 { weave::<SIZE, GROUP>(lines) } else { lines };
    if SIZE < 2 { weave::<SIZE, GROUP>(lines) } else { lines }
}

/// The first bytes of a row, 8 or 16.
///
/// # Safety
/// The row has `BYTES` readable bytes.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn read_row<const BYTES: usize>(row: *const u8) -> __m128i {
    if BYTES == 8 {
        // SAFETY: the row has 8 bytes, of any alignment.
        unsafe { _mm_loadl_epi64(row.cast()) }
    } else {
        // SAFETY: the row has 16 bytes, of any alignment.
        unsafe { _mm_loadu_si128(row.cast()) }
    }
}

/// The first half of the lines and the second, lane by lane and element by element in turn.
#[inline]
#[target_feature(enable = "avx2")]
fn weave<const SIZE: usize, const GROUP: usize>(lines: [__m256i; GROUP]) -> [__m256i; GROUP] {
    let mut woven = lines;
    let (front, back) = lines.split_at(GROUP / 2);
    for ((a, b), pair) in front.iter().zip(back).zip(woven.as_chunks_mut::<2>().0) {
        *pair = match SIZE {
            1 => [_mm256_unpacklo_epi8(*a, *b), _mm256_unpackhi_epi8(*a, *b)],
            2 => [_mm256_unpacklo_epi16(*a, *b), _mm256_unpackhi_epi16(*a, *b)],
            4 => [_mm256_unpacklo_epi32(*a, *b), _mm256_unpackhi_epi32(*a, *b)],
            _ => [_mm256_unpacklo_epi64(*a, *b), _mm256_unpackhi_epi64(*a, *b)],
        };
    }
    woven
}

/// Writes half a line of each column but the first `skip`.
///
/// # Safety
/// Each has room for it, on half a cache line if the grid is streamed.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn write<const GROUP: usize>(part: Grid, skip: usize, lines: [__m256i; GROUP]) {
    for (column, line) in lines.into_iter().enumerate().skip(skip) {
        let out = part.part(0, column).out;
        if part.stream {
            // SAFETY: the column has room for half a line, and is on half a cache line, as the grid is streamed.
            unsafe { _mm256_stream_si256(out.cast(), line) };
        } else {
            // SAFETY: the column has room for half a line, of any alignment.
            unsafe { _mm256_storeu_si256(out.cast(), line) };
        }
    }
}
