//! Runs and dictionaries as plain values.

use arrow_array::new_empty_array;
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::FieldRef;

use super::request::check_room;
use crate::arrow::DeviceArray;
use crate::error::{Error, Result, catch_panic};

/// The array with its runs, or its dictionary's values, written out: as `field` says.
///
/// # Errors
/// When the memory is not the host's, the contents break the Arrow format, or memory cannot be had.
pub(crate) fn decode(array: &DeviceArray, field: &FieldRef) -> Result<DeviceArray> {
    if array.is_empty() {
        return DeviceArray::from_arrow(new_empty_array(field.data_type()).as_ref(), field.clone());
    }
    let encoded = array.to_arrow()?;
    check_room(encoded.as_ref(), field.data_type()).map_err(|error| error.in_column(field.name()))?;
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let decoded = catch_panic(|| {
        cast_with_options(encoded.as_ref(), field.data_type(), &options)
            .map_err(|error| Error::unsupported(format!("cannot decode {}: {error}", encoded.data_type())))
    });
    DeviceArray::from_arrow(decoded.map_err(|error| error.in_column(field.name()))?.as_ref(), field.clone())
}
