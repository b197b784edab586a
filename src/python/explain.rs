//! The classes behind `explain()`.

use pyo3::exceptions::{PyIndexError, PyKeyError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// What would happen to one column.
#[pyclass(frozen, module = "arrow_dlpack")]
#[derive(Clone, Debug)]
pub struct ReportRow(crate::explain::ReportRow);

#[pymethods]
impl ReportRow {
    /// The column's name; empty for an array.
    #[getter]
    fn column(&self) -> &str {
        &self.0.column
    }

    /// The Arrow type.
    #[getter]
    fn arrow_type(&self) -> &str {
        &self.0.arrow_type
    }

    /// The dtype of the tensor, or None where the type is refused.
    #[getter]
    fn dtype(&self) -> Option<&'static str> {
        self.0.dtype.map(crate::dtype::DType::name)
    }

    /// The shape of the tensor; None stands for a number of rows that a schema does not tell.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.0.shape)
    }

    /// Whether the tensor would share memory with the column.
    #[getter]
    fn view(&self) -> bool {
        self.0.view
    }

    /// "view", "copy", "view or copy" where data that was not looked at decides, or "refused".
    #[getter]
    fn how(&self) -> &'static str {
        self.0.how()
    }

    /// What would be done, in order.
    #[getter]
    fn steps(&self) -> Vec<String> {
        self.0.steps.clone()
    }

    /// Bytes that would move, at most; 0 for a schema, which does not tell the number of rows.
    #[getter]
    fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// Why the conversion would be refused, or None.
    #[getter]
    fn error(&self) -> Option<String> {
        self.0.error.as_ref().map(ToString::to_string)
    }

    fn __repr__(&self) -> String {
        let row = &self.0;
        format!("ReportRow({:?}, {}, {}, bytes={})", row.column, row.arrow_type, row.how(), row.bytes)
    }
}

/// What a conversion would do, column by column. Prints as a table.
#[pyclass(frozen, module = "arrow_dlpack")]
#[derive(Debug)]
pub struct Report(pub(super) crate::explain::Report);

#[pymethods]
impl Report {
    /// The rows, one for each column.
    #[getter]
    fn rows(&self) -> Vec<ReportRow> {
        self.0.rows.iter().cloned().map(ReportRow).collect()
    }

    /// Bytes that would move in all columns together.
    #[getter]
    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    fn __len__(&self) -> usize {
        self.0.rows.len()
    }

    /// The row of a column, by name or position.
    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<ReportRow> {
        let row = match key.extract::<String>() {
            Ok(name) => {
                let row = self.0.rows.iter().find(|row| row.column == name);
                row.ok_or_else(|| PyKeyError::new_err(name))?
            }
            Err(_) => {
                let index = key.extract::<isize>()?;
                let index = if index < 0 { index.saturating_add_unsigned(self.0.rows.len()) } else { index };
                let row = usize::try_from(index).ok().and_then(|index| self.0.rows.get(index));
                row.ok_or_else(|| PyIndexError::new_err("no such row"))?
            }
        };
        Ok(ReportRow(row.clone()))
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(self.rows().into_pyobject(py)?.try_iter()?.into_any().unbind())
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        self.0.to_string()
    }
}
