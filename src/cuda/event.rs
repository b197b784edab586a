//! Recycled CUDA events.

use std::sync::PoisonError;

use super::context::{CudaDevice, Current};
use super::driver::{Called, EventHandle, Status, is_forked};
use super::stream::Stream;

/// `CU_EVENT_DISABLE_TIMING`: cheaper, and nobody asks for the time.
const DISABLE_TIMING: u32 = 2;
/// As many are kept for later on each device.
const KEPT: usize = 256;

/// An event that was recorded once. Its handle is used for another event when this is dropped: who waits for it has been
/// told so by then, and a wait refers to the record that it found.
#[derive(Debug)]
pub(crate) struct Event {
    device: &'static CudaDevice,
    handle: EventHandle,
}

impl Event {
    /// An event that completes when the work is done that `stream`, which is of the current context, has now.
    pub(crate) fn record(current: &Current, stream: Stream) -> Called<Self> {
        let device = current.device();
        let kept = device.events.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut handle = kept.unwrap_or(EventHandle::NULL);
        if handle.is_null() {
            // SAFETY: `handle` is a local that the driver sets; the device's context is current.
            unsafe { device.driver.event_create(&raw mut handle, DISABLE_TIMING) }?;
        }
        let event = Self { device, handle };
        // SAFETY: the event is of the current context; that the stream is alive is the word of whoever named it.
        unsafe { device.driver.event_record(handle, stream.handle()) }?;
        Ok(event)
    }

    /// Whether all is done that this stands for.
    pub(super) fn is_complete(&self) -> Called<bool> {
        self.device.enter_unchecked()?.is_complete(self.handle)
    }

    /// Has the event complete when the work is done that `stream`, of the current context, has now.
    pub(crate) fn record_again(&self, current: &Current, stream: Stream) -> Called {
        // SAFETY: the event is of the current context; that the stream is alive is the word of whoever named it.
        unsafe { current.driver().event_record(self.handle, stream.handle()) }
    }

    /// The handle, where it stays as long as this does not move.
    pub(crate) fn handle(&self) -> &EventHandle {
        &self.handle
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // Whoever held the lock is not in a forked process, and the event is the other's.
        if is_forked() {
            return;
        }
        let mut events = self.device.events.lock().unwrap_or_else(PoisonError::into_inner);
        if events.len() < KEPT {
            events.push(self.handle);
            return;
        }
        drop(events);
        let Ok(_current) = self.device.enter_unchecked() else { return };
        // One that is not complete yet is freed by the driver when it is.
        // SAFETY: an event of ours, which nobody uses after this. Where it fails, the event is lost, and nothing else.
        let _ = unsafe { self.device.driver.event_destroy(self.handle) };
    }
}

impl Current {
    /// Has the stream wait, for what it is given from now on.
    pub(crate) fn stream_waits(&self, stream: Stream, event: EventHandle) -> Called {
        // SAFETY: that handles of others are alive is their owners' word; what the driver finds wrong is an error.
        unsafe { self.driver().stream_wait_event(stream.handle(), event, 0) }
    }

    /// Whether all is done that an event stands for.
    pub(crate) fn is_complete(&self, event: EventHandle) -> Called<bool> {
        // SAFETY: as above.
        match unsafe { self.driver().event_query(event) } {
            Ok(()) => Ok(true),
            Err(Status { code: Status::NOT_READY, .. }) => Ok(false),
            Err(status) => Err(status),
        }
    }
}
