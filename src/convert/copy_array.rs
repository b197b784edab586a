//! Copies an Arrow array into memory of its own.

use std::ops::{Range, Sub};

use arrow_array::make_array;
use arrow_buffer::{ArrowNativeType, Buffer, NullBuffer};
use arrow_data::{ArrayData, ArrayDataBuilder};
use arrow_schema::{DataType, UnionMode};

use super::own_slots::with_own_runs;
use super::repeat::{child, copied, copied_bits, copied_bytes};
use super::shown_text::copied_text;
use crate::alloc::fallible;
use crate::arrow::DeviceArray;
use crate::copy_log::{self, Copied};
use crate::error::{Error, ErrorKind, Remedy, Result, catch_panic};

/// Copies an array into new memory.
///
/// # Errors
/// If the memory is not the host's, the contents break the Arrow format, or the copy fails.
pub fn copy_array(array: &DeviceArray) -> Result<DeviceArray> {
    copy_array_for(array, "a copy was asked for")
}

/// Like [`copy_array`]; `why`, or who asked, goes to the copy log and into the error.
///
/// # Errors
/// As [`copy_array`].
pub(crate) fn copy_array_for(array: &DeviceArray, why: &str) -> Result<DeviceArray> {
    if !array.device().is_cpu() {
        let reason = format!("{why} needs memory on {}, where no copy of an array is made", array.device());
        return Err(Error::new(ErrorKind::Device, reason)
            .remedy_is(Remedy::OtherDevice)
            .in_column(array.field().name()));
    }
    let data = array.to_arrow()?.to_data();
    let copy =
        catch_panic(|| copy_data(&data).map(make_array)).map_err(|error| error.in_column(array.field().name()))?;
    copy_log::record(|| Copied {
        what: copy_log::rows_of(array.field().name(), array.len(), array.field().data_type()),
        why: why.to_owned(),
        bytes: copy.get_buffer_memory_size(),
    });
    DeviceArray::from_arrow(copy.as_ref(), array.field().clone())
}

/// Copies the slots of a valid array into new buffers: of its children those that the slots span; all of dictionaries
/// and unions.
fn copy_data(data: &ArrayData) -> Result<ArrayData> {
    let broken = || Error::invalid("a buffer or a child has fewer slots than its array");
    let first_child = || data.child_data().first().ok_or_else(broken);
    let copy = ArrayData::builder(data.data_type().clone()).len(data.len());
    let copy = match data.data_type() {
        DataType::Dictionary(_, _) => {
            return Ok(with_children(copied(data)?, vec![copy_data(first_child()?)?]));
        }
        DataType::FixedSizeList(_, size) => {
            let child = child(data, usize::try_from(*size).map_err(|_| broken())?)?;
            copy.nulls(copy_nulls(data)?).add_child_data(copy_data(&child)?)
        }
        DataType::Struct(_) => {
            // `ArrayData::slice` slices the children of a struct, but keeps its offset.
            let is_sliced = |child: &ArrayData| child.len() < data.offset().saturating_add(data.len());
            let first = |child: &ArrayData| if is_sliced(child) { 0 } else { data.offset() };
            let children = data.child_data().iter().map(|child| copy_data(&child.slice(first(child), data.len())));
            copy.nulls(copy_nulls(data)?).child_data(children.collect::<Result<_>>()?)
        }
        DataType::Utf8 | DataType::Binary => copy_text::<i32>(data, copy)?,
        DataType::LargeUtf8 | DataType::LargeBinary => copy_text::<i64>(data, copy)?,
        DataType::List(_) | DataType::Map(_, _) => copy_lists::<i32>(data, copy)?,
        DataType::LargeList(_) => copy_lists::<i64>(data, copy)?,
        DataType::ListView(_) => copy_list_views::<i32>(data, copy)?,
        DataType::LargeListView(_) => copy_list_views::<i64>(data, copy)?,
        DataType::Utf8View | DataType::BinaryView => copy.nulls(copy_nulls(data)?).buffers(copied_text(data)?),
        DataType::Union(_, mode) => {
            let widths = [1, 4].into_iter().take(data.buffers().len()).enumerate();
            let buffers = widths
                .map(|(index, width)| copied_bytes(slots_of(data, index, width, data.len()).ok_or_else(broken)?))
                .collect::<Result<_>>()?;
            let children = data.child_data().iter().map(|child| match mode {
                UnionMode::Sparse => copy_data(&child.slice(data.offset(), data.len())),
                UnionMode::Dense => copy_data(child),
            });
            copy.buffers(buffers).child_data(children.collect::<Result<_>>()?)
        }
        DataType::RunEndEncoded(ends, _) => match ends.data_type() {
            DataType::Int16 => copy_runs::<i16>(data, copy)?,
            DataType::Int32 => copy_runs::<i32>(data, copy)?,
            _ => copy_runs::<i64>(data, copy)?,
        },
        _ => return copied(data),
    };
    // SAFETY: the source is valid: offsets, views and codes were copied for the same slots, and the children for what
    // those refer to.
    Ok(unsafe { copy.build_unchecked() })
}

