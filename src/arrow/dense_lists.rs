//! Turns dense lists into fixed-size lists over the same items.

use std::ops::Range;
use std::sync::Arc;

use arrow_schema::{DataType, FieldRef};
use smallvec::smallvec;

use super::bitmaps::BitmapBytes;
use super::device_lists::ListInts;
use super::import::{DeviceArray, array_ready_at, host_array};
use super::node::ArrayNode;
use crate::error::{Error, Remedy, Result};

/// Where the offsets of lists on a device are, the lengths of list views, and the bitmap of null lists.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListPlaces {
    pub(crate) offsets: ListInts,
    pub(crate) lengths: Option<ListInts>,
    validity: Option<BitmapBytes>,
}

/// What the host finds in lists on a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundLists {
    /// The first item; `None` if the lists do not follow each other.
    pub(crate) first: Option<usize>,
    pub(crate) nulls: usize,
    /// The first null list.
    pub(crate) first_null: Option<usize>,
}

/// Returns bytes of a device by their addresses.
type ReadBytes<'a> = &'a dyn Fn(Range<usize>) -> Result<&'a [u8]>;

impl ListPlaces {
    /// Returns the addresses of all of it.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        let ints = std::iter::once(self.offsets).chain(self.lengths).map(|ints| ints.bytes());
        ints.chain(self.validity.map(|validity| validity.range()))
    }

    /// Returns what tells the items of a list, of which there are so many in all. Its errors name the row.
    ///
    /// # Errors
    /// Those of `read`.
    fn lists<'a>(&self, items: usize, read: ReadBytes<'a>) -> Result<impl Fn(usize) -> Result<Range<usize>> + use<'a>> {
        let Self { offsets, lengths, .. } = *self;
        let own = read(offsets.bytes())?;
        let lengths = lengths.map(|lengths| Ok::<_, Error>((lengths, read(lengths.bytes())?))).transpose()?;
        Ok(move |row: usize| {
            let start = offsets.at(own, row);
            let end = match lengths {
                None => offsets.at(own, row.saturating_add(1)),
                Some((lengths, bytes)) => {
                    start.zip(lengths.at(bytes, row)).and_then(|(start, length)| start.checked_add(length))
                }
            };
            let list = [start, end].map(|place| place.and_then(|place| usize::try_from(place).ok()));
            match list {
                [Some(start), Some(end)] if start <= end && end <= items => Ok(start..end),
                _ => {
                    let [start, end] =
                        [start, end].map(|place| place.map_or_else(|| "none".to_owned(), |place| place.to_string()));
                    Err(Error::invalid(format!("offsets from {start} to {end} of {items} elements")).at_row(row))
                }
            }
        })
    }
}

impl DeviceArray {
    /// Returns lists, large lists or list views in host memory as the fixed-size lists of `field`, whose items have the same type, over
    /// the same items; `None` if there are gaps between the lists, or a null list has another length. Stops at the first such list. Copies
    /// the bitmap of null rows, if there are any.
    ///
    /// # Errors
    /// If a list that is not null has another length: names the row. As [`DeviceArray::lists`]; if the bitmap cannot be allocated.
    pub(crate) fn dense_lists(&self, field: &FieldRef) -> Result<Option<Self>> {
        let Some(length) = list_size(field) else { return Ok(None) };
        let lists = self.lists()?;
        let first = first_item((lists.rows, length), |row| Ok(lists.row(row)), |row| lists.is_null(row));
        let first = first.map_err(|error| error.in_column(self.field().name()))?;
        let span = first.and_then(|first| span(first, lists.rows, length)).filter(|span| span.end <= lists.items.len());
        let Some(span) = span else { return Ok(None) };
        let mut node = ArrayNode {
            length: lists.rows,
            null_count: Some(0),
            buffers: smallvec![std::ptr::null()],
            children: vec![lists.items.clipped(&span).node()?],
            ..ArrayNode::default()
        };
        let mut owner = self.owner();
        if let Some(valid) = &lists.valid {
            let bitmap = valid.shifted(0)?;
            node.buffers = smallvec![bitmap.as_ptr()];
            node.null_count = Some(valid.nulls());
            owner = Arc::new((bitmap, owner));
        }
        host_array(node.export(&owner)?, field.clone()).map(Some)
    }

