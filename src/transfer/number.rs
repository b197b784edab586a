//! Numbers that the host waits for: a kernel computes them, such as the nulls of a bitmap.

use super::host_read::read_to_host;
use super::own_memory::device_address;
use crate::arrow::{DeviceArray, count_bits};
use crate::cuda::{Current, DeviceBits, PinnedBlock, PooledStream, Stream};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::ffi::dlpack::DLDeviceType;
use crate::stream_order::{self, Readiness, Wait};

/// Returns the array with counted nulls, if it is an array of structs on a device without a null count. The host reads
/// the bitmap.
///
/// # Errors
/// As [`super::array_to_device`], and if the memory contradicts the array.
#[doc(hidden)]
pub fn with_null_count(array: &DeviceArray) -> Result<DeviceArray> {
    let (Some(readiness), Some(bitmap)) = (array.readiness(), array.uncounted_bitmap()) else {
        return Ok(array.clone());
    };
    let start = bitmap.start().addr();
    if array.device().device_type() == DLDeviceType::CUDA {
        let current = stream_order::enter(array.device())?;
        current.check_memory(start, bitmap.len(), array.device())?;
        let bits = DeviceBits { bitmap: device_address(start)?, first: bitmap.first_bit() as u64 };
        // SAFETY: the bitmap was just checked, and is released behind the kernel.
        let count = |nulls, stream| unsafe { current.count_nulls(bits, array.len() as u64, nulls, stream) };
        let nulls = number_by(readiness, &current, 0, count)?;
        return Ok(array.with_null_count(usize::try_from(nulls).unwrap_or(usize::MAX)));
    }
    let range = start..start.saturating_add(bitmap.len());
    let host_read = read_to_host(readiness, std::slice::from_ref(&range))?;
    let valid = count_bits(host_read.require(start, bitmap.len())?, bitmap.first_bit(), array.len());
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
