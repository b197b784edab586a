//! Selects one of two values by a bit, 64 at a time: fills nulls, and turns bits into numbers.
//! Dispatch table: `avx2.rs` and `avx512.rs` use its types.

use std::marker::PhantomData;
use std::mem::MaybeUninit;

use super::isa::{BLOCK_ROWS, Bytes, Compiled, Isa, VectorKernel};
use super::stream::{LINE, prefetch};
use super::vector::{Vector, WIDTH, masks};

/// The bits of 64 rows: a word for each column, in which row 0 is the lowest bit. Words that no column uses are 0.
pub(super) type BitColumns = [u64; BLOCK_ROWS];

/// Words that are read together.
pub(super) const WORDS: usize = 8;

/// A bitmap that starts at any bit.
#[derive(Clone, Copy, Debug)]
pub(in crate::convert) struct UnalignedBits<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> UnalignedBits<'a> {
    pub(in crate::convert) fn new(bytes: &'a [u8], offset: usize) -> Self {
        Self { bytes, offset }
    }

    /// Returns 64 bits from bit `at` on, the first in the lowest bit. Bits beyond the bitmap are 0.
    #[inline(always)]
    pub(in crate::convert) fn word(&self, at: usize) -> u64 {
        let at = self.offset + at;
        word(self.bytes.get(at / 8..).unwrap_or(&[]), at % 8)
    }

    /// Returns eight words of [`Self::word`], one after the other from bit `at` on.
    #[inline(always)]
    pub(super) fn words(&self, at: usize) -> [u64; WORDS] {
        let at = self.offset + at;
        let (bytes, shift) = (self.bytes.get(at / 8..).unwrap_or(&[]), at % 8);
        let Some((whole, _)) = bytes.split_first_chunk::<{ WORDS * 8 }>() else {
            return std::array::from_fn(|index| word(bytes.get(8 * index..).unwrap_or(&[]), shift));
        };
        let (words, _) = whole.as_chunks::<8>();
        let mut low = [0; WORDS];
        let mut high = [u64::from(bytes.get(WORDS * 8).copied().unwrap_or(0)); WORDS];
        for (low, bytes) in low.iter_mut().zip(words) {
            *low = u64::from_le_bytes(*bytes);
        }
        for (high, bytes) in high.iter_mut().zip(words.iter().skip(1)) {
            *high = u64::from_le_bytes(*bytes);
        }
        for (low, high) in low.iter_mut().zip(high) {
            *low = *low >> shift | high << 1 << (63 - shift);
        }
        low
    }

    /// Returns the bits without the first ones.
    pub(in crate::convert) fn after(self, bits: usize) -> Self {
        Self { offset: self.offset + bits, ..self }
    }

    /// As [`Self::word`], and prefetches the words behind it.
    #[inline(always)]
    pub(in crate::convert) fn ahead(&self, at: usize) -> u64 {
        prefetch(self.bytes.as_ptr().wrapping_add((self.offset + at) / 8 + LINE));
        self.word(at)
    }
}

/// Returns 64 bits from bit `shift` of the first byte on, which is below 8. Bits beyond the bytes are 0.
#[inline(always)]
fn word(bytes: &[u8], shift: usize) -> u64 {
    let (low, high) = match bytes.first_chunk::<9>() {
        Some([a, b, c, d, e, f, g, h, high]) => (u64::from_le_bytes([*a, *b, *c, *d, *e, *f, *g, *h]), *high),
        None => {
            let mut low = [0; 8];
            for (byte, source) in low.iter_mut().zip(bytes) {
                *byte = *source;
            }
            (u64::from_le_bytes(low), 0)
        }
    };
    // Two shifts, because a single shift by 64 overflows.
    low >> shift | u64::from(high) << 1 << (63 - shift)
}

/// Writes 64 elements of this size: an element of `source` where its bit is set, else `element`.
pub(in crate::convert) fn selecting(isa: Isa, size: usize) -> Compiled {
    if let Some(masking) = masking::<true>(isa, size) {
        return masking;
    }
    match size {
        1 => isa.compiled::<Selecting<u8>>(),
        2 => isa.compiled::<Selecting<u16>>(),
        4 => isa.compiled::<Selecting<u32>>(),
        8 => isa.compiled::<Selecting<u64>>(),
        _ => isa.compiled::<Selecting<u128>>(),
    }
}

