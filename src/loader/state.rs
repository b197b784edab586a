//! The position of an iteration, and the options that resuming it requires.

use super::sharding::Sharding;
use crate::error::{Error, Result};

/// The version of the state's format.
pub(crate) const STATE_VERSION: u64 = 1;

/// Where an iteration stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// The seed of every epoch's order; `None` without a shuffle.
    pub(crate) seed: Option<u64>,
    /// The epoch.
    pub(crate) epoch: u64,
    /// The number of its batches that were handed out to each rank.
    pub(crate) batches: usize,
    /// What must be the same when resuming.
    pub(crate) terms: Terms,
}

/// What determines the batches of an epoch, besides its seed and number. The rank is not part of it: ranks in step have
/// the same state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// Rows of a full batch.
    pub(crate) batch_size: usize,
    /// Rows of the shuffle buffer; 0 without one.
    pub(crate) shuffle_buffer: usize,
    /// Whether a last batch that is not full is dropped.
    pub(crate) drop_last: bool,
    /// The number of ranks.
    pub(crate) world_size: usize,
    /// The source's columns and rows, if they are known.
    pub(crate) source: Source,
}

/// What is known of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Source {
    /// The names of all its columns.
    pub(crate) columns: Option<Vec<String>>,
    /// How many rows it has.
    pub(crate) rows: Option<usize>,
}

impl Terms {
    /// Returns the terms of these options, for a source of which nothing is known yet.
    #[must_use]
    pub(crate) fn new(sharding: &Sharding, shuffle_buffer: usize) -> Self {
        Self {
            batch_size: sharding.batch_size(),
            shuffle_buffer,
            drop_last: sharding.drop_last(),
            world_size: sharding.world_size(),
            source: Source::default(),
        }
    }

    /// Refuses to resume under other terms.
    ///
    /// # Errors
    /// If these terms, of a state, differ from the present ones. Names the difference.
    pub(crate) fn check(&self, present: &Self) -> Result<()> {
        differs("batch_size", &self.batch_size, &present.batch_size)?;
        differs("shuffle_buffer", &self.shuffle_buffer, &present.shuffle_buffer)?;
        differs("drop_last", &self.drop_last, &present.drop_last)?;
        differs("world_size", &self.world_size, &present.world_size)?;
        self.source.check(&present.source)
    }
}

impl Source {
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
        let terms =
            |size, buffer, drop_last, world| Terms::new(&Sharding::new(size, drop_last, 0, world).unwrap(), buffer);
        let base = terms(4, 5, false, 2);
        assert_eq!(base.check(&base), Ok(()));
        for (other, name) in [
            (terms(5, 5, false, 2), "batch_size 4, and the loader 5"),
            (terms(4, 0, false, 2), "shuffle_buffer"),
            (terms(4, 5, true, 2), "drop_last"),
            (terms(4, 5, false, 3), "world_size"),
        ] {
            let error = base.check(&other).unwrap_err();
            assert!(error.reason().contains(name) && error.remedy().is_some(), "{error}");
        }
    }

    #[test]
    fn a_source_is_compared_by_what_is_known_of_both() {
        let source = |columns: Option<&[&str]>, rows| Source {
            columns: columns.map(|columns| columns.iter().map(ToString::to_string).collect()),
            rows,
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
