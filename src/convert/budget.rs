//! Bounds the memory that arrow-rs takes for a cast, from the sizes that an array claims. A failed allocation of
//! arrow-rs ends the process, and nulls, runs, codes and lists can claim any number of values in little memory.

use arrow_buffer::ArrowNativeType;
use arrow_data::ArrayData;
use arrow_schema::{DataType, UnionMode};

use super::repeat::slots;
use crate::alloc::fallible;
use crate::arrow::{has_type, list_item};
use crate::error::Result;
use crate::spec;

/// The size of an array with its runs, codes and views written out. All of it saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Amount {
    /// Slots of the array and of all its descendants.
    slots: usize,
    /// Bytes of strings and of fixed-size binary.
    text: usize,
}

/// The amounts of a whole array, and of the row that has most of each.
#[derive(Clone, Copy, Debug, Default)]
struct Amounts {
    whole: Amount,
    row: Amount,
}

impl Amount {
    fn plus(self, other: Self) -> Self {
        Self { slots: self.slots.saturating_add(other.slots), text: self.text.saturating_add(other.text) }
    }

    fn times(self, count: usize) -> Self {
        Self { slots: self.slots.saturating_mul(count), text: self.text.saturating_mul(count) }
    }
}

/// Refuses a cast to `to` and back that memory may not hold.
///
/// # Errors
/// If memory for both cannot be allocated.
pub(super) fn require_cast(data: &ArrayData, to: &DataType) -> Result<()> {
    let from = data.data_type();
    if let (DataType::RunEndEncoded(_, _), DataType::RunEndEncoded(_, to), [_, values]) = (from, to, data.child_data())
    {
        // Only the values are cast, however many rows they stand for, and the run ends are copied.
        fallible::require(values.len().saturating_mul(64))?;
        return require_cast(values, to.data_type());
    }
    let (all, rows) = (amounts(data).whole, data.len());
    let kept = bytes(to, Some(data), rows, all.slots).saturating_add(bytes(from, Some(data), rows, all.slots));
    // Some casts go through an intermediate type.
    let mut needed = kept.saturating_mul(2);
    if !(is_flat(from) && is_flat(to)) {
        // Indices of what is taken, for each level.
        needed = needed.saturating_add(all.slots.saturating_mul(16));
    }
    if has_text(to) || has_text(from) {
        // The most characters of a number or a timestamp; builders double their buffers.
        let written = if is_text(from) { 0 } else { all.slots.saturating_mul(128) };
        needed = needed.saturating_add(all.text.saturating_add(written).saturating_mul(4));
    }
    fallible::require(needed)
}

/// Refuses to compute the nulls of an array, of its children, and of the values of runs and codes, if memory may not
/// hold a few bits for each.
///
/// # Errors
/// When the allocation fails.
pub(super) fn require_nulls(data: &ArrayData) -> Result<()> {
    fallible::require(amounts(data).whole.slots / 2)
}

fn amounts(data: &ArrayData) -> Amounts {
    let rows = data.len();
    let own = |row: Amount| Amounts { whole: row.times(rows), row };
    let one = Amount { slots: 1, text: 0 };
    let child = || data.child_data().first().map(amounts).unwrap_or_default();
    // Lists are converted with all items of their child, whichever their rows show.
    let lists = |longest: usize, shown: usize| {
        let items = child();
        let row = one.plus(items.row.times(longest));
        let whole = Amount { slots: rows, text: 0 }.plus(items.whole).plus(items.row.times(shown));
        Amounts { whole, row }
    };
    match data.data_type() {
        DataType::FixedSizeBinary(width) => own(Amount { slots: 1, text: usize::try_from(*width).unwrap_or(0) }),
        DataType::Utf8 | DataType::Binary => text(rows, lengths::<i32>(data)),
        DataType::LargeUtf8 | DataType::LargeBinary => text(rows, lengths::<i64>(data)),
        DataType::Utf8View | DataType::BinaryView => {
            // The first 4 bytes of a view are its length.
            let length = |view: &u128| usize::try_from(*view & 0x7fff_ffff).unwrap_or(0);
            text(rows, slots::<u128>(data).iter().map(length))
        }
        DataType::List(_) | DataType::Map(_, _) => lists(lengths::<i32>(data).max().unwrap_or(0), 0),
        DataType::LargeList(_) => lists(lengths::<i64>(data).max().unwrap_or(0), 0),
        DataType::ListView(_) => lists(sizes::<i32>(data).max().unwrap_or(0), sum(sizes::<i32>(data))),
        DataType::LargeListView(_) => lists(sizes::<i64>(data).max().unwrap_or(0), sum(sizes::<i64>(data))),
        DataType::FixedSizeList(_, size) => {
            let size = usize::try_from(*size).unwrap_or(0);
            lists(size, rows.saturating_mul(size))
        }
        DataType::Struct(_) | DataType::Union(_, UnionMode::Sparse | UnionMode::Dense) => {
            let fields = data.child_data().iter().map(amounts);
            let start = Amounts { whole: one.times(rows), row: one };
            fields
                .fold(start, |all, field| Amounts { whole: all.whole.plus(field.whole), row: all.row.plus(field.row) })
        }
        DataType::Dictionary(_, _) => {
            let values = child();
            let row = one.plus(values.row);
            Amounts { whole: row.times(rows).plus(values.whole), row }
        }
        DataType::RunEndEncoded(_, _) => {
            let values = data.child_data().get(1).map(amounts).unwrap_or_default();
            let row = one.plus(values.row);
            Amounts { whole: row.times(rows).plus(values.whole), row }
        }
        _ => own(one),
    }
}

