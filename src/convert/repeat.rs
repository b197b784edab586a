//! Repeats rows of an array, to decode run ends and dictionary codes. Allocations are fallible, and sized by checked
//! arithmetic.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use arrow_buffer::{ArrowNativeType, BooleanBuffer, Buffer, NullBuffer, bit_mask};
use arrow_data::ArrayData;
use arrow_schema::DataType;

use super::rounds::in_rounds;
use crate::alloc::{HostBuffer, fallible};
use crate::error::{Error, ErrorKind, Result};

/// Maps the rows of a result to rows of a source.
pub(super) trait RowMap: Sized {
    /// Returns the number of rows of the result.
    fn len(&self) -> usize;

    /// Returns the validity bitmap of the result's rows, if some are null even where the source's row is valid.
    fn nulls(&self) -> Option<&NullBuffer>;

    /// Calls `take` with each source row of some of the result's rows, or `None` for a null, and the number of times that it is repeated.
    fn for_each(&self, rows: &Range<usize>, take: impl FnMut(Option<usize>, usize));

    /// Writes some rows of `N` bytes from a source, zeros for nulls. Returns whether every byte was written.
    fn write<const N: usize>(&self, rows: &Range<usize>, source: &[[u8; N]], out: &mut [[MaybeUninit<u8>; N]]) -> bool {
        fill(source, (self, rows), out)
    }

    /// Writes some rows of bits from a source into zeroed bytes, zeros for nulls. Returns whether the source has all rows.
    fn write_bits(&self, rows: &Range<usize>, source: &BooleanBuffer, out: &mut [u8]) -> bool {
        let (mut position, mut fits) = (0_usize, true);
        self.for_each(rows, |row, count| {
            let start = position;
            position = position.saturating_add(count);
            match row {
                Some(row) if row >= source.len() => fits = false,
                Some(row) if source.value(row) => set_bits(out, start, count),
                _ => {}
            }
        });
        fits
    }
}

/// The decoded rows of a valid run-end encoded array.
pub(super) struct Runs<'a>(pub(super) &'a ArrayData);

/// Each row of the source once.
struct Whole;

/// Returns the slots of a valid array in its first buffer.
pub(super) fn slots<T: ArrowNativeType>(data: &ArrayData) -> &[T] {
    data.buffers().first().map_or(&[], |buffer| {
        let end = data.offset().saturating_add(data.len());
        buffer.typed_data().get(data.offset()..end).unwrap_or(&[])
    })
}

impl RowMap for Runs<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn nulls(&self) -> Option<&NullBuffer> {
        None
    }

    fn for_each(&self, rows: &Range<usize>, take: impl FnMut(Option<usize>, usize)) {
        fn each<T: ArrowNativeType>(
            (mut position, end): (usize, usize),
            ends: &ArrayData,
            mut take: impl FnMut(Option<usize>, usize),
        ) {
            let ends = slots::<T>(ends);
            let first = ends.partition_point(|run_end| run_end.as_usize() <= position);
            for (run, run_end) in ends.iter().enumerate().skip(first) {
                if position >= end {
                    break;
                }
                let until = run_end.as_usize().min(end);
                if until > position {
                    take(Some(run), until - position);
                    position = until;
                }
            }
        }
        let Some(ends) = self.0.child_data().first() else { return };
        let first = self.0.offset();
        let rows = (first.saturating_add(rows.start), first.saturating_add(rows.end.min(self.0.len())));
        match ends.data_type() {
            DataType::Int16 => each::<i16>(rows, ends, take),
            DataType::Int32 => each::<i32>(rows, ends, take),
            _ => each::<i64>(rows, ends, take),
        }
    }
}

impl RowMap for Whole {
    fn len(&self) -> usize {
        1
    }

    fn nulls(&self) -> Option<&NullBuffer> {
        None
    }

    fn for_each(&self, _: &Range<usize>, mut take: impl FnMut(Option<usize>, usize)) {
        take(Some(0), 1);
    }
}

/// Returns whether [`repeated`] takes arrays of this type.
pub(super) fn has_rows_of_one_size(data_type: &DataType) -> bool {
    match data_type {
        DataType::Null | DataType::Boolean => true,
        DataType::FixedSizeList(item, _) => has_rows_of_one_size(item.data_type()),
        other => row_width(other).is_some(),
    }
}

