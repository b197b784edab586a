//! Reads and checks every offset of device lists on the host.

use crate::arrow::DeviceInts;
use crate::error::{Error, Result};
use crate::transfer::Fetched;

/// Refuses rows that do not lie inside the elements, of which strings have as many as their last offset says.
///
/// # Errors
/// Names the first such row.
pub(super) fn check_rows(
    offsets: &DeviceInts,
    lengths: Option<&DeviceInts>,
    items: Option<usize>,
    fetched: &Fetched,
) -> Result<()> {
    let starts = read(offsets, fetched)?;
    let limit = items.map_or(i64::MAX, |items| i64::try_from(items).unwrap_or(i64::MAX));
    let of = items.map_or_else(String::new, |items| format!(" of {items} elements"));
    if let Some(lengths) = lengths {
        for (row, (start, length)) in starts.zip(read(lengths, fetched)?).enumerate() {
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
            return Err(Error::invalid(format!("offset {offset} after {last}{of}")).at_row(number.saturating_sub(1)));
        }
        last = offset;
    }
    Ok(())
}

fn read<'a>(ints: &'a DeviceInts, fetched: &'a Fetched) -> Result<impl Iterator<Item = i64> + 'a> {
    let range = ints.bytes();
    let bytes = if range.is_empty() { &[] } else { fetched.require(range.start, range.len())? };
    Ok(bytes.chunks_exact(ints.dtype().itemsize()).filter_map(|bytes| ints.value(bytes)))
}