    /// Returns where the offsets of lists on a device are, and what else tells their items. No rows have neither.
    ///
    /// # Errors
    /// If the array has no lists, or bitmaps of structs would have to be joined with that of the lists.
    pub(crate) fn list_places(&self) -> Result<ListPlaces> {
        let (offsets, lengths) = self.list_ints()?;
        let validity = if self.is_empty() { Ok(None) } else { self.view().bitmap() };
        let validity = validity.map_err(|error| error.remedy_is(self.device().host_remedy()))?;
        Ok(ListPlaces { offsets, lengths, validity })
    }

    /// Looks at the offsets and the bitmap of lists on a device, all of them. `read` returns the bytes of each of [`ListPlaces::ranges`].
    ///
    /// # Errors
    /// As [`DeviceArray::dense_lists`], and those of `read`.
    pub(crate) fn read_first_item(
        &self,
        length: usize,
        places: &ListPlaces,
        read: ReadBytes<'_>,
    ) -> Result<FoundLists> {
        let (rows, items) = (self.len(), self.device_items_len()?.unwrap_or(0));
        let bitmap = places.validity.map(|validity| Ok::<_, Error>((validity, read(validity.range())?))).transpose()?;
        let is_null = |row: usize| {
            bitmap.is_some_and(|(validity, bytes)| {
                let bit = validity.first_bit().saturating_add(row);
                bytes.get(bit / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 0)
            })
        };
        let null_rows = || (0..rows).filter(|row| bitmap.is_some() && is_null(*row));
        let list = places.lists(items, read)?;
        let first = first_item((rows, length), &list, is_null).and_then(|first| {
            // A gap hides the lists behind it.
            let wrong = || check_lengths((rows, length), &list, is_null);
            if first.is_none() { wrong().map(|()| None) } else { Ok(first) }
        });
        let first = first.map_err(|error| error.in_column(self.field().name()))?;
        Ok(FoundLists { first, nulls: null_rows().count(), first_null: null_rows().next() })
    }

    /// Returns lists on a device that follow each other from the item `first` on as the fixed-size lists of `field`, whose items have the
    /// same type, over the same items. `nulls`: how many are null, if that is known. `None` if so few items are before the first one that
    /// the bitmap of the lists would need others, or there are fewer items than that.
    ///
    /// # Errors
    /// If the array lacks the child that import has checked.
    pub(crate) fn dense_lists_on_device(
        &self,
        field: &FieldRef,
        places: &ListPlaces,
        (first, nulls): (usize, Option<usize>),
    ) -> Result<Option<Self>> {
        let (DataType::FixedSizeList(item, _), Some(length)) = (field.data_type(), list_size(field)) else {
            return Ok(None);
        };
        let items = self.device_items_len()?.unwrap_or(0);
        let nulls = if places.validity.is_none() { Some(0) } else { nulls };
        // The lists before the first one, whose bits share a byte with its own, have items before its own.
        let (offset, validity) = match places.validity.filter(|_| nulls != Some(0)) {
            Some(validity) => (validity.first_bit(), validity.start()),
            None => (0, std::ptr::null()),
        };
        let start = offset.checked_mul(length).and_then(|before| first.checked_sub(before));
        let end = span(first, self.len(), length).map(|span| span.end).filter(|end| *end <= items);
        let Some((start, end)) = start.zip(end) else { return Ok(None) };
        let node = ArrayNode {
            length: self.len(),
            offset,
            null_count: nulls,
            buffers: smallvec![validity],
            children: vec![self.device_items(item.clone(), &(start..end))?.node()?],
            ..ArrayNode::default()
        };
        array_ready_at(node.export(&self.owner())?, field.clone(), self.readiness().cloned()).map(Some)
    }
}

/// Returns the size of fixed-size lists.
pub(crate) fn list_size(field: &FieldRef) -> Option<usize> {
    match field.data_type() {
        DataType::FixedSizeList(_, size) => usize::try_from(*size).ok(),
        _ => None,
    }
}

/// Returns the first item of lists that all have one length and follow each other, 0 if there are none; `None` if they do not, or a null
/// list has another length.
///
/// # Errors
/// If a list that is not null has another length: names the row. Those of `list`.
fn first_item(
    (rows, length): (usize, usize),
    list: impl Fn(usize) -> Result<Range<usize>>,
    is_null: impl Fn(usize) -> bool,
) -> Result<Option<usize>> {
    let mut first = None;
    for row in 0..rows {
        let items = list(row)?;
        if items.len() != length && !is_null(row) {
            return Err(wrong_length(items.len(), length).at_row(row));
        }
        let expected = row.checked_mul(length).and_then(|before| first.get_or_insert(items.start).checked_add(before));
        if items.len() != length || expected != Some(items.start) {
            return Ok(None);
        }
    }
    Ok(Some(first.unwrap_or(0)))
}

