//! Copies rows of several arrays of one type into one array: those of a batch that is passed through as Arrow.

use std::ops::Range;

use arrow_array::make_array;
use arrow_data::ArrayData;
use arrow_data::transform::MutableArrayData;
use arrow_schema::FieldRef;

use super::budget::slots_of;
use crate::alloc::fallible;
use crate::arrow::DeviceArray;
use crate::copy_log::{self, Copied};
use crate::error::{Error, Result, catch_panic};
use crate::plan::Action;

/// Consecutive rows of an array.
#[derive(Clone, Debug)]
pub(crate) struct SomeRows<'a> {
    pub(crate) array: &'a DeviceArray,
    pub(crate) range: Range<usize>,
}

/// Returns these rows as one array of this field, in memory of its own.
///
/// # Errors
/// If the arrays are of another type or not in host memory, or their contents break the Arrow format; if offsets would exceed their type,
/// no array of the type can be joined, or memory cannot be had.
pub(crate) fn join_rows(field: &FieldRef, rows: &[SomeRows<'_>]) -> Result<DeviceArray> {
    let (read, places) = data_of(rows)?;
    let bytes = bytes_of(&read, &places)?;
    let joined = catch_panic(|| join(&read, &places, bytes)).map_err(|error| error.in_column(field.name()))?;
    let joined = match joined {
        Some(joined) => make_array(joined),
        None => arrow_array::new_empty_array(field.data_type()),
    };
    copy_log::record(|| Copied {
        what: format!("{} rows of {}", joined.len(), field.data_type()),
        why: Action::JoinRows.to_string(),
        bytes,
    });
    DeviceArray::from_arrow(joined.as_ref(), field.clone())
}

/// Returns how many bytes [`join_rows`] copies.
///
/// # Errors
/// As [`join_rows`], of reading the arrays.
pub(crate) fn joined_bytes(rows: &[SomeRows<'_>]) -> Result<usize> {
    let (read, places) = data_of(rows)?;
    bytes_of(&read, &places)
}

/// Arrays, each once, as those of arrow-rs.
type ReadArrays<'a> = Vec<(&'a DeviceArray, ArrayData)>;

/// Rows of the array at a position.
type Places = Vec<(usize, Range<usize>)>;

/// Reads the arrays, and where the rows are in them.
fn data_of<'a>(rows: &[SomeRows<'a>]) -> Result<(ReadArrays<'a>, Places)> {
    let mut read: ReadArrays<'a> = Vec::new();
    let mut places = fallible::with_room(rows.len())?;
    for rows in rows.iter().filter(|rows| !rows.range.is_empty()) {
        // Arrays that are read come again and again.
        let known = read.iter().rposition(|(array, _)| std::ptr::eq(*array, rows.array));
        let index = match known {
            Some(index) => index,
            None => {
                fallible::push(&mut read, (rows.array, rows.array.to_arrow_unlogged()?.to_data()))?;
                read.len() - 1
            }
        };
        places.push((index, rows.range.clone()));
    }
    Ok((read, places))
}

/// Bytes of these rows.
fn bytes_of(read: &[(&DeviceArray, ArrayData)], places: &[(usize, Range<usize>)]) -> Result<usize> {
    let broken = || Error::internal("rows beyond their array");
    places.iter().try_fold(0_usize, |bytes, (index, range)| {
        let (_, data) = read.get(*index).filter(|(_, data)| range.end <= data.len()).ok_or_else(broken)?;
        // Of types without a size of their own, all of their memory.
        let size = data.slice(range.start, range.len()).get_slice_memory_size();
        Ok(bytes.saturating_add(size.unwrap_or_else(|_| data.get_array_memory_size())))
    })
}

fn join(
    read: &[(&DeviceArray, ArrayData)],
    places: &[(usize, Range<usize>)],
    bytes: usize,
) -> Result<Option<ArrayData>> {
    if places.is_empty() {
        return Ok(None);
    }
    // A failed allocation of arrow-rs ends the process, and its buffers double as they grow.
    let slots = read.iter().map(|(_, data)| slots_of(data)).fold(0, usize::saturating_add);
    fallible::require(bytes.saturating_mul(2).saturating_add(slots / 2))?;
    let count = places.iter().map(|(_, range)| range.len()).fold(0, usize::saturating_add);
    #[allow(clippy::disallowed_methods, reason = "a few bytes for each slot, whatever it takes, were asked for")]
    let mut joined = MutableArrayData::new(read.iter().map(|(_, data)| data).collect(), false, count);
    for (index, range) in places {
        joined.try_extend(*index, range.start, range.end).map_err(|error| Error::unsupported(error.to_string()))?;
    }
    Ok(Some(joined.freeze()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, ListArray, RecordBatch, StringArray, types::Int32Type};

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
        let rows: Vec<_> =
            places.iter().map(|(at, range)| SomeRows { array: &arrays[*at], range: range.clone() }).collect();
        let joined = join_rows(arrays[0].field(), &rows).unwrap().to_record_batch().unwrap();
        let mut at = 0;
        for (index, range) in places {
            for row in range {
                assert_eq!(joined.slice(at, 1), batches[index].slice(row, 1));
                at += 1;
            }
        }
        assert_eq!(joined.num_rows(), at);
        assert_eq!(join_rows(arrays[0].field(), &[]).unwrap().len(), 0);
        let beyond = [SomeRows { array: &arrays[0], range: 4..6 }];
        assert!(join_rows(arrays[0].field(), &beyond).is_err());
    }
}