/// Returns the bytes of a row in the first buffer; `None` if rows differ, or are no whole bytes of one buffer.
fn row_width(data_type: &DataType) -> Option<usize> {
    match data_type {
        DataType::FixedSizeBinary(width) => usize::try_from(*width).ok(),
        DataType::Dictionary(codes, _) => codes.primitive_width(),
        other => other.primitive_width(),
    }
}

/// Returns the rows of a valid array that `rows` maps to. Structs and fixed-size lists in the array have offset 0.
///
/// # Errors
/// If rows of the type have no fixed size, or an allocation fails.
pub(super) fn repeated(source: &ArrayData, rows: &impl RowMap) -> Result<ArrayData> {
    repeated_blocks(source, rows, 1, true)
}

/// Copies all rows of such an array. Dictionary values are shared, not copied.
///
/// # Errors
/// As [`repeated`].
pub(super) fn copied(source: &ArrayData) -> Result<ArrayData> {
    repeated_blocks(source, &Whole, source.len(), true)
}

/// Copies bits to new memory.
///
/// # Errors
/// If the allocation fails.
pub(super) fn copied_bits(source: &BooleanBuffer) -> Result<BooleanBuffer> {
    repeated_bits(source, &Whole, source.len())
}

/// Copies bytes to new memory.
///
/// # Errors
/// If the allocation fails.
pub(super) fn copied_bytes(source: &[u8]) -> Result<Buffer> {
    repeated_bytes(source, &Whole, source.len())
}

/// As [`repeated`], for a child with `block` slots per row. A row that `rows` makes null is null in the top array alone.
fn repeated_blocks(source: &ArrayData, rows: &impl RowMap, block: usize, is_top: bool) -> Result<ArrayData> {
    let length = rows.len().checked_mul(block).ok_or_else(too_many)?;
    let nulls = match source.nulls() {
        _ if *source.data_type() == DataType::Null => None,
        Some(nulls) => Some(repeated_bits(nulls.inner(), rows, block)?),
        None => rows.nulls().filter(|_| is_top).map(|nulls| copied_bits(nulls.inner())).transpose()?,
    };
    let result = ArrayData::builder(source.data_type().clone()).len(length).nulls(nulls.map(NullBuffer::new));
    let result = match source.data_type() {
        DataType::Null => result,
        DataType::FixedSizeList(_, size) => {
            let size = usize::try_from(*size).map_err(|_| Error::invalid("a list of negative size"))?;
            let child = child(source, size)?;
            result.add_child_data(repeated_blocks(&child, rows, block.checked_mul(size).ok_or_else(too_many)?, false)?)
        }
        DataType::Boolean => {
            let values = source.buffers().first().ok_or_else(no_buffer)?.clone();
            let values = BooleanBuffer::new(values, source.offset(), source.len());
            result.add_buffer(repeated_bits(&values, rows, block)?.into_inner())
        }
        other => {
            let width =
                row_width(other).ok_or_else(|| Error::unsupported(format!("{other} has no rows of one size")))?;
            let values = source.buffers().first().ok_or_else(no_buffer)?;
            let first = source.offset().checked_mul(width).ok_or_else(too_many)?;
            let values = values.as_slice().get(first..).ok_or_else(no_buffer)?;
            let values = repeated_bytes(values, rows, block.checked_mul(width).ok_or_else(too_many)?)?;
            result.add_buffer(values).child_data(fallible::copied(source.child_data())?)
        }
    };
    // SAFETY: buffers, bitmap and children have `length` slots, or those of as many lists; codes are of the source's own
    // dictionary, or 0 under a null.
    Ok(unsafe { result.build_unchecked() })
}

/// Returns the child slots under the fixed-size lists of a valid array.
pub(super) fn child(lists: &ArrayData, size: usize) -> Result<ArrayData> {
    let child = lists.child_data().first().ok_or_else(|| Error::invalid("a list without a child"))?;
    let first = lists.offset().checked_mul(size).ok_or_else(too_many)?;
    let count = lists.len().checked_mul(size).ok_or_else(too_many)?;
    let end = first.checked_add(count).filter(|end| *end <= child.len());
    end.map(|_| child.slice(first, count)).ok_or_else(|| Error::invalid("a child with fewer slots than its lists have"))
}

fn too_many() -> Error {
    Error::new(ErrorKind::Memory, "the result is larger than memory can be")
}

fn no_buffer() -> Error {
    Error::invalid("a buffer has fewer slots than its array")
}

fn leads_out() -> Error {
    Error::invalid("runs or codes lead out of the values")
}

