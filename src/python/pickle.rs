//! Pickles tensors, arrays and ragged rows by value: what `__reduce_ex__` of their classes returns.

use arrow_buffer::Buffer;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use super::{Tensor, device};
use crate::arrow::{DeviceArray, FieldParts};
use crate::convert::{ArrayParts, PICKLED, compact, take_apart};
use crate::ragged::Ragged;
use crate::spec::{CopyMode, TensorField};
use crate::tensor::Tensor as Core;

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
/// `dictionary` is the tensor's own, as Python has it.
///
/// # Errors
/// For memory that is not the host's.
pub(super) fn tensor<'py>(
    py: Python<'py>,
    tensor: &Core,
    dictionary: Option<Bound<'py, PyAny>>,
    protocol: u32,
) -> PyResult<Bound<'py, PyTuple>> {
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
    // Categories of codes stay with them, whether or not a field says what they are.
    let dictionary = dictionary.filter(|_| field.is_some() || tensor.field().is_none());
    let (shape, strides) = (PyTuple::new(py, dense.shape())?, PyTuple::new(py, dense.strides())?);
    let arguments = (tensor.dtype().name(), shape, strides, bytes, field, dictionary);
    (rebuild(py, "_unpickle_tensor")?, arguments).into_pyobject(py)
}

/// `__reduce_ex__` of ragged rows: their parts as Python has them, and the field that they came from.
///
/// # Errors
/// For memory that is not the host's.
pub(super) fn ragged<'py>(
    py: Python<'py>,
    ragged: &Ragged,
    parts: [Option<&Py<PyAny>>; 5],
) -> PyResult<Bound<'py, PyTuple>> {
    device::require_host(ragged.offsets().device())?;
    let form = ragged.to_arrow(CopyMode::IfNeeded)?;
    let field = ragged.field().filter(|field| *field == form.field());
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
