//! Device memory of `cuMemAlloc`: for devices without pools, and for results that are shared by legacy CUDA IPC
//! handles. The host waits when it is freed, so freed blocks are cached for the next result.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::context::{CudaDevice, Current};
use super::driver::{Called, DevicePointer, is_forked};
use super::thread_sync;

/// The driver's alignment of memory.
pub(super) const ALIGNMENT: usize = 256;

/// The blocks of a device.
#[derive(Debug, Default)]
pub(super) struct UnpooledBlocks {
    kept: Mutex<Vec<UnpooledBlock>>,
    /// Bytes of all blocks, cached or in use.
    bytes: AtomicUsize,
}

#[cfg(feature = "python")]
impl UnpooledBlocks {
    /// Returns the number of cached blocks.
    pub(super) fn kept_allocations(&self) -> usize {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// A block. Its dropper must ensure that nothing uses it any more.
#[derive(Debug)]
pub(super) struct UnpooledBlock {
    device: &'static CudaDevice,
    start: DevicePointer,
    bytes: usize,
}

impl UnpooledBlock {
    /// Takes at least this number of bytes, and at most twice as many. `bytes` is not 0.
    pub(super) fn take(current: &Current, bytes: usize) -> Called<Self> {
        let device = current.device();
        let fits = |kept: &Self| kept.bytes >= bytes && kept.bytes / 2 <= bytes;
        let mut kept = device.plain.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = kept.iter().position(fits) {
            let block = kept.swap_remove(index);
            thread_sync::receive(block.token());
            return Ok(block);
        }
        drop(kept);
        // The driver refuses a size that no device has.
        let bytes = bytes.checked_next_multiple_of(ALIGNMENT).unwrap_or(bytes);
        let mut start = 0;
        // SAFETY: `start` is a local that the driver sets.
        unsafe { current.driver().memory_alloc(&raw mut start, bytes) }?;
        device.plain.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(Self { device, start, bytes })
    }

    pub(super) fn start(&self) -> DevicePointer {
        self.start
    }

    fn token(&self) -> usize {
        usize::try_from(self.start).unwrap_or(usize::MAX)
    }
}

impl Drop for UnpooledBlock {
    fn drop(&mut self) {
        // In a forked process the holder of the lock does not exist.
        if is_forked() {
            return;
        }
        thread_sync::send(self.token());
        let kept = Self { device: self.device, start: self.start, bytes: self.bytes };
        self.device.plain.kept.lock().unwrap_or_else(PoisonError::into_inner).push(kept);
    }
}

impl CudaDevice {
    /// Returns the bytes in use, and the cached bytes.
    pub(crate) fn plain_use(&self) -> (usize, usize) {
        let kept = self.plain.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let kept: usize = kept.iter().map(|block| block.bytes).sum();
        (self.plain.bytes.load(Ordering::Relaxed).saturating_sub(kept), kept)
    }
}

/// Frees cached blocks; the host waits for the device, as often as the result says.
///
/// # Errors
/// The first error of the driver; blocks that are not freed stay cached.
pub(crate) fn free_plain(current: &Current) -> Called<u64> {
    let plain = &current.device().plain;
    let kept = std::mem::take(&mut *plain.kept.lock().unwrap_or_else(PoisonError::into_inner));
    let mut freed = 0;
    let mut outcome = Ok(());
    for block in kept {
        // The thread that returned the block has seen its work done.
        thread_sync::receive(block.token());
        // SAFETY: memory of ours that nobody uses, and that is not freed again.
        match unsafe { current.driver().memory_free(block.start) } {
            Ok(()) => {
                freed += 1;
                plain.bytes.fetch_sub(block.bytes, Ordering::Relaxed);
                std::mem::forget(block);
            }
            // It is dropped, and so kept.
            Err(status) => outcome = outcome.and(Err(status)),
        }
    }
    outcome.map(|()| freed)
}
