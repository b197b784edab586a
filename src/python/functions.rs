//! The module's functions.

use arrow_schema::FieldRef;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3::wrap_pyfunction;

use super::input::{self, ArrowInput, Chunks, no_protocol};
use super::matrix::{MatrixKeywords, column_into, is_matrix, matrix_into, no_columns};
use super::options::{ConversionOptions, ElementKeywords, Legacy, copy_mode};
use super::stream::wrap;
use super::{ArrayStream, CopyLog, Report, Tensor, device};
use crate::arrow::DeviceArray;
use crate::batch::to_tensors_by;
use crate::column::chunks_to_tensor_by;
use crate::error::Result;
use crate::plan::Plan;
use crate::spec::{CopyMode, Options};
use crate::tensor::Tensor as CoreTensor;

/// Conversions that move fewer bytes keep the interpreter: letting go of it and taking it back costs more than they do.
pub(super) const DETACH_FROM: usize = 1 << 16;

pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(to_tensor, module)?)?;
    module.add_function(wrap_pyfunction!(to_tensors, module)?)?;
    module.add_function(wrap_pyfunction!(super::ragged::to_ragged, module)?)?;
    module.add_function(wrap_pyfunction!(validity, module)?)?;
    module.add_function(wrap_pyfunction!(to_arrow, module)?)?;
    module.add_function(wrap_pyfunction!(from_dlpack, module)?)?;
    module.add_function(wrap_pyfunction!(from_arrow, module)?)?;
    module.add_function(wrap_pyfunction!(explain, module)?)?;
    module.add_function(wrap_pyfunction!(track_copies, module)?)
}

/// Runs the last step of conversions, without the interpreter where it can take long.
fn runner(py: Python<'_>) -> impl Fn(&Plan, &(dyn Fn() -> Result<CoreTensor> + Sync)) -> Result<CoreTensor> {
    move |plan, convert| if plan.bytes < DETACH_FROM { convert() } else { py.detach(convert) }
}

/// The tensor for Python, or the array that another library makes of it.
pub(super) fn finish<'py>(
    py: Python<'py>,
    tensor: CoreTensor,
    legacy: Legacy,
    xp: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let tensor = Bound::new(py, Tensor::with_legacy(tensor, legacy))?.into_any();
    let Some(xp) = xp else { return Ok(tensor) };
    match xp.getattr_opt(intern!(py, "from_dlpack"))? {
        Some(from_dlpack) => from_dlpack.call1((tensor,)),
        None => {
            Err(PyTypeError::new_err(format!("xp must be an array namespace with from_dlpack, and is {}", xp.repr()?)))
        }
    }
}

/// Refuses a device that the data is not on.
pub(super) fn require_device(chunks: &Chunks, asked: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    let Some(asked) = asked else { return Ok(()) };
    let asked = device::extract(asked)?;
    let own = chunks.arrays.first().map_or(crate::device::Device::CPU, DeviceArray::device);
    device::require(own, asked)
}

