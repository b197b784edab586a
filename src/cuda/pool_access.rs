//! Which devices reach the memory of a pool.

use std::ffi::c_int;

use super::driver::{Driver, PoolHandle};

/// `CUmemLocation`.
#[repr(C)]
pub(super) struct Location {
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

const _: () = assert!(size_of::<Grant>() == 12);

const ON_DEVICE: c_int = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
const READ_AND_WRITE: c_int = 3;

impl Location {
    /// The memory of the device of this ordinal.
    pub(super) fn of(ordinal: i32) -> Self {
        Self { kind: ON_DEVICE, id: ordinal }
    }
}

/// Lets the device of this ordinal read and write the memory of a pool of ours. Without that, which the driver may refuse, it
/// copies between the devices through the host.
pub(super) fn grant(driver: &Driver, pool: PoolHandle, ordinal: i32) {
    let grant = Grant { location: Location::of(ordinal), flags: READ_AND_WRITE };
    // SAFETY: one grant, which is read during the call.
    let _ = unsafe { driver.pool_set_access(pool, (&raw const grant).cast(), 1) };
}
