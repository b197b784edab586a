//! Page-locked host memory: staging buffers, and results on `cuda_host`.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::context::Current;
use super::driver::{Called, Status, is_forked};
use super::thread_sync;
use crate::alloc::page_size;
use crate::error::{Error, Result};

/// `CU_MEMHOSTALLOC_PORTABLE`: page-locked for every context.
const PORTABLE: u32 = 1;

/// Bytes of a page-locked block.
const BLOCK: usize = 2 << 20;
/// The most bytes of staging buffers, unless the environment sets another limit.
const MOST_BYTES: usize = 256 << 20;

/// A staging buffer: a page-locked block that copies from and to ordinary memory go through. [`PinnedBlock::give_back`]
/// recycles it, once no copy uses it.
#[derive(Debug)]
pub(crate) struct PinnedBlock {
    start: NonNull<c_void>,
}

// SAFETY: memory that this value alone refers to.
unsafe impl Send for PinnedBlock {}

static IDLE: Mutex<Vec<PinnedBlock>> = Mutex::new(Vec::new());
/// How many blocks there are.
static BLOCKS: AtomicUsize = AtomicUsize::new(0);
/// Bytes of our page-locked memory, in use or cached.
static BYTES: AtomicUsize = AtomicUsize::new(0);

impl PinnedBlock {
    pub(crate) const BYTES: usize = BLOCK;

    /// A block that is idle.
    pub(crate) fn idle() -> Option<Self> {
        let idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        thread_sync::receive(idle.start.addr().get());
        Some(idle)
    }

    /// Allocates a block; `None` if the limit is reached.
    ///
    /// # Errors
    /// If the driver refuses, or the environment variable is invalid.
    pub(crate) fn new_within_limit(current: &Current) -> Result<Option<Self>> {
        let most = most_blocks()?;
        if count_one_more(&BLOCKS, most) { Ok(Some(Self::allocate(current)?)) } else { Ok(None) }
    }

    /// Ignores the limit, for callers that must not block.
    pub(crate) fn take(current: &Current) -> Called<Self> {
        if let Some(block) = Self::idle() {
            return Ok(block);
        }
        BLOCKS.fetch_add(1, Ordering::AcqRel);
        Self::allocate(current)
    }

    /// Allocates a block that is counted already.
    fn allocate(current: &Current) -> Called<Self> {
        let start = allocate(current, BLOCK);
        if start.is_err() {
            BLOCKS.fetch_sub(1, Ordering::AcqRel);
        }
        Ok(Self { start: start? })
    }

    /// Recycles the block. A block that is not given back is lost, which is right if a copy may still use it.
    pub(crate) fn give_back(self) {
        thread_sync::send(self.start.addr().get());
        IDLE.lock().unwrap_or_else(PoisonError::into_inner).push(self);
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr().cast()
    }
}

/// Counts one more, unless there are `most` already. Returns whether there was room.
fn count_one_more(count: &AtomicUsize, most: usize) -> bool {
    let mut found = count.load(Ordering::Acquire);
    while found < most {
        match count.compare_exchange_weak(found, found + 1, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return true,
            Err(other) => found = other,
        }
    }
    false
}

/// Returns the most staging buffers that `ARROW_DLPACK_PINNED_BYTES` allows, but at least one.
///
/// # Errors
/// If the variable is neither empty nor a number.
fn most_blocks() -> Result<usize> {
    /// Read once; an error is kept as its text.
    static MOST: OnceLock<Result<usize, String>> = OnceLock::new();
    let read = || blocks_of(&std::env::var_os("ARROW_DLPACK_PINNED_BYTES").unwrap_or_default().to_string_lossy());
    MOST.get_or_init(read).clone().map_err(|text| {
        Error::argument(format!("ARROW_DLPACK_PINNED_BYTES is {text:?}, not a number of bytes"))
            .remedy_is("set it to a number, or leave it out for 256 MiB")
    })
}

fn blocks_of(text: &str) -> Result<usize, String> {
    let bytes = match text.trim() {
        "" => MOST_BYTES,
        number => number.parse().map_err(|_| text.to_owned())?,
    };
    Ok((bytes / BLOCK).max(1))
}

fn allocate(current: &Current, bytes: usize) -> Called<NonNull<c_void>> {
    let mut start = std::ptr::null_mut();
    // SAFETY: `start` is a local that the driver sets.
    unsafe { current.driver().memory_host_alloc(&raw mut start, bytes, PORTABLE) }?;
    BYTES.fetch_add(bytes, Ordering::Relaxed);
    NonNull::new(start).ok_or(Status { call: "cuMemHostAlloc", code: Status::OUT_OF_MEMORY })
}

/// Page-locked host memory for a result, aligned to a page. Its dropper must ensure that nothing uses it any more.
///
/// Freeing such memory may make the host wait for all devices, so it is cached for the next result.
#[derive(Debug)]
pub(crate) struct PinnedBuffer {
    start: NonNull<c_void>,
    bytes: usize,
}

// SAFETY: memory that this value alone refers to.
unsafe impl Send for PinnedBuffer {}
// SAFETY: a shared reference only gives its address.
unsafe impl Sync for PinnedBuffer {}

