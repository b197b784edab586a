//! Pickles reports and their rows by value, and rebuilds them.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3::wrap_pyfunction;

use super::explain::{Report, ReportRow};
use super::{Device, device, pickle};
use crate::error::{Error, ErrorKind, Language};
use crate::explain;

pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_unpickle_report_row, module)?)?;
    module.add_function(wrap_pyfunction!(_unpickle_report, module)?)
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
pub(super) fn row<'py>(py: Python<'py>, row: &explain::ReportRow) -> PyResult<Bound<'py, PyTuple>> {
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
pub(super) fn report<'py>(py: Python<'py>, report: &explain::Report) -> PyResult<Bound<'py, PyTuple>> {
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
