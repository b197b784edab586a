//! Hashes of sampled rows, by which a source that has changed is found: docs/loader.md defines them.

use super::read_log::{Digest, ShardLog};
use crate::error::{Counted, Error, Remedy, Result};

/// A stratum has one row in so many before it, at least one row, and at most [`LONGEST`].
const SHARE: usize = 16;
const LONGEST: usize = 8192;

/// Stands for a value that cannot be converted or has no text; nothing has so many bytes.
pub(super) const NO_VALUE: u64 = u64::MAX;

/// A bijection of 64-bit words in which each bit of the input changes about half of the bits of the output.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Returns a hash that goes on with a word.
pub(super) fn fold(hash: u64, word: u64) -> u64 {
    mix((hash ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15))
}

/// Returns a hash that goes on with a number.
pub(super) fn fold_count(hash: u64, count: usize) -> u64 {
    // No Rust platform has wider addresses.
    fold(hash, u64::try_from(count).unwrap_or(u64::MAX))
}

/// Returns a hash that goes on with the number of these bytes, and with the bytes.
pub(super) fn fold_bytes(hash: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut hash = words.iter().fold(fold_count(hash, bytes.len()), |hash, word| fold(hash, u64::from_le_bytes(*word)));
    if !rest.is_empty() {
        let mut last = [0; 8];
        last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        hash = fold(hash, u64::from_le_bytes(last));
    }
    hash
}

/// Returns [`fold_bytes`] of the hexadecimal digits of these bytes, in lower case.
pub(super) fn fold_hex(hash: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let count = fold_count(hash, bytes.len().saturating_mul(2));
    let hash = words.iter().fold(count, |hash, word| fold(hash, hex(*word)));
    let mut last = [0; 4];
    last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    match rest.len() {
        0 => hash,
        // Zeros after the last digit.
        bytes => fold(hash, hex(last) & ((1 << (16 * bytes)) - 1)),
    }
}

/// Returns the digits of four bytes as a little-endian word.
fn hex(bytes: [u8; 4]) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let mut word = u64::from(u32::from_le_bytes(bytes));
    word = (word | (word << 16)) & 0x0000_ffff_0000_ffff;
    word = (word | (word << 8)) & 0x00ff_00ff_00ff_00ff;
    // The high digit of a byte comes first.
    let digits = ((word >> 4) & 0x000f_000f_000f_000f) | ((word & 0x000f_000f_000f_000f) << 8);
    let letters = ((digits + 6 * ONES) >> 4) & ONES;
    digits + 0x30 * ONES + letters * 0x27
}

/// The numbers of the sampled rows, without end: one of each stratum.
#[derive(Clone, Debug)]
pub(super) struct Samples {
    start: usize,
}

impl Samples {
    pub(super) fn new() -> Self {
        Self { start: 0 }
    }

    /// Returns the next sampled row.
    pub(super) fn row(&self) -> usize {
        let (start, rows) = (u64::try_from(self.start).unwrap_or(u64::MAX), self.rows());
        let offset = mix(start) % u64::try_from(rows).unwrap_or(1);
        self.start.saturating_add(usize::try_from(offset).unwrap_or(0))
    }

    /// Goes on to the sampled row after that.
    pub(super) fn advance(&mut self) {
        self.start = self.start.saturating_add(self.rows());
    }

    /// Returns the rows of the stratum.
    fn rows(&self) -> usize {
        (self.start / SHARE).clamp(1, LONGEST)
    }
}

/// Returns how many of the first `rows` rows of a shard are sampled.
pub(super) fn samples_among(rows: usize) -> usize {
    let (mut samples, mut count) = (Samples::new(), 0_usize);
    while samples.row() < rows {
        // Of the longest strata, all that end before these rows do have their row among them: a state may claim any number.
        let whole = if samples.rows() == LONGEST { rows.saturating_sub(samples.start) / LONGEST } else { 0 };
        let strata = whole.max(1);
        samples.start = samples.start.saturating_add(samples.rows().saturating_mul(strata));
        count = count.saturating_add(strata);
    }
    count
}

/// The hashes of the rows of one shard, in its order.
pub(super) struct RowHashes {
    samples: Samples,
    digest: Digest,
    log: ShardLog,
    /// The digest that a state has, which these rows must reach.
    expected: Option<Digest>,
}

impl RowHashes {
    /// Returns the hashes of a shard of which no row was read. They are written to `log`, and compared with `expected`.
    pub(super) fn new(log: ShardLog, expected: Option<Digest>) -> Self {
        log.begin();
        let expected = expected.filter(|expected| expected.samples > 0);
        Self { samples: Samples::new(), digest: Digest::default(), log, expected }
    }

    /// Returns the number of the next row to hash.
    pub(super) fn next_row(&self) -> usize {
        self.samples.row()
    }