/// As [`selecting`] if `READS`, else as [`spreading`], by masks of vectors; `None` where compilers make masks of bits themselves, by
/// instructions for it, and where no vectors are in registers.
#[cfg_attr(miri, allow(unused_variables, reason = "Miri has no vectors in registers"))]
fn masking<const READS: bool>(isa: Isa, size: usize) -> Option<Compiled> {
    match isa {
        #[cfg(target_arch = "aarch64")]
        Isa::Neon => Some(masking_by::<super::neon::Neon, READS>(size)),
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        Isa::Portable => Some(masking_by::<super::sse2::Sse2, READS>(size)),
        _ => None,
    }
}

/// As [`masking`], by these vectors.
#[cfg_attr(
    any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))),
    allow(dead_code, reason = "only vectors in registers choose by masks")
)]
fn masking_by<V: Vector, const READS: bool>(size: usize) -> Compiled {
    match size {
        1 => Masking::<V, 1, READS>::run,
        2 => Masking::<V, 2, READS>::run,
        4 => Masking::<V, 4, READS>::run,
        8 => Masking::<V, 8, READS>::run,
        _ => Masking::<V, 16, READS>::run,
    }
}

/// For elements of `SIZE` bytes: of the source where bits are set, else `element` (`READS`), or `element`, else zero.
struct Masking<V, const SIZE: usize, const READS: bool>(PhantomData<V>);

impl<V: Vector, const SIZE: usize, const READS: bool> VectorKernel for Masking<V, SIZE, READS> {
    /// # Safety
    /// `source` has room for 64 elements of any alignment if `READS`; `out` is as [`VectorKernel::run`] says.
    #[expect(
        clippy::indexing_slicing,
        clippy::needless_range_loop,
        reason = "constants index arrays of constant length; iterators are not unrolled into registers"
    )]
    #[inline(always)]
    unsafe fn run(source: *const u8, bits: u64, element: &Bytes, out: *mut u8) -> bool {
        let mut each = [0; WIDTH];
        for part in each.chunks_mut(SIZE) {
            part.iter_mut().zip(element).for_each(|(to, from)| *to = *from);
        }
        // SAFETY: an array of 16 bytes.
        let each = unsafe { V::load(each.as_ptr()) };
        for (quarter, bits) in words_of(bits).into_iter().enumerate() {
            let masks = masks::<V, SIZE>(bits);
            for index in 0..SIZE {
                let at = (quarter * SIZE + index) * WIDTH;
                let (set, clear) = if READS {
                    // SAFETY: 64 elements are `4 * SIZE` vectors, and `quarter < 4`, `index < SIZE`.
                    (unsafe { V::load(source.wrapping_add(at)) }, each)
                } else {
                    (each, V::spread(0))
                };
                // SAFETY: `masks` zips masks of bits.
                let chosen = unsafe { V::select(masks[index], set, clear) };
                // SAFETY: `out` has room for 64 elements, as many vectors; any alignment is written.
                unsafe { chosen.store(out.wrapping_add(at)) };
            }
        }
        true
    }
}

/// Returns the bits 16 at a time, the lowest first.
fn words_of(bits: u64) -> [u16; 4] {
    let [a, b, c, d, e, f, g, h] = bits.to_le_bytes();
    [[a, b], [c, d], [e, f], [g, h]].map(u16::from_le_bytes)
}

/// For unsigned integers of the elements' size.
struct Selecting<T>(PhantomData<T>);

impl<T: Copy> VectorKernel for Selecting<T> {
    /// # Safety
    /// `source` has room for 64 elements of any alignment; `out` is as [`VectorKernel::run`] says.
    #[inline(always)]
    unsafe fn run(source: *const u8, bits: u64, element: &Bytes, out: *mut u8) -> bool {
        // SAFETY: `element` has 16 bytes, at least as many as `T`, an unsigned integer, of which any bytes are one.
        let clear = unsafe { element.as_ptr().cast::<MaybeUninit<T>>().read_unaligned() };
        for index in 0..BLOCK_ROWS {
            // SAFETY: `source` has 64 elements of any alignment, and `index < 64`; those behind the last row may be
            // uninitialised, as `MaybeUninit` allows.
            let set = unsafe { source.cast::<MaybeUninit<T>>().wrapping_add(index).read_unaligned() };
            let chosen = if bits >> index & 1 == 1 { set } else { clear };
            // SAFETY: `out` has room for 64 elements, and `index < 64`; it is not assumed to be aligned, as complex
            // numbers are for their parts only.
            unsafe { out.cast::<MaybeUninit<T>>().wrapping_add(index).write_unaligned(chosen) };
        }
        true
    }
}

