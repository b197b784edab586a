//! `requested_schema`: converts an array to another type exactly, or returns an error.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::timezone::Tz;
use arrow_array::types::{Int8Type, UInt8Type};
use arrow_array::{Array, ArrayRef, BooleanArray, make_array, new_empty_array};
use arrow_buffer::Buffer;
use arrow_cast::{CastOptions, cast_with_options};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType, Field, FieldRef};

use super::bitmap::bits_of_bools;
use super::budget::{require_cast, require_nulls};
use super::forbidden::{allows_nulls, first_null, first_outside, has_limits};
use super::request_types::{check_extensions, check_names, plain_runs};
use super::rounds::{LOOK_UP, in_rounds, look_for_signals};
use super::shown::{begins_later, has_fixed_lists, shown};
use crate::alloc::fallible;
use crate::arrow::{DeviceArray, counts_in, same_layout};
use crate::copy_log::{self, Copied};
use crate::device::Device;
use crate::error::{Error, ErrorKind, Remedy, Result, catch_panic};

/// The array under `requested`, a field of another type, name or nullability. Where only names, metadata or nullability
/// differ, the memory is shared; else the values are cast, and cast back to see that each one survives.
///
/// # Errors
/// When names or the number of fields differ, no cast exists, a value would not survive the round trip, or a null meets
/// a field that is not nullable. Never turns a value into a null.
pub fn request_field(array: &DeviceArray, requested: &FieldRef) -> Result<DeviceArray> {
    let own = array.field();
    if own == requested {
        return Ok(array.clone());
    }
    let in_request =
        |error: Error| error.in_column(if requested.name().is_empty() { own.name() } else { requested.name() });
    check_names(own.data_type(), requested.data_type()).map_err(in_request)?;
    check_extensions(own, requested).map_err(in_request)?;
    if !allows_nulls(requested) && array.readiness().is_some() {
        // Where bitmaps are on a device, what the array says of its nulls has to do.
        if let Some(column) = array.may_have_nulls_of(requested) {
            let reason = "there may be nulls, the requested field is not nullable, and the bitmap is on a device";
            return Err(in_request(
                Error::new(ErrorKind::Null, reason).remedy_is("request a nullable field").in_column(&column),
            ));
        }
    } else if !allows_nulls(requested) {
        // Only the data can tell whether a field that is not nullable has nulls; no cast adds or takes one.
        let read = array.to_arrow()?;
        require_nulls(&read.to_data()).map_err(in_request)?;
        check_nulls(requested, read.as_ref()).map_err(in_request)?;
    }
    if same_layout(own.data_type(), requested.data_type()) || counts_in(own.data_type(), requested.data_type()) {
        let given = array.relabel(requested.clone())?;
        if counts_in(own.data_type(), requested.data_type()) {
            check_counts(array, &given).map_err(in_request)?;
        }
        Ok(given)
    } else {
        if !array.device().is_cpu() {
            check_request_on(array.device(), own, requested).map_err(in_request)?;
        }
        catch_panic(|| cast(array, requested)).map_err(|error| match error.kind() {
            ErrorKind::Interrupted => error,
            _ => in_request(of_column(array, requested).unwrap_or(error)),
        })
    }
}

/// Refuses integers that a date or a time cannot count, which share its memory.
fn check_counts(array: &DeviceArray, given: &DeviceArray) -> Result<()> {
    let (from, to) = (array.field().data_type(), given.field().data_type());
    if !has_limits(to) {
        return Ok(());
    }
    if !array.device().is_cpu() {
        return Err(unread_counts(array.device(), from, to));
    }
    check_limits(from, given.field(), given.to_arrow()?.as_ref())
}

/// The error of values that nobody on the host can compare with the limits of a type.
fn unread_counts(device: Device, from: &DataType, to: &DataType) -> Error {
    let reason = format!("{from} as {to}: not every value may be one, and the values are on {device}");
    Error::new(ErrorKind::Device, reason)
        .remedy_is(Remedy::from("request the type that the data has").or(device.host_remedy()))
}

