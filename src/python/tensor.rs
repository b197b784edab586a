//! The class `Tensor`: DLPack, Arrow and the buffer protocol.
#![allow(unsafe_code, reason = "fills the C struct of the buffer protocol")]

use std::ffi::{CStr, c_char, c_int};

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::arrow_dunders::{c_array, c_device_array};
use super::capsule::schema_capsule;
use super::dlpack_dunders::{DlpackArguments, dlpack, dlpack_device};
use super::options::Legacy;
use super::{Device, device};
use crate::dtype::DType;
use crate::spec::{CopyMode, TensorField};

/// Strided n-dimensional data of one dtype on one device, in any library's memory.
///
/// Views of Arrow data are read-only: Arrow memory is immutable.
#[pyclass(frozen, module = "arrow_dlpack")]
#[derive(Debug)]
pub struct Tensor {
    tensor: crate::Tensor,
    legacy: Legacy,
}

impl Tensor {
    /// A tensor for Python.
    #[must_use]
    pub fn new(tensor: crate::Tensor) -> Self {
        Self { tensor, legacy: Legacy::default() }
    }

    pub(super) fn with_legacy(tensor: crate::Tensor, legacy: Legacy) -> Self {
        Self { tensor, legacy }
    }

    /// The tensor itself.
    #[must_use]
    pub fn tensor(&self) -> &crate::Tensor {
        &self.tensor
    }
}

#[pymethods]
impl Tensor {
    /// The element type's name, such as "float32".
    #[getter]
    fn dtype(&self) -> &'static str {
        self.tensor.dtype().name()
    }

    /// The extents.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.tensor.shape())
    }

    /// The strides, in elements.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.tensor.strides())
    }

    /// The number of dimensions.
    #[getter]
    fn ndim(&self) -> usize {
        self.tensor.ndim()
    }

    /// The number of elements.
    #[getter]
    fn size(&self) -> usize {
        self.tensor.len()
    }

    /// Bytes of all elements.
    #[getter]
    fn nbytes(&self) -> usize {
        self.tensor.nbytes()
    }

    /// The memory's device.
    #[getter]
    fn device(&self) -> Device {
        Device(self.tensor.device())
    }

    /// Whether consumers may write to the memory.
    #[getter]
    fn writable(&self) -> bool {
        self.tensor.is_writable()
    }

    /// Whether the conversion that made this tensor copied its elements.
    #[getter]
    fn copied(&self) -> bool {
        self.tensor.is_copied()
    }

    /// The same data on another device.
    #[pyo3(signature = (device, /, *, stream=None))]
    fn to_device(slf: Bound<'_, Self>, device: &Bound<'_, PyAny>, stream: Option<&Bound<'_, PyAny>>) -> PyResult<Py<Self>> {
        if stream.is_some() {
            return Err(PyBufferError::new_err("stream must be None for host memory"));
        }
        device::require(slf.get().tensor.device(), device::extract(device)?)?;
        Ok(slf.unbind())
    }

    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<&Bound<'py, PyAny>>,
        dl_device: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        dlpack(py, &self.tensor, self.legacy, &DlpackArguments { stream, max_version, dl_device, copy })
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        dlpack_device(self.tensor.device())
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let tensor = &self.tensor;
        schema_capsule(py, &TensorField::new(tensor.dtype(), tensor.shape(), tensor.strides(), tensor.field())?.field)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        device::require_host(self.tensor.device())?;
        c_array(py, &crate::to_arrow(&self.tensor, None, CopyMode::IfNeeded)?, requested_schema)
    }

    #[pyo3(signature = (requested_schema=None, **kwargs))]
    fn __arrow_c_device_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        c_device_array(py, &crate::to_arrow(&self.tensor, None, CopyMode::IfNeeded)?, requested_schema, kwargs)
    }

    fn __len__(&self) -> PyResult<usize> {
        match self.tensor.shape().first() {
            Some(extent) => Ok(usize::try_from(*extent).unwrap_or(0)),
            None => Err(pyo3::exceptions::PyTypeError::new_err("a 0-d tensor has no length")),
        }
    }

    fn __repr__(&self) -> String {
        let tensor = &self.tensor;
        let shape: Vec<String> = tensor.shape().iter().map(ToString::to_string).collect();
        let comma = if shape.len() == 1 { "," } else { "" };
        let how = match (tensor.is_copied(), tensor.is_writable()) {
            (false, true) => "view, writable",
            (false, false) => "view, read-only",
            (true, true) => "copy, writable",
            (true, false) => "copy, read-only",
        };
        let origin = tensor.field().map_or_else(String::new, |field| format!(", from {}", field.data_type()));
        format!("Tensor({}, shape=({}{comma}), device={}, {how}{origin})", tensor.dtype(), shape.join(", "), tensor.device())
    }

    /// # Safety
    /// The buffer protocol: `view` is a struct to fill.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        // SAFETY: the protocol gives a struct that only we use during the call, or NULL.
        let Some(view) = (unsafe { view.as_mut() }) else {
            return Err(PyBufferError::new_err("the buffer view is NULL"));
        };
        view.obj = std::ptr::null_mut();
        fill_buffer(&slf.get().tensor, view, flags)?;
        view.obj = slf.into_any().into_ptr();
        Ok(())
    }

    /// # Safety
    /// The buffer protocol: `view` was filled by `__getbuffer__`.
    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: the protocol gives the struct that we filled.
        let Some(view) = (unsafe { view.as_mut() }) else { return };
        if !view.internal.is_null() {
            // SAFETY: `internal` is the box that `fill_buffer` leaked, given back once.
            drop(unsafe { Box::from_raw(view.internal.cast::<BufferDims>()) });
            view.internal = std::ptr::null_mut();
        }
    }
}