fn bits_of(bytes: Vec<u8>, bits: usize) -> BooleanBuffer {
    BooleanBuffer::new(Buffer::from_vec(bytes), 0, bits)
}

fn repeated_bits(source: &BooleanBuffer, rows: &impl RowMap, block: usize) -> Result<BooleanBuffer> {
    let length = rows.len().checked_mul(block).ok_or_else(too_many)?;
    let mut bytes = fallible::zeroed(length.div_ceil(8))?;
    in_rounds(rows.len(), block, |part| {
        // Rounds start at multiples of 64 rows, and so at whole bytes.
        let (first, bits) = (part.start.saturating_mul(block) / 8, part.len().saturating_mul(block));
        let out = bytes.get_mut(first..first.saturating_add(bits.div_ceil(8))).ok_or_else(leads_out)?;
        let fits = match block {
            1 => rows.write_bits(&part, source, out),
            _ => fill_bits(source, (rows, &part), (block, bits), out),
        };
        fits.then_some(()).ok_or_else(leads_out)
    })?;
    Ok(bits_of(bytes, length))
}

/// As [`RowMap::write_bits`], for rows of `block` bits, `length` bits in total.
fn fill_bits(
    source: &BooleanBuffer,
    (map, rows): (&impl RowMap, &Range<usize>),
    (block, length): (usize, usize),
    bytes: &mut [u8],
) -> bool {
    let (mut position, mut fits) = (0_usize, true);
    map.for_each(rows, |row, count| {
        let start = position;
        position = position.saturating_add(count.saturating_mul(block));
        let Some(row) = row else { return };
        let first = row.saturating_mul(block);
        if first.saturating_add(block) > source.len() || position > length {
            fits = false;
            return;
        }
        let (from, offset) = (source.values(), source.offset().saturating_add(first));
        for at in (start..position).step_by(block.max(1)) {
            bit_mask::set_bits(bytes, from, at, offset, block);
        }
    });
    fits
}

/// Sets `count` bits from bit `start` on.
pub(super) fn set_bits(bytes: &mut [u8], start: usize, count: usize) {
    let end = start.saturating_add(count);
    let (first, last) = (start / 8, end / 8);
    let (high, low) = (u8::MAX << (start % 8), !(u8::MAX << (end % 8)));
    if first == last {
        if let Some(byte) = bytes.get_mut(first) {
            *byte |= high & low;
        }
        return;
    }
    if let Some((head, whole)) = bytes.get_mut(first..last).and_then(<[u8]>::split_first_mut) {
        *head |= high;
        whole.fill(u8::MAX);
    }
    if let Some(byte) = bytes.get_mut(last) {
        *byte |= low;
    }
}

fn repeated_bytes(source: &[u8], rows: &impl RowMap, block: usize) -> Result<Buffer> {
    let length = rows.len().checked_mul(block).ok_or_else(too_many)?;
    let mut buffer = HostBuffer::uninitialised(length)?;
    let out = buffer.as_uninit_mut();
    in_rounds(rows.len(), block, |part| {
        let bytes = part.start.saturating_mul(block)..part.end.saturating_mul(block);
        let out = out.get_mut(bytes).ok_or_else(leads_out)?;
        let rows = (rows, &part);
        let is_full = match block {
            0 => true,
            1 => write::<1>(source, rows, out),
            2 => write::<2>(source, rows, out),
            4 => write::<4>(source, rows, out),
            8 => write::<8>(source, rows, out),
            16 => write::<16>(source, rows, out),
            _ => fill_blocks(source, rows, block, out),
        };
        is_full.then_some(()).ok_or_else(leads_out)
    })?;
    let start = NonNull::new(buffer.as_ptr()).ok_or_else(leads_out)?;
    // SAFETY: all `length` bytes of the block, each of which was written (`is_full` of each round), and which the buffer keeps.
    Ok(unsafe { Buffer::from_custom_allocation(start, length, Arc::new(buffer)) })
}

/// Writes rows of `N` bytes, zeros for nulls. Returns whether every byte was written.
fn write<const N: usize>(
    source: &[u8],
    (map, rows): (&impl RowMap, &Range<usize>),
    out: &mut [MaybeUninit<u8>],
) -> bool {
    let (out, rest) = out.as_chunks_mut::<N>();
    map.write(rows, source.as_chunks::<N>().0, out) && rest.is_empty()
}

