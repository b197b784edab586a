//! Who releases an imported array, and when?

use crate::ffi::arrow_device::{ArrowArray, ArrowDeviceArray};
use crate::stream_order::Readiness;

/// Runs a foreign release callback, or decides that it cannot run any more. Memory that came through an interpreter
/// must be released attached to it.
#[doc(hidden)]
pub type ReleaseGuard = fn(&mut dyn FnMut());

/// The guard of callbacks that may run on any thread, at any time.
pub(crate) fn release_directly(release: &mut dyn FnMut()) {
    release();
}

/// An `ArrowDeviceArray` that is released exactly once.
///
/// The invariant `imported`: `array` was moved here whole, and is as the C device interface describes it until its
/// release: pointer arrays have the lengths that the struct gives, children and dictionary are alive.
pub(super) struct Imported {
    pub(super) array: ArrowDeviceArray,
    pub(super) guard: ReleaseGuard,
    /// When the memory is written; `None` for ordinary host memory.
    pub(super) readiness: Option<Readiness>,
    /// Whether this owner releases the memory behind the work that may use it. Sharers of its memory do not.
    pub(super) in_order: bool,
}

// SAFETY: the Arrow C data interface lets an array be moved to and released on any thread; the guard adds what its
// producer needs on top.
unsafe impl Send for Imported {}
// SAFETY: the struct and its buffers are immutable until released, which needs exclusive access.
unsafe impl Sync for Imported {}

impl Drop for Imported {
    fn drop(&mut self) {
        if self.array.array.release.is_none() {
            return;
        }
        match self.readiness.take().filter(|_| self.in_order) {
            None => release_array(&mut self.array.array, self.guard),
            Some(readiness) => {
                let array = std::mem::replace(&mut self.array, ArrowDeviceArray::empty());
                let moved = Self { array, guard: self.guard, readiness: None, in_order: false };
                readiness.release(move || drop(moved));
            }
        }
    }
}

/// Releases an array that was moved to us whole.
fn release_array(array: &mut ArrowArray, guard: ReleaseGuard) {
    let mut release = array.release.take();
    let array: *mut ArrowArray = array;
    guard(&mut || {
        // The callback is called once, however often the guard calls.
        let Some(release) = release.take() else { return };
        // The callback receives the struct as its producer left it, release pointer included.
        // SAFETY: `array` is borrowed by this function.
        unsafe { (*array).release = Some(release) };
        // SAFETY: the struct was moved to us whole, so it is ours to release, and `take` made this the only call.
        unsafe { release(array) };
    });
}
