//! [`DeviceRows`]: the rows of one chunk in the memory of a device, and what the host reads of them.

use std::ops::Range;

use arrow_schema::FieldRef;

use super::elements::{item_field, unsupported};
use super::level::null_row;
use crate::arrow::{BitRange, BitmapBytes, DeviceArray, ListInts};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::PaddedRows;
use crate::transfer::{HostRead, read_to_host};

/// Lists or strings on a device.
pub(super) struct DeviceRows {
    pub(super) array: DeviceArray,
    pub(super) offsets: ListInts,
    pub(super) lengths: Option<ListInts>,
}

impl DeviceRows {
    /// # Errors
    /// For arrays of another type.
    pub(super) fn new(array: &DeviceArray) -> Result<Self> {
        let (offsets, lengths) = array.list_ints()?;
        Ok(Self { array: array.clone(), offsets, lengths })
    }

    pub(super) fn ints(&self) -> impl Iterator<Item = ListInts> {
        [self.offsets].into_iter().chain(self.lengths)
    }

    /// Of list views the lengths, of others the offsets.
    pub(super) fn lengths_or_offsets(&self) -> ListInts {
        self.lengths.unwrap_or(self.offsets)
    }

    /// The bitmap that tells which rows are null; `None` if none is.
    ///
    /// # Errors
    /// If nulls of enclosing structs would have to be joined with those of the rows.
    pub(super) fn bitmap(&self) -> Result<Option<BitmapBytes>> {
        self.array.view().bitmap().map_err(|error| error.remedy_is(self.array.device().host_remedy()))
    }

    /// The rows as kernels read them.
    ///
    /// # Errors
    /// As [`DeviceRows::bitmap`].
    pub(super) fn in_kernels(&self) -> Result<PaddedRows> {
        let count = self.array.len();
        let bits =
            |bitmap: BitmapBytes| BitRange { start: bitmap.start().addr(), first_bit: bitmap.first_bit(), count };
        Ok(PaddedRows {
            count,
            offsets: self.offsets.bytes(),
            lengths: self.lengths.as_ref().map(ListInts::bytes),
            is_wide: self.offsets.dtype() == DType::Int64,
            validity: self.bitmap()?.map(bits),
            items: self.array.device_items_len()?,
        })
    }

    /// The addresses of the first and the last offset; `None` of list views, and of no rows.
    pub(super) fn ends(&self) -> Option<[Range<usize>; 2]> {
        let has_ends = self.lengths.is_none() && !self.array.is_empty();
        has_ends.then(|| [self.offsets.one(0), self.offsets.one(self.array.len())])
    }

