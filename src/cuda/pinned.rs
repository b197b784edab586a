//! Page-locked host memory of ours: blocks that copies from and to ordinary memory go through, and results.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use super::context::Current;
use super::driver::{Called, Status, driver, is_forked};

/// `CU_MEMHOSTALLOC_PORTABLE`: page-locked for every context.
const PORTABLE: u32 = 1;

/// Bytes of a page-locked block.
const BLOCK: usize = 2 << 20;

/// A page-locked block of host memory, through which copies from and to ordinary memory go. It is never freed, and goes back
/// to the idle ones when this is dropped: by then no copy uses it.
#[derive(Debug)]
pub(crate) struct PinnedBlock {
    start: NonNull<c_void>,
}

// SAFETY: memory that this value alone refers to.
unsafe impl Send for PinnedBlock {}

static IDLE: Mutex<Vec<PinnedBlock>> = Mutex::new(Vec::new());

impl PinnedBlock {
    pub(crate) const BYTES: usize = BLOCK;

    pub(crate) fn take(current: &Current) -> Called<Self> {
        if let Some(block) = IDLE.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Ok(block);
        }
        Ok(Self { start: allocate(current, BLOCK)? })
    }

    /// Gives the block back. Without this it is lost, which is right where a copy may still use it.
    pub(crate) fn give_back(self) {
        IDLE.lock().unwrap_or_else(PoisonError::into_inner).push(self);
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr().cast()
    }
}

fn allocate(current: &Current, bytes: usize) -> Called<NonNull<c_void>> {
    let mut start = std::ptr::null_mut();
    // SAFETY: `start` is a local that the driver sets.
    unsafe { current.driver().memory_host_alloc(&raw mut start, bytes, PORTABLE) }?;
    NonNull::new(start).ok_or(Status { call: "cuMemHostAlloc", code: Status::OUT_OF_MEMORY })
}

/// Page-locked host memory for a result, aligned to a page. Who drops it has seen to it that nothing uses it any more.
///
/// To free such memory may have the host wait for all devices: it is kept for the next result instead.
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
    /// So many bytes or more, and no more than twice as many. `bytes` is not 0.
    pub(crate) fn new(current: &Current, bytes: usize) -> Called<Self> {
        let bytes = bytes.next_multiple_of(4096);
        let fits = |kept: &Self| kept.bytes >= bytes && kept.bytes / 2 <= bytes;
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = kept.iter().position(fits) {
            return Ok(kept.swap_remove(index));
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
        // Whoever held the lock is not in a forked process.
        if is_forked() {
            return;
        }
        let kept = Self { start: self.start, bytes: self.bytes };
        KEPT.lock().unwrap_or_else(PoisonError::into_inner).push(kept);
    }
}

/// Frees the page-locked memory that nothing uses. The host may wait for all devices.
///
/// # Errors
/// Those of the driver; what is not freed is kept.
pub(crate) fn free_pinned() -> crate::error::Result<()> {
    let driver = driver()?;
    let kept = std::mem::take(&mut *KEPT.lock().unwrap_or_else(PoisonError::into_inner));
    for buffer in kept {
        // SAFETY: memory of ours that nobody uses, and that is not freed again.
        let freed = unsafe { driver.memory_host_free(buffer.start.as_ptr()) };
        match freed {
            Ok(()) => std::mem::forget(buffer),
            Err(status) => return Err(status.into()),
        }
    }
    Ok(())
}
