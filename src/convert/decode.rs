//! Decodes runs, dictionaries and lists of one length into plain values.

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
use crate::arrow::{DeviceArray, Mask};
use crate::categories::Categories;
use crate::error::{Error, Result, catch_panic};
use crate::spec::{Spec, is_list};

/// As [`decode_apart`], for callers that copy the result: lists of one length whose items follow each other share the items with the array
/// if [`Spec::is_of_lists`].
///
/// # Errors
/// As [`decode_apart`].
pub(crate) fn decode(array: &DeviceArray, spec: &Spec, field: &FieldRef) -> Result<DeviceArray> {
    match dense(array, spec)? {
        Some(dense) => Ok(dense),
        None => decode_apart(array, spec, field),
    }
}

/// Returns the array with its runs or dictionary values written out, or the codes of its categories, as `field` says, which
/// [`Spec::decoded`] has, in memory of its own.
///
/// # Errors
/// If the memory is not the host's, the contents break the Arrow format, or an allocation fails.
pub(crate) fn decode_apart(array: &DeviceArray, spec: &Spec, field: &FieldRef) -> Result<DeviceArray> {
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
    let encoded = own.to_arrow_unlogged()?.to_data();
    let decoded = catch_panic(|| {
        let decoded = written_out(&encoded, field.data_type(), spec.categories())?;
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

/// A valid array as the type `to`, which [`Spec::decoded`](crate::spec::Spec::decoded) gives for its own.
fn written_out(data: &ArrayData, to: &DataType, categories: Option<&Categories>) -> Result<ArrayData> {
    let cannot = || Error::unsupported(format!("cannot decode {} as {to}", data.data_type()));
    match (data.data_type(), to) {
        (own, to) if own == to && categories.is_none() => Ok(data.clone()),
        (DataType::RunEndEncoded(_, _), _) => {
            let values = data.child_data().get(1).ok_or_else(cannot)?;
            repeated_out(values, &Runs(data), to, categories)
        }
        (DataType::Dictionary(_, _), _) => {
            let values = data.child_data().first().ok_or_else(cannot)?;
            match categories {
                // Only the values of these rows are looked up.
                Some(categories) if values.len() > data.len() => encoded_rows(values, &Codes(data), categories),
                _ => repeated_out(values, &Codes(data), to, categories),
            }
        }
        (lists, DataType::FixedSizeList(item, size)) if is_list(lists) => {
            let own = data.child_data().first().ok_or_else(cannot)?;
            let is_decoded = own.data_type() != item.data_type() || categories.is_some();
            let decode = |items: &ArrayData| written_out(items, item.data_type(), categories);
            let size = usize::try_from(*size).map_err(|_| cannot())?;
            let child = items_of_lists(data, size, is_decoded.then_some(&decode))?;
            let lists = ArrayData::builder(to.clone()).len(data.len()).nulls(data.nulls().cloned());
            // SAFETY: as many lists as before, with a child of `size` slots for each (`items_of_lists`), and their own bitmap.
            Ok(unsafe { lists.add_child_data(child).build_unchecked() })
        }
        (DataType::Date32, DataType::Timestamp(TimeUnit::Second, None)) => seconds_of_days(data),
        (DataType::FixedSizeList(_, size), DataType::FixedSizeList(item, _)) => {
            let size = usize::try_from(*size).map_err(|_| cannot())?;
            let own = child(data, size)?;
            let own = if is_of_lists(own.data_type()) { without_null_rows(own, data, size)? } else { own };
            let child = written_out(&own, item.data_type(), categories).map_err(|error| of_list(error, size))?;
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

/// The values of runs or of a dictionary as the type `to`, once for each row that shows them.
fn repeated_out(
    values: &ArrayData,
    rows: &impl RowMap,
    to: &DataType,
    categories: Option<&Categories>,
) -> Result<ArrayData> {
    if !is_of_lists(values.data_type()) {
        return repeated(&written_out(values, to, categories)?, rows);
    }
    // The length of a list counts only if a row shows it, and then it is that row's.
    let decoded = written_out(&without_hidden(values, rows)?, to, categories);
    repeated(&decoded.map_err(|error| at_first_row(error, rows))?, rows)
}

/// Whether the values are lists, or stand for them.
fn is_of_lists(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => is_of_lists(values),
        other => is_list(other),
    }
}

/// The values, of which those that no row shows are null.
fn without_hidden(values: &ArrayData, rows: &impl RowMap) -> Result<ArrayData> {
    let mut shown = fallible::zeroed(values.len().div_ceil(8))?;
    in_rounds(rows.len(), LOOK_UP, |part| {
        rows.for_each(&part, |value, _| {
            if let Some((value, byte)) = value.and_then(|value| Some((value, shown.get_mut(value / 8)?))) {
                *byte |= 1 << (value % 8);
            }
        });
        Ok(())
    })?;
    null_too(values.clone(), NullBuffer::new(BooleanBuffer::new(Buffer::from_vec(shown), 0, values.len())))
}

/// The items of fixed-size lists, of which those of null lists are null.
fn without_null_rows(items: ArrayData, lists: &ArrayData, size: usize) -> Result<ArrayData> {
    let Some(nulls) = lists.nulls().filter(|nulls| nulls.null_count() > 0) else { return Ok(items) };
    let mut shown = fallible::zeroed(items.len().div_ceil(8))?;
    nulls.valid_indices().for_each(|row| set_bits(&mut shown, row.saturating_mul(size), size));
    let shown = BooleanBuffer::new(Buffer::from_vec(shown), 0, items.len());
    null_too(items, NullBuffer::new(shown))
}

/// The error of an item, in the row of its list.
fn of_list(error: Error, size: usize) -> Error {
    match error.row().and_then(|item| item.checked_div(size)) {
        Some(row) => error.at_row(row),
        None => error,
    }
}

/// The error of a value, in the first row that shows the value.
fn at_first_row(error: Error, rows: &impl RowMap) -> Error {
    let Some(value) = error.row() else { return error };
    let (mut first, mut position) = (None, 0_usize);
    rows.for_each(&(0..rows.len()), |shown, count| {
        if first.is_none() && shown == Some(value) {
            first = Some(position);
        }
        position = position.saturating_add(count);
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
fn with_nulls(data: ArrayData, enclosing: Option<&Mask<'_>>) -> Result<ArrayData> {
    let Some(mask) = enclosing.filter(|_| *data.data_type() != DataType::Null) else { return Ok(data) };
    let (bytes, offset) = mask.bits();
    let mut own = fallible::with_room(bytes.len())?;
    own.extend_from_slice(bytes);
    let length = data.len();
    null_too(data, NullBuffer::new(BooleanBuffer::new(Buffer::from_vec(own), offset, length)))
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
