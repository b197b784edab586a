//! The class `Group`: columns that become one result, with options of their own, as a value of `columns={...}`.

use pyo3::IntoPyObjectExt;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use pyo3::wrap_pyfunction;

use super::column_names::names;
use super::dtype;
use super::escapes::python_escapes;
use super::group_call::{self, Passed};
use super::nulls::parse_nulls;
use crate::dtype::DType;
use crate::spec::{Group as Core, GroupForm};

pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Group>()?;
    module.add_function(wrap_pyfunction!(group, module)?)
}

/// Columns that become one result, and its options: what `group`, `padded`, `ragged` and `arrow` return.
#[pyclass(frozen, module = "arrow_dlpack")]
#[derive(Debug)]
pub struct Group {
    core: Core,
    dtype: Option<DType>,
    /// As they were passed: not every type of number is in the options.
    nulls: Option<Py<PyAny>>,
    /// The value of the padding, as it was passed.
    value: Option<Py<PyAny>>,
}

impl Group {
    /// The group, for a selection.
    pub(super) fn core(&self) -> &Core {
        &self.core
    }

    /// A group of this form, with these options as they were passed.
    pub(super) fn of(
        core: Core,
        (dtype, nulls): (Option<&Bound<'_, PyAny>>, Option<&Bound<'_, PyAny>>),
        value: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let dtype = dtype.map(dtype::resolve).transpose()?;
        let core = dtype.into_iter().fold(core, Core::dtype);
        let core = nulls.map(parse_nulls).transpose()?.into_iter().fold(core, Core::nulls);
        Ok(Self { core, dtype, nulls: nulls.map(|nulls| nulls.clone().unbind()), value: value.map(Bound::unbind) })
    }

    fn passed(&self) -> Passed<'_> {
        let (dtype, nulls) = (self.dtype.map(DType::name), self.nulls.as_ref());
        Passed { core: &self.core, value: self.value.as_ref(), dtype, nulls }
    }

    fn columns_as_passed<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self.core.columns() {
            [only] if !matches!(self.core.form(), GroupForm::Matrix | GroupForm::Arrow) => {
                Ok(PyString::new(py, only).into_any())
            }
            columns => columns.into_pyobject(py),
        }
    }
}

#[pymethods]
impl Group {
    /// The name of the column that is a result of its own, or the list of those that become a matrix or an Arrow
    /// batch.
    #[getter]
    fn columns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.columns_as_passed(py)
    }

    /// The name of the tensor's dtype, or None.
    #[getter]
    fn dtype(&self) -> Option<&'static str> {
        self.dtype.map(DType::name)
    }

    /// What happens to nulls, or None.
    #[getter]
    fn nulls(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.nulls.as_ref().map(|nulls| nulls.clone_ref(py))
    }

    /// The name of the validity, or None.
    #[getter]
    fn validity(&self) -> Option<&str> {
        self.core.validity_name()
    }

    /// The name of the lengths of padded rows, or None.
    #[getter]
    fn lengths(&self) -> Option<&str> {
        self.core.lengths_name()
    }

    fn __eq__<'py>(&self, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = other.py();
        match other.cast::<Self>() {
            Ok(other) => (other.get().core == self.core).into_bound_py_any(py),
            Err(_) => Ok(py.NotImplemented().into_bound(py)),
        }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        if !self.core.has_fixed_rows() {
            return group_call::repr(py, &self.passed());
        }
        let mut text = format!("group({}", self.columns_as_passed(py)?.repr()?);
        if let Some(dtype) = self.dtype {
            text.push_str(&format!(", dtype={:?}", dtype.name()));
        }
        if let Some(nulls) = &self.nulls {
            text.push_str(&format!(", nulls={}", nulls.bind(py).repr()?));
        }
        if let Some(validity) = self.core.validity_name() {
            text.push_str(&python_escapes(&format!(", validity={validity:?}")));
        }
        text.push(')');
        Ok(text)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        group_call::reduce(py, &self.passed())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.nulls)?;
        visit.call(&self.value)
    }
}

/// Returns columns that become one tensor of a dict, with options of their own: a value of `columns={...}` in
/// `to_tensors`, `explain` and `Loader`.
///
/// columns: the name of a column, which is a tensor of its own; or a list of names, which become a matrix.
/// dtype: the dtype of the tensor; its columns then have none of their own. None is the one that the call's
///     `dtype` has under the group's name, or for all.
/// nulls: what happens to the nulls of columns that the call's `nulls` does not name. None is what it has under
///     the group's name, or for all.
/// validity: the name of one more result: a bool array of the tensor's shape, True where the value is valid. It
///     is there whether or not there are nulls. None makes none.
#[pyfunction]
#[pyo3(signature = (columns, *, dtype=None, nulls=None, validity=None))]
pub(super) fn group(
    columns: &Bound<'_, PyAny>,
    dtype: Option<&Bound<'_, PyAny>>,
    nulls: Option<&Bound<'_, PyAny>>,
    validity: Option<String>,
) -> PyResult<Group> {
    let core = match columns.cast::<PyString>() {
        Ok(column) => Core::column(column.extract::<String>()?),
        Err(_) => Core::matrix(names(columns)?),
    };
    Group::of(validity.into_iter().fold(core, Core::validity), (dtype, nulls), None)
}