/// Writes 64 elements of this size, `element` where the bit is set, else zero.
pub(in crate::convert) fn spreading(isa: Isa, size: usize) -> Compiled {
    if let Some(masking) = masking::<false>(isa, size) {
        return masking;
    }
    match size {
        1 => isa.compiled::<Spreading<u8>>(),
        2 => isa.compiled::<Spreading<u16>>(),
        4 => isa.compiled::<Spreading<u32>>(),
        8 => isa.compiled::<Spreading<u64>>(),
        _ => isa.compiled::<Spreading<u128>>(),
    }
}

/// For unsigned integers of the elements' size.
struct Spreading<T>(PhantomData<T>);

impl<T: Copy + Default> VectorKernel for Spreading<T> {
    /// # Safety
    /// `out` is as [`VectorKernel::run`] says.
    #[inline(always)]
    unsafe fn run(_: *const u8, bits: u64, element: &Bytes, out: *mut u8) -> bool {
        // SAFETY: `element` has 16 bytes, at least as many as `T`, an unsigned integer, of which any bytes are one.
        let one = unsafe { element.as_ptr().cast::<T>().read_unaligned() };
        for index in 0..BLOCK_ROWS {
            let chosen = if bits >> index & 1 == 1 { one } else { T::default() };
            // SAFETY: `out` has room for 64 elements, and `index < 64`; it is not assumed to be aligned, as complex
            // numbers are for their parts only.
            unsafe { out.cast::<T>().wrapping_add(index).write_unaligned(chosen) };
        }
        true
    }
}

/// Writes a byte, 0 or 1, for each bit.
///
/// # Safety
/// The lines are aligned if `stream`: then they are written past the cache. The processor has `isa`.
pub(in crate::convert) unsafe fn spread_lines(
    isa: Isa,
    bits: UnalignedBits<'_>,
    out: &mut [[MaybeUninit<u8>; LINE]],
    stream: bool,
) {
    match isa {
        // SAFETY: the processor has AVX-512, as `isa` is promised; the lines are aligned if `stream`.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe { super::avx512::spread_lines(bits, out, stream) },
        // SAFETY: the processor has AVX2, as `isa` is promised; the lines are aligned if `stream`.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { super::avx2::spread_lines(bits, out, stream) },
        // SAFETY: every AArch64 processor has NEON.
        #[cfg(target_arch = "aarch64")]
        Isa::Neon => unsafe { spread_vectors::<super::Neon>(bits, out, stream) },
        // SAFETY: the lines are aligned if `stream`.
        _ => unsafe { spread_vectors::<super::Baseline>(bits, out, stream) },
    }
}

/// As [`spread_lines`].
///
/// # Safety
/// The lines are aligned if `stream`.
unsafe fn spread_vectors<V: Vector>(bits: UnalignedBits<'_>, out: &mut [[MaybeUninit<u8>; LINE]], stream: bool) {
    for (number, line) in out.iter_mut().enumerate() {
        let word = bits.word(number * LINE);
        for (index, part) in line.as_chunks_mut::<WIDTH>().0.iter_mut().enumerate() {
            #[expect(clippy::cast_possible_truncation, reason = "a quarter of the word")]
            let vector = V::spread((word >> (index * WIDTH)) as u16);
            let to = part.as_mut_ptr().cast::<u8>();
            if stream {
                // SAFETY: 16 bytes of a line, aligned as the line is.
                unsafe { vector.stream(to) };
            } else {
                // SAFETY: 16 bytes, at any alignment.
                unsafe { vector.store(to) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_the_bits_from_any_bit_on_and_zeros_behind_them() {
        let bytes: Vec<u8> = (0..80_u8).map(|byte| byte.wrapping_mul(151).rotate_left(3) ^ 0x5c).collect();
        let bit = |at: usize, end: usize| at < end * 8 && bytes[at / 8] >> (at % 8) & 1 == 1;
        let sizes = [0, 1, 8, 9, 63, 64, 65, 66, 72, 73, 80];
        for (end, at) in sizes.into_iter().flat_map(|end| (0..17).map(move |at| (end, at))) {
            let bits = UnalignedBits::new(&bytes[..end], at / 3);
            let words = bits.words(at - at / 3);
            for (index, word) in words.into_iter().enumerate() {
                let expected =
                    (0..64).fold(0, |word, place| word | u64::from(bit(at + 64 * index + place, end)) << place);
                assert_eq!(word, expected, "{end} {at} {index}");
                assert_eq!(bits.word(at - at / 3 + 64 * index), expected, "{end} {at} {index}");
            }
        }
    }
}
