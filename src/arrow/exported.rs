//! [`Exported`]: a C struct of the Arrow interfaces that is released when it is dropped.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;

use crate::ffi::arrow_device::{ArrowArray, ArrowArrayStream, ArrowDeviceArray, ArrowDeviceArrayStream, ArrowSchema};

/// An exported C struct. Dropping it releases what it holds, unless a consumer moved that out.
///
/// A consumer that takes a pointer, such as [`DeviceArray::import_device`](super::DeviceArray::import_device),
/// gets [`Exported::as_mut_ptr`]: it moves the struct out and marks this one as released. One that takes the struct, or
/// that releases it later, gets [`Exported::into_raw`].
pub struct Exported<S> {
    raw: S,
    /// Releases a struct that is not released yet.
    release: unsafe fn(*mut S),
}

// SAFETY: made by this crate alone, of an array, a schema or a stream. The C interfaces let each of them be moved to and
// released on any thread, and what we export is Send.
unsafe impl<S> Send for Exported<S> {}

impl<S> Exported<S> {
    /// Hands the struct over: its receiver calls its `release` callback once.
    #[must_use = "a struct that nobody releases leaks"]
    pub fn into_raw(self) -> S {
        let exported = ManuallyDrop::new(self);
        // SAFETY: an initialised member, which ManuallyDrop keeps from being used again.
        unsafe { (&raw const exported.raw).read() }
    }

    /// Returns the struct, for code of this crate that completes it.
    pub(super) fn as_mut(&mut self) -> &mut S {
        &mut self.raw
    }

    /// Returns the address of the struct, for a consumer that moves the struct out.
    #[must_use]
    pub fn as_mut_ptr(&mut self) -> *mut S {
        &raw mut self.raw
    }
}

impl<S> Deref for Exported<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.raw
    }
}

impl<S> Drop for Exported<S> {
    fn drop(&mut self) {
        // SAFETY: a struct of ours that nobody but its consumer has changed, who at most marked it as released.
        unsafe { (self.release)(&raw mut self.raw) };
    }
}

impl<S: fmt::Debug> fmt::Debug for Exported<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Exported").field(&self.raw).finish()
    }
}

macro_rules! exported {
    ($($type:ident),+) => {
        $(impl Exported<$type> {
            /// Owns a struct that this crate just made.
            ///
            /// # Safety
            /// The struct is as its interface describes it, and nobody else releases it.
            pub(crate) unsafe fn new(raw: $type) -> Self {
                /// # Safety
                /// `this` points to a struct as its interface describes it, which is ours to release.
                unsafe fn release(this: *mut $type) {
                    // SAFETY: `this` points to a struct (a clause of `# Safety`), whose member is copied.
                    let Some(release) = (unsafe { (*this).release }) else { return };
                    // SAFETY: not released yet, because its callback is there, and ours to release (a clause of `# Safety`).
                    unsafe { release(this) };
                }
                Self { raw, release }
            }
        })+
    };
}
exported!(ArrowArray, ArrowSchema, ArrowArrayStream, ArrowDeviceArrayStream);

impl Exported<ArrowDeviceArray> {
    /// Owns a struct that this crate just made.
    ///
    /// # Safety
    /// The struct is as the C device interface describes it, and nobody else releases it.
    pub(crate) unsafe fn new(raw: ArrowDeviceArray) -> Self {
        /// # Safety
        /// `this` points to a struct as the C device interface describes it, which is ours to release.
        unsafe fn release(this: *mut ArrowDeviceArray) {
            // SAFETY: `this` points to a struct (a clause of `# Safety`), whose member is copied.
            let Some(release) = (unsafe { (*this).array.release }) else { return };
            // SAFETY: `this` points to a struct (a clause of `# Safety`), which makes this the address of its member.
            let array = unsafe { &raw mut (*this).array };
            // SAFETY: not released yet, because its callback is there, and ours to release (a clause of `# Safety`).
            unsafe { release(array) };
        }
        Self { raw, release }
    }
}
