//! Reads a list of column names.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::answers::answer;
use super::options::{mapping, names_as_str};

/// The error for groups where there is one result.
pub(super) fn groups_of_one() -> PyErr {
    PyTypeError::new_err("columns must be a list of names; to_tensors makes groups of a dict")
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
    let remedy = names_as_str(object)?.map_or_else(String::new, |names| format!("; names are str: pass {names}"));
    Err(PyTypeError::new_err(format!("columns must be a list of names, not {}{remedy}", object.repr()?)))
}
