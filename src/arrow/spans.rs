//! Whether an array reads from given bytes of memory.

use std::ops::Range;

use arrow_schema::{DataType, UnionMode};

use super::check::{Buffer, buffers_of, children_of};
use super::foreign::{buffer, child, dictionary};
use super::view::ArrayView;
use crate::dtype::DType;
use crate::ffi::arrow_device::ArrowArray;

impl ArrayView<'_> {
    /// Returns whether any of these bytes holds slots of this view, or their validity. Bytes whose size only other
    /// buffers tell, the characters of strings, do not count.
    pub(crate) fn overlaps(&self, bytes: &Range<usize>) -> bool {
        self.validity_overlaps(bytes) || overlaps(self.field.data_type(), self.array, self.offset, self.length, bytes)
    }

    /// Like [`ArrayView::overlaps`], for the bitmaps of enclosing structs, and for its own if it is a struct.
    pub(crate) fn validity_overlaps(&self, bytes: &Range<usize>) -> bool {
        let touches_bits = |start, offset: usize, length: usize| {
            touches(start, offset / 8, offset.saturating_add(length).div_ceil(8), bytes)
        };
        let own = if let DataType::Struct(_) = self.field.data_type() { buffer(self.array, 0) } else { None };
        self.inherited.iter().any(|bits| touches_bits(bits.start, bits.offset, bits.length))
            || own.is_some_and(|start| touches_bits(start, self.offset, self.length))
    }

    /// Like [`ArrayView::overlaps`], for a struct's column without the bitmaps of enclosing structs.
    pub(crate) fn column_overlaps(&self, index: usize, bytes: &Range<usize>) -> bool {
        let DataType::Struct(fields) = self.field.data_type() else { return false };
        let (Some(field), Ok(array)) = (fields.get(index), child(self.array, index)) else { return false };
        let offset = usize::try_from(array.offset).unwrap_or(0).saturating_add(self.offset);
        overlaps(field.data_type(), array, offset, self.length, bytes)
    }

    /// Returns whether columns of a struct, of plain numbers, hold all of these bytes, but for fewer than `padding` in one place. Column
    /// `first` is looked at first, and the others as they follow it, as they do in memory.
    pub(crate) fn columns_hold(&self, bytes: &Range<usize>, padding: usize, first: usize) -> bool {
        let DataType::Struct(fields) = self.field.data_type() else { return false };
        let mut from = bytes.start;
        let mut first = first.min(fields.len());
        let held = |first: usize| {
            let indices = (first..fields.len()).chain(0..first);
            indices.filter_map(|index| Some((index, slots(fields.get(index)?.data_type(), self.array, index)?)))
        };
        while bytes.end.saturating_sub(from) >= padding {
            let next = held(first).find(|(_, held)| held.start < from.saturating_add(padding) && held.end > from);
            let Some((index, held)) = next else { return false };
            (first, from) = (index.saturating_add(1), held.end);
        }
        true
    }
}

/// The bytes of all slots of a struct's column of plain numbers, those before its offset too.
fn slots(data_type: &DataType, parent: &ArrowArray, index: usize) -> Option<Range<usize>> {
    let array = child(parent, index).ok()?;
    let (start, slots) = (buffer(array, 1)?.addr(), array.offset.checked_add(array.length)?);
    let bytes = usize::try_from(slots).ok()?.checked_mul(DType::of_arrow(data_type)?.itemsize())?;
    Some(start..start.checked_add(bytes)?)
}

/// Returns whether bytes `from..to` after `start` share a byte with `bytes`.
fn touches(start: *const u8, from: usize, to: usize, bytes: &Range<usize>) -> bool {
    let (from, to) = (start.addr().saturating_add(from), start.addr().saturating_add(to));
    !start.is_null() && from.max(bytes.start) < to.min(bytes.end)
}

fn overlaps(data_type: &DataType, array: &ArrowArray, offset: usize, length: usize, bytes: &Range<usize>) -> bool {
    let end = offset.saturating_add(length);
    if let (Some(dtype), Some(validity), Some(values)) =
        (DType::of_arrow(data_type), buffer(array, 0), buffer(array, 1))
    {
        // Plain numbers, which most columns are, skip the rest.
        let values_overlap =
            touches(values, offset.saturating_mul(dtype.itemsize()), end.saturating_mul(dtype.itemsize()), bytes);
        return values_overlap || touches(validity, offset / 8, end.div_ceil(8), bytes);
    }
    let own = buffers_of(data_type).iter().enumerate().any(|(index, kind)| {
        let (from, to) = match kind {
            Buffer::Validity | Buffer::Bits => (offset / 8, end.div_ceil(8)),
            Buffer::Width(width) => (offset.saturating_mul(*width), end.saturating_mul(*width)),
            Buffer::Offsets(width) => (offset.saturating_mul(*width), end.saturating_add(1).saturating_mul(*width)),
            Buffer::Data => (0, 0),
        };
        length > 0 && buffer(array, index).is_some_and(|start| touches(start, from, to, bytes))
    });
    own || children_of(data_type).iter().enumerate().any(|(index, field)| {
        // Import checked that the children exist.
        let Ok(array) = child(array, index) else { return false };
        let first = usize::try_from(array.offset).unwrap_or(0);
        let all = usize::try_from(array.length).unwrap_or(0);
        let (start, length) = match data_type {
            DataType::Struct(_) | DataType::Union(_, UnionMode::Sparse) => (offset, length),
            DataType::FixedSizeList(_, size) => {
                let size = usize::try_from(*size).unwrap_or(0);
                (offset.saturating_mul(size), length.saturating_mul(size))
            }
            _ => (0, all),
        };
        overlaps(field.data_type(), array, first.saturating_add(start), length, bytes)
    }) || dictionary_overlaps(data_type, array, bytes)
}

