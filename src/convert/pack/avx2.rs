//! Tiles in 32-byte vectors.

use std::arch::x86_64::{
    __m256, __m256d, _mm256_castpd_ps, _mm256_castps_pd, _mm256_loadu_pd, _mm256_loadu_ps, _mm256_permute2f128_pd,
    _mm256_setzero_pd, _mm256_setzero_ps, _mm256_storeu_pd, _mm256_storeu_ps, _mm256_unpackhi_pd, _mm256_unpackhi_ps,
    _mm256_unpacklo_pd, _mm256_unpacklo_ps,
};

use super::transpose::Block;

/// Columns and rows of a tile of 4-byte elements.
const LANES4: usize = 8;
/// Columns and rows of a tile of 8-byte elements.
const LANES8: usize = 4;

/// Writes rows of 4-byte elements, as many columns and rows as full tiles have; tells how many those were.
///
/// # Safety
/// As [`super::transpose::transpose`]; the processor has AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn transpose4(block: Block<'_>) -> (usize, usize) {
    let rows = block.rows / LANES4 * LANES4;
    let groups = block.columns.as_chunks::<LANES4>().0;
    for (number, group) in groups.iter().enumerate() {
        for row in (0..rows).step_by(LANES4) {
            let mut tile = [_mm256_setzero_ps(); LANES4];
            for (slot, column) in tile.iter_mut().zip(group) {
                // SAFETY: the contract: each column has 8 elements from `row` on.
                *slot = unsafe { _mm256_loadu_ps(column.cast::<f32>().wrapping_add(row)) };
            }
            for (index, line) in tile4(tile).into_iter().enumerate() {
                let out = block.out.wrapping_add((row + index) * block.stride).cast::<f32>();
                // SAFETY: the contract: the row has room for these 8 columns.
                unsafe { _mm256_storeu_ps(out.wrapping_add(number * LANES4), line) };
            }
        }
    }
    (groups.len() * LANES4, rows)
}

/// As [`transpose4`], for 8-byte elements.
///
/// # Safety
/// As [`transpose4`].
#[target_feature(enable = "avx2")]
pub(super) unsafe fn transpose8(block: Block<'_>) -> (usize, usize) {
    let rows = block.rows / LANES8 * LANES8;
    let groups = block.columns.as_chunks::<LANES8>().0;
    for (number, group) in groups.iter().enumerate() {
        for row in (0..rows).step_by(LANES8) {
            let mut tile = [_mm256_setzero_pd(); LANES8];
            for (slot, column) in tile.iter_mut().zip(group) {
                // SAFETY: the contract: each column has 4 elements from `row` on.
                *slot = unsafe { _mm256_loadu_pd(column.cast::<f64>().wrapping_add(row)) };
            }
            for (index, line) in tile8(tile).into_iter().enumerate() {
                let out = block.out.wrapping_add((row + index) * block.stride).cast::<f64>();
                // SAFETY: the contract: the row has room for these 4 columns.
                unsafe { _mm256_storeu_pd(out.wrapping_add(number * LANES8), line) };
            }
        }
    }
    (groups.len() * LANES8, rows)
}

/// Four columns of 8 elements: the n-th vector has rows n and n + 4, one in each half.
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

/// The lower halves of two vectors, and their upper halves.
#[inline]
#[target_feature(enable = "avx2")]
fn halves(a: __m256d, b: __m256d) -> (__m256d, __m256d) {
    (_mm256_permute2f128_pd::<0x20>(a, b), _mm256_permute2f128_pd::<0x31>(a, b))
}

/// Transposes 8 vectors of 8 elements.
#[inline]
#[target_feature(enable = "avx2")]
fn tile4([r0, r1, r2, r3, r4, r5, r6, r7]: [__m256; 8]) -> [__m256; 8] {
    let [a0, a1, a2, a3] = quad4([r0, r1, r2, r3]);
    let [b0, b1, b2, b3] = quad4([r4, r5, r6, r7]);
    let (r0, r4) = halves(a0, b0);
    let (r1, r5) = halves(a1, b1);
    let (r2, r6) = halves(a2, b2);
    let (r3, r7) = halves(a3, b3);
    [r0, r1, r2, r3, r4, r5, r6, r7].map(|row| _mm256_castpd_ps(row))
}

/// Transposes 4 vectors of 4 elements.
#[inline]
#[target_feature(enable = "avx2")]
fn tile8([r0, r1, r2, r3]: [__m256d; 4]) -> [__m256d; 4] {
    let (row0, row2) = halves(_mm256_unpacklo_pd(r0, r1), _mm256_unpacklo_pd(r2, r3));
    let (row1, row3) = halves(_mm256_unpackhi_pd(r0, r1), _mm256_unpackhi_pd(r2, r3));
    [row0, row1, row2, row3]
}
