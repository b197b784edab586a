//! What the rows of a resumed epoch are compared with.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::dictionary_hashes::DictionaryHashes;
use super::options::LoadOptions;
use super::read_log::{Digest, ReadLog};
use super::row_hashes::samples_among;
use super::shards::ShardLane;
use crate::error::{Error, Remedy, Result};

/// What the rows are compared with.
#[derive(Clone, Debug)]
pub(super) struct Checks {
    pub(super) log: ReadLog,
    /// The digests of a state, by shard: one map for the checks of all lanes.
    pub(super) expected: Arc<BTreeMap<usize, Digest>>,
    /// Whether shards with such a digest are read again, even if none of their rows is needed.
    pub(super) all: bool,
    /// Whether the lanes are shuffled. Then the next state, too, must have digests of all their rows.
    pub(super) shuffled: bool,
    /// The hashes of the dictionaries of codes that are known.
    pub(super) dictionaries: Arc<DictionaryHashes>,
    /// How many rows the only shard had when the state was taken, if that is known.
    pub(super) had: Option<usize>,
}

impl Checks {
    /// Refuses a state that has no hashes of rows which its rank has read of this lane, if all must be compared: a state has those of
    /// the lanes that its rank has read. Where a shard ends in the lane must be known of those that end in these rows.
    ///
    /// # Errors
    /// If there are such rows.
    pub(super) fn check_cover(&self, lane: &ShardLane, own: &OwnRows) -> Result<()> {
        if !self.all {
            return Ok(());
        }
        let known = |shard| self.expected.get(&shard).map_or(0, |digest| digest.samples);
        let mut parts = lane.first(own.until);
        let Some((shard, ..)) = parts.find(|(shard, end, rows)| own.has(rows) && known(*shard) < samples_among(*end))
        else {
            return Ok(());
        };
        let reason = format!(
            "the state has no hashes of rows that were taken of shard {shard}, so it cannot be verified: a state has those of \
             the lanes that its rank has read, and in a lane that ranks share those of the rank's batches"
        );
        let own = Remedy::from("load the state that this rank has taken with this world_size");
        Err(Error::argument(reason).remedy_is(own.or(Remedy::NotVerified)))
    }

    /// Returns whether this shard is read even if none of its rows is needed.
    pub(super) fn opens(&self, shard: usize) -> bool {
        self.all && (self.shuffled || self.expected.contains_key(&shard))
    }

    /// Checks the dictionaries of codes, as they are read: each with its own hash, or all with that of a state that has no others.
    /// `had_fewer` returns whether a hash is of some of them alone.
    ///
    /// # Errors
    /// If they are other ones than those of the state, or of the epoch before.
    pub(super) fn check_dictionaries(
        &self,
        found: &DictionaryHashes,
        had_fewer: impl FnOnce(u64) -> Result<bool>,
    ) -> Result<()> {
        let known = &*self.dictionaries;
        let differs = match (known.all, found.all) {
            (Some(all), Some(found)) if known.each.is_empty() => all != found && !had_fewer(all)?,
            _ => {
                known.each.iter().zip(&found.each).any(|(own, found)| own.is_some() && found.is_some() && own != found)
            }
        };
        if differs {
            let reason = "the arrays have other dictionaries than those of the state or of the epoch before, so their codes \
                          mean different things";
            return Err(Error::unsupported(reason).remedy_is(Remedy::DictionaryValues));
        }
        self.log.has_dictionaries(found);
        Ok(())
    }

    /// Checks the number of rows of the only shard, at its end.
    ///
    /// # Errors
    /// If it had another one when the state was taken.
    pub(super) fn check_rows(&self, rows: usize) -> Result<()> {
        match self.had {
            Some(had) if had != rows => {
                let reason = format!("the source has {rows} rows, and had {had} when the state was taken");
                Err(Error::argument(reason).remedy_is(Remedy::RepeatableOrder))
            }
            _ => Ok(()),
        }
    }
}

/// Which of the rows that a state took of a lane its rank has read for certain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OwnRows {
    /// They are before this row of the lane.
    until: usize,
    /// The rank has batch `first` of the lane, and each `every`-th one after it. It opens no shard without rows of these.
    first: usize,
    every: usize,
    batch_size: usize,
}

