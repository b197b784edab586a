//! Which exceptions of Python code mean "no", and which must reach the caller? Which objects are mappings?
//!
//! Python runs signal handlers between the bytecodes of whatever code runs, so any call may raise `KeyboardInterrupt`, which must not be
//! taken for an answer.

use pyo3::PyTypeInfo;
use pyo3::exceptions::PyException;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyInt, PyMapping, PyString};

/// Returns the result of Python code; `None` if it raised a subclass of `Exception`.
///
/// # Errors
/// Any other `BaseException`, such as `KeyboardInterrupt` and `SystemExit`.
pub(super) fn answer<T>(py: Python<'_>, result: PyResult<T>) -> PyResult<Option<T>> {
    match result {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.is_instance_of::<PyException>(py) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the `str()` or `repr()` of an object, for the text of an error; `"something else"` if that raised a subclass of `Exception`.
///
/// # Errors
/// As [`answer`].
pub(super) fn text(py: Python<'_>, asked: PyResult<Bound<'_, PyString>>) -> PyResult<String> {
    Ok(answer(py, asked)?.map_or_else(|| "something else".to_owned(), |text| text.to_string()))
}

/// Returns the error that `told` makes of the text of [`text`], or the error of [`text`].
pub(super) fn error_about(
    py: Python<'_>,
    asked: PyResult<Bound<'_, PyString>>,
    told: impl FnOnce(String) -> PyErr,
) -> PyErr {
    text(py, asked).map_or_else(|ended| ended, told)
}

/// Whether an object is a mapping. Unlike a cast to [`PyMapping`], it returns exceptions of the check.
///
/// # Errors
/// What `isinstance(object, Mapping)` raises.
pub(super) fn is_mapping(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    if object.is_instance_of::<PyDict>() {
        return Ok(true);
    }
    // Nearly all other objects are of these types, and `isinstance` with an abstract class runs Python code.
    if object.is_instance_of::<PyString>() || object.is_instance_of::<PyInt>() || object.is_instance_of::<PyFloat>() {
        return Ok(false);
    }
    object.is_instance(PyMapping::type_object(object.py()).as_any())
}

/// A new dict of a dict or another mapping; `None` for anything else.
pub(super) fn mapping<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyDict>>> {
    if let Ok(dict) = object.cast::<PyDict>() {
        // The caller's own dict can change while it is read: by another thread, or by what reading its values runs.
        return dict.copy().map(Some);
    }
    if !is_mapping(object)? {
        return Ok(None);
    }
    let dict = PyDict::new(object.py());
    dict.call_method1(intern!(object.py(), "update"), (object,))?;
    Ok(Some(dict))
}
