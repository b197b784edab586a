//! How many bytes a range of rows of an arrow-rs array takes, without slicing the array.

use std::ops::Range;

use arrow_buffer::ArrowNativeType;
use arrow_data::ArrayData;
use arrow_schema::DataType;

use super::collect::beyond_int32;
use super::row_block::{fetch, prefetch_element};
use super::shown_text::shown_bytes;
use crate::alloc::fallible;
use crate::arrow::has_type;
use crate::error::Result;

/// Returns the bytes of the values, offsets and bits of these rows, which the array has; without [`shared_bytes`].
pub(super) fn range_bytes(data: &ArrayData, rows: &Range<usize>) -> usize {
    let count = rows.len();
    let bits = if data.nulls().is_some() { count.div_ceil(8) } else { 0 };
    let children = |rows: Range<usize>| {
        data.child_data().iter().map(|child| range_bytes(child, &rows)).fold(0, usize::saturating_add)
    };
    let own = match data.data_type() {
        DataType::Boolean => count.div_ceil(8),
        DataType::FixedSizeBinary(width) => usize::try_from(*width).unwrap_or_default().saturating_mul(count),
        DataType::Utf8 | DataType::Binary => of_offsets::<i32>(data, rows, |span| span.len()),
        DataType::LargeUtf8 | DataType::LargeBinary => of_offsets::<i64>(data, rows, |span| span.len()),
        DataType::List(_) | DataType::Map(_, _) => of_offsets::<i32>(data, rows, children),
        DataType::LargeList(_) => of_offsets::<i64>(data, rows, children),
        DataType::Utf8View | DataType::BinaryView => {
            size_of::<u128>().saturating_mul(count).saturating_add(shown_bytes(data, rows))
        }
        DataType::FixedSizeList(_, size) => children(items(data, rows, *size)),
        // Its children are sliced with it.
        DataType::Struct(_) => children(rows.clone()),
        DataType::Dictionary(key, _) => key.primitive_width().unwrap_or_default().saturating_mul(count),
        other => other.primitive_width().unwrap_or_default().saturating_mul(count),
    };
    own.saturating_add(bits)
}

/// Prefetches the values of these rows, which are soon copied; nothing of views, or of rows that share memory of their array.
pub(super) fn fetch_rows(data: &ArrayData, rows: &Range<usize>) {
    let children = |rows: Range<usize>| data.child_data().iter().for_each(|child| fetch_rows(child, &rows));
    let bytes = |buffer: usize, span: Range<usize>| {
        if let Some(bytes) = data.buffers().get(buffer).and_then(|buffer| buffer.get(span)) {
            fetch(bytes.as_ptr(), bytes.len());
        }
    };
    match data.data_type() {
        DataType::Utf8 | DataType::Binary => bytes(1, span::<i32>(data, rows)),
        DataType::LargeUtf8 | DataType::LargeBinary => bytes(1, span::<i64>(data, rows)),
        DataType::List(_) | DataType::Map(_, _) => children(span::<i32>(data, rows)),
        DataType::LargeList(_) => children(span::<i64>(data, rows)),
        DataType::FixedSizeList(_, size) => children(items(data, rows, *size)),
        DataType::Struct(_) => children(rows.clone()),
        DataType::FixedSizeBinary(width) => bytes(0, items(data, rows, *width)),
        other => {
            let width = other.primitive_width().unwrap_or_default();
            let at = |row: usize| data.offset().saturating_add(row).saturating_mul(width);
            bytes(0, at(rows.start)..at(rows.end));
        }
    }
}

/// Prefetches the first offset of this row, if rows of the array have offsets.
pub(super) fn fetch_offsets(data: &ArrayData, row: usize) {
    let at = data.offset().saturating_add(row);
    let Some(offsets) = data.buffers().first() else { return };
    match data.data_type() {
        DataType::Utf8 | DataType::Binary | DataType::List(_) => prefetch_element(offsets.typed_data::<i32>(), at),
        DataType::LargeUtf8 | DataType::LargeBinary | DataType::LargeList(_) => {
            prefetch_element(offsets.typed_data::<i64>(), at);
        }
        _ => {}
    }
}

/// Returns whether rows of this type share memory of their array, or have no bytes of their own.
pub(super) fn shares_memory(data_type: &DataType) -> bool {
    use DataType::{Dictionary, LargeListView, ListView, RunEndEncoded, Union};
    let shares = |data_type: &DataType| {
        matches!(data_type, Dictionary(..) | ListView(_) | LargeListView(_) | Union(..) | RunEndEncoded(..))
    };
    has_type(data_type, &shares)
}