fn text(rows: usize, lengths: impl Iterator<Item = usize>) -> Amounts {
    let (whole, longest) =
        lengths.fold((0_usize, 0), |(whole, longest), length| (whole.saturating_add(length), length.max(longest)));
    Amounts { whole: Amount { slots: rows, text: whole }, row: Amount { slots: 1, text: longest } }
}

fn sum(lengths: impl Iterator<Item = usize>) -> usize {
    lengths.fold(0, usize::saturating_add)
}

/// Returns the lengths of the rows of these offsets.
fn lengths<T: ArrowNativeType>(data: &ArrayData) -> impl Iterator<Item = usize> {
    let offsets: &[T] = data.buffers().first().map_or(&[], |offsets| offsets.typed_data());
    let own = offsets.get(data.offset()..).unwrap_or(&[]).windows(2).take(data.len());
    own.map(|ends| match ends {
        [start, end] => end.as_usize().saturating_sub(start.as_usize()),
        _ => 0,
    })
}

/// Returns the lengths of the rows of list views.
fn sizes<T: ArrowNativeType>(data: &ArrayData) -> impl Iterator<Item = usize> {
    let sizes: &[T] = data.buffers().get(1).map_or(&[], |sizes| sizes.typed_data());
    sizes.get(data.offset()..).unwrap_or(&[]).iter().take(data.len()).map(|size| size.as_usize())
}

/// The bytes of `rows` slots of a type, strings aside, made from those of `from`. Where that does not tell how many items the
/// lists have, they are `most`.
fn bytes(to: &DataType, from: Option<&ArrayData>, rows: usize, most: usize) -> usize {
    let bitmap = rows.div_ceil(8);
    let child_of = |index: usize| from.and_then(|from| from.child_data().get(index));
    let from_type = from.map(ArrayData::data_type);
    let own = |width: usize| bitmap.saturating_add(rows.saturating_add(1).saturating_mul(width));
    match to {
        DataType::Null => 0,
        DataType::Boolean => bitmap.saturating_mul(2),
        DataType::FixedSizeBinary(width) => own(usize::try_from(*width).unwrap_or(0)),
        DataType::Utf8View | DataType::BinaryView => own(16),
        DataType::Utf8 | DataType::Binary | DataType::LargeUtf8 | DataType::LargeBinary => own(8),
        DataType::FixedSizeList(item, size) => {
            let items = rows.saturating_mul(usize::try_from(*size).unwrap_or(0));
            let child = child_of(0).filter(|_| from_type.is_some_and(is_list));
            // The items of the source's lists are converted first, or put where rows have them, for which arrow-rs reserves memory.
            let given = child.map_or(0, ArrayData::len);
            let is_placed = !matches!(from_type, Some(DataType::FixedSizeList(_, _)));
            let placed = child.filter(|_| is_placed).map_or(0, |child| reserved(child.data_type(), items));
            bitmap.saturating_add(placed).saturating_add(bytes(item.data_type(), child, items.max(given), most))
        }
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::Map(item, _) => {
            let child = child_of(0).filter(|_| from_type.is_some_and(is_list));
            let items = match (child, from_type) {
                (Some(child), _) => child.len(),
                (None, Some(from)) if is_flat(from) => rows,
                _ => most,
            };
            own(16).saturating_add(bytes(item.data_type(), child, items, most))
        }
        DataType::Struct(fields) => fields.iter().enumerate().fold(bitmap, |all, (index, field)| {
            let child = child_of(index).filter(|_| matches!(from_type, Some(DataType::Struct(_))));
            all.saturating_add(bytes(field.data_type(), child, rows, most))
        }),
        DataType::Union(fields, _) => fields.iter().enumerate().fold(own(8), |all, (index, (_, field))| {
            let child = child_of(index).filter(|_| matches!(from_type, Some(DataType::Union(_, _))));
            let rows = rows.max(child.map_or(0, ArrayData::len));
            all.saturating_add(bytes(field.data_type(), child, rows, most))
        }),
        DataType::Dictionary(_, values) => match (from_type, child_of(0)) {
            (Some(DataType::Dictionary(_, _)), Some(own_values)) => {
                own(8).saturating_add(bytes(values, Some(own_values), own_values.len(), most))
            }
            // Codes, the table that finds them, and at most as many values.
            _ => own(48).saturating_add(bytes(values, None, rows, most)),
        },
        DataType::RunEndEncoded(_, values) => match (from_type, child_of(1)) {
            (Some(DataType::RunEndEncoded(_, _)), Some(own_values)) => {
                let runs = own_values.len();
                runs.saturating_mul(16).saturating_add(bytes(values.data_type(), Some(own_values), runs, most))
            }
            // The starts and ends of runs, in some vectors, and at most as many values.
            _ => own(64).saturating_add(bytes(values.data_type(), None, rows, most)),
        },
        other => own(other.primitive_width().unwrap_or(16)),
    }
}

