//! Finds texts of at most sixteen bytes with one comparison, by a perfect hash (hash and displace).

use super::marks::{KEPT, MIXER, Mark, SHORT, fold, halves};
use crate::alloc::fallible;

/// The short texts of a vocabulary, with their positions.
pub(super) struct ShortTexts {
    /// Masks and seeds, by the number of bytes.
    kept: [LengthMask; SHORT + 1],
    /// For each group of texts, the multiplier that gives each text of the group a record of its own.
    multipliers: Vec<u64>,
    /// A power of two of records, at most four fifths of which are used.
    records: Vec<Record>,
    /// The low bits of a multiplied hash, which are not part of its record's number.
    spare_bits: u32,
}

/// The parts of [`ShortTexts`], by value or reference, which a loop of look-ups keeps in registers.
#[derive(Clone, Copy)]
pub(crate) struct Finder<'a> {
    kept: &'a [LengthMask; SHORT + 1],
    multipliers: &'a [u64],
    records: &'a [Record],
    spare_bits: u32,
}

/// How the hash reads a text of a given number of bytes from a block of sixteen.
#[derive(Clone, Copy)]
struct LengthMask {
    /// The masks that keep the bytes of the text.
    mask: (u64, u64),
    /// The seeds, the first one combined with the number of bytes.
    seeds: (u64, u64),
}

/// A text with its position, in half a cache line.
#[derive(Clone, Copy)]
#[repr(align(32))]
struct Record {
    /// The words of the text, combined with the seeds for its number of bytes.
    words: (u64, u64),
    bytes: usize,
    position: i32,
}

/// An unused record, whose length no text has.
const NONE: Record = Record { words: (0, 0), bytes: usize::MAX, position: -1 };

/// The two words of a text, in two registers or one.
pub(crate) trait TextWords: Copy {
    /// Returns the words, the lower one first.
    fn new(words: (u64, u64)) -> Self;

    /// Returns the lower word and the upper one.
    fn halves(self) -> (u64, u64);

    /// Returns the bits that are set in `mask`, exclusive or `seeds`.
    fn masked(self, mask: Self, seeds: Self) -> Self;

    /// Returns whether both words are equal.
    fn are(self, other: Self) -> bool;
}

/// The words of a text in two registers.
pub(crate) type WordPair = (u64, u64);

impl TextWords for WordPair {
    #[inline(always)]
    fn new(words: (u64, u64)) -> Self {
        words
    }

    #[inline(always)]
    fn halves(self) -> (u64, u64) {
        self
    }

    #[inline(always)]
    fn masked(self, mask: Self, seeds: Self) -> Self {
        (self.0 & mask.0 ^ seeds.0, self.1 & mask.1 ^ seeds.1)
    }

    #[inline(always)]
    fn are(self, other: Self) -> bool {
        self == other
    }
}

/// The most texts, so that their records fit in the cache of a core.
const MOST: usize = 1 << 12;
/// The most multipliers that are tried for a group; the last text of all finds a free record with one of five.
const TRIES: u64 = 1 << 10;

