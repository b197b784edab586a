//! Decodes runs, dictionaries and lists of one length into plain values.

use std::ops::Range;

use arrow_array::{Array, make_array, new_empty_array};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_data::ArrayData;
use arrow_schema::{DataType, FieldRef, TimeUnit};

use super::codes::Codes;
use super::constant_lists::items_of_lists;
use super::encode::{encoded, encoded_rows};
use super::repeat::{RowMap, Runs, child, repeated, set_bits, slots};
use super::rounds::{LOOK_UP, in_rounds};
use crate::alloc::fallible;
use crate::arrow::{DeviceArray, Mask, Validated};
use crate::categories::Categories;
use crate::error::{Error, Result, catch_panic};
use crate::spec::{Spec, is_list};

/// As [`decode_apart`], for callers that copy the result: lists of one length whose items follow each other share the items with the array
/// if [`Spec::is_of_lists`].
///
/// # Errors
/// As [`decode_apart`].
pub(crate) fn decode(array: &DeviceArray, spec: &Spec, field: &FieldRef, known: &Validated) -> Result<DeviceArray> {
    match dense(array, spec)? {
        Some(dense) => Ok(dense),
        None => decode_apart(array, spec, field, known),
    }
}

/// Returns the array with its runs or dictionary values written out, or the codes of its categories, as `field` says, which
/// [`Spec::decoded`] has, in memory of its own. Validates what is not `known`: many chunks may be slices of one array.
///
/// # Errors
/// If the memory is not the host's, the contents break the Arrow format, or an allocation fails.
pub(crate) fn decode_apart(
    array: &DeviceArray,
    spec: &Spec,
    field: &FieldRef,
    known: &Validated,
) -> Result<DeviceArray> {
    if array.is_empty() {
        return DeviceArray::from_arrow(new_empty_array(field.data_type()).as_ref(), field.clone());
    }
    // Runs have no bitmap for the nulls of enclosing structs: the decoded array has. Others keep it, as what lies in the
    // slots of those nulls need not be valid.
    let (own, enclosing) = match array.field().data_type() {
        DataType::RunEndEncoded(_, _) => array.split_inherited()?,
        _ => (array.clone(), None),
    };
    // Only the bytes of text are compared, and to check that they are UTF-8 takes about as long: others are no categories.
    let own = if spec.categories().is_some() { own.text_as_bytes() } else { own };
    let encoded = own.to_arrow_of_many(known)?.to_data();
    let decoded = catch_panic(|| {
        let enclosing = enclosing.as_ref().map(|mask| bits_of(mask, encoded.len())).transpose()?;
        let decoded = written_out(&encoded, field.data_type(), spec.categories(), enclosing.as_ref())?;
        Ok(make_array(with_nulls(decoded, enclosing.as_ref())?))
    });
    DeviceArray::from_arrow(decoded.map_err(|error| error.in_column(field.name()))?.as_ref(), field.clone())
}

/// Returns lists of one length as fixed-size lists over the same items; `None` if their items do not follow each other, or are decoded.
///
/// # Errors
/// As [`DeviceArray::dense_lists`].
pub(crate) fn dense(array: &DeviceArray, spec: &Spec) -> Result<Option<DeviceArray>> {
    match spec.decoded().filter(|_| spec.is_of_lists()) {
        Some(field) => array.dense_lists(field),
        None => Ok(None),
    }
}

