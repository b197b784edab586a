//! [`Place`]: where the order of an epoch stands.

use std::num::NonZero;

use super::sharding::{OfOthers, Sharding};
use crate::error::{Error, Result};

/// Where the order of an epoch stands, however its rows are cut into batches: how many rows of each lane were taken, and which lane is next.
///
/// An iteration goes on from there. The same options and the same source give the same order, so that no row comes twice:
///
/// ```
/// use std::sync::Arc;
/// use arrow_array::{ArrayRef, Int32Array, RecordBatch, RecordBatchIterator};
/// use arrow_dlpack::loader::{Batches, LoadOptions, Place, Sharding, Shuffle};
/// use arrow_dlpack::{Conversion, DeviceArrayStream};
///
/// let column: ArrayRef = Arc::new(Int32Array::from_iter_values(0..7));
/// let batch = RecordBatch::try_from_iter([("a", column)])?;
/// let mut options = LoadOptions::new(Sharding::new(2, false, 0, 1)?);
/// options.shuffle = Some(Shuffle::new(7.try_into().unwrap(), 42));
/// let batches = |place: &Place| {
///     let reader = RecordBatchIterator::new([Ok(batch.clone())], batch.schema());
///     let batches = Batches::new(DeviceArrayStream::from_reader(reader), &Conversion::default(), &options, place)?;
///     batches.map(|batch| batch?.tensors[0].to_vec::<i32>()).collect::<Result<Vec<_>, _>>()
/// };
/// let all = batches(&Place::start(0))?;
/// // A round is a batch of each rank.
/// let place = Place::start(0).after_rounds(2, &options.sharding);
/// assert_eq!((place.taken(), batches(&place)?), (&[4][..], all[2..].to_vec()));
/// # Ok::<(), arrow_dlpack::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    epoch: u64,
    taken: Vec<usize>,
    next_lane: usize,
}

impl Place {
    /// Returns the start of an epoch of one lane.
    #[must_use]
    pub fn start(epoch: u64) -> Self {
        Self { epoch, taken: vec![0], next_lane: 0 }
    }

    /// Returns the place of an epoch of as many lanes as `taken` has numbers, after so many rows of each, where the next batch is of lane
    /// `next_lane`. `Place::after(0, vec![0; 4], 0)` is the start of the first epoch of four lanes.
    ///
    /// # Errors
    /// If there is no lane, or none with this number.
    pub fn after(epoch: u64, taken: Vec<usize>, next_lane: usize) -> Result<Self> {
        if next_lane >= taken.len() {
            let reason =
                format!("the next lane must be below the number of lanes, and is {next_lane} of {}", taken.len());
            return Err(Error::argument(reason).remedy_is("lanes count from 0"));
        }
        Ok(Self { epoch, taken, next_lane })
    }

    /// Returns the start of the first epoch of this many lanes.
    #[cfg(feature = "python")]
    pub(crate) fn of_lanes(lanes: NonZero<usize>) -> Self {
        Self { epoch: 0, taken: (0..lanes.get()).map(|_| 0).collect(), next_lane: 0 }
    }

    /// Returns the start of another epoch of as many lanes.
    #[cfg(feature = "python")]
    pub(crate) fn start_of(&self, epoch: u64) -> Self {
        Self { epoch, taken: self.taken.iter().map(|_| 0).collect(), next_lane: 0 }
    }

    /// Returns the start of the epoch after this one.
    ///
    /// # Errors
    /// If this is the last epoch that can be counted.
    #[cfg(feature = "python")]
    pub(crate) fn next_epoch(&self) -> Result<Self> {
        let next = self.epoch.checked_add(1).map(|epoch| self.start_of(epoch));
        next.ok_or_else(|| {
            let reason = format!("epoch {} is the last one: epochs are numbered in 64 bits", self.epoch);
            Error::argument(reason).remedy_is("set the epoch to a lower number")
        })
    }

    /// Returns the rows of the shuffle buffer of each lane: equal parts, rounded up, of `all`.
    pub(crate) fn buffer(&self, all: NonZero<usize>) -> usize {
        all.get().div_ceil(self.taken.len())
    }

    /// Returns the epoch.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns how many rows of each lane were taken.
    #[must_use]
    pub fn taken(&self) -> &[usize] {
        &self.taken
    }

    /// Returns the lane of the next batch.
    #[must_use]
    pub fn next_lane(&self) -> usize {
        self.next_lane
    }

