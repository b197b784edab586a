//! `explain()` and its classes.

use arrow_schema::{DataType, FieldRef};
use pyo3::exceptions::{PyIndexError, PyKeyError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::input::{self, no_protocol};
use super::matrix::{Columns, MatrixKeywords, parse_order, request};
use super::options::{ConversionOptions, ElementKeywords};
use crate::arrow::DeviceArray;
use crate::explain::{explain_groups, explain_matrix, explain_matrix_schema};
use crate::spec::CopyMode;
use crate::tensor::Tensor;

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

    /// Of a matrix: why it has its dtype. None for a column, and for a matrix that is refused by type.
    #[getter]
    fn promotion(&self) -> Option<&str> {
        self.0.promotion.as_deref()
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

    /// A row for each matrix that the columns are packed into: of shape (rows, columns), and called as its group.
    #[getter]
    fn matrices(&self) -> Vec<ReportRow> {
        self.0.matrices.iter().cloned().map(ReportRow).collect()
    }

    /// Bytes that would move in all columns together.
    #[getter]
    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    fn __len__(&self) -> usize {
        self.0.rows.len()
    }

    /// The row of a column, by name or position; or of a matrix, by the name of its group.
    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<ReportRow> {
        let row = match key.extract::<String>() {
            Ok(name) => {
                let row = self.0.rows.iter().chain(&self.0.matrices).find(|row| row.column == name);
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

/// What `to_tensors` would do with this data, or with any data of this schema: a printable Report with a row for each
/// column. With an order, what `to_tensor` would do: each column's part in the matrix, and the matrix itself in
/// `Report.matrices`; with a dict for columns, so for each group. Of one column of lists or strings: what `to_ragged` would
/// do, with a row for each part. Reads no stream.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "one Python keyword each")]
#[pyo3(signature = (obj_or_schema, *, columns=None, dtype=None, nulls=None, order=None, decimal=None, dictionary=None, copy=None, writable=false), text_signature = "(obj_or_schema, *, columns=None, dtype=None, nulls=\"error\", order=None, decimal=None, dictionary=None, copy=None, writable=False)")]
pub(super) fn explain(
    obj_or_schema: &Bound<'_, PyAny>,
    columns: Option<Columns>,
    dtype: Option<&Bound<'_, PyAny>>,
    nulls: Option<&Bound<'_, PyAny>>,
    order: Option<&str>,
    decimal: Option<&Bound<'_, PyAny>>,
    dictionary: Option<&Bound<'_, PyAny>>,
    copy: Option<bool>,
    writable: bool,
) -> PyResult<Report> {
    let options = ConversionOptions::read(ElementKeywords { dtype, nulls, decimal, dictionary }, copy, writable)?;
    let order = order.map(parse_order).transpose()?;
    let of = |column: &str| options.of(column);
    let columns = columns.unwrap_or(Columns::Each(None));
    let (field, array) = match explainable(obj_or_schema)? {
        Explainable::Array(array) => (array.field().clone(), Some(array)),
        Explainable::Schema(field) => (field, None),
        Explainable::Tensor(tensor) => return Ok(Report(crate::explain::explain_tensor(&tensor, of)?)),
    };
    options.check_columns(&field)?;
    let is_struct = matches!(field.data_type(), DataType::Struct(_));
    let chunks = array.as_ref().map(std::slice::from_ref);
    let matrix =
        |columns| request(columns, &MatrixKeywords { order: order.unwrap_or_default(), threads: None }, &options);
    let report = match (columns, chunks) {
        (Columns::Groups(groups), chunks) => explain_groups(&field, chunks, &groups, &matrix(None), of),
        (Columns::Each(columns), Some(chunks)) if is_struct && order.is_some() => {
            explain_matrix(&field, chunks, &matrix(columns), of)
        }
        (Columns::Each(columns), None) if is_struct && order.is_some() => {
            explain_matrix_schema(&field, &matrix(columns), of)
        }
        (Columns::Each(columns), Some(chunks)) => crate::explain::explain(&field, chunks, columns.as_deref(), of),
        (Columns::Each(columns), None) => crate::explain::explain_schema(&field, columns.as_deref(), of),
    };
    Ok(Report(report?))
}

/// What can be explained without reading a stream.
enum Explainable {
    Array(DeviceArray),
    Schema(FieldRef),
    Tensor(Tensor),
}

fn explainable(object: &Bound<'_, PyAny>) -> PyResult<Explainable> {
    let py = object.py();
    let has = |dunder| object.hasattr(dunder);
    let is_tensor = object.is_exact_instance_of::<super::Tensor>();
    if !is_tensor && let Some(array) = input::array(object)? {
        return Ok(Explainable::Array(array));
    }
    if !is_tensor && let Some(field) = input::schema(object)? {
        return Ok(Explainable::Schema(field));
    }
    if has(intern!(py, "__arrow_c_stream__"))? || has(intern!(py, "__arrow_c_device_stream__"))? {
        return Err(PyTypeError::new_err(
            "explain does not read a stream, and this one tells no schema: pass its schema, or one of its batches",
        ));
    }
    let tensor = input::dlpack_as_it_is(object, None, CopyMode::IfNeeded)?.ok_or_else(|| no_protocol(object))?;
    Ok(Explainable::Tensor(tensor))
}
