//! The memory pool of each device. Not the device's default pool, because other libraries share its settings.

use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

use super::context::{CudaDevice, Current};
use super::driver::{Called, PoolHandle};

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

/// `CUmemLocation`.
#[repr(C)]
struct Location {
    /// `CU_MEM_LOCATION_TYPE_DEVICE`.
    kind: c_int,
    id: c_int,
}

/// `CUmemAccessDesc`.
#[repr(C)]
struct Grant {
    location: Location,
    flags: c_int,
}

const _: () = assert!(size_of::<PoolProperties>() == 88);
const _: () = assert!(size_of::<Grant>() == 12);

const PINNED: c_int = 1;
const ON_DEVICE: c_int = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
const READ_AND_WRITE: c_int = 3;
/// `CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED`.
const POOLS_SUPPORTED: c_int = 115;
// `CUmemPool_attribute`.
const RELEASE_THRESHOLD: c_int = 4;
const RESERVED: c_int = 5;
const RESERVED_HIGH: c_int = 6;
const USED: c_int = 7;
const USED_HIGH: c_int = 8;

/// Our pool. It caches the memory that is returned to it.
#[derive(Debug)]
pub(super) struct Pool(PoolHandle);

/// Bytes of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PoolUse {
    pub(crate) used: u64,
    pub(crate) used_high: u64,
    pub(crate) reserved: u64,
    pub(crate) reserved_high: u64,
}

impl Location {
    fn of(device: &CudaDevice) -> Self {
        Self { kind: ON_DEVICE, id: device.ordinal() }
    }
}

impl Pool {
    fn new(device: &CudaDevice) -> Called<Self> {
        let properties = PoolProperties {
            allocation_type: PINNED,
            handle_types: 0,
            location: Location::of(device),
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
        Ok(Self(pool))
    }

    /// Creates the pool of a device; `None` if the device has no pools.
    pub(super) fn of(device: &'static CudaDevice) -> Called<Option<PoolHandle>> {
        static STARTING: Mutex<()> = Mutex::new(());
        if let Some(pool) = device.pool.get() {
            return Ok(pool.as_ref().map(|pool| pool.0));
        }
        let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        if device.pool.get().is_none() {
            let has_pools = device.attribute(POOLS_SUPPORTED)? != 0;
            let pool = has_pools.then(|| Self::new(device)).transpose()?;
            // Nobody else sets it.
            let _ = device.pool.set(pool);
            grant_access(device);
        }
        Ok(device.pool.get().and_then(Option::as_ref).map(|pool| pool.0))
    }

    fn attribute(&self, device: &CudaDevice, attribute: c_int) -> Called<u64> {
        let mut value = 0_u64;
        // SAFETY: these attributes are 64 bits long.
        unsafe { device.driver.pool_get_attribute(self.0, attribute, (&raw mut value).cast()) }?;
        Ok(value)
    }

    fn grant(&self, device: &CudaDevice, peer: &CudaDevice) {
        let grant = Grant { location: Location::of(peer), flags: READ_AND_WRITE };
        // Without access, the driver copies between the devices through the host.
        // SAFETY: one grant, which is read during the call.
        let _ = unsafe { device.driver.pool_set_access(self.0, (&raw const grant).cast(), 1) };
    }
}

/// Gives this device and the others in use access to each other's pools, where possible.
pub(super) fn grant_access(device: &'static CudaDevice) {
    static GRANTING: Mutex<()> = Mutex::new(());
    // If two devices start at once, the second one sees the first.
    let _granting = GRANTING.lock().unwrap_or_else(PoisonError::into_inner);
    let grant = |of: &CudaDevice, to: &CudaDevice| {
        if let Some(Some(pool)) = of.pool.get()
            && to.reaches(of)
        {
            pool.grant(of, to);
        }
    };
    for other in CudaDevice::in_use().filter(|other| !std::ptr::eq(*other, device)) {
        grant(device, other);
        grant(other, device);
    }
}

/// Returns unused memory of the pool to the device.
pub(crate) fn trim_pool(current: &Current) -> Called {
    match current.device().pool.get() {
        // SAFETY: a pool of ours; what is in use stays.
        Some(Some(pool)) => unsafe { current.driver().pool_trim_to(pool.0, 0) },
        _ => Ok(()),
    }
}

impl CudaDevice {
    /// Returns the bytes of the device's pool; zeros without a pool.
    pub(crate) fn pool_use(&self) -> Called<PoolUse> {
        let Some(Some(pool)) = self.pool.get() else { return Ok(PoolUse::default()) };
        Ok(PoolUse {
            used: pool.attribute(self, USED)?,
            used_high: pool.attribute(self, USED_HIGH)?,
            reserved: pool.attribute(self, RESERVED)?,
            reserved_high: pool.attribute(self, RESERVED_HIGH)?,
        })
    }
}
