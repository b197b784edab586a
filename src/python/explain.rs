//! `explain()`: reads its arguments, and what it is asked about.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::categories::CategoryKeywords;
use super::device;
use super::explainable::Explainable;
use super::options::ElementKeywords;
use super::pandas::pandas_index;
use super::ragged::PadKeywords;
use super::report::Report;
use super::selection::{Columns, ORDER};
use super::sources::{Projection, note};
use super::tensor::with_output;
use super::to_arrow::explain_to_arrow;
use crate::conversion::{Question, Subject};
use crate::spec::{Conversion, Selection};

/// The note of a report for which a query was run.
const RUN: &str = "the types cost a query: the object tells them by running it";

/// Reports what a conversion would do with this data, or with any data of this schema. Reads no stream.
///
/// For one column, reports what `to_tensor` would do; of lists and strings what `to_ragged` would do to each part, and
/// with `pad` to the matrix and its validity. For a batch or a table, reports what `to_tensors` would do to each
/// column: its lists and strings are refused, and the row says what to do with them. For the matrix of `to_tensor`,
/// pass `order`, such as order="C". With `order`, or with a dict for `columns`, reports the matrices, and each column
/// in them; the validity of a `group` has a row under its name. With `device`, reports the transfer of the result;
/// `Report.transfer` is the data that moves to the CPU before its conversion, of which the rows know only types and
/// lengths.
///
/// validity: True for what `validity` would do, with columns, order, length and device alone.
/// out: memory, for what `to_tensor(..., out=out)` would write to it. Memory that does not fit is an error of the row.
///     `explain` writes nothing.
///
/// to_arrow: True for what `to_arrow` would do to a tensor or the parts of a Ragged, with type, names, copy and device
///     alone; validity=True then stands for a bool per row. A row has the Arrow type of the result, and a type of
///     variable length counts no bytes.
/// type: as for `to_arrow`.
/// names: as for `to_arrow`.
///
/// Does not call a driver, so the report lacks facts that only device memory has. A schema, or a stream without a
/// `device` attribute, counts as host memory. A stream on a device that does not say which counts as on device
/// 0.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "one Python keyword each")]
#[pyo3(signature = (obj_or_schema, *, columns=None, dtype=None, nulls=None, order=None, decimal=None, dictionary=None, unit=None, length=None, categories=None, unknown=None, device=None, copy=None, writable=None, validity=false, out=None, pad=None, truncate=None, side=None, multiple_of=None, to_arrow=false, r#type=None, names=None), text_signature = "(obj_or_schema, *, columns=None, dtype=None, nulls=\"error\", order=None, decimal=None, dictionary=None, unit=None, length=None, categories=None, unknown=\"error\", device=None, copy=None, writable=None, validity=False, out=None, pad=None, truncate=\"error\", side=\"right\", multiple_of=1, to_arrow=False, type=None, names=None)")]
pub(super) fn explain(
    obj_or_schema: &Bound<'_, PyAny>,
    columns: Option<Columns>,
    dtype: Option<&Bound<'_, PyAny>>,
    nulls: Option<&Bound<'_, PyAny>>,
    order: Option<&str>,
    decimal: Option<&Bound<'_, PyAny>>,
    dictionary: Option<&Bound<'_, PyAny>>,
    unit: Option<&Bound<'_, PyAny>>,
    length: Option<&Bound<'_, PyAny>>,
    categories: Option<&Bound<'_, PyAny>>,
    unknown: Option<&Bound<'_, PyAny>>,
    device: Option<&Bound<'_, PyAny>>,
    copy: Option<bool>,
    writable: Option<bool>,
    validity: bool,
    out: Option<&Bound<'_, PyAny>>,
    pad: Option<&Bound<'_, PyAny>>,
    truncate: Option<&str>,
    side: Option<&str>,
    multiple_of: Option<&Bound<'_, PyAny>>,
    to_arrow: bool,
    r#type: Option<&Bound<'_, PyAny>>,
    names: Option<&Bound<'_, PyAny>>,
) -> PyResult<Report> {
    let pad = PadKeywords { pad, truncate, side, multiple_of }.read()?;
    require_one_call(usize::from(validity) + usize::from(out.is_some()) + usize::from(pad.is_some()))?;
    let elements = ElementKeywords { dtype, nulls, decimal, dictionary, unit, length };
    let codes = CategoryKeywords { categories, unknown };
    let device = device.map(device::extract).transpose()?;
    if to_arrow || r#type.is_some() || names.is_some() {
        let is_plain = elements.are_defaults() && codes.are_defaults() && columns.is_none() && order.is_none();
        require_to_arrow_alone(to_arrow && is_plain && writable.is_none() && out.is_none() && pad.is_none())?;
        return Ok(Report(explain_to_arrow(obj_or_schema, r#type, names, validity, copy, device)?));
    }
    let is_of_values = !ElementKeywords { length: None, ..elements }.are_defaults() || !codes.are_defaults();
    if validity && (is_of_values || copy.is_some() || writable.is_some()) {
        return Err(PyValueError::new_err("validity depends on columns, order, length and device alone"));
    }
    let mut conversion = elements.conversion(copy, writable)?;
    codes.read_into(&mut conversion)?;
    if let (true, Some(columns)) = (validity || out.is_some(), &columns) {
        columns.require_names()?;
    }
    let order = order.map(|order| ORDER.parse(order)).transpose()?;
    let selection =
        if order.is_some() || validity || out.is_some() { Columns::whole(columns) } else { Columns::each(columns) };
    let mut conversion = conversion.select(selection).memory_order(order.unwrap_or_default());
    conversion.device = device;
    let (subject, notes) = subject_of(obj_or_schema, &mut conversion)?;
    let report = match (out, pad) {
        (Some(out), _) => with_output(out, |out| Ok(conversion.explain_subject(subject, Question::Write(out))?))?,
        (None, Some(pad)) => conversion.explain_subject(subject, Question::Padded(pad))?,
        (None, None) if validity => conversion.explain_subject(subject, Question::Validity)?,
        (None, None) => conversion.explain_subject(subject, Question::Results)?,
    };
    Ok(Report(crate::explain::Report { notes, ..report }))
}

/// Returns what the report is about, with notes on how that was found. Sets which index columns of pandas the conversion leaves out.
fn subject_of(object: &Bound<'_, PyAny>, conversion: &mut Conversion) -> PyResult<(Subject, Vec<String>)> {
    let mut notes = Vec::new();
    let subject = match Explainable::read(object, conversion)? {
        Explainable::Of(subject) => subject,
        Explainable::Query(field) => {
            notes.push(RUN.to_owned());
            Subject::Type(field, crate::device::Device::CPU)
        }
    };
    notes.extend(note(object, &Projection::of(conversion))?);
    if let (Subject::Chunks(field, _) | Subject::Type(field, _), Selection::Whole(_) | Selection::Each(_)) =
        (&subject, &conversion.selection)
    {
        conversion.index = pandas_index(object, field)?;
    }
    Ok((subject, notes))
}

/// Refuses keywords of several functions.
fn require_one_call(asked: usize) -> PyResult<()> {
    if asked <= 1 {
        return Ok(());
    }
    Err(PyValueError::new_err(
        "explain reports one call at a time: pass pad= for to_ragged(pad=), validity=True for validity, or out= for to_tensor(out=)",
    ))
}

/// Refuses keywords that `to_arrow` does not have, and its own ones without it.
fn require_to_arrow_alone(is_alone: bool) -> PyResult<()> {
    if is_alone {
        return Ok(());
    }
    Err(PyValueError::new_err(
        "to_arrow=True goes with type, names, validity, copy and device alone, and type and names with to_arrow=True",
    ))
}