/// Converts an array, a chunked array or a column into a tensor of shape (rows, *inner).
///
/// A view where layout and options allow it: it shares memory with the source and is read-only. Else one pass over
/// the data into fresh memory, which `track_copies` records.
///
/// obj: anything with an Arrow dunder, or a tensor.
/// dtype: a name such as "float32", or what prints as one; casts are checked, value by value.
/// nulls: "error", "nan", "keep" (slots unspecified in a view, zero in a copy; see `validity`), or a number to fill
///     them with.
/// decimal: "unscaled" for the integers that decimals are stored as; else their values, which need a dtype unless the
///     scale is 0.
/// dictionary: "codes" for the indices into a dictionary, "values" for what they stand for; None is the codes, or the
///     values where a dtype is asked for. Chunks with different dictionaries have no codes in common: an error.
///
/// Each of these can be a dict by column name.
///
/// device: where the result must be.
/// copy: None as needed, False never (an error), True always.
/// writable: memory that nobody else sees.
/// legacy: what an unversioned DLPack capsule of read-only memory holds: "copy", "view" or "error".
/// xp: an array namespace (numpy, torch, ...) whose array is returned instead.
///
/// Raises ConversionError (a BufferError and a ValueError) naming column, row, reason and remedy; TypeError for an
/// object that speaks neither protocol.
#[pyfunction]
#[pyo3(signature = (obj, *, dtype=None, nulls=None, order="C", columns=None, decimal=None, dictionary=None, device=None, copy=None, writable=false, legacy="copy", out=None, threads=None, xp=None), text_signature = "(obj, *, dtype=None, nulls=\"error\", order=\"C\", columns=None, decimal=None, dictionary=None, device=None, copy=None, writable=False, legacy=\"copy\", out=None, threads=None, xp=None)")]
#[allow(clippy::too_many_arguments, reason = "one Python keyword each")]
fn to_tensor<'py>(
    py: Python<'py>,
    obj: &Bound<'py, PyAny>,
    dtype: Option<&Bound<'py, PyAny>>,
    nulls: Option<&Bound<'py, PyAny>>,
    order: &str,
    columns: Option<Vec<String>>,
    decimal: Option<&Bound<'py, PyAny>>,
    dictionary: Option<&Bound<'py, PyAny>>,
    device: Option<&Bound<'py, PyAny>>,
    copy: Option<bool>,
    writable: bool,
    legacy: &str,
    out: Option<&Bound<'py, PyAny>>,
    threads: Option<i64>,
    xp: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let legacy = Legacy::parse(legacy)?;
    let matrix = MatrixKeywords::read(order, threads)?;
    if out.is_some() && xp.is_some() {
        return Err(PyValueError::new_err("out is returned as it is: pass out or xp, not both"));
    }
    // Read before the data: a wrong option must not consume a stream.
    let keywords = ElementKeywords { dtype, nulls, decimal, dictionary };
    let by_column = match keywords.are_defaults() {
        true => None,
        false => Some(ConversionOptions::read(keywords, copy, writable)?),
    };
    let chunks = Chunks::read(obj, copy_mode(copy))?;
    require_device(&chunks, device)?;
    if is_matrix(&chunks) {
        let options = match by_column {
            None => ConversionOptions::read(keywords, copy, writable)?,
            Some(options) => options,
        };
        options.check_columns(chunks.field())?;
        return match out {
            None => finish(py, super::matrix::matrix(py, &chunks, columns, &matrix, &options)?, legacy, xp),
            Some(out) => matrix_into(out, &chunks, columns, &matrix, &options).map(|()| out.clone()),
        };
    }
    if columns.is_some() {
        return Err(no_columns(&chunks).into());
    }
    let options = match by_column {
        None => Options::default().copy(copy_mode(copy)).writable(writable),
        Some(options) => {
            options.check_columns(chunks.field())?;
            options.of(chunks.field().name())
        }
    };
    let options = chunks.natural(options);
    if let Some(out) = out {
        return column_into(out, &chunks, options, &matrix).map(|()| out.clone());
    }
    let tensor = chunks_to_tensor_by(chunks.field(), &chunks.arrays, &options, &runner(py))?;
    finish(py, tensor, legacy, xp)
}

/// Converts columns of a record batch or table into tensors: a dict by name, in the order of `columns` (default all).
///
/// The other keywords are those of `to_tensor`. Nulls of a row are nulls in each of its columns.
#[pyfunction]
#[pyo3(signature = (obj, *, columns=None, dtype=None, nulls=None, decimal=None, dictionary=None, device=None, copy=None, writable=false, legacy="copy", xp=None), text_signature = "(obj, *, columns=None, dtype=None, nulls=\"error\", decimal=None, dictionary=None, device=None, copy=None, writable=False, legacy=\"copy\", xp=None)")]
#[allow(clippy::too_many_arguments, reason = "one Python keyword each")]
fn to_tensors<'py>(
    py: Python<'py>,
    obj: &Bound<'py, PyAny>,
    columns: Option<Vec<String>>,
    dtype: Option<&Bound<'py, PyAny>>,
    nulls: Option<&Bound<'py, PyAny>>,
    decimal: Option<&Bound<'py, PyAny>>,
    dictionary: Option<&Bound<'py, PyAny>>,
    device: Option<&Bound<'py, PyAny>>,
    copy: Option<bool>,
    writable: bool,
    legacy: &str,
    xp: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let options = ConversionOptions::read(ElementKeywords { dtype, nulls, decimal, dictionary }, copy, writable)?;
    let legacy = Legacy::parse(legacy)?;
    let chunks = Chunks::read(obj, copy_mode(copy))?;
    options.check_columns(chunks.field())?;
    require_device(&chunks, device)?;
    let options = |column: &str| options.of(column);
    let tensors = to_tensors_by(chunks.field(), &chunks.arrays, columns.as_deref(), options, &runner(py))?;
    let named = PyDict::new(py);
    for (name, tensor) in tensors {
        named.set_item(name, finish(py, tensor, legacy, xp)?)?;
    }
    Ok(named)
}

