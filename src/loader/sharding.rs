//! Which rows are in which batch of which rank.

use crate::error::{Error, Remedy, Result};

/// How rows in a given order form batches, and which rank gets which batch: batch `k` belongs to rank `k % world_size`,
/// and an incomplete round of `world_size` batches is dropped. Worker `v` of `V` makes batches `v`, `v + V`, ... of its rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharding {
    batch_size: usize,
    drop_last: bool,
    rank: usize,
    world_size: usize,
    worker: usize,
    workers: usize,
}

/// The last batches before a place that other workers make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OfOthers {
    pub(crate) batches: usize,
    /// Whether these workers drop batches that are not full; `None` in a state that does not say so.
    pub(crate) drop_last: Option<bool>,
}

impl Sharding {
    /// Returns the sharding of batches of `batch_size` rows for one rank of `world_size`. `drop_last` drops a last
    /// batch that is not full.
    ///
    /// # Errors
    /// If `batch_size` or `world_size` is 0, or `rank` is not below `world_size`.
    pub fn new(batch_size: usize, drop_last: bool, rank: usize, world_size: usize) -> Result<Self> {
        if batch_size == 0 {
            return Err(Error::argument("batch_size must be 1 or more"));
        }
        if rank >= world_size {
            let reason = format!("rank must be below world_size, and is {rank} of {world_size}");
            return Err(Error::argument(reason).remedy_is("ranks count from 0"));
        }
        Ok(Self { batch_size, drop_last, rank, world_size, worker: 0, workers: 1 })
    }

    /// Returns the sharding for worker `worker` of `workers` of this rank: it makes the rank's batches `j` with
    /// `j % workers == worker`. With several workers, `world_size * workers` must divide the number of lanes.
    ///
    /// # Errors
    /// If `worker` is not below `workers`, or there are more workers than can be counted.
    pub fn for_worker(self, worker: usize, workers: usize) -> Result<Self> {
        if worker >= workers {
            let reason = format!("worker must be below the number of workers, and is {worker} of {workers}");
            return Err(Error::argument(reason).remedy_is("workers count from 0"));
        }
        if self.world_size.checked_mul(workers).is_none() {
            let reason = format!("{workers} workers of each of {} ranks are too many", self.world_size);
            return Err(Error::argument(reason).remedy_is("start fewer workers"));
        }
        Ok(Self { worker, workers, ..self })
    }

    /// Rows of a full batch.
    #[must_use]
    pub fn batch_size(&self) -> usize {
        self.batch_size
    }

    /// Returns whether a last batch that is not full is dropped.
    #[must_use]
    pub fn drop_last(&self) -> bool {
        self.drop_last
    }

    /// This rank.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The number of ranks.
    #[must_use]
    pub fn world_size(&self) -> usize {
        self.world_size
    }

    /// The worker of the rank.
    #[must_use]
    pub fn worker(&self) -> usize {
        self.worker
    }

    /// The number of workers of each rank.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Refuses several workers of lanes that they would share.
    ///
    /// # Errors
    /// If there are several workers, and `world_size * workers` does not divide `lanes`.
    pub(crate) fn check_lanes(&self, lanes: usize) -> Result<()> {
        if self.workers == 1 || lanes.is_multiple_of(self.stride()) {
            return Ok(());
        }
        let reason = format!(
            "{} workers of each of {} ranks cannot share {lanes} lanes: each would read the rows of others",
            self.workers, self.world_size
        );
        let multiple = self.stride().saturating_mul(lanes.div_ceil(self.stride()).max(1));
        Err(Error::argument(reason).remedy_is(Remedy::LanesForWorkers { lanes: multiple.to_string() }))
    }

    /// Returns the first batch of this worker: the others follow at a distance of [`stride`](Self::stride).
    pub(super) fn first(&self) -> usize {
        self.worker.saturating_mul(self.world_size).saturating_add(self.rank)
    }

    /// Returns the distance of this worker's batches, in batches of all ranks and workers.
    pub(super) fn stride(&self) -> usize {
        self.world_size.saturating_mul(self.workers)
    }

    /// Returns which batches of a round are made by the workers after the first one of each rank.
    pub(super) fn of_others(&self) -> OfOthers {
        OfOthers { batches: self.stride().saturating_sub(self.world_size), drop_last: Some(self.drop_last) }
    }

    /// Returns how many of the first `batches` batches of all ranks are this worker's, without those of an incomplete round of
    /// ranks.
    pub(super) fn own_of(&self, batches: usize) -> usize {
        let whole = batches - batches.checked_rem(self.world_size).unwrap_or_default();
        whole.saturating_sub(self.first()).div_ceil(self.stride())
    }

    /// Returns the number of lanes that a worker has batches of: they take turns.
    pub(super) fn period(&self, lanes: usize) -> usize {
        lanes.checked_div(common_divisor(lanes, self.stride())).unwrap_or(1).max(1)
    }

    /// Returns how many ranks have batches of a lane: they take turns.
    pub(super) fn ranks_of_lane(&self, lanes: usize) -> usize {
        self.world_size.checked_div(common_divisor(lanes, self.world_size)).unwrap_or(1).max(1)
    }

    /// Returns the first batch of a lane that is this rank's, if it is among so many.
    pub(super) fn first_in_lane(&self, (lane, lanes): (usize, usize), batches: usize) -> Option<usize> {
        let step = lanes.checked_rem(self.world_size)?;
        let mut rank = lane.checked_rem(self.world_size)?;
        for batch in 0..batches {
            if rank == self.rank {
                return Some(batch);
            }
            let left = self.world_size - step;
            rank = if rank >= left { rank - left } else { rank + step };
        }
        None
    }

