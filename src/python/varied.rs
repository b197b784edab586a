//! `padded`, `ragged` and `arrow`: values of `columns={...}` whose rows differ in length, or are passed through as Arrow.

use std::num::NonZero;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use pyo3::wrap_pyfunction;

use super::RecordBatch;
use super::answers::answer;
use super::counts::count;
use super::exchange::Arrays;
use super::group::{Group, group};
use super::nulls::parse_nulls;
use super::ragged::{Ragged, SIDE, TRUNCATE};
use crate::conversion::Converted;
use crate::spec::{Group as Core, NullPolicy, Pad};

pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(padded, module)?)?;
    module.add_function(wrap_pyfunction!(ragged, module)?)?;
    module.add_function(wrap_pyfunction!(arrow, module)?)?;
    module.add_function(wrap_pyfunction!(_unpickle_group, module)?)
}

/// Returns a column of lists or strings that becomes a padded matrix of a dict, of shape (rows, length, *inner): a
/// value of `columns={...}` in `to_tensors`, `explain` and `Loader`.
///
/// column: the name of a column of lists, large lists, list views, fixed-size lists, strings or binaries. Strings are
///     their bytes as uint8.
/// value: the padding, exact in an integer or bool, and rounded in a float.
/// length: the length of each row. None is that of the longest row of the result, which in a `Loader` is one batch.
/// multiple_of: a length of None is rounded up to a multiple of this.
/// truncate: what happens to rows that are longer than `length`: "error"; "left" drops their first elements, "right"
///     their last.
/// side: where the padding of a row goes: "right", after its elements, or "left", before them.
/// lengths: the name of one more result: the number of elements of each row that were kept, as int64; 0 of a null row.
/// validity: the name of one more result: bools of shape (rows, length), False for padding and for nulls.
/// dtype, nulls: as for `group`, of the elements. Null rows are padding unless nulls="error", and so are null elements
///     that are kept.
#[pyfunction]
#[pyo3(signature = (column, *, value=None, length=None, multiple_of=None, truncate=None, side=None, lengths=None, validity=None, dtype=None, nulls=None), text_signature = "(column, *, value=0, length=None, multiple_of=1, truncate=\"error\", side=\"right\", lengths=None, validity=None, dtype=None, nulls=None)")]
#[allow(clippy::too_many_arguments, reason = "one Python keyword each")]
fn padded<'py>(
    py: Python<'py>,
    column: &Bound<'py, PyAny>,
    value: Option<Bound<'py, PyAny>>,
    length: Option<&Bound<'py, PyAny>>,
    multiple_of: Option<&Bound<'py, PyAny>>,
    truncate: Option<&str>,
    side: Option<&str>,
    lengths: Option<String>,
    validity: Option<String>,
    dtype: Option<&Bound<'py, PyAny>>,
    nulls: Option<&Bound<'py, PyAny>>,
) -> PyResult<Group> {
    let value = match value {
        Some(value) => value,
        None => 0_i32.into_pyobject(py)?.into_any(),
    };
    let Some(NullPolicy::Fill(padding)) = answer(py, parse_nulls(&value))? else {
        return Err(PyTypeError::new_err("value must be a number: the padding"));
    };
    let multiple_of = multiple_of.map(|multiple| count("multiple_of", multiple, 1)).transpose()?;
    let pad = Pad::new(padding)
        .length(length.map(|length| count("length", length, 0)).transpose()?)
        .multiple_of(multiple_of.and_then(NonZero::new).unwrap_or(NonZero::<usize>::MIN))
        .truncate(TRUNCATE.parse(truncate.unwrap_or("error"))?)
        .side(SIDE.parse(side.unwrap_or("right"))?);
    pad.check()?;
    let core = Core::padded(one(column)?, pad);
    let core = validity.into_iter().fold(core, Core::validity);
    Group::of(lengths.into_iter().fold(core, Core::lengths), (dtype, nulls), Some(value))
}

/// Returns a column of lists or strings that becomes a `Ragged` of a dict: a value of `columns={...}` in
/// `to_tensors`, `explain` and `Loader`.
///
/// column: the name of a column of lists, large lists, list views, nested lists, strings, binaries or
///     arrow.variable_shape_tensor. Strings are their bytes as uint8.
/// dtype, nulls: as for `to_ragged`, of the elements; None is what the call has for the group, or for all.
#[pyfunction]
#[pyo3(signature = (column, *, dtype=None, nulls=None))]
fn ragged(
    column: &Bound<'_, PyAny>,
    dtype: Option<&Bound<'_, PyAny>>,
    nulls: Option<&Bound<'_, PyAny>>,
) -> PyResult<Group> {
    Group::of(Core::ragged(one(column)?), (dtype, nulls), None)
}

/// Returns columns of any types that are passed through as a `RecordBatch` of a dict: a value of `columns={...}` in
/// `to_tensors`, `explain` and `Loader`.
///
/// The batch has the rows of the other results, and shares memory with the source where they lie in one chunk, in
/// order.
#[pyfunction]
#[pyo3(signature = (*columns))]
fn arrow(columns: &Bound<'_, PyTuple>) -> PyResult<Group> {
    if columns.is_empty() {
        return Err(PyTypeError::new_err("arrow takes the names of the columns that are passed through"));
    }
    let columns = columns.iter().map(|column| one(&column)).collect::<PyResult<Vec<_>>>()?;
    Group::of(Core::arrow(columns), (None, None), None)
}

/// A result for Python: a tensor or the array of another library, a `Ragged`, or a `RecordBatch`.
///
/// # Errors
/// What that library raises.
pub(super) fn for_python<'py>(made: Converted, arrays: &mut Arrays<'py>) -> PyResult<Bound<'py, PyAny>> {
    Ok(match made {
        Converted::Tensor(tensor) => arrays.make(tensor)?,
        Converted::Ragged(rows) => {
            let rows = Ragged::made(*rows, arrays)?;
            Bound::new(arrays.py(), rows)?.into_any()
        }
        Converted::Arrow(batch) => Bound::new(arrays.py(), RecordBatch(batch))?.into_any(),
    })
}

/// The name of a column.
fn one(column: &Bound<'_, PyAny>) -> PyResult<String> {
    match column.cast::<PyString>() {
        Ok(name) => name.extract(),
        Err(_) => Err(PyTypeError::new_err(format!("a column must be a name, not {}", column.repr()?))),
    }
}

/// The group of a pickle.
#[pyfunction]
fn _unpickle_group<'py>(
    py: Python<'py>,
    name: &str,
    columns: &Bound<'py, PyTuple>,
    keywords: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    let made = match name {
        "group" => wrap_pyfunction!(group, py)?,
        "padded" => wrap_pyfunction!(padded, py)?,
        "ragged" => wrap_pyfunction!(ragged, py)?,
        "arrow" => wrap_pyfunction!(arrow, py)?,
        other => return Err(PyTypeError::new_err(format!("no group is made by {other:?}"))),
    };
    made.call(columns, Some(keywords))
}
