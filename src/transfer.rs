//! Memory of a device to the host, and to other memory of the device.
#![allow(unsafe_code, reason = "copies between memory of the device and of the host")]

mod fetch;

use std::sync::Arc;

pub(crate) use fetch::{Fetched, fetch};

use crate::alloc::HostBuffer;
use crate::arrow::{DeviceArray, count_bits};
use crate::copy_log::{self, Copied};
use crate::cuda::{Current, DeviceBuffer, PinnedBlock, PooledStream, Stream, is_cuda, is_host_visible};
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::order::{self, Order, Wait};
use crate::tensor::{Parts, Tensor};

/// A tensor that the host may read now: itself in host memory, the same memory where that is host-visible, else a copy.
///
/// # Errors
/// When the device is not reached through CUDA, the driver fails, the wait is interrupted, or memory cannot be had.
pub(crate) fn to_host(tensor: &Tensor, why: &str) -> Result<Tensor> {
    let Some(order) = tensor.order() else { return Ok(tensor.clone()) };
    if is_host_visible(tensor.device()) {
        order.wait_on_host(Wait::HostRead)?;
        return Ok(tensor.relabelled(Device::CPU));
    }
    let (before, bytes) = span(tensor)?;
    let mut buffer = HostBuffer::uninitialised(bytes)?;
    read(order, tensor.as_ptr().addr().wrapping_sub(before), buffer.as_ptr(), &mut buffer, bytes)?;
    record(tensor, why);
    let parts = Parts {
        data: buffer.as_ptr().wrapping_add(before),
        device: Device::CPU,
        owner: Arc::new(buffer),
        order: None,
        read_only: false,
        copied: true,
        ..tensor.parts()
    };
    // SAFETY: the bytes from the lowest to the highest element were just written, in the layout that the tensor has.
    let copy = unsafe { Tensor::from_raw_parts(parts) }?;
    Ok(copy.with_codes_of(tensor))
}

/// The array, the null slots of which are counted if it is one of structs on a device that does not tell. The host reads their
/// bitmap.
///
/// # Errors
/// As [`to_host`], and when the memory is not what the array says.
pub(crate) fn with_null_count(array: &DeviceArray) -> Result<DeviceArray> {
    let (Some(order), Some(bitmap)) = (array.order(), array.uncounted_bitmap()) else { return Ok(array.clone()) };
    let start = bitmap.start().addr();
    let range = start..start.saturating_add(bitmap.len());
    let fetched = fetch(order, std::slice::from_ref(&range))?;
    let valid = count_bits(fetched.require(start, bitmap.len())?, bitmap.first_bit(), array.len());
    Ok(array.with_null_count(array.len().saturating_sub(valid)))
}

/// A copy of a tensor in memory of its own on the same device, in the order of `stream`, and with the same strides.
///
/// # Errors
/// When the device is not reached through CUDA, the stream is another device's, the driver fails, or memory cannot be had.
pub(crate) fn copy_on_device(tensor: &Tensor, stream: Stream, why: &str) -> Result<Tensor> {
    let Some(source) = tensor.order() else { return Err(Error::argument("the data is in host memory")) };
    let (before, bytes) = span(tensor)?;
    if bytes == 0 {
        return Ok(tensor.clone());
    }
    let current = order::enter(tensor.device())?;
    current.require_own(stream)?;
    if current.is_capturing(stream)? {
        return Err(Error::new(ErrorKind::Device, "the stream is being captured, and a copy needs memory of its own")
            .remedy_is("copy before the capture"));
    }
    let buffer = DeviceBuffer::new(&current, bytes, stream)?;
    let start = buffer.start();
    source.wait_in(&current, stream, Wait::CopySource)?;
    let from = device_address(tensor.as_ptr().addr().wrapping_sub(before))?;
    // SAFETY: the tensor's memory has these bytes, and is released behind this copy; the buffer was made for them.
    let copied = unsafe { current.copy_on_device(start, from, bytes, stream) };
    source.used_by(&current, stream)?;
    copied?;
    let order = Order::recorded(
        Device::new(crate::ffi::dlpack::DLDeviceType::CUDA, tensor.device().id()),
        &current,
        stream,
        Wait::CopiedOnDevice,
    )?;
    record(tensor, why);
    let owner = OwnBuffer { buffer: Some(buffer), order: order.clone() };
    let parts = Parts {
        data: std::ptr::without_provenance_mut::<u8>(host_address(start)?).wrapping_add(before),
        device: order.device(),
        owner: Arc::new(owner),
        order: Some(order),
        read_only: false,
        copied: true,
        ..tensor.parts()
    };
    // SAFETY: the bytes from the lowest to the highest element are written before whoever waits as the order says reads.
    let copy = unsafe { Tensor::from_raw_parts(parts) }?;
    Ok(copy.with_codes_of(tensor))
}

