//! Tiles in 64-byte vectors.

use std::arch::x86_64::{
    __m512, __m512d, __mmask8, __mmask16, _mm_sfence, _mm512_castpd_ps, _mm512_castps_pd, _mm512_loadu_pd,
    _mm512_loadu_ps, _mm512_mask_storeu_pd, _mm512_mask_storeu_ps, _mm512_setzero_pd, _mm512_setzero_ps,
    _mm512_shuffle_f64x2, _mm512_storeu_pd, _mm512_storeu_ps, _mm512_stream_pd, _mm512_stream_ps, _mm512_unpackhi_pd,
    _mm512_unpackhi_ps, _mm512_unpacklo_pd, _mm512_unpacklo_ps,
};

use super::transpose::Block;

/// Columns and rows of a tile of 4-byte elements.
const LANES4: usize = 16;
/// Columns and rows of a tile of 8-byte elements.
const LANES8: usize = 8;

/// Writes rows of 4-byte elements, as many rows as full tiles have; tells how many columns and rows that were.
///
/// # Safety
/// As [`super::transpose::transpose`]; the processor has AVX-512F.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn transpose4(block: Block<'_>) -> (usize, usize) {
    let rows = block.rows / LANES4 * LANES4;
    if let ([a, b, c, d], 16) = (block.columns, block.stride) {
        for row in (0..rows).step_by(LANES4) {
            let at = |column: *const u8| column.cast::<f32>().wrapping_add(row);
            // SAFETY: the contract: each column has 16 elements from `row` on.
            let quads = unsafe { quads([at(*a), at(*b), at(*c), at(*d)]) };
            let out = block.out.cast::<f32>().wrapping_add(row * 4);
            for (index, quad) in quads.into_iter().enumerate() {
                // SAFETY: the contract: the 16 rows are 64 elements that lie together.
                unsafe { store4(out.wrapping_add(index * LANES4), quad, block.stream) };
            }
        }
        fence(block.stream);
        return (4, rows);
    }
    let mut covered = 0;
    for group in block.columns.chunks(LANES4) {
        if group.len() == 1 {
            break;
        }
        let mask = __mmask16::MAX >> (LANES4 - group.len());
        for row in (0..rows).step_by(LANES4) {
            let mut tile = [_mm512_setzero_ps(); LANES4];
            for (slot, column) in tile.iter_mut().zip(group) {
                // SAFETY: the contract: each column has 16 elements from `row` on.
                *slot = unsafe { _mm512_loadu_ps(column.cast::<f32>().wrapping_add(row)) };
            }
            for (index, line) in tile4(tile).into_iter().enumerate() {
                let out = block.out.wrapping_add((row + index) * block.stride).cast::<f32>().wrapping_add(covered);
                if mask == __mmask16::MAX {
                    // SAFETY: the contract: the row has room for these 16 columns.
                    unsafe { store4(out, line, block.stream) };
                } else {
                    // SAFETY: as above; the mask has a bit for each column.
                    unsafe { _mm512_mask_storeu_ps(out, mask, line) };
                }
            }
        }
        covered += group.len();
    }
    fence(block.stream);
    (covered, rows)
}

/// As [`transpose4`], for 8-byte elements.
///
/// # Safety
/// As [`transpose4`].
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn transpose8(block: Block<'_>) -> (usize, usize) {
    let rows = block.rows / LANES8 * LANES8;
    let mut covered = 0;
    for group in block.columns.chunks(LANES8) {
        if group.len() == 1 {
            break;
        }
        let mask = __mmask8::MAX >> (LANES8 - group.len());
        for row in (0..rows).step_by(LANES8) {
            let mut tile = [_mm512_setzero_pd(); LANES8];
            for (slot, column) in tile.iter_mut().zip(group) {
                // SAFETY: the contract: each column has 8 elements from `row` on.
                *slot = unsafe { _mm512_loadu_pd(column.cast::<f64>().wrapping_add(row)) };
            }
            for (index, line) in tile8(tile).into_iter().enumerate() {
                let out = block.out.wrapping_add((row + index) * block.stride).cast::<f64>().wrapping_add(covered);
                if mask == __mmask8::MAX {
                    // SAFETY: the contract: the row has room for these 8 columns.
                    unsafe { store8(out, line, block.stream) };
                } else {
                    // SAFETY: as above; the mask has a bit for each column.
                    unsafe { _mm512_mask_storeu_pd(out, mask, line) };
                }
            }
        }
        covered += group.len();
    }
    fence(block.stream);
    (covered, rows)
}

/// # Safety
/// `out` has room for 16 floats, on a cache line if `stream`.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn store4(out: *mut f32, line: __m512, stream: bool) {
    if stream {
        // SAFETY: the contract.
        unsafe { _mm512_stream_ps(out, line) };
    } else {
        // SAFETY: the contract.
        unsafe { _mm512_storeu_ps(out, line) };
    }
}

/// # Safety
/// `out` has room for 8 doubles, on a cache line if `stream`.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn store8(out: *mut f64, line: __m512d, stream: bool) {
    if stream {
        // SAFETY: the contract.
        unsafe { _mm512_stream_pd(out, line) };
    } else {
        // SAFETY: the contract.
        unsafe { _mm512_storeu_pd(out, line) };
    }
}

