//! Takes the items of lists that all have one length, as those of fixed-size lists.

use arrow_buffer::{ArrowNativeType, NullBuffer};
use arrow_data::ArrayData;
use arrow_schema::DataType;

use super::repeat::{RowMap, repeated, slots};
use crate::arrow::wrong_length;
use crate::error::{Error, Result};

/// Where the items of each list start, and how many there are.
enum Extents<'a, T> {
    /// Of lists: one more offset than there are lists.
    Offsets(&'a [T]),
    /// Of list views.
    Spans(&'a [T], &'a [T]),
}

/// Returns `length` items for each list of a valid array: its own, or zeros that the list's null hides. Items that follow each other are
/// not copied if they `may_be_shared`.
///
/// # Errors
/// If a list that is not null has another length: names the row.
pub(super) fn items_of_lists(lists: &ArrayData, length: usize, may_be_shared: bool) -> Result<ArrayData> {
    match lists.data_type() {
        DataType::List(_) => items::<i32>(lists, &Extents::Offsets(offsets(lists)), length, may_be_shared),
        DataType::LargeList(_) => items::<i64>(lists, &Extents::Offsets(offsets(lists)), length, may_be_shared),
        DataType::ListView(_) => items::<i32>(lists, &spans(lists), length, may_be_shared),
        _ => items::<i64>(lists, &spans(lists), length, may_be_shared),
    }
}

fn offsets<T: ArrowNativeType>(lists: &ArrayData) -> &[T] {
    let end = lists.offset().saturating_add(lists.len()).saturating_add(1);
    lists.buffers().first().and_then(|buffer| buffer.typed_data().get(lists.offset()..end)).unwrap_or(&[])
}

fn spans<T: ArrowNativeType>(lists: &ArrayData) -> Extents<'_, T> {
    let end = lists.offset().saturating_add(lists.len());
    let sizes = lists.buffers().get(1).and_then(|buffer| buffer.typed_data().get(lists.offset()..end));
    Extents::Spans(slots(lists), sizes.unwrap_or(&[]))
}

impl<T: ArrowNativeType> Extents<'_, T> {
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
    extents: &Extents<'_, T>,
    length: usize,
    may_be_shared: bool,
) -> Result<ArrayData> {
    let values = lists.child_data().first().ok_or_else(|| Error::invalid("a list without a child"))?;
    let rows = lists.len();
    let count = rows.checked_mul(length).ok_or_else(|| Error::invalid("lists have more items than 64 bits count"))?;
    let mut first = None;
    let mut is_dense = may_be_shared;
    for row in 0..rows {
        let (start, own) = extents.of(row).ok_or_else(|| Error::invalid("a list has no offsets").at_row(row))?;
        let is_null = lists.nulls().is_some_and(|nulls| nulls.is_null(row));
        if own != length && !is_null {
            return Err(wrong_length(own, length).at_row(row));
        }
        let expected = row.checked_mul(length).and_then(|before| first.get_or_insert(start).checked_add(before));
        is_dense &= own == length && expected == Some(start);
    }
    let first = first.unwrap_or(0);
    if is_dense && first.checked_add(count).is_some_and(|end| end <= values.len()) {
        return Ok(values.slice(first, count));
    }
    repeated(values, &Items { lists, extents, length, count })
}

/// The items of lists, those of null lists as nulls.
struct Items<'a, T> {
    lists: &'a ArrayData,
    extents: &'a Extents<'a, T>,
    length: usize,
    count: usize,
}

impl<T: ArrowNativeType> RowMap for Items<'_, T> {
    fn len(&self) -> usize {
        self.count
    }

    fn nulls(&self) -> Option<&NullBuffer> {
        None
    }

    fn for_each(&self, mut take: impl FnMut(Option<usize>, usize)) {
        for row in 0..self.lists.len() {
            let own = self.extents.of(row).filter(|_| self.lists.nulls().is_none_or(|nulls| nulls.is_valid(row)));
            match own {
                Some((start, _)) => (0..self.length).for_each(|item| take(start.checked_add(item), 1)),
                None => take(None, self.length),
            }
        }
    }
}
