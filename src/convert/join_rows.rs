//! Copies rows of several arrays of one type into one array: those of a batch that is passed through as Arrow.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use arrow_array::make_array;
use arrow_data::ArrayData;
use arrow_data::transform::MutableArrayData;
use arrow_schema::FieldRef;

use super::one_dictionary::with_one_dictionary;
use super::range_bytes::{check_offsets, fetch_offsets, fetch_rows, range_bytes, shared_bytes, shares_memory};
use super::row_block::FETCH_AHEAD;
use super::shown_text::with_shown_text;
use crate::alloc::fallible;
use crate::arrow::DeviceArray;
use crate::copy_log::{self, Copied};
use crate::error::{Error, Result, catch_panic};
use crate::plan::Action;

/// Returns rows of arrays of arrow-rs, of this field's type, as one array in memory of its own. Where their dictionaries differ, it has one of
/// the values that the rows have.
///
/// # Errors
/// If offsets or dictionary codes would exceed their type, no array of the type can be joined, or an allocation fails.
pub(crate) fn join_data(field: &FieldRef, rows: &[(&ArrayData, Range<usize>)]) -> Result<DeviceArray> {
    let bytes = bytes_of_rows(rows)?;
    // arrow-rs would find that after as many bytes were copied.
    if i32::try_from(bytes).is_err() {
        check_offsets(rows).map_err(|error| error.in_column(field.name()))?;
    }
    let joined = catch_panic(|| join(rows, bytes)).map_err(|error| error.in_column(field.name()))?;
    let joined = match joined {
        Some(joined) => make_array(joined),
        None => arrow_array::new_empty_array(field.data_type()),
    };
    copy_log::record(|| Copied {
        what: copy_log::rows_of("", joined.len(), field.data_type()),
        why: Action::JoinRows.to_string(),
        bytes,
    });
    DeviceArray::from_arrow(joined.as_ref(), field.clone())
}

/// Returns how many bytes [`join_data`] copies at most: those of the rows, and for each array the memory that its rows share, such as a
/// dictionary, of which it may copy only the values that the rows have.
///
/// # Errors
/// If the rows are beyond their array.
pub(crate) fn bytes_of_rows(rows: &[(&ArrayData, Range<usize>)]) -> Result<usize> {
    let is_within = |(data, range): &(&ArrayData, Range<usize>)| range.start <= range.end && range.end <= data.len();
    if !rows.iter().all(is_within) {
        return Err(Error::internal("rows beyond their array"));
    }
    let bytes = |(index, (data, range)): (usize, &(&ArrayData, Range<usize>))| {
        if let Some((data, range)) = rows.get(index.saturating_add(FETCH_AHEAD)) {
            fetch_offsets(data, range.start);
        }
        range_bytes(data, range)
    };
    let own = rows.iter().enumerate().map(bytes).fold(0, usize::saturating_add);
    if !rows.first().is_some_and(|(data, _)| shares_memory(data.data_type())) {
        return Ok(own);
    }
    let mut known = HashSet::new();
    let arrays = rows.iter().filter(|(data, range)| !range.is_empty() && known.insert(std::ptr::from_ref(*data)));
    Ok(arrays.map(|(data, _)| shared_bytes(data)).fold(own, usize::saturating_add))
}

fn join(rows: &[(&ArrayData, Range<usize>)], bytes: usize) -> Result<Option<ArrayData>> {
    let (mut arrays, mut known, mut places) = (Vec::new(), HashMap::new(), fallible::with_room(rows.len())?);
    let mut last = None;
    for (data, range) in rows.iter().filter(|(_, range)| !range.is_empty()) {
        // Arrays come again and again, and often there is one.
        let array = std::ptr::from_ref(*data);
        let index = match last {
            Some((known, index)) if std::ptr::eq(known, array) => index,
            _ => *known.entry(array).or_insert_with(|| {
                arrays.push(*data);
                arrays.len() - 1
            }),
        };
        last = Some((array, index));
        places.push((index, range.clone()));
    }
    if places.is_empty() {
        return Ok(None);
    }
    let make_values = |values: &[(&ArrayData, Range<usize>)]| {
        check_offsets(values)?;
        join(values, bytes_of_rows(values)?)
    };
    let pieces = with_one_dictionary(&arrays, &places, &make_values)?;
    if let Some(pieces) = &pieces {
        arrays = pieces.iter().map(|piece| &piece.data).collect();
        places = pieces.iter().enumerate().map(|(index, piece)| (index, 0..piece.data.len())).collect();
    }
    // A failed allocation of arrow-rs ends the process, and its buffers double as they grow. A bit for each slot, also of those that
    // take no memory.
    let count = places.iter().map(|(_, range)| range.len()).fold(0, usize::saturating_add);
    fallible::require(bytes.saturating_mul(2).saturating_add(count))?;
    let use_nulls = arrays.iter().any(|array| has_bitmap(array));
    #[allow(clippy::disallowed_methods, reason = "the memory was asked for above")]
    let mut joined = MutableArrayData::new(arrays.clone(), use_nulls, count);
    // Rows of a shuffle lie anywhere.
    let fetch = |place: &(usize, Range<usize>)| {
        if let Some(array) = arrays.get(place.0) {
            fetch_rows(array, &place.1);
        }
    };
    places.iter().take(FETCH_AHEAD).for_each(fetch);
    for (at, (index, range)) in places.iter().enumerate() {
        places.get(at.saturating_add(FETCH_AHEAD)).into_iter().for_each(fetch);
        joined.try_extend(*index, range.start, range.end).map_err(|error| Error::unsupported(error.to_string()))?;
    }
    // Views would keep all text of the arrays that they were taken from.
    with_shown_text(joined.freeze()).map(Some)
}

