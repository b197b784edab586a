//! Which work must be done before memory is released?

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;

use super::capture::captured_with;
use super::{Readiness, Use, Wait, enter, settle};
use crate::cuda::{Current, Event, Stream};
use crate::error::{Remedy, Result};

/// The most streams that each use of memory finds busy: behind a device that is late, more questions would find nothing more.
const MOST_BUSY: usize = 4;

/// The streams whose oldest event is not complete. Their later events are not asked for, so that the cost of a use does not grow with
/// the number of uses that the device is behind.
struct BusyStreams {
    /// That of the present use, which is asked for, however many others are busy.
    own: Stream,
    found: SmallVec<[Stream; MOST_BUSY]>,
}

impl BusyStreams {
    /// Returns whether an event is known to be complete; false for some that are not asked for.
    fn has_completed(&mut self, current: &Current, event: &Event) -> bool {
        if event.is_known_complete() {
            return true;
        }
        let stream = event.stream();
        if self.found.contains(&stream) || stream != self.own && self.found.len() >= MOST_BUSY {
            return false;
        }
        let is_complete = event.is_complete(current) == Ok(true);
        if !is_complete {
            self.found.push(stream);
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
        let current = enter(self.device())?;
        current.require_own(stream)?;
        if current.is_capturing(stream)? {
            // An event would be a part of the graph, and tell nothing of when the graph runs.
            self.record_captured(stream, wait);
            return Ok(());
        }
        // Another thread's per-thread default stream has the same number.
        let again = (stream != Stream::PER_THREAD).then_some(stream);
        self.record_use(&current, stream, again, wait)
    }

    /// Makes `stream`, of the current context, wait for the uses of the memory that are known, before it writes the memory again.
    ///
    /// # Errors
    /// If the driver fails, or the stream is being captured while a use is under way.
    pub(crate) fn wait_for_uses_in(&self, current: &Current, stream: Stream, wait: Wait) -> Result<()> {
        if wait.is_skipped() {
            return Ok(());
        }
        let uses = self.0.uses.lock().unwrap_or_else(PoisonError::into_inner);
        for event in uses.iter().filter_map(|used| used.event.as_ref()).filter(|event| !event.is_known_complete()) {
            // A stream does its work in turn; each thread has a default stream of its own by this number.
            let is_own = event.stream() == stream && event.device().ordinal() == current.device().ordinal();
            if is_own && stream != Stream::PER_THREAD {
                continue;
            }
            if !current.is_capturing(stream)? {
                current.stream_waits(stream, *event.handle())?;
            } else if !event.is_complete(current)? {
                // A wait for work outside the capture would make it invalid.
                let why = "what reads the memory is not done";
                let remedy = |device| Remedy::WrittenBeforeCapture { device };
                return Err(captured_with(current, stream, why, remedy));
            }
        }
        drop(uses);
        self.0.parts.iter().try_for_each(|part| part.wait_for_uses_in(current, stream, wait))
    }

    fn record_captured(&self, stream: Stream, wait: Wait) {
        if self.0.parts.is_empty() && stream != Stream::PER_THREAD {
            let mut uses = self.0.uses.lock().unwrap_or_else(PoisonError::into_inner);
            if !uses.iter().any(|used| used.stream == Some(stream)) {
                uses.push(Use { stream: Some(stream), event: None, legacy_of: None, wait });
            }
        }
        self.0.parts.iter().for_each(|part| part.record_captured(stream, wait));
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
        if self.record_use(current, stream, None, wait).is_ok() {
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

    fn record_use(&self, current: &Current, stream: Stream, again: Option<Stream>, wait: Wait) -> Result<()> {
        if self.0.parts.is_empty() {
            let event = Event::record(current, stream)?;
            let mut uses = self.0.uses.lock().unwrap_or_else(PoisonError::into_inner);
            let legacy_of = (stream == Stream::LEGACY).then(|| current.device().ordinal());
            let is_before = |used: &Use| legacy_of.is_some() && used.legacy_of == legacy_of && used.wait == wait;
            // Drops completed events, so that memory that is read often does not collect them.
            let mut busy = BusyStreams { own: stream, found: SmallVec::new() };
            let mut is_done = |used: &Use| used.event.as_ref().is_none_or(|event| busy.has_completed(current, event));
            uses.retain(|used| match used.stream {
                Some(_) => used.stream != again,
                None => !is_before(used) && !is_done(used),
            });
            uses.push(Use { stream: again, event: Some(event), legacy_of, wait });
        }
        self.0.parts.iter().try_for_each(|part| part.record_use(current, stream, again, wait))
    }
}
