//! Finds texts of at most sixteen bytes with one comparison, by a perfect hash (hash and displace).

use super::marks::{KEPT, MIXER, Mark, SHORT, fold, halves};
use crate::alloc::fallible;

/// The short texts of a vocabulary, with their positions.
pub(super) struct ShortTexts {
    /// Masks and seeds, by the number of bytes.
    kept: [LengthMask; SHORT + 1],
    /// For each group of texts, the displacement that gives each text of the group a record of its own.
    shifts: Vec<u32>,
    /// A power of two of records, at most half of which are used.
    records: Vec<Record>,
    /// The low bits of a mixed hash, which are not part of its record's number.
    spare_bits: u32,
}

/// The parts of [`ShortTexts`], by value or reference, which a loop of look-ups keeps in registers.
#[derive(Clone, Copy)]
pub(crate) struct Finder<'a> {
    kept: &'a [LengthMask; SHORT + 1],
    shifts: &'a [u32],
    records: &'a [Record],
    spare_bits: u32,
}

/// How the hash reads a text of a given number of bytes from a block of sixteen.
#[derive(Clone, Copy)]
struct LengthMask {
    /// The masks that keep the bytes of the text.
    words: (u64, u64),
    /// The seeds, the first one combined with the number of bytes.
    seeds: (u64, u64),
}

/// A text with its position, in half a cache line.
#[derive(Clone, Copy)]
#[repr(align(32))]
struct Record {
    words: (u64, u64),
    bytes: u32,
    position: i32,
}

/// An unused record, whose length no text has.
const NONE: Record = Record { words: (0, 0), bytes: u32::MAX, position: -1 };

/// The most texts, so that their records fit in the cache of a core.
const MOST: usize = 1 << 12;
/// The most shifts that are tried for a group; one of two texts finds one among the first few.
const TRIES: u32 = 1 << 10;
/// An odd constant with about as many ones as zeros.
const SPREAD: u32 = 0x9e37_79b9;

impl ShortTexts {
    /// Returns the short texts among these values; `None` if there are too many of them, no perfect hash is found, or an allocation fails.
    pub(super) fn of(marks: &[Mark], seed: [u64; 2]) -> Option<Self> {
        let shorts = || marks.iter().zip(0..).filter(|(mark, _)| mark.bytes <= SHORT);
        let count = shorts().count();
        if count == 0 || count > MOST {
            return None;
        }
        let [first, second] = seed;
        let mut kept = [LengthMask { words: (0, 0), seeds: (0, 0) }; SHORT + 1];
        for ((kept, words), bytes) in kept.iter_mut().zip(KEPT).zip(0_u64..) {
            *kept = LengthMask { words, seeds: (first ^ bytes.wrapping_mul(MIXER), second) };
        }
        // No platform has addresses of fewer than 16 bits, and records are at least two.
        let (groups, size) = (count.div_ceil(2).next_power_of_two(), count.saturating_mul(2).next_power_of_two());
        let mut made = Self {
            kept,
            shifts: fallible::filled(groups, 0).ok()?,
            records: fallible::filled(size, NONE).ok()?,
            spare_bits: u32::BITS.checked_sub(size.trailing_zeros())?,
        };
        let mut texts = fallible::with_room(count).ok()?;
        for (mark, position) in shorts() {
            let hash = made.finder().hash(mark.words, mark.bytes)?;
            let record = Record { words: mark.words, bytes: u32::try_from(mark.bytes).ok()?, position };
            texts.push((hash, record));
        }
        let mask = groups.wrapping_sub(1);
        let group = |text: &(u64, Record)| low_bits(text.0) & mask;
        texts.sort_unstable_by_key(group);
        let mut groups = fallible::with_room(count).ok()?;
        groups.extend(texts.chunk_by(|one, other| group(one) == group(other)));
        // Places the largest groups first, while most records are free.
        groups.sort_unstable_by_key(|group| std::cmp::Reverse(group.len()));
        groups.into_iter().all(|group| made.place(group)).then_some(made)
    }

    /// Places the texts of a group in records of their own. Returns whether it found a shift that does so.
    fn place(&mut self, texts: &[(u64, Record)]) -> bool {
        let Some((hash, _)) = texts.first() else { return true };
        let group = self.finder().group(*hash);
        (0..TRIES).any(|shift| {
            // Repeated in the upper half, so that small shifts change many bits of the record's number.
            let shift = shift | shift.rotate_left(16);
            let mut placed = 0;
            for (hash, record) in texts {
                let at = self.finder().record(*hash, shift);
                let Some(free) = self.records.get_mut(at).filter(|record| record.position < 0) else { break };
                *free = *record;
                placed += 1;
            }
            let is_placed = placed == texts.len();
            if is_placed {
                self.shifts.get_mut(group).into_iter().for_each(|own| *own = shift);
            } else {
                for (hash, _) in texts.iter().take(placed) {
                    let at = self.finder().record(*hash, shift);
                    self.records.get_mut(at).into_iter().for_each(|record| *record = NONE);
                }
            }
            is_placed
        })
    }