impl OwnRows {
    /// Of `lane`, one of `lanes`, a loader with batches of `batch_size` rows and as many ranks took `taken` rows.
    pub(super) fn new((lane, lanes): (usize, usize), taken: usize, batch_size: usize, load: &LoadOptions) -> Self {
        let (every, batches) = (load.sharding.ranks_of_lane(lanes), taken.checked_div(batch_size).unwrap_or(0));
        if every <= 1 {
            // Of the last batch, which may not have been full, one row was read for certain.
            let until = taken.saturating_sub(batch_size.saturating_sub(1));
            return Self { until, first: 0, every: 1, batch_size };
        }
        let own = load.sharding.first_in_lane((lane, lanes), batches.min(every));
        own.map_or_else(Self::default, |first| {
            let last = batches.saturating_sub(1).saturating_sub(first) / every * every + first;
            let until = last.saturating_mul(batch_size).saturating_add(1);
            // A rank that shuffles reads every row of the lane up to there.
            let (first, every) = if load.shuffle.is_some() { (0, 1) } else { (first, every) };
            Self { until, first, every, batch_size }
        })
    }

    /// Returns whether some of these rows of the lane are the rank's.
    fn has(&self, rows: &Range<usize>) -> bool {
        let batch_of = |row: usize| row.checked_div(self.batch_size).unwrap_or(0);
        let Some(last) = rows.end.checked_sub(1).filter(|last| *last >= rows.start) else { return false };
        let after = batch_of(rows.start).saturating_sub(self.first);
        let next = after.div_ceil(self.every.max(1)).saturating_mul(self.every).saturating_add(self.first);
        next <= batch_of(last)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::options::Shuffle;
    use super::super::sharding::Sharding;
    use super::*;

    proptest! {
        #[test]
        fn a_rank_has_the_rows_of_its_batches(
            (lanes, world, size, rounds) in (1_usize..5, 1_usize..6, 1_usize..6, 0_usize..12),
            (start, count) in (0_usize..60, 0_usize..20),
        ) {
            for rank in 0..world {
                let load = LoadOptions::new(Sharding::new(size, false, rank, world).unwrap());
                // Batch k is of lane k % lanes and of rank k % world.
                let own: Vec<usize> = (0..rounds * world).filter(|batch| batch % world == rank).collect();
                let reads = |lane: &usize| (0..lanes * world).any(|batch| batch % lanes == *lane && batch % world == rank);
                for lane in (0..lanes).filter(reads) {
                    let taken = (0..rounds * world).filter(|batch| batch % lanes == lane).count() * size;
                    let found = OwnRows::new((lane, lanes), taken, size, &load);
                    let firsts: Vec<usize> =
                        own.iter().filter(|batch| **batch % lanes == lane).map(|batch| batch / lanes * size).collect();
                    prop_assert_eq!(found.until, firsts.last().map_or(0, |last| last + 1));
                    let rows = start..start + count;
                    let mine = (0..count).any(|row| firsts.iter().any(|first| (*first..first + size).contains(&(start + row))));
                    // Rows after the state's may be the rank's too.
                    prop_assert!(found.has(&rows) || !mine);
                    prop_assert!(mine || rows.end > found.until || !found.has(&rows));
                }
            }
        }
    }

    #[test]
    fn shards_with_hashes_are_read_for_these_if_all_are_compared() {
        let expected = Arc::new(BTreeMap::from([(3, Digest { samples: 1, digest: 5 })]));
        let log = ReadLog::new(Vec::new(), 1);
        let opens = |all, shuffled| {
            let (log, expected) = (log.clone(), expected.clone());
            let checks = Checks { log, expected, all, shuffled, dictionaries: Arc::default(), had: None };
            [3, 4].map(|shard| checks.opens(shard))
        };
        assert_eq!([opens(false, false), opens(false, true)], [[false; 2]; 2]);
        // The next state must have hashes of every shard of a lane that is shuffled.
        assert_eq!([opens(true, false), opens(true, true)], [[true, false], [true, true]]);
    }

    #[test]
    fn a_rank_that_shuffles_has_every_row_of_its_lanes() {
        let mut load = LoadOptions::new(Sharding::new(4, false, 1, 2).unwrap());
        assert_eq!(OwnRows::new((0, 1), 16, 4, &load).until, 13);
        assert!(!OwnRows::new((0, 1), 16, 4, &load).has(&(0..4)));
        load.shuffle = Some(Shuffle::new(std::num::NonZero::new(5).unwrap(), 1));
        assert!(OwnRows::new((0, 1), 16, 4, &load).has(&(0..4)));
        load.shuffle = None;
        load.sharding = Sharding::new(4, false, 1, usize::MAX).unwrap();
        assert_eq!(
            OwnRows::new((0, 1), 16, 4, &load),
            OwnRows { until: 5, first: 1, every: usize::MAX, batch_size: 4 }
        );
        assert_eq!(OwnRows::new((0, 1), usize::MAX, usize::MAX, &load), OwnRows::default());
    }
}