    /// Goes on with the hash of that row. `dictionaries` returns the hash of the dictionaries of codes.
    ///
    /// # Errors
    /// If the digest is not the expected one.
    pub(super) fn add(&mut self, row_hash: u64, dictionaries: impl FnOnce(u64) -> Result<u64>) -> Result<()> {
        let row = self.samples.row();
        let before = match self.digest.samples {
            0 => dictionaries(self.digest.digest)?,
            _ => self.digest.digest,
        };
        let digest = fold(fold_count(before, row), row_hash);
        self.digest = Digest { samples: self.digest.samples.saturating_add(1), digest };
        self.log.add(row, self.digest);
        self.samples.advance();
        match self.expected {
            Some(expected) if expected.samples == self.digest.samples && expected != self.digest => {
                let reason = format!(
                    "the source's rows have changed since the state was taken: row {row} or one of the rows sampled before it \
                     differs"
                );
                Err(Error::argument(reason).remedy_is(Remedy::RepeatableOrder))
            }
            _ => Ok(()),
        }
    }

    /// Checks a source that has ended after `rows` rows.
    ///
    /// # Errors
    /// If the state has seen more rows.
    pub(super) fn end(&self, rows: usize) -> Result<()> {
        self.log.end(rows);
        match self.expected {
            Some(expected) if expected.samples > self.digest.samples => {
                let reason = format!("the source has {}, and had more when the state was taken", Counted(rows, "row"));
                Err(Error::argument(reason).remedy_is(Remedy::RepeatableOrder))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::options::LoadOptions;
    use super::super::place::Place;
    use super::super::read_log::ReadLog;
    use super::super::sharding::Sharding;
    use super::super::shards::Shards;
    use super::*;

    /// The log of one shard.
    fn log() -> ReadLog {
        let options = LoadOptions::new(Sharding::new(1, false, 0, 1).unwrap());
        ReadLog::new(Shards::of_stream(None).lanes(&options, &Place::start(0)).unwrap(), 1)
    }

    #[test]
    fn each_stratum_has_one_sampled_row() {
        let mut samples = Samples::new();
        let mut rows = Vec::new();
        while rows.last().is_none_or(|last| *last < 1_000_000) {
            rows.push(samples.row());
            samples.advance();
        }
        assert_eq!(rows[..32], (0..32).collect::<Vec<_>>());
        assert!(rows.windows(2).all(|pair| pair[0] < pair[1] && pair[1] - pair[0] < 2 * LONGEST));
        // By an independent implementation of the document, in tests/python/loader_reference.py.
        assert_eq!(rows[32..40], [33, 34, 36, 38, 41, 42, 45, 47]);
        assert_eq!(rows.iter().filter(|row| **row < 1 << 17).count(), 173);
        assert_eq!(rows.iter().filter(|row| **row < 1_000_000).count(), 280);
        assert_eq!([0, 1, 32, 1 << 17].map(samples_among), [0, 1, 32, 173]);
        let (mut samples, mut count) = (Samples::new(), 0);
        while samples.row() < 1 << 20 {
            assert_eq!([samples.row(), samples.row() + 1].map(samples_among), [count, count + 1]);
            samples.advance();
            count += 1;
        }
        // A state may claim any number.
        assert!(samples_among(usize::MAX) > usize::MAX / LONGEST - (1 << 17));
    }

    #[test]
    fn the_hashes_are_those_of_the_document() {
        assert_eq!([0, 1, 2].map(mix), [0, 6_238_072_747_940_578_789, 15_839_785_061_582_574_730]);
        assert_eq!(fold_bytes(0, b""), fold(0, 0));
        assert_eq!(fold_bytes(7, b"0123456789"), 8_620_527_502_259_515_754);
    }

    #[test]
    fn digits_are_hashed_as_their_text() {
        let bytes: Vec<u8> = (0..=255).chain(0..44).collect();
        for end in (0..=17).chain(250..=300) {
            let text = bytes[..end].iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            assert_eq!(fold_hex(7, &bytes[..end]), fold_bytes(7, text.as_bytes()), "{end}");
        }
    }

    #[test]
    fn rows_without_end_are_never_reached() {
        let mut samples = Samples { start: usize::MAX - 5 };
        for _ in 0..3 {
            assert!(samples.row() >= usize::MAX - 5);
            samples.advance();
        }
    }

    #[test]
    fn a_digest_is_compared_where_it_was_taken() {
        let none = |hash| Ok(hash);
        let log = log();
        let mut first = RowHashes::new(log.of(0, 0), None);
        [3, 4, 5].into_iter().for_each(|hash| first.add(hash, none).unwrap());
        let digests = |rows| log.digests(|_| Some(rows)).get(&0).copied();
        let expected = digests(2).unwrap();
        assert_eq!((expected.samples, digests(0)), (2, None));
        for (hashes, differs) in [([3, 4, 9], None), ([3, 9, 5], Some(1)), ([9, 4, 5], Some(1))] {
            let mut again = RowHashes::new(self::log().of(0, 0), Some(expected));
            assert!(again.end(0).is_err());
            let errors: Vec<usize> = (0..3)
                .filter(|row| again.add(hashes[*row], none).is_err_and(|error| error.remedy().is_some()))
                .collect();
            assert_eq!(errors.first().copied(), differs);
            assert_eq!(again.end(3), Ok(()));
        }
        let mut other = RowHashes::new(self::log().of(0, 0), Some(expected));
        assert!(other.add(3, |hash| Ok(fold(hash, 1))).is_ok() && other.add(4, none).is_err());
    }
}
