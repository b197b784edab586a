//! Which work must be done before memory is reused?

use std::sync::Arc;

use smallvec::SmallVec;

use super::{Wait, host};
use crate::cuda::{Called, CudaDevice, Current, Event, Stream, StreamIdentity};

/// The work that must be done before memory is reused.
pub(crate) struct Behind {
    ordinal: i32,
    /// Shared with the reaper, which waits for one of them while another thread may release the memory.
    events: SmallVec<[Arc<Event>; 2]>,
    /// The devices on whose legacy default stream an event must still be recorded, as while that is being captured.
    needs_legacy: SmallVec<[i32; 1]>,
}

/// What is waited for next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    /// Work that this stream of a device, or of a thread, had.
    Stream(StreamIdentity),
    /// The end of a capture on the legacy default stream of a device.
    Capture(i32),
    /// Work of a device of which the driver did not tell whether it is done.
    Unknown(i32),
}

impl Behind {
    pub(super) fn new(ordinal: i32, events: impl Iterator<Item = Event>) -> Self {
        Self { ordinal, events: events.map(Arc::new).collect(), needs_legacy: SmallVec::new() }
    }

    /// Returns the work that a stream of ours has now.
    ///
    /// # Errors
    /// When no event can be recorded.
    pub(crate) fn recorded(current: &Current, stream: Stream, wait: Wait) -> Called<Self> {
        let event = if wait.is_skipped() { None } else { Some(Event::record(current, stream)?) };
        Ok(Self::new(current.device().ordinal(), event.into_iter()))
    }

    /// Adds the work that the legacy default stream of each of these devices has now.
    pub(super) fn and_legacy(self, ordinals: impl IntoIterator<Item = i32>) -> Self {
        let mut behind = Self { needs_legacy: ordinals.into_iter().collect(), ..self };
        if let Some(Ok(current)) = behind.enter() {
            // Otherwise it is recorded when the memory is looked at.
            let _ = behind.record_legacy(&current);
        }
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
        if let Some(ordinal) = self.needs_legacy.last().filter(|_| !Wait::ReleaseBehindLegacy.is_skipped()) {
            return Some(Awaited::Capture(*ordinal));
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
        Ok(self.record_legacy(current)? && self.is_done_here()?)
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

    /// Records the missing events on legacy default streams, which wait for all blocking streams of their device. Returns false while one
    /// of them is captured.
    ///
    /// # Errors
    /// When the driver fails.
    fn record_legacy(&mut self, current: &Current) -> Called<bool> {
        if Wait::ReleaseBehindLegacy.is_skipped() {
            return Ok(true);
        }
        while let Some(ordinal) = self.needs_legacy.last().copied() {
            let entered = match ordinal == current.device().ordinal() {
                true => None,
                false => CudaDevice::in_use().find(|device| device.ordinal() == ordinal),
            };
            let entered = entered.map(CudaDevice::enter_unchecked).transpose()?;
            let current = entered.as_ref().unwrap_or(current);
            // Recording an event would break the capture, or become a part of it.
            if current.is_capturing(Stream::LEGACY)? {
                return Ok(false);
            }
            let event = Event::record(current, Stream::LEGACY)?;
            // The new event comes after these, because nobody destroys that stream. Each device has one, by the same number.
            let is_before =
                |earlier: &Event| earlier.stream() == Stream::LEGACY && earlier.device().ordinal() == ordinal;
            self.events.retain(|earlier| !is_before(earlier));
            self.events.push(Arc::new(event));
            self.needs_legacy.pop();
        }
        Ok(true)
    }
}
