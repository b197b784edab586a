//! Decodes LZMA, the compression of the kernels: the format of `.lzma` files, with their size in the header.

use crate::alloc::fallible;
use crate::error::{Error, Result};

/// Bytes of the header: the properties, the size of the dictionary, the size of the data.
const HEADER: usize = 13;
/// States of the model: what the last items were.
const STATES: usize = 12;
/// The first state of those in which the last item was a match, not a literal.
const FIRST_MATCH_STATE: usize = 7;
/// The most positions that choose a probability.
const POSITIONS: usize = 16;
/// Half, as a probability of 11 bits.
const EVEN: u16 = 1 << 10;
/// The shortest match.
const SHORTEST: usize = 2;

// Where the probabilities of each kind begin in the one table.
const IS_MATCH: usize = 0;
const IS_REPEAT: usize = IS_MATCH + STATES * POSITIONS;
const IS_REPEAT_0: usize = IS_REPEAT + STATES;
const IS_REPEAT_1: usize = IS_REPEAT_0 + STATES;
const IS_REPEAT_2: usize = IS_REPEAT_1 + STATES;
const IS_LONG_REPEAT_0: usize = IS_REPEAT_2 + STATES;
const SLOT: usize = IS_LONG_REPEAT_0 + STATES * POSITIONS;
const SPECIAL: usize = SLOT + 4 * 64;
const ALIGN: usize = SPECIAL + 128;
const LENGTH: usize = ALIGN + 16;
const REPEAT_LENGTH: usize = LENGTH + LENGTHS;
const LITERAL: usize = REPEAT_LENGTH + LENGTHS;
/// Probabilities of lengths: two choices, then trees of 3, 3 and 8 bits.
const LENGTHS: usize = 2 + POSITIONS * 8 * 2 + 256;
/// Probabilities of one context of literals.
const LITERALS: usize = 0x300;

/// Decodes the first `wanted` bytes of the data, or all if that is fewer.
///
/// # Errors
/// If the data is not what the format says, or memory is out.
pub(super) fn decode(data: &[u8], wanted: usize) -> Result<Vec<u8>> {
    let decoded = Decoder::new(data, wanted)?.map(Decoder::run);
    decoded.flatten().ok_or_else(|| Error::internal("the kernels of this build are no LZMA data"))
}

struct Decoder<'a> {
    input: std::slice::Iter<'a, u8>,
    range: u32,
    code: u32,
    probabilities: Vec<u16>,
    literal_context: u32,
    literal_mask: usize,
    position_mask: usize,
    out: Vec<u8>,
    size: usize,
}

impl<'a> Decoder<'a> {
    /// Reads the header; `None` if it is not one.
    fn new(data: &'a [u8], wanted: usize) -> Result<Option<Self>> {
        let Some((header, body)) = data.split_at_checked(HEADER) else { return Ok(None) };
        let [properties, _, _, _, _, size @ ..] = header else { return Ok(None) };
        let size = <[u8; 8]>::try_from(size).ok().and_then(|size| usize::try_from(u64::from_le_bytes(size)).ok());
        // The first byte is always 0; the next four start the code.
        let Some((&[0, a, b, c, d], input)) = body.split_first_chunk() else { return Ok(None) };
        let (Some(size), properties) = (size, u32::from(*properties)) else { return Ok(None) };
        let (literal_context, rest) = (properties % 9, properties / 9);
        let (literal_position, position) = (rest % 5, rest / 5);
        if position > 4 {
            return Ok(None);
        }
        let count = LITERAL + (LITERALS << (literal_context + literal_position));
        let probabilities = fallible::collected(std::iter::repeat_n(Ok(EVEN), count))?;
        let size = size.min(wanted);
        Ok(Some(Self {
            input: input.iter(),
            range: u32::MAX,
            code: u32::from_be_bytes([a, b, c, d]),
            probabilities,
            literal_context,
            literal_mask: (1 << literal_position) - 1,
            position_mask: (1 << position) - 1,
            out: fallible::with_room(size)?,
            size,
        }))
    }

    fn run(mut self) -> Option<Vec<u8>> {
        let (mut state, mut distances) = (0_usize, [0_usize; 4]);
        while self.out.len() < self.size {
            let position = self.out.len() & self.position_mask;
            if self.bit(IS_MATCH + state * POSITIONS + position)? == 0 {
                self.literal((state >= FIRST_MATCH_STATE).then_some(distances[0]))?;
                state = match state {
                    0..=3 => 0,
                    4..=9 => state - 3,
                    _ => state - 6,
                };
                continue;
            }
            let is_after_match = state >= FIRST_MATCH_STATE;
            let [first, second, third, fourth] = distances;
            let length = if self.bit(IS_REPEAT + state)? == 0 {
                let length = self.length(LENGTH, position)?;
                distances = [self.distance(length)?, first, second, third];
                state = if is_after_match { 10 } else { 7 };
                length
            } else {
                if self.bit(IS_REPEAT_0 + state)? == 0 {
                    if self.bit(IS_LONG_REPEAT_0 + state * POSITIONS + position)? == 0 {
                        state = if is_after_match { 11 } else { 9 };
                        self.copy(first, 1)?;
                        continue;
                    }
                } else if self.bit(IS_REPEAT_1 + state)? == 0 {
                    distances = [second, first, third, fourth];
                } else if self.bit(IS_REPEAT_2 + state)? == 0 {
                    distances = [third, first, second, fourth];
                } else {
                    distances = [fourth, first, second, third];
                }
                state = if is_after_match { 11 } else { 8 };
                self.length(REPEAT_LENGTH, position)?
            };
            self.copy(distances[0], length)?;
        }
        Some(self.out)
    }