    /// Returns how many of the next `batches` batches are of a lane.
    pub(super) fn batches_of(&self, lane: usize, batches: usize) -> usize {
        let lanes = self.taken.len();
        // Lanes take turns: the lane's first batch is this number among the next ones.
        let first = (lane + lanes - self.next_lane) % lanes;
        batches.saturating_sub(first).div_ceil(lanes)
    }

    /// Returns the lane and the position in it of the batch with this number, counted from this place.
    pub(super) fn batch(&self, number: usize, batch_size: usize) -> (usize, usize) {
        let lanes = self.taken.len();
        let lane = (self.next_lane + number % lanes) % lanes;
        let taken = self.taken.get(lane).copied().unwrap_or_default();
        (lane, taken.saturating_add((number / lanes).saturating_mul(batch_size)))
    }

    /// Returns how many batches a worker still has in the epoch, of lanes with these numbers of rows, and how many of the rows are
    /// in no rank's.
    pub(crate) fn rounds(&self, rows: &[usize], sharding: &Sharding) -> (usize, usize) {
        let (lanes, size) = (self.taken.len(), sharding.batch_size());
        let left: Vec<usize> = rows.iter().zip(&self.taken).map(|(rows, taken)| rows.saturating_sub(*taken)).collect();
        // The epoch ends at the first batch whose lane has no row left.
        let batches = left.iter().enumerate().map(|(lane, left)| {
            let whole = if sharding.drop_last() { left / size } else { left.div_ceil(size) };
            whole.saturating_mul(lanes).saturating_add((lane + lanes - self.next_lane) % lanes)
        });
        let all = batches.min().unwrap_or(0);
        let batches = all - all.checked_rem(sharding.world_size()).unwrap_or_default();
        let over =
            |(lane, left): (usize, &usize)| left.saturating_sub(self.batches_of(lane, batches).saturating_mul(size));
        (sharding.own_of(batches), left.iter().enumerate().map(over).fold(0, usize::saturating_add))
    }

    /// As [`rounds`](Self::rounds), where the last round was of batches of `batch_size` rows, the last of which other workers make, so that
    /// nobody knows whether they were there.
    pub(super) fn rounds_left(
        &self,
        rows: &[usize],
        (batch_size, of_others): (usize, OfOthers),
        sharding: &Sharding,
    ) -> (usize, usize) {
        match self.end_before(rows, (batch_size, of_others), sharding) {
            Some(end) => (0, end.left(rows)),
            None => self.rounds(rows, sharding),
        }
    }

    /// Returns the end of the epoch, if this place is after it: a worker that made its rank's last batch counts a whole round, and so
    /// batches that the other workers have no more. `batch_size`: the rows that each of them was counted with.
    fn end_before(
        &self,
        rows: &[usize],
        (batch_size, of_others): (usize, OfOthers),
        sharding: &Sharding,
    ) -> Option<Self> {
        let lanes = self.taken.len();
        // The batches of the round after those of the first worker, from the last one back.
        let others = of_others.batches.min(lanes);
        // A batch that is not full is none either, if such are dropped: by those who may have made it, and by those who would make it now.
        let least = |drop_last: bool, full: usize| if drop_last { full } else { 1 };
        let before = least(of_others.drop_last.unwrap_or(sharding.drop_last()), batch_size);
        let beyond =
            batch_size.saturating_sub(before.min(least(sharding.drop_last(), sharding.batch_size()))).saturating_add(1);
        let lane_of = |back: usize| (self.next_lane + lanes - back) % lanes;
        let is_none = |back: &usize| {
            let (rows, taken) = (rows.get(lane_of(*back)), self.taken.get(lane_of(*back)));
            rows.zip(taken).is_some_and(|(rows, taken)| *taken >= rows.saturating_add(beyond))
        };
        let none = (1..=others).rev().find(is_none)?;
        // An incomplete round of ranks is dropped.
        let none = none.div_ceil(sharding.world_size().max(1)).saturating_mul(sharding.world_size()).min(lanes);
        let mut end = self.clone();
        for back in 1..=none {
            end.taken.get_mut(lane_of(back)).into_iter().for_each(|taken| *taken = taken.saturating_sub(batch_size));
        }
        end.next_lane = lane_of(none);
        Some(end)
    }

