//! [`Shards`]: the parts of a source, in the order of an epoch, and their cut into lanes. docs/loader.md defines both.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use arrow_schema::FieldRef;

use super::draws::Draws;
use super::options::LoadOptions;
use super::place::Place;
use crate::arrow::{DeviceArrayStream, difference};
use crate::error::{Error, Remedy, Result};
use crate::spec::Conversion;

/// Fails once the iteration that opens a shard was told to stop.
pub(crate) type StopCheck<'a> = &'a dyn Fn() -> Result<()>;

/// Opens the shard with a number.
type Open = dyn Fn(usize, StopCheck<'_>) -> Result<DeviceArrayStream> + Send + Sync;

/// The parts of a source, each of which is a stream with one and the same schema. Clones share them.
#[derive(Clone)]
pub struct Shards {
    rows: Arc<[Option<usize>]>,
    open: Arc<Open>,
}

/// Returns the error for a shard of another schema than the first one that was opened; `None` if it has the same.
pub(crate) fn other_schema(found: &FieldRef, first: &FieldRef) -> Option<Error> {
    let (found, first) = difference(found, first)?;
    let reason = format!("the shard has {found}, and the first one that was opened {first}");
    Some(Error::argument(reason).remedy_is("give all shards one schema"))
}

impl Shards {
    /// Returns shards of these numbers of rows, `None` where it is not known. `open` opens a shard by its number. It is called
    /// on the threads that read the shards, and once for each lane that has rows of the shard.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use arrow_array::{ArrayRef, Int32Array, RecordBatch, RecordBatchIterator};
    /// use arrow_dlpack::loader::{Batches, LoadOptions, Place, Sharding, Shards};
    /// use arrow_dlpack::{Conversion, DeviceArrayStream};
    ///
    /// let shards = Shards::new(vec![Some(3), Some(3)], |shard| {
    ///     let column: ArrayRef = Arc::new(Int32Array::from(vec![shard as i32; 3]));
    ///     let batch = RecordBatch::try_from_iter([("a", column)])?;
    ///     Ok(DeviceArrayStream::from_reader(RecordBatchIterator::new([Ok(batch.clone())], batch.schema())))
    /// });
    /// // Two lanes, of a half of the rows each, take turns.
    /// let place = Place::after(0, vec![0; 2], 0)?;
    /// let options = LoadOptions::new(Sharding::new(2, false, 0, 1)?);
    /// let batches = Batches::of_shards(&shards, &Conversion::default(), &options, &place)?;
    /// let rows = batches.map(|batch| batch?.tensors[0].to_vec::<i32>()).collect::<Result<Vec<_>, _>>()?;
    /// assert_eq!(rows, [vec![0, 0], vec![1, 1], vec![0], vec![1]]);
    /// # Ok::<(), arrow_dlpack::Error>(())
    /// ```
    #[must_use]
    pub fn new(
        rows: Vec<Option<usize>>,
        open: impl Fn(usize) -> Result<DeviceArrayStream> + Send + Sync + 'static,
    ) -> Self {
        Self::opened_by(rows, move |shard, _| open(shard))
    }

    /// As [`new`](Self::new), where `open` calls the check while it waits for other threads: the thread that told the iteration to stop may
    /// wait for this one.
    pub(crate) fn opened_by(
        rows: Vec<Option<usize>>,
        open: impl Fn(usize, StopCheck<'_>) -> Result<DeviceArrayStream> + Send + Sync + 'static,
    ) -> Self {
        Self { rows: rows.into(), open: Arc::new(open) }
    }

    /// Returns a stream that is open already, as the only shard.
    pub(crate) fn of_stream(rows: Option<usize>) -> Self {
        Self::new(vec![rows], |_| Err(Error::internal("a stream was opened twice")))
    }

    /// Returns the same shards, of which the conversion reads the columns that it names by path.
    pub(super) fn at_paths(&self, conversion: &Conversion) -> Self {
        let (open, conversion) = (self.open.clone(), conversion.clone());
        let open = move |shard, stop: StopCheck<'_>| conversion.stream_at_paths(open(shard, stop)?);
        Self { rows: self.rows.clone(), open: Arc::new(open) }
    }

    /// Returns the number of rows, if each shard's is known.
    ///
    /// # Errors
    /// If the rows cannot be counted.
    pub fn rows(&self) -> Result<Option<usize>> {
        self.rows.iter().try_fold(Some(0_usize), |all, rows| match all.zip(*rows) {
            None => Ok(None),
            Some((all, rows)) => all.checked_add(rows).map(Some).ok_or_else(beyond),
        })
    }

    /// Returns the number of shards.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns whether there are no shards.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Opens a shard.
    ///
    /// # Errors
    /// Those of opening it, with its number.
    pub(super) fn open(&self, shard: usize, stop: StopCheck<'_>) -> Result<DeviceArrayStream> {
        (self.open)(shard, stop).map_err(|error| self.name(error, shard))
    }

    /// Names a shard in an error, if there are several.
    pub(super) fn name(&self, error: Error, shard: usize) -> Error {
        if self.rows.len() > 1 { error.in_shard(shard) } else { error }
    }

    /// Returns the number of batches that each rank gets of an epoch of this many lanes.
    ///
    /// # Errors
    /// As [`lanes`](Self::lanes).
    #[cfg(feature = "python")]
    pub(crate) fn rounds(&self, options: &LoadOptions, place: &Place) -> Result<usize> {
        let rows: Option<Vec<_>> = self.lanes(options, place)?.iter().map(ShardLane::rows).collect();
        Ok(rows.map_or(0, |rows| place.rounds(&rows, &options.sharding).0))
    }

    /// Returns the shard that this rank reads first, or any if it reads none, for its schema.
    ///
    /// # Errors
    /// As [`lanes`](Self::lanes); if there are no shards.
    pub(crate) fn first(&self, options: &LoadOptions, place: &Place) -> Result<usize> {
        if self.is_empty() {
            return Err(Error::argument("there are no shards").remedy_is("pass one or more shards"));
        }
        let lanes = self.lanes(options, place)?;
        let (lane, mut taken) = place.batch(options.sharding.first(), 0);
        let parts = lanes.get(lane).map(|lane| &lane.parts).into_iter().flatten();
        let needed = parts.clone().find(|part| match part.rows {
            Some(rows) if rows <= taken => {
                taken -= rows;
                false
            }
            _ => true,
        });
        Ok(needed.or(parts.last()).map_or(0, |part| part.shard))
    }

    /// Returns the parts of each lane in an epoch.
    ///
    /// # Errors
    /// If there are several lanes, and a number of rows is not known.
    pub(crate) fn lanes(&self, options: &LoadOptions, place: &Place) -> Result<Vec<ShardLane>> {
        let mut order: Vec<usize> = (0..self.rows.len()).collect();
        if let Some(seed) = options.shuffle_shards {
            let mut draws = Draws::of_shards(seed, place.epoch());
            let mut left = std::mem::take(&mut order);
            while !left.is_empty() {
                order.push(left.swap_remove(draws.below(left.len())));
            }
        }
        let lanes = place.taken().len();
        let parts = order.iter().map(|shard| (*shard, self.rows.get(*shard).copied().flatten()));
        if lanes == 1 {
            let part = |(shard, told)| ShardPart { shard, skip: 0, rows: told, told };
            return Ok(vec![ShardLane { parts: parts.map(part).collect(), known: 0 }]);
        }
        let Some(all) = self.rows()? else {
            let unknown = self.rows.iter().position(Option::is_none).unwrap_or_default();
            let reason =
                format!("{lanes} lanes need the number of rows of each shard, and shard {unknown} does not tell it");
            return Err(Error::argument(reason).remedy_is(Remedy::ToldRows));
        };
        let mut cut: Vec<ShardLane> = (0..lanes).map(|_| ShardLane::default()).collect();
        let (mut start, mut lane) = (0, 0);
        for (shard, told) in parts {
            let (mut skip, told) = (0, told.unwrap_or_default());
            if told == 0 {
                // Read for its end alone: it may have rows all the same.
                let part = ShardPart { shard, skip, rows: Some(0), told: Some(0) };
                cut.get_mut(lane.min(lanes - 1)).into_iter().for_each(|lane| lane.parts.push_back(part));
            }
            while skip < told {
                let border = border(all, lanes, lane + 1);
                let rows = (told - skip).min(border - start);
                let part = ShardPart { shard, skip, rows: Some(rows), told: Some(told) };
                cut.get_mut(lane).filter(|_| rows > 0).into_iter().for_each(|lane| lane.parts.push_back(part));
                (skip, start) = (skip + rows, start + rows);
                if start == border {
                    lane += 1;
                }
            }
        }
        Ok(cut)
    }
}

impl fmt::Debug for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shards").field("rows", &self.rows).finish_non_exhaustive()
    }
}