/// Memory of ours on a device, freed behind the work that may use it.
struct OwnBuffer {
    buffer: Option<DeviceBuffer>,
    order: Order,
}

impl Drop for OwnBuffer {
    fn drop(&mut self) {
        let buffer = self.buffer.take();
        self.order.release(move || drop(buffer));
    }
}

fn span(tensor: &Tensor) -> Result<(usize, usize)> {
    tensor.span().ok_or_else(|| Error::invalid("the tensor is larger than memory can be"))
}

fn record(tensor: &Tensor, why: &str) {
    copy_log::record(|| Copied {
        what: format!("tensor of {} {:?} on {}", tensor.dtype(), tensor.shape(), tensor.device()),
        why: why.to_owned(),
        bytes: tensor.nbytes(),
    });
}

fn device_address(address: usize) -> Result<u64> {
    u64::try_from(address).map_err(|_| Error::invalid("an address beyond 64 bits"))
}

fn host_address(address: u64) -> Result<usize> {
    usize::try_from(address).map_err(|_| Error::invalid("an address beyond the address space"))
}

/// Copies from the device to ordinary memory, by way of page-locked blocks: what the driver would do with it otherwise is
/// to block.
fn read(order: &Order, address: usize, target: *mut u8, _room: &mut HostBuffer, bytes: usize) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let device = order.device();
    if !is_cuda(device) {
        return order::enter(device).map(drop);
    }
    let current = order::enter(device)?;
    current.check_memory(address, bytes, device)?;
    let stream = PooledStream::idle(&current)?;
    order.wait_in(&current, stream.stream(), Wait::CopySource)?;
    let mut pending: Option<Piece> = None;
    let mut done = 0;
    let mut outcome = Ok(());
    while done < bytes && outcome.is_ok() {
        let length = (bytes - done).min(PinnedBlock::BYTES);
        outcome = Piece::start(&current, stream.stream(), address.wrapping_add(done), length, done).and_then(|piece| {
            let before = pending.replace(piece);
            done += length;
            // The block before is copied on while this one is under way.
            before.map_or(Ok(()), |before| before.finish(target))
        });
    }
    let last = pending.map_or(Ok(()), |piece| piece.finish(target));
    // The source may be released before an interrupted copy is done.
    if outcome.is_err() || last.is_err() {
        order.used_by(&current, stream.stream())?;
    }
    outcome.and(last)
}

/// A part of a copy to the host that is under way.
struct Piece {
    block: PinnedBlock,
    order: Order,
    length: usize,
    at: usize,
}

impl Piece {
    fn start(current: &Current, stream: Stream, address: usize, length: usize, at: usize) -> Result<Self> {
        let block = PinnedBlock::take(current)?;
        // SAFETY: `read` has checked the range; the block is read when the copy is done.
        unsafe { current.copy_to_pinned(&block, 0, device_address(address)?, length, stream) }?;
        let order = Order::recorded(
            Device::new(crate::ffi::dlpack::DLDeviceType::CUDA, current.device().ordinal()),
            current,
            stream,
            Wait::CopiedToHost,
        )?;
        Ok(Self { block, order, length, at })
    }

    /// Waits for the copy. A wait that is interrupted leaves the block to it.
    fn finish(self, target: *mut u8) -> Result<()> {
        self.order.wait_on_host(Wait::CopiedToHost)?;
        // SAFETY: the block has this many bytes, and so has the target from there on.
        unsafe { target.wrapping_add(self.at).copy_from_nonoverlapping(self.block.start(), self.length) };
        self.block.give_back();
        Ok(())
    }
}