    /// Returns the [`Finder`] of these texts.
    #[inline(always)]
    pub(super) fn finder(&self) -> Finder<'_> {
        let Self { kept, shifts, records, spare_bits } = self;
        Finder { kept, shifts, records, spare_bits: *spare_bits }
    }
}

impl Finder<'_> {
    /// Returns the position of the text in the first `bytes` bytes of `block`; `None` if it is not among these texts.
    #[inline(always)]
    pub(super) fn find(self, block: u128, bytes: usize) -> Option<i32> {
        let (low, high) = halves(block);
        let kept = self.kept.get(bytes)?;
        let (low, high) = (low & kept.words.0, high & kept.words.1);
        let hash = fold(low ^ kept.seeds.0, high ^ kept.seeds.1);
        let record = self.records.get(self.record(hash, *self.shifts.get(self.group(hash))?))?;
        let is_equal = record.words == (low, high) && usize::try_from(record.bytes) == Ok(bytes);
        is_equal.then_some(record.position)
    }

    fn hash(self, (low, high): (u64, u64), bytes: usize) -> Option<u64> {
        self.kept.get(bytes).map(|kept| fold(low ^ kept.seeds.0, high ^ kept.seeds.1))
    }

    /// Returns the group of a hash, which is its low bits: the number of groups is a power of two.
    #[inline(always)]
    fn group(self, hash: u64) -> usize {
        low_bits(hash) & self.shifts.len().wrapping_sub(1)
    }

    /// Returns the number of a hash's record, under the shift of its group.
    #[inline(always)]
    fn record(self, hash: u64, shift: u32) -> usize {
        let upper = u32::try_from(hash >> u32::BITS).unwrap_or(0);
        let mixed = (upper ^ shift).wrapping_mul(SPREAD);
        usize::try_from(mixed.wrapping_shr(self.spare_bits)).unwrap_or(usize::MAX)
    }
}

/// Returns the lowest bits of a hash, as many as an address has.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the upper bits are not asked for")]
fn low_bits(hash: u64) -> usize {
    hash as usize
}

#[cfg(test)]
mod tests {
    use super::super::marks::padded;
    use super::*;

    /// As random as those of a table.
    const SEEDS: [[u64; 2]; 3] = [
        [0xd1b5_4a32_d192_ed03, 0x8cb9_2ba7_2f3d_8dd7],
        [0x2545_f491_4f6c_dd1d, 0xaef1_7502_108e_f2d9],
        [0x9ddf_ea08_eb38_2d69, 0xff51_afd7_ed55_8ccd],
    ];

    fn mark(text: &[u8]) -> Mark {
        Mark { words: padded(text), bytes: text.len() }
    }

    fn block(text: &[u8], behind: u8) -> u128 {
        let mut block = [behind; SHORT];
        block[..text.len()].copy_from_slice(text);
        u128::from_le_bytes(block)
    }

    /// Texts of each length, of which some are others with zeros behind them.
    fn texts(count: usize) -> Vec<Vec<u8>> {
        let text = |at: usize| {
            let mut text = at.div_euclid(3).to_le_bytes().to_vec();
            text.truncate(3);
            text.resize(3 + at % 3 * 6, 0);
            text
        };
        (0..count).map(text).collect()
    }

    #[test]
    fn each_short_text_has_its_position_and_no_other_is_found() {
        let counts: &[usize] = if cfg!(miri) { &[1, 2, 70] } else { &[1, 2, 3, 20, 350, 1024, 4096] };
        for &count in counts {
            for seed in SEEDS {
                let all = texts(count + 50);
                let marks: Vec<Mark> = all[..count].iter().map(|text| mark(text)).collect();
                let found = ShortTexts::of(&marks, seed).unwrap();
                for (position, text) in all.iter().enumerate() {
                    let expected = (position < count).then(|| i32::try_from(position).unwrap());
                    for behind in [0, 7, 255] {
                        assert_eq!(found.finder().find(block(text, behind), text.len()), expected, "{text:?}");
                    }
                }
                assert_eq!(found.finder().find(0, SHORT + 1), None);
            }
        }
    }

    #[test]
    fn the_empty_text_is_one() {
        let found = ShortTexts::of(&[mark(b"a"), mark(b"")], SEEDS[0]).unwrap();
        assert_eq!(found.finder().find(u128::MAX, 0), Some(1));
        let without = ShortTexts::of(&[mark(b"a")], SEEDS[0]).unwrap();
        assert_eq!(without.finder().find(0, 0), None);
    }

    #[test]
    fn long_texts_are_left_out_and_too_many_are_refused() {
        let long = Mark { words: (5, 0), bytes: SHORT + 1 };
        assert!(ShortTexts::of(&[long], SEEDS[1]).is_none());
        let found = ShortTexts::of(&[long, mark(b"ab")], SEEDS[1]).unwrap();
        assert_eq!(found.finder().find(block(b"ab", 1), 2), Some(1));
        assert!(ShortTexts::of(&vec![mark(b"x"); MOST + 1], SEEDS[1]).is_none());
    }

    #[test]
    fn equal_hashes_have_no_perfect_one() {
        assert!(ShortTexts::of(&[mark(b"x"), mark(b"x")], SEEDS[1]).is_none());
    }
}