/// Whether the array or one below it has a bitmap. arrow-rs panics when it joins one whose rows are all valid, unless it expects nulls.
fn has_bitmap(data: &ArrayData) -> bool {
    data.nulls().is_some() || data.child_data().iter().any(has_bitmap)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Array, ArrayRef, DictionaryArray, ListArray, RecordBatch, StringArray, types::Int32Type};

    use super::*;

    #[test]
    fn rows_of_several_arrays_are_joined_in_the_order_asked_for() {
        let batch = |first: i32| {
            let text: ArrayRef =
                Arc::new(StringArray::from_iter((0..5).map(|row| (row != 2).then(|| format!("{first} {row}")))));
            let lists = (0..5).map(|row| (row != 3).then(|| vec![Some(first + row); usize::try_from(row).unwrap()]));
            let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists));
            RecordBatch::try_from_iter_with_nullable([("t", text, true), ("l", lists, true)]).unwrap()
        };
        let batches = [batch(0), batch(10)];
        let arrays: Vec<_> = batches.iter().map(|batch| DeviceArray::from_record_batch(batch).unwrap()).collect();
        let places = [(1, 3..5), (0, 0..2), (1, 0..1), (0, 2..2), (0, 2..4)];
        let read: Vec<_> = arrays.iter().map(|array| array.to_arrow_unlogged().unwrap().to_data()).collect();
        let rows: Vec<_> = places.iter().map(|(at, range)| (&read[*at], range.clone())).collect();
        let joined = join_data(arrays[0].field(), &rows).unwrap().to_record_batch().unwrap();
        let mut at = 0;
        for (index, range) in places {
            for row in range {
                assert_eq!(joined.slice(at, 1), batches[index].slice(row, 1));
                at += 1;
            }
        }
        assert_eq!(joined.num_rows(), at);
        assert_eq!(join_data(arrays[0].field(), &[]).unwrap().len(), 0);
        assert!(join_data(arrays[0].field(), &[(&read[0], 4..6)]).is_err());
    }

    #[test]
    fn bitmaps_without_nulls_are_joined_too() {
        let numbers: ArrayRef = Arc::new(arrow_array::Int32Array::from(vec![None, Some(2), Some(3)]));
        let lists = [None, Some(vec![None, Some(1)]), Some(vec![Some(2)]), Some(vec![Some(3)])];
        let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists));
        for (array, from) in [(numbers, 1), (lists, 2)] {
            let data = array.to_data().slice(from, 2);
            let field = Arc::new(arrow_schema::Field::new("c", array.data_type().clone(), true));
            let joined = join_data(&field, &[(&data, 1..2), (&data, 0..1)]).unwrap().to_arrow_unlogged().unwrap();
            assert_eq!((&joined.slice(0, 1), &joined.slice(1, 1)), (&array.slice(from + 1, 1), &array.slice(from, 1)));
        }
    }

    #[test]
    fn rows_count_their_own_bytes_and_what_they_share_once() {
        let lists = (0..100).map(|row| Some(vec![Some(row); 10]));
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>(lists).to_data();
        let codes = DictionaryArray::<Int32Type>::from_iter(["aa", "bbb", "aa"]).to_data();
        // Two offsets and ten items each: not all items of the array.
        assert_eq!(bytes_of_rows(&[(&lists, 3..4), (&lists, 90..91)]).unwrap(), 2 * (2 * 4 + 10 * 4));
        assert_eq!(bytes_of_rows(&[(&codes, 0..1), (&codes, 2..3), (&codes, 1..1)]).unwrap(), 2 * 4 + 3 * 4 + 5);
        assert_eq!(bytes_of_rows(&[]).unwrap(), 0);
        assert!(bytes_of_rows(&[(&codes, 3..4)]).is_err());
    }
}
