//! `requested_schema`: converts an array to another type exactly, or returns an error.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::Array;
use arrow_schema::{DataType, Field, FieldRef};

use super::budget::{require_cast, require_nulls};
use super::forbidden::{allows_nulls, first_null, first_outside, has_limits};
use super::hidden_nulls::without_hidden_nulls;
use super::request_types::{check_extensions, check_names, plain_runs};
use super::requested_values::{check_exact, requested_values};
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
    let (mut array, own) = (Cow::Borrowed(array), array.field());
    if own == requested {
        return Ok(array.into_owned());
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
        if let Some(made) = without_hidden_nulls(&read, requested)? {
            array = Cow::Owned(DeviceArray::from_arrow(made.as_ref(), own.clone())?);
        }
    }
    let array = array.as_ref();
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
    let Some(found) = first_outside(from, requested, array) else { return Ok(()) };
    let (to, place) = (requested.data_type(), found.place());
    let reason = format!("{from} as {to}: a value is no whole day, or no time of a day, as the type asks{place}");
    let error = Error::new(ErrorKind::Cast, reason).remedy_is("request a type that holds every value");
    let error = if found.column.is_empty() { error } else { error.in_column(&found.column) };
    Err(found.row.map_or(error.clone(), |row| error.at_row(row)))
}

/// Returns the error of a single column in a request for structs, of several the one in the lowest row; `None` if no single column is at
/// fault.
fn of_column(array: &DeviceArray, requested: &FieldRef) -> Option<Error> {
    let DataType::Struct(fields) = requested.data_type() else { return None };
    let columns = (0..array.columns().len()).map(|index| array.column(index)).zip(fields);
    // The nulls have been looked at, and a column by itself has those of its struct, which its field need not allow.
    let nullable = |field: &FieldRef| Arc::new(field.as_ref().clone().with_nullable(true));
    let errors = columns.filter_map(|(column, field)| request_field(&column.ok()?, &nullable(field)).err());
    Error::lowest(errors)
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
    check_exact(from, to).map_err(|error| error.in_column(requested.name()))
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

fn cast(array: &DeviceArray, requested: &FieldRef) -> Result<DeviceArray> {
    let from = array.field().data_type();
    check_exact(from, requested.data_type())?;
    let plain = |field: &FieldRef| Arc::new(field.as_ref().clone().with_data_type(plain_runs(field.data_type())));
    let (original, plain) = (array.relabel(plain(array.field()))?.to_arrow()?, plain(requested));
    let to = plain.data_type();
    require_cast(&original.to_data(), to)?;
    let converted = requested_values(&original, array.field(), to)?;
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

/// Refuses nulls where the requested field allows none.
fn check_nulls(requested: &Field, array: &dyn Array) -> Result<()> {
    let Some(found) = first_null(requested, array) else { return Ok(()) };
    let reason = format!("a null, and the requested field is not nullable{}", found.place());
    let error = Error::new(ErrorKind::Null, reason).remedy_is("request a nullable field").in_column(&found.column);
    Err(found.row.map_or(error.clone(), |row| error.at_row(row)))
}
