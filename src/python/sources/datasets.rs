//! Data sets of Hugging Face: reads rows in Arrow format, in the order of `select` and `shuffle`, which the table of a
//! data set ignores.

use arrow_schema::FieldRef;
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PySlice, PyString};

use super::offers::name_of;
use crate::python::answers::is_mapping;
use crate::python::capsule::{call, call_method};
use crate::python::schema;

/// Rows of a part. Chosen rows are gathered part by part.
const ROWS: usize = 1024;

/// The parts of a data set, in Arrow format.
pub(super) fn parts<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let formatted = in_arrow_format(object)?;
    let keywords = PyDict::new(py);
    keywords.set_item(intern!(py, "batch_size"), ROWS)?;
    call(&formatted.getattr(intern!(py, "iter"))?, (), Some(&keywords))
}

/// The data set in Arrow format, with the columns of its own format. One that streams does not tell its format.
fn in_arrow_format<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let Some(format) = object.getattr_opt(intern!(py, "format"))? else { return Ok(object.clone()) };
    if !is_mapping(&format)? {
        return Ok(object.clone());
    }
    let name = format.get_item(intern!(py, "type"))?;
    if let Ok(name) = name.cast::<PyString>() {
        let is_arrow = name.to_str()? == "arrow";
        return if is_arrow { Ok(object.clone()) } else { Err(not_arrow(object, &format!("has the format {name:?}"))) };
    }
    let keywords = PyDict::new(py);
    keywords.set_item(intern!(py, "columns"), format.get_item(intern!(py, "columns"))?)?;
    call(&object.getattr(intern!(py, "with_format"))?, ("arrow",), Some(&keywords))
}

/// The type of a data set's rows: of no rows of it, or of its features where it streams. `None` where it does not know them.
pub(super) fn schema(object: &Bound<'_, PyAny>) -> PyResult<Option<FieldRef>> {
    let py = object.py();
    let formatted = in_arrow_format(object)?;
    // One that streams can have `__getitem__` too, which torch's class of data sets gives it, and raises.
    if formatted.hasattr(intern!(py, "format"))? {
        let none = PySlice::new(py, 0, 0, 1);
        return schema::schema(&call_method(&formatted, intern!(py, "__getitem__"), (none,))?);
    }
    let features = formatted.getattr_opt(intern!(py, "features"))?;
    let schema = features.map(|features| features.getattr_opt(intern!(py, "arrow_schema"))).transpose()?.flatten();
    Ok(schema.map(|schema| schema::schema(&schema)).transpose()?.flatten())
}

/// The error for a data set whose rows are not in Arrow format.
pub(super) fn not_arrow(object: &Bound<'_, PyAny>, what: &str) -> PyErr {
    let name = name_of(object);
    PyTypeError::new_err(format!("the {name} {what}, which is no Arrow data; pass .with_format(\"arrow\") of it"))
}