/// Refuses values that a requested type does not allow, though it can store them.
fn check_limits(from: &DataType, requested: &Field, array: &dyn Array) -> Result<()> {
    let Some((column, row)) = first_outside(from, requested, array) else { return Ok(()) };
    let to = requested.data_type();
    let reason = format!("{from} as {to}: a value is no whole day, or no time of a day, as the type asks");
    let error = Error::new(ErrorKind::Cast, reason).remedy_is("request a type that holds every value");
    let error = if column.is_empty() { error } else { error.in_column(&column) };
    Err(row.map_or(error.clone(), |row| error.at_row(row)))
}

/// Returns the error of a single column in a request for structs; `None` if no single column is at fault.
fn of_column(array: &DeviceArray, requested: &FieldRef) -> Option<Error> {
    let DataType::Struct(fields) = requested.data_type() else { return None };
    let columns = (0..array.columns().len()).map(|index| array.column(index)).zip(fields);
    // The nulls have been looked at, and a column by itself has those of its struct, which its field need not allow.
    let nullable = |field: &FieldRef| Arc::new(field.as_ref().clone().with_nullable(true));
    columns.into_iter().find_map(|(column, field)| request_field(&column.ok()?, &nullable(field)).err())
}

/// Refuses a request that no data of this field could meet: other names, or types without a cast.
///
/// # Errors
/// As [`request_field`], before any data is seen.
pub fn check_request(own: &FieldRef, requested: &FieldRef) -> Result<()> {
    check_names(own.data_type(), requested.data_type())?;
    check_extensions(own, requested).map_err(|error| error.in_column(requested.name()))?;
    let (from, to) = (own.data_type(), requested.data_type());
    if same_layout(from, to) || counts_in(from, to) {
        return Ok(());
    }
    check_cast(from, to).map_err(|error| error.in_column(requested.name()))
}

/// As [`check_request`], of data on a device, where no values are cast.
///
/// # Errors
/// As [`check_request`], and when values would have to be cast.
pub(crate) fn check_request_on(device: Device, own: &FieldRef, requested: &FieldRef) -> Result<()> {
    check_request(own, requested)?;
    let (from, to) = (own.data_type(), requested.data_type());
    if device.is_cpu() || same_layout(from, to) {
        return Ok(());
    }
    if counts_in(from, to) {
        let error = || unread_counts(device, from, to).in_column(requested.name());
        return if has_limits(to) { Err(error()) } else { Ok(()) };
    }
    if let (DataType::Struct(own), DataType::Struct(requested)) = (from, to) {
        // Each column for itself, so that the error names it.
        own.iter().zip(requested).try_for_each(|(own, requested)| check_request_on(device, own, requested))?;
    }
    let reason = format!("{from} as {to} is a cast, and none is made on {device}");
    Err(Error::new(ErrorKind::Device, reason)
        .remedy_is(Remedy::from("request the type that the data has").or(device.host_remedy()))
        .in_column(requested.name()))
}

/// Whether only values of a column tell if they are ones of the requested type, which [`check_request`] accepts.
pub(crate) fn depends_on_values(own: &DataType, requested: &DataType) -> bool {
    !same_layout(own, requested) && (!counts_in(own, requested) || has_limits(requested))
}

/// What to do where a cast is missing.
const CONVERT_FIRST: &str = "request the type that the data has, or convert it first";

/// Refuses types without a cast in both directions: without a way back no value could be shown to survive.
fn check_cast(from: &DataType, to: &DataType) -> Result<()> {
    // Nulls alone are nulls in any type.
    let way_back = *from == DataType::Null || arrow_cast::can_cast_types(to, from);
    if arrow_cast::can_cast_types(from, to) && way_back {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Cast, format!("{from} as {to}: no cast exists")).remedy_is(CONVERT_FIRST))
}