/// Returns the bytes that arrow-rs reserves to put so many rows of a type together, none of which need be there.
fn reserved(data_type: &DataType, rows: usize) -> usize {
    let own = |width: usize| rows.div_ceil(8).saturating_add(rows.saturating_add(1).saturating_mul(width));
    match data_type {
        DataType::Null => 0,
        DataType::Boolean => own(0).saturating_mul(2),
        DataType::FixedSizeBinary(width) => own(usize::try_from(*width).unwrap_or(0)),
        DataType::FixedSizeList(item, size) => {
            let items = rows.saturating_mul(usize::try_from(*size).unwrap_or(0));
            own(0).saturating_add(reserved(item.data_type(), items))
        }
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::Map(item, _) => own(16).saturating_add(reserved(item.data_type(), rows)),
        DataType::Struct(fields) => {
            fields.iter().fold(own(0), |all, field| all.saturating_add(reserved(field.data_type(), rows)))
        }
        DataType::Union(fields, _) => {
            fields.iter().fold(own(8), |all, (_, field)| all.saturating_add(reserved(field.data_type(), rows)))
        }
        DataType::Dictionary(_, _) => own(8),
        DataType::RunEndEncoded(_, values) => own(8).saturating_add(reserved(values.data_type(), rows)),
        other => own(other.primitive_width().unwrap_or(16)),
    }
}

fn is_list(data_type: &DataType) -> bool {
    list_item(data_type).is_some() || matches!(data_type, DataType::Map(_, _))
}

/// Returns whether the number of rows determines the size of an array of this type.
fn is_flat(data_type: &DataType) -> bool {
    match data_type {
        DataType::Struct(fields) => fields.iter().all(|field| is_flat(field.data_type())),
        DataType::FixedSizeList(item, _) => is_flat(item.data_type()),
        DataType::Union(_, _) | DataType::Dictionary(_, _) | DataType::RunEndEncoded(_, _) => false,
        other => !is_list(other),
    }
}

fn is_text(data_type: &DataType) -> bool {
    spec::is_text(data_type) || matches!(data_type, DataType::FixedSizeBinary(_))
}