/// Returns the first row of a lane: floor(lane * rows / lanes).
fn border(rows: usize, lanes: usize, lane: usize) -> usize {
    let widen = |count: usize| u128::try_from(count).unwrap_or(u128::MAX);
    let row = (widen(lane) * widen(rows)).checked_div(widen(lanes)).unwrap_or(0);
    usize::try_from(row).unwrap_or(rows)
}

/// The rows of one lane.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShardLane {
    pub(super) parts: VecDeque<ShardPart>,
    /// The rows of so many parts at the start are known.
    known: usize,
}

impl ShardLane {
    /// Returns its number of rows, if it is known.
    pub(crate) fn rows(&self) -> Option<usize> {
        self.parts.iter().try_fold(0_usize, |all, part| all.checked_add(part.rows?))
    }

    /// Returns the shards of its first `rows` rows, each with the number of the row before which they end in it, and with the rows of
    /// the lane that they are.
    pub(super) fn first(&self, rows: usize) -> impl Iterator<Item = (usize, usize, Range<usize>)> {
        self.parts.iter().scan(0, move |start, part| {
            let left = rows.checked_sub(*start).filter(|left| *left > 0)?;
            let of_part = part.rows.unwrap_or(usize::MAX).min(left);
            let in_lane = *start..*start + of_part;
            *start = in_lane.end;
            Some((part.shard, part.skip.saturating_add(of_part), in_lane))
        })
    }