/// Refuses a list of another length.
///
/// # Errors
/// As [`first_item`].
fn check_lengths(
    (rows, length): (usize, usize),
    list: impl Fn(usize) -> Result<Range<usize>>,
    is_null: impl Fn(usize) -> bool,
) -> Result<()> {
    (0..rows).try_for_each(|row| match list(row)?.len() {
        own if own == length || is_null(row) => Ok(()),
        own => Err(wrong_length(own, length).at_row(row)),
    })
}

/// The items of so many lists.
fn span(start: usize, rows: usize, length: usize) -> Option<Range<usize>> {
    let end = rows.checked_mul(length).and_then(|count| start.checked_add(count))?;
    Some(start..end)
}

/// Returns the error for a list of another length than the one that was asked for.
pub(crate) fn wrong_length(own: usize, length: usize) -> Error {
    let reason = format!("the list has {own} element{}, and not {length}", if own == 1 { "" } else { "s" });
    Error::argument(reason).remedy_is(Remedy::RaggedOrPadded)
}

#[cfg(test)]
mod tests {
    use arrow_array::{Array, FixedSizeListArray, Int32Array, LargeListArray, ListArray, ListViewArray};
    use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
    use arrow_schema::Field;

    use super::*;

    fn item() -> FieldRef {
        Arc::new(Field::new("item", DataType::Int32, true))
    }

    fn values(count: i32) -> Arc<Int32Array> {
        Arc::new(Int32Array::from_iter((0..count).map(|value| (value != 5).then_some(value))))
    }

    /// The fixed-size lists of two, as an arrow-rs array, and where the first item lies.
    fn dense(lists: &dyn Array) -> Result<Option<(FixedSizeListArray, *const i32)>> {
        let array = DeviceArray::from_arrow(lists, Arc::new(Field::new("x", lists.data_type().clone(), true)))?;
        let field = Arc::new(Field::new("x", DataType::FixedSizeList(item(), 2), true));
        let Some(made) = array.dense_lists(&field)? else { return Ok(None) };
        let made = FixedSizeListArray::from(made.to_arrow()?.to_data());
        let start = Int32Array::from(made.values().to_data()).values().as_ptr();
        Ok(Some((made, start)))
    }

    fn nulls() -> NullBuffer {
        NullBuffer::from(vec![true, false, true, true])
    }

    #[test]
    fn lists_that_follow_each_other_are_the_same_items() {
        let items = values(11);
        let lists = ListArray::new(item(), OffsetBuffer::new(vec![1, 3, 5, 7, 9].into()), items.clone(), Some(nulls()));
        let large = OffsetBuffer::new(vec![1_i64, 3, 5, 7, 9].into());
        let large = LargeListArray::new(item(), large, items.clone(), Some(nulls()));
        let (starts, sizes) = (ScalarBuffer::from(vec![1, 3, 5, 7]), ScalarBuffer::from(vec![2; 4]));
        let views = ListViewArray::new(item(), starts, sizes, items.clone(), Some(nulls()));
        for lists in [&lists as &dyn Array, &large, &views] {
            for skipped in 0..=4 {
                let (made, start) = dense(&*lists.slice(skipped, 4 - skipped)).unwrap().unwrap();
                let expected = FixedSizeListArray::new(item(), 2, Arc::new(items.slice(1, 8)), Some(nulls()));
                assert_eq!(made, expected.slice(skipped, 4 - skipped));
                if skipped < 4 {
                    assert_eq!(start, items.values()[1 + 2 * skipped..].as_ptr());
                }
            }
        }
    }

    #[test]
    fn gaps_and_short_null_lists_are_not_dense_and_other_lengths_are_errors() {
        let offsets = OffsetBuffer::new(vec![0, 2, 2, 4, 6].into());
        assert!(dense(&ListArray::new(item(), offsets.clone(), values(6), Some(nulls()))).unwrap().is_none());
        let error = dense(&ListArray::new(item(), offsets, values(6), None)).unwrap_err();
        assert_eq!((error.column(), error.row()), (Some("x"), Some(1)));
        assert!(error.to_string().contains("0 elements, and not 2"), "{error}");
        for starts in [vec![0, 3], vec![2, 0], vec![0, 0]] {
            let views = ListViewArray::new(item(), starts.into(), vec![2, 2].into(), values(6), None);
            assert!(dense(&views).unwrap().is_none());
        }
    }
}