/// A bool for each value, True where it is valid, in the shape of the values. A null list makes all its elements null.
#[pyfunction]
#[pyo3(signature = (obj, *, device=None, xp=None), text_signature = "(obj, *, device=None, xp=None)")]
fn validity<'py>(
    py: Python<'py>,
    obj: &Bound<'py, PyAny>,
    device: Option<&Bound<'py, PyAny>>,
    xp: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let chunks = Chunks::read(obj, CopyMode::IfNeeded)?;
    require_device(&chunks, device)?;
    let tensor = py.detach(|| crate::column::validity(chunks.field(), &chunks.arrays))?;
    finish(py, tensor, Legacy::Copy, xp)
}

/// Converts a tensor into an Arrow array: n-d as arrow.fixed_shape_tensor rows, 0-d as one row, bools as arrow.bool8.
///
/// A view where the layout allows it. A tensor that came from Arrow returns to its type.
///
/// x: anything with `__dlpack__`, or a Ragged, which becomes a list array.
/// type: an Arrow type or field to return instead, exactly: a value that it cannot hold is an error.
/// validity: a bool for each row, True where it is valid; becomes the validity bitmap.
/// copy: None as needed, False never (an error), True always.
/// device: where the result must be.
#[pyfunction]
#[pyo3(signature = (x, *, r#type=None, validity=None, copy=None, device=None), text_signature = "(x, *, type=None, validity=None, copy=None, device=None)")]
fn to_arrow<'py>(
    py: Python<'py>,
    x: &Bound<'py, PyAny>,
    r#type: Option<&Bound<'py, PyAny>>,
    validity: Option<&Bound<'py, PyAny>>,
    copy: Option<bool>,
    device: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let copy = copy_mode(copy);
    let device = device.map(device::extract).transpose()?;
    if let Ok(ragged) = x.cast_exact::<super::Ragged>() {
        return super::ragged::to_arrow(ragged, r#type, validity, copy, device);
    }
    let tensor = input::dlpack(x, device, if copy == CopyMode::Always { CopyMode::IfNeeded } else { copy })?;
    let tensor = tensor.ok_or_else(|| {
        PyTypeError::new_err("to_arrow expects a tensor (with __dlpack__); Arrow data goes through from_arrow")
    })?;
    let valid = validity.map(validity_tensor).transpose()?;
    let requested = match r#type {
        None => None,
        Some(object) => Some(
            input::schema(object)?
                .ok_or_else(|| PyTypeError::new_err("type must be an Arrow type or field, with __arrow_c_schema__"))?,
        ),
    };
    let array = py.detach(|| match requested {
        None => crate::column::to_arrow(&tensor, valid.as_ref(), copy),
        Some(requested) => crate::column::to_arrow_as(&tensor, valid.as_ref(), &requested, copy),
    })?;
    wrap(py, array)
}

/// A validity argument as a bool tensor: a tensor of bools, or a boolean array.
fn validity_tensor(object: &Bound<'_, PyAny>) -> PyResult<crate::tensor::Tensor> {
    let chunks = Chunks::read(object, CopyMode::IfNeeded)?;
    Ok(crate::column::chunks_to_tensor(chunks.field(), &chunks.arrays, &Options::default())?)
}

/// Imports a tensor, as `from_dlpack` of the array API standard.
///
/// device: where the result must be. copy: None as needed, False never (an error), True always, in memory of its own.
#[pyfunction]
#[pyo3(signature = (x, /, *, device=None, copy=None), text_signature = "(x, /, *, device=None, copy=None)")]
fn from_dlpack(x: &Bound<'_, PyAny>, device: Option<&Bound<'_, PyAny>>, copy: Option<bool>) -> PyResult<Tensor> {
    let device = device.map(device::extract).transpose()?;
    let tensor = input::dlpack(x, device, copy_mode(copy))?;
    let tensor = tensor.ok_or_else(|| {
        let name = x.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string());
        PyTypeError::new_err(format!("expected a tensor (with __dlpack__), got {name}"))
    })?;
    Ok(Tensor::new(tensor))
}

