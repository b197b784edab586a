//! `explain()` and its classes.

use pyo3::exceptions::{PyIndexError, PyKeyError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::counts::integer;
use super::explainable::Explainable;
use super::options::ElementKeywords;
use super::pandas::pandas_index;
use super::ragged::parse_pad;
use super::selection::{Columns, parse_order};
use super::{Device, device, html, report_pickle};
use crate::conversion::Subject;
use crate::error::Language;
use crate::spec::Selection;

/// The note of a report for which a query was run.
const RUN: &str = "the types cost a query: the object tells them by running it";

/// What a conversion would do to one column.
#[pyclass(frozen, module = "arrow_dlpack")]
#[derive(Debug)]
pub struct ReportRow(pub(super) crate::explain::ReportRow);

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
        self.0.error.as_ref().map(|error| error.told_in(Language::Python).to_string())
    }

    fn __repr__(&self) -> String {
        let row = &self.0;
        format!("ReportRow({:?}, {}, {}, bytes={})", row.column, row.arrow_type, row.how(), row.bytes)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        report_pickle::row(py, &self.0)
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
        let row = match key.extract::<String>() {
            Ok(name) => {
                let row = self.0.rows.iter().chain(&self.0.matrices).find(|row| row.column == name);
                row.ok_or_else(|| PyKeyError::new_err(name))?
            }
            Err(_) => {
                let index: Option<isize> = integer("the position of a row", key)?;
                let from_start = |index: isize| match index < 0 {
                    true => index.checked_add_unsigned(self.0.rows.len()),
                    false => Some(index),
                };
                let index = index.and_then(from_start).and_then(|index| usize::try_from(index).ok());
                let row = index.and_then(|index| self.0.rows.get(index));
                row.ok_or_else(|| PyIndexError::new_err("no such row"))?
            }
        };
        Ok(ReportRow(row.clone()))
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(self.rows().into_pyobject(py)?.try_iter()?.into_any().unbind())
    }

    fn __str__(&self) -> String {
        self.0.told_in(Language::Python).to_string()
    }

    fn __repr__(&self) -> String {
        self.0.told_in(Language::Python).to_string()
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        report_pickle::report(py, &self.0)
    }

    /// The table of its text, for notebooks.
    fn _repr_html_(&self) -> String {
        let (cells, remarks) = (self.0.cells(Language::Python), self.0.remarks(Language::Python));
        let Some((head, rows)) = cells.split_first() else { return String::new() };
        let head: Vec<&str> = head.iter().map(String::as_str).collect();
        html::table("Report", &head, rows, remarks.iter().map(String::as_str))
    }
}

/// Reports what `to_tensor` or `to_tensors` would do with this data, or with any data of this schema. Reads no
/// stream.
///
/// With `order`, or with a dict for `columns`, reports the matrices, and each column in them. For one column of
/// lists or strings, reports what `to_ragged` would do to each part, and with `pad` to the matrix and its
/// validity. With `device`, reports the transfer of the result; `Report.transfer` is the data that moves to the
/// CPU before its conversion, of which the rows know only types and lengths.
///
/// Does not call a driver, so the report lacks what only device memory tells. A schema, or a stream without a
/// `device` attribute, counts as host memory. A stream on a device that does not say which counts as on device
/// 0.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "one Python keyword each")]
#[pyo3(signature = (obj_or_schema, *, columns=None, dtype=None, nulls=None, order=None, decimal=None, dictionary=None, device=None, copy=None, writable=None, pad=None), text_signature = "(obj_or_schema, *, columns=None, dtype=None, nulls=\"error\", order=None, decimal=None, dictionary=None, device=None, copy=None, writable=None, pad=None)")]
pub(super) fn explain(
    obj_or_schema: &Bound<'_, PyAny>,
    columns: Option<Columns>,
    dtype: Option<&Bound<'_, PyAny>>,
    nulls: Option<&Bound<'_, PyAny>>,
    order: Option<&str>,
    decimal: Option<&Bound<'_, PyAny>>,
    dictionary: Option<&Bound<'_, PyAny>>,
    device: Option<&Bound<'_, PyAny>>,
    copy: Option<bool>,
    writable: Option<bool>,
    pad: Option<&Bound<'_, PyAny>>,
) -> PyResult<Report> {
    let pad = pad.map(parse_pad).transpose()?;
    let conversion = ElementKeywords { dtype, nulls, decimal, dictionary }.conversion(copy, writable)?;
    let order = order.map(parse_order).transpose()?;
    let selection = if order.is_some() { Columns::whole(columns) } else { Columns::each(columns) };
    let mut conversion = conversion.select(selection).memory_order(order.unwrap_or_default());
    conversion.device = device.map(device::extract).transpose()?;
    let mut notes = Vec::new();
    let subject = match Explainable::read(obj_or_schema)? {
        Explainable::Of(subject) => subject,
        Explainable::Query(field) => {
            notes.push(RUN.to_owned());
            Subject::Type(field, crate::device::Device::CPU)
        }
    };
    if let (Subject::Chunks(field, _) | Subject::Type(field, _), Selection::Whole(_) | Selection::Each(_)) =
        (&subject, &conversion.selection)
    {
        let index = pandas_index(obj_or_schema, field)?;
        conversion = conversion.index(index);
    }
    let report = conversion.explain_subject(subject, pad)?;
    Ok(Report(crate::explain::Report { notes, ..report }))
}
