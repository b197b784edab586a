//! How many bytes rows of an Arrow array count for in a shuffle buffer, as docs/loader.md defines it.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowDictionaryKeyType, Int8Type, Int16Type, Int32Type, Int64Type, RunEndIndexType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, OffsetSizeTrait};
use arrow_schema::DataType;

/// The bytes of the place of a string or a list: where it is, and how long.
const PLACE: usize = 8;

/// Returns the bytes of these rows, the sum of those of each row; rows beyond the array have none.
pub(super) fn row_bytes(array: &dyn Array, rows: Range<usize>) -> usize {
    let rows = rows.start.min(array.len())..rows.end.min(array.len());
    let of_each = |row: &dyn Fn(usize) -> Option<usize>| rows.clone().filter_map(row).fold(0, usize::saturating_add);
    let bytes = match array.data_type() {
        DataType::Utf8 => array.as_string_opt::<i32>().map(|array| of_bytes(array.value_offsets(), &rows)),
        DataType::LargeUtf8 => array.as_string_opt::<i64>().map(|array| of_bytes(array.value_offsets(), &rows)),
        DataType::Binary => array.as_binary_opt::<i32>().map(|array| of_bytes(array.value_offsets(), &rows)),
        DataType::LargeBinary => array.as_binary_opt::<i64>().map(|array| of_bytes(array.value_offsets(), &rows)),
        DataType::Utf8View => array.as_string_view_opt().map(|array| of_views(array.views(), &rows)),
        DataType::BinaryView => array.as_binary_view_opt().map(|array| of_views(array.views(), &rows)),
        DataType::List(_) => {
            array.as_list_opt::<i32>().map(|array| of_lists(array.value_offsets(), array.values(), &rows))
        }
        DataType::LargeList(_) => {
            array.as_list_opt::<i64>().map(|array| of_lists(array.value_offsets(), array.values(), &rows))
        }
        DataType::Map(_, _) => array.as_map_opt().map(|array| of_lists(array.value_offsets(), array.entries(), &rows)),
        DataType::ListView(_) => array
            .as_list_view_opt::<i32>()
            .map(|array| of_each(&|row| of_list_view(array.value_offsets(), array.value_sizes(), array.values(), row))),
        DataType::LargeListView(_) => array
            .as_list_view_opt::<i64>()
            .map(|array| of_each(&|row| of_list_view(array.value_offsets(), array.value_sizes(), array.values(), row))),
        DataType::FixedSizeList(_, size) => array.as_fixed_size_list_opt().map(|array| {
            let size = usize::try_from(*size).unwrap_or_default();
            row_bytes(array.values(), rows.start.saturating_mul(size)..rows.end.saturating_mul(size))
        }),
        DataType::Struct(_) => array.as_struct_opt().map(|array| {
            array.columns().iter().map(|field| row_bytes(field, rows.clone())).fold(0, usize::saturating_add)
        }),
        DataType::Union(_, _) => array
            .as_union_opt()
            .map(|array| of_each(&|row| Some(of_one(array.child(array.type_id(row)), array.value_offset(row))))),
        DataType::Dictionary(key, value) => {
            let null = null_bytes(value);
            match key.as_ref() {
                DataType::Int8 => of_keys::<Int8Type>(array, &rows, null),
                DataType::Int16 => of_keys::<Int16Type>(array, &rows, null),
                DataType::Int32 => of_keys::<Int32Type>(array, &rows, null),
                DataType::Int64 => of_keys::<Int64Type>(array, &rows, null),
                DataType::UInt8 => of_keys::<UInt8Type>(array, &rows, null),
                DataType::UInt16 => of_keys::<UInt16Type>(array, &rows, null),
                DataType::UInt32 => of_keys::<UInt32Type>(array, &rows, null),
                DataType::UInt64 => of_keys::<UInt64Type>(array, &rows, null),
                _ => None,
            }
        }
        DataType::RunEndEncoded(ends, _) => match ends.data_type() {
            DataType::Int16 => of_runs::<Int16Type>(array, &rows),
            DataType::Int32 => of_runs::<Int32Type>(array, &rows),
            DataType::Int64 => of_runs::<Int64Type>(array, &rows),
            _ => None,
        },
        fixed => Some(null_bytes(fixed).saturating_mul(rows.len())),
    };
    bytes.unwrap_or(0)
}