fn cast(array: &DeviceArray, requested: &FieldRef) -> Result<DeviceArray> {
    let from = array.field().data_type();
    check_cast(from, requested.data_type())?;
    let plain = |field: &FieldRef| Arc::new(field.as_ref().clone().with_data_type(plain_runs(field.data_type())));
    let (original, plain) = (array.relabel(plain(array.field()))?.to_arrow()?, plain(requested));
    let to = plain.data_type();
    require_cast(&original.to_data(), to)?;
    let converted = match packed(&original, to)? {
        Some(packed) => packed,
        None => match without_items(&original, to)? {
            Some(lists) => lists,
            None => cast_shown(&original, to)?,
        },
    };
    check_limits(from, requested, converted.as_ref())?;
    let bytes = fixed_bytes(to, converted.len()).unwrap_or_else(|| converted.get_buffer_memory_size());
    copy_log::record(|| Copied {
        what: copy_log::rows_of(array.field().name(), array.len(), from),
        why: format!("cast to {}, as requested", requested.data_type()),
        bytes,
    });
    DeviceArray::from_arrow(converted.as_ref(), plain.clone())?.relabel(requested.clone())
}

/// Bytes of the values of so many rows, where the type alone tells; `None` for strings, lists of any length, runs and structs.
pub(crate) fn fixed_bytes(data_type: &DataType, rows: usize) -> Option<usize> {
    let of_rows = |width: i32| usize::try_from(width).ok().map(|width| rows.saturating_mul(width));
    match data_type {
        DataType::Boolean => Some(rows.div_ceil(8)),
        DataType::FixedSizeBinary(width) => of_rows(*width),
        DataType::FixedSizeList(item, size) => fixed_bytes(item.data_type(), of_rows(*size)?),
        other => other.primitive_width().map(|width| rows.saturating_mul(width)),
    }
}

/// Bytes that are all 0 or 1 as bits, each of which survives; `None` where the cast has to tell.
fn packed(original: &ArrayRef, to: &DataType) -> Result<Option<ArrayRef>> {
    let bytes = match (original.data_type(), to) {
        (DataType::Int8, DataType::Boolean) => original.as_primitive::<Int8Type>().values().inner(),
        (DataType::UInt8, DataType::Boolean) => original.as_primitive::<UInt8Type>().values().inner(),
        _ => return Ok(None),
    };
    let array = |bits| -> ArrayRef { Arc::new(BooleanArray::new(bits, original.nulls().cloned())) };
    Ok(bits_of_bools(bytes)?.map(array))
}

/// Fixed-size lists of no items as lists of another type; `None` for others. arrow-rs loses their number.
fn without_items(original: &ArrayRef, to: &DataType) -> Result<Option<ArrayRef>> {
    let DataType::FixedSizeList(_, 0) = original.data_type() else { return Ok(None) };
    let (item, buffers) = match to {
        DataType::FixedSizeList(item, 0) => (item, 0),
        DataType::List(item) | DataType::LargeList(item) => (item, 1),
        DataType::ListView(item) | DataType::LargeListView(item) => (item, 2),
        _ => return Ok(None),
    };
    let rows = original.len();
    let zeros = Buffer::from_vec(fallible::zeroed(rows.saturating_add(1).saturating_mul(size_of::<i64>()))?);
    let lists = ArrayData::builder(to.clone())
        .len(rows)
        .nulls(original.nulls().cloned())
        .buffers(std::iter::repeat_n(zeros, buffers).collect());
    let lists = lists.add_child_data(new_empty_array(item.data_type()).to_data()).build();
    lists.map(|lists| Some(make_array(lists))).map_err(|error| Error::invalid(error.to_string()))
}

/// The values that rows show as another type, if each one survives the way there and back.
fn cast_shown(original: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    if is_flat(original.data_type()) {
        return cast_there_and_back(original, to, |array| Ok(array.clone()));
    }
    // arrow-rs takes the items of fixed-size lists from the first one on.
    if begins_later(&original.to_data()) && has_fixed_lists(to) {
        return cast_there_and_back(original, to, shown);
    }
    // Most values that no row shows can be cast, and dictionaries keep them.
    catch_panic(|| cast_there_and_back(original, to, |array| Ok(array.clone()))).or_else(|error| match error.kind() {
        ErrorKind::Cast | ErrorKind::Unsupported => match cast_there_and_back(original, to, shown) {
            Err(of_shown) if of_shown.kind() == ErrorKind::Unsupported => Err(error),
            made => made,
        },
        _ => Err(error),
    })
}

