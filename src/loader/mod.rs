//! Turns a stream into training batches with a fixed number of rows, prefetched on a thread. docs/loader.md states the
//! guarantees.

mod batch;
mod byte_budget;
mod checks;
#[cfg(feature = "python")]
mod conversion_hashes;
mod dictionary;
mod dictionary_hashes;
mod draws;
mod groups;
mod inline;
mod kept_dictionaries;
mod kept_memory;
mod kept_rows;
mod options;
mod packed_dictionaries;
mod place;
mod prefetch;
mod producer;
#[cfg(feature = "python")]
mod progress;
mod read_log;
mod readers;
mod row_bytes;
mod row_hashes;
mod row_numbers;
mod sharding;
mod shards;
mod shuffle;
mod slot;
mod source_rows;
mod spin;
#[cfg(feature = "python")]
mod state;
mod statistics;
#[cfg(feature = "async")]
mod stream;
mod target;
mod texts;
mod varied_hashes;
mod vocabulary;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "python")]
use arrow_schema::FieldRef;
pub use batch::{Batch, Next};
use byte_budget::ByteBudget;
use checks::{Checks, OwnRows};
pub(crate) use dictionary_hashes::DictionaryHashes;
use groups::{CopyNote, Groups};
use inline::Inline;
pub use options::{LoadOptions, Shuffle};
pub use place::Place;
use prefetch::{Stop, Taken};
use producer::{LaneRows, Producer, Resumed, Turns};
#[cfg(feature = "python")]
pub(crate) use progress::Progress;
pub(crate) use read_log::Digest;
pub(crate) use read_log::ReadLog;
use readers::Readers;
pub(crate) use sharding::OfOthers;
pub use sharding::Sharding;
pub use shards::Shards;
#[cfg(feature = "python")]
pub(crate) use shards::{StopCheck, other_schema};
use source_rows::SourceRows;
#[cfg(feature = "python")]
pub(crate) use source_rows::other_rows;
#[cfg(feature = "python")]
pub(crate) use state::{Hashes, STATE_VERSION, SourceState, State, Terms};
pub use statistics::{Statistic, Statistics};
#[cfg(feature = "async")]
pub use stream::BatchStream;
#[cfg(feature = "python")]
pub(crate) use target::check_device;
pub use vocabulary::DistinctValues;

use crate::alloc::fallible;
use crate::arrow::DeviceArrayStream;
use crate::convert::check_environment;
use crate::copy_log;
use crate::error::{Error, Result};
use crate::spec::Conversion;
#[cfg(feature = "python")]
use crate::stream_order;
use crate::transfer::taken_over;

/// The batches of one epoch. Dropping it ends the prefetching thread, and releases the source.
#[derive(Debug)]
pub struct Batches {
    mode: Mode,
    /// For the copy log, group by group.
    copy_notes: Vec<CopyNote>,
    log: ReadLog,
}

#[derive(Debug)]
enum Mode {
    Prefetch(Readers),
    Inline(Inline),
}

impl Mode {
    /// Starts producers: those that make no batch ahead are one, and wait to be asked.
    fn start(mut producers: Vec<Producer>, prefetch: usize, turns: Turns, log: &ReadLog, stop: Stop) -> Result<Self> {
        match producers.pop() {
            Some(producer) if prefetch == 0 => Ok(Self::Inline(Inline::new(producer, stop))),
            last => {
                producers.extend(last);
                Ok(Self::Prefetch(Readers::start(producers, prefetch, turns, log.clone(), &stop)?))
            }
        }
    }
}

/// What is known of a state that an iteration goes on from, besides its place.
#[derive(Clone, Debug)]
pub(crate) struct KnownState {
    /// Rows of a full batch of the loader that it was taken from.
    pub(crate) batch_size: usize,
    /// Which of its last batches other workers make; `None` for a place that has no state, which batches as those to come have led to.
    pub(crate) of_others: Option<OfOthers>,
    /// The rows of a source of one shard that does not tell them, if they are known.
    pub(crate) rows: Option<usize>,
    /// The rows that a source of one shard had when the state was taken, if they are known.
    pub(crate) had: Option<usize>,
    /// The digests of the shards.
    pub(crate) digests: BTreeMap<usize, Digest>,
    /// The hashes of the dictionaries of codes.
    pub(crate) dictionaries: DictionaryHashes,
    /// Whether all shards that have a digest are read again.
    pub(crate) all: bool,
}

impl KnownState {
    /// Nothing.
    fn nothing() -> Self {
        let digests = BTreeMap::new();
        Self {
            batch_size: usize::MAX,
            of_others: None,
            rows: None,
            had: None,
            digests,
            dictionaries: DictionaryHashes::default(),
            all: false,
        }
    }
}

