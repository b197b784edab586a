//! Writes strips with 32-byte vectors.

#![expect(
    clippy::indexing_slicing,
    clippy::needless_range_loop,
    reason = "constants index arrays of constant length; iterators are not unrolled into registers"
)]

use std::arch::x86_64::{
    __m256, __m256d, _mm256_castps_pd, _mm256_loadu_pd, _mm256_loadu_ps, _mm256_permute2f128_pd, _mm256_setzero_pd,
    _mm256_setzero_ps, _mm256_storeu_pd, _mm256_unpackhi_pd, _mm256_unpackhi_ps, _mm256_unpacklo_pd,
    _mm256_unpacklo_ps,
};
use std::ops::Range;

use super::half_line::{Strip, tiles};

/// Writes rows of 8 columns of 4-byte values.
///
/// # Safety
/// As [`Strip::write`]; the processor has AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn rows4(strip: &Strip<'_>, rows: Range<usize>) {
    for row in tiles(rows, 8) {
        let mut tile = [_mm256_setzero_ps(); 8];
        for lane in 0..8 {
            // SAFETY: `columns`: each has 8 values from `row` on, as `tiles` ends with the rows.
            tile[lane] = unsafe { _mm256_loadu_ps(strip.lanes[lane].cast::<f32>().wrapping_add(row)) };
        }
        let left = quads([tile[0], tile[1], tile[2], tile[3]]);
        let right = quads([tile[4], tile[5], tile[6], tile[7]]);
        for first in 0..4 {
            // SAFETY: `room`: rows `row + first` and, 4 further, `row + first + 4` are of the tile.
            unsafe { store(strip, row + first, 4, left[first], right[first]) };
        }
    }
}

/// Writes rows of 4 columns of 8-byte values.
///
/// # Safety
/// As [`rows4`].
#[target_feature(enable = "avx2")]
pub(super) unsafe fn rows8(strip: &Strip<'_>, rows: Range<usize>) {
    for row in tiles(rows, 4) {
        let mut tile = [_mm256_setzero_pd(); 4];
        for lane in 0..4 {
            // SAFETY: `columns`: each has 4 values from `row` on, as `tiles` ends with the rows.
            tile[lane] = unsafe { _mm256_loadu_pd(strip.lanes[lane].cast::<f64>().wrapping_add(row)) };
        }
        let [a, b, c, d] = tile;
        let even = (_mm256_unpacklo_pd(a, b), _mm256_unpacklo_pd(c, d));
        let odd = (_mm256_unpackhi_pd(a, b), _mm256_unpackhi_pd(c, d));
        // SAFETY: `room`: rows `row` and `row + 2` are of the tile.
        unsafe { store(strip, row, 2, even.0, even.1) };
        // SAFETY: `room`: rows `row + 1` and `row + 3` are of the tile.
        unsafe { store(strip, row + 1, 2, odd.0, odd.1) };
    }
}

/// Four columns of 8 values: the n-th vector has rows n and n + 4, a half each.
#[inline]
#[target_feature(enable = "avx2")]
fn quads([a, b, c, d]: [__m256; 4]) -> [__m256d; 4] {
    let low = (_mm256_castps_pd(_mm256_unpacklo_ps(a, b)), _mm256_castps_pd(_mm256_unpacklo_ps(c, d)));
    let high = (_mm256_castps_pd(_mm256_unpackhi_ps(a, b)), _mm256_castps_pd(_mm256_unpackhi_ps(c, d)));
    [
        _mm256_unpacklo_pd(low.0, low.1),
        _mm256_unpackhi_pd(low.0, low.1),
        _mm256_unpacklo_pd(high.0, high.1),
        _mm256_unpackhi_pd(high.0, high.1),
    ]
}

/// Writes two rows, `step` from one to the next: each has a half of `left`, and then one of `right`.
///
/// # Safety
/// The rows `row` and `row + step` have room for half a line.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn store(strip: &Strip<'_>, row: usize, step: usize, left: __m256d, right: __m256d) {
    let rows = (_mm256_permute2f128_pd::<0x20>(left, right), _mm256_permute2f128_pd::<0x31>(left, right));
    // SAFETY: row `row` has room for 32 bytes; any alignment is written.
    unsafe { _mm256_storeu_pd(strip.row(row).cast(), rows.0) };
    // SAFETY: row `row + step` has room for 32 bytes; any alignment is written.
    unsafe { _mm256_storeu_pd(strip.row(row + step).cast(), rows.1) };
}