/// What is wrong with a value that the cast back does not give.
const OTHER: &str = "a value does not survive the round trip";

/// The error of a row that a cast refuses, or `lost` in the first row before it in which the cast back gives another value.
fn lowest(
    error: Error,
    original: &ArrayRef,
    there_and_back: impl Fn(&ArrayRef) -> Option<ArrayRef>,
    lost: impl Fn() -> Error,
) -> Error {
    let differs = |start, length| {
        let rows = original.slice(start, length);
        there_and_back(&rows).is_some_and(|back| matches!(first_difference(&rows, &back), Ok(Some(_))))
    };
    let before = error.row().unwrap_or_default();
    let row = first_row(before, |start, length| !differs(start, length));
    if before > 0 && differs(row, 1) { lost().at_row(row) } else { error }
}

/// The values as another type, if each one survives the way there and back. `prepare` gives what is cast in place of some rows.
#[allow(clippy::disallowed_methods, reason = "the caller has asked for the memory: require_cast")]
fn cast_there_and_back(
    original: &ArrayRef,
    to: &DataType,
    prepare: impl Fn(&ArrayRef) -> Result<ArrayRef>,
) -> Result<ArrayRef> {
    let from = original.data_type();
    let lost = |reason: String| refused(from, to, &reason).remedy_is("request a type that holds every value");
    let impossible = |error: ArrowError| impossible(from, to, &error);
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let casts = |rows: &ArrayRef, to| prepare(rows).is_ok_and(|rows| cast_with_options(&rows, to, &options).is_ok());
    let original = &prepare(original)?;
    let there_and_back = |rows: &ArrayRef| {
        let there = cast_with_options(&prepare(rows).ok()?, to, &options).ok()?;
        cast_with_options(&there, from, &options).ok()
    };
    let lowest = |error| lowest(error, original, there_and_back, || lost(OTHER.to_owned()));
    let converted = cast_with_options(original, to, &options).map_err(|error| {
        let fits = |start, length| casts(&original.slice(start, length), to);
        if !fits(0, 0) {
            return impossible(error);
        }
        lowest(lost(error.to_string()).at_row(first_row(original.len(), fits)))
    })?;
    if converted.data_type() != to {
        let reason = format!("the cast gives {}", converted.data_type());
        return Err(refused(from, to, &reason).remedy_is(CONVERT_FIRST));
    }
    let mut differs = None;
    let mut compare = |rows: Range<usize>| {
        if differs.is_none() {
            let (own, converted) = (original.slice(rows.start, rows.len()), converted.slice(rows.start, rows.len()));
            let back = cast_with_options(&converted, from, &options).map_err(|error| {
                let fits = |start, length| casts(&converted.slice(start, length), from);
                if !fits(0, 0) {
                    return impossible(error);
                }
                let row = rows.start + first_row(converted.len(), fits);
                lowest(lost(format!("{OTHER}: {error}")).at_row(row))
            })?;
            differs = first_difference(&own, &back).map_err(impossible)?.map(|row| rows.start + row);
        }
        Ok(())
    };
    let of_rows = match from {
        DataType::Dictionary(_, values) => values,
        other => other,
    };
    match original.len() {
        _ if *from == DataType::Null => {}
        rows if is_flat(to) && is_flat(of_rows) => in_rounds(rows, LOOK_UP, compare)?,
        rows => {
            look_for_signals(rows.saturating_mul(LOOK_UP))?;
            compare(0..rows)?;
        }
    }
    if let Some(row) = differs {
        return Err(lost(OTHER.to_owned()).at_row(row));
    }
    Ok(converted)
}

fn refused(from: &DataType, to: &DataType, reason: &str) -> Error {
    Error::new(ErrorKind::Cast, format!("{from} as {to}: {reason}"))
}

