//! The classes `Report` and `ReportRow`: what `explain()` returns, and their pickles.

use pyo3::exceptions::{PyIndexError, PyKeyError};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use pyo3::wrap_pyfunction;

use super::column_names::known;
use super::counts::position;
use super::escapes::{message, python_escapes};
use super::{Device, device, html, pickle};
use crate::error::{Error, ErrorKind, Language};
use crate::explain;

pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_unpickle_report_row, module)?)?;
    module.add_function(wrap_pyfunction!(_unpickle_report, module)?)
}

/// What a conversion would do to one column.
#[pyclass(frozen, module = "arrow_dlpack")]
#[derive(Debug)]
pub struct ReportRow(pub(super) explain::ReportRow);

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

    /// The device that the tensor would be on.
    #[getter]
    fn device(&self) -> Device {
        Device(self.0.device)
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

    /// Whether kernels on a device do what is done, in one pass.
    #[getter]
    fn kernel(&self) -> bool {
        self.0.kernel
    }

    /// What the host would wait for: work on a device.
    #[getter]
    fn waits(&self) -> Vec<String> {
        self.0.waits.clone()
    }

    /// Bytes that would move, at most; 0 for a schema, which does not tell the number of rows.
    #[getter]
    fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// What data that was not looked at may hold, for which the conversion would be refused.
    #[getter]
    fn refused_if(&self) -> Vec<String> {
        self.0.refused_if.clone()
    }

    /// Of a matrix: why it has its dtype. None for a column, and for a matrix that is refused by type.
    #[getter]
    fn promotion(&self) -> Option<&str> {
        self.0.promotion.as_deref()
    }

    /// Why the conversion would be refused, or None.
    #[getter]
    fn error(&self) -> Option<String> {
        self.0.error.as_ref().map(|error| message(&error.told_in(Language::Python).to_string()))
    }

    fn __repr__(&self) -> String {
        let row = &self.0;
        let what = python_escapes(&format!("{:?}, {}", row.column, row.arrow_type));
        format!("ReportRow({what}, {}, bytes={})", row.how(), row.bytes)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        reduced_row(py, &self.0)
    }
}

/// What a conversion would do, column by column. Prints as a table.
#[pyclass(frozen, module = "arrow_dlpack")]
#[derive(Debug)]
pub struct Report(pub(super) explain::Report);

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

    /// How data gets to the CPU before it is converted there: all of it, whatever columns were asked for; its bytes are those of
    /// the Arrow data, 0 where only offsets tell. None where nothing is moved before.
    #[getter]
    fn transfer(&self) -> Option<ReportRow> {
        self.0.transfer.clone().map(ReportRow)
    }

    /// The names of the columns that are pandas' index, and no columns of the result unless `columns` names them.
    #[getter]
    fn left_out(&self) -> Vec<String> {
        self.0.left_out.clone()
    }

    /// What belongs to no row: that a query was run to know the types, say.
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.0.notes.clone()
    }

    /// Bytes that would move in all columns together, and in `transfer`.
    #[getter]
    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    fn __len__(&self) -> usize {
        self.0.rows.len()
    }

    /// The row of a column, by name or position; or of a matrix, by the name of its group.
    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<ReportRow> {
        let row = match key.cast::<PyString>() {
            Ok(name) => {
                let name = known(name)?;
                let row = self.0.rows.iter().chain(&self.0.matrices).find(|row| row.column == name);
                row.ok_or_else(|| PyKeyError::new_err(name.to_owned()))?
            }
            Err(_) => {
                let found = position("the position of a row", key, self.0.rows.len())?;
                let row = found.and_then(|position| self.0.rows.get(position));
                row.ok_or_else(|| PyIndexError::new_err("no such row"))?
            }
        };
        Ok(ReportRow(row.clone()))
    }

    fn __contains__(&self, name: &Bound<'_, PyAny>) -> bool {
        let mut rows = self.0.rows.iter().chain(&self.0.matrices);
        name.extract::<&str>().is_ok_and(|name| rows.any(|row| row.column == name))
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(self.rows().into_pyobject(py)?.try_iter()?.into_any().unbind())
    }

    fn __str__(&self) -> String {
        message(&self.0.told_in(Language::Python).to_string())
    }

    fn __repr__(&self) -> String {
        message(&self.0.told_in(Language::Python).to_string())
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        reduced(py, &self.0)
    }

    /// The table of its text, for notebooks.
    fn _repr_html_(&self) -> String {
        let (cells, remarks) = (self.0.cells(Language::Python), self.0.remarks(Language::Python));
        let Some((head, rows)) = cells.split_first() else { return String::new() };
        let head: Vec<&str> = head.iter().map(String::as_str).collect();
        let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|cell| message(cell)).collect()).collect();
        html::table("Report", &head, &rows, remarks.iter().map(String::as_str))
    }
}

