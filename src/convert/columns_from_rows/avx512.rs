//! Transposes tiles with 64-byte vectors.

use std::arch::x86_64::{
    __m128i, __m512i, __mmask16, _mm_loadl_epi64, _mm_loadu_si128, _mm_maskz_loadu_epi8, _mm_unpacklo_epi64,
    _mm256_castsi128_si256, _mm256_inserti128_si256, _mm512_castsi256_si512, _mm512_inserti64x4, _mm512_setzero_si512,
    _mm512_storeu_si512, _mm512_stream_si512, _mm512_unpackhi_epi8, _mm512_unpackhi_epi16, _mm512_unpackhi_epi32,
    _mm512_unpackhi_epi64, _mm512_unpacklo_epi8, _mm512_unpacklo_epi16, _mm512_unpacklo_epi32, _mm512_unpacklo_epi64,
};
use std::ops::Range;

use super::tile_grid::{Grid, each_tile};

/// Writes the columns of a grid with dense rows of `SIZE`-byte elements, `GROUP` columns at a time: the rows of full
/// tiles. Returns the number of columns and rows written.
///
/// # Safety
/// As [`super::tile_grid::split`]; the processor has these instructions.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(super) unsafe fn split<const SIZE: usize, const GROUP: usize>(grid: Grid) -> (usize, usize) {
    // A tile reads a cache line of each row, and writes a cache line of each column.
    let tile = 64 / SIZE;
    let write_tile = |start: Grid, band: Range<usize>| {
        for column in band.clone().step_by(GROUP) {
            let part = start.part(0, column - band.start);
            let count = (band.end - column).min(GROUP);
            if count == GROUP {
                // SAFETY: the part has `tile` rows, and `GROUP` columns from `column` on, as `count` says.
                let lines = unsafe { read::<SIZE, GROUP, false>(part, __mmask16::MAX) };
                // SAFETY: each of these columns has room for a line: an element of each of the tile's rows, on a cache line
                // if streamed.
                unsafe { write(part, GROUP, lines) };
            } else {
                let mask = __mmask16::MAX >> (16 - count * SIZE);
                // SAFETY: the part has `tile` rows, and the mask a bit for each byte of the `count` columns that
                // are left.
                let lines = unsafe { read::<SIZE, GROUP, true>(part, mask) };
                // SAFETY: each of the `count` columns has room for a line: an element of each of the tile's rows, on a
                // cache line if streamed.
                unsafe { write(part, count, lines) };
            }
        }
    };
    // SAFETY: as promised, and elements have `SIZE` bytes.
    let rows = unsafe { each_tile(grid, tile, write_tile) };
    (grid.columns, rows)
}

/// A line of each of the first columns.
///
/// # Safety
/// The part has as many rows as a line has elements, with `GROUP` readable elements each, or those whose bytes are set in
/// the mask.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn read<const SIZE: usize, const GROUP: usize, const MASKED: bool>(
    part: Grid,
    mask: __mmask16,
) -> [__m512i; GROUP] {
    let mut lines = [_mm512_setzero_si512(); GROUP];
    for (index, line) in lines.iter_mut().enumerate() {
        let lane = |number: usize| {
            if SIZE == 1 {
                let first = part.part(number * 16 + 2 * index, 0);
                // SAFETY: the row has 8 elements of one byte, or those that the mask names.
                let even = unsafe { read_row::<8, MASKED>(first.source, mask) };
                // SAFETY: the row behind has 8 elements of one byte, or those that the mask names.
                let odd = unsafe { read_row::<8, MASKED>(first.part(1, 0).source, mask) };
                return _mm_unpacklo_epi64(even, odd);
            }
            // SAFETY: the row has `GROUP` elements, 16 bytes, or those that the mask names.
            unsafe { read_row::<16, MASKED>(part.part(number * GROUP + index, 0).source, mask) }
        };
        let low = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(lane(0)), lane(1));
        let high = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(lane(2)), lane(3));
        *line = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high);
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
/// The row has `BYTES` readable bytes, or those whose bits are set in the mask.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn read_row<const BYTES: usize, const MASKED: bool>(row: *const u8, mask: __mmask16) -> __m128i {
    match (MASKED, BYTES) {
        // SAFETY: bytes whose bit is not set are not read.
        (true, _) => unsafe { _mm_maskz_loadu_epi8(mask, row.cast()) },
        // SAFETY: the row has 8 bytes, of any alignment.
        (false, 8) => unsafe { _mm_loadl_epi64(row.cast()) },
        // SAFETY: the row has 16 bytes, of any alignment.
        (false, _) => unsafe { _mm_loadu_si128(row.cast()) },
    }
}

/// The first half of the lines and the second, lane by lane and element by element in turn.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn weave<const SIZE: usize, const GROUP: usize>(lines: [__m512i; GROUP]) -> [__m512i; GROUP] {
    let mut woven = lines;
    let (front, back) = lines.split_at(GROUP / 2);
    for ((a, b), pair) in front.iter().zip(back).zip(woven.as_chunks_mut::<2>().0) {
        *pair = match SIZE {
            1 => [_mm512_unpacklo_epi8(*a, *b), _mm512_unpackhi_epi8(*a, *b)],
            2 => [_mm512_unpacklo_epi16(*a, *b), _mm512_unpackhi_epi16(*a, *b)],
            4 => [_mm512_unpacklo_epi32(*a, *b), _mm512_unpackhi_epi32(*a, *b)],
            _ => [_mm512_unpacklo_epi64(*a, *b), _mm512_unpackhi_epi64(*a, *b)],
        };
    }
    woven
}

/// Writes a line of each of the first `count` columns.
///
/// # Safety
/// Each has room for it, on a cache line if the grid is streamed.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn write<const GROUP: usize>(part: Grid, count: usize, lines: [__m512i; GROUP]) {
    for (column, line) in lines.into_iter().enumerate().take(count) {
        let out = part.part(0, column).out;
        if part.stream {
            // SAFETY: the column has room for a line, and is on a cache line, as the grid is streamed.
            unsafe { _mm512_stream_si512(out.cast(), line) };
        } else {
            // SAFETY: the column has room for a line, of any alignment.
            unsafe { _mm512_storeu_si512(out.cast(), line) };
        }
    }
}
