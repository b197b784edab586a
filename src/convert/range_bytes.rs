//! How many bytes a range of rows of an arrow-rs array takes, without slicing the array.

use std::ops::Range;

use arrow_buffer::ArrowNativeType;
use arrow_data::ArrayData;
use arrow_schema::DataType;

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
        DataType::Utf8View | DataType::BinaryView => size_of::<u128>().saturating_mul(count),
        DataType::FixedSizeList(_, size) => {
            let size = usize::try_from(*size).unwrap_or_default();
            let at = |row: usize| data.offset().saturating_add(row).saturating_mul(size);
            children(at(rows.start)..at(rows.end))
        }
        // Its children are sliced with it.
        DataType::Struct(_) => children(rows.clone()),
        DataType::Dictionary(key, _) => key.primitive_width().unwrap_or_default().saturating_mul(count),
        other => other.primitive_width().unwrap_or_default().saturating_mul(count),
    };
    own.saturating_add(bits)
}

/// Returns whether rows of this type share memory of their array, or have no bytes of their own.
pub(super) fn shares_memory(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, _)
        | DataType::ListView(_)
        | DataType::LargeListView(_)
        | DataType::Union(_, _)
        | DataType::RunEndEncoded(_, _) => true,
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::Map(item, _)
        | DataType::FixedSizeList(item, _) => shares_memory(item.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| shares_memory(field.data_type())),
        _ => false,
    }
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

/// Returns the bytes of the offsets of these rows, and those of what they span.
fn of_offsets<T: ArrowNativeType>(
    data: &ArrayData,
    rows: &Range<usize>,
    spanned: impl FnOnce(Range<usize>) -> usize,
) -> usize {
    let offsets = data.buffers().first().map_or::<&[T], _>(&[], |buffer| buffer.typed_data());
    let at = |row: usize| offsets.get(data.offset().saturating_add(row)).map_or(0, |offset| offset.as_usize());
    let own = rows.len().saturating_add(1).saturating_mul(size_of::<T>());
    own.saturating_add(spanned(at(rows.start)..at(rows.end)))
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
