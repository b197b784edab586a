//! Which work must be done before memory is released?

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;

use super::{Readiness, StreamOwner, Use, Wait, enter, settle};
use crate::cuda::{Current, Event, Stream};
use crate::error::Result;

/// The most streams that each use of memory finds busy: behind a device that is late, more questions would find nothing more.
const MOST_BUSY: usize = 4;

/// The streams whose oldest event is not complete. Their later events are not asked for, so that the cost of a use does not grow with
/// the number of uses that the device is behind.
#[derive(Default)]
struct BusyStreams(SmallVec<[Stream; MOST_BUSY]>);

impl BusyStreams {
    /// Returns whether an event is known to be complete; false for some that are not asked for.
    fn is_complete(&mut self, current: &Current, event: &Event) -> bool {
        if event.is_known_complete() {
            return true;
        }
        if self.0.len() >= MOST_BUSY || self.0.contains(&event.stream()) {
            return false;
        }
        let is_complete = event.is_complete(current) == Ok(true);
        if !is_complete {
            self.0.push(event.stream());
        }
        is_complete
    }
}

impl Readiness {
    /// Frees the memory only behind a stream's work: its present work, and all work that it gets until the release. Captured work
    /// does not count: memory that a graph uses must be kept as long as the graph may run.
    ///
    /// # Errors
    /// If the stream belongs to another device or context, or the driver fails.
    pub fn record_stream(&self, stream: Stream) -> Result<()> {
        self.record_stream_for(stream, Wait::ReleaseBehindRecorded)
    }

    /// As [`Readiness::record_stream`], under the number of another place.
    ///
    /// # Errors
    /// As [`Readiness::record_stream`].
    pub(crate) fn record_stream_for(&self, stream: Stream, wait: Wait) -> Result<()> {
        self.record_owned_stream(stream, None, wait)
    }

    /// As [`Readiness::record_stream_for`]; `owner` lives until the memory is released.
    ///
    /// # Errors
    /// As [`Readiness::record_stream`].
    pub(crate) fn record_owned_stream(&self, stream: Stream, owner: Option<StreamOwner>, wait: Wait) -> Result<()> {
        let current = enter(self.device())?;
        current.require_own(stream)?;
        if current.is_capturing(stream)? {
            // An event would be a part of the graph, and tell nothing of when the graph runs.
            self.record_captured(stream, owner.as_ref(), wait);
            return Ok(());
        }
        // Another thread's per-thread default stream has the same number.
        let again = (stream != Stream::PER_THREAD).then_some(stream);
        self.record_use(&current, stream, again, owner.as_ref(), wait)
    }

    fn record_captured(&self, stream: Stream, owner: Option<&StreamOwner>, wait: Wait) {
        if self.0.parts.is_empty() && stream != Stream::PER_THREAD {
            let mut uses = self.0.uses.lock().unwrap_or_else(PoisonError::into_inner);
            if !uses.iter().any(|used| used.stream == Some(stream)) {
                uses.push(Use { stream: Some(stream), event: None, legacy_of: None, owner: owner.cloned(), wait });
            }
        }
        self.0.parts.iter().for_each(|part| part.record_captured(stream, owner, wait));
    }

    /// Frees the memory only behind our own work that `stream` has now.
    ///
    /// # Errors
    /// If no event can be recorded, and the host cannot wait for the work either. The memory is never freed then.
    pub(crate) fn used_by(&self, current: &Current, stream: Stream) -> Result<()> {
        self.used_for(current, stream, Wait::ReleaseBehindOurs)
    }

    /// As [`Readiness::used_by`], under the number of another place.
    ///
    /// # Errors
    /// As [`Readiness::used_by`].
    pub(crate) fn used_for(&self, current: &Current, stream: Stream, wait: Wait) -> Result<()> {
        if self.record_use(current, stream, None, None, wait).is_ok() {
            return Ok(());
        }
        let settled = settle(current, stream);
        if settled.is_err() {
            self.lose();
        }
        settled
    }

    fn lose(&self) {
        self.0.lost.store(true, Ordering::Release);
        self.0.parts.iter().for_each(Self::lose);
    }

    fn record_use(
        &self,
        current: &Current,
        stream: Stream,
        again: Option<Stream>,
        owner: Option<&StreamOwner>,
        wait: Wait,
    ) -> Result<()> {
        if self.0.parts.is_empty() {
            let event = Event::record(current, stream)?;
            // Dropped after the lock, because the end of a stream's object may run another library's code.
            let mut replaced: SmallVec<[StreamOwner; 1]> = SmallVec::new();
            let mut uses = self.0.uses.lock().unwrap_or_else(PoisonError::into_inner);
            let legacy_of = (stream == Stream::LEGACY).then(|| current.device().ordinal());
            let is_before = |used: &Use| legacy_of.is_some() && used.legacy_of == legacy_of && used.wait == wait;
            // Drops completed events, so that memory that is read often does not collect them.
            let mut busy = BusyStreams::default();
            let mut is_done = |used: &Use| used.event.as_ref().is_none_or(|event| busy.is_complete(current, event));
            uses.retain(|used| match used.stream {
                Some(_) if used.stream == again => {
                    replaced.extend(used.owner.take());
                    false
                }
                Some(_) => true,
                None => !is_before(used) && !is_done(used),
            });
            let owner = owner.cloned().or_else(|| replaced.pop());
            uses.push(Use { stream: again, event: Some(event), legacy_of, owner, wait });
        }
        self.0.parts.iter().try_for_each(|part| part.record_use(current, stream, again, owner, wait))
    }
}
