//! Recognises objects of pandas, whose index is no column.

use arrow_schema::Field;
use pyo3::prelude::*;

use super::package::package;
use crate::spec::{PandasIndex, lists_index};

/// Which index columns of pandas are among all columns of an object of this type. An index with a name is left out of pandas' own
/// objects alone: a table that was read from a file has pandas' metadata too, and its columns are all that its reader sees.
///
/// # Errors
/// What the attributes of the object's class raise.
pub(super) fn pandas_index(object: &Bound<'_, PyAny>, field: &Field) -> PyResult<PandasIndex> {
    if lists_index(field) {
        for class in object.get_type().mro().iter() {
            if package(&class)? == "pandas" {
                return Ok(PandasIndex::LeaveOut);
            }
        }
    }
    Ok(PandasIndex::KeepNamed)
}