fn has_text(data_type: &DataType) -> bool {
    has_type(data_type, &is_text)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::{Int8Type, Int64Type};
    use arrow_array::{
        Array, DictionaryArray, Int8Array, Int64Array, LargeStringArray, ListArray, NullArray, RunArray, StringArray,
    };
    use arrow_buffer::Buffer;
    use arrow_schema::Field;

    use super::*;
    use crate::error::ErrorKind;

    fn list(item: DataType, size: i32) -> DataType {
        DataType::FixedSizeList(Arc::new(Field::new("item", item, true)), size)
    }

    #[test]
    fn what_an_array_stands_for_is_counted() {
        let words = LargeStringArray::from(vec!["ab", "", "abcdef"]);
        let data = words.to_data();
        assert_eq!(amounts(&data).whole, Amount { slots: 3, text: 8 });
        assert_eq!(amounts(&data.slice(0, 2)).whole, Amount { slots: 2, text: 2 });
        let codes = DictionaryArray::<Int8Type>::new(Int8Array::from(vec![0; 100]), Arc::new(words));
        // Each row may be the longest value; the values are there too.
        assert_eq!(amounts(&codes.to_data()).whole, Amount { slots: 203, text: 608 });
        let runs = RunArray::<Int64Type>::try_new(&Int64Array::from(vec![1 << 40]), &Int8Array::from(vec![1])).unwrap();
        assert_eq!(amounts(&runs.to_data()).whole.slots, (2 << 40) + 1);
        let views = Buffer::from_vec(vec![0_i32, 0, 0, 0, 1000, 1000, 1000, 1000]);
        let item = Arc::new(Field::new("item", DataType::Null, true));
        let views = ArrayData::builder(DataType::ListView(item)).len(4).buffers(vec![views.slice(0), views.slice(16)]);
        let views = views.add_child_data(NullArray::new(1000).to_data()).build().unwrap();
        assert_eq!(amounts(&views).whole.slots, 4 + 1000 + 4 * 1000);
    }

    #[test]
    fn memory_for_items_that_rows_do_not_have_is_counted() {
        // One row without items: arrow-rs reserves a place for each that the fixed-size list asks for, of the source's type.
        let item = Arc::new(Field::new("item", DataType::FixedSizeBinary(i32::MAX), true));
        let rows = ListArray::new_null(item, 1).to_data();
        let refused = |size| require_cast(&rows, &list(DataType::Binary, size)).err().map(|error| error.kind());
        assert_eq!((refused(0), refused(1 << 20)), (None, Some(ErrorKind::Memory)));
        let wide = |rows| reserved(&list(DataType::Int64, 1 << 10), rows);
        assert!((8 << 20..9 << 20).contains(&wide(1 << 10)));
        assert_eq!(wide(usize::MAX), usize::MAX);
    }

    #[test]
    fn casts_that_memory_cannot_hold_are_refused() {
        let nulls = |rows| ArrayData::builder(DataType::Null).len(rows).build().unwrap();
        let refused = |data: &ArrayData, to: &DataType| {
            let refused = require_cast(data, to).err().map(|error| error.kind());
            assert!(refused.is_none_or(|kind| kind == ErrorKind::Memory));
            refused.is_some()
        };
        assert!(refused(&nulls(1 << 20), &list(DataType::Int64, 1_000_000)));
        assert!(refused(&nulls(1 << 60), &DataType::FixedSizeBinary(0)));
        assert!(!refused(&nulls(1 << 20), &list(DataType::Int64, 8)));
        let long = "x".repeat(1 << 20);
        let words = DictionaryArray::<Int8Type>::new(
            Int8Array::from(vec![0; if cfg!(miri) { 1 << 12 } else { 1 << 24 }]),
            Arc::new(StringArray::from(vec![long.as_str()])),
        );
        assert!(refused(&words.to_data(), &DataType::LargeUtf8) && refused(&words.to_data(), &DataType::Utf8View));
        let runs = RunArray::<Int64Type>::try_new(&Int64Array::from(vec![1 << 50]), &Int8Array::from(vec![1])).unwrap();
        let wide = |values: DataType| {
            let [ends, values] = [("run_ends", DataType::Int64, false), ("values", values, true)]
                .map(|(name, data_type, nullable)| Arc::new(Field::new(name, data_type, nullable)));
            DataType::RunEndEncoded(ends, values)
        };
        assert!(refused(&runs.to_data(), &DataType::Int8) && !refused(&runs.to_data(), &wide(DataType::Int16)));
        assert!(!has_text(&wide(DataType::Int16)) && has_text(&wide(DataType::Utf8)));
    }

    #[test]
    fn nested_lists_are_not_counted_twice() {
        let items =
            ArrayData::builder(DataType::Float32).len(768_000).add_buffer(Buffer::from_vec(vec![0_f32; 768_000]));
        let rows = ArrayData::builder(list(DataType::Float32, 768)).len(1000).add_child_data(items.build().unwrap());
        let rows = rows.build().unwrap();
        let most = amounts(&rows).whole.slots;
        let to = bytes(&list(DataType::Float64, 768), Some(&rows), 1000, most);
        assert!((768_000 * 8..768_000 * 9).contains(&to), "{to}");
        let offsets = Buffer::from_vec(vec![0_i32, 1000]);
        let item = |data_type| Arc::new(Field::new("item", data_type, true));
        let lists = ArrayData::builder(DataType::List(item(rows.data_type().clone()))).len(1).add_buffer(offsets);
        let lists = lists.add_child_data(rows).build().unwrap();
        let to =
            bytes(&DataType::List(item(list(DataType::Float64, 768))), Some(&lists), 1, amounts(&lists).whole.slots);
        assert!((768_000 * 8..768_000 * 9).contains(&to), "{to}");
    }
}
