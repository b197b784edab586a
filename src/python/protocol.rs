//! The dunders of both protocols, for a class of one's own.
//!
//! An extension module that links this crate gives its own `#[pyclass]` DLPack and Arrow with one line a dunder, and reads
//! arguments with [`input`](super::input):
//!
//! ```no_run
//! use arrow_dlpack::python::protocol::{self, LentTensor};
//! use pyo3::prelude::*;
//! use pyo3::types::{PyDict, PyTuple};
//!
//! #[pyclass(frozen)]
//! struct Column(arrow_dlpack::DeviceArray);
//!
//! #[pymethods]
//! impl Column {
//!     #[pyo3(signature = (**kwargs))]
//!     fn __dlpack__<'py>(&self, py: Python<'py>, kwargs: Option<&Bound<'py, PyDict>>) -> PyResult<Bound<'py, PyAny>> {
//!         let tensor = arrow_dlpack::to_tensor(&self.0)?;
//!         protocol::dlpack(py, &LentTensor::new(tensor), kwargs)
//!     }
//!
//!     fn __dlpack_device__(&self) -> (i32, i32) {
//!         protocol::dlpack_device(self.0.device())
//!     }
//!
//!     #[pyo3(signature = (requested_schema=None, **kwargs))]
//!     fn __arrow_c_device_array__<'py>(
//!         &self,
//!         py: Python<'py>,
//!         requested_schema: Option<&Bound<'py, PyAny>>,
//!         kwargs: Option<&Bound<'py, PyDict>>,
//!     ) -> PyResult<Bound<'py, PyTuple>> {
//!         protocol::c_device_array(py, &self.0, requested_schema, kwargs)
//!     }
//! }
//!
//! #[pymodule]
//! fn frames(module: &Bound<'_, PyModule>) -> PyResult<()> {
//!     protocol::init(module.py())?;
//!     module.add_class::<Column>()
//! }
//! ```
//!
//! Call [`init`] once, in the module's function. `examples/pyclass` is a whole extension with its tests.

use arrow_schema::{Field, FieldRef};
use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};

use super::arrow_dunders::StreamRequest;
use super::dlpack_dunders::{DlpackKeywords, export_dlpack};
use super::exchange::connect;
pub use super::exchange::{PackageObject, TensorClass, exchange_api, into_package};
pub use super::lent::LentTensor;
use super::options::Legacy;
use super::{arrow_dunders, attach, capsule, cuda_stream, dlpack_dunders, exit, producer};
use crate::arrow::{DeviceArray, DeviceArrayStream};
use crate::cuda::Stream;
use crate::device::Device;
use crate::tensor::Tensor;

/// Prepares the process for what this crate exports to Python, and adds no names. It may be called any number of times.
///
/// Connects this extension to the package `arrow_dlpack`, if that is installed: its exceptions are raised, and `ad.stream`,
/// `ad.track_copies` and `allocator=` reach the conversions of this extension (docs/two-copies.md).
///
/// Memory that came through Python is released attached to the interpreter, and left to the end of the process once the
/// interpreter exits. Errors name Python's keywords, and waits for a device end at signals.
///
/// # Errors
/// `ImportError` in a subinterpreter, because PyO3's classes belong to one interpreter, and if the installed package has a table of
/// another version than this extension was built with.
pub fn init(py: Python<'_>) -> PyResult<()> {
    prepare(py)?;
    connect(py).map(drop)
}

/// As [`init`], and connects to nothing: of the package itself.
pub(super) fn prepare(py: Python<'_>) -> PyResult<()> {
    static READY: PyOnceLock<()> = PyOnceLock::new();
    if capsule::interpreter_id(py) != 0 {
        return Err(PyImportError::new_err("arrow_dlpack cannot be imported in a subinterpreter"));
    }
    READY.get_or_try_init(py, || {
        exit::register(py)?;
        crate::error::Language::python_is_here();
        cuda_stream::end_waits_by_signals(py)
    })?;
    Ok(())
}

/// Returns what `__dlpack__(**kwargs)` returns: a capsule of the tensor, as the consumer's `stream`, `max_version`,
/// `dl_device` and `copy` ask for it.
///
/// An unversioned capsule cannot say that memory is read-only: a consumer that asks for one gets a copy of such memory.
///
/// # Errors
/// `TypeError` for an unknown keyword or an argument of a wrong type; `BufferError` for what cannot be met.
pub fn dlpack<'py>(
    py: Python<'py>,
    tensor: &LentTensor,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    export_dlpack(py, tensor, Legacy::default(), false, &DlpackKeywords::read(kwargs)?.arguments())
}

/// Returns what `__dlpack_device__()` returns: DLPack's device type and id.
#[must_use]
pub fn dlpack_device(device: Device) -> (i32, i32) {
    dlpack_dunders::dlpack_device(device)
}

/// Returns what `__arrow_c_schema__()` returns: a capsule of the field.
///
/// # Errors
/// For a type that the C data interface has no format for.
pub fn c_schema<'py>(py: Python<'py>, field: &Field) -> PyResult<Bound<'py, PyAny>> {
    capsule::schema_capsule(py, field)
}