    /// Refuses the first row that is null by this bitmap.
    pub(super) fn refuse_nulls(&self, bitmap: &BitmapBytes, host_read: &HostRead) -> Result<()> {
        let bytes = host_read.require(bitmap.start().addr(), bitmap.len())?;
        let valid = |row: &usize| {
            let bit = bitmap.first_bit() + row;
            bytes.get(bit / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
        };
        (0..self.array.len()).find(|row| !valid(row)).map_or(Ok(()), |row| Err(null_row(row)))
    }

    /// Of so many elements, those that the rows span: by their first and their last offset, or of list views, which may stand anywhere, all.
    pub(super) fn span(&self, items: Option<usize>, host_read: &HostRead) -> Result<Range<usize>> {
        let Some([first, last]) = self.ends() else { return Ok(0..items.unwrap_or(0)) };
        let (start, end) = (self.value(&first, host_read)?, self.value(&last, host_read)?);
        let range = usize::try_from(start).ok().zip(usize::try_from(end).ok()).map(|(start, end)| start..end);
        let fits = |range: &Range<usize>| range.start <= range.end && items.is_none_or(|items| range.end <= items);
        range.filter(fits).ok_or_else(|| Error::invalid(format!("offsets from {start} to {end}{}", of(items))))
    }

    fn value(&self, range: &Range<usize>, host_read: &HostRead) -> Result<i64> {
        let value = self.offsets.value(host_read.require(range.start, range.len())?);
        value.ok_or_else(|| Error::internal("an offset that was not read"))
    }

    /// Some of the items.
    pub(super) fn items(&self, field: &FieldRef, range: &Range<usize>) -> Result<DeviceArray> {
        let item = item_field(field).ok_or_else(|| unsupported(field))?;
        self.array.device_items(item, range)
    }

    /// Reads from the device, for an error.
    fn read(&self, ranges: &[Range<usize>]) -> Result<HostRead> {
        let readiness = self.array.readiness().ok_or_else(|| Error::internal("no rows of a device"))?;
        read_to_host(readiness, ranges)
    }

    /// Returns the offset of a row, and the next offset, or the row's size in a list view. Reads them from the device again, for an error.
    pub(super) fn row(&self, row: usize) -> Result<(i64, i64)> {
        let second = match &self.lengths {
            None => self.offsets.one(row.saturating_add(1)),
            Some(lengths) => lengths.one(row),
        };
        let ranges = [self.offsets.one(row), second];
        let (host_read, [first, second]) = (self.read(&ranges)?, &ranges);
        Ok((self.value(first, &host_read)?, self.value(second, &host_read)?))
    }

    /// Returns the error for a row that is out of bounds.
    pub(super) fn outside(&self, row: usize) -> Result<Error> {
        let ((start, second), of) = (self.row(row)?, of(self.array.device_items_len()?));
        Ok(Error::invalid(match &self.lengths {
            None => format!("offsets from {start} to {second}{of}"),
            Some(_) => format!("offset {start} and length {second}{of}"),
        }))
    }

    /// Returns the first row that spans an item; `None` if none does. Reads the offsets of all rows from the device, for an error.
    pub(super) fn row_of(&self, item: usize) -> Result<Option<usize>> {
        let second = self.lengths_or_offsets().bytes();
        let read = self.read(&[self.offsets.bytes(), second.clone()])?;
        let width = self.offsets.dtype().itemsize();
        let starts = read.require(self.offsets.bytes().start, self.offsets.bytes().len())?.chunks_exact(width);
        let ends = read.require(second.start, second.len())?.chunks_exact(width);
        let value = |bytes: &[u8]| self.offsets.value(bytes).and_then(|value| usize::try_from(value).ok());
        let spans = |start: &[u8], second: &[u8]| {
            let (start, second) = (value(start)?, value(second)?);
            let end = if self.lengths.is_some() { start.saturating_add(second) } else { second };
            Some((start..end).contains(&item))
        };
        let is_next = usize::from(self.lengths.is_none());
        let mut rows = starts.zip(ends.skip(is_next)).map(|(start, second)| spans(start, second) == Some(true));
        Ok(rows.position(|spans| spans))
    }

    /// Refuses rows that do not lie inside the elements, of which strings have as many as their last offset says: by all of their offsets.
    ///
    /// # Errors
    /// Names the first such row.
    pub(super) fn check(&self, items: Option<usize>, host_read: &HostRead) -> Result<()> {
        let starts = read(&self.offsets, host_read)?;
        let limit = items.map_or(i64::MAX, |items| i64::try_from(items).unwrap_or(i64::MAX));
        let of = of(items);
        if let Some(lengths) = &self.lengths {
            for (row, (start, length)) in starts.zip(read(lengths, host_read)?).enumerate() {
                if start < 0 || length < 0 || start > limit || length > limit - start {
                    return Err(Error::invalid(format!("offset {start} and length {length}{of}")).at_row(row));
                }
            }
            return Ok(());
        }
        let mut last = 0;
        for (number, offset) in starts.enumerate() {
            if offset < last || offset > limit {
                // An offset that is not the first one ends the row before it.
                return Err(
                    Error::invalid(format!("offset {offset} after {last}{of}")).at_row(number.saturating_sub(1))
                );
            }
            last = offset;
        }
        Ok(())
    }
}

/// Says of how many elements, if that is known.
fn of(items: Option<usize>) -> String {
    items.map_or_else(String::new, |items| format!(" of {items} elements"))
}

fn read<'a>(ints: &'a ListInts, host_read: &'a HostRead) -> Result<impl Iterator<Item = i64> + 'a> {
    let range = ints.bytes();
    let bytes = if range.is_empty() { &[] } else { host_read.require(range.start, range.len())? };
    Ok(bytes.chunks_exact(ints.dtype().itemsize()).filter_map(|bytes| ints.value(bytes)))
}