    /// Returns whether it is known where each of its shards begins.
    pub(super) fn is_cut_known(&self) -> bool {
        self.parts.iter().rev().skip(1).all(|part| part.rows.is_some())
    }

    /// Notes how many rows a shard has that did not tell it: the first such one, as shards are read in order.
    pub(super) fn found(&mut self, shard: usize, rows: usize) {
        while self.parts.get(self.known).is_some_and(|part| part.rows.is_some()) {
            self.known += 1;
        }
        if let Some(part) = self.parts.get_mut(self.known).filter(|part| part.shard == shard) {
            part.rows = Some(rows);
        }
    }
}

/// Rows of a shard that follow each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShardPart {
    pub(super) shard: usize,
    /// The rows of the shard before them.
    pub(super) skip: usize,
    /// How many there are; `None` if the shard does not tell.
    pub(super) rows: Option<usize>,
    /// The rows of the whole shard, if it tells them.
    pub(super) told: Option<usize>,
}

impl ShardPart {
    /// Returns whether the part is the last one of its shard.
    pub(super) fn is_last(&self) -> bool {
        self.rows.is_none_or(|rows| Some(self.skip + rows) == self.told)
    }
}

fn beyond() -> Error {
    Error::argument("the shards have more rows than can be counted")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::sharding::Sharding;
    use super::*;

    #[test]
    fn ends_of_shards_that_tell_no_rows_are_noted_in_order() {
        let rows = [Some(2), None, None, Some(1), None];
        let shards = Shards::new(rows.to_vec(), |_| panic!("opened"));
        let options = LoadOptions::new(Sharding::new(1, false, 0, 1).unwrap());
        let mut lane = shards.lanes(&options, &Place::after(1, vec![0], 0).unwrap()).unwrap().remove(0);
        for (shard, rows, is_cut_known) in [(0, 7, false), (1, 3, false), (2, 0, true), (3, 7, true), (4, 5, true)] {
            lane.found(shard, rows);
            assert_eq!(lane.is_cut_known(), is_cut_known, "{shard}");
        }
        assert_eq!(lane.parts.iter().map(|part| part.rows).collect::<Vec<_>>(), [2, 3, 0, 1, 5].map(Some));
        assert_eq!(lane.rows(), Some(11));
    }

    proptest! {
        #[test]
        fn lanes_have_each_row_once_in_order(
            rows in proptest::collection::vec(0_usize..30, 1..8),
            lanes in 1_usize..9,
            shards: bool,
        ) {
            let all: usize = rows.iter().sum();
            let told = Shards::new(rows.iter().copied().map(Some).collect(), |_| panic!("opened"));
            let mut options = LoadOptions::new(Sharding::new(1, false, 0, 1).unwrap());
            options.shuffle_shards = shards.then_some(3);
            let place = Place::after(1, vec![0; lanes], 0).unwrap();
            let cut = told.lanes(&options, &place).unwrap();
            prop_assert_eq!(cut.len(), lanes);
            let (mut seen, mut parts) = (Vec::new(), std::collections::BTreeSet::new());
            for (index, lane) in cut.iter().enumerate() {
                let expected = (index + 1) * all / lanes - index * all / lanes;
                prop_assert_eq!(lane.rows(), Some(expected));
                for part in &lane.parts {
                    seen.extend((0..part.rows.unwrap()).map(|row| (part.shard, part.skip + row)));
                    prop_assert_eq!(part.told, Some(rows[part.shard]));
                    prop_assert!(part.rows > Some(0) || lanes == 1 || rows[part.shard] == 0);
                    parts.insert(part.shard);
                }
            }
            // Those without rows too.
            prop_assert_eq!(parts.len(), rows.len());
            let mut order: Vec<usize> = seen.iter().map(|(shard, _)| *shard).collect();
            order.dedup();
            if !shards {
                prop_assert!(order.is_sorted());
            }
            let mut sorted = seen.clone();
            sorted.sort_unstable();
            let rows: Vec<_> = rows.iter().enumerate().flat_map(|(shard, rows)| (0..*rows).map(move |row| (shard, row))).collect();
            prop_assert_eq!(sorted, rows);
        }
    }

    #[test]
    fn rows_that_are_not_known_are_no_lanes() {
        let shards = Shards::new(vec![Some(3), None], |_| panic!("opened"));
        let options = LoadOptions::new(Sharding::new(1, false, 0, 1).unwrap());
        assert_eq!(shards.lanes(&options, &Place::start(0)).unwrap()[0].rows(), None);
        let error = shards.lanes(&options, &Place::after(0, vec![0, 0], 0).unwrap()).unwrap_err();
        assert!(error.reason().contains("shard 1") && error.remedy().is_some(), "{error}");
        let huge = Shards::new(vec![Some(usize::MAX), Some(1)], |_| panic!("opened"));
        assert!(huge.rows().is_err());
        assert_eq!(border(usize::MAX, 2, 1), usize::MAX / 2);
    }
}
