//! Makes tensors of offsets, lengths and flags: collected from an iterator, or views of buffers.

use std::mem::MaybeUninit;
use std::sync::Arc;

use smallvec::smallvec;

use super::rounds::{in_rounds, look_for_signals};
use crate::alloc::HostBuffer;
use crate::arrow::{BitmapBytes, DeviceArray, Ints, ListChunk, ListInts};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::spec::signed;
use crate::tensor::{Native, Tensor, TensorParts};

/// Returns a 1-d tensor of `len` integers from an iterator; `dtype` is int32 or int64.
///
/// # Errors
/// If an integer does not fit the dtype, their number differs, or the allocation fails.
pub(crate) fn collect_ints(dtype: DType, len: usize, ints: impl Iterator<Item = usize>) -> Result<Tensor> {
    if dtype == DType::Int32 {
        collect(dtype, len, ints.map(|int| i32::try_from(int).map_err(|_| beyond_int32())))
    } else {
        let too_large = || Error::unsupported("offsets beyond int64");
        collect(dtype, len, ints.map(|int| i64::try_from(int).map_err(|_| too_large())))
    }
}

/// The error for chunks that have more elements together than 32-bit offsets can count.
pub(crate) fn beyond_int32() -> Error {
    Error::unsupported("offsets beyond int32").remedy_is("cast the column to large_list or large_string first")
}

/// A 1-d bool tensor.
///
/// # Errors
/// If the number of flags differs, or the allocation fails.
pub(crate) fn collect_bools(len: usize, flags: impl Iterator<Item = bool>) -> Result<Tensor> {
    collect::<u8>(DType::Bool, len, flags.map(|flag| Ok(u8::from(flag))))
}

fn collect<T: Native>(dtype: DType, len: usize, mut values: impl Iterator<Item = Result<T>>) -> Result<Tensor> {
    debug_assert_eq!(dtype.itemsize(), size_of::<T>());
    let too_large = || Error::new(ErrorKind::Memory, "the result is larger than memory can be");
    let mut buffer = HostBuffer::uninitialised(len.checked_mul(size_of::<T>()).ok_or_else(too_large)?)?;
    // SAFETY: any bytes are valid as MaybeUninit<T>; the block is aligned for every T, so that the middle is all of it.
    let (_, slots, _) = unsafe { buffer.as_uninit_mut().align_to_mut::<MaybeUninit<T>>() };
    let mut written = 0;
    in_rounds(slots.len(), size_of::<T>(), |part| {
        let mut slots = slots.get_mut(part).unwrap_or(&mut []).iter_mut();
        // By the iterator's own loop, as one of several parts is slow step by step.
        values.by_ref().take(slots.len()).try_for_each(|value| {
            let value = value?;
            if let Some(slot) = slots.next() {
                slot.write(value);
            }
            written += 1;
            Ok(())
        })
    })?;
    if written != len {
        return Err(Error::internal(format!("{written} values of {len}")));
    }
    // SAFETY: `len` elements were written, `Native` or bytes that are 0 or 1.
    unsafe { Tensor::from_host_buffer(buffer, dtype, smallvec![signed(len)?], smallvec![1], None) }
}

/// Returns the offsets of rows as a tensor over the same memory.
///
/// # Errors
/// If their number exceeds 64 bits.
pub(crate) fn offsets_view(rows: &ListChunk<'_>) -> Result<Tensor> {
    view(rows, &rows.offsets())
}

/// Returns the lengths of list views as a tensor over the same memory.
///
/// # Errors
/// When there are none.
pub(crate) fn lengths_view(rows: &ListChunk<'_>) -> Result<Tensor> {
    view(rows, &rows.lengths().ok_or_else(|| Error::internal("these rows have no lengths"))?)
}

/// Returns integers of these rows, whose array keeps them alive.
fn view(rows: &ListChunk<'_>, ints: &Ints<'_>) -> Result<Tensor> {
    // SAFETY: integers of a buffer that the array was checked to have.
    unsafe { buffer_view(rows.array(), ints.as_ptr(), ints.dtype(), ints.len()) }
}

/// Returns offsets or lengths of an array on a device as a tensor over the same memory.
///
/// # Errors
/// If their number exceeds 64 bits.
pub(crate) fn device_ints_view(array: &DeviceArray, ints: ListInts) -> Result<Tensor> {
    // SAFETY: what the walk gives, which import has checked to be there.
    unsafe { buffer_view(array, ints.start(), ints.dtype(), ints.len()) }
}

