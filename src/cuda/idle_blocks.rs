//! Memory of `cuMemAlloc` that nobody uses, cached for the next result.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::driver::DevicePointer;

/// Memory that nobody uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct IdleBlock {
    pub(super) start: DevicePointer,
    pub(super) bytes: usize,
}

/// The idle blocks of a device.
#[derive(Debug, Default)]
pub(super) struct IdleBlocks {
    blocks: Mutex<Vec<IdleBlock>>,
    /// Bytes of all blocks of the device, idle or in use.
    bytes: AtomicUsize,
}

impl IdleBlocks {
    fn lock(&self) -> MutexGuard<'_, Vec<IdleBlock>> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a block of at least this number of bytes, and at most twice as many.
    pub(super) fn take(&self, bytes: usize) -> Option<IdleBlock> {
        let mut blocks = self.lock();
        let index = blocks.iter().position(|block| block.bytes >= bytes && block.bytes / 2 <= bytes)?;
        Some(blocks.swap_remove(index))
    }

    pub(super) fn take_all(&self) -> Vec<IdleBlock> {
        std::mem::take(&mut *self.lock())
    }

    pub(super) fn put(&self, block: IdleBlock) {
        self.lock().push(block);
    }

    /// Counts a block that the driver has allocated.
    pub(super) fn allocated(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Uncounts a block that the driver has freed.
    pub(super) fn freed(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns the bytes in use, and the idle bytes.
    pub(super) fn bytes(&self) -> (usize, usize) {
        let blocks = self.lock();
        let idle: usize = blocks.iter().map(|block| block.bytes).sum();
        (self.bytes.load(Ordering::Relaxed).saturating_sub(idle), idle)
    }

    /// Returns the number of idle blocks.
    #[cfg(feature = "python")]
    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }
}
