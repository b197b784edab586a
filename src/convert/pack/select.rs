//! One value or another by a bit: nulls filled, and bits as numbers.

use std::mem::MaybeUninit;

use arrow_buffer::bit_chunk_iterator::BitChunks;

use super::isa::Isa;

/// Where an element whose bit is set comes from.
#[derive(Clone, Copy)]
pub(crate) enum Set<'a> {
    /// As many elements as are written, of any alignment.
    Elements(*const u8),
    /// This one, for all.
    Pattern(&'a [u8]),
    /// What is written there already.
    Written,
}

/// Writes an element for each of the bits from bit `offset` of `bits` on: of `set` where it is set, `clear` where it is not.
/// Elements have the length of `clear`.
///
/// # Safety
/// [`Set::Elements`] has as many readable elements as `out`; `out` is aligned for them. The processor has `isa`.
///
/// # Panics
/// When `bits` is shorter than that.
pub(crate) unsafe fn select(
    isa: Isa,
    set: Set<'_>,
    clear: &[u8],
    (bits, offset): (&[u8], usize),
    out: &mut [MaybeUninit<u8>],
) {
    macro_rules! of {
        ($type:ty) => {{
            // SAFETY: any bytes are valid as MaybeUninit<$type>.
            let (_, out, _) = unsafe { out.align_to_mut::<MaybeUninit<$type>>() };
            let number = |bytes: &[u8]| bytes.first_chunk().map_or(0, |bytes| <$type>::from_ne_bytes(*bytes));
            let words = BitChunks::new(bits, offset, out.len());
            match set {
                // SAFETY: the contract.
                Set::Elements(start) => unsafe { from_elements::<$type>(isa, start.cast(), number(clear), words, out) },
                // SAFETY: the contract.
                Set::Pattern(set) => unsafe { from_pattern::<$type>(isa, number(set), number(clear), words, out) },
                // SAFETY: the contract.
                Set::Written => unsafe { from_written::<$type>(isa, (), number(clear), words, out) },
            }
        }};
    }
    match clear.len() {
        1 => of!(u8),
        2 => of!(u16),
        4 => of!(u32),
        8 => of!(u64),
        _ => of!(u128),
    }
}