/// Returns the bytes of an array's bitmap as a tensor over the same memory.
///
/// # Errors
/// If their number exceeds 64 bits.
pub(crate) fn bytes_view(array: &DeviceArray, bitmap: BitmapBytes) -> Result<Tensor> {
    // SAFETY: what the walk gives, which import has checked to be there.
    unsafe { buffer_view(array, bitmap.start(), DType::UInt8, bitmap.len()) }
}

/// # Safety
/// So many elements from `start` on are in a buffer of the array.
unsafe fn buffer_view(array: &DeviceArray, start: *const u8, dtype: DType, count: usize) -> Result<Tensor> {
    let count = signed(count)?;
    let parts = TensorParts::of_array(array, start, dtype, (smallvec![count], smallvec![1]));
    // SAFETY: `count` elements from `start` on are in a buffer of the array, which its owner keeps alive and which
    // Arrow declares immutable.
    unsafe { Tensor::from_parts(parts) }
}

/// Returns the tensor `[0]`, the offsets of no rows. It does not count as a copy.
///
/// # Errors
/// Never.
pub(crate) fn zero(dtype: DType) -> Result<Tensor> {
    static ZERO: i64 = 0;
    let (data, layout) = ((&raw const ZERO).cast_mut().cast(), (smallvec![1], smallvec![1]));
    let parts = TensorParts::of_host(data, dtype, layout, Arc::new(()));
    // SAFETY: one element of at most 64 bits, all zero, which lives for ever and which nobody writes to.
    unsafe { Tensor::from_parts(parts) }
}

/// What a row of bytes costs at least, and the bytes of rows between two counts of them.
const VIEW: usize = 16;
const MANY: usize = 1 << 20;

/// Returns a 1-d uint8 tensor of contiguous rows of bytes, `len` in all.
///
/// # Errors
/// The error of a row; or if the number of bytes differs, or the allocation fails.
pub(crate) fn bytes_of_views<'a>(len: usize, rows: impl Iterator<Item = Result<Option<&'a [u8]>>>) -> Result<Tensor> {
    let mut buffer = HostBuffer::uninitialised(len)?;
    let (mut rest, mut gathered) = (buffer.as_uninit_mut(), 0_usize);
    for row in rows {
        let row = row?.unwrap_or(&[]);
        gathered += row.len().max(VIEW);
        if gathered > MANY {
            look_for_signals(gathered)?;
            gathered = 0;
        }
        let (out, after) =
            rest.split_at_mut_checked(row.len()).ok_or_else(|| Error::invalid("the rows grew while they were read"))?;
        // SAFETY: as many bytes each; the output is fresh memory of ours.
        unsafe { out.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(row.as_ptr(), row.len()) };
        rest = after;
    }
    if !rest.is_empty() {
        return Err(Error::invalid("the rows shrank while they were read"));
    }
    let shape = smallvec![signed(len)?];
    // SAFETY: every byte was written.
    unsafe { Tensor::from_host_buffer(buffer, DType::UInt8, shape, smallvec![1], None) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_values_than_there_is_room_for_are_an_error() {
        for dtype in [DType::Int32, DType::Int64] {
            assert_eq!(collect_ints(dtype, 2, [1, 2].into_iter()).unwrap().shape(), [2]);
            assert!(collect_ints(dtype, 3, [1, 2].into_iter()).is_err(), "{dtype}");
        }
        assert_eq!(collect_bools(2, [true, false].into_iter()).unwrap().as_bytes().unwrap(), [1, 0]);
        assert!(collect_bools(2, [true].into_iter()).is_err());
    }

    #[test]
    fn rows_of_bytes_fill_the_tensor() {
        let rows = || [Ok(None), Ok(Some(&b"abc"[..])), Ok(Some(&b"d"[..]))].into_iter();
        assert_eq!(bytes_of_views(4, rows()).unwrap().as_bytes().unwrap(), b"abcd");
        for (len, reason) in [(3, "grew"), (5, "shrank")] {
            let error = bytes_of_views(len, rows()).unwrap_err();
            assert!(error.reason().contains(reason), "{error}");
        }
    }
}