/// Returns the bytes of a null, which are those of an empty value.
fn null_bytes(data_type: &DataType) -> usize {
    match data_type {
        DataType::Null | DataType::Union(_, _) => 0,
        DataType::Boolean => 1,
        DataType::FixedSizeBinary(width) => usize::try_from(*width).unwrap_or_default(),
        DataType::FixedSizeList(item, size) => {
            null_bytes(item.data_type()).saturating_mul(usize::try_from(*size).unwrap_or_default())
        }
        DataType::Struct(fields) => {
            fields.iter().map(|field| null_bytes(field.data_type())).fold(0, usize::saturating_add)
        }
        DataType::Dictionary(_, value) => null_bytes(value),
        DataType::RunEndEncoded(_, value) => null_bytes(value.data_type()),
        other => other.primitive_width().unwrap_or(PLACE),
    }
}

fn of_one(array: &dyn Array, row: usize) -> usize {
    row_bytes(array, row..row.saturating_add(1))
}

/// Returns the elements that these rows span.
fn span<O: OffsetSizeTrait>(offsets: &[O], rows: &Range<usize>) -> Range<usize> {
    let at = |row: usize| offsets.get(row).map_or(0, |offset| offset.as_usize());
    at(rows.start)..at(rows.end)
}

fn of_bytes<O: OffsetSizeTrait>(offsets: &[O], rows: &Range<usize>) -> usize {
    span(offsets, rows).len().saturating_add(rows.len().saturating_mul(PLACE))
}

fn of_lists<O: OffsetSizeTrait>(offsets: &[O], items: &dyn Array, rows: &Range<usize>) -> usize {
    row_bytes(items, span(offsets, rows)).saturating_add(rows.len().saturating_mul(PLACE))
}

fn of_views(views: &[u128], rows: &Range<usize>) -> usize {
    // The lower 32 bits of a view are its length.
    let length = |view: &u128| usize::try_from(view & u128::from(u32::MAX)).unwrap_or(usize::MAX);
    let views = views.get(rows.clone()).unwrap_or_default();
    views.iter().map(length).fold(rows.len().saturating_mul(PLACE), usize::saturating_add)
}

fn of_list_view<O: OffsetSizeTrait>(offsets: &[O], sizes: &[O], items: &dyn Array, row: usize) -> Option<usize> {
    let (first, size) = (offsets.get(row)?.as_usize(), sizes.get(row)?.as_usize());
    Some(row_bytes(items, first..first.saturating_add(size)).saturating_add(PLACE))
}

fn of_keys<K: ArrowDictionaryKeyType>(array: &dyn Array, rows: &Range<usize>, null: usize) -> Option<usize> {
    let array = array.as_dictionary_opt::<K>()?;
    let row = |row| array.key(row).map_or(null, |key| of_one(array.values(), key));
    Some(rows.clone().map(row).fold(0, usize::saturating_add))
}

