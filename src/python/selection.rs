//! Reads `columns=` and `order=`.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use super::answers::mapping;
use super::column_names::{groups_of_one, names};
use super::group::Group;
use super::words::Words;
use crate::spec::{self, MemoryOrder, Selection};

/// The words of `order=`.
pub(super) const ORDER: Words<MemoryOrder> =
    Words { keyword: "order", words: &[("C", MemoryOrder::C), ("F", MemoryOrder::F), ("A", MemoryOrder::A)] };

/// `columns=` of functions that take groups: columns each for itself, or a dict of groups.
pub(super) struct Columns {
    selection: Selection,
    /// The dict of groups, which the caller cannot change.
    groups: Option<Py<PyDict>>,
}

impl Columns {
    /// The selection; each column for itself, where nothing is selected.
    pub(super) fn each(columns: Option<Self>) -> Selection {
        columns.map_or(Selection::Each(None), |columns| columns.selection)
    }

    /// A dict of the same groups, for a pickle; `None` where there are no groups.
    pub(super) fn groups(&self, py: Python<'_>) -> Option<Py<PyDict>> {
        self.groups.as_ref().map(|groups| groups.clone_ref(py))
    }

    /// Refuses groups, of which one result has none.
    pub(super) fn require_names(&self) -> PyResult<()> {
        if self.groups.is_some() { Err(groups_of_one()) } else { Ok(()) }
    }

    fn of(selection: Selection) -> Self {
        Self { selection, groups: None }
    }

    /// The selection, where columns without groups make a matrix.
    pub(super) fn whole(columns: Option<Self>) -> Selection {
        match Self::each(columns) {
            Selection::Each(columns) => Selection::Whole(columns),
            selection => selection,
        }
    }
}

/// The error for a key of `columns=` that is no name.
fn wrong_name(name: &Bound<'_, PyAny>) -> PyErr {
    match name.repr() {
        Ok(found) => {
            PyTypeError::new_err(format!("columns has the key {found}, and the name of a group must be a str"))
        }
        Err(error) => error,
    }
}

impl<'py> FromPyObject<'_, 'py> for Columns {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let Some(groups) = mapping(&object)? else {
            let columns = if object.is_none() { None } else { Some(names(&object)?) };
            return Ok(Self::of(Selection::Each(columns)));
        };
        let (mut selected, passed) = (Vec::new(), PyDict::new(object.py()));
        for (name, group) in groups {
            let core = match (group.cast::<Group>(), group.cast::<PyString>()) {
                (Ok(group), _) => group.get().core().clone(),
                (_, Ok(column)) => spec::Group::column(column.extract::<String>()?),
                _ => spec::Group::matrix(names(&group)?),
            };
            match group.is_exact_instance_of::<Group>() || !core.is_matrix() {
                true => passed.set_item(&name, group)?,
                false => passed.set_item(&name, core.columns())?,
            }
            let name = name.cast::<PyString>().map_err(|_| wrong_name(&name))?.extract()?;
            selected.push((name, core));
        }
        Ok(Self { selection: Selection::Named(selected), groups: Some(passed.unbind()) })
    }
}
