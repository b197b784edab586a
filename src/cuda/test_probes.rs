//! Probes for tests: the driver functions that are called, and the numbers of cached objects. When nothing is in use,
//! any other live object is a leak.

use std::sync::PoisonError;

use super::context::CudaDevice;
pub(crate) use super::driver::FUNCTIONS;
use super::pinned::kept_allocations;

/// Returns the image that the kernels were loaded from, by the ordinals of the devices that have loaded them.
pub(crate) fn images() -> Vec<(i32, &'static str)> {
    CudaDevice::in_use().filter_map(|device| Some((device.ordinal(), device.image()?))).collect()
}

/// Returns the numbers of idle objects by kind: streams, events, unpooled blocks, page-locked memory, pools of device
/// memory, and modules.
pub(crate) fn kept() -> [(&'static str, usize); 6] {
    let (mut streams, mut events, mut unpooled, mut pools, mut modules) = (0, 0, 0, 0, 0);
    for device in CudaDevice::in_use() {
        streams +=
            device.streams.lock().unwrap_or_else(PoisonError::into_inner).len() + usize::from(device.has_free_stream());
        events += device.events.lock().unwrap_or_else(PoisonError::into_inner).len();
        unpooled += device.unpooled.count();
        pools += usize::from(device.pool.get().is_some_and(Option::is_some));
        modules += usize::from(device.has_kernels());
    }
    let pinned = kept_allocations();
    [
        ("streams", streams),
        ("events", events),
        ("device", unpooled),
        ("pinned", pinned),
        ("pools", pools),
        ("modules", modules),
    ]
}