/// A valid array as the type `to`, which [`Spec::decoded`](crate::spec::Spec::decoded) gives for its own. `shown` says which rows of lists
/// count: the others may have any length. `None` if all do.
fn written_out(
    data: &ArrayData,
    to: &DataType,
    categories: Option<&Categories>,
    shown: Option<&BooleanBuffer>,
) -> Result<ArrayData> {
    let cannot = || Error::unsupported(format!("cannot decode {} as {to}", data.data_type()));
    match (data.data_type(), to) {
        (own, to) if own == to && categories.is_none() => Ok(data.clone()),
        (DataType::RunEndEncoded(_, _), _) => {
            let values = data.child_data().get(1).ok_or_else(cannot)?;
            repeated_out(values, &Runs(data), to, categories, shown)
        }
        (DataType::Dictionary(_, _), _) => {
            let values = data.child_data().first().ok_or_else(cannot)?;
            repeated_out(values, &Codes(data), to, categories, shown)
        }
        (lists, DataType::FixedSizeList(item, size)) if is_list(lists) => {
            let own = data.child_data().first().ok_or_else(cannot)?;
            let is_decoded = own.data_type() != item.data_type() || categories.is_some();
            let decode = |items: &ArrayData| written_out(items, item.data_type(), categories, None);
            let size = usize::try_from(*size).map_err(|_| cannot())?;
            let data = match shown {
                Some(shown) => &null_too(data.clone(), NullBuffer::new(shown.clone()))?,
                None => data,
            };
            let child = items_of_lists(data, size, is_decoded.then_some(&decode))?;
            let lists = ArrayData::builder(to.clone()).len(data.len()).nulls(data.nulls().cloned());
            // SAFETY: as many lists as before, with a child of `size` slots for each (`items_of_lists`), and their own bitmap.
            Ok(unsafe { lists.add_child_data(child).build_unchecked() })
        }
        (DataType::Date32, DataType::Timestamp(TimeUnit::Second, None)) => seconds_of_days(data),
        (DataType::FixedSizeList(_, size), DataType::FixedSizeList(item, _)) => {
            let size = usize::try_from(*size).map_err(|_| cannot())?;
            let own = child(data, size)?;
            let shown = if is_of_lists(own.data_type()) { shown_items(data, size, shown)? } else { None };
            let child = written_out(&own, item.data_type(), categories, shown.as_ref());
            let child = child.map_err(|error| of_list(error, size))?;
            let lists = ArrayData::builder(to.clone()).len(data.len()).nulls(data.nulls().cloned());
            // SAFETY: as many lists as before, with a child of as many slots, and their own bitmap.
            Ok(unsafe { lists.add_child_data(child).build_unchecked() })
        }
        // For other types only the nulls are decoded: one bit a row stands for the values.
        (_, DataType::Boolean) => {
            let bits = Buffer::from_vec(fallible::zeroed(data.len().div_ceil(8))?);
            let bools = ArrayData::builder(DataType::Boolean).len(data.len()).nulls(data.nulls().cloned());
            // SAFETY: a bit for each row, and a bitmap of as many.
            Ok(unsafe { bools.add_buffer(bits).build_unchecked() })
        }
        _ => categories.map_or_else(|| Err(cannot()), |categories| encoded(data, categories)),
    }
}

/// The values of runs or of a dictionary as the type `to`, once for each row that shows them. Of more values than rows only the categories
/// that rows show are looked up.
fn repeated_out(
    values: &ArrayData,
    rows: &impl RowMap,
    to: &DataType,
    categories: Option<&Categories>,
    shown: Option<&BooleanBuffer>,
) -> Result<ArrayData> {
    if let Some(categories) = categories.filter(|_| values.len() > rows.len() && !is_nested(values.data_type())) {
        return encoded_rows(values, rows, categories);
    }
    if !is_of_lists(values.data_type()) {
        return repeated(&written_out(values, to, categories, None)?, rows);
    }
    // The length of a list counts only if a row shows it, and then it is that row's.
    let decoded = written_out(values, to, categories, Some(&shown_values(values.len(), rows, shown)?));
    repeated(&decoded.map_err(|error| at_first_row(error, rows, shown))?, rows)
}

/// Whether the values are lists, or stand for them.
fn is_of_lists(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => is_of_lists(values),
        DataType::RunEndEncoded(_, values) => is_of_lists(values.data_type()),
        DataType::FixedSizeList(item, _) => is_of_lists(item.data_type()),
        other => is_list(other),
    }
}

/// Whether the values are lists of others, or stand for others.
fn is_nested(data_type: &DataType) -> bool {
    let stands_for_others =
        matches!(data_type, DataType::Dictionary(_, _) | DataType::RunEndEncoded(_, _) | DataType::FixedSizeList(_, _));
    stands_for_others || is_list(data_type)
}

/// Whether some of these rows count.
fn are_shown(shown: Option<&BooleanBuffer>, rows: Range<usize>) -> bool {
    let Some(shown) = shown else { return true };
    let rows = rows.start.min(shown.len())..rows.end.min(shown.len());
    match rows.len() {
        0 => false,
        1 => shown.value(rows.start),
        count => shown.slice(rows.start, count).count_set_bits() > 0,
    }
}

