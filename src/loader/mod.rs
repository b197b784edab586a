//! Turns a stream into training batches with a fixed number of rows, prefetched on a thread. docs/loader.md states the
//! guarantees.

mod batch;
mod draws;
mod groups;
mod inline;
mod options;
mod place;
mod prefetch;
mod producer;
mod read_log;
mod row_hashes;
mod sharding;
mod shuffle;
mod slot;
mod source_rows;
#[cfg(feature = "python")]
mod state;
#[cfg(feature = "async")]
mod stream;
mod target;

use std::time::Duration;

#[cfg(feature = "python")]
use arrow_schema::FieldRef;
pub use batch::{Batch, Next};
use groups::{CopyNote, Groups};
use inline::Inline;
pub use options::{LoadOptions, Shuffle};
pub use place::Place;
use prefetch::{Prefetch, Stop, Taken};
use producer::Producer;
pub(crate) use producer::Resumed;
#[cfg(feature = "python")]
pub(crate) use read_log::Digest;
pub(crate) use read_log::ReadLog;
pub use sharding::Sharding;
#[cfg(feature = "python")]
pub(crate) use state::{Hashes, STATE_VERSION, Source, State, Terms};
#[cfg(feature = "async")]
pub use stream::BatchStream;
#[cfg(feature = "python")]
pub(crate) use target::check_device;

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
    Prefetch(Prefetch<Batch>),
    Inline(Inline),
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
        Ok(Groups::new(field, conversion)?.conversion_hash())
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

    /// Returns the batches of a stream after a place in the order of an epoch, which has one lane. Batches are always copies,
    /// whatever the conversion allows. Batches on a device are allocated by the calling thread's present allocator
    /// ([`memory_source`](crate::cuda::memory_source)).
    ///
    /// # Errors
    /// If a column does not exist, has no tensor form, or does not go with the others; if the place is of several lanes; if
    /// no thread can be started; if no batches are made on this type of device, there is no driver, or no such device.
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
        let resumed = Resumed { batch_size: usize::MAX, rows: None, digest: None };
        Self::resume(stream, conversion, load, place, resumed)
    }

    /// Returns the batches after the place of a state, as [`new`](Self::new). Checks the source by what the state knows of it.
    ///
    /// # Errors
    /// As [`new`](Self::new). A source that has changed is found when its rows are read.
    pub(crate) fn resume(
        stream: DeviceArrayStream,
        conversion: &Conversion,
        load: &LoadOptions,
        place: &Place,
        resumed: Resumed,
    ) -> Result<Self> {
        check_environment()?;
        let groups = Groups::new(stream.field(), conversion)?;
        let (copy_notes, stop) = (groups.copy_notes(stream.device_type(), load.device), Stop::default());
        let log = ReadLog::default();
        let mut producer = Producer::new(stream, groups, load, place, resumed, &log, stop.clone())?;
        let mode = if load.prefetch == 0 {
            Mode::Inline(Inline::new(producer, stop))
        } else {
            Mode::Prefetch(Prefetch::start(load.prefetch, stop, move || producer.next().transpose())?)
        };
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
    pub fn is_in_this_process(&self) -> bool {
        match &self.mode {
            Mode::Prefetch(ahead) => ahead.is_in_this_process(),
            Mode::Inline(inline) => inline.is_in_this_process(),
        }
    }

    /// Returns the next batch, and waits for it at most `patience`. Without prefetching it makes the batch, however
    /// long that takes.
    ///
    /// # Errors
    /// The error of making the batch, after which only the end follows. In a process that was forked from the source's
    /// process; on the thread of a loader.
    pub fn next_within(&self, patience: Duration) -> Result<Next> {
        if !self.is_in_this_process() {
            return Err(Error::argument("these batches are made in another process, which this one was forked from")
                .remedy_is("start an iteration in this process"));
        }
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
    }

    /// Returns whether the next batch must still be made.
    #[must_use]
    pub fn has_to_wait(&self) -> bool {
        match &self.mode {
            Mode::Prefetch(ahead) => ahead.has_to_wait(),
            Mode::Inline(_) => true,
        }
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
