//! Runs and dictionaries as plain values.

use arrow_array::{Array, ArrayRef, make_array, new_empty_array};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, DataType, FieldRef};

use super::request::check_room;
use crate::arrow::{DeviceArray, Mask};
use crate::error::{Error, Result, catch_panic};

/// The array with its runs, or its dictionary's values, written out: as `field` says.
///
/// # Errors
/// When the memory is not the host's, the contents break the Arrow format, or memory cannot be had.
pub(crate) fn decode(array: &DeviceArray, field: &FieldRef) -> Result<DeviceArray> {
    if array.is_empty() {
        return DeviceArray::from_arrow(new_empty_array(field.data_type()).as_ref(), field.clone());
    }
    // Runs have no bitmap for the nulls of enclosing structs: the decoded array has. Others keep it, as what lies in the
    // slots of those nulls need not be valid.
    let (own, enclosing) = match array.field().data_type() {
        DataType::RunEndEncoded(_, _) => array.split_inherited(),
        _ => (array.clone(), None),
    };
    let encoded = own.to_arrow_unlogged()?;
    check_room(encoded.as_ref(), field.data_type()).map_err(|error| error.in_column(field.name()))?;
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let decoded = catch_panic(|| {
        cast_with_options(encoded.as_ref(), field.data_type(), &options)
            .and_then(|decoded| with_nulls(decoded, enclosing.as_ref()))
            .map_err(|error| Error::unsupported(format!("cannot decode {}: {error}", encoded.data_type())))
    });
    DeviceArray::from_arrow(decoded.map_err(|error| error.in_column(field.name()))?.as_ref(), field.clone())
}

/// The array with more nulls: those of `enclosing`.
fn with_nulls(array: ArrayRef, enclosing: Option<&Mask<'_>>) -> Result<ArrayRef, ArrowError> {
    let Some(mask) = enclosing.filter(|_| *array.data_type() != DataType::Null) else { return Ok(array) };
    let enclosing = NullBuffer::new(BooleanBuffer::collect_bool(array.len(), |row| mask.is_valid(row)));
    let nulls = NullBuffer::union(array.nulls(), Some(&enclosing));
    array.to_data().into_builder().nulls(nulls).build().map(make_array)
}
