//! The class `Array`.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::arrow_dunders::{c_array, c_device_array};
use super::capsule::schema_capsule;
use super::device_request::ToDevice;
use super::dlpack_dunders::{DlpackArguments, copy_of_dlpack, dlpack_device, export_dlpack};
use super::escapes::python_escapes;
use super::exchange::memory;
use super::options::Legacy;
use super::{Device, pickle};
use crate::arrow::DeviceArray;
use crate::error::{Error, ErrorKind, Language};
use crate::spec::{CopyMode, Options};
use crate::tensor::Tensor;

/// An Arrow array with its field, in any library's memory.
///
/// The device dunder accepts `requested_device=`, a pair (device_type, device_id) or a device type, and moves
/// the data there. With `sync="host"` it waits until the data is written and exports no event, for consumers
/// that ignore events.
#[pyclass(frozen, module = "arrow_dlpack")]
#[derive(Debug)]
pub struct Array(pub(crate) DeviceArray);

impl Array {
    /// An array for Python.
    #[must_use]
    pub fn new(array: DeviceArray) -> Self {
        Self(array)
    }

    /// The tensor that `__dlpack__` exports, with the type of the array.
    pub(super) fn tensor(&self, copy: CopyMode) -> crate::error::Result<Tensor> {
        crate::column::to_tensor(&self.0, &Options::default().copy(copy)).map_err(with_options_elsewhere)
    }
}

#[pymethods]
impl Array {
    /// The Arrow type, as text.
    #[getter]
    fn r#type(&self) -> String {
        self.0.field().data_type().to_string()
    }

    /// The field's name; empty where the producer gave none.
    #[getter]
    fn name(&self) -> &str {
        self.0.field().name()
    }

    /// Whether the field allows nulls.
    #[getter]
    fn nullable(&self) -> bool {
        self.0.field().is_nullable()
    }

    /// The memory's device.
    #[getter]
    fn device(&self) -> Device {
        Device(self.0.device())
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// Returns the data on another device: itself if it is there, the same memory if that device reaches it, else a
    /// copy of what the rows need. A result on the CPU is complete.
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
        let own = slf.get().0.device();
        let transfer = ToDevice::read(own, device, stream, threads)?;
        if transfer.device == own {
            return Ok(slf.unbind());
        }
        Py::new(slf.py(), Self(transfer.array(slf.py(), &slf.get().0)?))
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        schema_capsule(py, self.0.field())
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        c_array(py, &self.0, requested_schema)
    }

    #[pyo3(signature = (requested_schema=None, **kwargs))]
    fn __arrow_c_device_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        c_device_array(py, &self.0, requested_schema, kwargs)
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
        let tensor = self.tensor(super::options::copy_mode(copy.filter(|copy| !copy)))?;
        // A copy that the conversion has just made is the consumer's own already.
        let arguments = DlpackArguments { stream, max_version, dl_device, copy };
        export_dlpack(py, &tensor, Legacy::Copy, tensor.is_copied(), &arguments)
    }

    /// Pickles by value: host memory alone, out of band from protocol 5 on.
    fn __reduce_ex__<'py>(&self, py: Python<'py>, protocol: u32) -> PyResult<Bound<'py, PyTuple>> {
        pickle::array(py, &self.0, protocol)
    }

    /// The same memory under another object.
    fn __copy__(&self) -> Self {
        Self(self.0.clone())
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        dlpack_device(self.0.device())
    }

    fn __repr__(&self) -> String {
        let field = self.0.field();
        let name = if field.name().is_empty() { String::new() } else { format!("{:?}, ", field.name()) };
        let what = python_escapes(&format!("{name}{}", field.data_type()));
        format!("Array({what}, length={}, device={})", self.0.len(), self.0.device())
    }
}

/// Says in the remedy where the options are that it names: `__dlpack__` has those of copies alone.
fn with_options_elsewhere(error: Error) -> Error {
    match error.remedy_in(Language::Python) {
        Some(remedy) if error.kind() != ErrorKind::Copy && remedy.contains('=') => {
            error.remedy_is(format!("{remedy} (the options are arrow_dlpack.to_tensor's)"))
        }
        _ => error,
    }
}