macro_rules! by_isa {
    ($(#[$doc:meta])* $name:ident = $body:ident, $avx512:ident, $avx2:ident, $set:ty) => {
        $(#[$doc])*
        unsafe fn $name<T: Copy>(isa: Isa, set: $set, clear: T, words: BitChunks<'_>, out: &mut [MaybeUninit<T>]) {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
            unsafe fn $avx512<T: Copy>(set: $set, clear: T, words: BitChunks<'_>, out: &mut [MaybeUninit<T>]) {
                // SAFETY: the contract of the function around this one.
                unsafe { $body(set, clear, words, out) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2")]
            unsafe fn $avx2<T: Copy>(set: $set, clear: T, words: BitChunks<'_>, out: &mut [MaybeUninit<T>]) {
                // SAFETY: the contract of the function around this one.
                unsafe { $body(set, clear, words, out) }
            }
            match isa {
                // SAFETY: the contract; the processor has these instructions.
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 => unsafe { $avx512(set, clear, words, out) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 => unsafe { $avx2(set, clear, words, out) },
                // SAFETY: the contract.
                _ => unsafe { $body(set, clear, words, out) },
            }
        }
    };
}
by_isa!(
    /// # Safety
    /// `set` has as many readable elements as `out`; the processor has `isa`.
    from_elements = elements_body, elements_avx512, elements_avx2, *const T
);
by_isa!(
    /// # Safety
    /// The processor has `isa`.
    from_pattern = pattern_body, pattern_avx512, pattern_avx2, T
);
by_isa!(
    /// # Safety
    /// The processor has `isa`.
    from_written = written_body, written_avx512, written_avx2, ()
);

/// # Safety
/// As [`from_elements`].
#[inline(always)]
unsafe fn elements_body<T: Copy>(set: *const T, clear: T, words: BitChunks<'_>, out: &mut [MaybeUninit<T>]) {
    for_each_half(words, out, |bits, first, out| {
        let set = set.wrapping_add(first);
        for (index, slot) in out.iter_mut().enumerate() {
            // SAFETY: the contract: there is an element for each of `out`.
            let element = unsafe { set.wrapping_add(index).read_unaligned() };
            slot.write(if bits >> index & 1 == 1 { element } else { clear });
        }
    });
}

/// # Safety
/// As [`from_pattern`].
#[inline(always)]
unsafe fn pattern_body<T: Copy>(set: T, clear: T, words: BitChunks<'_>, out: &mut [MaybeUninit<T>]) {
    for_each_half(words, out, |bits, _, out| {
        for (index, slot) in out.iter_mut().enumerate() {
            slot.write(if bits >> index & 1 == 1 { set } else { clear });
        }
    });
}

/// # Safety
/// As [`from_written`].
#[inline(always)]
unsafe fn written_body<T: Copy>((): (), clear: T, words: BitChunks<'_>, out: &mut [MaybeUninit<T>]) {
    for_each_half(words, out, |bits, _, out| {
        for (index, slot) in out.iter_mut().enumerate() {
            *slot = if bits >> index & 1 == 1 { *slot } else { MaybeUninit::new(clear) };
        }
    });
}

/// Calls `write` with 32 bits, the position of the first, and what is to be written for them; the last time perhaps for
/// fewer. A length that is known lets the loop inside become vectors.
#[inline(always)]
fn for_each_half<T>(
    words: BitChunks<'_>,
    out: &mut [MaybeUninit<T>],
    mut write: impl FnMut(u32, usize, &mut [MaybeUninit<T>]),
) {
    let (blocks, rest) = out.as_chunks_mut::<64>();
    let mut first = 0;
    for (word, block) in words.iter().zip(blocks) {
        let (low, high) = block.split_at_mut(32);
        let [low_bits, high_bits] = halves(word);
        if let Some(low) = low.first_chunk_mut::<32>() {
            write(low_bits, first, low);
        }
        if let Some(high) = high.first_chunk_mut::<32>() {
            write(high_bits, first + 32, high);
        }
        first += 64;
    }
    let [low_bits, high_bits] = halves(words.remainder_bits());
    let (low, high) = rest.split_at_mut(rest.len().min(32));
    write(low_bits, first, low);
    write(high_bits, first + 32, high);
}

#[expect(clippy::cast_possible_truncation, reason = "the halves of a word")]
fn halves(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_of_instructions_gives_the_same() {
        let bits: Vec<u8> = (0..40_u8).map(|byte| byte.wrapping_mul(151) ^ 0x5a).collect();
        for size in [1_usize, 2, 4, 8, 16] {
            let elements: Vec<u8> = (0..300 * size).map(|byte| (byte % 251) as u8).collect();
            let clear: Vec<u8> = (0..size).map(|byte| 0xf0 | byte as u8).collect();
            let pattern: Vec<u8> = (0..size).map(|byte| 0xa0 | byte as u8).collect();
            for (offset, count) in [(0, 0), (0, 1), (3, 31), (7, 32), (1, 33), (0, 64), (5, 65), (9, 200), (2, 300)] {
                let is_set = |index: usize| bits[(offset + index) / 8] >> ((offset + index) % 8) & 1 == 1;
                for (set, of) in [
                    (Set::Elements(elements.as_ptr()), &elements),
                    (Set::Pattern(&pattern), &pattern),
                    (Set::Written, &elements),
                ] {
                    let expected: Vec<u8> = (0..count)
                        .flat_map(|index| match is_set(index) {
                            true if of.len() == size => of.clone(),
                            true => of[index * size..][..size].to_vec(),
                            false => clear.clone(),
                        })
                        .collect();
                    for isa in Isa::available() {
                        let mut out = vec![MaybeUninit::<u128>::new(0); (count * size).div_ceil(16)];
                        // SAFETY: bytes of initialised memory.
                        let (_, bytes, _) = unsafe { out.align_to_mut::<MaybeUninit<u8>>() };
                        let bytes = &mut bytes[..count * size];
                        for (byte, element) in bytes.iter_mut().zip(&elements) {
                            byte.write(*element);
                        }
                        // SAFETY: the elements are as many as `bytes` has room for; it is aligned.
                        unsafe { select(*isa, set, &clear, (&bits, offset), bytes) };
                        // SAFETY: written above.
                        let found: Vec<u8> = bytes.iter().map(|byte| unsafe { byte.assume_init() }).collect();
                        assert_eq!(found, expected, "{isa:?} {size} {offset} {count}");
                    }
                }
            }
        }
    }
}
