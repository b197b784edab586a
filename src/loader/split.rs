//! Which rows are in which batch of which rank.

use crate::error::{Error, Result};

/// How rows in a given order are cut into batches, and batches dealt out to ranks: batch `k` belongs to rank
/// `k % world_size`, and a round of `world_size` batches that is incomplete is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    batch_size: u64,
    drop_last: bool,
    rank: u64,
    world_size: u64,
}

impl Split {
    /// Batches of `batch_size` rows for one rank of `world_size`. `drop_last` leaves out a last batch that is not full.
    ///
    /// # Errors
    /// When `batch_size` or `world_size` is 0, or `rank` is not below `world_size`.
    pub fn new(batch_size: usize, drop_last: bool, rank: usize, world_size: usize) -> Result<Self> {
        if batch_size == 0 {
            return Err(Error::argument("batch_size must be 1 or more"));
        }
        if rank >= world_size {
            let reason = format!("rank must be below world_size, and is {rank} of {world_size}");
            return Err(Error::argument(reason).remedy_is("ranks count from 0"));
        }
        let wide = |count: usize| u64::try_from(count).map_err(|_| Error::argument("a count beyond 64 bits"));
        Ok(Self { batch_size: wide(batch_size)?, drop_last, rank: wide(rank)?, world_size: wide(world_size)? })
    }

    /// Rows of a full batch.
    #[must_use]
    pub fn batch_size(&self) -> u64 {
        self.batch_size
    }

    /// Whether a last batch that is not full is left out.
    #[must_use]
    pub fn drop_last(&self) -> bool {
        self.drop_last
    }

    /// This rank.
    #[must_use]
    pub fn rank(&self) -> u64 {
        self.rank
    }

    /// The number of ranks.
    #[must_use]
    pub fn world_size(&self) -> u64 {
        self.world_size
    }

    /// The number of batches that each rank gets of so many rows.
    #[must_use]
    pub fn batches(&self, rows: u64) -> u64 {
        let batches = if self.drop_last { rows / self.batch_size } else { rows.div_ceil(self.batch_size) };
        batches / self.world_size
    }

    /// Where this rank's batch of a round starts, in the order of rows.
    // Saturating here and below: no source has 2^64 rows, so what lies beyond is never reached, as it should be.
    pub(crate) fn first_row(&self, round: u64) -> u64 {
        self.round_rows().saturating_mul(round).saturating_add(self.batch_size.saturating_mul(self.rank))
    }

    /// How many rows there must be for a round to be complete.
    pub(crate) fn rows_needed(&self, round: u64) -> u64 {
        let short = if self.drop_last { 0 } else { self.batch_size - 1 };
        (self.round_rows() - short).saturating_add(self.round_rows().saturating_mul(round))
    }

    /// Rows of a round of full batches.
    fn round_rows(&self) -> u64 {
        self.batch_size.saturating_mul(self.world_size)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The batches of every rank, by the definition: cut, dropped, dealt out.
    fn naive(rows: u64, split: &Split) -> Vec<Vec<u64>> {
        let all: Vec<u64> = (0..rows).collect();
        let size = usize::try_from(split.batch_size).unwrap();
        let mut batches: Vec<Vec<u64>> = all.chunks(size).map(<[u64]>::to_vec).collect();
        if split.drop_last {
            batches.retain(|batch| batch.len() == size);
        }
        let world = usize::try_from(split.world_size).unwrap();
        batches.truncate(batches.len() / world * world);
        batches
    }

    proptest! {
        #[test]
        fn batches_are_cut_and_dealt_out_as_defined(
            rows in 0_u64..200, size in 1_usize..20, drop_last: bool, world in 1_usize..6,
        ) {
            let mut dealt = Vec::new();
            for rank in 0..world {
                let split = Split::new(size, drop_last, rank, world).unwrap();
                let mut mine = Vec::new();
                for round in 0.. {
                    if split.rows_needed(round) > rows {
                        break;
                    }
                    let first = split.first_row(round);
                    mine.push((first..(first + split.batch_size).min(rows)).collect::<Vec<_>>());
                }
                prop_assert_eq!(u64::try_from(mine.len()).unwrap(), split.batches(rows));
                dealt.push(mine);
            }
            let expected = naive(rows, &Split::new(size, drop_last, 0, world).unwrap());
            for (k, batch) in expected.iter().enumerate() {
                prop_assert_eq!(batch, &dealt[k % world][k / world]);
            }
            prop_assert_eq!(expected.len(), dealt.iter().map(Vec::len).sum::<usize>());
        }
    }

    #[test]
    fn what_is_no_split_is_refused() {
        assert!(Split::new(0, false, 0, 1).is_err());
        assert!(Split::new(1, false, 1, 1).is_err());
        assert!(Split::new(1, false, 0, 0).is_err());
        assert!(Split::new(usize::MAX, true, 0, usize::MAX).is_ok());
    }

    #[test]
    fn sizes_without_end_are_never_reached() {
        let split = Split::new(usize::MAX, false, 7, usize::MAX).unwrap();
        assert_eq!((split.first_row(u64::MAX), split.batches(u64::MAX)), (u64::MAX, 0));
        assert!(split.rows_needed(u64::MAX) > 1 << 62);
    }
}
