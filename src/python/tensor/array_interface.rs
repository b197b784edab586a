//! Exports a [`Tensor`] by NumPy's array interface (<https://numpy.org/doc/stable/reference/arrays.interface.html>),
//! which XGBoost and others ask for first.

use pyo3::exceptions::PyAttributeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::dtype::{DType, Kind};
use crate::tensor::Tensor;

/// The dict of the interface, version 3. The reader of the memory keeps the tensor alive.
///
/// # Errors
/// `AttributeError` where there is no such interface: for memory that is not the host's, and dtypes NumPy has no name for.
pub(super) fn array_interface<'py>(py: Python<'py>, tensor: &Tensor) -> PyResult<Bound<'py, PyDict>> {
    if !tensor.device().is_cpu() {
        return Err(PyAttributeError::new_err("__array_interface__ reaches host memory only"));
    }
    let Some(typestr) = typestr(tensor.dtype()) else {
        return Err(PyAttributeError::new_err(format!("__array_interface__ has no type for {}", tensor.dtype())));
    };
    // A tensor's byte span fits the address space, and so does each step that it takes.
    let itemsize = i64::try_from(tensor.dtype().itemsize()).unwrap_or(1);
    let strides = tensor.strides().iter().map(|stride| stride.saturating_mul(itemsize));
    // Pillow reads no strides.
    let strides = (!tensor.is_row_major()).then(|| PyTuple::new(py, strides.collect::<Vec<_>>())).transpose()?;
    // Some consumers take NULL for a failure, also at size 0.
    let start = if tensor.is_empty() { std::ptr::dangling::<u64>().addr() } else { tensor.as_ptr().addr() };
    let interface = PyDict::new(py);
    interface.set_item(intern!(py, "version"), 3)?;
    interface.set_item(intern!(py, "typestr"), typestr)?;
    interface.set_item(intern!(py, "shape"), PyTuple::new(py, tensor.shape())?)?;
    interface.set_item(intern!(py, "strides"), strides)?;
    interface.set_item(intern!(py, "data"), (start, !tensor.is_writable()))?;
    Ok(interface)
}

/// The name that NumPy's array interface has for a dtype.
pub(super) fn typestr(dtype: DType) -> Option<String> {
    let kind = match dtype.kind() {
        Kind::Bool => 'b',
        Kind::Int => 'i',
        Kind::UInt => 'u',
        Kind::Float if dtype.to_arrow().is_some() => 'f',
        Kind::Float => return None,
        Kind::Complex => 'c',
    };
    let order = if dtype.itemsize() == 1 { '|' } else { '<' };
    Some(format!("{order}{kind}{}", dtype.itemsize()))
}

/// The dtype that goes by a name of NumPy's array interface, little-endian.
pub(super) fn dtype_of(name: &str) -> Option<DType> {
    DType::ALL.iter().copied().find(|dtype| {
        typestr(*dtype).is_some_and(|own| {
            // A single byte has no order, whatever is said of it.
            own == name || dtype.itemsize() == 1 && name.starts_with(['<', '>', '=']) && own.get(1..) == name.get(1..)
        })
    })
}
