//! Which work must be done before memory is released?

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;

use super::behind::{Recorded, recorded_on};
use super::capture::captured_with;
use super::{Readiness, Use, Wait, enter, host, settle};
use crate::alloc::Owner;
use crate::cuda::{Current, Event, Stream, StreamIdentity, is_host_visible};
use crate::error::{Remedy, Result};

/// The most streams that each use of memory finds busy: behind a device that is late, more questions would find nothing more.
const MOST_BUSY: usize = 4;

/// A stream of which an event is recorded once more at the release, because it may get more work until then.
struct Again {
    stream: Stream,
    /// What keeps the stream alive, if that is known.
    owner: Option<Owner>,
}

/// The streams whose oldest event is not complete. Their later events are not asked for, so that the cost of a use does not grow with
/// the number of uses that the device is behind.
struct BusyStreams {
    /// That of the present use, which is asked for, however many others are busy.
    own: StreamIdentity,
    found: SmallVec<[StreamIdentity; MOST_BUSY]>,
}

impl BusyStreams {
    /// Returns whether an event is known to be complete; false for some that are not asked for.
    fn has_completed(&mut self, current: &Current, event: &Event) -> bool {
        if event.is_known_complete() {
            return true;
        }
        let stream = event.identity();
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
        self.record_stream_for(stream, None, Wait::ReleaseBehindRecorded)
    }

    /// As [`Readiness::record_stream`], of a stream that `owner` keeps alive, under the number of another place.
    ///
    /// # Errors
    /// As [`Readiness::record_stream`].
    pub(crate) fn record_stream_for(&self, stream: Stream, owner: Option<Owner>, wait: Wait) -> Result<()> {
        let current = self.enter_device_of(stream)?;
        let again = Again { stream, owner };
        if current.is_capturing(stream)? {
            // An event would be a part of the graph, and tell nothing of when the graph runs.
            self.record_captured(current.device().ordinal(), &again, wait);
            return Ok(());
        }
        self.record_use(&current, stream, Some(&again), wait)
    }

    /// Enters the device of a stream: that of the memory, or any other that reaches host-visible memory.
    ///
    /// # Errors
    /// If the stream belongs to no such device or context, or the driver fails.
    pub(crate) fn enter_device_of(&self, stream: Stream) -> Result<Current> {
        // The numbers of default streams mean those of the device that the memory is labelled with.
        let own = if stream.is_default() { enter(self.device())? } else { self.enter()? };
        let refused = match own.require_own(stream) {
            Ok(()) => return Ok(own),
            Err(refused) if !is_host_visible(self.device()) => return Err(refused),
            Err(refused) => refused,
        };
        let (ordinal, active) = (own.device().ordinal(), own.device().active()?);
        drop(own);
        for other in active.into_iter().filter(|other| *other != ordinal) {
            let other = host::device(other)?.enter()?;
            if other.require_own(stream).is_ok() {
                return Ok(other);
            }
        }
        Err(refused)
    }

    /// Makes `stream`, of the current context, wait for the uses of the memory that are known, before it writes the memory again: of a
    /// stream that was named for it, for all work that it has by now.
    ///
    /// # Errors
    /// If the driver fails, or the stream is being captured while a use is under way.
    pub(crate) fn wait_for_uses_in(&self, current: &Current, stream: Stream, wait: Wait) -> Result<()> {
        if wait.is_skipped() {
            return Ok(());
        }
        let uses = self.0.uses.lock().unwrap_or_else(PoisonError::into_inner);
        let is_capturing = !uses.is_empty() && current.is_capturing(stream)?;
        for used in uses.iter() {
            let is_own = |ordinal, other| stream == other && ordinal == current.device().ordinal();
            // It does its work in turn. Of other streams, this may be a later one with the handle of the first.
            let before = used.event.as_ref().filter(|event| {
                let is_in_turn = stream == Stream::LEGACY && is_own(event.device().ordinal(), event.stream());
                !is_in_turn && !event.is_known_complete()
            });
            // Another thread's per-thread default stream has the same number. The legacy default stream waits for those of all threads.
            let named = used.stream.map(|named| if named == Stream::PER_THREAD { Stream::LEGACY } else { named });
            // Work outside a capture cannot be waited for in it.
            let named = named.filter(|named| !is_capturing && !is_own(used.ordinal, *named));
            let since = match named.map(|named| recorded_on(current, used.ordinal, named)).transpose()? {
                Some(Recorded::Event(event)) => Some(event),
                Some(Recorded::NotYet) => {
                    let why = "it may have work that reads the memory";
                    let remedy = |device| Remedy::WrittenBeforeCapture { device };
                    return Err(captured_with(current, named.unwrap_or(stream), why, remedy));
                }
                Some(Recorded::Gone) | None => None,
            };
            for event in before.into_iter().chain(&since) {
                if !is_capturing {
                    current.stream_waits(stream, *event.handle())?;
                } else if !event.is_complete(current)? {
                    // A wait for work outside the capture would make it invalid.
                    let why = "what reads the memory is not done";
                    let remedy = |device| Remedy::WrittenBeforeCapture { device };
                    return Err(captured_with(current, stream, why, remedy));
                }
            }
        }
        drop(uses);
        self.0.parts.iter().try_for_each(|part| part.wait_for_uses_in(current, stream, wait))
    }

    fn record_captured(&self, ordinal: i32, again: &Again, wait: Wait) {
        if self.0.parts.is_empty() {
            let mut uses = self.0.uses.lock().unwrap_or_else(PoisonError::into_inner);
            if !uses.iter().any(|used| used.ordinal == ordinal && used.stream == Some(again.stream)) {
                let owner = again.owner.clone();
                uses.push(Use { ordinal, stream: Some(again.stream), owner, event: None, wait });
            }
        }
        self.0.parts.iter().for_each(|part| part.record_captured(ordinal, again, wait));
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

    fn record_use(&self, current: &Current, stream: Stream, again: Option<&Again>, wait: Wait) -> Result<()> {
        if self.0.parts.is_empty() {
            let event = Event::record(current, stream)?;
            let (again_on, owner) = again.map_or((None, None), |again| (Some(again.stream), again.owner.clone()));
            // Their owners are dropped after the lock: that may take the interpreter's.
            let mut done: SmallVec<[Owner; 1]> = SmallVec::new();
            let mut uses = self.0.uses.lock().unwrap_or_else(PoisonError::into_inner);
            let ordinal = current.device().ordinal();
            // A later event on the legacy default stream of a device stands for this one, too.
            let is_before = |used: &Use| {
                let is_legacy = |event: &Event| event.stream() == Stream::LEGACY;
                stream == Stream::LEGACY
                    && used.ordinal == ordinal
                    && used.wait == wait
                    && used.event.as_ref().is_some_and(is_legacy)
            };
            // Drops completed events, so that memory that is read often does not collect them.
            let mut busy = BusyStreams { own: current.identity(stream), found: SmallVec::new() };
            let mut is_done = |used: &Use| used.event.as_ref().is_none_or(|event| busy.has_completed(current, event));
            uses.retain(|used| {
                // The handle may be that of a later stream now, so that the event before still counts.
                if used.stream.is_some() && (used.ordinal, used.stream) == (ordinal, again_on) {
                    used.stream = None;
                    done.extend(used.owner.take());
                }
                used.stream.is_some() || !is_before(used) && !is_done(used)
            });
            uses.push(Use { ordinal, stream: again_on, owner, event: Some(event), wait });
            drop(uses);
        }
        self.0.parts.iter().try_for_each(|part| part.record_use(current, stream, again, wait))
    }
}