/// Column, row, reason and remedy of an error.
type ErrorParts = (Option<String>, Option<usize>, String, Option<String>);
/// Column, Arrow type, dtype, shape.
type TypeParts = (String, String, Option<String>, Vec<Option<i64>>);
/// View, at most, kernel, sent, bytes.
type CostParts = (bool, bool, bool, bool, usize);
/// Steps, waits, reasons for a refusal, promotion.
type TextParts = (Vec<String>, Vec<String>, Vec<String>, Option<String>);

/// `__reduce__` of a row.
fn reduced_row<'py>(py: Python<'py>, row: &explain::ReportRow) -> PyResult<Bound<'py, PyTuple>> {
    let error_parts = |error: &Error| -> ErrorParts {
        (error.column().map(str::to_owned), error.row(), error.reason().to_owned(), error.remedy_in(Language::Python))
    };
    let errors = row.error.iter().flat_map(|error| std::iter::once(error).chain(error.others()));
    let errors: Vec<ErrorParts> = errors.map(error_parts).collect();
    let dtype = row.dtype.map(crate::dtype::DType::name);
    let types = (&row.column, &row.arrow_type, dtype, &row.shape);
    let costs: CostParts = (row.view, row.at_most, row.kernel, row.is_sent(), row.bytes);
    let texts = (&row.steps, &row.waits, &row.refused_if, &row.promotion);
    let arguments = (types, Device(row.device), costs, texts, errors);
    (pickle::rebuild(py, "_unpickle_report_row")?, arguments).into_pyobject(py)
}

/// `__reduce__` of a report.
fn reduced<'py>(py: Python<'py>, report: &explain::Report) -> PyResult<Bound<'py, PyTuple>> {
    let rows = |rows: &[explain::ReportRow]| rows.iter().cloned().map(ReportRow).collect::<Vec<_>>();
    let transfer = report.transfer.clone().map(ReportRow);
    let arguments = (rows(&report.rows), rows(&report.matrices), transfer, &report.left_out, &report.notes);
    (pickle::rebuild(py, "_unpickle_report")?, arguments).into_pyobject(py)
}

/// The row of a pickle.
#[pyfunction]
fn _unpickle_report_row(
    types: TypeParts,
    device: &Bound<'_, PyAny>,
    costs: CostParts,
    texts: TextParts,
    errors: Vec<ErrorParts>,
) -> PyResult<ReportRow> {
    let (column, arrow_type, dtype, shape) = types;
    let (view, at_most, kernel, is_sent, bytes) = costs;
    let (steps, waits, refused_if, promotion) = texts;
    // A report tells the texts of an error alone, and not its kind.
    let errors = errors.into_iter().map(|(column, row, reason, remedy)| {
        let error = Error::new(ErrorKind::Unsupported, reason).in_column(column.as_deref().unwrap_or_default());
        let error = row.into_iter().fold(error, Error::at_row);
        remedy.into_iter().fold(error, Error::remedy_is)
    });
    let mut row = explain::ReportRow::of_type(column, arrow_type);
    row.dtype = dtype.map(|dtype| dtype.parse()).transpose()?;
    row.device = device::extract(device)?;
    (row.shape, row.view, row.at_most, row.kernel, row.bytes) = (shape, view, at_most, kernel, bytes);
    (row.steps, row.waits, row.refused_if, row.promotion) = (steps, waits, refused_if, promotion);
    row.error = Error::of_columns(errors);
    Ok(ReportRow(row.sent(is_sent)))
}

/// The report of a pickle.
#[pyfunction]
#[pyo3(signature = (rows, matrices, transfer, left_out, notes))]
fn _unpickle_report(
    rows: Vec<Py<ReportRow>>,
    matrices: Vec<Py<ReportRow>>,
    transfer: Option<Py<ReportRow>>,
    left_out: Vec<String>,
    notes: Vec<String>,
) -> Report {
    let of = |rows: Vec<Py<ReportRow>>| rows.iter().map(|row| row.get().0.clone()).collect();
    let transfer = transfer.map(|row| row.get().0.clone());
    Report(explain::Report { rows: of(rows), matrices: of(matrices), transfer, left_out, notes })
}