fn with_children(data: ArrayData, children: Vec<ArrayData>) -> ArrayData {
    // SAFETY: copies of the same children.
    unsafe { data.into_builder().child_data(children).build_unchecked() }
}

fn copy_nulls(data: &ArrayData) -> Result<Option<NullBuffer>> {
    data.nulls().map(|nulls| copied_bits(nulls.inner()).map(NullBuffer::new)).transpose()
}

/// The bytes of so many slots of a buffer, from the array's first one on.
fn slots_of(data: &ArrayData, buffer: usize, width: usize, slots: usize) -> Option<&[u8]> {
    let first = data.offset().checked_mul(width)?;
    data.buffers().get(buffer)?.as_slice().get(first..first.checked_add(slots.checked_mul(width)?)?)
}

/// The integers of a buffer from the array's first slot on, so many of them.
fn ints<T: ArrowNativeType>(data: &ArrayData, buffer: usize, count: usize) -> Option<&[T]> {
    let end = data.offset().checked_add(count)?;
    data.buffers().get(buffer)?.typed_data().get(data.offset()..end)
}

/// The integers in memory of their own, each less by `first`.
fn rebased<T: ArrowNativeType + Sub<Output = T>>(ints: &[T], first: T) -> Result<Buffer> {
    fallible::collected(ints.iter().map(|int| Ok(*int - first))).map(Buffer::from_vec)
}

/// The offsets of rows, from 0 on, and what they span.
fn copy_offsets<T: ArrowNativeType + Sub<Output = T>>(data: &ArrayData) -> Result<(Buffer, Range<usize>)> {
    if data.is_empty() {
        return Ok((Buffer::from_vec(vec![T::default()]), 0..0));
    }
    let count = data.len().checked_add(1);
    let offsets = count.and_then(|count| ints::<T>(data, 0, count)).unwrap_or(&[]);
    let (Some(first), Some(last)) = (offsets.first(), offsets.last()) else {
        return Err(Error::invalid("rows without offsets"));
    };
    Ok((rebased(offsets, *first)?, first.as_usize()..last.as_usize()))
}

fn copy_text<T: ArrowNativeType + Sub<Output = T>>(
    data: &ArrayData,
    copy: ArrayDataBuilder,
) -> Result<ArrayDataBuilder> {
    let (offsets, span) = copy_offsets::<T>(data)?;
    let text = data.buffers().get(1).and_then(|text| text.as_slice().get(span));
    let text = copied_bytes(text.ok_or_else(|| Error::invalid("offsets beyond the text"))?)?;
    Ok(copy.nulls(copy_nulls(data)?).add_buffer(offsets).add_buffer(text))
}

fn copy_lists<T: ArrowNativeType + Sub<Output = T>>(
    data: &ArrayData,
    copy: ArrayDataBuilder,
) -> Result<ArrayDataBuilder> {
    let (offsets, span) = copy_offsets::<T>(data)?;
    let items = copy_span(data, span)?;
    Ok(copy.nulls(copy_nulls(data)?).add_buffer(offsets).add_child_data(items))
}

