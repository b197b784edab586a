//! The methods of the class `Tensor`: DLPack, Arrow and the buffer protocol.
#![allow(unsafe_code, reason = "fills the C struct of the buffer protocol, and speaks the C calling convention")]

mod array_interface;
mod buffer;
mod class;
mod cuda_array_interface;
mod fast_dlpack;
mod out;

use std::ffi::c_int;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use array_interface::array_interface;
use buffer::{fill_buffer, release_buffer};
pub use class::Tensor;
use cuda_array_interface::cuda_array_interface;
pub(super) use cuda_array_interface::of_cuda_array_interface;
pub(super) use fast_dlpack::install as install_fast_dlpack;
pub(super) use out::with_output;

use super::arrow_dunders::{c_array, c_device_array, requested_field};
use super::capsule::schema_capsule;
use super::device_request::ToDevice;
use super::dlpack_dunders::{DlpackArguments, copy_of_dlpack, dlpack_device, export_dlpack};
use super::escapes::type_text;
use super::exchange::{TensorClass, exchange_api, memory};
use super::lent::LentTensor;
use super::options::Legacy;
use super::stream::wrap;
use super::{Device, cuda_stream, device, html, pickle};
use crate::arrow::DeviceArray;
use crate::cuda::is_cuda;
use crate::spec::CopyMode;
use crate::stream_order::Wait;

impl Tensor {
    /// The tensor as an array, in the type that `requested_schema` asks for.
    fn as_requested(&self, requested_schema: Option<&Bound<'_, PyAny>>) -> PyResult<DeviceArray> {
        Ok(match requested_field(requested_schema)? {
            None => crate::column::to_arrow(&self.tensor, None, CopyMode::IfNeeded)?,
            Some(field) => crate::column::to_arrow_as(&self.tensor, None, &field, CopyMode::IfNeeded)?,
        })
    }
}

impl TensorClass for Tensor {
    fn lent_tensor(&self) -> &LentTensor {
        &self.tensor
    }

    fn from_lent(tensor: LentTensor) -> PyResult<Self> {
        Ok(Self { tensor, legacy: Legacy::default() })
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

    /// The dictionary that the elements are codes of: `categories=`, or that of a dictionary column. None for other
    /// tensors, and for matrices.
    #[getter]
    fn dictionary<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.tensor.dictionary().map(|array| wrap(py, array.clone())).transpose()
    }

    /// Whether the conversion that made this tensor copied its elements.
    #[getter]
    fn copied(&self) -> bool {
        self.tensor.is_copied()
    }

    /// Returns the data on another device: itself if it is there, the same memory if that device reaches it, else a
    /// copy. A result on the CPU is complete.
    ///
    /// stream: the CUDA stream of the copies; None is this thread's, see `stream`.
    /// threads: the number of threads that copy host memory; None is ARROW_DLPACK_THREADS, or one per core.
    /// allocator: as for `to_tensor`.
    #[pyo3(signature = (device, /, *, stream=None, threads=None, allocator=None))]
    fn to_device(
        slf: Bound<'_, Self>,
        device: &Bound<'_, PyAny>,
        stream: Option<&Bound<'_, PyAny>>,
        threads: Option<&Bound<'_, PyAny>>,
        allocator: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<Self>> {
        let _source = memory::scope(allocator, None)?;
        let tensor = &slf.get().tensor;
        let transfer = ToDevice::read(tensor.device(), device, stream, threads)?;
        if transfer.device == tensor.device() {
            return Ok(slf.unbind());
        }
        let moved = transfer.tensor(slf.py(), tensor)?;
        Py::new(slf.py(), Self::with_legacy(moved, slf.get().legacy))
    }

    /// Names a stream that uses the memory. The memory is freed, or returned to its owner, only behind the work
    /// that the stream has when the last reference is dropped.
    ///
    /// Call it for work on non-blocking streams that no other stream waits for. The stream must live until then: an
    /// object that owns its stream is kept.
    ///
    /// stream: a number as DLPack passes it, or an object that `stream` takes.
    #[pyo3(signature = (stream, /))]
    fn record_stream(&self, stream: &Bound<'_, PyAny>) -> PyResult<()> {
        let Some(readiness) = self.tensor.readiness().filter(|readiness| is_cuda(readiness.device())) else {
            return Err(PyBufferError::new_err(format!("data on {} has no streams", self.tensor.device())));
        };
        let (stream, owner) = (cuda_stream::extract(stream)?, cuda_stream::owner_of(stream));
        Ok(readiness.record_stream_for(stream, Some(owner), Wait::ReleaseBehindRecorded)?)
    }

    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<&Bound<'py, PyAny>>,
        dl_device: Option<&Bound<'py, PyAny>>,
        #[pyo3(from_py_with = copy_of_dlpack)] copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        export_dlpack(py, &self.tensor, self.legacy, false, &DlpackArguments { stream, max_version, dl_device, copy })
    }

