//! Recycled CUDA events.

use std::sync::PoisonError;

use super::context::{CudaDevice, Current};
use super::driver::{Called, EventHandle, Status, is_forked};
use super::stream::Stream;

/// `CU_EVENT_DISABLE_TIMING`: cheaper, and nobody reads the time.
const DISABLE_TIMING: u32 = 2;
/// The most idle events that each device keeps.
const KEPT: usize = 256;

/// A recorded event. Dropping it recycles its handle: waits that were already issued refer to the record that they
/// found.
#[derive(Debug)]
pub(crate) struct Event {
    device: &'static CudaDevice,
    handle: EventHandle,
}

impl Event {
    /// Records an event that completes when the work that `stream`, of the current context, has now is done.
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

    /// Returns whether the event is complete.
    pub(super) fn is_complete(&self) -> Called<bool> {
        self.device.enter_unchecked()?.is_complete(self.handle)
    }

    /// Records the event again: it completes when the work that `stream`, of the current context, has now is done.
    pub(crate) fn record_again(&self, current: &Current, stream: Stream) -> Called {
        // SAFETY: the event is of the current context; that the stream is alive is the word of whoever named it.
        unsafe { current.driver().event_record(self.handle, stream.handle()) }
    }

    /// Returns the handle, at an address that is valid while this is not moved.
    pub(crate) fn handle(&self) -> &EventHandle {
        &self.handle
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // In a forked process the holder of the lock does not exist, and the event is the parent's.
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
        // The driver frees an incomplete event when it completes.
        // SAFETY: an event of ours, which nobody uses after this. Where it fails, the event is lost, and nothing else.
        let _ = unsafe { self.device.driver.event_destroy(self.handle) };
    }
}

impl Current {
    /// Makes later work of the stream wait for an event.
    pub(crate) fn stream_waits(&self, stream: Stream, event: EventHandle) -> Called {
        // SAFETY: that handles of others are alive is their owners' word; what the driver finds wrong is an error.
        unsafe { self.driver().stream_wait_event(stream.handle(), event, 0) }
    }

    /// Returns whether an event is complete.
    pub(crate) fn is_complete(&self, event: EventHandle) -> Called<bool> {
        self.device().is_complete(event)
    }
}

impl CudaDevice {
    /// As [`Current::is_complete`], on a thread in which the device's context is current.
    pub(crate) fn is_complete(&self, event: EventHandle) -> Called<bool> {
        // SAFETY: that handles of others are alive is their owners' word; what the driver finds wrong is an error.
        match unsafe { self.driver.event_query(event) } {
            Ok(()) => Ok(true),
            Err(Status { code: Status::NOT_READY, .. }) => Ok(false),
            Err(status) => Err(status),
        }
    }
}
