//! Transposes tiles with 32-byte vectors: two of them are a row of a tile, which is one cache line.

#![expect(
    clippy::indexing_slicing,
    clippy::needless_range_loop,
    reason = "constants index arrays of constant length; iterators are not unrolled into registers"
)]

use std::arch::x86_64::{
    __m128d, __m256, __m256d, _mm_loadu_pd, _mm_loadu_ps, _mm256_and_si256, _mm256_castpd_ps, _mm256_castpd128_pd256,
    _mm256_castps_pd, _mm256_castps128_ps256, _mm256_castsi256_pd, _mm256_cmpeq_epi8, _mm256_insertf128_pd,
    _mm256_insertf128_ps, _mm256_loadu_ps, _mm256_permute2f128_pd, _mm256_set1_epi8, _mm256_set1_epi32,
    _mm256_set1_epi64x, _mm256_setr_epi64x, _mm256_setzero_pd, _mm256_setzero_ps, _mm256_shuffle_epi8,
    _mm256_storeu_ps, _mm256_stream_ps, _mm256_unpackhi_pd, _mm256_unpackhi_ps, _mm256_unpacklo_pd, _mm256_unpacklo_ps,
};

use std::mem::MaybeUninit;

use super::isa::BLOCK_ROWS;
use super::select::UnalignedBits;
use super::stream::{LINE, prefetch_to_second};
use super::transpose::Tiles;

/// Writes 16 lanes of 4-byte elements as rows.
///
/// # Safety
/// As [`super::transpose::transpose`]; the processor has AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn transpose4(tiles: &Tiles<'_>) {
    for row in (0..tiles.rows).step_by(4) {
        tiles.fetch(row, 4);
        // Each vector holds half a row: lanes n and n + 4 together, so that no element crosses 128-bit halves.
        let mut halves = [[_mm256_setzero_pd(); 4]; 2];
        for half in 0..2 {
            let mut tile = [_mm256_setzero_ps(); 4];
            for lane in 0..4 {
                let at = |lane: usize| tiles.lanes[half * 8 + lane].cast::<f32>().wrapping_add(row);
                // SAFETY: `lanes`: it has elements up to `tiles.rows`, which is a multiple of 64, so 4 from `row` on.
                let low = unsafe { _mm_loadu_ps(at(lane)) };
                // SAFETY: `lanes`: 4 elements from `row` on, as in `low`.
                let high = unsafe { _mm_loadu_ps(at(lane + 4)) };
                tile[lane] = _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(low), high);
            }
            halves[half] = quad4(tile);
        }
        for line in 0..4 {
            // SAFETY: `rows`: this one has room for a line, on a cache line if `stream`.
            unsafe { store(tiles.row(row + line), halves[0][line], halves[1][line], tiles.stream) };
        }
    }
}

/// As [`transpose4`], for 8 lanes of 8-byte elements.
///
/// # Safety
/// As [`transpose4`].
#[target_feature(enable = "avx2")]
pub(super) unsafe fn transpose8(tiles: &Tiles<'_>) {
    for row in (0..tiles.rows).step_by(2) {
        tiles.fetch(row, 2);
        // Each vector holds half a row: lanes n and n + 2 together.
        let mut halves = [[_mm256_setzero_pd(); 2]; 2];
        for half in 0..2 {
            let mut tile = [_mm256_setzero_pd(); 2];
            for lane in 0..2 {
                let at = |lane: usize| tiles.lanes[half * 4 + lane].cast::<f64>().wrapping_add(row);
                // SAFETY: `lanes`: it has elements up to `tiles.rows`, which is a multiple of 64, so 2 from `row` on.
                let low: __m128d = unsafe { _mm_loadu_pd(at(lane)) };
                // SAFETY: `lanes`: 2 elements from `row` on, as in `low`.
                let high = unsafe { _mm_loadu_pd(at(lane + 2)) };
                tile[lane] = _mm256_insertf128_pd::<1>(_mm256_castpd128_pd256(low), high);
            }
            halves[half] = [_mm256_unpacklo_pd(tile[0], tile[1]), _mm256_unpackhi_pd(tile[0], tile[1])];
        }
        for line in 0..2 {
            // SAFETY: `rows`: this one has room for a line, on a cache line if `stream`.
            unsafe { store(tiles.row(row + line), halves[0][line], halves[1][line], tiles.stream) };
        }
    }
}

