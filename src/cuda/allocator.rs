//! Chooses the allocator of results: the device's pool, `cuMemAlloc`, or another library's allocator.
//!
//! [`allocate_from`] sets it for a scope on the calling thread. Scratch memory always comes from the pool.

use std::cell::RefCell;
use std::error::Error as StdError;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::stream::Stream;

/// Where the memory of results on a device comes from.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum MemorySource {
    /// The pool of ours that the device has. Other processes cannot open its memory by a legacy handle of CUDA IPC.
    #[default]
    Pool,
    /// `cuMemAlloc`, for consumers that pass such handles on: UCX, `torch.multiprocessing`. What is let go is kept for the next
    /// result, as to free it has the host wait: see [`empty_cache`](crate::stream_order::empty_cache).
    Plain,
    /// Another library's allocator.
    Allocator(Arc<dyn Allocator>),
}

/// Memory that an allocator gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocated {
    /// Its address on the device, a multiple of 256.
    pub address: usize,
    /// The stream in whose order it may be used: the one that was named, or another, whose work may still use it. Ours then
    /// waits for that.
    pub stream: Stream,
}

/// Why an allocator gave no memory.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AllocatorError {
    /// There is not enough. What is let go of by then is given back, and it is asked once more.
    OutOfMemory(String),
    /// Anything else.
    Failed(String),
    /// It has no memory of this device: the result comes from the device's pool.
    NotHere,
    /// The call was ended from outside, as by a signal; what ended it is the source of the error that follows.
    Interrupted(Arc<dyn StdError + Send + Sync>),
}

impl fmt::Display for AllocatorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory(why) | Self::Failed(why) => f.write_str(why),
            Self::NotHere => f.write_str("it has no memory of this device"),
            Self::Interrupted(_) => f.write_str("the call was interrupted"),
        }
    }
}

impl StdError for AllocatorError {}

/// An allocator of memory on devices, such as another library's. Called from any thread, with the device's primary context
/// current.
///
/// # Safety
/// What `allocate` returns is memory of that device, of so many bytes, which nothing but the work of the stream that is
/// returned uses until `deallocate`.
pub unsafe trait Allocator: fmt::Debug + Send + Sync {
    /// Memory for what `stream` is given from now on. `bytes` is not 0.
    ///
    /// # Errors
    /// When it gives none.
    fn allocate(&self, device: i32, bytes: usize, stream: Stream) -> Result<Allocated, AllocatorError>;

    /// Takes back memory of [`Allocator::allocate`], once. All work with it is done.
    fn deallocate(&self, device: i32, address: usize, bytes: usize);
}

thread_local! {
    static SOURCES: RefCell<Vec<MemorySource>> = const { RefCell::new(Vec::new()) };
}

/// A time in which results of this thread come from a source. It ends when this is dropped.
#[derive(Debug)]
#[must_use = "the scope ends when this is dropped"]
pub struct SourceScope {
    /// It is this thread's.
    not_send: PhantomData<*mut ()>,
}

/// Has the memory of results that this thread makes on devices come from `source`, until what is returned is dropped. Scopes
/// can be nested, and end in reverse order.
///
/// ```
/// use arrow_dlpack::cuda::{MemorySource, allocate_from, memory_source};
///
/// let scope = allocate_from(MemorySource::Plain);
/// assert!(matches!(memory_source(), MemorySource::Plain));
/// drop(scope);
/// assert!(matches!(memory_source(), MemorySource::Pool));
/// ```
pub fn allocate_from(source: MemorySource) -> SourceScope {
    // A thread that ends makes no results any more.
    let _ = SOURCES.try_with(|sources| sources.borrow_mut().push(source));
    SourceScope { not_send: PhantomData }
}

/// Where results of this thread come from: to have those of another thread come from there too.
#[must_use]
pub fn memory_source() -> MemorySource {
    let last = SOURCES.try_with(|sources| sources.borrow().last().cloned());
    last.ok().flatten().unwrap_or_default()
}

impl Drop for SourceScope {
    fn drop(&mut self) {
        // Let go of when the list is free again: the end of an allocator may be another library's code.
        let source = SOURCES.try_with(|sources| sources.borrow_mut().pop());
        drop(source);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_nest_and_are_their_threads() {
        assert!(matches!(memory_source(), MemorySource::Pool));
        let outer = allocate_from(MemorySource::Plain);
        let inner = allocate_from(MemorySource::Pool);
        assert!(matches!(memory_source(), MemorySource::Pool));
        drop(inner);
        assert!(matches!(memory_source(), MemorySource::Plain));
        let elsewhere = std::thread::spawn(|| matches!(memory_source(), MemorySource::Pool));
        assert!(elsewhere.join().unwrap());
        drop(outer);
        assert!(matches!(memory_source(), MemorySource::Pool));
    }
}
