//! Releases memory behind the work that may still use it.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;

use super::behind::{Behind, Unrecorded};
use super::{Readiness, Use, Wait, host, is_available};
use crate::cuda::{CudaDevice, Event, Stream, is_cuda, is_forked, is_host_visible};

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
        let (mut events, mut streams) = (SmallVec::<[Event; 2]>::new(), SmallVec::new());
        // Both: the stream may be a later one that has the handle of the first.
        for Use { ordinal, stream, owner, event, .. } in uses {
            events.extend(event.filter(|event| !event.is_known_complete()));
            // By this number another thread would ask its own one.
            let stream = stream.filter(|stream| *stream != Stream::PER_THREAD);
            streams.extend(stream.map(|stream| Unrecorded { ordinal, stream, owner }));
        }
        if lent && !Wait::ReleaseBehindLegacy.is_skipped() {
            let legacy = |ordinal| Unrecorded { ordinal, stream: Stream::LEGACY, owner: None };
            streams.extend(self.reached_from().into_iter().map(legacy));
        }
        End::Behind(Behind::new(self.home(), events.into_iter()).and_work_of(streams))
    }

    /// The devices from which others may use the memory: page-locked and managed memory is every device's.
    fn reached_from(&self) -> SmallVec<[i32; 2]> {
        let own = self.home();
        let mut ordinals = SmallVec::from_iter([own]);
        if is_host_visible(self.0.device) {
            let active = host::device(own).ok().and_then(|device| device.active().ok());
            // Where the driver does not tell which devices are used, those that this package uses are.
            let active = active.unwrap_or_else(|| CudaDevice::in_use().map(CudaDevice::ordinal).collect());
            ordinals.extend(active.into_iter().filter(|other| *other != own));
        }
        ordinals
    }
}