fn of_runs<R: RunEndIndexType>(array: &dyn Array, rows: &Range<usize>) -> Option<usize> {
    let array = array.as_run_opt::<R>()?;
    let row = |row| of_one(array.values(), array.get_physical_index(row));
    Some(rows.clone().map(row).fold(0, usize::saturating_add))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::builder::{Int32Builder, ListBuilder, MapBuilder, StringBuilder};
    use arrow_array::{
        ArrayRef, BinaryViewArray, BooleanArray, DictionaryArray, FixedSizeBinaryArray, FixedSizeListArray, Int16Array,
        Int32Array, Int64Array, LargeListArray, LargeStringArray, ListArray, ListViewArray, NullArray, RunArray,
        StringArray, StringViewArray, StructArray, UnionArray,
    };
    use arrow_cast::cast;
    use arrow_schema::{Field, Fields, UnionFields};

    use super::*;

    /// The bytes of each row and of one beyond them, the sums of which are those of all ranges of rows.
    fn bytes(array: &dyn Array) -> Vec<usize> {
        let each: Vec<usize> = (0..=array.len()).map(|row| of_one(array, row)).collect();
        for start in 0..=array.len() {
            for end in start..=array.len() {
                assert_eq!(row_bytes(array, start..end), each[start..end].iter().sum::<usize>(), "{start}..{end}");
            }
        }
        each
    }

    #[test]
    fn values_count_by_their_width_or_their_length_whatever_the_encoding() {
        let words = [Some("a"), None, Some(""), Some("four")];
        let lengths = [9, 8, 8, 12, 0];
        assert_eq!(bytes(&Int16Array::from(vec![Some(1), None])), [2, 2, 0]);
        assert_eq!(bytes(&BooleanArray::from(vec![Some(true), None, Some(false)])), [1, 1, 1, 0]);
        assert_eq!(bytes(&NullArray::new(1)), [0, 0]);
        assert_eq!(bytes(&StringArray::from(words.to_vec())), lengths);
        assert_eq!(bytes(&LargeStringArray::from(words.to_vec())), lengths);
        assert_eq!(bytes(&StringViewArray::from(words.to_vec())), lengths);
        assert_eq!(bytes(&BinaryViewArray::from_iter(words.map(|word| word.map(str::as_bytes)))), lengths);
        let string = StringArray::from(words.to_vec());
        for other in [DataType::Binary, DataType::LargeBinary] {
            assert_eq!(bytes(&cast(&string, &other).unwrap()), lengths);
        }
        assert_eq!(bytes(&string.slice(1, 3)), [8, 8, 12, 0]);
        let fixed = FixedSizeBinaryArray::try_from_iter([[1_u8, 2, 3], [4, 5, 6]].iter()).unwrap();
        assert_eq!(bytes(&fixed), [3, 3, 0]);
        assert_eq!(bytes(&DictionaryArray::<Int16Type>::from_iter(words)), lengths);
        assert_eq!(bytes(&DictionaryArray::<UInt64Type>::from_iter(words)), lengths);
        assert_eq!(bytes(&DictionaryArray::<Int8Type>::from_iter([None::<&str>, None])), [8, 8, 0]);
        assert_eq!(bytes(&RunArray::<Int32Type>::from_iter(words).slice(1, 3)), lengths[1..]);
    }

    #[test]
    fn nested_values_count_by_their_elements() {
        let rows = [Some(vec![Some(1), None, Some(3)]), None, Some(vec![]), Some(vec![Some(4)])];
        let lists = ListArray::from_iter_primitive::<Int64Type, _, _>(rows.clone());
        assert_eq!(bytes(&lists), [32, 8, 8, 16, 0]);
        assert_eq!(bytes(&lists.slice(2, 2)), [8, 16, 0]);
        assert_eq!(bytes(&LargeListArray::from_iter_primitive::<Int64Type, _, _>(rows)), [32, 8, 8, 16, 0]);
        assert_eq!(bytes(&ListViewArray::from(lists.clone())), [32, 8, 8, 16, 0]);
        let field = Arc::new(Field::new("item", DataType::Int32, true));
        let values: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None, Some(3), Some(4)]));
        let pairs = FixedSizeListArray::new(field, 2, values, Some(vec![true, false].into()));
        assert_eq!(bytes(&pairs), [8, 8, 0]);
        assert_eq!(null_bytes(pairs.data_type()), 8);
        let mut words = ListBuilder::new(StringBuilder::new());
        words.append_value([Some("ab"), None, Some("c")]);
        assert_eq!(bytes(&words.finish()), [35, 0]);
        let mut map = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
        map.keys().append_value("key");
        map.values().append_value(1);
        map.append(true).unwrap();
        assert_eq!(bytes(&map.finish()), [23, 0]);
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(3), Some(4)]));
        let fields = [("l", lists.data_type()), ("n", &DataType::Int64)];
        let fields = Fields::from_iter(fields.map(|(name, kind)| Field::new(name, kind.clone(), true)));
        let joined = StructArray::new(fields, vec![Arc::new(lists), numbers], None);
        assert_eq!(bytes(&joined), [40, 16, 16, 24, 0]);
        assert_eq!(null_bytes(joined.data_type()), 16);
        let fields = [("n", DataType::Int32), ("s", DataType::Utf8)].map(|(name, kind)| Field::new(name, kind, true));
        let fields = UnionFields::try_new([3, 5], fields).unwrap();
        let children: Vec<ArrayRef> =
            vec![Arc::new(Int32Array::from(vec![7, 8])), Arc::new(StringArray::from(vec!["", "xyz"]))];
        let union = UnionArray::try_new(fields, vec![3, 5].into(), None, children).unwrap();
        assert_eq!(bytes(&union), [4, 11, 0]);
    }
}
