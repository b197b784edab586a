//! Copies memory from a device to the host, and to other memory of the device.
#![allow(unsafe_code, reason = "copies between memory of the device and of the host")]

mod arena;
mod batch;
mod destination;
mod host_read;
mod path;
mod request;
mod staging;
mod to_device;

use std::sync::Arc;

use arena::PinnedOwner;
pub(crate) use batch::{Returning, in_page_locked, page_locked, taken_over, to_device};
pub(crate) use destination::Destination;
#[cfg(feature = "python")]
pub(crate) use destination::require_path;
pub(crate) use host_read::{Fetched, fetch};
/// For the tests of this crate, and no part of its interface.
#[doc(hidden)]
pub use path::is_shared;
#[cfg(feature = "python")]
pub(crate) use path::plan_transfer;
pub(crate) use path::{elsewhere, is_read_in_place, plan_transfer_unasked};
pub use request::Transfer;
pub(crate) use to_device::bytes_to_host;
pub use to_device::{array_to_device, stream_to_device, tensor_to_device, tensors_to_device};

use smallvec::smallvec;

use crate::alloc::Owner;
use crate::arrow::{DeviceArray, count_bits};
use crate::copy_log::{self, Copied};
use crate::cuda::{Bits, Current, DeviceBuffer, PinnedBlock, PooledStream, Stream};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::ffi::dlpack::DLDeviceType;
pub(crate) use crate::stream_order::allocate;
use crate::stream_order::{self, Readiness, Wait};
use crate::tensor::{Parts, Tensor};

/// Waits on the host until it may read host-visible memory, in the order of `stream`, if one is named.
fn wait_to_read(device: Device, readiness: Option<&Readiness>, stream: Option<Stream>) -> Result<()> {
    let Some(readiness) = readiness else { return Ok(()) };
    readiness.wait_on_host(Wait::HostRead)?;
    let Some(stream) = stream else { return Ok(()) };
    let current = stream_order::enter(device)?;
    require_free(&current, stream)?;
    Readiness::recorded(device, &current, stream, Wait::HostReadStream)?.wait_on_host(Wait::HostReadStream)
}

/// Returns the array with counted nulls, if it is an array of structs on a device without a null count. The host reads
/// the bitmap.
///
/// # Errors
/// As [`array_to_device`], and if the memory contradicts the array.
#[doc(hidden)]
pub fn with_null_count(array: &DeviceArray) -> Result<DeviceArray> {
    let (Some(readiness), Some(bitmap)) = (array.readiness(), array.uncounted_bitmap()) else {
        return Ok(array.clone());
    };
    let start = bitmap.start().addr();
    if array.device().device_type() == DLDeviceType::CUDA {
        let current = stream_order::enter(array.device())?;
        current.check_memory(start, bitmap.len(), array.device())?;
        let bits = Bits { bitmap: device_address(start)?, first: bitmap.first_bit() as u64 };
        // SAFETY: the bitmap was just checked, and is released behind the kernel.
        let count = |nulls, stream| unsafe { current.count_nulls(bits, array.len() as u64, nulls, stream) };
        let nulls = number_by(readiness, &current, 0, count)?;
        return Ok(array.with_null_count(usize::try_from(nulls).unwrap_or(usize::MAX)));
    }
    let range = start..start.saturating_add(bitmap.len());
    let fetched = fetch(readiness, std::slice::from_ref(&range))?;
    let valid = count_bits(fetched.require(start, bitmap.len())?, bitmap.first_bit(), array.len());
    Ok(array.with_null_count(array.len().saturating_sub(valid)))
}

