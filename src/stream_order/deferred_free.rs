//! Deferred frees: blocks without owners that device work may still use.
//!
//! The reaper releases them. Without one, every import and export on a device looks at them. Nothing of a call waits for the
//! device. When the process ends, the driver frees the rest.

use super::behind::Behind;
use super::host;
use super::reaper::{self, Release, Waiting};
use crate::cuda::{Event, is_forked, is_started};

/// The most owners between a block and the memory that it keeps alive for which [`collect`] looks.
const ROUNDS: usize = 64;

/// Returns the number of deferred frees: blocks that device work may still use.
pub(super) fn waiting_on(ordinal: i32) -> (usize, usize) {
    reaper::fold((0, 0), |(blocks, bytes), entry: &Waiting| {
        if entry.behind.ordinal() == ordinal { (blocks + 1, bytes + entry.bytes) } else { (blocks, bytes) }
    })
}

impl Behind {
    /// Releases memory once all work is done. `bytes` of it are our own.
    pub(crate) fn then(mut self, bytes: usize, release: Release) {
        if is_forked() {
            // The work and the memory are the parent's.
            std::mem::forget((self, release));
            return;
        }
        if self.is_known_done() {
            return release();
        }
        reaper::defer(Waiting { behind: self, bytes, release });
    }
}

/// Returns a block of a failed conversion when the work that the conversion has started is done.
pub(super) fn retire(event: Event, bytes: usize, give_back: Release) {
    Behind::new(event.device().ordinal(), std::iter::once(event)).then(bytes, give_back);
}

/// Releases the blocks that nothing uses any more, unless the reaper does. Never waits.
pub(crate) fn look() {
    if !reaper::attends() {
        drain();
    }
}

/// Releases the blocks that nothing uses any more. Never waits. Not on a thread that stays apart from the interpreter: the
/// owner of a block may ask for it, and whoever waits for the thread may hold its lock.
pub(crate) fn drain() {
    if !host::is_apart() {
        reaper::release_done();
    }
}

/// Releases on this thread all deferred frees whose work is done, those among them that a release lets go of too, waits for
/// those that the reaper thread is releasing just now, and returns how many are left. Does not wait for a device, and loads
/// no driver.
///
/// Nobody has to call this: the reaper releases memory by itself. It helps to know that memory is back before another library
/// allocates.
pub fn collect() -> usize {
    if !is_started() {
        return 0;
    }
    // Bounded, because other threads may let go of memory all the time.
    for _ in 0..ROUNDS {
        let before = reaper::freed();
        drain();
        reaper::wait_for_releases(None);
        // What was released may have owned other memory.
        if reaper::waiting() == 0 || reaper::freed() == before {
            break;
        }
    }
    reaper::waiting()
}