/// Returns what `__arrow_c_array__(requested_schema=None)` returns: capsules of the field and the array.
///
/// # Errors
/// `BufferError` for an array that is not in host memory, or does not cast to the requested type.
pub fn c_array<'py>(
    py: Python<'py>,
    array: &DeviceArray,
    requested_schema: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyTuple>> {
    arrow_dunders::c_array(py, array, requested_schema)
}

/// Returns what `__arrow_c_device_array__(requested_schema=None, **kwargs)` returns: capsules of the field and the array,
/// on any device. `requested_device=` moves the array, and `sync="host"` waits until it is written.
///
/// # Errors
/// `NotImplementedError` for an unknown keyword that is not None; `BufferError` for what cannot be met.
pub fn c_device_array<'py>(
    py: Python<'py>,
    array: &DeviceArray,
    requested_schema: Option<&Bound<'py, PyAny>>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyTuple>> {
    arrow_dunders::c_device_array(py, array, requested_schema, kwargs)
}

/// Returns what `__arrow_c_stream__(requested_schema=None)` returns: a capsule of the stream.
///
/// # Errors
/// `BufferError` for arrays that are not in host memory, or do not cast to the requested type.
pub fn c_stream<'py>(
    py: Python<'py>,
    stream: DeviceArrayStream,
    requested_schema: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let own = Device::new(stream.device_type(), 0);
    StreamRequest::of_host(own, stream.field(), requested_schema)?.host_capsule(py, stream)
}

/// Returns what `__arrow_c_device_stream__(requested_schema=None, **kwargs)` returns: a capsule of the stream. The keywords
/// are those of [`c_device_array`], and apply to each array when it is read.
///
/// # Errors
/// As [`c_device_array`], as far as the stream's type tells.
pub fn c_device_stream<'py>(
    py: Python<'py>,
    stream: DeviceArrayStream,
    requested_schema: Option<&Bound<'py, PyAny>>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let own = Device::new(stream.device_type(), 0);
    StreamRequest::of_device(own, stream.field(), requested_schema, kwargs)?.device_capsule(py, stream)
}

/// Takes the tensor out of a capsule of `__dlpack__`, versioned or not. The capsule is used up.
///
/// `stream` is the one that was passed to `__dlpack__`, as a capsule does not say it; `None` if none was. Elements in host
/// memory may be misaligned: only functions of this crate that say so accept them.
/// [`input::import_dlpack`](super::input::import_dlpack) calls `__dlpack__` with a stream, and realigns elements.
///
/// # Errors
/// `TypeError` for something else, `ValueError` for a capsule that was used, `BufferError` for a tensor that breaks the
/// specification: it is released then. If the driver refuses the stream.
pub fn tensor_from_capsule(capsule: &Bound<'_, PyAny>, stream: Option<Stream>) -> PyResult<Tensor> {
    let tensor = capsule::tensor_from_capsule(capsule)?;
    producer::behind(&tensor, stream.unwrap_or(Stream::LEGACY))?;
    Ok(tensor)
}

/// Reads the field in a capsule of `__arrow_c_schema__`.
///
/// # Errors
/// `TypeError` for something else, `BufferError` for a schema that breaks the specification.
pub fn schema_from_capsule(capsule: &Bound<'_, PyAny>) -> PyResult<FieldRef> {
    capsule::schema_from_capsule(capsule)
}

/// Takes the array out of the capsules of `__arrow_c_array__` or `__arrow_c_device_array__`. The second one is used up.
///
/// # Errors
/// `TypeError` for something else, `BufferError` for an array that breaks the specification: it is released then.
pub fn array_from_capsules(schema: &Bound<'_, PyAny>, array: &Bound<'_, PyAny>) -> PyResult<DeviceArray> {
    let field = capsule::schema_from_capsule(schema)?;
    match capsule::is_device_array(array) {
        true => capsule::device_array_from_capsule(array, field),
        false => capsule::array_from_capsule(array, field),
    }
}

/// Takes the stream out of a capsule of `__arrow_c_stream__` or `__arrow_c_device_stream__`. The capsule is used up.
///
/// # Errors
/// `TypeError` for something else, `BufferError` for a stream that breaks the specification: it is released then.
pub fn stream_from_capsule(capsule: &Bound<'_, PyAny>) -> PyResult<DeviceArrayStream> {
    match capsule::is_device_stream(capsule) {
        true => capsule::device_stream_from_capsule(capsule),
        false => capsule::stream_from_capsule(capsule),
    }
}

/// Runs the release of memory that came through Python: attached to the interpreter, whatever the thread, with a pending
/// exception put aside. Does nothing once the interpreter exits: the memory is left to the end of the process.
///
/// An owner of one's own that holds Python objects calls it when it is dropped.
pub fn release_attached(release: &mut dyn FnMut()) {
    attach::release_attached(release);
}