    /// Returns the lane of the last batch that is known to have been made, if more rows were taken of it than a batch takes that begins before
    /// its end: no iteration comes to this place. Other lanes may have ended in batches of any size. `batch_size` is that of the last round.
    pub(super) fn lane_beyond(&self, rows: &[usize], batch_size: usize, of_others: OfOthers) -> Option<usize> {
        let lanes = self.taken.len();
        let last = (self.next_lane + lanes.checked_sub(of_others.batches.checked_add(1)?)?) % lanes;
        // States of earlier versions do not tell that the batch may be another worker's, who had none: it is counted all the same.
        let most = rows.get(last)?.checked_add(batch_size.checked_mul(2)?)?;
        self.taken.get(last).filter(|taken| **taken >= most).map(|_| last)
    }

    /// Returns how many rows of lanes with these numbers of rows were not taken.
    fn left(&self, rows: &[usize]) -> usize {
        let left = rows.iter().zip(&self.taken).map(|(rows, taken)| rows.saturating_sub(*taken));
        left.fold(0, usize::saturating_add)
    }

    /// Returns how many of a lane's first rows every rank has read after this number of rounds, with a shuffle buffer of
    /// `buffer` rows for the lane; `None` if none of its batches is in them. A lane may have fewer rows.
    #[cfg(feature = "python")]
    pub(crate) fn rows_read(&self, lane: usize, rounds: usize, sharding: &Sharding, buffer: usize) -> Option<usize> {
        let before = self.batches_of(lane, rounds.saturating_mul(sharding.stride())).checked_sub(1)?;
        let last = if sharding.drop_last() { sharding.batch_size() } else { 1 };
        let taken = self.taken.get(lane)?.saturating_add(before.saturating_mul(sharding.batch_size()));
        Some(taken.saturating_add(last).saturating_add(buffer))
    }