static KEPT: Mutex<Vec<PinnedBuffer>> = Mutex::new(Vec::new());

impl PinnedBuffer {
    /// Takes at least this number of bytes, and at most twice as many. `bytes` is not 0.
    pub(crate) fn new(current: &Current, bytes: usize) -> Called<Self> {
        let bytes = rounded(bytes)?;
        let fits = |kept: &Self| kept.bytes >= bytes && kept.bytes / 2 <= bytes;
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = kept.iter().position(fits) {
            let kept = kept.swap_remove(index);
            thread_sync::receive(kept.start.addr().get());
            return Ok(kept);
        }
        drop(kept);
        Ok(Self { start: allocate(current, bytes)?, bytes })
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr().cast()
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        // In a forked process the holder of the lock does not exist.
        if is_forked() {
            return;
        }
        let kept = Self { start: self.start, bytes: self.bytes };
        thread_sync::send(self.start.addr().get());
        KEPT.lock().unwrap_or_else(PoisonError::into_inner).push(kept);
    }
}

/// Returns the bytes of the whole pages that such a block takes.
///
/// # Errors
/// If that is more than there are addresses.
fn rounded(bytes: usize) -> Called<usize> {
    bytes.checked_next_multiple_of(page_size()).ok_or(Status { call: "cuMemHostAlloc", code: Status::OUT_OF_MEMORY })
}

/// Returns the number of cached page-locked allocations.
#[cfg(feature = "python")]
pub(super) fn kept_allocations() -> usize {
    let blocks = IDLE.lock().unwrap_or_else(PoisonError::into_inner).len();
    blocks + KEPT.lock().unwrap_or_else(PoisonError::into_inner).len()
}

/// Bytes of our page-locked memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PinnedUse {
    pub(crate) used: usize,
    pub(crate) kept: usize,
}

/// Returns the bytes in use, and the cached bytes.
pub(crate) fn pinned_use() -> PinnedUse {
    let kept: usize = KEPT.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|buffer| buffer.bytes).sum();
    let kept = kept + IDLE.lock().unwrap_or_else(PoisonError::into_inner).len() * BLOCK;
    PinnedUse { used: BYTES.load(Ordering::Relaxed).saturating_sub(kept), kept }
}

/// Frees cached page-locked memory. The host may wait for all devices, as often as the result says.
///
/// # Errors
/// The first error of the driver; memory that is not freed stays cached.
pub(crate) fn free_pinned(current: &Current) -> Called<u64> {
    let (mut freed, mut outcome) = (0, Ok(()));
    let mut free = |start: NonNull<c_void>, bytes: usize| {
        // The thread that returned the memory has seen its copies done.
        thread_sync::receive(start.addr().get());
        // SAFETY: memory of ours that nobody uses, and that is not freed again.
        match unsafe { current.driver().memory_host_free(start.as_ptr()) } {
            Ok(()) => {
                freed += 1;
                BYTES.fetch_sub(bytes, Ordering::Relaxed);
                true
            }
            Err(status) => {
                outcome = outcome.and(Err(status));
                false
            }
        }
    };
    // Outside the loops, because the locks would be held while unfreed memory is returned.
    let kept = std::mem::take(&mut *KEPT.lock().unwrap_or_else(PoisonError::into_inner));
    let idle = std::mem::take(&mut *IDLE.lock().unwrap_or_else(PoisonError::into_inner));
    for buffer in kept {
        // What is dropped is kept.
        if free(buffer.start, buffer.bytes) {
            std::mem::forget(buffer);
        }
    }
    for block in idle {
        if free(block.start, BLOCK) {
            BLOCKS.fetch_sub(1, Ordering::AcqRel);
        } else {
            block.give_back();
        }
    }
    outcome.map(|()| freed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alloc::injected;

    #[test]
    fn no_more_are_counted_than_there_may_be() {
        let count = AtomicUsize::new(0);
        let counted = std::thread::scope(|scope| {
            let some = || (0..100).filter(|_| count_one_more(&count, 150)).count();
            let threads = [scope.spawn(some), scope.spawn(some), scope.spawn(some)];
            threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
        });
        assert_eq!((counted, count.load(Ordering::Relaxed)), (150, 150));
        assert!(!count_one_more(&count, 0));
    }

    #[test]
    fn blocks_are_whole_pages_of_any_size_or_an_error() {
        for page in injected::SIZES {
            injected::with(page, || {
                assert_eq!([1, page, page + 1].map(|bytes| rounded(bytes).unwrap()), [page, page, 2 * page]);
                assert_eq!(rounded(usize::MAX - 1).unwrap_err().code, Status::OUT_OF_MEMORY);
            });
        }
    }

    #[test]
    fn the_environment_says_how_many_blocks_there_are() {
        for (text, expected) in [("", 128), ("0", 1), ("4194304", 2), (" 4194303 ", 1)] {
            assert_eq!(blocks_of(text), Ok(expected), "{text:?}");
        }
        for text in ["much", "-1", "1e9"] {
            assert_eq!(blocks_of(text), Err(text.to_owned()));
        }
    }
}
