//! Packs bools into a bitmap, a cache line of them at a time.

use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;

use arrow_buffer::{BooleanBuffer, Buffer};

use super::pack::{Baseline, Isa, LINE, Vector};
use crate::alloc::HostBuffer;
use crate::error::Result;

/// Bytes of the bits of a line.
const WORD: usize = LINE / 8;

/// Counts of the bytes that became bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packed {
    /// How many are 0.
    pub(crate) zeros: usize,
    /// Whether each of them is 0 or 1.
    pub(crate) are_bools: bool,
}

/// Packs a bit for each byte, lowest first, set if the byte is not 0. The rest of the last byte is 0.
///
/// # Errors
/// When an allocation fails.
pub(crate) fn pack_bools(bytes: &[u8]) -> Result<(HostBuffer, Packed)> {
    let mut bits = HostBuffer::uninitialised(bytes.len().div_ceil(8))?;
    // SAFETY: the processor has the set that was detected.
    let packed = unsafe { pack(Isa::detect(), bytes, bits.as_uninit_mut()) };
    Ok((bits, packed))
}

/// Like [`pack_bools`], into the start of `bits`, which has room for them.
pub(crate) fn pack_bools_into(bytes: &[u8], bits: &mut [u8]) -> Packed {
    // SAFETY: as many bytes, to which nothing is written that is not initialised.
    let bits = unsafe { std::slice::from_raw_parts_mut(bits.as_mut_ptr().cast::<MaybeUninit<u8>>(), bits.len()) };
    // SAFETY: the processor has the set that was detected.
    unsafe { pack(Isa::detect(), bytes, bits) }
}

/// Packs bytes into the bits of an array; `None` if a byte is neither 0 nor 1.
///
/// # Errors
/// When an allocation fails.
pub(super) fn bits_of_bools(bytes: &[u8]) -> Result<Option<BooleanBuffer>> {
    let (bits, packed) = pack_bools(bytes)?;
    let Some(start) = NonNull::new(bits.as_ptr()).filter(|_| packed.are_bools) else { return Ok(None) };
    let size = bits.len();
    // SAFETY: all bytes of the block, which were written, and which the buffer keeps.
    let buffer = unsafe { Buffer::from_custom_allocation(start, size, Arc::new(bits)) };
    Ok(Some(BooleanBuffer::new(buffer, 0, bytes.len())))
}

/// Writes a bit for each byte, as far as there is room.
///
/// # Safety
/// The processor has `isa`.
unsafe fn pack(isa: Isa, bytes: &[u8], bits: &mut [MaybeUninit<u8>]) -> Packed {
    let (lines, tail) = bytes.as_chunks::<LINE>();
    let (words, _) = bits.as_chunks_mut::<WORD>();
    let (set, seen) = match isa {
        // SAFETY: the processor has AVX-512F and AVX-512BW, as `isa` is promised; slices bound what is read and
        // written.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe { avx512(lines, words) },
        // SAFETY: the processor has AVX2, as `isa` is promised; slices bound what is read and written.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { avx2(lines, words) },
        #[cfg(target_arch = "aarch64")]
        Isa::Neon => portable::<super::pack::Neon>(lines, words),
        _ => portable::<Baseline>(lines, words),
    };
    let (mut set, mut seen) = (set, seen);
    for (eight, bits) in tail.chunks(8).zip(bits.iter_mut().skip(lines.len() * WORD)) {
        let mut eight_bytes = [0; 8];
        for (byte, from) in eight_bytes.iter_mut().zip(eight) {
            *byte = *from;
        }
        let word = u64::from_le_bytes(eight_bytes);
        let packed = eight_bits(word);
        bits.write(packed);
        set += packed.count_ones() as usize;
        seen |= word;
    }
    Packed { zeros: bytes.len().saturating_sub(set), are_bools: seen & !0x0101_0101_0101_0101 == 0 }
}

/// Returns a bit for each byte of a word that is not 0.
#[inline(always)]
fn eight_bits(word: u64) -> u8 {
    const TOP: u64 = 0x8080_8080_8080_8080;
    // Sets the top bit of each byte that is not 0, then gathers all eight in the highest byte.
    let top = ((word & !TOP).wrapping_add(!TOP) | word) & TOP;
    let [.., packed] = (top >> 7).wrapping_mul(0x0102_0408_1020_4080).to_le_bytes();
    packed
}

/// Packs lines; returns how many bytes are not 0, and the bitwise or of all 8-byte words.
fn portable<V: Vector>(lines: &[[u8; LINE]], words: &mut [[MaybeUninit<u8>; WORD]]) -> (usize, u64) {
    let (mut set, mut seen) = (0, [0; WORD]);
    for (line, word) in lines.iter().zip(words) {
        for (seen, eight) in seen.iter_mut().zip(line.as_chunks::<WORD>().0) {
            *seen |= u64::from_ne_bytes(*eight);
        }
        let bits = V::nonzero(line);
        *word = bits.to_le_bytes().map(MaybeUninit::new);
        set += bits.count_ones() as usize;
    }
    (set, seen.into_iter().fold(0, |all, seen| all | seen))
}

