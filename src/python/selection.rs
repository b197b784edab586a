//! Reads `columns=` and `order=`.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::options::mapping;
use crate::spec::{Group, MemoryOrder, Selection};

/// `order=` of Python.
pub(super) fn parse_order(order: &str) -> PyResult<MemoryOrder> {
    match order {
        "C" => Ok(MemoryOrder::C),
        "F" => Ok(MemoryOrder::F),
        "A" => Ok(MemoryOrder::A),
        _ => Err(PyValueError::new_err(format!("order must be \"C\", \"F\" or \"A\", not {order:?}"))),
    }
}

/// `columns=` of functions that take groups: columns each for itself, or a dict of groups.
pub(super) struct Columns(pub(super) Selection);

impl Columns {
    /// The selection; each column for itself, where nothing is selected.
    pub(super) fn each(columns: Option<Self>) -> Selection {
        columns.map_or(Selection::Each(None), |columns| columns.0)
    }

    /// The selection, where columns without groups make a matrix.
    pub(super) fn whole(columns: Option<Self>) -> Selection {
        match Self::each(columns) {
            Selection::Each(columns) => Selection::Whole(columns),
            selection => selection,
        }
    }
}

impl<'py> FromPyObject<'_, 'py> for Columns {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let Some(groups) = mapping(&object)? else {
            return if object.is_none() {
                Ok(Self(Selection::Each(None)))
            } else {
                names(&object).map(|names| Self(Selection::Each(Some(names))))
            };
        };
        let group = |(name, group): (Bound<'py, PyAny>, Bound<'py, PyAny>)| {
            let group = match group.cast::<PyString>() {
                Ok(column) => Group::Column(column.extract()?),
                Err(_) => Group::Matrix(names(&group)?),
            };
            Ok((name.extract()?, group))
        };
        groups.iter().map(group).collect::<PyResult<_>>().map(|groups| Self(Selection::Named(groups)))
    }
}

/// The names of columns: a list of them, which a single name is not.
pub(super) fn names(object: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    if let Ok(name) = object.cast::<PyString>() {
        let name = name.repr()?;
        return Err(PyTypeError::new_err(format!("columns must be a list of names; pass [{name}] for {name} alone")));
    }
    if mapping(object)?.is_some() {
        return Err(PyTypeError::new_err("columns must be a list of names; to_tensors makes groups of a dict"));
    }
    object.extract().map_err(|_| match object.repr() {
        Ok(found) => PyTypeError::new_err(format!("columns must be a list of names, not {found}")),
        Err(error) => error,
    })
}