/// Shape and strides (in bytes) of a buffer view, one after the other.
struct BufferDims(Vec<isize>);

/// Fills a view but for its owner (<https://docs.python.org/3/c-api/buffer.html>).
fn fill_buffer(tensor: &crate::Tensor, view: &mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
    let refuse = |reason: &str| Err(PyBufferError::new_err(reason.to_owned()));
    let wants = |flag: c_int| flags & flag == flag;
    if !tensor.device().is_cpu() {
        return refuse("the buffer protocol reaches host memory only");
    }
    let Some(format) = buffer_format(tensor.dtype()) else {
        return refuse(&format!("the buffer protocol has no format for {}", tensor.dtype()));
    };
    if wants(ffi::PyBUF_WRITABLE) && !tensor.is_writable() {
        return refuse("the tensor is read-only; convert with writable=True for memory of its own");
    }
    let row_major = tensor.is_row_major();
    if !row_major && (!wants(ffi::PyBUF_STRIDES) || wants(ffi::PyBUF_C_CONTIGUOUS)) {
        return refuse("the tensor is strided, and the consumer asks for row-major memory");
    }
    if wants(ffi::PyBUF_F_CONTIGUOUS) && !is_column_major(tensor) {
        return refuse("the consumer asks for column-major memory");
    }
    if wants(ffi::PyBUF_ANY_CONTIGUOUS) && !row_major && !is_column_major(tensor) {
        return refuse("the tensor is strided, and the consumer asks for contiguous memory");
    }
    let overflow = |_| PyBufferError::new_err("the tensor is larger than a buffer can be");
    let itemsize = isize::try_from(tensor.dtype().itemsize()).map_err(overflow)?;
    let mut dims = Vec::with_capacity(tensor.ndim() * 2);
    for extent in tensor.shape() {
        dims.push(isize::try_from(*extent).map_err(overflow)?);
    }
    for stride in tensor.strides() {
        // The tensor's byte span fits the address space, so that each step does.
        dims.push(isize::try_from(*stride).map_err(overflow)?.saturating_mul(itemsize));
    }
    view.len = isize::try_from(tensor.nbytes()).map_err(overflow)?;
    view.ndim = c_int::try_from(tensor.ndim()).map_err(overflow)?;
    view.itemsize = itemsize;
    view.readonly = c_int::from(!tensor.is_writable());
    // Some consumers take NULL for a failure, also at size 0.
    view.buf = if tensor.is_empty() { std::ptr::dangling_mut::<u64>().cast() } else { tensor.as_ptr().cast() };
    view.format = if wants(ffi::PyBUF_FORMAT) { format.as_ptr().cast_mut().cast::<c_char>() } else { std::ptr::null_mut() };
    view.suboffsets = std::ptr::null_mut();
    let dims = Box::leak(Box::new(BufferDims(dims)));
    let start = dims.0.as_mut_ptr();
    view.shape = if wants(ffi::PyBUF_ND) { start } else { std::ptr::null_mut() };
    view.strides = if wants(ffi::PyBUF_STRIDES) { start.wrapping_add(tensor.ndim()) } else { std::ptr::null_mut() };
    view.internal = std::ptr::from_mut(dims).cast();
    Ok(())
}

fn is_column_major(tensor: &crate::Tensor) -> bool {
    let mut expected = 1_i64;
    tensor.is_empty()
        || tensor.shape().iter().zip(tensor.strides()).all(|(extent, stride)| {
            let dense = *extent == 1 || *stride == expected;
            expected = expected.saturating_mul(*extent);
            dense
        })
}

/// The `struct` format of a dtype, in native size and order.
fn buffer_format(dtype: DType) -> Option<&'static CStr> {
    Some(match dtype {
        DType::Bool => c"?",
        DType::Int8 => c"b",
        DType::Int16 => c"h",
        DType::Int32 => c"i",
        DType::Int64 => c"q",
        DType::UInt8 => c"B",
        DType::UInt16 => c"H",
        DType::UInt32 => c"I",
        DType::UInt64 => c"Q",
        DType::Float16 => c"e",
        DType::Float32 => c"f",
        DType::Float64 => c"d",
        DType::Complex64 => c"Zf",
        DType::Complex128 => c"Zd",
        _ => return None,
    })
}
