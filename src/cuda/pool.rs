//! The memory pool of each device. Not the device's default pool, because other libraries share its settings.

use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

use super::context::{CudaDevice, Current, grant_access};
use super::driver::{Called, PoolHandle, Status, StreamHandle};
use super::pool_access::Location;

/// `CUmemPoolProps`.
#[repr(C)]
struct PoolProperties {
    /// `CU_MEM_ALLOCATION_TYPE_PINNED`.
    allocation_type: c_int,
    /// None: only this process uses the memory.
    handle_types: c_int,
    location: Location,
    reserved: [u64; 9],
}

const _: () = assert!(size_of::<PoolProperties>() == 88);

const PINNED: c_int = 1;
/// `CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED`.
const POOLS_SUPPORTED: c_int = 115;
// `CUmemPool_attribute`.
const RELEASE_THRESHOLD: c_int = 4;
const RESERVED: c_int = 5;
const RESERVED_HIGH: c_int = 6;
const USED: c_int = 7;
const USED_HIGH: c_int = 8;

/// Bytes of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PoolUse {
    pub(crate) used: u64,
    pub(crate) used_high: u64,
    pub(crate) reserved: u64,
    pub(crate) reserved_high: u64,
}

/// Creates a pool, which caches the memory that is returned to it.
fn create(device: &CudaDevice) -> Called<PoolHandle> {
    let properties = PoolProperties {
        allocation_type: PINNED,
        handle_types: 0,
        location: Location::of(device.ordinal()),
        reserved: [0; 9],
    };
    let mut pool = PoolHandle::NULL;
    // SAFETY: `pool` is a local that the driver sets; the properties are read during the call.
    unsafe { device.driver.pool_create(&raw mut pool, (&raw const properties).cast()) }?;
    let mut keep = u64::MAX;
    // SAFETY: this attribute is 64 bits long.
    let set = unsafe { device.driver.pool_set_attribute(pool, RELEASE_THRESHOLD, (&raw mut keep).cast()) };
    if let Err(status) = set {
        // If this fails too, the empty pool is lost.
        // SAFETY: a pool of ours that nothing was taken from.
        let _ = unsafe { device.driver.pool_destroy(pool) };
        return Err(status);
    }
    Ok(pool)
}

/// Returns the pool of a device, which the first call creates; `None` if the device has no pools.
pub(super) fn pool_of(device: &'static CudaDevice) -> Called<Option<PoolHandle>> {
    static STARTING: Mutex<()> = Mutex::new(());
    if let Some(pool) = device.pool.get() {
        return Ok(*pool);
    }
    let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if device.pool.get().is_none() {
        let has_pools = device.attribute(POOLS_SUPPORTED)? != 0;
        let pool = match has_pools.then(|| create(device)).transpose() {
            // Virtual devices and sandboxes may have pools by the attribute, and yet none.
            Err(Status { code: Status::NOT_SUPPORTED, .. }) => None,
            made => made?,
        };
        // Nobody else sets it.
        let _ = device.pool.set(pool);
        grant_access(device);
    }
    Ok(device.pool.get().copied().flatten())
}

/// Returns unused memory of the pool to the device. The host may wait, as often as the result says.
pub(crate) fn trim_pool(current: &Current) -> Called<u64> {
    let device = current.device();
    let Some(Some(pool)) = device.pool.get() else { return Ok(0) };
    let stream = device.free_stream.get().filter(|stream| **stream != StreamHandle::LEGACY);
    // The driver counts memory as in use until the host has synchronised with its free.
    // SAFETY: a stream of ours, never destroyed.
    let synchronised = stream.map(|stream| unsafe { device.driver.stream_synchronize(*stream) });
    // SAFETY: a pool of ours; what is in use stays.
    let trimmed = unsafe { device.driver.pool_trim_to(*pool, 0) };
    synchronised.unwrap_or(Ok(())).and(trimmed)?;
    Ok(u64::from(stream.is_some()))
}

impl CudaDevice {
    /// Returns the bytes of the device's pool; zeros without a pool.
    pub(crate) fn pool_use(&self) -> Called<PoolUse> {
        let Some(Some(pool)) = self.pool.get() else { return Ok(PoolUse::default()) };
        let attribute = |attribute| {
            let mut value = 0_u64;
            // SAFETY: these attributes are 64 bits long.
            unsafe { self.driver.pool_get_attribute(*pool, attribute, (&raw mut value).cast()) }?;
            Ok(value)
        };
        Ok(PoolUse {
            used: attribute(USED)?,
            used_high: attribute(USED_HIGH)?,
            reserved: attribute(RESERVED)?,
            reserved_high: attribute(RESERVED_HIGH)?,
        })
    }
}
