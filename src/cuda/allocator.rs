//! Chooses the allocator of results: the device's pool, `cuMemAlloc`, or another library's allocator.
//!
//! [`allocate_from`] sets it for a scope on the calling thread. Scratch memory always comes from the pool.

use std::cell::RefCell;
use std::error::Error as StdError;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::stream::Stream;

/// Which allocator makes the memory of results on a device.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum MemorySource {
    /// Our pool of the device. Other processes cannot open its memory by a legacy CUDA IPC handle.
    #[default]
    Pool,
    /// `cuMemAlloc`, for consumers that pass such handles on, such as UCX. `torch.multiprocessing` shares only memory of PyTorch's own
    /// allocator. Released blocks are cached for the next result, because the host waits when they are freed: see
    /// [`empty_cache`](crate::stream_order::empty_cache).
    Unpooled,
    /// Another library's allocator.
    Allocator(Arc<dyn Allocator>),
}

/// Memory that an allocator gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Allocated {
    /// Its address on the device, a multiple of 256.
    pub address: usize,
    /// The stream in whose order the memory may be used: the named one, or another, whose work may still use the
    /// memory. Our stream then waits for that one.
    pub stream: Stream,
}

impl Allocated {
    /// Returns memory at an address, for use in the order of a stream.
    #[must_use]
    pub fn new(address: usize, stream: Stream) -> Self {
        Self { address, stream }
    }
}

/// Why an allocator returned no memory.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AllocatorError {
    /// There is not enough. Caches are freed, and the allocator is called once more.
    OutOfMemory(String),
    /// Anything else.
    Failed(String),
    /// It has no memory of this device, so the result comes from the device's pool.
    NotHere,
    /// The call was ended from outside, as by a signal. The source of the resulting error tells what ended it.
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

impl StdError for AllocatorError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Interrupted(by) => Some(by.as_ref()),
            _ => None,
        }
    }
}

/// An allocator of device memory, such as another library's. Called from any thread, with the device's primary context
/// current.
///
/// # Safety
/// What `allocate` returns is memory of that device, of so many bytes, at a multiple of 256, which nothing but the work
/// of the stream that is returned uses until `deallocate`. That stream is one of the device's primary context, and is
/// not destroyed before `deallocate`.
pub unsafe trait Allocator: fmt::Debug + Send + Sync {
    /// Allocates memory for work that `stream` gets from now on. `bytes` is not 0.
    ///
    /// # Errors
    /// When it gives none.
    fn allocate(&self, device: i32, bytes: usize, stream: Stream) -> Result<Allocated, AllocatorError>;

    /// Deallocates memory of [`Allocator::allocate`], once. All work with it is done.
    fn deallocate(&self, device: i32, address: usize, bytes: usize);
}

thread_local! {
    /// The allocators that scopes of this thread set, the innermost last, each with the number of its scope.
    static SOURCES: RefCell<Vec<(u64, MemorySource)>> = const { RefCell::new(Vec::new()) };
}

/// A scope in which results of this thread come from an allocator. It ends when this is dropped.
#[derive(Debug)]
#[must_use = "the scope ends when this is dropped"]
pub struct SourceScope {
    number: u64,
    /// It is this thread's.
    not_send: PhantomData<*mut ()>,
}

/// Allocates this thread's device results from `source`, until the returned scope is dropped. Scopes can be nested, and
/// each ends by itself.
///
/// ```
/// use arrow_dlpack::cuda::{MemorySource, allocate_from, memory_source};
///
/// let scope = allocate_from(MemorySource::Unpooled);
/// assert!(matches!(memory_source(), MemorySource::Unpooled));
/// drop(scope);
/// assert!(matches!(memory_source(), MemorySource::Pool));
/// ```
pub fn allocate_from(source: MemorySource) -> SourceScope {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // A thread that is ending makes no results any more.
    let _ = SOURCES.try_with(|sources| sources.borrow_mut().push((number, source)));
    SourceScope { number, not_send: PhantomData }
}

/// Finds the allocator of this thread's results in another copy of this crate in the process.
type SourceOfOtherCopy = fn() -> Option<MemorySource>;

static ELSEWHERE: OnceLock<SourceOfOtherCopy> = OnceLock::new();

/// Has results of threads that set no allocator come from the one that they set in another copy of this crate.
#[cfg(feature = "python")]
pub(crate) fn sources_elsewhere(source: SourceOfOtherCopy) {
    // Both are of the one package.
    let _ = ELSEWHERE.set(source);
}

/// Returns the innermost allocator that this thread set in this copy.
pub(crate) fn set_source() -> Option<MemorySource> {
    SOURCES.try_with(|sources| sources.borrow().last().map(|(_, source)| source.clone())).ok().flatten()
}

/// Returns the allocator of this thread's results, to be set on another thread.
#[must_use]
pub fn memory_source() -> MemorySource {
    set_source().or_else(|| ELSEWHERE.get()?()).unwrap_or_default()
}

impl Drop for SourceScope {
    fn drop(&mut self) {
        // Dropped after the list is unlocked, because the end of an allocator may run another library's code.
        let source = SOURCES.try_with(|sources| {
            let mut sources = sources.borrow_mut();
            let position = sources.iter().rposition(|(number, _)| *number == self.number)?;
            Some(sources.remove(position))
        });
        drop(source);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_nest_and_are_their_threads() {
        assert!(matches!(memory_source(), MemorySource::Pool));
        let outer = allocate_from(MemorySource::Unpooled);
        let inner = allocate_from(MemorySource::Pool);
        assert!(matches!(memory_source(), MemorySource::Pool));
        drop(inner);
        assert!(matches!(memory_source(), MemorySource::Unpooled));
        let elsewhere = std::thread::spawn(|| matches!(memory_source(), MemorySource::Pool));
        assert!(elsewhere.join().unwrap());
        drop(outer);
        assert!(matches!(memory_source(), MemorySource::Pool));
    }

    #[test]
    fn a_scope_that_ends_before_an_inner_one_ends_alone() {
        let outer = allocate_from(MemorySource::Unpooled);
        let inner = allocate_from(MemorySource::Pool);
        drop(outer);
        assert!(matches!(set_source(), Some(MemorySource::Pool)));
        drop(inner);
        assert!(set_source().is_none());
    }

    #[test]
    fn what_interrupted_an_allocator_is_its_source() {
        let by: Arc<dyn StdError + Send + Sync> = Arc::new(AllocatorError::NotHere);
        assert_eq!(AllocatorError::Interrupted(by).source().unwrap().to_string(), "it has no memory of this device");
        assert!(AllocatorError::NotHere.source().is_none());
    }
}
