//! [`Mark`]: what look-ups compare of a value, and the arithmetic of its hash.

/// The part of a value that look-ups compare first. Equal marks mean equal values, except for texts of more than [`SHORT`] bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    /// The whole value, if it is short or an integer; else its hash.
    pub(super) words: (u64, u64),
    /// The length of the value in bytes; [`INTEGER`] for an integer.
    pub(super) bytes: usize,
}

/// The most bytes that two words hold: most names of categories.
pub(super) const SHORT: usize = 16;
/// [`Mark::bytes`] of an integer, which no text has.
pub(super) const INTEGER: usize = usize::MAX;

/// An odd constant with about as many ones as zeros.
pub(super) const MIXER: u64 = 0x9e37_79b9_7f4a_7c15;

/// For each number of bytes, the mask that keeps so many first bytes of a block, as two words.
#[expect(clippy::indexing_slicing, reason = "the compiler evaluates it")]
pub(super) const KEPT: [(u64, u64); SHORT + 1] = {
    let mut kept = [(0, 0); SHORT + 1];
    let mut bytes = 1;
    while bytes <= SHORT {
        let (low, high) = kept[bytes - 1];
        kept[bytes] = if bytes <= SHORT / 2 { (low << 8 | 0xff, high) } else { (low, high << 8 | 0xff) };
        bytes += 1;
    }
    kept
};

#[inline(always)]
pub(super) fn halves(word: u128) -> (u64, u64) {
    let bytes = word.to_le_bytes();
    let half = |half: Option<&[u8; 8]>| half.map_or(0, |half| u64::from_le_bytes(*half));
    (half(bytes.first_chunk()), half(bytes.last_chunk()))
}

/// Returns the halves of the 128-bit product, combined by exclusive or, so that all bits of `a` and `b` affect the result.
#[inline(always)]
pub(super) fn fold(a: u64, b: u64) -> u64 {
    let (low, high) = halves(u128::from(a).wrapping_mul(u128::from(b)));
    low ^ high
}

/// Returns at most [`SHORT`] bytes as two words, padded with zeros.
#[inline]
pub(super) fn padded(bytes: &[u8]) -> (u64, u64) {
    // The first and the last eight bytes may overlap; a shift moves the last ones to their place.
    let bits = |bytes: usize| u32::try_from(bytes.saturating_mul(8)).unwrap_or(u64::BITS);
    if let (Some(first), Some(last)) = (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        let high = u64::from_le_bytes(*last).checked_shr(bits(SHORT.saturating_sub(bytes.len()))).unwrap_or(0);
        return (u64::from_le_bytes(*first), high);
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let (low, high) = (u64::from(u32::from_le_bytes(*first)), u64::from(u32::from_le_bytes(*last)));
        return (low | high.checked_shl(bits(bytes.len().saturating_sub(4))).unwrap_or(0), 0);
    }
    let at = |index: usize| u64::from(bytes.get(index).copied().unwrap_or(0));
    (at(0) | at(1) << 8 | at(2) << 16, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_bytes_are_padded_with_zeros() {
        let bytes: Vec<u8> = (1..=40).collect();
        for start in 0..4 {
            for length in 0..=SHORT {
                let mut block = [0; SHORT];
                block[..length].copy_from_slice(&bytes[start..start + length]);
                assert_eq!(padded(&bytes[start..start + length]), halves(u128::from_le_bytes(block)), "{length}");
                let longer = u128::from_le_bytes(bytes[start..start + SHORT].try_into().unwrap());
                let (low, high) = KEPT[length];
                assert_eq!(u128::from_le_bytes(block), longer & (u128::from(high) << 64 | u128::from(low)));
            }
        }
    }
}
