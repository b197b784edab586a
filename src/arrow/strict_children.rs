//! Do children that must not be null have nulls only where no row shows them?

use arrow_buffer::bit_chunk_iterator::UnalignedBitChunk;
use arrow_buffer::{ArrowNativeType, NullBuffer};
use arrow_data::ArrayData;
use arrow_schema::ArrowError;

use crate::alloc::fallible;

/// Returns the offsets of an array's slots, and the end of the last one.
pub(super) fn offsets<T: ArrowNativeType>(data: &ArrayData) -> Option<&[T]> {
    let end = data.offset().saturating_add(data.len()).saturating_add(1);
    data.buffers().first()?.typed_data::<T>().get(data.offset()..end)
}

pub(super) fn refused(data: &ArrayData, reason: &str) -> ArrowError {
    ArrowError::InvalidArgumentError(format!("{} {reason}", data.data_type()))
}

/// Checks that a child with `size` slots per row has nulls only in rows that are null.
pub(super) fn check_hidden_nulls(data: &ArrayData, child: &ArrayData, size: usize) -> Result<(), ArrowError> {
    let Some(nulls) = child.nulls() else { return Ok(()) };
    let slot = |row: usize| data.offset().checked_add(row)?.checked_mul(size);
    check_items(data, nulls, slot)
}

/// Checks that the items of lists or the entries of maps have nulls only where no row that is not null shows them.
pub(super) fn check_shown_nulls<T: ArrowNativeType>(data: &ArrayData, items: &ArrayData) -> Result<(), ArrowError> {
    let Some(nulls) = items.nulls().filter(|nulls| nulls.null_count() > 0) else { return Ok(()) };
    let offsets = offsets::<T>(data);
    check_items(data, nulls, |row| offsets?.get(row)?.to_usize())
}

/// Checks that no row that is not null shows a null: the items of a row are those between `start` of it and of the next one.
fn check_items(data: &ArrayData, nulls: &NullBuffer, start: impl Fn(usize) -> Option<usize>) -> Result<(), ArrowError> {
    // The first bit for the rows `first..end`, and their number of bits.
    let bits_of = |first: usize, end: usize| {
        let (start, end) = (start(first)?, start(end)?);
        let count = end.checked_sub(start).filter(|_| end <= nulls.len())?;
        Some((nulls.offset().checked_add(start)?, count))
    };
    let check = |first, end| {
        let (start, count) = bits_of(first, end).ok_or_else(|| refused(data, "has a child that is too short"))?;
        let is_valid = UnalignedBitChunk::new(nulls.validity(), start, count).count_ones() == count;
        if is_valid { Ok(()) } else { Err(nulls_in_child(data)) }
    };
    match data.nulls() {
        None => check(0, data.len()),
        Some(rows) => rows.valid_slices().try_for_each(|(start, end)| check(start, end)),
    }
}

/// As [`check_shown_nulls`], of list views, whose rows may lie over each other.
pub(super) fn check_viewed_nulls<T: ArrowNativeType>(data: &ArrayData, items: &ArrayData) -> Result<(), ArrowError> {
    let Some(nulls) = items.nulls().filter(|nulls| nulls.null_count() > 0) else { return Ok(()) };
    let runs = fallible::collected(nulls.valid_slices().map(Ok));
    let valid: Vec<(usize, usize)> = runs.map_err(|error| ArrowError::MemoryError(error.to_string()))?;
    let slots = |index: usize| {
        let ints = data.buffers().get(index)?.typed_data::<T>();
        ints.get(data.offset()..data.offset().saturating_add(data.len()))
    };
    let short = || refused(data, "has fewer offsets or sizes than rows");
    let (starts, sizes) = slots(0).zip(slots(1)).ok_or_else(short)?;
    let is_null = |row: usize| data.nulls().is_some_and(|nulls| nulls.is_null(row));
    let shown = starts.iter().zip(sizes).enumerate().filter(|(row, _)| !is_null(*row));
    let is_valid = |(start, size): (&T, &T)| {
        let (Some(start), Some(size)) = (start.to_usize(), size.to_usize()) else { return false };
        // Items that follow each other without a null: the last run of them that begins here or before.
        let run = valid.partition_point(|(first, _)| *first <= start).checked_sub(1).and_then(|run| valid.get(run));
        size == 0 || run.is_some_and(|(_, end)| start.saturating_add(size) <= *end)
    };
    if shown.into_iter().all(|(_, row)| is_valid(row)) { Ok(()) } else { Err(nulls_in_child(data)) }
}

fn nulls_in_child(data: &ArrayData) -> ArrowError {
    refused(data, "has nulls in a child that is not nullable")
}