/// Returns the 64-bit number that a kernel computes, starting from bytes of `byte`, after the memory of `readiness` is
/// written. The host waits for it.
///
/// # Errors
/// If the driver fails, the wait is interrupted, or an allocation fails.
pub(crate) fn number_by(
    readiness: &Readiness,
    current: &Current,
    byte: u8,
    run: impl FnOnce(u64, Stream) -> Result<()>,
) -> Result<u64> {
    stream_order::load_kernels(current)?;
    let pooled = PooledStream::idle(current)?;
    let stream = pooled.stream();
    let number = stream_order::allocate_scratch(current, size_of::<u64>(), stream)?;
    readiness.wait_in(current, stream, Wait::KernelSource)?;
    let block = PinnedBlock::take(current)?;
    // SAFETY: the number was just allocated in this order.
    let started = unsafe { current.set_memory(number.start(), byte, size_of::<u64>(), stream) };
    let started = started.map_err(Error::from).and_then(|()| run(number.start(), stream)).and_then(|()| {
        // SAFETY: the number was just allocated in this order; the block is read when the copy is done.
        Ok(unsafe { current.copy_to_pinned(&block, 0, number.start(), size_of::<u64>(), stream) }?)
    });
    if let Err(error) = stream_order::wait_for_stream(current, stream, Wait::CopiedToHost) {
        // The kernel and the copy may still run, so the memory and the block are left to them.
        let uses = Readiness::on_device(Device::new(DLDeviceType::CUDA, current.device().ordinal()));
        let used = readiness.used_by(current, stream).and(uses.used_by(current, stream));
        uses.release(move || block.give_back());
        used.and(started)?;
        return Err(error);
    }
    // SAFETY: the block is aligned to a page, and the copy to it, if there is one, is done.
    let found = unsafe { block.start().cast::<u64>().read() };
    block.give_back();
    started.map(|()| found)
}

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
    copied?;
    let device = Device::new(DLDeviceType::CUDA, tensor.device().id());
    let readiness =
        source.used_by(&current, stream).and_then(|()| written(device, &current, stream, Wait::CopiedOnDevice));
    let (owner, readiness) = owned(buffer, readiness, &current, stream)?;
    copy_log::record(|| Copied {
        what: format!("{} on {}", what(tensor), tensor.device()),
        why: why.to_owned(),
        bytes: tensor.nbytes(),
    });
    let parts = Parts {
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

/// Returns the tensor `[0]`, the offsets of no rows, where `device` reaches it. It does not count as a copy. On a
/// device it is written in the order of this thread's stream; managed memory is never allocated here, and page-locked
/// memory is written in place.
///
/// # Errors
/// If the device is not reached through CUDA, the stream is being captured, the driver fails, or an allocation fails.
pub(crate) fn zero_on(device: Device, dtype: DType) -> Result<Tensor> {
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
    let parts = Parts {
        data,
        device,
        dtype,
        shape: smallvec![1],
        strides: smallvec![1],
        owner,
        read_only: true,
        copied: false,
        readiness: Some(readiness),
        field: None,
    };
    // SAFETY: one element, written before whoever waits as the order says reads.
    unsafe { Tensor::from_parts(parts) }
}

/// The owner of our memory that `stream` has started to write. It is freed behind the work that uses it.
///
/// # Errors
/// That of `readiness`.
fn owned(
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
    if current.is_capturing(stream)? {
        return Err(Error::new(
            ErrorKind::Device,
            "the stream is being captured, and a copy cannot be a part of the graph",
        )
        .remedy_is("copy before the capture, or on another stream"));
    }
    Ok(())
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

fn span(tensor: &Tensor) -> Result<(usize, usize)> {
    tensor.span().ok_or_else(|| Error::internal("the tensor is larger than memory can be"))
}

/// A tensor, for the copy log.
fn what(tensor: &Tensor) -> String {
    format!("tensor of {} {:?}", tensor.dtype(), tensor.shape())
}

pub(crate) fn device_address(address: usize) -> Result<u64> {
    u64::try_from(address).map_err(|_| Error::internal("an address beyond 64 bits"))
}

pub(crate) fn host_address(address: u64) -> Result<usize> {
    usize::try_from(address).map_err(|_| Error::internal("an address beyond the address space"))
}
