//! Rebuilds tensors, arrays and ragged rows of a pickle, with the checks of an import.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::FieldRef;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::wrap_pyfunction;

use super::stream::wrap;
use super::{Array, Ragged, RecordBatch, Tensor};
use crate::arrow::{FieldParts, MAX_DEPTH};
use crate::convert::{ArrayParts, PickledBytes, put_together};
use crate::dtype::DType;
use crate::spec::Dims;

pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_unpickle_tensor, module)?)?;
    module.add_function(wrap_pyfunction!(_unpickle_array, module)?)?;
    module.add_function(wrap_pyfunction!(_unpickle_ragged, module)?)
}

fn too_deep() -> PyErr {
    PyValueError::new_err(format!("a pickle of Arrow data nested deeper than {MAX_DEPTH} levels"))
}

fn field_in(object: &Bound<'_, PyAny>, depth: usize) -> PyResult<FieldParts> {
    if depth > MAX_DEPTH {
        return Err(too_deep());
    }
    type PickledField<'py> =
        (String, String, i64, HashMap<String, String>, Vec<Bound<'py, PyAny>>, Option<Bound<'py, PyAny>>);
    let (format, name, flags, metadata, children, dictionary) = object.extract::<PickledField<'_>>()?;
    let children = children.iter().map(|child| field_in(child, depth + 1)).collect::<PyResult<_>>()?;
    let dictionary = dictionary.map(|values| field_in(&values, depth + 1)).transpose()?.map(Box::new);
    Ok(FieldParts { format, name, flags, metadata, children, dictionary })
}

fn read_field(object: &Bound<'_, PyAny>) -> PyResult<FieldRef> {
    Ok(Arc::new(field_in(object, 0)?.field()?))
}

fn array_in(object: &Bound<'_, PyAny>, depth: usize) -> PyResult<ArrayParts<PickledBytes>> {
    if depth > MAX_DEPTH {
        return Err(too_deep());
    }
    type PickledArray<'py> = (u64, Option<Bound<'py, PyAny>>, Vec<Bound<'py, PyAny>>, Vec<Bound<'py, PyAny>>);
    let (len, nulls, buffers, children) = object.extract::<PickledArray<'_>>()?;
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
fn bytes_in(object: &Bound<'_, PyAny>) -> PyResult<PickledBytes> {
    let py = object.py();
    let view = py.import("builtins")?.getattr("memoryview")?.call1((object,))?.call_method1("cast", ("B",))?;
    let buffer = PyBuffer::<u8>::get(&view)?;
    let mut bytes = PickledBytes::zeroed(buffer.len_bytes())?;
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