/// Imports Arrow data: an Array, a RecordBatch for structs, an ArrayStream for streams. Memory is shared unless
/// copy=True.
#[pyfunction]
#[pyo3(signature = (obj, *, device=None, copy=None), text_signature = "(obj, *, device=None, copy=None)")]
fn from_arrow<'py>(
    py: Python<'py>,
    obj: &Bound<'py, PyAny>,
    device: Option<&Bound<'py, PyAny>>,
    copy: Option<bool>,
) -> PyResult<Bound<'py, PyAny>> {
    let asked = device.map(device::extract).transpose()?;
    let require = |own: crate::device::Device| asked.map_or(Ok(()), |asked| device::require(own, asked));
    let copied = copy == Some(true);
    match input::arrow(obj)? {
        Some(ArrowInput::Array(array)) => {
            require(array.device())?;
            wrap(py, if copied { py.detach(|| crate::convert::copy_array(&array))? } else { array })
        }
        Some(ArrowInput::Stream(stream)) => {
            require(crate::device::Device::new(stream.device_type(), 0))?;
            let stream = if copied {
                let (field, device_type) = (stream.field().clone(), stream.device_type());
                let arrays = stream.map(|array| crate::convert::copy_array(&array?));
                crate::arrow::DeviceArrayStream::new(field, device_type, arrays)
            } else {
                stream
            };
            Ok(Bound::new(py, ArrayStream::new(stream))?.into_any())
        }
        None => {
            let tensor = input::dlpack(obj, asked, copy_mode(copy))?.ok_or_else(|| no_protocol(obj))?;
            // A copy that was asked for is made by now.
            let allowed = if copied { CopyMode::IfNeeded } else { copy_mode(copy) };
            wrap(py, crate::column::to_arrow(&tensor, None, allowed)?)
        }
    }
}

/// What `to_tensor` or `to_tensors` would do with this data, or with any data of this schema: a printable Report with a
/// row for each column. Of one column of lists or strings: what `to_ragged` would do, with a row for each part. Reads no
/// stream.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "one Python keyword each")]
#[pyo3(signature = (obj_or_schema, *, columns=None, dtype=None, nulls=None, decimal=None, dictionary=None, copy=None, writable=false), text_signature = "(obj_or_schema, *, columns=None, dtype=None, nulls=\"error\", decimal=None, dictionary=None, copy=None, writable=False)")]
fn explain(
    obj_or_schema: &Bound<'_, PyAny>,
    columns: Option<Vec<String>>,
    dtype: Option<&Bound<'_, PyAny>>,
    nulls: Option<&Bound<'_, PyAny>>,
    decimal: Option<&Bound<'_, PyAny>>,
    dictionary: Option<&Bound<'_, PyAny>>,
    copy: Option<bool>,
    writable: bool,
) -> PyResult<Report> {
    let options = ConversionOptions::read(ElementKeywords { dtype, nulls, decimal, dictionary }, copy, writable)?;
    let columns = columns.as_deref();
    let of = |column: &str| options.of(column);
    let report = match explainable(obj_or_schema)? {
        Explainable::Array(array) => {
            options.check_columns(array.field())?;
            crate::explain::explain(array.field(), std::slice::from_ref(&array), columns, of)
        }
        Explainable::Schema(field) => {
            options.check_columns(&field)?;
            crate::explain::explain_schema(&field, columns, of)
        }
        Explainable::Tensor(tensor) => crate::explain::explain_tensor(&tensor, of),
    }?;
    Ok(Report(report))
}

/// What can be explained without reading a stream.
enum Explainable {
    Array(DeviceArray),
    Schema(FieldRef),
    Tensor(CoreTensor),
}

fn explainable(object: &Bound<'_, PyAny>) -> PyResult<Explainable> {
    let py = object.py();
    let has = |dunder| object.hasattr(dunder);
    let is_tensor = object.is_exact_instance_of::<Tensor>();
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

/// A log of every copy that this package makes inside a `with` block on this thread: what, why, bytes.
#[pyfunction]
fn track_copies() -> CopyLog {
    CopyLog::default()
}
