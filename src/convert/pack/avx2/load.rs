//! Loads the vectors of a tile: casts stored elements, and fills nulls.

use std::arch::x86_64::{
    __m256, __m256d, __m256i, _CMP_EQ_OQ, _mm_loadu_ps, _mm_loadu_si128, _mm256_add_epi32, _mm256_add_epi64,
    _mm256_and_ps, _mm256_andnot_ps, _mm256_blendv_pd, _mm256_blendv_ps, _mm256_castsi256_pd, _mm256_castsi256_ps,
    _mm256_cmp_ps, _mm256_cvtepi32_pd, _mm256_cvtepi32_ps, _mm256_cvtpd_ps, _mm256_cvtps_pd, _mm256_loadu_pd,
    _mm256_loadu_ps, _mm256_loadu_si256, _mm256_or_ps, _mm256_set_m128, _mm256_set1_epi32, _mm256_set1_epi64x,
    _mm256_set1_ps, _mm256_setr_epi32, _mm256_setr_epi64x, _mm256_sllv_epi32, _mm256_sllv_epi64,
};

use super::super::load::{LANES, Load, Stored};

/// Counts for shifts that move the bits of 8 rows, from `row` on, out of those of 32 rows to the signs of their lanes.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn to_signs4(row: usize) -> __m256i {
    #[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "below 32")]
    let row = (row % 32) as i32;
    _mm256_add_epi32(_mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24), _mm256_set1_epi32(-row))
}

/// As [`to_signs4`], of 4 rows out of 64.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn to_signs8(row: usize) -> __m256i {
    #[expect(clippy::cast_possible_wrap, reason = "below 64")]
    let row = (row % 64) as i64;
    _mm256_add_epi64(_mm256_setr_epi64x(63, 62, 61, 60), _mm256_set1_epi64x(-row))
}

/// The bits of 64 rows in two halves of 32.
#[inline(always)]
pub(super) fn halves(words: [u64; LANES]) -> [[i32; 2]; LANES] {
    #[expect(clippy::cast_possible_truncation, reason = "one half, then the other")]
    words.map(|word| [word as i32, (word >> 32) as i32])
}

/// 8 elements of 4 bytes from `row` on; marks those that a cast made infinite, or left so. `bits` has those of 32 rows.
///
/// # Safety
/// The lane has these elements, of any alignment, stored as `load` says, but not as bits; as in the result unless `CASTS`. The processor has
/// AVX2.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn singles<const CASTS: bool>(
    lane: *const u8,
    row: usize,
    load: &Load<'_>,
    (bits, to_signs): (i32, __m256i),
    infinite: &mut __m256,
) -> __m256 {
    #[expect(clippy::cast_possible_truncation, reason = "the first four bytes")]
    let element = load.element as i32;
    let element = _mm256_castsi256_ps(_mm256_set1_epi32(element));
    let valid = _mm256_castsi256_ps(_mm256_sllv_epi32(_mm256_set1_epi32(bits), to_signs));
    match load.stored {
        Stored::Int32 if CASTS => {
            // SAFETY: 8 integers of 4 bytes from `row` on, as `stored` says.
            let integers = unsafe { _mm256_loadu_si256(lane.cast::<i32>().wrapping_add(row).cast()) };
            _mm256_blendv_ps(element, _mm256_cvtepi32_ps(integers), valid)
        }
        Stored::Float64 if CASTS => {
            let at = lane.cast::<f64>().wrapping_add(row);
            // SAFETY: the first four of 8 doubles from `row` on.
            let low = _mm256_cvtpd_ps(unsafe { _mm256_loadu_pd(at) });
            // SAFETY: the last four of them.
            let high = _mm256_cvtpd_ps(unsafe { _mm256_loadu_pd(at.wrapping_add(4)) });
            let made = _mm256_set_m128(high, low);
            let size = _mm256_andnot_ps(_mm256_set1_ps(-0.0), made);
            let is_infinite = _mm256_cmp_ps::<_CMP_EQ_OQ>(size, _mm256_set1_ps(f32::INFINITY));
            // The sign alone of `valid` counts, and of what is marked.
            *infinite = _mm256_or_ps(*infinite, _mm256_and_ps(is_infinite, valid));
            _mm256_blendv_ps(element, made, valid)
        }
        _ => {
            // SAFETY: 8 elements of 4 bytes from `row` on.
            let elements = unsafe { _mm256_loadu_ps(lane.cast::<f32>().wrapping_add(row)) };
            _mm256_blendv_ps(element, elements, valid)
        }
    }
}

/// As [`singles`], 4 elements of 8 bytes. No cast makes an infinity.
///
/// # Safety
/// As [`singles`], for 4 elements.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn doubles(
    lane: *const u8,
    row: usize,
    load: &Load<'_>,
    (word, to_signs): (u64, __m256i),
) -> __m256d {
    let element = _mm256_castsi256_pd(_mm256_set1_epi64x(load.element.cast_signed()));
    let valid = _mm256_castsi256_pd(_mm256_sllv_epi64(_mm256_set1_epi64x(word.cast_signed()), to_signs));
    let made = match load.stored {
        // SAFETY: 4 integers of 4 bytes from `row` on, as `stored` says.
        Stored::Int32 => _mm256_cvtepi32_pd(unsafe { _mm_loadu_si128(lane.cast::<i32>().wrapping_add(row).cast()) }),
        // SAFETY: 4 floats of 4 bytes from `row` on.
        Stored::Float32 => _mm256_cvtps_pd(unsafe { _mm_loadu_ps(lane.cast::<f32>().wrapping_add(row)) }),
        // SAFETY: 4 elements of 8 bytes from `row` on.
        _ => unsafe { _mm256_loadu_pd(lane.cast::<f64>().wrapping_add(row)) },
    };
    _mm256_blendv_pd(element, made, valid)
}