/// As [`portable`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2(lines: &[[u8; LINE]], words: &mut [[MaybeUninit<u8>; WORD]]) -> (usize, u64) {
    use std::arch::x86_64::{
        __m256i, _mm256_cmpeq_epi8, _mm256_extract_epi64, _mm256_loadu_si256, _mm256_movemask_epi8, _mm256_or_si256,
        _mm256_setzero_si256,
    };

    let zero = _mm256_setzero_si256();
    let (mut set, mut seen) = (0, zero);
    for (line, word) in lines.iter().zip(words) {
        let (halves, _) = line.as_chunks::<{ LINE / 2 }>();
        let mut zeros = 0;
        for half in halves.iter().rev() {
            // SAFETY: 32 bytes, of any alignment.
            let bytes = unsafe { _mm256_loadu_si256(half.as_ptr().cast::<__m256i>()) };
            let are_zero = _mm256_movemask_epi8(_mm256_cmpeq_epi8(bytes, zero)).cast_unsigned();
            zeros = zeros << 32 | u64::from(are_zero);
            seen = _mm256_or_si256(seen, bytes);
        }
        *word = (!zeros).to_le_bytes().map(MaybeUninit::new);
        set += (!zeros).count_ones() as usize;
    }
    let parts = [
        _mm256_extract_epi64::<0>(seen),
        _mm256_extract_epi64::<1>(seen),
        _mm256_extract_epi64::<2>(seen),
        _mm256_extract_epi64::<3>(seen),
    ];
    (set, parts.into_iter().fold(0, |seen, part| seen | part.cast_unsigned()))
}

/// As [`portable`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw")]
fn avx512(lines: &[[u8; LINE]], words: &mut [[MaybeUninit<u8>; WORD]]) -> (usize, u64) {
    use std::arch::x86_64::{
        _mm512_loadu_si512, _mm512_or_si512, _mm512_reduce_or_epi64, _mm512_setzero_si512, _mm512_test_epi8_mask,
    };

    let (mut set, mut seen) = (0, _mm512_setzero_si512());
    for (line, word) in lines.iter().zip(words) {
        // SAFETY: 64 bytes, of any alignment.
        let bytes = unsafe { _mm512_loadu_si512(line.as_ptr().cast()) };
        let bits = _mm512_test_epi8_mask(bytes, bytes);
        seen = _mm512_or_si512(seen, bytes);
        *word = bits.to_le_bytes().map(MaybeUninit::new);
        set += bits.count_ones() as usize;
    }
    (set, _mm512_reduce_or_epi64(seen).cast_unsigned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The rule: a bit for each byte, lowest first.
    fn rule(bytes: &[u8]) -> (Vec<u8>, Packed) {
        let mut bits = vec![0; bytes.len().div_ceil(8)];
        for (index, byte) in bytes.iter().enumerate() {
            bits[index / 8] |= u8::from(*byte != 0) << (index % 8);
        }
        let zeros = bytes.iter().filter(|byte| **byte == 0).count();
        (bits, Packed { zeros, are_bools: bytes.iter().all(|byte| *byte <= 1) })
    }

    /// What a set of instructions gives, written `guard` bytes into a block whose other bytes stay as they are.
    fn packed(isa: Isa, bytes: &[u8], guard: usize) -> (Vec<u8>, Packed) {
        const UNTOUCHED: u8 = 0xa5;
        let room = bytes.len().div_ceil(8);
        let mut block = vec![MaybeUninit::new(UNTOUCHED); guard + room + 9];
        // SAFETY: the processor has the set.
        let found = unsafe { pack(isa, bytes, &mut block[guard..guard + room]) };
        // SAFETY: made of initialised bytes, over which bytes were written.
        let block: Vec<u8> = block.into_iter().map(|byte| unsafe { byte.assume_init() }).collect();
        assert!(block[..guard].iter().chain(&block[guard + room..]).all(|byte| *byte == UNTOUCHED));
        (block[guard..guard + room].to_vec(), found)
    }

    #[test]
    fn every_length_at_every_offset_is_packed_by_the_rule() {
        let bytes: Vec<u8> = (0..300_u32).map(|index| [0, 1, 0x80, 0, 255, 0x7f, 0][index as usize * 5 % 7]).collect();
        for isa in Isa::available() {
            for start in (0..9).chain([31, 32, 33, 63, 64, 65]).step_by(if cfg!(miri) { 5 } else { 1 }) {
                // For Miri, up to two lines and a rest, or none, of bytes and of eights.
                for length in
                    (0..=bytes.len() - start).filter(|length| !cfg!(miri) || [0, 1, 8, 15, 64, 137].contains(length))
                {
                    let bytes = &bytes[start..][..length];
                    assert_eq!(packed(*isa, bytes, start % 9), rule(bytes), "{isa:?} {start} {length}");
                }
            }
        }
    }

    #[test]
    fn one_byte_that_is_no_bool_is_found_wherever_it_is() {
        for isa in Isa::available() {
            for at in (0..200).step_by(if cfg!(miri) { 13 } else { 1 }) {
                for value in [2, 0x80, 0xff] {
                    let mut bytes = [1; 200];
                    bytes[at] = value;
                    assert_eq!(packed(*isa, &bytes, 0).1, Packed { zeros: 0, are_bools: false }, "{isa:?} {at}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn bytes_are_packed_by_the_rule(
            bytes in prop::collection::vec(prop_oneof![4 => Just(0), 4 => Just(1), 1 => any::<u8>()], 0..if cfg!(miri) { 70 } else { 1_000 }),
            start in 0_usize..70,
            guard in 0_usize..70,
        ) {
            let bytes = bytes.get(start..).unwrap_or(&[]);
            for isa in Isa::available() {
                prop_assert_eq!(packed(*isa, bytes, guard), rule(bytes), "{:?}", isa);
            }
        }
    }
}