impl ShortTexts {
    /// Returns the short texts among these values; `None` if there are too many of them, no perfect hash is found, or an allocation fails.
    pub(super) fn of(marks: &[Mark], seed: [u64; 2]) -> Option<Self> {
        let shorts = || marks.iter().zip(0..).filter(|(mark, _)| mark.bytes <= SHORT);
        let count = shorts().count();
        if count == 0 || count > MOST {
            return None;
        }
        let [first, second] = seed;
        let mut kept = [LengthMask { mask: (0, 0), seeds: (0, 0) }; SHORT + 1];
        for ((kept, mask), bytes) in kept.iter_mut().zip(KEPT).zip(0_u64..) {
            *kept = LengthMask { mask, seeds: (first ^ bytes.wrapping_mul(MIXER), second) };
        }
        // No platform has addresses of fewer than 16 bits, and records are at least two.
        let groups = count.div_ceil(2).next_power_of_two();
        let size = count.saturating_add(count.div_ceil(4)).next_power_of_two();
        let mut made = Self {
            kept,
            multipliers: fallible::filled(groups, 0).ok()?,
            records: fallible::filled(size, NONE).ok()?,
            spare_bits: u64::BITS.checked_sub(size.trailing_zeros())?,
        };
        let mut texts = fallible::with_room(count).ok()?;
        for (mark, position) in shorts() {
            let words = made.kept.get(mark.bytes)?.seeded(mark.words);
            texts.push((fold(words.0, words.1), Record { words, bytes: mark.bytes, position }));
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

    /// Places the texts of a group in records of their own. Returns whether it found a multiplier that does so.
    fn place(&mut self, texts: &[(u64, Record)]) -> bool {
        let Some((hash, _)) = texts.first() else { return true };
        let group = self.finder().group(*hash);
        (1..=TRIES).any(|attempt| {
            // All bits of the hash affect the highest ones of a product with an odd number.
            let multiplier = attempt.wrapping_mul(MIXER) | 1;
            let mut placed = 0;
            for (hash, record) in texts {
                let at = self.finder().record(*hash, multiplier);
                let Some(free) = self.records.get_mut(at).filter(|record| record.position < 0) else { break };
                *free = *record;
                placed += 1;
            }
            let is_placed = placed == texts.len();
            if is_placed {
                self.multipliers.get_mut(group).into_iter().for_each(|own| *own = multiplier);
            } else {
                for (hash, _) in texts.iter().take(placed) {
                    let at = self.finder().record(*hash, multiplier);
                    self.records.get_mut(at).into_iter().for_each(|record| *record = NONE);
                }
            }
            is_placed
        })
    }

    /// Returns the [`Finder`] of these texts.
    #[inline(always)]
    pub(super) fn finder(&self) -> Finder<'_> {
        let Self { kept, multipliers, records, spare_bits } = self;
        Finder { kept, multipliers, records, spare_bits: *spare_bits }
    }
}

impl LengthMask {
    /// Returns the words of a text without the bytes behind it, combined with the seeds.
    #[inline(always)]
    fn seeded<W: TextWords>(self, words: W) -> W {
        words.masked(W::new(self.mask), W::new(self.seeds))
    }
}

impl Finder<'_> {
    /// Returns the position of the text in the first `bytes` bytes of `block`; `None` if it is not among these texts.
    #[inline(always)]
    pub(super) fn find<W: TextWords>(self, block: u128, bytes: usize) -> Option<i32> {
        let words = self.kept.get(bytes)?.seeded(W::new(halves(block)));
        let (low, high) = words.halves();
        let hash = fold(low, high);
        let record = self.records.get(self.record(hash, *self.multipliers.get(self.group(hash))?))?;
        let is_equal = words.are(W::new(record.words)) && record.bytes == bytes;
        is_equal.then_some(record.position)
    }

    /// Returns the group of a hash, which is its low bits: the number of groups is a power of two.
    #[inline(always)]
    fn group(self, hash: u64) -> usize {
        low_bits(hash) & self.multipliers.len().wrapping_sub(1)
    }

    /// Returns the number of a hash's record, under the multiplier of its group.
    #[inline(always)]
    fn record(self, hash: u64, multiplier: u64) -> usize {
        low_bits(hash.wrapping_mul(multiplier).wrapping_shr(self.spare_bits))
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
        // 819 and 3276 fill four fifths of their records, the most.
        let counts: &[usize] = if cfg!(miri) { &[1, 2, 70] } else { &[1, 2, 3, 20, 350, 819, 1024, 3276, 4096] };
        for &count in counts {
            for seed in SEEDS {
                let all = texts(count + 50);
                let marks: Vec<Mark> = all[..count].iter().map(|text| mark(text)).collect();
                let found = ShortTexts::of(&marks, seed).unwrap();
                for (position, text) in all.iter().enumerate() {
                    let expected = (position < count).then(|| i32::try_from(position).unwrap());
                    for behind in [0, 7, 255] {
                        assert_eq!(
                            found.finder().find::<WordPair>(block(text, behind), text.len()),
                            expected,
                            "{text:?}"
                        );
                    }
                }
                assert_eq!(found.finder().find::<WordPair>(0, SHORT + 1), None);
            }
        }
    }

    #[test]
    fn the_empty_text_is_one() {
        let found = ShortTexts::of(&[mark(b"a"), mark(b"")], SEEDS[0]).unwrap();
        assert_eq!(found.finder().find::<WordPair>(u128::MAX, 0), Some(1));
        let without = ShortTexts::of(&[mark(b"a")], SEEDS[0]).unwrap();
        assert_eq!(without.finder().find::<WordPair>(0, 0), None);
    }

    #[test]
    fn long_texts_are_left_out_and_too_many_are_refused() {
        let long = Mark { words: (5, 0), bytes: SHORT + 1 };
        assert!(ShortTexts::of(&[long], SEEDS[1]).is_none());
        let found = ShortTexts::of(&[long, mark(b"ab")], SEEDS[1]).unwrap();
        assert_eq!(found.finder().find::<WordPair>(block(b"ab", 1), 2), Some(1));
        assert!(ShortTexts::of(&vec![mark(b"x"); MOST + 1], SEEDS[1]).is_none());
    }

    #[test]
    fn equal_hashes_have_no_perfect_one() {
        assert!(ShortTexts::of(&[mark(b"x"), mark(b"x")], SEEDS[1]).is_none());
    }
}