/// As [`RowMap::write`].
fn fill<const N: usize>(
    source: &[[u8; N]],
    (map, rows): (&impl RowMap, &Range<usize>),
    out: &mut [[MaybeUninit<u8>; N]],
) -> bool {
    let (mut slots, mut fits) = (out.iter_mut(), true);
    map.for_each(rows, |row, count| {
        let value = match row {
            None => Some([MaybeUninit::new(0); N]),
            Some(row) => source.get(row).map(|value| value.map(MaybeUninit::new)),
        };
        let Some(value) = value else {
            fits = false;
            return;
        };
        match std::mem::take(&mut slots).into_slice().split_at_mut_checked(count) {
            Some((run, more)) => {
                run.fill(value);
                slots = more.iter_mut();
            }
            None => fits = false,
        }
    });
    fits && slots.as_slice().is_empty()
}

/// As [`write`], for rows of `block` bytes.
fn fill_blocks(
    source: &[u8],
    (map, rows): (&impl RowMap, &Range<usize>),
    block: usize,
    out: &mut [MaybeUninit<u8>],
) -> bool {
    let (mut at, mut fits) = (0_usize, true);
    map.for_each(rows, |row, count| {
        let bytes = count.saturating_mul(block);
        let Some(slots) = out.get_mut(at..at.saturating_add(bytes)) else {
            fits = false;
            return;
        };
        at += bytes;
        let Some(row) = row else {
            slots.fill(MaybeUninit::new(0));
            return;
        };
        let first = row.saturating_mul(block);
        let (Some(value), true) = (source.get(first..first.saturating_add(block)), bytes > 0) else {
            fits &= bytes == 0;
            return;
        };
        for (slot, byte) in slots.iter_mut().zip(value) {
            slot.write(*byte);
        }
        // Copies the bytes written so far behind themselves, which doubles them each time.
        let mut written = block;
        while written < bytes {
            let more = written.min(bytes - written);
            slots.copy_within(..more, written);
            written += more;
        }
    });
    fits && at == out.len()
}

#[cfg(test)]
mod tests {
    use arrow_array::types::{Int16Type, Int32Type, Int64Type, RunEndIndexType};
    use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, FixedSizeListArray, Int32Array, PrimitiveArray, RunArray};
    use arrow_array::{BooleanArray, make_array};
    use arrow_schema::Field;

    use super::*;

    fn runs_are_written_out<R: RunEndIndexType>()
    where
        <R as ArrowPrimitiveType>::Native: TryFrom<usize>,
    {
        let count: i32 = if cfg!(miri) { 20 } else { 200 };
        let ints: ArrayRef = Arc::new(Int32Array::from_iter((0..count).map(|value| (value % 5 > 0).then_some(value))));
        let bits: ArrayRef =
            Arc::new(BooleanArray::from_iter((0..count).map(|run| (run % 7 > 0).then_some(run % 3 == 0))));
        let items: ArrayRef = Arc::new(Int32Array::from_iter_values(0..3 * count));
        let lists: ArrayRef =
            Arc::new(FixedSizeListArray::new(Arc::new(Field::new("item", DataType::Int32, false)), 3, items, None));
        // Runs of one row to thirty, so that rounds start inside runs.
        let lengths: Vec<usize> = (0..ints.len()).map(|run| 1 + run * 7 % 30).collect();
        let ends = lengths.iter().scan(0, |end, length| {
            *end += length;
            <R as ArrowPrimitiveType>::Native::try_from(*end).ok()
        });
        let ends: PrimitiveArray<R> = PrimitiveArray::from_iter_values(ends);
        let run_of: Vec<usize> =
            (0..).zip(&lengths).flat_map(|(run, length)| std::iter::repeat_n(run, *length)).collect();
        for values in [ints, bits, lists] {
            let array = RunArray::<R>::try_new(&ends, &values).unwrap();
            for (start, length) in [(0, array.len()), (17, array.len() / 2), (array.len() - 1, 1)] {
                let part = array.slice(start, length).to_data();
                let found = make_array(repeated(&values.to_data(), &Runs(&part)).unwrap());
                assert_eq!(found.len(), length);
                for (row, run) in run_of.iter().skip(start).take(length).enumerate() {
                    assert_eq!(found.slice(row, 1).as_ref(), values.slice(*run, 1).as_ref(), "{start} {row}");
                }
            }
        }
    }

    #[test]
    fn runs_in_several_rounds_are_those_of_each_row() {
        runs_are_written_out::<Int16Type>();
        runs_are_written_out::<Int32Type>();
        runs_are_written_out::<Int64Type>();
    }
}
