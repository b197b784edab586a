//! Pickles tensors and arrays by value, and rebuilds them with the checks of an import.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_buffer::Buffer;
use arrow_schema::FieldRef;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use pyo3::wrap_pyfunction;

use super::stream::wrap;
use super::{Array, Ragged, RecordBatch, Tensor, device};
use crate::arrow::{DeviceArray, FieldParts};
use crate::convert::{ArrayParts, Bytes, PICKLED, compact, put_together, take_apart};
use crate::dtype::DType;
use crate::spec::{CopyMode, Dims, TensorField};
use crate::tensor::Tensor as Core;

pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_unpickle_tensor, module)?)?;
    module.add_function(wrap_pyfunction!(_unpickle_array, module)?)?;
    module.add_function(wrap_pyfunction!(_unpickle_ragged, module)?)
}

/// `__reduce_ex__` of an array or a record batch.
///
/// # Errors
/// For memory that is not the host's, and types that cannot be copied.
pub(super) fn array<'py>(py: Python<'py>, array: &DeviceArray, protocol: u32) -> PyResult<Bound<'py, PyTuple>> {
    device::require_host(array.device())?;
    let parts = py.detach(|| take_apart(array))?;
    let arguments = (field_out(py, &FieldParts::of(array.field())?)?, array_out(py, parts, protocol)?);
    (rebuild(py, "_unpickle_array")?, arguments).into_pyobject(py)
}

/// `__reduce_ex__` of a tensor: a dense one keeps the order of its elements, any other becomes row-major.
///
/// # Errors
/// For memory that is not the host's.
pub(super) fn tensor<'py>(py: Python<'py>, tensor: &Core, protocol: u32) -> PyResult<Bound<'py, PyTuple>> {
    device::require_host(tensor.device())?;
    let dense = match tensor.is_empty() || tensor.in_memory_order().is_some() {
        true => tensor.clone(),
        false => py.detach(|| compact(tensor, PICKLED))?.with_codes_of(tensor),
    };
    let bytes = match dense.bytes_in_memory_order() {
        Some(bytes) => buffer_out(py, bytes, protocol)?,
        None => PyBytes::new(py, &[]).into_any(),
    };
    // A field, and the dictionary with it, only where the elements still are what it says.
    let form =
        tensor.field().map(|field| TensorField::new(tensor.dtype(), dense.shape(), dense.strides(), Some(field)));
    let is_kept = |form: &TensorField| tensor.field() == Some(&form.field);
    let field = form.transpose()?.filter(is_kept).map(|form| FieldParts::of(&form.field)).transpose()?;
    let field = field.map(|field| field_out(py, &field)).transpose()?;
    let dictionary =
        tensor.dictionary().filter(|_| field.is_some()).map(|array| wrap(py, array.clone())).transpose()?;
    let (shape, strides) = (PyTuple::new(py, dense.shape())?, PyTuple::new(py, dense.strides())?);
    let arguments = (tensor.dtype().name(), shape, strides, bytes, field, dictionary);
    (rebuild(py, "_unpickle_tensor")?, arguments).into_pyobject(py)
}

/// `__reduce_ex__` of ragged rows.
///
/// # Errors
/// For memory that is not the host's.
pub(super) fn ragged<'py>(py: Python<'py>, ragged: &Ragged) -> PyResult<Bound<'py, PyTuple>> {
    device::require_host(ragged.ragged().offsets().device())?;
    let (parts, field) = ragged.parts();
    let form = ragged.ragged().to_arrow(CopyMode::IfNeeded)?;
    let field = field.filter(|field| *field == form.field());
    let field = field.map(|field| field_out(py, &FieldParts::of(field)?)).transpose()?;
    let [values, offsets, lengths, shapes, validity] = parts;
    (rebuild(py, "_unpickle_ragged")?, (values, offsets, lengths, shapes, validity, field)).into_pyobject(py)
}

/// A function that builds an object of a pickle again.
pub(super) fn rebuild<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("arrow_dlpack._native")?.getattr(name)
}

/// A buffer: out of band from protocol 5 on, bytes before.
fn buffer_out(py: Python<'_>, bytes: Core, protocol: u32) -> PyResult<Bound<'_, PyAny>> {
    if bytes.is_empty() {
        return Ok(PyBytes::new(py, &[]).into_any());
    }
    let bytes = Bound::new(py, Tensor::new(bytes))?;
    match protocol >= 5 {
        true => py.import("pickle")?.getattr("PickleBuffer")?.call1((bytes,)),
        false => py.import("builtins")?.getattr("bytes")?.call1((bytes,)),
    }
}

fn array_out(py: Python<'_>, parts: ArrayParts<Buffer>, protocol: u32) -> PyResult<Bound<'_, PyTuple>> {
    let out = |buffer: Buffer| buffer_out(py, Core::of_bytes(buffer)?, protocol);
    let nulls = parts.nulls.map(out).transpose()?;
    let buffers = parts.buffers.into_iter().map(out).collect::<PyResult<Vec<_>>>()?;
    let children =
        parts.children.into_iter().map(|child| array_out(py, child, protocol)).collect::<PyResult<Vec<_>>>()?;
    (parts.len, nulls, PyTuple::new(py, buffers)?, PyTuple::new(py, children)?).into_pyobject(py)
}

fn field_out<'py>(py: Python<'py>, parts: &FieldParts) -> PyResult<Bound<'py, PyTuple>> {
    let children = parts.children.iter().map(|child| field_out(py, child)).collect::<PyResult<Vec<_>>>()?;
    let dictionary = parts.dictionary.as_ref().map(|values| field_out(py, values)).transpose()?;
    (&parts.format, &parts.name, parts.flags, &parts.metadata, PyTuple::new(py, children)?, dictionary)
        .into_pyobject(py)
}

