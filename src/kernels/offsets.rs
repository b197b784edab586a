//! Writes the offsets or the lengths of rows of several chunks one after the other, on their device.

use std::ops::Range;

use smallvec::smallvec;

use super::enter;
use super::padded::made;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::spec::signed;
use crate::stream_order::{self, Readiness, Wait, allocate};
use crate::tensor::Tensor;
use crate::transfer::device_address;

/// Offsets or lengths of a chunk.
#[derive(Clone, Debug)]
pub(crate) struct ShiftedOffsets {
    /// Their addresses, aligned for them.
    pub(crate) bytes: Range<usize>,
    /// What is added to each, wrapping.
    pub(crate) shift: u64,
}

/// Returns the integers of all chunks, each with what is added to it, in new memory of their device.
///
/// # Errors
/// As [`pack`](super::pack).
pub(crate) fn shift_offsets(readiness: &Readiness, chunks: &[ShiftedOffsets], dtype: DType) -> Result<Tensor> {
    let stream = stream_order::current_stream();
    let current = enter(readiness, &[], stream)?;
    chunks.iter().try_for_each(|chunk| readiness.check_part_in(&current, &chunk.bytes))?;
    let bytes = chunks.iter().try_fold(0_usize, |bytes, chunk| bytes.checked_add(chunk.bytes.len()));
    let too_large = || Error::new(ErrorKind::Memory, "the offsets are larger than memory can be");
    let (bytes, size) = (bytes.ok_or_else(too_large)?, dtype.itemsize());
    let count = |bytes: usize| bytes.checked_div(size).unwrap_or(0);
    let buffer = allocate(&current, bytes.max(1), stream)?;
    readiness.wait_in(&current, stream, Wait::KernelSource)?;
    let mut out = buffer.start();
    let started = chunks.iter().try_for_each(|ShiftedOffsets { bytes, shift }| {
        let (from, own) = (device_address(bytes.start)?, (count(bytes.len()) as u64, dtype == DType::Int64));
        // SAFETY: `check_part_in` has checked the addresses of the integers, which callers have found to be aligned, and whose memory is
        // freed behind the kernel in stream order; the output is new memory with room for those of all chunks.
        unsafe { current.shift_offsets(from, own, *shift, out, stream) }?;
        out += bytes.len() as u64;
        Ok(())
    });
    // Recorded after an error as well: kernels that were launched read the integers.
    let used = readiness.used_by(&current, stream);
    started.and(used)?;
    let layout = (smallvec![signed(count(bytes))?], smallvec![1]);
    made(&current, buffer, stream)?.tensor(dtype, layout, None)
}
