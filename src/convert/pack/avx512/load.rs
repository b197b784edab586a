//! Loads the vectors of a tile: casts stored elements, and fills nulls.

use std::arch::x86_64::{
    __m512, __m512d, _mm256_loadu_epi32, _mm256_loadu_ps, _mm512_castps256_ps512, _mm512_castsi512_pd,
    _mm512_castsi512_ps, _mm512_cvtepi64_ps, _mm512_cvtpd_ps, _mm512_loadu_epi32, _mm512_loadu_epi64, _mm512_loadu_pd,
    _mm512_mask_cvtepi32_pd, _mm512_mask_cvtepi32_ps, _mm512_mask_cvtepi64_pd, _mm512_mask_cvtps_pd,
    _mm512_mask_fpclass_ps_mask, _mm512_mask_insertf32x8, _mm512_mask_loadu_pd, _mm512_mask_loadu_ps,
    _mm512_maskz_mov_pd, _mm512_maskz_mov_ps, _mm512_set1_epi32, _mm512_set1_epi64,
};

use super::super::load::{Load, Stored};

/// Infinities of both signs, as `vfpclassps` numbers them.
const INFINITE: i32 = 0x18;

/// 16 elements of 4 bytes from `row` on; marks those that a cast made infinite, or left so.
///
/// # Safety
/// The lane has these elements, stored as `load` says, of any alignment; the processor has AVX-512F, AVX-512DQ and
/// AVX-512VL.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vl")]
pub(super) unsafe fn singles(lane: *const u8, row: usize, load: &Load<'_>, bits: u64, infinite: &mut u16) -> __m512 {
    #[expect(clippy::cast_possible_truncation, reason = "the first four bytes, and the bits of 16 rows")]
    let (element, bits) = (load.element as i32, bits as u16);
    let element = _mm512_castsi512_ps(_mm512_set1_epi32(element));
    match load.stored {
        Stored::Int32 => {
            // SAFETY: 16 integers of 4 bytes from `row` on, as `stored` says.
            let integers = unsafe { _mm512_loadu_epi32(lane.cast::<i32>().wrapping_add(row)) };
            _mm512_mask_cvtepi32_ps(element, bits, integers)
        }
        Stored::Int64 => {
            let at = lane.cast::<i64>().wrapping_add(row);
            // SAFETY: the first eight of 16 integers of 8 bytes from `row` on.
            let low = _mm512_cvtepi64_ps(unsafe { _mm512_loadu_epi64(at) });
            // SAFETY: the last eight of them.
            let high = _mm512_cvtepi64_ps(unsafe { _mm512_loadu_epi64(at.wrapping_add(8)) });
            _mm512_mask_insertf32x8::<1>(element, bits, _mm512_castps256_ps512(low), high)
        }
        Stored::Float64 => {
            let at = lane.cast::<f64>().wrapping_add(row);
            // SAFETY: the first eight of 16 doubles from `row` on.
            let low = _mm512_cvtpd_ps(unsafe { _mm512_loadu_pd(at) });
            // SAFETY: the last eight of them.
            let high = _mm512_cvtpd_ps(unsafe { _mm512_loadu_pd(at.wrapping_add(8)) });
            let made = _mm512_mask_insertf32x8::<1>(element, bits, _mm512_castps256_ps512(low), high);
            *infinite |= _mm512_mask_fpclass_ps_mask::<INFINITE>(bits, made);
            made
        }
        Stored::Bits => _mm512_maskz_mov_ps(bits, element),
        // SAFETY: 16 elements of 4 bytes from `row` on; those whose bit is clear are not read.
        _ => unsafe { _mm512_mask_loadu_ps(element, bits, lane.cast::<f32>().wrapping_add(row)) },
    }
}

/// As [`singles`], 8 elements of 8 bytes. No cast makes an infinity.
///
/// # Safety
/// As [`singles`], for 8 elements.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vl")]
pub(super) unsafe fn doubles(lane: *const u8, row: usize, load: &Load<'_>, bits: u64) -> __m512d {
    #[expect(clippy::cast_possible_truncation, reason = "the bits of 8 rows")]
    let bits = bits as u8;
    let element = _mm512_castsi512_pd(_mm512_set1_epi64(load.element.cast_signed()));
    match load.stored {
        Stored::Int32 => {
            // SAFETY: 8 integers of 4 bytes from `row` on, as `stored` says.
            let integers = unsafe { _mm256_loadu_epi32(lane.cast::<i32>().wrapping_add(row)) };
            _mm512_mask_cvtepi32_pd(element, bits, integers)
        }
        Stored::Int64 => {
            // SAFETY: 8 integers of 8 bytes from `row` on.
            let integers = unsafe { _mm512_loadu_epi64(lane.cast::<i64>().wrapping_add(row)) };
            _mm512_mask_cvtepi64_pd(element, bits, integers)
        }
        Stored::Float32 => {
            // SAFETY: 8 floats of 4 bytes from `row` on.
            let floats = unsafe { _mm256_loadu_ps(lane.cast::<f32>().wrapping_add(row)) };
            _mm512_mask_cvtps_pd(element, bits, floats)
        }
        Stored::Bits => _mm512_maskz_mov_pd(bits, element),
        // SAFETY: 8 elements of 8 bytes from `row` on; those whose bit is clear are not read.
        _ => unsafe { _mm512_mask_loadu_pd(element, bits, lane.cast::<f64>().wrapping_add(row)) },
    }
}