/// Orders what was written past the cache before what comes next.
#[inline]
#[target_feature(enable = "avx512f")]
fn fence(stream: bool) {
    if stream {
        _mm_sfence();
    }
}

/// Four columns of 16 rows as four vectors of four rows each.
///
/// # Safety
/// Each column has 16 readable elements.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn quads(columns: [*const f32; 4]) -> [__m512; 4] {
    // SAFETY: the contract.
    let [a, b, c, d] = columns.map(|column| unsafe { _mm512_loadu_ps(column) });
    lanes(quad4([a, b, c, d])).map(|quad| _mm512_castpd_ps(quad))
}

/// Two columns, element by element, in each 128-bit lane.
#[inline]
#[target_feature(enable = "avx512f")]
fn pairs(a: __m512, b: __m512) -> (__m512d, __m512d) {
    (_mm512_castps_pd(_mm512_unpacklo_ps(a, b)), _mm512_castps_pd(_mm512_unpackhi_ps(a, b)))
}

/// Transposes four vectors of four 128-bit lanes.
#[inline]
#[target_feature(enable = "avx512f")]
fn lanes([a, b, c, d]: [__m512d; 4]) -> [__m512d; 4] {
    const EVEN: i32 = 0x88;
    const ODD: i32 = 0xdd;
    let (ab_even, ab_odd) = (_mm512_shuffle_f64x2::<EVEN>(a, b), _mm512_shuffle_f64x2::<ODD>(a, b));
    let (cd_even, cd_odd) = (_mm512_shuffle_f64x2::<EVEN>(c, d), _mm512_shuffle_f64x2::<ODD>(c, d));
    [
        _mm512_shuffle_f64x2::<EVEN>(ab_even, cd_even),
        _mm512_shuffle_f64x2::<EVEN>(ab_odd, cd_odd),
        _mm512_shuffle_f64x2::<ODD>(ab_even, cd_even),
        _mm512_shuffle_f64x2::<ODD>(ab_odd, cd_odd),
    ]
}

/// Transposes 16 vectors of 16 elements.
#[inline]
#[target_feature(enable = "avx512f")]
fn tile4(rows: [__m512; 16]) -> [__m512; 16] {
    let [r0, r1, r2, r3, r4, r5, r6, r7, r8, r9, r10, r11, r12, r13, r14, r15] = rows;
    let (a, b, c, d) =
        (quad4([r0, r1, r2, r3]), quad4([r4, r5, r6, r7]), quad4([r8, r9, r10, r11]), quad4([r12, r13, r14, r15]));
    // Of each of the four, the n-th vector has rows n, n + 4, n + 8 and n + 12 of its columns in its lanes.
    let n = |a, b, c, d| lanes([a, b, c, d]);
    let [a0, a1, a2, a3] = a;
    let [b0, b1, b2, b3] = b;
    let [c0, c1, c2, c3] = c;
    let [d0, d1, d2, d3] = d;
    let (w, x, y, z) = (n(a0, b0, c0, d0), n(a1, b1, c1, d1), n(a2, b2, c2, d2), n(a3, b3, c3, d3));
    let [w0, w4, w8, w12] = w;
    let [x1, x5, x9, x13] = x;
    let [y2, y6, y10, y14] = y;
    let [z3, z7, z11, z15] = z;
    [w0, x1, y2, z3, w4, x5, y6, z7, w8, x9, y10, z11, w12, x13, y14, z15].map(|row| _mm512_castpd_ps(row))
}

/// Four columns of 16 elements: the n-th vector has rows n, n + 4, n + 8 and n + 12, one a lane.
#[inline]
#[target_feature(enable = "avx512f")]
fn quad4([a, b, c, d]: [__m512; 4]) -> [__m512d; 4] {
    let (low, high) = (pairs(a, b), pairs(c, d));
    [
        _mm512_unpacklo_pd(low.0, high.0),
        _mm512_unpackhi_pd(low.0, high.0),
        _mm512_unpacklo_pd(low.1, high.1),
        _mm512_unpackhi_pd(low.1, high.1),
    ]
}

/// Transposes 8 vectors of 8 elements.
#[inline]
#[target_feature(enable = "avx512f")]
fn tile8([r0, r1, r2, r3, r4, r5, r6, r7]: [__m512d; 8]) -> [__m512d; 8] {
    let low = |a, b| _mm512_unpacklo_pd(a, b);
    let high = |a, b| _mm512_unpackhi_pd(a, b);
    let [e0, e2, e4, e6] = lanes([low(r0, r1), low(r2, r3), low(r4, r5), low(r6, r7)]);
    let [o1, o3, o5, o7] = lanes([high(r0, r1), high(r2, r3), high(r4, r5), high(r6, r7)]);
    [e0, o1, e2, o3, e4, o5, e6, o7]
}

/// Copies lines of 64 bytes past the cache.
///
/// # Safety
/// Both have so many lines, apart from each other; `out` starts on one.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn copy_lines(source: *const u8, out: *mut u8, lines: usize) {
    for line in 0..lines {
        // SAFETY: the contract.
        let bytes = unsafe { _mm512_loadu_ps(source.wrapping_add(line * 64).cast()) };
        // SAFETY: the contract.
        unsafe { _mm512_stream_ps(out.wrapping_add(line * 64).cast(), bytes) };
    }
    fence(true);
}