    /// The table of C functions of DLPack's exchange API, for consumers in C.
    #[classattr]
    fn __dlpack_c_exchange_api__(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        exchange_api::<Self>(py)
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        dlpack_device(self.tensor.device())
    }

    /// NumPy's array interface, of host memory.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        array_interface(py, &self.tensor)
    }

    /// The CUDA array interface, version 3, of memory that is reached from CUDA devices.
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        cuda_array_interface(py, &self.tensor)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let tensor = &self.tensor;
        schema_capsule(py, &tensor.arrow_form()?.field)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        device::require_host(self.tensor.device())?;
        c_array(py, &self.as_requested(requested_schema)?, None)
    }

    #[pyo3(signature = (requested_schema=None, **kwargs))]
    fn __arrow_c_device_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        c_device_array(py, &self.as_requested(requested_schema)?, None, kwargs)
    }

    fn __len__(&self) -> PyResult<usize> {
        match self.tensor.shape().first() {
            Some(extent) => Ok(usize::try_from(*extent).unwrap_or(0)),
            None => Err(pyo3::exceptions::PyTypeError::new_err("a 0-d tensor has no length")),
        }
    }

    /// Pickles by value: host memory alone, out of band from protocol 5 on.
    fn __reduce_ex__<'py>(&self, py: Python<'py>, protocol: u32) -> PyResult<Bound<'py, PyTuple>> {
        let dictionary = self.tensor.dictionary().map(|array| wrap(py, array.clone())).transpose()?;
        pickle::tensor(py, &self.tensor, dictionary, protocol)
    }

    /// The same memory under another object.
    fn __copy__(&self) -> Self {
        Self { tensor: self.tensor.clone(), legacy: self.legacy }
    }

    fn __repr__(&self) -> String {
        let tensor = &self.tensor;
        let how = match (tensor.is_copied(), tensor.is_writable()) {
            (false, true) => "view, writable",
            (false, false) => "view, read-only",
            (true, true) => "copy, writable",
            (true, false) => "copy, read-only",
        };
        let origin = tensor.field().map(|field| format!(", from {}", type_text(field.data_type()))).unwrap_or_default();
        let shape = html::tuple(tensor.shape());
        format!("Tensor({}, shape={shape}, device={}, {how}{origin})", tensor.dtype(), tensor.device())
    }

    /// A table of the attributes, for notebooks. No element is read.
    fn _repr_html_(&self) -> String {
        let tensor = &self.tensor;
        let flag = |flag: bool| if flag { "True" } else { "False" }.to_owned();
        let mut attributes = vec![
            ("dtype", tensor.dtype().to_string()),
            ("shape", html::tuple(tensor.shape())),
            ("strides", html::tuple(tensor.strides())),
            ("device", tensor.device().to_string()),
            ("nbytes", tensor.nbytes().to_string()),
            ("writable", flag(tensor.is_writable())),
            ("copied", flag(tensor.is_copied())),
        ];
        if let Some(field) = tensor.field() {
            attributes.push(("from", html::field(field)));
        }
        html::attributes("Tensor", &attributes)
    }

    // Without these two Python takes the memory for text, because it is a buffer.
    fn __int__(&self) -> PyResult<Py<PyAny>> {
        Err(no_number())
    }

    fn __float__(&self) -> PyResult<Py<PyAny>> {
        Err(no_number())
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
        // SAFETY: `fill_buffer` filled the view, which is released once.
        unsafe { release_buffer(view) };
    }
}

fn no_number() -> PyErr {
    pyo3::exceptions::PyTypeError::new_err("a Tensor is no number; np.from_dlpack(tensor).item() is its one element")
}
