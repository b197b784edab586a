//! Which columns hold addresses of Python objects, and no data of their own?

#[cfg(feature = "python")]
use std::sync::Arc;

#[cfg(feature = "python")]
use arrow_schema::extension::EXTENSION_TYPE_NAME_KEY;
use arrow_schema::{DataType, Field};
#[cfg(feature = "python")]
use arrow_schema::{FieldRef, Fields};

use crate::error::{Error, Result};

/// The extension type of addresses of Python objects. polars exports them without any, as fixed-size binary.
const NAME: &str = "polars.object";

/// Refuses a column of addresses of Python objects: the column must not be read.
///
/// # Errors
/// For such a column, without its name.
pub(crate) fn require_values(field: &Field) -> Result<()> {
    if !matches!(field.data_type(), DataType::FixedSizeBinary(_)) || field.extension_type_name() != Some(NAME) {
        return Ok(());
    }
    let reason = "its values are addresses of Python objects, as polars exports its type Object";
    Err(Error::unsupported(reason)
        .remedy_is("leave the column out, or make numbers, strings or lists of the objects in polars first"))
}

/// Returns whether a field may be of addresses of Python objects, or a column of it.
#[cfg(feature = "python")]
pub(crate) fn may_be_objects(field: &Field) -> bool {
    match field.data_type() {
        DataType::Struct(columns) => columns.iter().any(|column| is_address(column)),
        _ => is_address(field),
    }
}

#[cfg(feature = "python")]
fn is_address(field: &Field) -> bool {
    let DataType::FixedSizeBinary(width) = field.data_type() else { return false };
    usize::try_from(*width) == Ok(size_of::<usize>()) && field.extension_type_name().is_none()
}

/// Returns a field with the extension type of those columns that its source says are of objects, by name.
#[cfg(feature = "python")]
pub(crate) fn with_objects(field: &FieldRef, is_of_objects: impl Fn(&str) -> bool) -> FieldRef {
    let mark = |field: &FieldRef| {
        if !is_address(field) || !is_of_objects(field.name()) {
            return field.clone();
        }
        let mut metadata = field.metadata().clone();
        metadata.insert(EXTENSION_TYPE_NAME_KEY.to_owned(), NAME.to_owned());
        Arc::new(Field::clone(field).with_metadata(metadata))
    };
    match field.data_type() {
        DataType::Struct(columns) => {
            let columns: Fields = columns.iter().map(mark).collect();
            Arc::new(Field::clone(field).with_data_type(DataType::Struct(columns)))
        }
        _ => mark(field),
    }
}

/// Refuses a column of addresses of Python objects in data that is handed on whole.
///
/// # Errors
/// Names all such columns.
#[cfg(feature = "python")]
pub(crate) fn require_values_of_all(field: &FieldRef) -> Result<()> {
    let required = |column: &FieldRef| require_values(column).map_err(|error| error.in_column(column.name()));
    match field.data_type() {
        DataType::Struct(columns) => super::all_or_errors(columns.iter().map(required)).map(|_: Vec<()>| ()),
        _ => required(field),
    }
}
