//! Numbers that the host waits for: a kernel computes them, such as the nulls of a bitmap.

use super::host_read::read_to_host;
use super::own_memory::device_address;
use crate::alloc::fallible;
use crate::arrow::{DeviceArray, count_bits};
use crate::cuda::{Current, DeviceBits, PinnedBlock, PooledStream, Stream};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::ffi::dlpack::DLDeviceType;
use crate::stream_order::{self, Readiness, Wait};

/// Returns the array with counted nulls, if it is an array of structs on a device without a null count. A kernel counts
/// those of CUDA memory, and the host waits for the number; elsewhere the host reads the bitmap.
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
        let bitmap = [(bits, array.len() as u64)];
        // SAFETY: the bitmap was just checked, and is released behind the kernel.
        let count = |nulls, stream| unsafe { current.count_nulls(&bitmap, nulls, stream) };
        let nulls: u64 = numbers_by(readiness, &current, [1, 0], count)?.into_iter().sum();
        return Ok(array.with_null_count(usize::try_from(nulls).unwrap_or(usize::MAX)));
    }
    let range = start..start.saturating_add(bitmap.len());
    let host_read = read_to_host(readiness, std::slice::from_ref(&range))?;
    let valid = count_bits(host_read.require(start, bitmap.len())?, bitmap.first_bit(), array.len());
    Ok(array.with_null_count(array.len().saturating_sub(valid)))
}

/// Returns the 64-bit numbers that kernels compute after the memory of `readiness` is written: so many that are 0 before, followed
/// by so many that are `u64::MAX`. The host waits for them.
///
/// # Errors
/// If there are more than a staging buffer has room for, the driver fails, the wait is interrupted, or an allocation
/// fails.
pub(crate) fn numbers_by(
    readiness: &Readiness,
    current: &Current,
    [zeros, maxima]: [usize; 2],
    run: impl FnOnce(u64, Stream) -> Result<()>,
) -> Result<Vec<u64>> {
    const NUMBER: usize = size_of::<u64>();
    let count = zeros.checked_add(maxima).filter(|count| *count > 0 && *count <= PinnedBlock::BYTES / NUMBER);
    let count = count.ok_or_else(|| Error::internal("too many numbers for a staging buffer, or none"))?;
    let mut found = fallible::with_room(count)?;
    stream_order::load_kernels(current)?;
    let pooled = PooledStream::idle(current)?;
    let stream = pooled.stream();
    let numbers = stream_order::allocate_scratch(current, count * NUMBER, stream)?;
    let start = numbers.start();
    readiness.wait_in(current, stream, Wait::KernelSource)?;
    let block = PinnedBlock::take(current)?;
    let set = |from: usize, byte: u8, count: usize| match count {
        0 => Ok(()),
        // SAFETY: the numbers were just allocated in this order, `zeros` and `maxima` of them.
        _ => unsafe { current.set_memory(start + (from * NUMBER) as u64, byte, count * NUMBER, stream) },
    };
    let started = set(0, 0, zeros).and_then(|()| set(zeros, u8::MAX, maxima)).map_err(Error::from);
    let started = started.and_then(|()| run(start, stream)).and_then(|()| {
        // SAFETY: the numbers were just allocated in this order; the block has room, and is read when the copy is done.
        Ok(unsafe { current.copy_to_pinned(&block, 0, start, count * NUMBER, stream) }?)
    });
    if let Err(error) = stream_order::wait_for_stream(current, stream, Wait::CopiedToHost) {
        // The kernel and the copy may still run, so the memory and the block are left to them.
        let uses = Readiness::on_device(Device::new(DLDeviceType::CUDA, current.device().ordinal()));
        let used = readiness.used_by(current, stream).and(uses.used_by(current, stream));
        uses.release(move || block.give_back());
        used.and(started)?;
        return Err(error);
    }
    // SAFETY: the block is aligned to a page and has room for `count` numbers; the copy to it, if there is one, is done, and
    // nothing else writes it.
    found.extend_from_slice(unsafe { std::slice::from_raw_parts(block.start().cast::<u64>(), count) });
    block.give_back();
    started.map(|()| found)
}
