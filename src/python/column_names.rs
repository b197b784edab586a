//! Reads a list of column names.

use pyo3::exceptions::{PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use super::answers::{answer, mapping};
use super::options::names_as_str;

/// The error for groups where there is one result.
pub(super) fn groups_of_one() -> PyErr {
    PyTypeError::new_err("columns must be a list of names; to_tensors makes groups of a dict")
}

/// The name that a key of a caller's is, to look for.
///
/// # Errors
/// `KeyError` for text that is not UTF-8, which no column is named.
pub(super) fn known<'a>(key: &'a Bound<'_, PyString>) -> PyResult<&'a str> {
    key.to_str().map_err(|_| PyKeyError::new_err(key.clone().unbind()))
}

/// The names of columns: a list of them, which a single name is not.
pub(super) fn names(object: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    if let Ok(name) = object.cast::<PyString>() {
        let name = name.repr()?;
        return Err(PyTypeError::new_err(format!("columns must be a list of names; pass [{name}] for {name} alone")));
    }
    if mapping(object)?.is_some() {
        return Err(groups_of_one());
    }
    if let Some(names) = answer(object.py(), object.extract())? {
        return Ok(names);
    }
    // A str that is not UTF-8 names no column of Arrow: its own error says where.
    if let Ok(list) = object.cast::<PyList>() {
        for name in list.iter().filter_map(|item| item.cast_into::<PyString>().ok()) {
            name.to_str()?;
        }
    }
    let remedy = names_as_str(object)?.map_or_else(String::new, |names| format!("; names are str: pass {names}"));
    Err(PyTypeError::new_err(format!("columns must be a list of names, not {}{remedy}", object.repr()?)))
}
