//! Our own memory of a copy: when it is written, and what frees it behind the work that uses it.

use std::sync::Arc;

use crate::alloc::Owner;
use crate::cuda::{Current, DeviceBuffer, PinnedBuffer, Stream};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::stream_order::{self, Readiness, Wait};

/// Returns the owner of our memory that `stream` has started to write. It is freed behind the work that uses it.
///
/// # Errors
/// That of `readiness`.
pub(super) fn owned(
    buffer: DeviceBuffer,
    readiness: Result<Readiness>,
    current: &Current,
    stream: Stream,
) -> Result<(Owner, Readiness)> {
    match readiness {
        Ok(readiness) => Ok((Arc::new(OwnBuffer::new(buffer, readiness.clone())), readiness)),
        Err(error) => {
            // Started work may still run. If that cannot be known, the memory is left to it.
            if stream_order::settle(current, stream).is_err() {
                std::mem::forget(buffer);
            }
            Err(error)
        }
    }
}

/// Returns the readiness of memory that our copy on `stream` has just started to write, and that is freed behind the
/// copy.
pub(crate) fn written(device: Device, current: &Current, stream: Stream, wait: Wait) -> Result<Readiness> {
    let readiness = Readiness::recorded(device, current, stream, wait)?;
    readiness.used_for(current, stream, Wait::OwnKept)?;
    Ok(readiness)
}

/// Refuses a stream of another device or context, and one under capture, where a copy would become part of the graph.
pub(crate) fn require_free(current: &Current, stream: Stream) -> Result<()> {
    current.require_own(stream)?;
    stream_order::refuse_capture(current, stream, "neither a copy nor its memory can be a part of the graph")
}

/// Our memory on a device, freed behind the work that may use it.
#[derive(Debug)]
pub(crate) struct OwnBuffer {
    buffer: Option<DeviceBuffer>,
    readiness: Readiness,
}

impl OwnBuffer {
    /// Memory, all work of which `readiness` knows.
    pub(crate) fn new(buffer: DeviceBuffer, readiness: Readiness) -> Self {
        Self { buffer: Some(buffer.shared()), readiness }
    }
}

impl Drop for OwnBuffer {
    fn drop(&mut self) {
        let Some(buffer) = self.buffer.take() else { return };
        self.readiness.release_bytes(buffer.bytes(), move || drop(buffer));
    }
}

/// Our page-locked memory, cached for the next result behind the work that may use it.
#[derive(Debug)]
pub(crate) struct PinnedOwner {
    buffer: Option<PinnedBuffer>,
    readiness: Readiness,
}

impl PinnedOwner {
    /// Memory, all work of which `readiness` knows.
    pub(crate) fn new(buffer: PinnedBuffer, readiness: Readiness) -> Self {
        Self { buffer: Some(buffer), readiness }
    }
}

impl Drop for PinnedOwner {
    fn drop(&mut self) {
        let buffer = self.buffer.take();
        self.readiness.release(move || drop(buffer));
    }
}

pub(crate) fn device_address(address: usize) -> Result<u64> {
    u64::try_from(address).map_err(|_| Error::internal("an address beyond 64 bits"))
}

pub(crate) fn host_address(address: u64) -> Result<usize> {
    usize::try_from(address).map_err(|_| Error::internal("an address beyond the address space"))
}