fn copy_list_views<T: ArrowNativeType + Sub<Output = T>>(
    data: &ArrayData,
    copy: ArrayDataBuilder,
) -> Result<ArrayDataBuilder> {
    let broken = || Error::invalid("rows without offsets");
    let offsets = ints::<T>(data, 0, data.len()).ok_or_else(broken)?;
    let sizes = ints::<T>(data, 1, data.len()).ok_or_else(broken)?;
    // Lists without items lead anywhere.
    let shown = offsets.iter().zip(sizes).filter(|(_, size)| size.as_usize() > 0);
    let first = shown.clone().map(|(offset, _)| *offset).reduce(|one, other| if other < one { other } else { one });
    let ends = shown.map(|(offset, size)| offset.as_usize().saturating_add(size.as_usize()));
    let first = first.unwrap_or_default();
    let span = first.as_usize()..ends.max().unwrap_or_else(|| first.as_usize());
    let starts = offsets.iter().zip(sizes).map(|(offset, size)| match size.as_usize() {
        0 => Ok(T::default()),
        _ => Ok(*offset - first),
    });
    let (offsets, sizes) = (Buffer::from_vec(fallible::collected(starts)?), rebased(sizes, T::default())?);
    Ok(copy.nulls(copy_nulls(data)?).add_buffer(offsets).add_buffer(sizes).add_child_data(copy_span(data, span)?))
}

/// Some of the items of lists.
fn copy_span(data: &ArrayData, span: Range<usize>) -> Result<ArrayData> {
    let items = data.child_data().first().filter(|items| span.start <= span.end && span.end <= items.len());
    let items = items.ok_or_else(|| Error::invalid("offsets beyond the items"))?;
    copy_data(&items.slice(span.start, span.len()))
}

