//! Counts memory in use and cached, and frees the caches.

use super::{deferred_free, drain, host, reaper};
use crate::cuda::{CudaDevice, free_pinned, free_unpooled, is_started, pinned_use, trim_pool};
use crate::device::Device;
use crate::error::Result;
use crate::ffi::dlpack::DLDeviceType;

/// Memory of the devices in use, and page-locked host memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryStatistics {
    /// By ordinal.
    pub devices: Vec<DeviceMemory>,
    /// Page-locked host memory, which all devices share.
    pub page_locked: PageLockedMemory,
    /// Deferred frees that the reaper thread has released so far, without a call of ours.
    pub reaped_blocks: u64,
}

/// Memory of one device, in bytes: only what this package has allocated, and its deferred frees.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceMemory {
    /// The device.
    pub device: Device,
    /// Bytes of the pool in use.
    pub pool_used: u64,
    /// The most that was.
    pub pool_used_peak: u64,
    /// The pool's memory, in use or cached.
    pub pool_reserved: u64,
    /// The most that was.
    pub pool_reserved_peak: u64,
    /// Bytes of `cuMemAlloc` in use.
    pub unpooled_used: u64,
    /// Memory of `cuMemAlloc`, cached for the next result.
    pub unpooled_kept: u64,
    /// Bytes of other allocators in use.
    pub allocators_used: u64,
    /// Deferred frees: blocks without owners that device work may still use.
    pub waiting_blocks: u64,
    /// Bytes of the deferred frees that this package allocated.
    pub waiting_bytes: u64,
}

/// Page-locked host memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageLockedMemory {
    /// In use by results and by copies in flight.
    pub used: u64,
    /// Kept for later.
    pub kept: u64,
}

/// Returns the memory in use and cached, after releasing what nothing uses any more. Loads no driver: empty if no
/// device is in use. Never waits.
///
/// # Errors
/// When the driver fails.
pub fn memory_stats() -> Result<MemoryStatistics> {
    if !is_started() {
        return Ok(MemoryStatistics::default());
    }
    drain();
    let bytes = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX);
    let of = |device: &'static CudaDevice| {
        let pool = device.pool_use()?;
        let (unpooled_used, unpooled_kept) = device.unpooled_use();
        let (waiting_blocks, waiting_bytes) = deferred_free::waiting_on(device.ordinal());
        Ok(DeviceMemory {
            device: Device::new(DLDeviceType::CUDA, device.ordinal()),
            pool_used: pool.used,
            pool_used_peak: pool.used_high,
            pool_reserved: pool.reserved,
            pool_reserved_peak: pool.reserved_high,
            unpooled_used: bytes(unpooled_used),
            unpooled_kept: bytes(unpooled_kept),
            allocators_used: bytes(device.foreign_use()),
            waiting_blocks: bytes(waiting_blocks),
            waiting_bytes: bytes(waiting_bytes),
        })
    };
    let devices = CudaDevice::in_use().map(of).collect::<Result<_>>()?;
    let pinned = pinned_use();
    Ok(MemoryStatistics {
        devices,
        page_locked: PageLockedMemory { used: bytes(pinned.used), kept: bytes(pinned.kept) },
        reaped_blocks: reaper::reaped(),
    })
}

/// Frees cached device and page-locked memory. The host may wait for all work of the devices. Loads no driver.
///
/// # Errors
/// The first error of the driver; the other caches are freed anyway.
pub fn empty_cache() -> Result<()> {
    if !is_started() {
        return Ok(());
    }
    drain();
    let mut outcome = Ok(());
    for device in CudaDevice::in_use() {
        outcome = outcome.and(empty_cache_of(device));
    }
    outcome
}

fn empty_cache_of(device: &'static CudaDevice) -> Result<()> {
    let current = device.enter()?;
    let mut outcome = super::settle(&current, current.free_stream());
    // Page-locked memory belongs to no device: the first pass frees all of it.
    for freed in [trim_pool(&current), free_unpooled(&current), free_pinned(&current)] {
        match freed {
            Ok(waits) => host::count(waits),
            Err(status) => outcome = outcome.and(Err(status.into())),
        }
    }
    outcome
}