/// Which values a row shows that counts.
fn shown_values(values: usize, rows: &impl RowMap, shown: Option<&BooleanBuffer>) -> Result<BooleanBuffer> {
    let mut bits = fallible::zeroed(values.div_ceil(8))?;
    let mut position = 0_usize;
    in_rounds(rows.len(), LOOK_UP, |part| {
        rows.for_each(&part, |value, count| {
            let end = position.saturating_add(count);
            let byte = value.and_then(|value| Some((value, bits.get_mut(value / 8)?)));
            if let Some((value, byte)) = byte.filter(|_| are_shown(shown, position..end)) {
                *byte |= 1 << (value % 8);
            }
            position = end;
        });
        Ok(())
    })?;
    Ok(BooleanBuffer::new(Buffer::from_vec(bits), 0, values))
}

/// Which items of fixed-size lists count: those of null lists do not. `None` if all do.
fn shown_items(lists: &ArrayData, size: usize, shown: Option<&BooleanBuffer>) -> Result<Option<BooleanBuffer>> {
    let nulls = lists.nulls().filter(|nulls| nulls.null_count() > 0);
    if nulls.is_none() && shown.is_none() {
        return Ok(None);
    }
    let items = lists.len().saturating_mul(size);
    let mut bits = fallible::zeroed(items.div_ceil(8))?;
    for row in 0..lists.len() {
        if nulls.is_none_or(|nulls| nulls.is_valid(row)) && are_shown(shown, row..row.saturating_add(1)) {
            set_bits(&mut bits, row.saturating_mul(size), size);
        }
    }
    Ok(Some(BooleanBuffer::new(Buffer::from_vec(bits), 0, items)))
}

/// The error of an item, in the row of its list.
fn of_list(error: Error, size: usize) -> Error {
    match error.row().and_then(|item| item.checked_div(size)) {
        Some(row) => error.at_row(row),
        None => error,
    }
}

/// The error of a value, in the first row that shows the value and counts.
fn at_first_row(error: Error, rows: &impl RowMap, shown: Option<&BooleanBuffer>) -> Error {
    let Some(value) = error.row() else { return error };
    let (mut first, mut position) = (None, 0_usize);
    rows.for_each(&(0..rows.len()), |own, count| {
        let end = position.saturating_add(count);
        if first.is_none() && own == Some(value) && are_shown(shown, position..end) {
            first = (position..end).find(|row| are_shown(shown, *row..row.saturating_add(1)));
        }
        position = end;
    });
    error.at_row(first.unwrap_or(value))
}

/// Days as seconds.
fn seconds_of_days(days: &ArrayData) -> Result<ArrayData> {
    const DAY: i64 = 24 * 60 * 60;
    let days_of = slots::<i32>(days);
    let mut seconds: Vec<i64> = fallible::with_room(days_of.len())?;
    // 2^31 days have fewer than 2^48 seconds.
    seconds.extend(days_of.iter().map(|day| i64::from(*day).wrapping_mul(DAY)));
    let made = ArrayData::builder(DataType::Timestamp(TimeUnit::Second, None)).len(days.len());
    let made = made.nulls(days.nulls().cloned()).add_buffer(Buffer::from_vec(seconds));
    made.build().map_err(|error| Error::invalid(error.to_string()))
}

/// The array with more nulls: those of `enclosing`.
fn with_nulls(data: ArrayData, enclosing: Option<&BooleanBuffer>) -> Result<ArrayData> {
    match enclosing.filter(|_| *data.data_type() != DataType::Null) {
        Some(enclosing) => null_too(data, NullBuffer::new(enclosing.clone())),
        None => Ok(data),
    }
}

/// A copy of a mask of so many rows.
fn bits_of(mask: &Mask<'_>, rows: usize) -> Result<BooleanBuffer> {
    let (bytes, offset) = mask.bits();
    let mut own = fallible::with_room(bytes.len())?;
    own.extend_from_slice(bytes);
    Ok(BooleanBuffer::new(Buffer::from_vec(own), offset, rows))
}

/// The array, whose rows are null also where `nulls` says so.
fn null_too(data: ArrayData, mut nulls: NullBuffer) -> Result<ArrayData> {
    if data.nulls().is_some() {
        fallible::require(data.len().div_ceil(8))?;
        #[allow(clippy::disallowed_methods, reason = "the memory was asked for in the line above")]
        let both = NullBuffer::union(data.nulls(), Some(&nulls));
        nulls = both.unwrap_or(nulls);
    }
    // SAFETY: the array stays valid: only its bitmap is another, with as many rows.
    Ok(unsafe { data.into_builder().nulls(Some(nulls)).build_unchecked() })
}