    /// Returns the place after this number of rounds. A round is a batch for each worker of each rank; a batch that is not full counts as
    /// full.
    #[must_use]
    pub fn after_rounds(&self, rounds: usize, sharding: &Sharding) -> Self {
        let batches = rounds.saturating_mul(sharding.stride());
        let taken = |(lane, taken): (usize, &usize)| {
            taken.saturating_add(self.batches_of(lane, batches).saturating_mul(sharding.batch_size()))
        };
        let lanes = self.taken.len();
        Self {
            epoch: self.epoch,
            taken: self.taken.iter().enumerate().map(taken).collect(),
            next_lane: (self.next_lane + batches % lanes) % lanes,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lanes_take_turns(
            taken in proptest::collection::vec(0_usize..50, 1..6),
            next in 0_usize..6,
            (size, world, rounds) in (1_usize..9, 1_usize..6, 0_usize..9),
        ) {
            let place = Place::after(3, taken.clone(), next % taken.len()).unwrap();
            let (mut expected, mut lane) = (taken, place.next_lane());
            for _ in 0..rounds * world {
                expected[lane] += size;
                lane = (lane + 1) % expected.len();
            }
            let sharding = Sharding::new(size, false, 0, world).unwrap();
            prop_assert_eq!(place.after_rounds(rounds, &sharding), Place::after(3, expected, lane).unwrap());
        }
    }

    proptest! {
        #[test]
        fn an_epoch_ends_at_the_first_lane_without_rows(
            lanes in proptest::collection::vec((0_usize..40, 0_usize..50), 1..6),
            next in 0_usize..6,
            (size, world, drop_last) in (1_usize..9, 1_usize..6, any::<bool>()),
        ) {
            let (rows, taken): (Vec<usize>, Vec<usize>) = lanes.into_iter().unzip();
            let place = Place::after(0, taken.clone(), next % taken.len()).unwrap();
            let mut left: Vec<usize> = rows.iter().zip(&taken).map(|(rows, taken)| rows.saturating_sub(*taken)).collect();
            let all: usize = left.iter().sum();
            let mut batches = Vec::new();
            let mut positions = taken;
            loop {
                let lane = (place.next_lane() + batches.len()) % left.len();
                let least = if drop_last { size } else { 1 };
                if left[lane] < least {
                    break;
                }
                prop_assert_eq!(place.batch(batches.len(), size), (lane, positions[lane]));
                let batch = left[lane].min(size);
                left[lane] -= batch;
                positions[lane] += size;
                batches.push(batch);
            }
            let rounds = batches.len() / world;
            let given: usize = batches[..rounds * world].iter().sum();
            let sharding = Sharding::new(size, drop_last, 0, world).unwrap();
            prop_assert_eq!(place.rounds(&rows, &sharding), (rounds, all - given));
        }
    }

    proptest! {
        #[test]
        fn each_worker_goes_on_to_the_end_of_the_epoch(
            (workers, world, per_worker) in (1_usize..4, 1_usize..4, 1_usize..3),
            lanes in proptest::collection::vec((0_usize..30, 0_usize..9), 18),
            next in 0_usize..18,
            size in 1_usize..9,
            drop_last in any::<bool>(),
        ) {
            let lanes = lanes.into_iter().take(workers * world * per_worker);
            let (rows, taken): (Vec<usize>, Vec<usize>) = lanes.unzip();
            let place = Place::after(0, taken.clone(), next % taken.len()).unwrap();
            for worker in 0..workers {
                let sharding = Sharding::new(size, drop_last, 0, world).unwrap().for_worker(worker, workers).unwrap();
                let (rounds, left_out) = place.rounds(&rows, &sharding);
                for made in 1..=rounds {
                    let left = place.after_rounds(made, &sharding).rounds_left(&rows, (size, sharding.of_others()), &sharding);
                    prop_assert_eq!(left, (rounds - made, left_out));
                }
            }
        }
    }

    proptest! {
        #[test]
        fn no_lane_is_beyond_its_end_where_iterations_stop(
            rows in proptest::collection::vec(0_usize..30, 12),
            steps in proptest::collection::vec((1_usize..9, 0_usize..3, 0_usize..3, any::<bool>(), 0_usize..6), 1..6),
        ) {
            let mut place = Place::after(0, vec![0; rows.len()], 0).unwrap();
            let mut last = (1, OfOthers::default());
            for (size, world, workers, drop_last, rounds) in steps {
                let (world, workers) = ([1, 2, 3][world], [1, 2, 4][workers]);
                for worker in 0..workers {
                    let sharding = Sharding::new(size, drop_last, 0, world).unwrap().for_worker(worker, workers).unwrap();
                    let made = place.rounds_left(&rows, last, &sharding).0.min(rounds);
                    let after = place.after_rounds(made, &sharding);
                    let state = if made == 0 { last } else { (size, sharding.of_others()) };
                    prop_assert_eq!(after.lane_beyond(&rows, state.0, state.1), None);
                    if worker + 1 == workers {
                        (place, last) = (after, state);
                    }
                }
            }
        }
    }

    #[test]
    fn a_last_batch_that_began_behind_its_lane_was_not_made() {
        let beyond = |taken: [usize; 3], of_others| {
            let others = OfOthers { batches: of_others, drop_last: None };
            Place::after(0, taken.to_vec(), 1).unwrap().lane_beyond(&[10, 11, 12], 2, others)
        };
        assert_eq!([beyond([13, 0, 0], 0), beyond([0, 99, 99], 0), beyond([0, 0, 99], 0)], [None; 3]);
        assert_eq!([beyond([14, 0, 0], 0), beyond([0, 0, 99], 1)], [Some(0), Some(2)]);
        assert_eq!([beyond([99, 99, 99], 3), beyond([99, 99, 99], usize::MAX)], [None; 2]);
        let far = Place::after(0, vec![usize::MAX], 0).unwrap();
        assert_eq!(far.lane_beyond(&[1], usize::MAX, OfOthers::default()), None);
    }

    #[test]
    fn a_lane_that_ended_in_a_larger_batch_does_not_end_the_epoch() {
        // A batch of 4 of lane 0, which had 3 rows, and one of 1 of lane 1.
        let place = Place::after(0, vec![4, 1, 0], 2).unwrap();
        let sharding = Sharding::new(1, false, 0, 1).unwrap();
        assert_eq!(place.rounds_left(&[3, 3, 3], (1, sharding.of_others()), &sharding), (1, 4));
        // Whoever goes on with workers knows that no worker counted it.
        for workers in [2, 3] {
            let first = sharding.for_worker(0, workers).unwrap();
            assert_eq!(place.rounds_left(&[3, 3, 3], (1, OfOthers::default()), &first), (1, 4));
        }
    }

    #[test]
    fn lanes_that_are_not_there_are_refused() {
        for (taken, next) in [(vec![], 0), (vec![1], 1), (vec![1, 2], 5)] {
            let error = Place::after(0, taken, next).unwrap_err();
            assert!(error.remedy().is_some(), "{error}");
        }
        assert_eq!(Place::start(2), Place::after(2, vec![0], 0).unwrap());
        let far = Place::after(0, vec![usize::MAX], 0).unwrap();
        let sharding = Sharding::new(usize::MAX, false, 0, usize::MAX).unwrap();
        assert_eq!(far.after_rounds(usize::MAX, &sharding).taken(), [usize::MAX]);
    }
}
