//! Recycled CUDA events, which remember that they are complete.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use super::context::{CudaDevice, Current};
use super::driver::{Called, EventHandle, Status, is_forked};
use super::stream::{Stream, StreamIdentity};
use super::thread_sync;

/// `CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING`: a thread that waits for one sleeps, and nobody reads the time.
const FLAGS: u32 = 1 | 2;
/// The most idle events that each device keeps.
const KEPT: usize = 256;
/// The bit of a record that was seen complete.
const COMPLETE: u64 = 1;

/// A recorded event. Dropping it recycles its handle: waits that were already issued refer to the record that they
/// found.
#[derive(Debug)]
pub(crate) struct Event {
    device: &'static CudaDevice,
    handle: EventHandle,
    /// The stream of the first record.
    stream: StreamIdentity,
    /// Changes with each record; odd if that record was seen complete.
    record: AtomicU64,
}

impl Event {
    /// Records an event that completes when the work that `stream`, of the current context, has now is done.
    pub(crate) fn record(current: &Current, stream: Stream) -> Called<Self> {
        let device = current.device();
        let kept = device.events.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut handle = kept.unwrap_or(EventHandle::NULL);
        if handle.is_null() {
            // Foreign code may have left another context, whose event this would be.
            current.restore()?;
            // SAFETY: `handle` is a local that the driver sets; the device's context is current.
            unsafe { device.driver.event_create(&raw mut handle, FLAGS) }?;
        }
        let event = Self { device, handle, stream: current.identity(stream), record: AtomicU64::new(0) };
        // SAFETY: the event is of the current context; that the stream is alive is the word of whoever named it.
        let record = || unsafe { device.driver.event_record(handle, stream.handle()) };
        let mut recorded = record();
        // The default streams are those of the current context.
        if recorded.is_err_and(|status| stream.is_default() && status.is_of_no_stream()) && current.restore().is_ok() {
            recorded = record();
        }
        if let Err(status) = recorded {
            // An event of another context would fail all later records, too.
            std::mem::ManuallyDrop::new(event).destroy();
            return Err(status);
        }
        Ok(event)
    }

    /// Returns whether the event is known to be complete, without a call of the driver.
    pub(crate) fn is_known_complete(&self) -> bool {
        let is_complete = self.record.load(Ordering::Acquire) & COMPLETE != 0;
        if is_complete {
            thread_sync::receive(self.handle.address());
        }
        is_complete
    }

    /// Returns whether the event is complete, which is asked until it once was. Never waits.
    ///
    /// # Errors
    /// If the driver fails.
    pub(crate) fn is_complete(&self, _: &Current) -> Called<bool> {
        self.is_complete_here()
    }

    /// As [`Event::is_complete`], on a thread in which the device's context is current.
    pub(crate) fn is_complete_here(&self) -> Called<bool> {
        if self.is_known_complete() {
            return Ok(true);
        }
        let record = self.record.load(Ordering::Acquire);
        let is_complete = self.device.is_complete(self.handle)?;
        if is_complete {
            self.seen_complete(record);
        }
        Ok(is_complete)
    }

    /// Waits until the event is complete. The thread sleeps in the driver, and no signal wakes it.
    ///
    /// # Errors
    /// If the driver fails.
    pub(crate) fn synchronize(&self) -> Called {
        if self.is_known_complete() {
            return Ok(());
        }
        let record = self.record.load(Ordering::Acquire);
        // SAFETY: an event of ours, which lives as long as this.
        unsafe { self.device.driver.event_synchronize(self.handle) }?;
        self.seen_complete(record);
        Ok(())
    }

    /// Remembers that a record is complete, unless there is another by now.
    fn seen_complete(&self, record: u64) {
        thread_sync::send(self.handle.address());
        let _ = self.record.compare_exchange(record, record | COMPLETE, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Records the event again: it completes when the work that `stream`, of the current context, has now is done.
    pub(crate) fn record_again(&self, current: &Current, stream: Stream) -> Called {
        self.forget_completion();
        // SAFETY: the event is of the current context; that the stream is alive is the word of whoever named it.
        let recorded = unsafe { current.driver().event_record(self.handle, stream.handle()) };
        // Once more, because a thread that asked in between may have been told of the record before.
        self.forget_completion();
        recorded
    }

    fn forget_completion(&self) {
        let next = |record: u64| Some((record & !COMPLETE).wrapping_add(COMPLETE + 1));
        let _ = self.record.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
    }

    pub(crate) fn device(&self) -> &'static CudaDevice {
        self.device
    }

    /// Returns the stream of the first record.
    pub(crate) fn stream(&self) -> Stream {
        self.stream.stream()
    }

    /// Returns which stream that was, of all devices and threads.
    pub(crate) fn identity(&self) -> StreamIdentity {
        self.stream
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
        self.destroy();
    }
}

impl Event {
    /// Destroys the event in the driver.
    fn destroy(&self) {
        // The driver frees an incomplete event when it completes.
        // SAFETY: an event of ours, which nobody uses after this: it is being dropped, or never was.
        let destroy = || unsafe { self.device.driver.event_destroy(self.handle) };
        // An event knows its context, but a driver may ask for a current one. After any other error the event may be destroyed.
        if destroy().is_err_and(Status::refused_the_call)
            && let Ok(_current) = self.device.enter_unchecked()
        {
            // Where it fails, the event is lost, and nothing else.
            let _ = destroy();
        }
    }
}

impl Current {
    /// Makes later work of the stream wait for an event.
    pub(crate) fn stream_waits(&self, stream: Stream, event: EventHandle) -> Called {
        self.device().stream_waits(stream, event)
    }
}

impl CudaDevice {
    /// As [`Current::stream_waits`], on a thread in which any context may be current if `stream` is no default stream.
    pub(crate) fn stream_waits(&self, stream: Stream, event: EventHandle) -> Called {
        // SAFETY: that handles of others are alive is their owners' word; what the driver finds wrong is an error.
        unsafe { self.driver.stream_wait_event(stream.handle(), event, 0) }
    }

    /// Returns whether an event is complete, on a thread in which the device's context is current.
    pub(crate) fn is_complete(&self, event: EventHandle) -> Called<bool> {
        // SAFETY: that handles of others are alive is their owners' word; what the driver finds wrong is an error.
        match unsafe { self.driver.event_query(event) } {
            Ok(()) => Ok(true),
            Err(Status { code: Status::NOT_READY, .. }) => Ok(false),
            Err(status) => Err(status),
        }
    }
}
