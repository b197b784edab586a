//! What tests ask: the driver's functions that are called, and how many of its objects are kept for later. When nothing of
//! ours is in use, what else is alive was lost.

use std::sync::{Mutex, PoisonError};

use super::context::CudaDevice;
pub(crate) use super::driver::FUNCTIONS;
use super::memory::PinnedBlock;

/// How many are idle, by kind: streams and events of ours, page-locked blocks, and pools of device memory.
pub(crate) fn kept() -> [(&'static str, usize); 4] {
    let (mut streams, mut events, mut pools) = (0, 0, 0);
    for device in CudaDevice::in_use() {
        streams += count(&device.streams);
        events += count(&device.events);
        pools += usize::from(device.memory.get().is_some());
    }
    [("streams", streams), ("events", events), ("pinned", PinnedBlock::idle()), ("pools", pools)]
}

fn count<T>(idle: &Mutex<Vec<T>>) -> usize {
    idle.lock().unwrap_or_else(PoisonError::into_inner).len()
}