    /// Returns the number of batches that each rank gets of this number of rows.
    #[must_use]
    pub fn batches(&self, rows: usize) -> usize {
        let batches = if self.drop_last { rows / self.batch_size } else { rows.div_ceil(self.batch_size) };
        batches / self.world_size
    }

    /// Returns the number of rows that complete a round.
    // Saturating: no source has as many rows, so the saturated position is correctly out of reach.
    pub(super) fn rows_needed(&self, round: usize) -> usize {
        let short = if self.drop_last { 0 } else { self.batch_size - 1 };
        (self.round_rows() - short).saturating_add(self.round_rows().saturating_mul(round))
    }

    /// Returns the rows of a round of full batches.
    pub(super) fn round_rows(&self) -> usize {
        self.batch_size.saturating_mul(self.world_size)
    }
}

/// Returns the greatest common divisor.
fn common_divisor(mut one: usize, mut other: usize) -> usize {
    while other > 0 {
        (one, other) = (other, one % other);
    }
    one
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The batches of every rank, by the definition: cut, dropped, dealt out.
    fn naive(rows: usize, sharding: &Sharding) -> Vec<Vec<usize>> {
        let all: Vec<usize> = (0..rows).collect();
        let size = sharding.batch_size;
        let mut batches: Vec<Vec<usize>> = all.chunks(size).map(<[usize]>::to_vec).collect();
        if sharding.drop_last {
            batches.retain(|batch| batch.len() == size);
        }
        let world = sharding.world_size;
        batches.truncate(batches.len() / world * world);
        batches
    }

    proptest! {
        #[test]
        fn batches_are_cut_and_dealt_out_as_defined(
            rows in 0_usize..200, size in 1_usize..20, drop_last: bool, world in 1_usize..6,
        ) {
            let mut dealt = Vec::new();
            for rank in 0..world {
                let sharding = Sharding::new(size, drop_last, rank, world).unwrap();
                let mut mine = Vec::new();
                for round in 0.. {
                    if sharding.rows_needed(round) > rows {
                        break;
                    }
                    let first = size * (round * world + rank);
                    mine.push((first..(first + sharding.batch_size).min(rows)).collect::<Vec<_>>());
                }
                prop_assert_eq!(mine.len(), sharding.batches(rows));
                dealt.push(mine);
            }
            let expected = naive(rows, &Sharding::new(size, drop_last, 0, world).unwrap());
            for (k, batch) in expected.iter().enumerate() {
                prop_assert_eq!(batch, &dealt[k % world][k / world]);
            }
            prop_assert_eq!(expected.len(), dealt.iter().map(Vec::len).sum::<usize>());
        }
    }

    proptest! {
        #[test]
        fn workers_share_the_batches_of_their_rank(
            batches in 0_usize..100, world in 1_usize..5, workers in 1_usize..5,
        ) {
            for rank in 0..world {
                let whole = Sharding::new(3, false, rank, world).unwrap();
                let of_rank: Vec<usize> = (0..batches / world).map(|j| j * world + rank).collect();
                prop_assert_eq!(whole.own_of(batches), of_rank.len());
                for worker in 0..workers {
                    let sharding = whole.for_worker(worker, workers).unwrap();
                    let own = (0..sharding.own_of(batches)).map(|i| sharding.first() + i * sharding.stride());
                    let expected = of_rank.iter().copied().skip(worker).step_by(workers);
                    prop_assert_eq!(own.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
                }
            }
        }
    }

    #[test]
    fn workers_that_would_share_a_lane_are_refused() {
        let sharding = Sharding::new(1, false, 0, 2).unwrap();
        assert!(sharding.check_lanes(3).is_ok() && sharding.for_worker(0, 1).unwrap().check_lanes(1).is_ok());
        let three = sharding.for_worker(2, 3).unwrap();
        assert!(three.check_lanes(6).is_ok() && three.check_lanes(12).is_ok());
        for (lanes, pass) in [(1, "in 6 lanes"), (4, "in 6 lanes"), (7, "in 12 lanes"), (0, "")] {
            let error = three.check_lanes(lanes);
            if lanes == 0 {
                assert!(error.is_ok());
                continue;
            }
            let error = error.unwrap_err();
            assert!(error.remedy().is_some_and(|remedy| remedy.to_string().contains(pass)), "{error}");
        }
        assert!(sharding.for_worker(3, 3).is_err() && sharding.for_worker(0, 0).is_err());
        assert!(sharding.for_worker(0, usize::MAX).is_err());
    }

    #[test]
    fn what_is_no_split_is_refused() {
        assert!(Sharding::new(0, false, 0, 1).is_err());
        assert!(Sharding::new(1, false, 1, 1).is_err());
        assert!(Sharding::new(1, false, 0, 0).is_err());
        assert!(Sharding::new(usize::MAX, true, 0, usize::MAX).is_ok());
    }

    #[test]
    fn sizes_without_end_are_never_reached() {
        let sharding = Sharding::new(usize::MAX, false, 7, usize::MAX).unwrap();
        assert_eq!((sharding.round_rows(), sharding.batches(usize::MAX)), (usize::MAX, 0));
        assert!(sharding.rows_needed(usize::MAX) > 1 << 62);
    }
}
