//! Writes strips with 64-byte vectors.

#![expect(
    clippy::indexing_slicing,
    clippy::needless_range_loop,
    reason = "constants index arrays of constant length; iterators are not unrolled into registers"
)]

use std::arch::x86_64::{
    __m512, __m512d, _mm256_storeu_pd, _mm512_castpd512_pd256, _mm512_castps_pd, _mm512_extractf64x4_pd,
    _mm512_loadu_pd, _mm512_loadu_ps, _mm512_permutex2var_pd, _mm512_setr_epi64, _mm512_setzero_pd, _mm512_setzero_ps,
    _mm512_unpackhi_pd, _mm512_unpackhi_ps, _mm512_unpacklo_pd, _mm512_unpacklo_ps,
};
use std::ops::Range;

use super::half_line::{Strip, tiles};

/// Writes rows of 8 columns of 4-byte values.
///
/// # Safety
/// As [`Strip::write`]; the processor has AVX-512F.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn rows4(strip: &Strip<'_>, rows: Range<usize>) {
    for row in tiles(rows, 16) {
        let mut tile = [_mm512_setzero_ps(); 8];
        for lane in 0..8 {
            // SAFETY: `columns`: each has 16 values from `row` on, as `tiles` ends with the rows.
            tile[lane] = unsafe { _mm512_loadu_ps(strip.lanes[lane].cast::<f32>().wrapping_add(row)) };
        }
        let left = quads([tile[0], tile[1], tile[2], tile[3]]);
        let right = quads([tile[4], tile[5], tile[6], tile[7]]);
        for first in 0..4 {
            // SAFETY: `room`: rows `row + first`, and 4, 8 and 12 further, are of the tile.
            unsafe { store(strip, row + first, 4, left[first], right[first]) };
        }
    }
}

/// Writes rows of 4 columns of 8-byte values.
///
/// # Safety
/// As [`rows4`].
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn rows8(strip: &Strip<'_>, rows: Range<usize>) {
    for row in tiles(rows, 8) {
        let mut tile = [_mm512_setzero_pd(); 4];
        for lane in 0..4 {
            // SAFETY: `columns`: each has 8 values from `row` on, as `tiles` ends with the rows.
            tile[lane] = unsafe { _mm512_loadu_pd(strip.lanes[lane].cast::<f64>().wrapping_add(row)) };
        }
        let [a, b, c, d] = tile;
        let even = (_mm512_unpacklo_pd(a, b), _mm512_unpacklo_pd(c, d));
        let odd = (_mm512_unpackhi_pd(a, b), _mm512_unpackhi_pd(c, d));
        // SAFETY: `room`: the even rows from `row` on are of the tile.
        unsafe { store(strip, row, 2, even.0, even.1) };
        // SAFETY: `room`: the odd rows from `row` on are of the tile.
        unsafe { store(strip, row + 1, 2, odd.0, odd.1) };
    }
}

/// Four columns of 16 values: the n-th vector has rows n, n + 4, n + 8 and n + 12, a quarter each.
#[inline]
#[target_feature(enable = "avx512f")]
fn quads([a, b, c, d]: [__m512; 4]) -> [__m512d; 4] {
    let low = (_mm512_castps_pd(_mm512_unpacklo_ps(a, b)), _mm512_castps_pd(_mm512_unpacklo_ps(c, d)));
    let high = (_mm512_castps_pd(_mm512_unpackhi_ps(a, b)), _mm512_castps_pd(_mm512_unpackhi_ps(c, d)));
    [
        _mm512_unpacklo_pd(low.0, low.1),
        _mm512_unpackhi_pd(low.0, low.1),
        _mm512_unpacklo_pd(high.0, high.1),
        _mm512_unpackhi_pd(high.0, high.1),
    ]
}

/// Writes four rows, `step` from one to the next: each has a quarter of `left`, and then one of `right`.
///
/// # Safety
/// The four rows, `step` apart from `row` on, have room for half a line.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn store(strip: &Strip<'_>, row: usize, step: usize, left: __m512d, right: __m512d) {
    let low = _mm512_permutex2var_pd(left, _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), right);
    let high = _mm512_permutex2var_pd(left, _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15), right);
    let rows = [
        _mm512_castpd512_pd256(low),
        _mm512_extractf64x4_pd::<1>(low),
        _mm512_castpd512_pd256(high),
        _mm512_extractf64x4_pd::<1>(high),
    ];
    for index in 0..4 {
        // SAFETY: the row has room for 32 bytes; any alignment is written.
        unsafe { _mm256_storeu_pd(strip.row(row + index * step).cast(), rows[index]) };
    }
}