/// How deep the tuples of a pickle may be nested: as deep as Arrow data.
const MAX_DEPTH: usize = 64;

fn too_deep() -> PyErr {
    PyValueError::new_err(format!("a pickle of Arrow data nested deeper than {MAX_DEPTH} levels"))
}

fn field_in(object: &Bound<'_, PyAny>, depth: usize) -> PyResult<FieldParts> {
    if depth > MAX_DEPTH {
        return Err(too_deep());
    }
    type Parts<'py> = (String, String, i64, HashMap<String, String>, Vec<Bound<'py, PyAny>>, Option<Bound<'py, PyAny>>);
    let (format, name, flags, metadata, children, dictionary) = object.extract::<Parts<'_>>()?;
    let children = children.iter().map(|child| field_in(child, depth + 1)).collect::<PyResult<_>>()?;
    let dictionary = dictionary.map(|values| field_in(&values, depth + 1)).transpose()?.map(Box::new);
    Ok(FieldParts { format, name, flags, metadata, children, dictionary })
}

fn read_field(object: &Bound<'_, PyAny>) -> PyResult<FieldRef> {
    Ok(Arc::new(field_in(object, 0)?.field()?))
}

fn array_in(object: &Bound<'_, PyAny>, depth: usize) -> PyResult<ArrayParts<Bytes>> {
    if depth > MAX_DEPTH {
        return Err(too_deep());
    }
    type Parts<'py> = (u64, Option<Bound<'py, PyAny>>, Vec<Bound<'py, PyAny>>, Vec<Bound<'py, PyAny>>);
    let (len, nulls, buffers, children) = object.extract::<Parts<'_>>()?;
    // Sizes beyond what Arrow counts would overflow its own arithmetic.
    let len = i64::try_from(len).ok().and_then(|len| usize::try_from(len).ok());
    let len = len.filter(|len| *len <= usize::MAX >> 8);
    Ok(ArrayParts {
        len: len.ok_or_else(|| PyValueError::new_err("a pickle of an array with more slots than memory has bytes"))?,
        nulls: nulls.as_ref().map(bytes_in).transpose()?,
        buffers: buffers.iter().map(bytes_in).collect::<PyResult<_>>()?,
        children: children.iter().map(|child| array_in(child, depth + 1)).collect::<PyResult<_>>()?,
    })
}

/// A copy of what a buffer holds, whatever its elements.
fn bytes_in(object: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    let py = object.py();
    let view = py.import("builtins")?.getattr("memoryview")?.call1((object,))?.call_method1("cast", ("B",))?;
    let buffer = PyBuffer::<u8>::get(&view)?;
    let mut bytes = Bytes::zeroed(buffer.len_bytes())?;
    buffer.copy_to_slice(py, bytes.as_mut())?;
    Ok(bytes)
}

/// The tensor of a pickle: in memory of its own, writable.
#[pyfunction]
fn _unpickle_tensor(
    dtype: &str,
    shape: Vec<i64>,
    strides: Vec<i64>,
    bytes: &Bound<'_, PyAny>,
    field: Option<&Bound<'_, PyAny>>,
    dictionary: Option<&Bound<'_, PyAny>>,
) -> PyResult<Tensor> {
    let dtype: DType = dtype.parse()?;
    let field = field.map(read_field).transpose()?;
    let tensor = bytes_in(bytes)?.tensor(dtype, Dims::from_vec(shape), Dims::from_vec(strides), field)?;
    let Some(dictionary) = dictionary else { return Ok(Tensor::new(tensor)) };
    // A dictionary of structs is a record batch.
    let dictionary = match dictionary.cast::<RecordBatch>() {
        Ok(batch) => batch.get().0.clone(),
        Err(_) => dictionary.cast::<Array>()?.get().0.clone(),
    };
    let (field, copied) = (tensor.field().cloned(), tensor.is_copied());
    Ok(Tensor::new(tensor.with_origin(field, Some(dictionary), copied)?))
}

/// The array or the record batch of a pickle, in memory of its own.
#[pyfunction]
fn _unpickle_array<'py>(field: &Bound<'py, PyAny>, parts: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = field.py();
    let (field, parts) = (read_field(field)?, array_in(parts, 0)?);
    wrap(py, py.detach(|| put_together(&field, parts))?)
}

/// The ragged rows of a pickle.
#[pyfunction]
#[pyo3(signature = (values, offsets, lengths, shapes, validity, field))]
fn _unpickle_ragged(
    values: Option<Bound<'_, PyAny>>,
    offsets: Option<Bound<'_, PyAny>>,
    lengths: Option<Bound<'_, PyAny>>,
    shapes: Option<Bound<'_, PyAny>>,
    validity: Option<Bound<'_, PyAny>>,
    field: Option<&Bound<'_, PyAny>>,
) -> PyResult<Ragged> {
    Ragged::of_parts([values, offsets, lengths, shapes, validity], field.map(read_field).transpose()?)
}