/// The error of types between which there is no cast, whatever the values.
fn impossible(from: &DataType, to: &DataType, error: &ArrowError) -> Error {
    let zone = unknown_zone(from).or_else(|| unknown_zone(to));
    let reason = match zone {
        Some(zone) => format!("{zone:?} is no time zone of the IANA database, and no offset as \"+01:00\""),
        None => error.to_string(),
    };
    refused(from, to, &reason).remedy_is(CONVERT_FIRST)
}

/// Returns the time zone of timestamps if it is an unknown one, whose clock a cast cannot read.
fn unknown_zone(data_type: &DataType) -> Option<&str> {
    match data_type {
        DataType::Timestamp(_, Some(zone)) if zone.parse::<Tz>().is_err() => Some(zone),
        _ => None,
    }
}

/// Whether a cast of some rows of this type reads those rows alone: it casts all items of lists, and all values of dictionaries.
fn is_flat(data_type: &DataType) -> bool {
    !data_type.is_nested() && !matches!(data_type, DataType::Dictionary(_, _) | DataType::RunEndEncoded(_, _))
}

/// The first row in which two arrays differ, null against null counting as equal.
fn first_difference(original: &ArrayRef, back: &ArrayRef) -> std::result::Result<Option<usize>, ArrowError> {
    let (own, other) = (original.to_data(), back.to_data());
    if own == other {
        return Ok(None);
    }
    if has_null_values(&own) || has_null_values(&other) {
        let (own, other) = (with_null_codes(own)?, with_null_codes(other)?);
        return Ok(if own == other { None } else { Some(first_other_row(&make_array(own), &make_array(other))) });
    }
    Ok(Some(first_other_row(original, back)))
}

fn first_other_row(original: &ArrayRef, back: &ArrayRef) -> usize {
    first_row(original.len(), |start, length| {
        let end = start.saturating_add(length);
        back.len() >= end && original.slice(start, length).to_data() == back.slice(start, length).to_data()
    })
}

/// Returns whether dictionaries, at any level, have nulls among their values.
fn has_null_values(data: &ArrayData) -> bool {
    let is_dictionary = matches!(data.data_type(), DataType::Dictionary(_, _));
    data.child_data().iter().any(|child| is_dictionary && child.null_count() > 0 || has_null_values(child))
}

/// Returns the same values, where codes of null values are null themselves: a null is a null, and casts tell them no apart.
#[allow(clippy::disallowed_methods, reason = "the caller has asked for the memory: require_cast")]
fn with_null_codes(data: ArrayData) -> std::result::Result<ArrayData, ArrowError> {
    if !has_null_values(&data) {
        return Ok(data);
    }
    let children = data.child_data().iter().cloned().map(with_null_codes);
    let children = children.collect::<std::result::Result<Vec<_>, _>>()?;
    let nulls = match data.data_type() {
        DataType::Dictionary(_, _) => make_array(data.clone()).logical_nulls(),
        _ => data.nulls().cloned(),
    };
    data.into_builder().child_data(children).nulls(nulls).build()
}

/// The first row for which `is_fine` does not hold, given a start and a number of rows, where it does not hold for all: by
/// halving, which serves types of any nesting.
fn first_row(rows: usize, is_fine: impl Fn(usize, usize) -> bool) -> usize {
    let (mut start, mut length) = (0, rows);
    while length > 1 {
        let half = length / 2;
        (start, length) = if is_fine(start, half) { (start + half, length - half) } else { (start, half) };
    }
    start
}

/// Refuses nulls where the requested field allows none.
fn check_nulls(requested: &Field, array: &dyn Array) -> Result<()> {
    let Some((column, row)) = first_null(requested, array) else { return Ok(()) };
    let error = Error::new(ErrorKind::Null, "a null, and the requested field is not nullable")
        .remedy_is("request a nullable field")
        .in_column(&column);
    Err(row.map_or(error.clone(), |row| error.at_row(row)))
}
