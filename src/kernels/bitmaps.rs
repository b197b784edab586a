//! Makes bitmaps in memory of a device: of bools, and of several bitmaps.

use std::sync::Arc;

use super::source::kernel_level;
use super::{LINE, enter};
use crate::arrow::{BitmapLevel, DeviceBitmaps};
use crate::cuda::{Current, DeviceBuffer, KernelLevel, PinnedBuffer, Stream};
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::ffi::dlpack::DLDeviceType;
use crate::stream_order::{self, Readiness, Wait, allocate, allocate_scratch};
use crate::tensor::Owner;
use crate::transfer::{OwnBuffer, PinnedOwner, device_address, host_address, written};

/// Packs columns of `count` bools of one byte each into bits on `device`; the bits of each column start on a cache line.
///
/// # Errors
/// As [`super::pack`].
pub(crate) fn pack_bits(
    readiness: &Readiness,
    columns: &[usize],
    count: usize,
    device: Device,
) -> Result<DeviceBitmaps> {
    let stream = stream_order::current_stream();
    let current = enter(readiness, &[], stream)?;
    for start in columns {
        current.check_memory(*start, count, readiness.device())?;
    }
    let pitch = count.div_ceil(8).next_multiple_of(LINE);
    let bytes = pitch.checked_mul(columns.len()).ok_or_else(too_large)?;
    let buffer = BitsBuffer::new(&current, bytes.max(1), device, stream)?;
    readiness.wait_in(&current, stream, Wait::KernelSource)?;
    let first = buffer.start()?;
    let mut out = first;
    let mut pack = |start: &usize| {
        // SAFETY: the bytes were just checked, and are released behind the kernel; the output has a bit for each.
        unsafe { current.pack_bits(device_address(*start)?, count as u64, out, stream) }?;
        out += pitch as u64;
        Ok(())
    };
    let started = columns.iter().try_for_each(&mut pack);
    let used = readiness.used_by(&current, stream);
    buffer.finish((first, pitch), started.and(used), (&current, stream), device)
}

/// Our memory for bitmaps.
enum BitsBuffer {
    Device(DeviceBuffer),
    PageLocked(PinnedBuffer),
}

impl BitsBuffer {
    fn new(current: &Current, bytes: usize, device: Device, stream: Stream) -> Result<Self> {
        if device.device_type() == DLDeviceType::CUDA_HOST {
            return stream_order::page_locked(current, bytes).map(Self::PageLocked);
        }
        allocate(current, bytes, stream).map(Self::Device)
    }

    fn start(&self) -> Result<u64> {
        match self {
            Self::Device(buffer) => Ok(buffer.start()),
            Self::PageLocked(buffer) => device_address(buffer.start().addr()),
        }
    }

    /// Returns the bitmaps, the first one at `start` and each `pitch` bytes behind the one before, when their kernels have started.
    fn finish(
        self,
        (start, pitch): (u64, usize),
        started: Result<()>,
        (current, stream): (&Current, Stream),
        device: Device,
    ) -> Result<DeviceBitmaps> {
        match started.and_then(|()| written(device, current, stream, Wait::KernelWritten)) {
            Ok(made) => {
                let start = host_address(start)?;
                Ok(DeviceBitmaps { start, pitch, owner: self.owner(&made), readiness: made })
            }
            Err(error) => {
                self.leave(current, stream);
                Err(error)
            }
        }
    }

    /// Gives the memory back after an error, when kernels may write it still.
    fn leave(self, current: &Current, stream: Stream) {
        // Memory of the device is freed in the order of the stream. If nobody knows when the kernels end, page-locked memory is left to them.
        if let Self::PageLocked(buffer) = self
            && stream_order::settle(current, stream).is_err()
        {
            std::mem::forget(buffer);
        }
    }

    /// What frees the memory behind the work that `readiness` knows.
    fn owner(self, readiness: &Readiness) -> Owner {
        match self {
            Self::Device(buffer) => Arc::new(OwnBuffer::new(buffer, readiness.clone())),
            Self::PageLocked(buffer) => Arc::new(PinnedOwner::new(buffer, readiness.clone())),
        }
    }
}

/// Joins the bitmaps of `elements` elements into one for each column: an element is valid if it is at every level. `None` if no kernel
/// writes memory like that of the bitmaps.
///
/// # Errors
/// As [`super::pack`].
pub(crate) fn join_bits(
    readiness: &Readiness,
    columns: &[Vec<BitmapLevel>],
    elements: usize,
) -> Result<Option<DeviceBitmaps>> {
    let device = readiness.device();
    if !matches!(device.device_type(), DLDeviceType::CUDA | DLDeviceType::CUDA_HOST) {
        return Ok(None);
    }
    let stream = stream_order::current_stream();
    let current = enter(readiness, &[], stream)?;
    for level in columns.iter().flatten() {
        readiness.check_part_in(&current, &(level.start..level.start.saturating_add(level.bytes)))?;
    }
    let words: Vec<u64> = columns.iter().flatten().flat_map(|level| kernel_level(level).to_words()).collect();
    let table = allocate_scratch(&current, words.len().checked_mul(8).ok_or_else(too_large)?.max(1), stream)?;
    let pitch = elements.div_ceil(8).next_multiple_of(LINE);
    let bytes = pitch.checked_mul(columns.len()).ok_or_else(too_large)?;
    let buffer = BitsBuffer::new(&current, bytes.max(1), device, stream)?;
    readiness.wait_in(&current, stream, Wait::KernelSource)?;
    let first = buffer.start()?;
    let (mut levels, mut out) = (table.start(), first);
    let mut join = |column: &Vec<BitmapLevel>| {
        let count = u32::try_from(column.len()).map_err(|_| too_large())?;
        // SAFETY: the levels are stored by now, and their bitmaps were checked, and are released behind the kernel; the output has a bit
        // for each element.
        unsafe { current.join_validity((levels, count), elements as u64, out, stream) }?;
        levels += (column.len() * KernelLevel::BYTES) as u64;
        out += pitch as u64;
        Ok(())
    };
    // SAFETY: the scratch memory was allocated in the order of the stream, with room for the words.
    let stored = unsafe { current.store_table(&words, table.start(), stream) };
    let started = stored.and_then(|()| columns.iter().try_for_each(&mut join));
    let used = readiness.used_by(&current, stream);
    buffer.finish((first, pitch), started.and(used), (&current, stream), device).map(Some)
}

fn too_large() -> Error {
    Error::new(ErrorKind::Memory, "more bits than memory")
}
