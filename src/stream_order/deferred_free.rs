//! Deferred frees: blocks without owners that device work may still use.
//!
//! Every import and export on a device checks the list, and nothing waits for it. When the process ends, the driver
//! frees the rest.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};

use smallvec::SmallVec;

use super::Wait;
use crate::cuda::{Called, CudaDevice, Current, Event, Stream, is_forked, release_abandoned, thread_sync};

/// Frees memory, or returns it to its owner.
pub(super) type Release = Box<dyn FnOnce() + Send>;

/// The work that must be done before memory is reused.
pub(crate) struct Behind {
    ordinal: i32,
    events: SmallVec<[Event; 2]>,
    /// Whether an event must still be recorded on the legacy default stream, because that was being captured.
    needs_legacy: bool,
}

struct Waiting {
    behind: Behind,
    /// Bytes of our own memory; other owners count theirs.
    bytes: usize,
    release: Release,
}

static DEFERRED: Mutex<Vec<Waiting>> = Mutex::new(Vec::new());
/// The number of entries, readable without the lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of deferred frees: blocks that device work may still use.
#[cfg(feature = "python")]
#[must_use]
pub(crate) fn waiting() -> usize {
    COUNT.load(Ordering::Acquire)
}

/// Returns the number of deferred frees of a device, and how many bytes of our own memory they hold.
pub(super) fn waiting_on(ordinal: i32) -> (usize, usize) {
    let deferred_free = DEFERRED.lock().unwrap_or_else(PoisonError::into_inner);
    let waiting = deferred_free.iter().filter(|entry| entry.behind.ordinal == ordinal);
    waiting.fold((0, 0), |(blocks, bytes), entry| (blocks + 1, bytes + entry.bytes))
}

impl Behind {
    pub(super) fn new(ordinal: i32, events: SmallVec<[Event; 2]>) -> Self {
        Self { ordinal, events, needs_legacy: false }
    }

    /// Returns the work that a stream of ours has now.
    ///
    /// # Errors
    /// When no event can be recorded.
    pub(crate) fn recorded(current: &Current, stream: Stream, wait: Wait) -> Called<Self> {
        let event = if wait.is_skipped() { None } else { Some(Event::record(current, stream)?) };
        Ok(Self::new(current.device().ordinal(), event.into_iter().collect()))
    }

    /// Adds the work that the legacy default stream of the device has now.
    pub(super) fn and_legacy(self) -> Self {
        let mut behind = Self { needs_legacy: true, ..self };
        if let Some(current) = enter(behind.ordinal) {
            behind.record_legacy(&current);
        }
        behind
    }

    /// Returns whether all work is done. Never waits.
    ///
    /// # Errors
    /// When the driver fails.
    pub(crate) fn is_done(&mut self, current: &Current) -> Called<bool> {
        if !self.record_legacy(current) {
            return Ok(false);
        }
        while let Some(event) = self.events.last() {
            if !current.is_complete(*event.handle())? {
                return Ok(false);
            }
            self.events.pop();
        }
        Ok(true)
    }

    /// Releases memory once all work is done. `bytes` of it are our own.
    pub(crate) fn then(mut self, bytes: usize, release: Release) {
        let is_done = enter(self.ordinal).is_some_and(|current| self.is_done(&current) == Ok(true));
        if is_done {
            return release();
        }
        thread_sync::send((&raw const DEFERRED).addr());
        let mut deferred_free = DEFERRED.lock().unwrap_or_else(PoisonError::into_inner);
        deferred_free.push(Waiting { behind: self, bytes, release });
        // Under the lock, because a concurrent drain would uncount the entry before it was counted.
        COUNT.fetch_add(1, Ordering::AcqRel);
    }

    /// Records the missing event on the legacy default stream, which waits for all blocking streams. Returns false
    /// while that is impossible.
    fn record_legacy(&mut self, current: &Current) -> bool {
        if !self.needs_legacy || Wait::ReleaseBehindLegacy.is_skipped() {
            return true;
        }
        // Recording an event would break the capture, or become a part of it.
        if current.is_capturing(Stream::LEGACY) != Ok(false) {
            return false;
        }
        let Ok(event) = Event::record(current, Stream::LEGACY) else { return false };
        self.events.push(event);
        self.needs_legacy = false;
        true
    }
}

/// Releases the blocks that nothing uses any more. Never waits.
pub(crate) fn drain() {
    release_abandoned();
    if COUNT.load(Ordering::Acquire) == 0 || is_forked() {
        return;
    }
    let waiting = match DEFERRED.try_lock() {
        Ok(mut deferred_free) => std::mem::take(&mut *deferred_free),
        Err(TryLockError::Poisoned(deferred_free)) => std::mem::take(&mut *deferred_free.into_inner()),
        // Another thread is at it.
        Err(TryLockError::WouldBlock) => return,
    };
    // Another thread may have seen some of an entry's events complete.
    thread_sync::receive((&raw const DEFERRED).addr());
    let (mut still, mut free) = (Vec::new(), Vec::new());
    for mut entry in waiting {
        if is_free(&mut entry) { free.push(entry.release) } else { still.push(entry) }
    }
    thread_sync::send((&raw const DEFERRED).addr());
    DEFERRED.lock().unwrap_or_else(PoisonError::into_inner).append(&mut still);
    COUNT.fetch_sub(free.len(), Ordering::AcqRel);
    // Without the lock, because a release may call back into this function.
    for release in free {
        release();
    }
}

/// Returns the context of a device, unless the driver refuses, as at the end of the process: then nothing may be freed.
fn enter(ordinal: i32) -> Option<Current> {
    CudaDevice::get(ordinal).ok()?.enter_unchecked().ok()
}

fn is_free(entry: &mut Waiting) -> bool {
    enter(entry.behind.ordinal).is_some_and(|current| entry.behind.is_done(&current) == Ok(true))
}
