//! The position of an iteration, and the options that resuming it requires.

use std::collections::BTreeMap;

use super::dictionary_hashes::DictionaryHashes;
use super::place::Place;
use super::read_log::Digest;
use super::sharding::OfOthers;
use crate::error::{Counted, Error, Remedy, Result};

/// The version of the state's format.
pub(crate) const STATE_VERSION: u64 = 2;

/// Where an iteration stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// The seed of every epoch's order; `None` without a shuffle.
    pub(crate) seed: Option<u64>,
    /// Where the order stands.
    pub(crate) place: Place,
    /// Rows of a full batch of the loader that took the last rows. A last batch that was not full counts as full.
    pub(crate) batch_size: usize,
    /// Which of the last batches other workers make: whether the epoch has them is known where the rows of its lanes are.
    pub(crate) of_others: OfOthers,
    /// What must be the same when resuming.
    pub(crate) terms: Terms,
    /// Of the rows that were read.
    pub(crate) hashes: Hashes,
}

/// What determines the order of an epoch, besides its seed and number. Neither the rank nor the sizes of batches and rounds
/// are part of it: they are how the order is cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// Rows of the shuffle buffer; 0 without one.
    pub(crate) shuffle_buffer: usize,
    /// Whether the order of the shards is permuted.
    pub(crate) shuffle_shards: bool,
    /// The source's columns and rows, if they are known.
    pub(crate) source: SourceState,
}

/// What is known of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SourceState {
    /// The names of all its columns.
    pub(crate) columns: Option<Vec<String>>,
    /// How many rows it has.
    pub(crate) rows: Option<usize>,
    /// The rows of each shard; `None` for a source without shards.
    pub(crate) shards: Option<Vec<Option<usize>>>,
}

/// The hashes of rows that were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hashes {
    /// Says what rows became; `None` if no iteration began. Digests of different conversions cannot be compared.
    pub(crate) conversion: Option<u64>,
    /// The digest of each shard that was read, by its number.
    pub(crate) digests: BTreeMap<usize, Digest>,
    /// Of the dictionaries of codes that were read. Only codes of the same dictionaries mean the same.
    pub(crate) dictionaries: DictionaryHashes,
}

impl Hashes {
    /// Returns the hashes of the dictionaries that a loader of this conversion has to find.
    pub(crate) fn dictionaries_of(&self, conversion: u64) -> DictionaryHashes {
        if self.conversion == Some(conversion) { self.dictionaries.clone() } else { DictionaryHashes::default() }
    }

    /// Returns these without those of rows.
    pub(crate) fn without_rows(&self) -> Self {
        let conversion = self.conversion.filter(|_| !self.dictionaries.is_empty());
        Self { conversion, digests: BTreeMap::new(), dictionaries: self.dictionaries.clone() }
    }

    /// Returns the digests that a loader of this conversion can compare; none if it converts otherwise.
    ///
    /// # Errors
    /// If there are none to compare, and `all` rows must be.
    pub(crate) fn comparable(&self, conversion: u64, all: bool) -> Result<BTreeMap<usize, Digest>> {
        if self.conversion == Some(conversion) {
            return Ok(self.digests.clone());
        }
        if all {
            let reason = match self.conversion {
                None => "the state has no hashes of rows, so it cannot be verified",
                Some(_) => {
                    "the state was taken with other groups, dtypes or nulls, so its hashes of rows cannot be verified"
                }
            };
            return Err(Error::argument(reason).remedy_is(Remedy::NotVerified));
        }
        Ok(BTreeMap::new())
    }
}

impl State {
    /// Refuses to resume under other terms.
    ///
    /// # Errors
    /// As [`Terms::check`]; if no loader has taken the state, or only one of both has a seed.
    pub(crate) fn check(&self, present: &Terms) -> Result<()> {
        self.terms.check(present)?;
        if self.batch_size == 0 {
            return Err(Error::argument("the state's \"batch_size\" is 0").remedy_is(Remedy::TakenState));
        }
        let (state, loader) = match (self.seed.is_some(), present.shuffles()) {
            (true, false) => ("a seed", "does not shuffle"),
            (false, true) => ("no seed", "shuffles"),
            _ => return Ok(()),
        };
        let error = Error::argument(format!("the state has {state}, and this loader {loader}"));
        Err(error.remedy_is(Remedy::ShuffleOfState))
    }
}

impl Terms {
    /// Returns the terms of these options, for a source of which nothing is known yet.
    #[must_use]
    pub(crate) fn new(shuffle_buffer: usize, shuffle_shards: bool) -> Self {
        Self { shuffle_buffer, shuffle_shards, source: SourceState::default() }
    }

    /// Returns whether the order is shuffled, so that it has a seed.
    pub(crate) fn shuffles(&self) -> bool {
        self.shuffle_buffer > 0 || self.shuffle_shards
    }

