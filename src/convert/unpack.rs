//! Unpacks bits to bytes.

use std::mem::MaybeUninit;

use super::pack::{Isa, LINE, NON_TEMPORAL_FROM, UnalignedBits, fence, spread_lines};

/// Writes a byte, 0 or 1, for each bit, as many as `out` has room for. Bits beyond the bitmap are 0.
///
/// # Safety
/// The processor has `isa`.
pub(super) unsafe fn unpack_bits(isa: Isa, bits: UnalignedBits<'_>, out: &mut [MaybeUninit<u8>]) {
    let large = out.len() >= NON_TEMPORAL_FROM;
    // Not by `align_offset`, which may return more: the head has to be shorter than a word has bits.
    let head = (out.as_ptr().addr().wrapping_neg() % LINE).min(out.len());
    let (head, rest) = out.split_at_mut(head);
    let (lines, tail) = rest.as_chunks_mut::<{ LINE }>();
    let few = |bits: UnalignedBits<'_>, out: &mut [MaybeUninit<u8>]| {
        let word = bits.word(0);
        for (index, byte) in out.iter_mut().enumerate() {
            byte.write(u8::from(word >> index & 1 == 1));
        }
    };
    few(bits, head);
    let bits = bits.after(head.len());
    // SAFETY: the processor has `isa`, as promised; `head` leads to the first cache line.
    unsafe { spread_lines(isa, bits, lines, large) };
    few(bits.after(lines.len() * LINE), tail);
    if large {
        fence();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_offset_and_length_matches_the_definition() {
        let bits: Vec<u8> = (0..60_u8).map(|byte| byte.wrapping_mul(151) ^ 0x5a).collect();
        let lengths = (0..70).chain([127, 128, 129, 200, 300, 400]);
        let offsets = || (0..20).step_by(if cfg!(miri) { 7 } else { 1 });
        for (isa, offset) in Isa::available().iter().flat_map(|isa| offsets().map(move |offset| (*isa, offset))) {
            // For Miri, whole words and a rest, or none.
            for length in lengths.clone().filter(|length| !cfg!(miri) || [0, 1, 8, 63, 64, 65, 128].contains(length)) {
                for guard in [0, 1, 63] {
                    let mut out = vec![MaybeUninit::new(9); guard + length + 64];
                    // SAFETY: the processor has the set.
                    unsafe { unpack_bits(isa, UnalignedBits::new(&bits, offset), &mut out[guard..guard + length]) };
                    for (index, byte) in out.iter().enumerate() {
                        // SAFETY: initialised above.
                        let byte = unsafe { byte.assume_init() };
                        let expected = match index.checked_sub(guard).filter(|index| *index < length) {
                            Some(index) => bits[(offset + index) / 8] >> ((offset + index) % 8) & 1,
                            None => 9,
                        };
                        assert_eq!(byte, expected, "{isa:?} {offset} {length} {index}");
                    }
                }
            }
        }
    }
}
