//! Tensors that are made on a device: copies, and the offsets of no rows.

use std::sync::Arc;

use smallvec::smallvec;

use super::own_memory::{PinnedOwner, device_address, host_address, owned, require_free, written};
use crate::alloc::Owner;
use crate::cuda::Stream;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ffi::dlpack::DLDeviceType;
use crate::plan::TransferStep;
use crate::stream_order::{self, Readiness, Wait, allocate};
use crate::tensor::{Tensor, TensorParts};

/// Returns a copy of a tensor on the same device, in the order of `stream`, with the same strides.
///
/// # Errors
/// If the device is not reached through CUDA, the stream is another device's, the driver fails, or an allocation fails.
#[doc(hidden)]
pub fn copy_on_device(tensor: &Tensor, stream: Stream, why: &str) -> Result<Tensor> {
    let Some(source) = tensor.readiness() else { return Err(Error::argument("the data is in host memory")) };
    let (before, bytes) = span(tensor)?;
    if bytes == 0 {
        return Ok(tensor.clone());
    }
    let current = stream_order::enter(tensor.device())?;
    require_free(&current, stream)?;
    let buffer = allocate(&current, bytes, stream)?;
    let start = buffer.start();
    source.wait_in(&current, stream, Wait::CopySource)?;
    let from = device_address(tensor.as_ptr().addr().wrapping_sub(before))?;
    // SAFETY: the tensor's memory has these bytes, and is released behind this copy; the buffer was made for them.
    let copied = unsafe { current.copy_on_device(start, from, bytes, stream) };
    // Also after an error, which may be that of earlier work.
    let used = source.used_by(&current, stream);
    copied?;
    let device = Device::new(DLDeviceType::CUDA, tensor.device().id());
    let readiness = used.and_then(|()| written(device, &current, stream, Wait::CopiedOnDevice));
    let (owner, readiness) = owned(buffer, readiness, &current, stream)?;
    TransferStep::within(tensor.device()).record(|| what(tensor), why, tensor.nbytes());
    let parts = TensorParts {
        data: std::ptr::without_provenance_mut::<u8>(host_address(start)?).wrapping_add(before),
        device: readiness.device(),
        owner,
        readiness: Some(readiness),
        read_only: false,
        copied: true,
        ..tensor.parts()
    };
    // SAFETY: the bytes from the lowest to the highest element are written before whoever waits as the order says reads.
    let copy = unsafe { Tensor::from_parts(parts) }?;
    Ok(copy.with_codes_of(tensor))
}

/// Returns the tensor `[0]`, the offsets of no rows, where `device` reaches it. It counts as a copy, and may be written to, if it `is_own`.
/// On a device it is written in the order of this thread's stream; managed memory is never allocated here, and page-locked
/// memory is written in place.
///
/// # Errors
/// If the device is not reached through CUDA, the stream is being captured, the driver fails, or an allocation fails.
pub(crate) fn zero_on(device: Device, dtype: DType, is_own: bool) -> Result<Tensor> {
    let current = stream_order::enter(device)?;
    let bytes = dtype.itemsize();
    let (data, owner, readiness): (*mut u8, Owner, _) = if device.device_type() == DLDeviceType::CUDA {
        let stream = stream_order::current_stream();
        require_free(&current, stream)?;
        let buffer = allocate(&current, bytes, stream)?;
        let start = buffer.start();
        // SAFETY: the memory was just allocated in this order.
        unsafe { current.set_memory(start, 0, bytes, stream) }?;
        let readiness = written(device, &current, stream, Wait::CopiedOnDevice);
        let (owner, readiness) = owned(buffer, readiness, &current, stream)?;
        (std::ptr::without_provenance_mut(host_address(start)?), owner, readiness)
    } else {
        let buffer = stream_order::page_locked(&current, bytes)?;
        let (start, readiness) = (buffer.start(), Readiness::on_device(device));
        // SAFETY: nobody else knows the buffer yet, which has room.
        unsafe { start.write_bytes(0, bytes) };
        (start, Arc::new(PinnedOwner::new(buffer, readiness.clone())), readiness)
    };
    let parts = TensorParts::of_host(data, dtype, (smallvec![1], smallvec![1]), owner);
    let parts = TensorParts { device, readiness: Some(readiness), read_only: !is_own, copied: is_own, ..parts };
    // SAFETY: one element, written before whoever waits as the order says reads.
    unsafe { Tensor::from_parts(parts) }
}

/// Returns the bytes of a tensor before its first element, and all of its bytes.
///
/// # Errors
/// If they are more than memory can have.
pub(super) fn span(tensor: &Tensor) -> Result<(usize, usize)> {
    tensor.span().ok_or_else(|| Error::internal("the tensor is larger than memory can be"))
}

/// Names a tensor in the copy log.
pub(super) fn what(tensor: &Tensor) -> String {
    format!("tensor of {} {:?}", tensor.dtype(), tensor.shape())
}
