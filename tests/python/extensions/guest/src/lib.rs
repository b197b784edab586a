//! An extension that links a copy of the crate, and returns objects of the package that is installed beside it.

use arrow_dlpack::cuda::Stream;
use arrow_dlpack::python::input::{self, ArrowInput, InputChunks};
use arrow_dlpack::python::protocol::{self, into_package};
use arrow_dlpack::stream_order::{self, stream_scope};
use arrow_dlpack::transfer::{Transfer, tensor_to_device};
use arrow_dlpack::{Chunks, Conversion, CopyMode, Device, NullPolicy};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

fn mode(copy: Option<bool>) -> CopyMode {
    match copy {
        None => CopyMode::IfNeeded,
        Some(true) => CopyMode::Always,
        Some(false) => CopyMode::Never,
    }
}

fn converted(data: &Bound<'_, PyAny>, copy: Option<bool>) -> PyResult<arrow_dlpack::Tensor> {
    let chunks = InputChunks::read(data, mode(copy))?;
    Ok(Conversion::default().copy(mode(copy)).to_tensor(Chunks::new(chunks.field(), chunks.arrays()))?)
}

/// Converts Arrow data, and returns the package's `Tensor`.
#[pyfunction]
#[pyo3(signature = (data, copy=None))]
fn to_tensor<'py>(data: &Bound<'py, PyAny>, copy: Option<bool>) -> PyResult<Bound<'py, PyAny>> {
    into_package(data.py(), converted(data, copy)?)
}

/// Converts lists or strings, and returns the package's `Ragged`.
#[pyfunction]
#[pyo3(signature = (data, keep=false))]
fn to_ragged<'py>(data: &Bound<'py, PyAny>, keep: bool) -> PyResult<Bound<'py, PyAny>> {
    let chunks = InputChunks::read(data, CopyMode::IfNeeded)?;
    let nulls = if keep { NullPolicy::Keep } else { NullPolicy::Error };
    into_package(data.py(), Conversion::default().nulls(nulls).ragged(Chunks::new(chunks.field(), chunks.arrays()))?)
}

/// Imports a tensor of DLPack, and returns the package's `Tensor`.
#[pyfunction]
fn from_dlpack<'py>(tensor: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let imported = input::import_dlpack(tensor, None, CopyMode::Never)?;
    into_package(tensor.py(), imported.ok_or_else(|| PyTypeError::new_err("expected an object with __dlpack__"))?)
}

/// Imports Arrow data, and returns the package's `Array`, `RecordBatch` or `ArrayStream`.
#[pyfunction]
fn from_arrow<'py>(data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    match input::arrow(data)? {
        Some(ArrowInput::Array(array)) => into_package(data.py(), array),
        Some(ArrowInput::Stream(stream)) => into_package(data.py(), stream),
        _ => Err(PyTypeError::new_err("expected Arrow data")),
    }
}

/// Converts Arrow data, copies the tensor to a device, and returns the package's `Tensor`.
#[pyfunction]
fn to_device<'py>(data: &Bound<'py, PyAny>, device: &str) -> PyResult<Bound<'py, PyAny>> {
    let tensor = converted(data, None)?;
    let device: Device = device.parse()?;
    into_package(data.py(), tensor_to_device(&tensor, &Transfer::to(device, "to_device"))?)
}

/// The number of this thread's stream.
#[pyfunction]
fn current_stream() -> usize {
    stream_order::current_stream().number()
}

/// Calls a function with one of the two default streams set as this thread's, by this extension.
#[pyfunction]
fn in_scope<'py>(per_thread: bool, function: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let _scope = stream_scope(if per_thread { Stream::PER_THREAD } else { Stream::LEGACY });
    function.call0()
}

/// The extension module.
#[pymodule(gil_used = false)]
fn guest(module: &Bound<'_, PyModule>) -> PyResult<()> {
    protocol::init(module.py())?;
    module.add_function(wrap_pyfunction!(to_tensor, module)?)?;
    module.add_function(wrap_pyfunction!(to_ragged, module)?)?;
    module.add_function(wrap_pyfunction!(from_dlpack, module)?)?;
    module.add_function(wrap_pyfunction!(from_arrow, module)?)?;
    module.add_function(wrap_pyfunction!(to_device, module)?)?;
    module.add_function(wrap_pyfunction!(current_stream, module)?)?;
    module.add_function(wrap_pyfunction!(in_scope, module)?)
}