impl Batches {
    /// Refuses a conversion that no stream of this type can satisfy.
    ///
    /// # Errors
    /// As [`Conversion::check`]; where no group is named.
    #[cfg(feature = "python")]
    pub(crate) fn check_type(field: &FieldRef, conversion: &Conversion) -> Result<()> {
        Groups::new(field, conversion).map(drop)
    }

    /// Returns a number for what rows of a stream of this type become: hashes of rows can be compared if it is equal.
    ///
    /// # Errors
    /// As [`check_type`](Self::check_type).
    #[cfg(feature = "python")]
    pub(crate) fn conversion_hash(field: &FieldRef, conversion: &Conversion) -> Result<u64> {
        Groups::new(field, conversion)?.conversion_hash()
    }

    /// Refuses options that no stream of this type can satisfy, and a missing device, before the stream is read.
    ///
    /// # Errors
    /// As [`Batches::new`], except errors of memory and of the stream itself.
    #[cfg(feature = "python")]
    pub(crate) fn check(field: &FieldRef, conversion: &Conversion, load: &LoadOptions) -> Result<()> {
        check_environment()?;
        Groups::new(field, conversion)?;
        check_device(load.device)?;
        if load.device.is_cpu() { Ok(()) } else { stream_order::enter(load.device).map(drop) }
    }

    /// Returns the batches of a stream from `place` on, which is of one lane. Batches are always copies, whatever the conversion allows.
    /// Batches on a device are allocated by the calling thread's present allocator ([`memory_source`](crate::cuda::memory_source)).
    ///
    /// # Errors
    /// If a column does not exist, has no tensor form, or does not go with the others; if nulls are kept in a result whose group
    /// has no validity; if the place is of several lanes, or the sharding of several workers; if no thread can be started; if no batches are made on this type of device, there is no driver, or no such device.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use arrow_array::{ArrayRef, Float32Array, RecordBatch};
    /// use arrow_dlpack::loader::{Batches, LoadOptions, Place, Sharding};
    /// use arrow_dlpack::{Conversion, DeviceArray, DeviceArrayStream};
    ///
    /// let x: ArrayRef = Arc::new(Float32Array::from_iter_values((0..5).map(|x| x as f32)));
    /// let y: ArrayRef = Arc::new(Float32Array::from_iter_values((0..5).map(|y| y as f32 / 2.0)));
    /// let batch = DeviceArray::from_record_batch(&RecordBatch::try_from_iter([("x", x), ("y", y)]).unwrap())?;
    /// let (field, device) = (batch.field().clone(), batch.device().device_type());
    /// let stream = DeviceArrayStream::new(field, device, [Ok(batch)].into_iter());
    ///
    /// let options = LoadOptions::new(Sharding::new(2, false, 0, 1)?);
    /// let batches = Batches::new(stream, &Conversion::default(), &options, &Place::start(0))?;
    /// let shapes: Vec<_> = batches.map(|batch| Ok(batch?.tensors[0].shape().to_vec())).collect::<Result<_, arrow_dlpack::Error>>()?;
    /// assert_eq!(shapes, [[2, 2], [2, 2], [1, 2]]);
    /// # Ok::<(), arrow_dlpack::Error>(())
    /// ```
    pub fn new(stream: DeviceArrayStream, conversion: &Conversion, load: &LoadOptions, place: &Place) -> Result<Self> {
        Self::resume(&Shards::of_stream(None), (0, stream), conversion, load, place, &KnownState::nothing())
    }

    /// Returns the batches of shards from `place` on, which says into how many lanes their rows are cut. The calling thread opens the shard
    /// that this rank reads first; the threads that read the lanes open the others.
    ///
    /// # Errors
    /// As [`new`](Self::new); if there are no shards; if several workers would share a lane; if there are several lanes, and a shard does not tell its number of rows;
    /// and those of opening a shard.
    pub fn of_shards(shards: &Shards, conversion: &Conversion, load: &LoadOptions, place: &Place) -> Result<Self> {
        let first = shards.first(load, place)?;
        Self::resume(shards, (first, shards.open(first, &|| Ok(()))?), conversion, load, place, &KnownState::nothing())
    }

