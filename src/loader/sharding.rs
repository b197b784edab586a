//! Which rows are in which batch of which rank.

use crate::error::{Error, Result};

/// How rows in a given order form batches, and which rank gets which batch: batch `k` belongs to rank `k % world_size`,
/// and an incomplete round of `world_size` batches is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharding {
    batch_size: usize,
    drop_last: bool,
    rank: usize,
    world_size: usize,
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
        Ok(Self { batch_size, drop_last, rank, world_size })
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

    /// Returns the number of lanes that a rank has batches of: they take turns.
    pub(super) fn period(&self, lanes: usize) -> usize {
        let (mut one, mut other) = (lanes, self.world_size);
        while other > 0 {
            (one, other) = (other, one % other);
        }
        // `one` is their greatest common divisor.
        lanes.checked_div(one).unwrap_or(1).max(1)
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