    /// Refuses to resume under other terms.
    ///
    /// # Errors
    /// If these terms, of a state, differ from the present ones. Names the difference.
    pub(crate) fn check(&self, present: &Self) -> Result<()> {
        differs("shuffle_buffer", &self.shuffle_buffer, &present.shuffle_buffer)?;
        differs("shuffle_shards", &self.shuffle_shards, &present.shuffle_shards)?;
        self.source.check(&present.source)
    }
}

impl SourceState {
    /// Refuses another source.
    ///
    /// # Errors
    /// If both know the columns or the rows, and they differ.
    pub(crate) fn check(&self, present: &Self) -> Result<()> {
        if let (Some(columns), Some(found)) = (&self.columns, &present.columns) {
            differs("the source's columns", columns, found)?;
        }
        if let (Some(rows), Some(found)) = (self.rows, present.rows) {
            differs("the source's rows", &rows, &found)?;
        }
        let (shards, found) =
            (self.shards.as_deref().unwrap_or_default(), present.shards.as_deref().unwrap_or_default());
        differs("the number of shards", &shards.len(), &found.len())?;
        for (number, (rows, found)) in shards.iter().zip(found).enumerate() {
            let told = |rows: &Option<usize>| match rows {
                Some(rows) => Counted(*rows, "row").to_string(),
                None => "an unknown number of rows".to_owned(),
            };
            if rows.is_some() != found.is_some() {
                let reason = format!("the state has {} of shard {number}, and the loader {}", told(rows), told(found));
                let given = if rows.is_some() { "its row count" } else { "no row count" };
                let remedy = format!("give the shard {given}, as when the state was taken");
                return Err(Error::argument(reason).remedy_is(remedy));
            }
            differs(&format!("the rows of shard {number}"), rows, found)?;
        }
        Ok(())
    }
}

fn differs<T: PartialEq + std::fmt::Debug>(what: &str, state: &T, present: &T) -> Result<()> {
    if state == present {
        return Ok(());
    }
    let reason = format!("the state has {what} {state:?}, and the loader {present:?}");
    Err(Error::argument(reason).remedy_is("resume with the source and the options that the state was taken with"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_differs_is_named() {
        let base = Terms::new(5, true);
        assert_eq!(base.check(&base), Ok(()));
        let of = |shards: &[usize]| {
            let shards = Some(shards.iter().copied().map(Some).collect());
            Terms { source: SourceState { shards, ..SourceState::default() }, ..base.clone() }
        };
        for (state, present, named) in [
            (base.clone(), Terms::new(0, true), "shuffle_buffer 5, and the loader 0"),
            (base.clone(), Terms::new(5, false), "shuffle_shards true, and the loader false"),
            (of(&[3, 4]), of(&[3, 5]), "the rows of shard 1 Some(4), and the loader Some(5)"),
            (of(&[3, 4]), of(&[3]), "the number of shards 2, and the loader 1"),
        ] {
            let error = state.check(&present).unwrap_err();
            assert!(error.reason().contains(named) && error.remedy().is_some(), "{error}");
        }
    }

    #[test]
    fn hashes_are_compared_where_rows_become_the_same() {
        let digests = BTreeMap::from([(0, Digest { samples: 2, digest: 7 })]);
        let dictionaries = DictionaryHashes { all: Some(5), each: Vec::new() };
        let hashes = Hashes { conversion: Some(3), digests: digests.clone(), dictionaries: dictionaries.clone() };
        assert_eq!(hashes.comparable(3, true), Ok(digests));
        assert_eq!(hashes.dictionaries_of(3), dictionaries);
        assert!(hashes.dictionaries_of(4).is_empty());
        assert_eq!(hashes.without_rows(), Hashes { digests: BTreeMap::new(), ..hashes.clone() });
        for (hashes, named) in [(hashes, "dtypes"), (Hashes::default(), "no hashes")] {
            assert_eq!(hashes.comparable(4, false), Ok(BTreeMap::new()));
            let error = hashes.comparable(4, true).unwrap_err();
            assert!(error.reason().contains(named) && error.remedy().is_some(), "{error}");
        }
    }

    #[test]
    fn a_source_is_compared_by_what_is_known_of_both() {
        let source = |columns: Option<&[&str]>, rows| SourceState {
            columns: columns.map(|columns| columns.iter().map(ToString::to_string).collect()),
            rows,
            shards: None,
        };
        let known = source(Some(&["a", "b"]), Some(3));
        for same in [source(None, None), source(Some(&["a", "b"]), None), source(None, Some(3)), known.clone()] {
            assert_eq!((known.check(&same), same.check(&known)), (Ok(()), Ok(())));
        }
        for other in [source(Some(&["b", "a"]), Some(3)), source(Some(&["a", "b"]), Some(4)), source(Some(&[]), None)] {
            assert!(known.check(&other).is_err() && other.check(&known).is_err());
        }
    }
}
