//! [`Sse2`]: vectors of SSE2, which every x86-64 processor has.

use std::arch::x86_64::{
    __m128i, _mm_and_si128, _mm_andnot_si128, _mm_cmpeq_epi8, _mm_cvtsi32_si128, _mm_loadl_epi64, _mm_loadu_si128,
    _mm_movemask_epi8, _mm_or_si128, _mm_set1_epi8, _mm_set1_epi64x, _mm_setzero_si128, _mm_shuffle_epi32,
    _mm_shufflelo_epi16, _mm_storeu_si128, _mm_stream_si128, _mm_unpackhi_epi8, _mm_unpackhi_epi16, _mm_unpackhi_epi32,
    _mm_unpackhi_epi64, _mm_unpacklo_epi8, _mm_unpacklo_epi16, _mm_unpacklo_epi32, _mm_unpacklo_epi64,
};

use super::vector::{LINE, Vector, WIDTH};

/// A register of SSE2.
#[derive(Clone, Copy)]
pub(in crate::convert) struct Sse2(__m128i);

impl Vector for Sse2 {
    const STREAMS: bool = true;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: `from` has 16 bytes; any alignment is read.
        Self(unsafe { _mm_loadu_si128(from.cast()) })
    }

    #[inline(always)]
    unsafe fn load_half(from: *const u8) -> Self {
        // SAFETY: `from` has 8 bytes; any alignment is read.
        Self(unsafe { _mm_loadl_epi64(from.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: `to` has room for 16 bytes; any alignment is written.
        unsafe { _mm_storeu_si128(to.cast(), self.0) };
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: `to` has room for 16 bytes, and is aligned to 16.
        unsafe { _mm_stream_si128(to.cast(), self.0) };
    }

    #[inline(always)]
    fn zip<const SIZE: usize>(self, other: Self) -> [Self; 2] {
        // SAFETY: every x86-64 processor has SSE2, the only condition of these: they read and write registers alone.
        unsafe { zip::<SIZE>(self, other) }
    }

    #[inline(always)]
    fn spread(bits: u16) -> Self {
        // SAFETY: every x86-64 processor has SSE2, the only condition of this: it reads and writes registers alone.
        unsafe { spread(bits) }
    }

    #[inline(always)]
    fn mask(bits: u16) -> Self {
        // SAFETY: every x86-64 processor has SSE2, the only condition of this: it reads and writes registers alone.
        unsafe { mask(bits) }
    }

    #[inline(always)]
    unsafe fn select(mask: Self, set: Self, clear: Self) -> Self {
        // SAFETY: every x86-64 processor has SSE2, the only condition of this: it reads and writes registers alone.
        unsafe { select(mask, set, clear) }
    }

    #[inline(always)]
    fn nonzero(line: &[u8; LINE]) -> u64 {
        // SAFETY: every x86-64 processor has SSE2, the only condition of this: a reference bounds what it reads.
        unsafe { nonzero(line) }
    }
}

/// As [`Vector::zip`].
#[inline]
#[target_feature(enable = "sse2")]
fn zip<const SIZE: usize>(Sse2(a): Sse2, Sse2(b): Sse2) -> [Sse2; 2] {
    match SIZE {
        1 => [Sse2(_mm_unpacklo_epi8(a, b)), Sse2(_mm_unpackhi_epi8(a, b))],
        2 => [Sse2(_mm_unpacklo_epi16(a, b)), Sse2(_mm_unpackhi_epi16(a, b))],
        4 => [Sse2(_mm_unpacklo_epi32(a, b)), Sse2(_mm_unpackhi_epi32(a, b))],
        _ => [Sse2(_mm_unpacklo_epi64(a, b)), Sse2(_mm_unpackhi_epi64(a, b))],
    }
}

/// As [`Vector::spread`].
#[inline]
#[target_feature(enable = "sse2")]
fn spread(bits: u16) -> Sse2 {
    Sse2(_mm_and_si128(mask(bits).0, _mm_set1_epi8(1)))
}

/// As [`Vector::select`].
#[inline]
#[target_feature(enable = "sse2")]
fn select(Sse2(mask): Sse2, Sse2(set): Sse2, Sse2(clear): Sse2) -> Sse2 {
    Sse2(_mm_or_si128(_mm_and_si128(mask, set), _mm_andnot_si128(mask, clear)))
}

/// As [`Vector::mask`].
#[inline]
#[target_feature(enable = "sse2")]
fn mask(bits: u16) -> Sse2 {
    let both = _mm_cvtsi32_si128(i32::from(bits));
    // Each of the two bytes twice, then four times, then eight times.
    let twice = _mm_unpacklo_epi8(both, both);
    let bytes = _mm_shuffle_epi32::<0b01_01_00_00>(_mm_shufflelo_epi16::<0b01_01_00_00>(twice));
    let bit = _mm_set1_epi64x(0x8040_2010_0804_0201_u64.cast_signed());
    Sse2(_mm_cmpeq_epi8(_mm_and_si128(bytes, bit), bit))
}

/// As [`Vector::nonzero`].
#[inline]
#[target_feature(enable = "sse2")]
fn nonzero(line: &[u8; LINE]) -> u64 {
    let mut zeros = 0;
    for part in line.as_chunks::<WIDTH>().0.iter().rev() {
        // SAFETY: 16 bytes, of any alignment.
        let bytes = unsafe { _mm_loadu_si128(part.as_ptr().cast()) };
        let are_zero = _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_setzero_si128()));
        zeros = zeros << WIDTH | u64::from(are_zero.cast_unsigned());
    }
    !zeros
}
