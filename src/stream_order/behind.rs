//! Which work must be done before memory is reused?

use std::sync::Arc;

use smallvec::SmallVec;

use super::{Wait, host};
use crate::alloc::Owner;
use crate::cuda::{Called, Current, Event, Stream, StreamIdentity};

/// The work that must be done before memory is reused.
pub(crate) struct Behind {
    ordinal: i32,
    /// Shared with the reaper, which waits for one of them while another thread may release the memory.
    events: SmallVec<[Arc<Event>; 2]>,
    /// The streams on which an event must still be recorded, as while they are being captured.
    unrecorded: SmallVec<[Unrecorded; 1]>,
    /// What keeps streams alive. Dropped with this: that may take the interpreter's lock.
    owners: SmallVec<[Owner; 1]>,
}

/// A stream whose work by the time of the release must be done.
pub(super) struct Unrecorded {
    pub(super) ordinal: i32,
    pub(super) stream: Stream,
    /// What keeps the stream alive, if that is known.
    pub(super) owner: Option<Owner>,
}

/// What is waited for next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    /// Work that this stream of a device, or of a thread, had.
    Stream(StreamIdentity),
    /// The end of a capture on this stream.
    Capture(StreamIdentity),
    /// Work of a device of which the driver did not tell whether it is done.
    Unknown(i32),
}

impl Behind {
    pub(super) fn new(ordinal: i32, events: impl Iterator<Item = Event>) -> Self {
        let events = events.map(Arc::new).collect();
        Self { ordinal, events, unrecorded: SmallVec::new(), owners: SmallVec::new() }
    }

    /// Returns the work that a stream of ours has now.
    ///
    /// # Errors
    /// When no event can be recorded.
    pub(crate) fn recorded(current: &Current, stream: Stream, wait: Wait) -> Called<Self> {
        let event = if wait.is_skipped() { None } else { Some(Event::record(current, stream)?) };
        Ok(Self::new(current.device().ordinal(), event.into_iter()))
    }

    /// Adds the work that these streams have now.
    pub(super) fn and_work_of(self, streams: SmallVec<[Unrecorded; 1]>) -> Self {
        let mut behind = Self { unrecorded: streams, ..self };
        if !behind.unrecorded.is_empty()
            && let Some(Ok(current)) = behind.enter()
        {
            // Otherwise it is recorded when the memory is looked at.
            let _ = behind.record_missing(&current);
        }
        behind.owners.clear();
        behind
    }

    pub(super) fn ordinal(&self) -> i32 {
        self.ordinal
    }

    /// Returns the context of the device; `None` if the device cannot be started.
    ///
    /// # Errors
    /// When the driver refuses, as at the end of the process: then nothing may be freed.
    pub(super) fn enter(&self) -> Option<Called<Current>> {
        Some(host::device(self.ordinal).ok()?.enter_unchecked())
    }

    /// Returns what is waited for next; `None` if all work was seen done.
    pub(super) fn place(&self) -> Option<Awaited> {
        if let Some(Unrecorded { ordinal, stream, .. }) = self.unrecorded.last() {
            return Some(Awaited::Capture(StreamIdentity::of_every_thread(*ordinal, *stream)));
        }
        // The last use may be on another device than the memory, as after a copy between devices.
        self.event().map(|event| Awaited::Stream(event.identity()))
    }

    /// Returns the event that is waited for next.
    pub(super) fn event(&self) -> Option<&Arc<Event>> {
        self.events.last()
    }

    /// Returns whether all work is done. Never waits.
    ///
    /// # Errors
    /// When the driver fails.
    pub(crate) fn is_done(&mut self, current: &Current) -> Called<bool> {
        if !self.unrecorded.is_empty() {
            // A release of another library may have changed the thread's context.
            current.restore()?;
        }
        Ok(self.record_missing(current)? && self.is_done_here()?)
    }

    /// Returns whether all work is done, on a thread in which any context is current. Never waits, and records no missing event.
    ///
    /// # Errors
    /// When the driver fails.
    pub(super) fn is_done_here(&mut self) -> Called<bool> {
        while let Some(event) = self.events.last() {
            if !event.is_complete_here()? {
                return Ok(false);
            }
            self.events.pop();
        }
        Ok(self.place().is_none())
    }

    /// Returns whether all work was seen done, without a call of the driver.
    pub(super) fn is_known_done(&mut self) -> bool {
        while self.events.last().is_some_and(|event| event.is_known_complete()) {
            self.events.pop();
        }
        self.place().is_none()
    }

    /// Records the missing events. Returns false while one of their streams is captured, or its device cannot be started.
    ///
    /// # Errors
    /// When the driver fails.
    fn record_missing(&mut self, current: &Current) -> Called<bool> {
        let mut missing = std::mem::take(&mut self.unrecorded).into_iter();
        let mut failed = Ok(());
        for named in missing.by_ref() {
            match recorded_on(current, named.ordinal, named.stream) {
                Ok(Recorded::Event(event)) => {
                    // The new event comes after these, because nobody destroys that stream. Each device has one, by the same number.
                    let is_before = |earlier: &Event| {
                        named.stream == Stream::LEGACY
                            && earlier.stream() == Stream::LEGACY
                            && earlier.device().ordinal() == named.ordinal
                    };
                    self.events.retain(|earlier| !is_before(earlier));
                    self.events.push(Arc::new(event));
                    self.owners.extend(named.owner);
                }
                Ok(Recorded::Gone) => self.owners.extend(named.owner),
                Ok(Recorded::NotYet) => self.unrecorded.push(named),
                Err(status) => {
                    self.unrecorded.push(named);
                    failed = Err(status);
                    break;
                }
            }
        }
        self.unrecorded.extend(missing);
        failed.map(|()| self.unrecorded.is_empty())
    }
}

/// What was recorded behind the work that a stream has.
pub(super) enum Recorded {
    Event(Event),
    /// The stream was destroyed: what it had to do is known by the events before.
    Gone,
    /// The event would break a capture, or become a part of it; or the device cannot be started.
    NotYet,
}

/// Records an event behind the work that a stream of a device has now. `current` is any device that is entered.
///
/// # Errors
/// When the driver fails.
pub(super) fn recorded_on(current: &Current, ordinal: i32, stream: Stream) -> Called<Recorded> {
    let recorded = |current: &Current| {
        if current.is_capturing(stream)? {
            return Ok(Recorded::NotYet);
        }
        Event::record(current, stream).map(Recorded::Event)
    };
    let recorded = match ordinal == current.device().ordinal() {
        true => recorded(current),
        false => match host::device(ordinal) {
            Ok(device) => recorded(&device.enter_unchecked()?),
            Err(_) => Ok(Recorded::NotYet),
        },
    };
    match recorded {
        Err(status) if status.is_of_no_stream() && !stream.is_default() => Ok(Recorded::Gone),
        recorded => recorded,
    }
}