    /// Decodes a bit, and adapts its probability.
    fn bit(&mut self, which: usize) -> Option<usize> {
        let probability = self.probabilities.get_mut(which)?;
        let bound = (self.range >> 11) * u32::from(*probability);
        let bit = if self.code < bound {
            self.range = bound;
            *probability += ((1 << 11) - *probability) >> 5;
            0
        } else {
            self.range -= bound;
            self.code -= bound;
            *probability -= *probability >> 5;
            1
        };
        self.refill()?;
        Some(bit)
    }

    fn refill(&mut self) -> Option<()> {
        if self.range < 1 << 24 {
            self.range <<= 8;
            self.code = self.code << 8 | u32::from(*self.input.next()?);
        }
        Some(())
    }

    /// Decodes a number of `bits` bits, the highest first, by a tree of probabilities.
    fn tree(&mut self, start: usize, bits: u32) -> Option<usize> {
        let mut node = 1;
        for _ in 0..bits {
            node = node << 1 | self.bit(start + node)?;
        }
        Some(node - (1 << bits))
    }

    /// Like [`Decoder::tree`], the lowest bit first. The node 1 of the tree is at `start`.
    fn reverse_tree(&mut self, start: usize, bits: u32) -> Option<usize> {
        let (mut node, mut number) = (1, 0);
        for place in 0..bits {
            let bit = self.bit(start + node - 1)?;
            node = node << 1 | bit;
            number |= bit << place;
        }
        Some(number)
    }

    /// Decodes a byte. After a match, the byte at its distance is what it probably is not.
    fn literal(&mut self, distance: Option<usize>) -> Option<()> {
        let before = usize::from(self.out.last().copied().unwrap_or(0));
        let low = (self.out.len() & self.literal_mask) << self.literal_context;
        let start = LITERAL + LITERALS * (low + (before >> (8 - self.literal_context)));
        let mut node = 1;
        if let Some(distance) = distance {
            let at = self.out.len().checked_sub(distance.checked_add(1)?)?;
            let mut expected = usize::from(*self.out.get(at)?);
            while node < 0x100 {
                let bit = expected >> 7 & 1;
                expected <<= 1;
                let found = self.bit(start + ((1 + bit) << 8) + node)?;
                node = node << 1 | found;
                if found != bit {
                    break;
                }
            }
        }
        while node < 0x100 {
            node = node << 1 | self.bit(start + node)?;
        }
        self.out.push(u8::try_from(node & 0xff).ok()?);
        Some(())
    }

    fn length(&mut self, start: usize, position: usize) -> Option<usize> {
        let (low, middle) = (start + 2, start + 2 + POSITIONS * 8);
        Some(if self.bit(start)? == 0 {
            SHORTEST + self.tree(low + position * 8, 3)?
        } else if self.bit(start + 1)? == 0 {
            SHORTEST + 8 + self.tree(middle + position * 8, 3)?
        } else {
            SHORTEST + 16 + self.tree(middle + POSITIONS * 8, 8)?
        })
    }

    /// Decodes the distance of a match, less one.
    fn distance(&mut self, length: usize) -> Option<usize> {
        let slot = self.tree(SLOT + (length - SHORTEST).min(3) * 64, 6)?;
        if slot < 4 {
            return Some(slot);
        }
        let bits = u32::try_from((slot >> 1) - 1).ok()?;
        let base = (2 | slot & 1) << bits;
        if slot < 14 {
            return Some(base + self.reverse_tree(SPECIAL + base - slot, bits)?);
        }
        let mut high = 0;
        for _ in 0..bits - 4 {
            self.range >>= 1;
            let bit = usize::from(self.code >= self.range);
            if bit == 1 {
                self.code -= self.range;
            }
            self.refill()?;
            high = high << 1 | bit;
        }
        Some(base + (high << 4) + self.reverse_tree(ALIGN, 4)?)
    }

    /// Repeats bytes of the result, which may overlap their copy.
    fn copy(&mut self, distance: usize, length: usize) -> Option<()> {
        let start = self.out.len().checked_sub(distance.checked_add(1)?)?;
        for at in start..start + length.min(self.size - self.out.len()) {
            self.out.push(*self.out.get(at)?);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Python's `lzma` makes of this text, with the size in the header.
    const TEXT: &[u8] = b"abcabcabcabcaaaaaaaaaaaaaaaabcabcd, and abcd again: 0123456789";
    const PACKED: &[u8] = b"\xc8\x00\x00\x40\x00\x3e\x00\x00\x00\x00\x00\x00\x00\x00\x30\x98\x88\x74\x02\xea\x48\x05\x30\x6d\xfb\xd5\x9a\xfd\xe7\x62\
        \xbf\x04\x9a\x25\xc5\x16\x2b\xe6\x4e\x2b\x9b\xd5\x1c\xa1\xa7\xd8\x00\xae\xbc\x5d\xb2\xd7\x5a\xff\xff\xf4\xf1\x50\x00";

    #[test]
    fn literals_matches_and_repeats_are_decoded() {
        assert_eq!(decode(PACKED, usize::MAX).unwrap(), TEXT);
    }

    #[test]
    fn a_part_is_decoded_alone() {
        for wanted in 0..TEXT.len() {
            assert_eq!(decode(PACKED, wanted).unwrap(), &TEXT[..wanted]);
        }
    }

    #[test]
    fn what_is_cut_or_broken_is_an_error_or_other_data() {
        for end in 0..PACKED.len() - 6 {
            assert!(decode(&PACKED[..end], usize::MAX).is_err(), "{end}");
        }
        for at in 0..PACKED.len() {
            let mut broken = PACKED.to_vec();
            broken[at] ^= 0x55;
            // Never a panic, and never more than was asked for.
            assert!(decode(&broken, 1000).map_or(0, |data| data.len()) <= 1000);
        }
    }
}