/// The runs of the array's rows, and no others.
fn copy_runs<T: ArrowNativeType>(data: &ArrayData, copy: ArrayDataBuilder) -> Result<ArrayDataBuilder> {
    let own = with_own_runs::<T>(data)?;
    let [ends, values] = own.child_data() else { return Err(Error::invalid("runs without ends or values")) };
    Ok(copy.add_child_data(ends.clone()).add_child_data(copy_data(values)?))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::cast::AsArray;
    use arrow_array::types::{Int8Type, Int32Type};
    use arrow_array::{
        Array, ArrayRef, BooleanArray, DictionaryArray, FixedSizeListArray, Int32Array, Int64Array, LargeBinaryArray,
        LargeListArray, LargeListViewArray, ListArray, ListViewArray, MapArray, NullArray, RunArray, StringArray,
        StringViewArray, StructArray, UnionArray,
    };
    use arrow_buffer::{OffsetBuffer, ScalarBuffer};
    use arrow_schema::{Field, Fields, UnionFields};

    use super::super::repeat::slots;
    use super::*;

    fn arrays() -> Vec<ArrayRef> {
        let ints: ArrayRef = Arc::new(Int32Array::from_iter((0..40).map(|value| (value % 7 != 3).then_some(value))));
        let item = Arc::new(Field::new("item", DataType::Int32, true));
        let runs = RunArray::<Int32Type>::try_new(&Int32Array::from(vec![3, 8, 20]), &ints.slice(2, 3)).unwrap();
        let texts = (0..20).map(|row| (row % 5 != 1).then(|| "text of more than 12 bytes ".repeat(row % 3)));
        let binaries = texts.clone().map(|text| text.map(String::into_bytes));
        let lists = (0..20).map(|row| (row % 6 != 2).then(|| (0..row % 4).map(Some).collect::<Vec<_>>()));
        let offsets = ScalarBuffer::from((0..20).map(|row| 35 - row).collect::<Vec<i32>>());
        let sizes = ScalarBuffer::from((0..20).map(|row| row % 4).collect::<Vec<i32>>());
        let codes = Int32Array::from_iter((0..20).map(|row| (row % 4 != 1).then_some(row % 3)));
        let words: ArrayRef = Arc::new(StringArray::from(vec!["a", "bc", ""]));
        let fields =
            Fields::from(vec![Field::new("x", DataType::Int32, true), Field::new("r", runs.data_type().clone(), true)]);
        let nulls = NullBuffer::from_iter((0..20).map(|row| row % 9 != 4));
        let wide = |ints: &ScalarBuffer<i32>| ints.iter().copied().map(i64::from).collect::<ScalarBuffer<i64>>();
        let (wide_offsets, wide_sizes) = (wide(&offsets), wide(&sizes));
        let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(0..40));
        let of_entries = vec![Field::new("key", DataType::Int64, false), Field::new("value", DataType::Int32, true)];
        let entries = StructArray::new(of_entries.into(), vec![keys, ints.clone()], None);
        let map = Arc::new(Field::new("entries", entries.data_type().clone(), false));
        let ends = OffsetBuffer::from_lengths((0..20).map(|row| row % 4));
        let union = |offsets: Option<ScalarBuffer<i32>>, lengths: [usize; 2]| -> ArrayRef {
            let of = |length| ints.slice(1, length);
            let fields = ["a", "b"].map(|name| Field::new(name, DataType::Int32, true));
            let fields = UnionFields::try_new([3, 5], fields).unwrap();
            let ids = (0..20_i8).map(|row| if row % 3 == 0 { 3 } else { 5 }).collect();
            Arc::new(UnionArray::try_new(fields, ids, offsets, lengths.map(of).to_vec()).unwrap())
        };
        let sparse = union(None, [20, 20]);
        let of_union = Arc::new(Field::new("item", sparse.data_type().clone(), true));
        let dense = (0..20).map(|row| if row % 3 == 0 { row / 3 } else { 19 - row }).collect();
        vec![
            ints.slice(0, 20),
            Arc::new(BooleanArray::from_iter((0..20).map(|row| (row % 3 != 1).then_some(row % 2 == 0)))),
            Arc::new(NullArray::new(20)),
            Arc::new(StringArray::from_iter(texts.clone())),
            Arc::new(StringViewArray::from_iter(texts)),
            Arc::new(LargeBinaryArray::from_iter(binaries)),
            Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists.clone())),
            Arc::new(LargeListArray::from_iter_primitive::<Int32Type, _, _>(lists)),
            Arc::new(ListViewArray::new(item.clone(), offsets, sizes, ints.clone(), Some(nulls.clone()))),
            Arc::new(LargeListViewArray::new(item.clone(), wide_offsets, wide_sizes, ints.clone(), None)),
            Arc::new(MapArray::new(map, ends, entries, Some(nulls.clone()), false)),
            sparse.clone(),
            Arc::new(ListArray::new(of_union, OffsetBuffer::from_lengths([1; 20]), sparse, Some(nulls.clone()))),
            union(Some(dense), [7, 20]),
            Arc::new(FixedSizeListArray::new(item, 2, ints.clone(), Some(nulls.clone()))),
            Arc::new(DictionaryArray::<Int32Type>::new(codes, words)),
            Arc::new(runs.clone()),
            Arc::new(StructArray::new(fields, vec![ints.slice(5, 20), Arc::new(runs)], Some(nulls))),
        ]
    }

    #[test]
    fn a_copy_of_any_range_is_equal_and_shares_nothing() {
        let ranges = [(3, 9), (20, 0), (0, 20), (0, 0), (8, 12), (19, 1)];
        for array in arrays() {
            for (start, length) in ranges.into_iter().take(if cfg!(miri) { 2 } else { ranges.len() }) {
                let source = array.slice(start, length).to_data();
                let copy = copy_data(&source).unwrap();
                copy.validate_full().unwrap();
                assert_eq!(make_array(copy.clone()).as_ref(), array.slice(start, length).as_ref(), "{start} {length}");
                let (mut own, mut shared) = (Vec::new(), Vec::new());
                buffers(&copy, &mut own);
                buffers(&source, &mut shared);
                assert!(own.iter().all(|start| !shared.contains(start)), "{array:?}");
            }
        }
    }

    fn buffers(data: &ArrayData, found: &mut Vec<usize>) {
        let nulls = data.nulls().map(|nulls| nulls.buffer());
        found.extend(
            data.buffers().iter().chain(nulls).filter(|buffer| !buffer.is_empty()).map(|buffer| buffer.as_ptr().addr()),
        );
        data.child_data().iter().for_each(|child| buffers(child, found));
    }

    #[test]
    fn runs_are_copied_in_the_memory_of_runs() {
        use arrow_array::types::Int64Type;

        let values = arrow_array::Int8Array::from(vec![1, 2]);
        let runs = RunArray::<Int64Type>::try_new(&Int64Array::from(vec![5, 1 << 40]), &values).unwrap();
        let copy = copy_data(&runs.slice(2, (1 << 40) - 2).to_data()).unwrap();
        assert_eq!(copy.len(), (1 << 40) - 2);
        assert_eq!(slots::<i64>(&copy.child_data()[0]), [3, (1 << 40) - 2]);
        assert_eq!(make_array(copy.child_data()[1].clone()).as_primitive::<Int8Type>().values(), &[1, 2]);
    }
}
