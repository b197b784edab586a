//! Memory that nobody refers to any more, but that work on a device may still use.
//!
//! It is looked at whenever something on a device is imported or exported, and never waited for. What is there when the
//! process ends is left to the driver.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};

use smallvec::SmallVec;

use super::Wait;
use crate::cuda::{CudaDevice, Current, Event, Stream, is_forked, release_abandoned};

/// Frees memory, or gives it back to its owner.
pub(super) type Release = Box<dyn FnOnce() + Send>;

struct Waiting {
    ordinal: i32,
    events: SmallVec<[Event; 2]>,
    /// Whether no event could be recorded on the legacy default stream yet: while it is being captured, say.
    behind_legacy: bool,
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
    let limbo = LIMBO.lock().unwrap_or_else(PoisonError::into_inner);
    let waiting = limbo.iter().filter(|entry| entry.ordinal == ordinal);
    waiting.fold((0, 0), |(blocks, bytes), entry| (blocks + 1, bytes + entry.bytes))
}

/// Releases memory of so many bytes when the events are complete, and, if it was lent out, what the legacy default stream of the
/// device has now.
pub(super) fn release_behind(
    ordinal: i32,
    mut events: SmallVec<[Event; 2]>,
    is_lent: bool,
    bytes: usize,
    release: Release,
) {
    // Until an event is recorded there, whoever looks at the entry records it first.
    let mut behind_legacy = is_lent;
    if let Some(current) = enter(ordinal) {
        if let (true, Ok(event)) = (behind_legacy, record_legacy(&current)) {
            events.extend(event);
            behind_legacy = false;
        }
        if !behind_legacy && are_complete(&current, &mut events) {
            drop(current);
            return release();
        }
    }
    LIMBO.lock().unwrap_or_else(PoisonError::into_inner).push(Waiting {
        ordinal,
        events,
        behind_legacy,
        bytes,
        release,
    });
    COUNT.fetch_add(1, Ordering::AcqRel);
}

/// An event on the legacy default stream, which waits for all blocking streams; an error while that is not possible.
fn record_legacy(current: &Current) -> Result<Option<Event>, ()> {
    if Wait::ReleaseBehindLegacy.is_skipped() {
        return Ok(None);
    }
    // A record would break the capture, or become a part of it.
    if current.is_capturing(Stream::LEGACY) != Ok(false) {
        return Err(());
    }
    Event::record(current, Stream::LEGACY).map(Some).map_err(|_| ())
}

/// Drops the events that are complete; tells whether none is left.
fn are_complete(current: &Current, events: &mut SmallVec<[Event; 2]>) -> bool {
    events.retain(|event| current.is_complete(*event.handle()) != Ok(true));
    events.is_empty()
}

/// Releases what nothing uses any more. Never waits.
pub(crate) fn drain() {
    release_abandoned();
    if COUNT.load(Ordering::Acquire) == 0 || is_forked() {
        return;
    }
    let waiting = match LIMBO.try_lock() {
        Ok(mut limbo) => std::mem::take(&mut *limbo),
        Err(TryLockError::Poisoned(limbo)) => std::mem::take(&mut *limbo.into_inner()),
        // Another thread is at it.
        Err(TryLockError::WouldBlock) => return,
    };
    let (mut still, mut free) = (Vec::new(), Vec::new());
    for mut entry in waiting {
        if is_free(&mut entry) { free.push(entry.release) } else { still.push(entry) }
    }
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
    let Some(current) = enter(entry.ordinal) else { return false };
    if entry.behind_legacy {
        match record_legacy(&current) {
            Ok(event) => {
                entry.events.extend(event);
                entry.behind_legacy = false;
            }
            Err(()) => return false,
        }
    }
    are_complete(&current, &mut entry.events)
}
