//! Memory of a device to the host, and to other memory of the device.
#![allow(unsafe_code, reason = "copies between memory of the device and of the host")]

use std::sync::Arc;

use crate::alloc::HostBuffer;
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
    let buffer = HostBuffer::uninitialised(bytes)?;
    read(order, tensor.as_ptr().addr().wrapping_sub(before), &buffer)?;
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

/// The bytes of memory on a device, once they are written. The driver is asked whether there are so many.
///
/// # Errors
/// As [`to_host`].
pub(crate) fn read_bytes(order: &Order, address: usize, bytes: usize) -> Result<Vec<u8>> {
    if is_host_visible(order.device()) {
        order::check_memory(order.device(), address, bytes)?;
        order.wait_on_host(Wait::HostRead)?;
        let start = std::ptr::with_exposed_provenance::<u8>(address);
        // SAFETY: the driver knows as many bytes of host-visible memory there, and what writes them is done.
        return Ok(if bytes == 0 { Vec::new() } else { unsafe { std::slice::from_raw_parts(start, bytes) }.to_vec() });
    }
    let buffer = HostBuffer::uninitialised(bytes)?;
    read(order, address, &buffer)?;
    // SAFETY: just written, all of it.
    Ok(unsafe { std::slice::from_raw_parts(buffer.as_ptr(), bytes) }.to_vec())
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
/// to block. The buffer is nobody else's yet.
fn read(order: &Order, address: usize, target: &HostBuffer) -> Result<()> {
    let (bytes, target) = (target.len(), target.as_ptr());
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
        unsafe { current.copy_to_pinned(&block, device_address(address)?, length, stream) }?;
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
