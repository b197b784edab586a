//! What does a device need before its first use, so that no later call has to make it?

use super::memory::{allocate_scratch, staging_block};
use super::{enter, host};
use crate::cuda::{Event, PinnedBlock, PooledStream};
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::ffi::dlpack::DLDeviceType;

/// Prepares a CUDA device for later calls, which then pay for none of this: starts the device, loads the kernels, which a driver may
/// have to compile for a second or two, creates the memory pool, a stream and an event, and page-locks a staging buffer.
///
/// Nobody has to call this: the first call that needs one of these makes it. It helps before a time measurement, and before a
/// CUDA graph is captured, because the host may wait for the device while kernels are loaded or memory is page-locked. Calling it again
/// costs a few driver calls.
///
/// # Errors
/// If the device is no CUDA device, there is no such device or no driver, the driver fails, or memory is out. A later call
/// starts where this one failed.
pub fn warm_up(device: Device) -> Result<()> {
    if device.device_type() != DLDeviceType::CUDA {
        let reason = format!("{device} has nothing to prepare");
        return Err(Error::new(ErrorKind::Device, reason).remedy_is("name a CUDA device, such as \"cuda:0\""));
    }
    let current = enter(device)?;
    host::load_kernels(&current)?;
    let stream = PooledStream::idle(&current)?;
    // The pool is created for its first block.
    drop(allocate_scratch(&current, 1, stream.stream())?);
    current.free_stream();
    drop(Event::record(&current, stream.stream())?);
    staging_block(&current)?.into_iter().for_each(PinnedBlock::give_back);
    Ok(())
}
