//! Releases memory behind the work that may still use it.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;

use super::behind::Behind;
use super::{Readiness, Use, host, is_available};
use crate::cuda::{Event, Stream, is_cuda, is_forked, is_host_visible};

/// What must be done before memory is reused.
pub(crate) enum End {
    /// Nothing: nobody has used it.
    Now,
    /// Work that may use it still.
    Behind(Behind),
    /// The memory is another process's, or its users cannot be known.
    Never,
}

impl Readiness {
    /// Releases the memory: at once if nobody has used it, else behind the work that may still use it.
    pub(crate) fn release(&self, release: impl FnOnce() + Send + 'static) {
        self.release_bytes(0, release);
    }

    /// Like [`Readiness::release`], with `bytes` of our own memory.
    pub(crate) fn release_bytes(&self, bytes: usize, release: impl FnOnce() + Send + 'static) {
        match self.end() {
            End::Now => release(),
            End::Behind(behind) => behind.then(bytes, Box::new(release)),
            End::Never => std::mem::forget(release),
        }
    }

    /// Returns what must be done before the memory is reused, now that it has no owners.
    pub(crate) fn end(&self) -> End {
        if !is_cuda(self.0.device) {
            return End::Now;
        }
        // After a fork the memory is the parent's, and the driver does not work in the child.
        if is_forked() || self.0.lost.load(Ordering::Acquire) {
            return End::Never;
        }
        let uses = std::mem::take(&mut *self.0.uses.lock().unwrap_or_else(PoisonError::into_inner));
        let lent = self.0.lent.load(Ordering::Acquire);
        // Without a driver nobody can have used the memory.
        if !lent && uses.is_empty() || !is_available() {
            return End::Now;
        }
        let uses = uses.into_iter().filter(|used| !used.wait.is_skipped());
        // Both events: the stream may be a later one that has the handle of the first.
        let events = uses.flat_map(|Use { ordinal, stream, event, .. }| {
            let event = event.filter(|event| !event.is_known_complete());
            [event, stream.and_then(|stream| recorded_again(ordinal, stream))].into_iter().flatten()
        });
        let behind = Behind::new(self.home(), events);
        End::Behind(if lent { behind.and_legacy(self.reached_from()) } else { behind })
    }

    /// The devices from which others may use the memory: page-locked and managed memory is every device's.
    fn reached_from(&self) -> SmallVec<[i32; 2]> {
        let own = self.home();
        let mut ordinals = SmallVec::from_iter([own]);
        if is_host_visible(self.0.device) {
            let active = host::device(own).ok().and_then(|device| device.active().ok()).unwrap_or_default();
            ordinals.extend(active.into_iter().filter(|other| *other != own && host::device(*other).is_ok()));
        }
        ordinals
    }
}

/// Records an event behind the work that a stream got since; `None` if the driver cannot, as when the stream was
/// destroyed.
pub(super) fn recorded_again(ordinal: i32, stream: Stream) -> Option<Event> {
    let current = host::device(ordinal).ok()?.enter_unchecked().ok()?;
    (current.is_capturing(stream) == Ok(false)).then(|| Event::record(&current, stream).ok())?
}