    /// Returns the batches after the place of a state, as [`of_shards`](Self::of_shards), of which one is open. Checks the source
    /// by what the state knows of it.
    ///
    /// # Errors
    /// As [`of_shards`](Self::of_shards). A source that has changed is found when its rows are read.
    pub(crate) fn resume(
        shards: &Shards,
        (first, stream): (usize, DeviceArrayStream),
        conversion: &Conversion,
        load: &LoadOptions,
        place: &Place,
        known: &KnownState,
    ) -> Result<Self> {
        check_environment()?;
        let (stream, shards) = (conversion.stream_at_paths(stream)?, shards.at_paths(conversion));
        let field = stream.field().clone();
        let groups = Groups::new(&field, conversion)?;
        let (copy_notes, stop) = (groups.copy_notes(stream.device_type(), load.device), Stop::default());
        let lanes = shards.lanes(load, place)?;
        load.sharding.check_lanes(lanes.len())?;
        // The end of a single lane is found when it is read: the number of rows may not be known.
        let rounds = match lanes.len() {
            1 => None,
            _ => {
                let rows = fallible::collected(lanes.iter().map(|lane| Ok(lane.rows().unwrap_or_default())))?;
                let own = (load.sharding.batch_size(), load.sharding.of_others());
                let last = known.of_others.map_or(own, |of_others| (known.batch_size, of_others));
                if let Some(lane) = place.lane_beyond(&rows, last.0, last.1).filter(|_| known.of_others.is_some()) {
                    let taken = place.taken().get(lane).copied().unwrap_or_default();
                    let found = rows.get(lane).copied().unwrap_or_default();
                    let reason = format!("the state is after row {taken} of lane {lane}, and the lane has {found}");
                    let remedy = "load the state into a loader of the source that it was taken from";
                    return Err(Error::argument(reason).remedy_is(remedy));
                }
                Some(place.rounds_left(&rows, last, &load.sharding))
            }
        };
        let period = load.sharding.period(lanes.len());
        let readers = if load.prefetch == 0 { 1 } else { load.readers.clamp(1, period) };
        let log = ReadLog::new(lanes.clone(), readers);
        let KnownState { had, all, .. } = *known;
        let dictionaries = Arc::new(known.dictionaries.clone());
        let (expected, shuffled) = (Arc::new(known.digests.clone()), load.shuffle.is_some());
        let checks = Checks { log: log.clone(), expected, all, shuffled, dictionaries, had };
        let budget = ByteBudget::new(load.shuffle.and_then(|shuffle| shuffle.bytes));
        let mut opened = Some((first, stream));
        let producer = |reader: usize| {
            let (groups, turns) = (groups.another(), Turns { reader, readers, period });
            let mut rows = BTreeMap::new();
            for turn in (reader..period).step_by(readers) {
                let batch = turn.saturating_mul(load.sharding.stride()).saturating_add(load.sharding.first());
                let (number, taken) = place.batch(batch, 0);
                let lane = lanes.get(number).cloned().unwrap_or_default();
                let own = known.all.then(|| OwnRows::new((number, lanes.len()), taken, known.batch_size, load));
                let own = own.unwrap_or_default();
                // Of other lanes after the rows that were taken.
                if lane.is_cut_known() {
                    checks.check_cover(&lane, &own)?;
                }
                let goes_on = rounds.is_none_or(|(rounds, _)| turn < rounds);
                let (batch_size, told) = (known.batch_size, lane.rows().or(known.rows));
                let resumed = Resumed { taken, batch_size, rows: told, own, goes_on };
                let (shards, is_inline) = (shards.clone(), load.prefetch == 0);
                let lane = (number, lane);
                let mut feed =
                    SourceRows::new(field.clone(), shards, lane, &groups, checks.clone(), stop.clone(), is_inline)?;
                if let Some((shard, stream)) = opened.take_if(|_| turn == 0) {
                    feed.takes_over(shard, stream);
                }
                rows.insert(number, LaneRows::new(feed, number, place, load, &groups, &budget, resumed)?);
            }
            Producer::new(rows, groups, load, place.clone(), turns, rounds, log.clone(), stop.clone())
        };
        let producers = (0..readers).map(producer).collect::<Result<Vec<_>>>()?;
        let mode = Mode::start(producers, load.prefetch, Turns { reader: 0, readers, period }, &log, stop)?;
        Ok(Self { mode, copy_notes, log })
    }

    /// Returns how many rows of the epoch are in no batch of any rank; `None` before its end.
    #[must_use]
    pub fn left_out(&self) -> Option<usize> {
        self.log.left_out()
    }

    /// Returns what this iteration has read.
    #[cfg(any(feature = "python", test))]
    pub(crate) fn log(&self) -> &ReadLog {
        &self.log
    }

