//! Takes the items of lists that all have one length, as those of fixed-size lists.

use std::ops::Range;

use arrow_buffer::{ArrowNativeType, NullBuffer};
use arrow_data::ArrayData;
use arrow_schema::DataType;

use super::repeat::{RowMap, has_rows_of_one_size, repeated, slots};
use crate::arrow::wrong_length;
use crate::error::{Error, Result};

/// Where the items of each list start, and how many there are.
enum ListSpans<'a, T> {
    /// Of lists: one more offset than there are lists.
    Offsets(&'a [T]),
    /// Of list views.
    Spans(&'a [T], &'a [T]),
}

/// Decodes items into memory of their own.
type Decode<'a> = &'a dyn Fn(&ArrayData) -> Result<ArrayData>;

/// Returns `length` items for each list of a valid array, in memory of their own: the list's items, or zeros that its null hides. They are
/// decoded if there is a `decode`.
///
/// # Errors
/// If a list that is not null has another length: names the row. As `decode`.
pub(super) fn items_of_lists(lists: &ArrayData, length: usize, decode: Option<Decode<'_>>) -> Result<ArrayData> {
    match lists.data_type() {
        DataType::List(_) => items::<i32>(lists, &ListSpans::Offsets(offsets(lists)), length, decode),
        DataType::LargeList(_) => items::<i64>(lists, &ListSpans::Offsets(offsets(lists)), length, decode),
        DataType::ListView(_) => items::<i32>(lists, &spans(lists), length, decode),
        _ => items::<i64>(lists, &spans(lists), length, decode),
    }
}

fn offsets<T: ArrowNativeType>(lists: &ArrayData) -> &[T] {
    let end = lists.offset().saturating_add(lists.len()).saturating_add(1);
    lists.buffers().first().and_then(|buffer| buffer.typed_data().get(lists.offset()..end)).unwrap_or(&[])
}

fn spans<T: ArrowNativeType>(lists: &ArrayData) -> ListSpans<'_, T> {
    let end = lists.offset().saturating_add(lists.len());
    let sizes = lists.buffers().get(1).and_then(|buffer| buffer.typed_data().get(lists.offset()..end));
    ListSpans::Spans(slots(lists), sizes.unwrap_or(&[]))
}

impl<T: ArrowNativeType> ListSpans<'_, T> {
    /// The first item of a list, and how many it has.
    fn of(&self, row: usize) -> Option<(usize, usize)> {
        match self {
            Self::Offsets(offsets) => {
                let (start, end) = (offsets.get(row)?.as_usize(), offsets.get(row.checked_add(1)?)?.as_usize());
                Some((start, end.checked_sub(start)?))
            }
            Self::Spans(starts, sizes) => Some((starts.get(row)?.as_usize(), sizes.get(row)?.as_usize())),
        }
    }
}

fn items<T: ArrowNativeType>(
    lists: &ArrayData,
    extents: &ListSpans<'_, T>,
    length: usize,
    decode: Option<Decode<'_>>,
) -> Result<ArrayData> {
    let values = lists.child_data().first().ok_or_else(|| Error::invalid("a list without a child"))?;
    let rows = lists.len();
    let count = rows.checked_mul(length).ok_or_else(|| Error::invalid("lists have more items than 64 bits count"))?;
    let (mut first, mut is_dense, mut used): (_, _, Option<Range<usize>>) = (None, true, None);
    for row in 0..rows {
        let (start, own) = extents.of(row).ok_or_else(|| Error::invalid("a list has no offsets").at_row(row))?;
        let is_null = lists.nulls().is_some_and(|nulls| nulls.is_null(row));
        if own != length && !is_null {
            return Err(wrong_length(own, length).at_row(row));
        }
        let expected = row.checked_mul(length).and_then(|before| first.get_or_insert(start).checked_add(before));
        is_dense &= own == length && expected == Some(start);
        if !is_null {
            let end = start.saturating_add(own);
            used = Some(used.map_or(start..end, |used| used.start.min(start)..used.end.max(end)));
        }
    }
    let (first, items) = (first.unwrap_or(0), RepeatedItems { lists, extents, length, count, before: 0 });
    is_dense &= first.checked_add(count).is_some_and(|end| end <= values.len());
    match decode {
        None => repeated(values, &items),
        Some(decode) if is_dense => decode(&values.slice(first, count)),
        // Of lists that are all null, no item may be there to decode.
        Some(decode) if used.is_some() && has_rows_of_one_size(values.data_type()) => {
            decode(&repeated(values, &items)?)
        }
        Some(decode) => {
            // Not the items that no list shows: there may be very many of them.
            let used = used.unwrap_or(0..0);
            let used = if used.end <= values.len() { used } else { 0..values.len() };
            let decoded = decode(&values.slice(used.start, used.len()))?;
            repeated(&decoded, &RepeatedItems { before: used.start, ..items })
        }
    }
}

/// The items of lists, those of null lists as nulls.
struct RepeatedItems<'a, T> {
    lists: &'a ArrayData,
    extents: &'a ListSpans<'a, T>,
    length: usize,
    count: usize,
    /// Items of the lists that the source does not have, before its own.
    before: usize,
}

impl<T: ArrowNativeType> RowMap for RepeatedItems<'_, T> {
    fn len(&self) -> usize {
        self.count
    }

    fn nulls(&self) -> Option<&NullBuffer> {
        None
    }

    fn for_each(&self, items: &Range<usize>, mut take: impl FnMut(Option<usize>, usize)) {
        let length = self.length.max(1);
        for row in items.start / length..items.end.div_ceil(length) {
            let before = row.saturating_mul(length);
            let items = items.start.saturating_sub(before)..items.end.saturating_sub(before).min(self.length);
            let own = self.extents.of(row).filter(|_| self.lists.nulls().is_none_or(|nulls| nulls.is_valid(row)));
            match own {
                Some((start, _)) => {
                    let start = start.checked_sub(self.before);
                    items.for_each(|item| take(start.and_then(|start| start.checked_add(item)), 1));
                }
                None => take(None, items.len()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::types::Int32Type;
    use arrow_array::{Array, Int32Array, ListArray, make_array};

    use super::*;

    #[test]
    fn items_in_several_rounds_are_those_of_each_list() {
        // Rounds start inside a list, also inside one that is null.
        let rows: usize = if cfg!(miri) { 100 } else { 700 };
        let list = |row: usize| [row, row + 1, row * 7].map(|item| i32::try_from(item).ok());
        for nulls in [0, 5] {
            let rows = (0..rows).map(|row| (nulls == 0 || row % nulls > 0).then(|| list(row)));
            let lists = ListArray::from_iter_primitive::<Int32Type, _, _>(rows.clone().rev());
            let found = make_array(items_of_lists(&lists.to_data(), 3, None).unwrap());
            let expected = rows.rev().flat_map(|row| row.unwrap_or([Some(0); 3]));
            assert_eq!(found.as_ref(), &Int32Array::from_iter(expected));
        }
    }
}