fn dictionary_overlaps(data_type: &DataType, array: &ArrowArray, bytes: &Range<usize>) -> bool {
    let DataType::Dictionary(_, values) = data_type else { return false };
    let Some(dictionary) = dictionary(array) else { return false };
    let count = |count: i64| usize::try_from(count).unwrap_or(0);
    overlaps(values, dictionary, count(dictionary.offset), count(dictionary.length), bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::{Int8Type, Int32Type};
    use arrow_array::{
        Array, ArrayRef, BooleanArray, DictionaryArray, FixedSizeListArray, Float64Array, Int32Array, ListArray,
        StructArray,
    };
    use arrow_schema::{DataType, Field};

    use crate::arrow::DeviceArray;

    fn overlaps(array: &dyn Array, bytes: std::ops::Range<usize>) -> bool {
        let field = Arc::new(Field::new("x", array.data_type().clone(), true));
        DeviceArray::from_arrow(array, field).unwrap().view().overlaps(&bytes)
    }

    #[test]
    fn the_slots_of_a_slice_count_and_what_lies_around_them_does_not() {
        let values = Float64Array::from((0..100).map(f64::from).collect::<Vec<_>>());
        let start = values.values().as_ptr().addr();
        let slice = values.slice(10, 20);
        for (from, to, expected) in
            [(0, 80, false), (0, 81, true), (239, 240, true), (240, 800, false), (100, 100, false), (0, 800, true)]
        {
            assert_eq!(overlaps(&slice, start + from..start + to), expected, "{from}..{to}");
        }
    }

    #[test]
    fn the_bits_of_a_slice_of_numbers_count() {
        let ints: Int32Array = (0..100).map(|row| (row % 7 != 0).then_some(row)).collect();
        let validity = ints.nulls().unwrap().buffer().as_ptr().addr();
        let whole = DeviceArray::from_arrow(&ints, Arc::new(Field::new("x", DataType::Int32, true))).unwrap();
        for (rows, byte, expected) in [(0..100, 0, true), (16..24, 1, false), (16..24, 2, true), (16..24, 3, false)] {
            let bytes = validity + byte..validity + byte + 1;
            assert_eq!(whole.view().slice(&rows).overlaps(&bytes), expected, "byte {byte} of rows {rows:?}");
        }
    }

    #[test]
    fn bitmaps_children_and_dictionaries_count() {
        let bools = BooleanArray::from_iter((0..100).map(|row| (row % 7 != 0).then_some(row % 2 == 0)));
        let validity = bools.nulls().unwrap().buffer().as_ptr().addr();
        assert!(overlaps(&bools, validity..validity + 1));
        let bits = bools.values().values().as_ptr().addr();
        assert!(
            overlaps(&bools.slice(16, 8), bits + 2..bits + 3) && !overlaps(&bools.slice(16, 8), bits + 3..bits + 9)
        );
        let column: ArrayRef = Arc::new(bools.slice(8, 64));
        let nested = StructArray::from(vec![(Arc::new(Field::new("a", column.data_type().clone(), true)), column)]);
        assert!(overlaps(&nested, bits + 1..bits + 2) && !overlaps(&nested, bits..bits + 1));
        let items = Float64Array::from((0..40).map(f64::from).collect::<Vec<_>>());
        let start = items.values().as_ptr().addr();
        let lists = FixedSizeListArray::new(
            Arc::new(Field::new("item", items.data_type().clone(), true)),
            4,
            Arc::new(items),
            None,
        );
        let rows = lists.slice(1, 5);
        for (item, expected) in [(0, false), (3, false), (4, true), (5, true), (23, true), (24, false), (39, false)] {
            let bytes = start + item * 8..start + (item + 1) * 8;
            assert_eq!(overlaps(&rows, bytes), expected, "item {item} of rows of four");
        }
        let words: DictionaryArray<Int8Type> = ["a", "b", "a"].into_iter().collect();
        let offsets = words.values().to_data().buffers()[0].as_ptr().addr();
        assert!(overlaps(&words, offsets..offsets + 1));
        // Two words have three offsets.
        assert!(overlaps(&words, offsets + 8..offsets + 12) && !overlaps(&words, offsets + 12..offsets + 13));
        // Rows of lists can name any item.
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), Some(2)])]);
        let item = lists.values().to_data().buffers()[0].as_ptr().addr();
        assert!(overlaps(&lists, item..item + 1) && !overlaps(&lists, item + 8..item + 9));
    }
}
