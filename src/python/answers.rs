//! What did Python code answer, and what ended the question instead?
//!
//! A signal's handler runs within whatever Python code runs, and what it raises, such as `KeyboardInterrupt`, is no answer.

use pyo3::PyTypeInfo;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyInt, PyMapping, PyString};

/// The answer; `None` where Python code raised an `Exception` instead.
///
/// # Errors
/// Exceptions that are no `Exception`: those that end a program, such as `KeyboardInterrupt`.
pub(super) fn answer<T>(py: Python<'_>, result: PyResult<T>) -> PyResult<Option<T>> {
    match result {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.is_instance_of::<PyException>(py) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The `str()` or `repr()` of an object, for the text of an error.
///
/// # Errors
/// As [`answer`].
pub(super) fn text(py: Python<'_>, asked: PyResult<Bound<'_, PyString>>) -> PyResult<String> {
    Ok(answer(py, asked)?.map_or_else(|| "something else".to_owned(), |text| text.to_string()))
}

/// The error that `told` makes of such a text; what ended the question, if something did.
pub(super) fn error_about(
    py: Python<'_>,
    asked: PyResult<Bound<'_, PyString>>,
    told: impl FnOnce(String) -> PyErr,
) -> PyErr {
    text(py, asked).map_or_else(|ended| ended, told)
}

/// Whether an object is a mapping. A cast to [`PyMapping`] takes an exception for "no".
///
/// # Errors
/// What asking raises.
pub(super) fn is_mapping(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    if object.is_instance_of::<PyDict>() {
        return Ok(true);
    }
    // By far the most of the others are these, and the question is one for Python code.
    if object.is_instance_of::<PyString>() || object.is_instance_of::<PyInt>() || object.is_instance_of::<PyFloat>() {
        return Ok(false);
    }
    object.is_instance(PyMapping::type_object(object.py()).as_any())
}
