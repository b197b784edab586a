//! Did another library record its event in a stream under capture?

use std::sync::{Arc, OnceLock, Weak};

use super::capture::event_captured;
use crate::alloc::Owner;
use crate::cuda::{Current, EventHandle, PooledStream};
use crate::error::Result;

/// Another library's event.
pub(super) struct ForeignEvent {
    /// Leads to the handle, which lives as long as the memory's owner, if that is known.
    address: *const EventHandle,
    owner: OnceLock<Weak<dyn Send + Sync>>,
    /// Whether the event is of a capture, once a stream of ours has waited for it. Not asked again: nobody records the event of an
    /// array that was given away in a later capture.
    is_captured: OnceLock<bool>,
}

// SAFETY: a pointer to a handle that does not change, and a name for an object of the driver.
unsafe impl Send for ForeignEvent {}
// SAFETY: a shared reference reads the handle, which does not change, and the driver may be called from any thread.
unsafe impl Sync for ForeignEvent {}

impl ForeignEvent {
    /// Returns the event whose handle is at an address, or none that is waited for if that is NULL.
    pub(super) fn new(address: *const EventHandle) -> Self {
        Self { address, owner: OnceLock::new(), is_captured: OnceLock::new() }
    }

    pub(super) fn address(&self) -> *const EventHandle {
        self.address
    }

    /// Sets who owns the memory, and with it the event: clones of its readiness may outlive both.
    pub(super) fn owned_by(&self, owner: &Owner) {
        // It has one owner.
        let _ = self.owner.set(Arc::downgrade(owner));
    }

    /// Returns the event to wait for. Only called when the device's runtime is present.
    pub(super) fn handle(&self) -> Option<EventHandle> {
        if self.address.is_null() {
            return None;
        }
        // Memory that was released has nothing to wait for.
        let _owner = match self.owner.get() {
            Some(owner) => Some(owner.upgrade()?),
            None => None,
        };
        // SAFETY: `Readiness::imported` was promised an event that lives as long as the memory's owner, which is held here, or not known
        // yet by others.
        Some(unsafe { self.address.read() }).filter(|event| !event.is_null())
    }

    /// Returns whether the event is known to be of no capture, so that any stream may wait for it, and the host may ask for it.
    pub(super) fn is_known_outside(&self) -> bool {
        self.is_captured.get() == Some(&false)
    }

    /// Refuses an event of a capture: a query of it, or the wait of the legacy default stream, would break the capture. Asks the
    /// driver once, which nothing but the wait of a stream of ours can do without harm.
    ///
    /// # Errors
    /// If the event is of a capture, or the driver fails.
    pub(super) fn refuse_captured(&self, current: &Current) -> Result<()> {
        if self.is_known_outside() || self.handle().is_none() {
            return Ok(());
        }
        self.waited_for(current, PooledStream::idle(current)?).map(drop)
    }

    /// Makes a stream of ours wait for the event.
    ///
    /// # Errors
    /// If the event is of a capture, which takes the stream, or the driver fails.
    pub(super) fn waited_for(&self, current: &Current, stream: PooledStream) -> Result<PooledStream> {
        let Some(event) = self.handle() else { return Ok(stream) };
        if self.is_captured.get() == Some(&true) {
            return Err(event_captured(current));
        }
        let waited = current.stream_waits(stream.stream(), event);
        if self.is_known_outside() {
            return Ok(waited.map(|()| stream)?);
        }
        // A stream that may be a part of a capture is never used again, so one failure of the driver is not taken for the answer.
        let is_drawn_in = current.is_capturing(stream.stream()).or_else(|_| current.is_capturing(stream.stream()));
        let stream = match is_drawn_in {
            Ok(false) => Some(stream),
            // Another wait or a query of it could break the capture.
            _ => {
                stream.leave_to_graph();
                None
            }
        };
        // The driver refuses waits for events of a capture that has ended, or was broken.
        let is_refused = waited.is_err_and(|status| status.is_of_capture());
        if !is_refused {
            waited?;
        }
        let is_captured = is_refused || is_drawn_in?;
        let _ = self.is_captured.set(is_captured);
        stream.filter(|_| !is_captured).ok_or_else(|| event_captured(current))
    }
}
