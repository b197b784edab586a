//! Device memory of `cuMemAlloc`: for devices without pools, and for results that are shared by legacy CUDA IPC
//! handles. The host waits when it is freed, so freed blocks are cached for the next result.

use super::context::{CudaDevice, Current};
use super::driver::{Called, DevicePointer, is_forked};
use super::idle_blocks::IdleBlock;
use super::thread_sync;

/// The driver's alignment of memory.
pub(super) const ALIGNMENT: usize = 256;

/// A block. Its dropper must ensure that nothing uses it any more.
#[derive(Debug)]
pub(super) struct UnpooledBlock {
    device: &'static CudaDevice,
    block: IdleBlock,
}

impl UnpooledBlock {
    /// Takes at least this number of bytes, and at most twice as many. `bytes` is not 0.
    pub(super) fn take(current: &Current, bytes: usize) -> Called<Self> {
        let device = current.device();
        if let Some(block) = device.unpooled.take(bytes) {
            thread_sync::receive(token(block));
            return Ok(Self { device, block });
        }
        // The driver refuses a size that no device has.
        let bytes = bytes.checked_next_multiple_of(ALIGNMENT).unwrap_or(bytes);
        let mut start = 0;
        // SAFETY: `start` is a local that the driver sets.
        unsafe { current.driver().memory_alloc(&raw mut start, bytes) }?;
        device.unpooled.allocated(bytes);
        Ok(Self { device, block: IdleBlock { start, bytes } })
    }

    pub(super) fn start(&self) -> DevicePointer {
        self.block.start
    }
}

/// The name of a block for the simulated driver.
fn token(block: IdleBlock) -> usize {
    usize::try_from(block.start).unwrap_or(usize::MAX)
}

impl Drop for UnpooledBlock {
    fn drop(&mut self) {
        // In a forked process the holder of the lock does not exist.
        if is_forked() {
            return;
        }
        thread_sync::send(token(self.block));
        self.device.unpooled.put(self.block);
    }
}

impl CudaDevice {
    /// Returns the bytes in use, and the cached bytes.
    pub(crate) fn unpooled_use(&self) -> (usize, usize) {
        self.unpooled.bytes()
    }
}

/// Frees cached blocks; the host waits for the device, as often as the result says.
///
/// # Errors
/// The first error of the driver; blocks that are not freed stay cached.
pub(crate) fn free_unpooled(current: &Current) -> Called<u64> {
    let unpooled = &current.device().unpooled;
    let mut freed = 0;
    let mut outcome = Ok(());
    for block in unpooled.take_all() {
        // The thread that returned the block has seen its work done.
        thread_sync::receive(token(block));
        // SAFETY: memory of ours that nobody uses, and that is not freed again.
        match unsafe { current.driver().memory_free(block.start) } {
            Ok(()) => {
                freed += 1;
                unpooled.freed(block.bytes);
            }
            Err(status) => {
                unpooled.put(block);
                outcome = outcome.and(Err(status));
            }
        }
    }
    outcome.map(|()| freed)
}
