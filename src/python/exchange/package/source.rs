//! Allocators of device results that go from the package to an extension.

use std::ffi::{c_int, c_void};
use std::fmt;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use pyo3::ffi::PyObject;
use pyo3::prelude::*;

use super::layout::{
    ALLOCATED, Allocate, Deallocate, FAILED, INTERRUPTED, LentSource, Memory, NOT_HERE, OUT_OF_MEMORY, ReleaseSource,
    SOURCE_ALLOCATOR, SOURCE_POOL, SOURCE_UNPOOLED, Tell, Text,
};
use crate::callback;
use crate::cuda::{Allocated, Allocator, AllocatorError, MemorySource, Stream, set_source};
use crate::python::attach::{Raised, attached};

type SharedAllocator = Arc<dyn Allocator>;

/// `memory_source`, of the package: the context of an allocator is a box of a shared one.
///
/// # Safety
/// `out` is NULL, or a place to write to.
pub(super) unsafe extern "C" fn lend_source(out: *mut LentSource) -> c_int {
    let lend = || {
        let Some(out) = NonNull::new(out).filter(|out| out.is_aligned()) else { return -1 };
        let without = |kind| LentSource { kind, context: null_mut(), allocate: None, deallocate: None, release: None };
        let source = match set_source() {
            None => return -1,
            Some(MemorySource::Pool) => without(SOURCE_POOL),
            Some(MemorySource::Unpooled) => without(SOURCE_UNPOOLED),
            Some(MemorySource::Allocator(allocator)) => LentSource {
                kind: SOURCE_ALLOCATOR,
                context: Box::into_raw(Box::<SharedAllocator>::new(allocator)).cast(),
                allocate: Some(allocate),
                deallocate: Some(deallocate),
                release: Some(release),
            },
        };
        // SAFETY: a place to write to (a clause of `# Safety`), neither NULL nor misaligned.
        unsafe { out.write(source) };
        0
    };
    callback::run(lend, |_| -1)
}

/// # Safety
/// `context` came from [`lend_source`] and was not released; `out` is a place to write to; `tell` may be called with `told`.
unsafe extern "C" fn allocate(
    context: *mut c_void,
    device: i32,
    bytes: usize,
    stream: usize,
    out: *mut Memory,
    tell: Tell,
    told: *mut c_void,
) -> c_int {
    // SAFETY: a box of `lend_source`'s that was not released (a clause of `# Safety`).
    let allocator = unsafe { &*context.cast::<SharedAllocator>() };
    let refused = |status: c_int, why: &str, exception: *mut PyObject| {
        // SAFETY: may be called with `told` (a clause of `# Safety`); the text lives during the call.
        unsafe { tell(told, Text::of(why), exception.cast()) };
        status
    };
    let allocate = || {
        let stream = Stream::named(stream).map_err(|error| AllocatorError::Failed(error.to_string()))?;
        allocator.allocate(device, bytes, stream)
    };
    let failed = |panic: Box<dyn std::any::Any + Send>| {
        Err(AllocatorError::Failed(format!("the allocator panicked: {}", callback::panic_message(&*panic))))
    };
    match callback::run(allocate, failed) {
        Ok(allocated) => {
            let memory = Memory { address: allocated.address, stream: allocated.stream.number() };
            // SAFETY: a place to write to (a clause of `# Safety`).
            unsafe { out.write(memory) };
            ALLOCATED
        }
        Err(AllocatorError::NotHere) => NOT_HERE,
        Err(AllocatorError::OutOfMemory(why)) => refused(OUT_OF_MEMORY, &why, null_mut()),
        Err(AllocatorError::Failed(why)) => refused(FAILED, &why, null_mut()),
        Err(AllocatorError::Interrupted(cause)) => {
            let raised = cause.downcast_ref::<Raised>();
            let exception = raised.and_then(|raised| {
                callback::run(|| attached(|py| raised.again(py).map(|error| error.into_value(py).into_ptr())), |_| None)
            });
            refused(INTERRUPTED, &cause.to_string(), exception.flatten().unwrap_or(null_mut()))
        }
    }
}

/// # Safety
/// `context` came from [`lend_source`] and was not released; the memory from [`allocate`].
unsafe extern "C" fn deallocate(context: *mut c_void, device: i32, address: usize, bytes: usize) {
    // SAFETY: a box of `lend_source`'s that was not released (a clause of `# Safety`).
    let allocator = unsafe { &*context.cast::<SharedAllocator>() };
    callback::run(|| allocator.deallocate(device, address, bytes), |_| ());
}