/// Returns the bytes that rows of the array share: dictionaries, and all memory of list views, unions and runs.
pub(super) fn shared_bytes(data: &ArrayData) -> usize {
    match data.data_type() {
        DataType::ListView(_) | DataType::LargeListView(_) | DataType::Union(_, _) | DataType::RunEndEncoded(_, _) => {
            data.get_array_memory_size()
        }
        DataType::Dictionary(_, _) => {
            let of = |values: &ArrayData| range_bytes(values, &(0..values.len())).saturating_add(shared_bytes(values));
            data.child_data().iter().map(of).fold(0, usize::saturating_add)
        }
        _ => data.child_data().iter().map(shared_bytes).fold(0, usize::saturating_add),
    }
}

/// Refuses rows of arrays of one type that have more bytes or items together than offsets of 32 bits count.
///
/// # Errors
/// If they have: names the column of a struct. If an allocation fails.
pub(super) fn check_offsets(rows: &[(&ArrayData, Range<usize>)]) -> Result<()> {
    let Some((DataType::Struct(columns), _)) = rows.first().map(|(data, rows)| (data.data_type(), rows)) else {
        return check_spans(rows);
    };
    columns.iter().enumerate().try_for_each(|(index, column)| {
        check_spans(&children(rows, rows.iter().map(|(_, rows)| rows), index)?)
            .map_err(|error| error.in_column(column.name()))
    })
}

fn check_spans(rows: &[(&ArrayData, Range<usize>)]) -> Result<()> {
    let Some((first, _)) = rows.first() else { return Ok(()) };
    let mut spans = fallible::with_room(rows.len())?;
    for (data, rows) in rows {
        spans.push(match data.data_type() {
            DataType::Utf8 | DataType::Binary | DataType::List(_) | DataType::Map(_, _) => span::<i32>(data, rows),
            DataType::LargeList(_) => span::<i64>(data, rows),
            DataType::FixedSizeList(_, size) => items(data, rows, *size),
            DataType::Struct(_) => rows.clone(),
            _ => return Ok(()),
        });
    }
    let has_small_offsets =
        matches!(first.data_type(), DataType::Utf8 | DataType::Binary | DataType::List(_) | DataType::Map(_, _));
    let count = spans.iter().map(Range::len).fold(0, usize::saturating_add);
    if has_small_offsets && i32::try_from(count).is_err() {
        return Err(beyond_int32());
    }
    (0..first.child_data().len()).try_for_each(|index| check_spans(&children(rows, spans.iter(), index)?))
}

