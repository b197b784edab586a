//! [`TextRegister`]: the words of a short text in one register of SSE2, which every x86-64 processor has.

use std::arch::x86_64::{
    __m128i, _mm_and_si128, _mm_cmpeq_epi8, _mm_cvtsi128_si64, _mm_movemask_epi8, _mm_set_epi64x, _mm_unpackhi_epi64,
    _mm_xor_si128,
};

use crate::categories::TextWords;

/// The two words of a short text: half of the loads and of the registers that a pair of words takes, so that a look-up keeps all
/// that it needs in registers.
#[derive(Clone, Copy)]
pub(super) struct TextRegister(__m128i);

impl TextWords for TextRegister {
    #[inline(always)]
    fn new((low, high): (u64, u64)) -> Self {
        // SAFETY: every x86-64 processor has SSE2.
        Self(unsafe { _mm_set_epi64x(high.cast_signed(), low.cast_signed()) })
    }

    #[inline(always)]
    fn halves(self) -> (u64, u64) {
        // SAFETY: every x86-64 processor has SSE2.
        let low = unsafe { _mm_cvtsi128_si64(self.0) };
        // SAFETY: every x86-64 processor has SSE2.
        let upper = unsafe { _mm_unpackhi_epi64(self.0, self.0) };
        // SAFETY: every x86-64 processor has SSE2.
        let high = unsafe { _mm_cvtsi128_si64(upper) };
        (low.cast_unsigned(), high.cast_unsigned())
    }

    #[inline(always)]
    fn masked(self, mask: Self, seeds: Self) -> Self {
        // SAFETY: every x86-64 processor has SSE2.
        let kept = unsafe { _mm_and_si128(self.0, mask.0) };
        // SAFETY: every x86-64 processor has SSE2.
        Self(unsafe { _mm_xor_si128(kept, seeds.0) })
    }

    #[inline(always)]
    fn are(self, other: Self) -> bool {
        const ALL: i32 = 0xffff;
        // SAFETY: every x86-64 processor has SSE2.
        let equal = unsafe { _mm_cmpeq_epi8(self.0, other.0) };
        // SAFETY: every x86-64 processor has SSE2.
        unsafe { _mm_movemask_epi8(equal) == ALL }
    }
}

#[cfg(test)]
mod tests {
    use super::TextRegister;
    use crate::categories::TextWords;

    #[test]
    fn a_register_does_as_two_words_do() {
        let words = [(0, 0), (1, 0), (0, 1), (1 << 63, 5), (u64::MAX, 0x0123_4567_89ab_cdef), (5, 1 << 63)];
        let register = TextRegister::new;
        for one in words {
            for other in words {
                assert_eq!(register(one).are(register(other)), one.are(other));
                for seeds in words {
                    let masked = register(one).masked(register(other), register(seeds));
                    assert_eq!(masked.halves(), one.masked(other, seeds));
                }
            }
            for bit in 0..u64::BITS {
                assert!(!register(one).are(register((one.0 ^ 1 << bit, one.1))));
                assert!(!register(one).are(register((one.0, one.1 ^ 1 << bit))));
            }
        }
    }
}