/// Writes 4 lanes of 4-byte elements as 64 rows of 16 bytes, one after the other.
///
/// # Safety
/// Each lane has 64 readable elements, and `out` room for as many rows, on a cache line if `stream`; the processor has
/// AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn quads(lanes: &[*const u8; 16], out: *mut u8, stream: bool) {
    for row in (0..BLOCK_ROWS).step_by(8) {
        let mut columns = [_mm256_setzero_ps(); 4];
        for lane in 0..4 {
            // SAFETY: each lane has 64 elements, and `row + 8 <= 64`.
            columns[lane] = unsafe { _mm256_loadu_ps(lanes[lane].cast::<f32>().wrapping_add(row)) };
        }
        // Rows n and n + 4 in one vector.
        let [a, b, c, d] = quad4(columns);
        let low = |a, b| _mm256_permute2f128_pd::<0x20>(a, b);
        let high = |a, b| _mm256_permute2f128_pd::<0x31>(a, b);
        let out = out.wrapping_add(row * 16);
        // SAFETY: `out` has room for 64 rows of 16 bytes, of which these 8 are two lines, on cache lines if `stream`;
        // this is the first.
        unsafe { store(out, low(a, b), low(c, d), stream) };
        // SAFETY: the second of the two lines.
        unsafe { store(out.wrapping_add(64), high(a, b), high(c, d), stream) };
    }
}

/// Writes a cache line.
///
/// # Safety
/// `out` has room for it, and is on a cache line if `stream`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn store(out: *mut u8, left: __m256d, right: __m256d, stream: bool) {
    let (left, right) = (_mm256_castpd_ps(left), _mm256_castpd_ps(right));
    let (first, second) = (out.cast::<f32>(), out.wrapping_add(32).cast::<f32>());
    if stream {
        // SAFETY: `out` has room for 64 bytes, of which this is the first half; streamed lines are aligned to 64.
        unsafe { _mm256_stream_ps(first, left) };
        // SAFETY: the second half, 32 bytes behind the first.
        unsafe { _mm256_stream_ps(second, right) };
    } else {
        // SAFETY: `out` has room for 64 bytes, of which this is the first half; any alignment is written.
        unsafe { _mm256_storeu_ps(first, left) };
        // SAFETY: the second half, 32 bytes behind the first.
        unsafe { _mm256_storeu_ps(second, right) };
    }
}

/// Transposes four vectors within each 128-bit half, which has four elements.
#[inline]
#[target_feature(enable = "avx2")]
fn quad4([a, b, c, d]: [__m256; 4]) -> [__m256d; 4] {
    let low = (_mm256_castps_pd(_mm256_unpacklo_ps(a, b)), _mm256_castps_pd(_mm256_unpackhi_ps(a, b)));
    let high = (_mm256_castps_pd(_mm256_unpacklo_ps(c, d)), _mm256_castps_pd(_mm256_unpackhi_ps(c, d)));
    [
        _mm256_unpacklo_pd(low.0, high.0),
        _mm256_unpackhi_pd(low.0, high.0),
        _mm256_unpacklo_pd(low.1, high.1),
        _mm256_unpackhi_pd(low.1, high.1),
    ]
}

/// Copies cache lines by non-temporal stores, and prefetches as many lines from `ahead` on.
///
/// # Safety
/// Both have so many lines, apart from each other; `out` starts on one. The processor has AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn copy_lines(source: *const u8, out: *mut u8, lines: usize, ahead: *const u8) {
    for line in 0..lines {
        prefetch_to_second(ahead.wrapping_add(line * LINE));
        for half in [line * LINE, line * LINE + LINE / 2] {
            // SAFETY: `source` has `lines * LINE` bytes, and `half + 32` is at most that.
            let bytes = unsafe { _mm256_loadu_ps(source.wrapping_add(half).cast()) };
            // SAFETY: `out` has as many, from the start of a line on, so that each half is aligned to 32.
            unsafe { _mm256_stream_ps(out.wrapping_add(half).cast(), bytes) };
        }
    }
}

/// Writes a byte, 0 or 1, for each bit.
///
/// # Safety
/// The lines are aligned if `stream`; the processor has AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn spread_lines(bits: UnalignedBits<'_>, out: &mut [[MaybeUninit<u8>; LINE]], stream: bool) {
    // Broadcasts each byte of 32 bits to eight bytes, then tests one bit in each.
    let bytes = _mm256_setr_epi64x(0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202, 0x0303_0303_0303_0303);
    let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64.cast_signed());
    for (number, line) in out.iter_mut().enumerate() {
        let word = bits.word(number * LINE);
        let mut halves = [_mm256_setzero_pd(); 2];
        for (index, half) in halves.iter_mut().enumerate() {
            #[expect(clippy::cast_possible_truncation, reason = "one half, then the other")]
            let spread = _mm256_shuffle_epi8(_mm256_set1_epi32((word >> (index * 32)) as i32), bytes);
            let is_set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit);
            *half = _mm256_castsi256_pd(_mm256_and_si256(is_set, _mm256_set1_epi8(1)));
        }
        // SAFETY: the line is an array of 64 bytes, aligned if `stream`.
        unsafe { store(line.as_mut_ptr().cast(), halves[0], halves[1], stream) };
    }
}