/// These rows of a child of each array.
fn children<'d, 'r>(
    arrays: &[(&'d ArrayData, Range<usize>)],
    rows: impl Iterator<Item = &'r Range<usize>>,
    index: usize,
) -> Result<Vec<(&'d ArrayData, Range<usize>)>> {
    let mut below = fallible::with_room(arrays.len())?;
    let child =
        |((data, _), rows): (&(&'d ArrayData, _), &Range<usize>)| Some((data.child_data().get(index)?, rows.clone()));
    below.extend(arrays.iter().zip(rows).filter_map(child));
    Ok(below)
}

/// Returns the bytes of the offsets of these rows, and those of what they span.
fn of_offsets<T: ArrowNativeType>(
    data: &ArrayData,
    rows: &Range<usize>,
    spanned: impl FnOnce(Range<usize>) -> usize,
) -> usize {
    let own = rows.len().saturating_add(1).saturating_mul(size_of::<T>());
    own.saturating_add(spanned(span::<T>(data, rows)))
}

/// Returns the bytes or items between the offsets of these rows.
fn span<T: ArrowNativeType>(data: &ArrayData, rows: &Range<usize>) -> Range<usize> {
    let offsets = data.buffers().first().map_or::<&[T], _>(&[], |buffer| buffer.typed_data());
    let at = |row: usize| offsets.get(data.offset().saturating_add(row)).map_or(0, |offset| offset.as_usize());
    at(rows.start)..at(rows.end)
}

/// Returns the items of these rows of fixed-size lists.
fn items(data: &ArrayData, rows: &Range<usize>, size: i32) -> Range<usize> {
    let size = usize::try_from(size).unwrap_or_default();
    let at = |row: usize| data.offset().saturating_add(row).saturating_mul(size);
    at(rows.start)..at(rows.end)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::{Int8Type, Int32Type, Int64Type};
    use arrow_array::{
        Array, ArrayRef, BooleanArray, DictionaryArray, FixedSizeListArray, Int32Array, LargeStringArray, ListArray,
        ListViewArray, NullArray, StringArray, StringViewArray, StructArray,
    };
    use arrow_schema::{Field, Fields};

    use super::*;

    #[test]
    fn rows_beyond_offsets_of_32_bits_are_refused() {
        let text: ArrayRef = Arc::new(StringArray::from(vec!["a".repeat(1 << 12); 8]));
        let large: ArrayRef = Arc::new(LargeStringArray::from(vec!["a".repeat(1 << 12); 8]));
        let rows = (0..4).map(|_| Some(vec![Some(1); 1 << 13]));
        let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int8Type, _, _>(rows));
        let column = |array: &ArrayRef| Fields::from_iter([Field::new("c", array.data_type().clone(), true)]);
        let structs =
            |array: &ArrayRef| -> ArrayRef { Arc::new(StructArray::new(column(array), vec![array.clone()], None)) };
        // 32,768 bytes or items each time: 65,535 times is less than 2^31.
        for (array, is_refused) in [(&text, true), (&large, false), (&lists, true)] {
            for (array, name) in [(array.clone(), None), (structs(array), Some("c"))] {
                let data = array.to_data();
                let times = |times| vec![(&data, 0..data.len()); times];
                assert!(check_offsets(&times((1 << 16) - 1)).is_ok());
                let refused = check_offsets(&times(1 << 16));
                assert_eq!(refused.is_err(), is_refused);
                if let Err(error) = refused {
                    assert_eq!(error.column(), name);
                }
            }
        }
        assert!(check_offsets(&[]).is_ok());
    }

    #[test]
    fn flat_rows_have_the_bytes_of_their_slice() {
        let words = [Some("a"), None, Some("three"), Some("")];
        let numbers: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None, Some(3), Some(4)]));
        let text: ArrayRef = Arc::new(StringArray::from(words.to_vec()));
        let fields =
            Fields::from_iter([("n", DataType::Int32), ("t", DataType::Utf8)].map(|(n, t)| Field::new(n, t, true)));
        let arrays: Vec<ArrayRef> = vec![
            Arc::new(StructArray::new(fields, vec![numbers.clone(), text.clone()], None)),
            numbers,
            text,
            Arc::new(LargeStringArray::from(words.to_vec())),
            Arc::new(StringViewArray::from(words.to_vec())),
            Arc::new(BooleanArray::from(vec![true; 4])),
            Arc::new(NullArray::new(4)),
        ];
        for array in arrays {
            for (from, length) in [(0, 4), (1, 3), (2, 1)] {
                let data = array.slice(from, length).to_data();
                for (start, end) in [(0, length), (0, 1), (length, length)] {
                    let slice = data.slice(start, end - start).get_slice_memory_size().unwrap();
                    assert_eq!(range_bytes(&data, &(start..end)), slice, "{} {start}..{end}", array.data_type());
                }
            }
            assert!(!shares_memory(array.data_type()));
        }
    }

    #[test]
    fn nested_rows_have_the_bytes_of_their_own_items() {
        let rows = [Some(vec![Some(1), None, Some(3)]), None, Some(vec![Some(4)])];
        let lists = ListArray::from_iter_primitive::<Int64Type, _, _>(rows.clone());
        // Offsets, items and their bits, and the bits of the lists.
        assert_eq!(range_bytes(&lists.to_data(), &(0..1)), 2 * 4 + 3 * 8 + 1 + 1);
        assert_eq!(range_bytes(&lists.slice(1, 2).to_data(), &(1..2)), 2 * 4 + 8 + 1 + 1);
        assert_eq!(range_bytes(&lists.to_data(), &(1..1)), 4);
        let item = Arc::new(Field::new("item", DataType::Int32, false));
        let pairs = FixedSizeListArray::new(item, 2, Arc::new(Int32Array::from(vec![0; 20])), None).slice(3, 5);
        assert_eq!(range_bytes(&pairs.to_data(), &(1..4)), 3 * 2 * 4);
        let views = ListViewArray::from(lists);
        assert!(shares_memory(views.data_type()));
        assert_eq!(shared_bytes(&views.to_data()), views.to_data().get_array_memory_size());
    }

    #[test]
    fn a_dictionary_counts_once() {
        let codes = DictionaryArray::<Int8Type>::from_iter(["aa", "bbb", "aa"]);
        let data = codes.to_data();
        assert_eq!(range_bytes(&data, &(0..2)), 2);
        assert_eq!(shared_bytes(&data), 3 * 4 + 5);
        let item = Arc::new(Field::new("item", codes.data_type().clone(), false));
        let lists = FixedSizeListArray::new(item, 1, Arc::new(codes), None).to_data();
        assert!(shares_memory(lists.data_type()) && !shares_memory(&DataType::Int32));
        assert_eq!((range_bytes(&lists, &(0..3)), shared_bytes(&lists)), (3, 3 * 4 + 5));
        let plain = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1)])]);
        assert_eq!(shared_bytes(&plain.to_data()), 0);
    }
}
