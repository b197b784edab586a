//! Deferred frees: blocks without owners that device work may still use.
//!
//! Every import and export on a device checks the list, and nothing waits for it. When the process ends, the driver
//! frees the rest.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};

use smallvec::SmallVec;

use super::Wait;
use crate::cuda::{Called, CudaDevice, Current, Event, Stream, is_forked, release_abandoned, thread_sync};

/// Frees memory, or gives it back to its owner.
pub(super) type Release = Box<dyn FnOnce() + Send>;

/// Work that has to be done before memory is used for something else.
pub(crate) struct Behind {
    ordinal: i32,
    events: SmallVec<[Event; 2]>,
    /// Whether an event has to be recorded on the legacy default stream yet, as while it is being captured.
    needs_legacy: bool,
}

struct Waiting {
    behind: Behind,
    /// Of memory of ours; that of others is theirs to count.
    bytes: usize,
    release: Release,
}

static LIMBO: Mutex<Vec<Waiting>> = Mutex::new(Vec::new());
/// The number of entries, to be looked at without the lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// How many blocks of memory wait to be released: those that work on a device may still use.
#[must_use]
pub fn waiting() -> usize {
    COUNT.load(Ordering::Acquire)
}

/// How many blocks of memory of a device wait to be released, and how many bytes of ours they have.
pub(super) fn waiting_on(ordinal: i32) -> (usize, usize) {
    let deferred_free = LIMBO.lock().unwrap_or_else(PoisonError::into_inner);
    let waiting = deferred_free.iter().filter(|entry| entry.behind.ordinal == ordinal);
    waiting.fold((0, 0), |(blocks, bytes), entry| (blocks + 1, bytes + entry.bytes))
}

impl Behind {
    pub(super) fn new(ordinal: i32, events: SmallVec<[Event; 2]>) -> Self {
        Self { ordinal, events, needs_legacy: false }
    }

    /// The work that a stream of ours has now.
    ///
    /// # Errors
    /// When no event can be recorded.
    pub(crate) fn recorded(current: &Current, stream: Stream, wait: Wait) -> Called<Self> {
        let event = if wait.is_skipped() { None } else { Some(Event::record(current, stream)?) };
        Ok(Self::new(current.device().ordinal(), event.into_iter().collect()))
    }

    /// And what the legacy default stream of the device has now.
    pub(super) fn and_legacy(self) -> Self {
        let mut behind = Self { needs_legacy: true, ..self };
        if let Some(current) = enter(behind.ordinal) {
            behind.record_legacy(&current);
        }
        behind
    }

    /// Whether all of it is done. Never waits.
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

    /// Releases memory, of which so many bytes are ours, when all of it is done.
    pub(crate) fn then(mut self, bytes: usize, release: Release) {
        let is_done = enter(self.ordinal).is_some_and(|current| self.is_done(&current) == Ok(true));
        if is_done {
            return release();
        }
        thread_sync::send((&raw const LIMBO).addr());
        let mut deferred_free = LIMBO.lock().unwrap_or_else(PoisonError::into_inner);
        deferred_free.push(Waiting { behind: self, bytes, release });
        // Under the lock: a drain beside this would take the entry off the count before it was counted.
        COUNT.fetch_add(1, Ordering::AcqRel);
    }

    /// Records an event on the legacy default stream, which waits for all blocking streams, if that has to be yet; false while
    /// it is not possible.
    fn record_legacy(&mut self, current: &Current) -> bool {
        if !self.needs_legacy || Wait::ReleaseBehindLegacy.is_skipped() {
            return true;
        }
        // A record would break the capture, or become a part of it.
        if current.is_capturing(Stream::LEGACY) != Ok(false) {
            return false;
        }
        let Ok(event) = Event::record(current, Stream::LEGACY) else { return false };
        self.events.push(event);
        self.needs_legacy = false;
        true
    }
}

/// Releases what nothing uses any more. Never waits.
pub(crate) fn drain() {
    release_abandoned();
    if COUNT.load(Ordering::Acquire) == 0 || is_forked() {
        return;
    }
    let waiting = match LIMBO.try_lock() {
        Ok(mut deferred_free) => std::mem::take(&mut *deferred_free),
        Err(TryLockError::Poisoned(deferred_free)) => std::mem::take(&mut *deferred_free.into_inner()),
        // Another thread is at it.
        Err(TryLockError::WouldBlock) => return,
    };
    // Of an entry's events, another thread may have seen some complete.
    thread_sync::receive((&raw const LIMBO).addr());
    let (mut still, mut free) = (Vec::new(), Vec::new());
    for mut entry in waiting {
        if is_free(&mut entry) { free.push(entry.release) } else { still.push(entry) }
    }
    thread_sync::send((&raw const LIMBO).addr());
    LIMBO.lock().unwrap_or_else(PoisonError::into_inner).append(&mut still);
    COUNT.fetch_sub(free.len(), Ordering::AcqRel);
    // Without the lock: what is released may come back here.
    for release in free {
        release();
    }
}

/// The context of a device, unless the driver refuses, at the end of the process at the latest: nothing is to be freed then.
fn enter(ordinal: i32) -> Option<Current> {
    CudaDevice::get(ordinal).ok()?.enter_unchecked().ok()
}

fn is_free(entry: &mut Waiting) -> bool {
    enter(entry.behind.ordinal).is_some_and(|current| entry.behind.is_done(&current) == Ok(true))
}