/// # Safety
/// `context` came from [`lend_source`], and is not used after this.
unsafe extern "C" fn release(context: *mut c_void) {
    // SAFETY: made by `Box::into_raw` in `lend_source`, and given back once (a clause of `# Safety`).
    let allocator = unsafe { Box::from_raw(context.cast::<SharedAllocator>()) };
    callback::run(|| drop(allocator), |_| ());
}

/// The source that the package lent; `None` for a kind that only a later version knows.
///
/// # Safety
/// `source` was written by `memory_source` of a table, and is used nowhere else.
pub(super) unsafe fn borrowed_source(source: LentSource) -> Option<MemorySource> {
    match source {
        LentSource { kind: SOURCE_POOL, .. } => Some(MemorySource::Pool),
        LentSource { kind: SOURCE_UNPOOLED, .. } => Some(MemorySource::Unpooled),
        LentSource {
            kind: SOURCE_ALLOCATOR,
            context,
            allocate: Some(allocate),
            deallocate: Some(deallocate),
            release: Some(release),
        } => Some(MemorySource::Allocator(Arc::new(PackageAllocator { context, allocate, deallocate, release }))),
        _ => None,
    }
}

/// An allocator of the package's.
struct PackageAllocator {
    context: *mut c_void,
    allocate: Allocate,
    deallocate: Deallocate,
    release: ReleaseSource,
}

// SAFETY: the context is a shared allocator of the package, which is Send and Sync by its trait; it is released once.
unsafe impl Send for PackageAllocator {}
// SAFETY: as for Send: any thread may call the functions with the context.
unsafe impl Sync for PackageAllocator {}

impl fmt::Debug for PackageAllocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PackageAllocator")
    }
}

impl Drop for PackageAllocator {
    fn drop(&mut self) {
        // SAFETY: the reference that `memory_source` lent, given back once.
        unsafe { (self.release)(self.context) };
    }
}

/// Why an allocator of the package allocated nothing.
#[derive(Default)]
struct AllocatorReason {
    why: String,
    exception: Option<Raised>,
}

/// # Safety
/// `told` points to a [`AllocatorReason`] that nobody else uses; `why` is text to read; `exception` is NULL or a new reference.
unsafe extern "C" fn tell(told: *mut c_void, why: Text, exception: *mut c_void) {
    // SAFETY: a `Told` that nobody else uses (a clause of `# Safety`).
    let told = unsafe { &mut *told.cast::<AllocatorReason>() };
    let keep = || {
        // SAFETY: text to read during the call (a clause of `# Safety`).
        told.why = unsafe { why.read() };
        if !exception.is_null() {
            told.exception = attached(|py| {
                // SAFETY: attached; a new reference (a clause of `# Safety`).
                let exception = unsafe { Bound::from_owned_ptr(py, exception.cast()) };
                Raised::new(py, PyErr::from_value(exception))
            });
        }
    };
    callback::run(keep, |_| ());
}

// SAFETY: `allocate` hands on what an `Allocator` of the package returned: memory of that device, of so many bytes, which nothing
// else uses until `deallocate` gives it back there.
unsafe impl Allocator for PackageAllocator {
    fn allocate(&self, device: i32, bytes: usize, stream: Stream) -> Result<Allocated, AllocatorError> {
        let (mut memory, mut told) = (Memory::default(), AllocatorReason::default());
        let (context, out, place) = (self.context, &raw mut memory, (&raw mut told).cast());
        // SAFETY: the context is alive until `release`; two places to write to, of which `tell` knows the second one's type.
        let status = unsafe { (self.allocate)(context, device, bytes, stream.number(), out, tell, place) };
        match (status, told.exception) {
            (ALLOCATED, _) => {
                let stream = Stream::named(memory.stream).map_err(|error| AllocatorError::Failed(error.to_string()))?;
                Ok(Allocated::new(memory.address, stream))
            }
            (NOT_HERE, _) => Err(AllocatorError::NotHere),
            (OUT_OF_MEMORY, _) => Err(AllocatorError::OutOfMemory(told.why)),
            (INTERRUPTED, Some(raised)) => Err(AllocatorError::Interrupted(Arc::new(raised))),
            _ => Err(AllocatorError::Failed(told.why)),
        }
    }

    fn deallocate(&self, device: i32, address: usize, bytes: usize) {
        // SAFETY: the context is alive until `release`; memory of `allocate`, given back once.
        unsafe { (self.deallocate)(self.context, device, address, bytes) };
    }
}