    /// Returns whether the batches are made in this process, and not in the one that it was forked from.
    #[must_use]
    pub(crate) fn is_in_this_process(&self) -> bool {
        match &self.mode {
            Mode::Prefetch(ahead) => ahead.is_in_this_process(),
            Mode::Inline(inline) => inline.is_in_this_process(),
        }
    }

    /// Refuses to make batches in a process that was forked from the source's.
    fn require_process(&self) -> Result<()> {
        if self.is_in_this_process() {
            return Ok(());
        }
        Err(Error::argument("these batches are made in another process, which this one was forked from")
            .remedy_is("start an iteration in this process"))
    }

    /// Returns the next batch, and waits for it at most `patience`. Without prefetching it makes the batch, however
    /// long that takes.
    ///
    /// # Errors
    /// The error of making the batch, after which [`Next::Cut`] follows. In a process that was forked from the source's
    /// process; on the thread of this loader; without prefetching, while another thread makes a batch.
    pub fn next_within(&self, patience: Duration) -> Result<Next> {
        self.require_process()?;
        let next = match &self.mode {
            Mode::Inline(inline) => inline.next()?,
            Mode::Prefetch(ahead) => match ahead.take(patience)? {
                Taken::Item(batch) => Next::Batch(batch),
                Taken::NotYet => Next::NotYet,
                Taken::Failed(error) => {
                    ahead.close();
                    return Err(error);
                }
                Taken::End => {
                    ahead.close();
                    Next::End
                }
                Taken::Cut => Next::Cut,
            },
        };
        if let Next::Batch(batch) = &next {
            self.hand_over(batch);
        }
        Ok(next)
    }

    /// Logs a batch on the consumer's thread, because the thread that made it has no logs.
    fn hand_over(&self, batch: &Batch) {
        for (copy_notes, tensor) in self.copy_notes.iter().zip(&batch.tensors) {
            taken_over(tensor);
            if !tensor.is_empty() {
                copy_log::record(|| copy_notes.of(batch.rows, tensor.nbytes()));
            }
        }
        // Without a thread, the conversion has logged them.
        if let Mode::Prefetch(_) = &self.mode {
            batch.copies.iter().for_each(|copied| copy_log::record(|| copied.clone()));
        }
    }

    /// Returns the next batch if a thread has made it. Waits for no thread: one may need what the caller has, such as the interpreter's
    /// lock.
    ///
    /// # Errors
    /// In a process that was forked from the source's process.
    #[cfg(feature = "python")]
    pub(crate) fn next_if_ready(&self) -> Result<Option<Batch>> {
        self.require_process()?;
        let Mode::Prefetch(ahead) = &self.mode else { return Ok(None) };
        Ok(ahead.take_ready().inspect(|batch| self.hand_over(batch)))
    }

    /// Ends the iteration, and waits at most `patience` for the source's current array. Returns whether the thread has
    /// ended.
    pub fn stop(&self, patience: Duration) -> bool {
        match &self.mode {
            Mode::Prefetch(ahead) => ahead.stop(patience),
            Mode::Inline(inline) => {
                inline.close();
                true
            }
        }
    }

    /// As [`close`](Self::close), and waits at most `patience` for each thread. Returns whether all have ended.
    #[cfg(feature = "python")]
    pub(crate) fn close_within(&self, patience: Duration) -> bool {
        match &self.mode {
            Mode::Prefetch(ahead) => ahead.close_within(patience),
            Mode::Inline(inline) => {
                inline.close();
                true
            }
        }
    }

    /// Ends the iteration without waiting for its thread, which ends by itself after the source's current array.
    pub fn abandon(&self) {
        match &self.mode {
            Mode::Prefetch(ahead) => ahead.abandon(),
            Mode::Inline(inline) => inline.close(),
        }
    }

    /// Ends the iteration: on return the thread has ended and the source is released. On the thread of a loader, which
    /// runs a source's code, it does not wait.
    pub fn close(&self) {
        match &self.mode {
            Mode::Prefetch(ahead) => ahead.close(),
            Mode::Inline(inline) => inline.close(),
        }
    }
}

/// Waits at most `patience` for the threads of iterations that a source's code dropped on a loader's thread: loader
/// threads do not wait for each other. Returns whether none is left.
#[cfg(feature = "python")]
#[must_use]
pub(crate) fn wait_for_threads(patience: Duration) -> bool {
    prefetch::join_left(patience)
}

impl Iterator for Batches {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.next_within(Duration::from_secs(3600)) {
                Ok(Next::Batch(batch)) => return Some(Ok(batch)),
                Ok(Next::NotYet) => {}
                Ok(Next::End | Next::Cut) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests;
