//! The class `ArrayStream`.

use std::sync::{Mutex, MutexGuard, PoisonError};

use arrow_schema::{DataType, FieldRef};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::arrow_dunders::StreamRequest;
use super::capsule::schema_capsule;
use super::device_request::ToDevice;
use super::errors::of_next;
use super::escapes::type_text;
use super::exchange::memory;
use super::sources::HeldObject;
use super::{Array, Device, RecordBatch};
use crate::arrow::{DeviceArray, DeviceArrayStream};
use crate::error::{Error, ErrorKind, Result};
use crate::ffi::dlpack::DLDeviceType;

/// Iterates over Arrow arrays or record batches, and reads each on request. A stream can be read once.
///
/// The device dunder accepts the keywords of `Array`'s. The arrays of a stream can be on several devices of one
/// type; each is moved from where it is.
#[pyclass(frozen, module = "arrow_dlpack")]
#[derive(Debug)]
pub struct ArrayStream {
    field: FieldRef,
    device_type: DLDeviceType,
    state: Mutex<StreamState>,
    /// What the stream refers to until it is gone.
    held: Vec<HeldObject>,
}

#[derive(Debug)]
enum StreamState {
    Ready(DeviceArrayStream),
    /// Another thread waits for the next array.
    Reading,
    /// Read to its end, closed, or handed to a consumer.
    Gone,
}

/// Ends a stream whose producer panics while it is read.
struct Unwinding<'a>(&'a ArrayStream);

impl Drop for Unwinding<'_> {
    fn drop(&mut self) {
        *self.0.lock() = StreamState::Gone;
    }
}

impl ArrayStream {
    /// A stream for Python.
    #[must_use]
    pub fn new(stream: DeviceArrayStream) -> Self {
        Self {
            field: stream.field().clone(),
            device_type: stream.device_type(),
            state: Mutex::new(StreamState::Ready(stream)),
            held: Vec::new(),
        }
    }

    /// The same stream, which refers to these objects.
    pub(super) fn holding(self, held: Vec<HeldObject>) -> Self {
        Self { held, ..self }
    }

    /// The type of every array.
    pub(super) fn field(&self) -> &FieldRef {
        &self.field
    }

    /// The state, briefly: the lock is never held while Python or a producer runs.
    fn lock(&self) -> MutexGuard<'_, StreamState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts another state in the place of the present one; a stream that is gone stays so.
    ///
    /// # Errors
    /// When another thread reads the stream.
    fn replace(&self, next: StreamState) -> PyResult<StreamState> {
        let mut state = self.lock();
        match *state {
            StreamState::Reading => Err(PyValueError::new_err("another thread reads the stream")),
            StreamState::Gone => Ok(StreamState::Gone),
            StreamState::Ready(_) => Ok(std::mem::replace(&mut *state, next)),
        }
    }

    /// Takes the stream out.
    ///
    /// # Errors
    /// When it was consumed already, or another thread reads it.
    pub(super) fn take(&self) -> PyResult<DeviceArrayStream> {
        match self.replace(StreamState::Gone)? {
            StreamState::Ready(stream) => Ok(stream),
            _ => Err(consumed()),
        }
    }

    /// What `work` makes of the stream, which it reads to its end. Where a signal or a lack of memory ends it before, the arrays that
    /// are left can still be read.
    ///
    /// # Errors
    /// Those of `work`; when the stream was consumed already, or another thread reads it.
    pub(super) fn read_by<R>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut DeviceArrayStream) -> Result<R>,
    ) -> PyResult<R> {
        let StreamState::Ready(mut stream) = self.replace(StreamState::Reading)? else { return Err(consumed()) };
        let unwinding = Unwinding(self);
        let result = work(&mut stream);
        std::mem::forget(unwinding);
        if result.as_ref().is_err_and(is_cut_short) {
            *self.lock() = StreamState::Ready(stream);
        } else {
            *self.lock() = StreamState::Gone;
            py.detach(|| drop(stream));
        }
        Ok(result?)
    }

    /// The device of every array, as far as its type tells it.
    pub(super) fn device(&self) -> crate::device::Device {
        crate::device::Device::new(self.device_type, 0)
    }
}

/// Whether a signal or a lack of memory ended the work on an array. A producer that failed has nothing more to give.
fn is_cut_short(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::Memory) && error.code().is_none()
}

fn consumed() -> PyErr {
    Error::invalid("the stream was consumed already; a stream can be read once").into()
}

/// An array for Python: structs are record batches.
pub(super) fn wrap(py: Python<'_>, array: DeviceArray) -> PyResult<Bound<'_, PyAny>> {
    match array.field().data_type() {
        DataType::Struct(_) => Ok(Bound::new(py, RecordBatch(array))?.into_any()),
        _ => Ok(Bound::new(py, Array(array))?.into_any()),
    }
}

#[pymethods]
impl ArrayStream {
    /// The Arrow type of every array, as text.
    #[getter]
    fn r#type(&self) -> String {
        self.field.data_type().to_string()
    }

    /// The names of the columns; empty for a stream that is not of record batches.
    #[getter]
    fn column_names(&self) -> Vec<&str> {
        match self.field.data_type() {
            DataType::Struct(fields) => fields.iter().map(|field| field.name().as_str()).collect(),
            _ => Vec::new(),
        }
    }

    /// Releases the stream, read to its end or not.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let state = self.replace(StreamState::Gone)?;
        py.detach(|| drop(state));
        Ok(())
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let StreamState::Ready(mut stream) = self.replace(StreamState::Reading)? else { return Ok(None) };
        let unwinding = Unwinding(self);
        // The producer may run Python on a thread of its own, and may take long.
        let next = py.detach(|| stream.next());
        std::mem::forget(unwinding);
        match next {
            Some(Ok(array)) => {
                *self.lock() = StreamState::Ready(stream);
                wrap(py, array).map(Some)
            }
            Some(Err(error)) if is_cut_short(&error) => {
                *self.lock() = StreamState::Ready(stream);
                Err(of_next(py, error.into()))
            }
            ended => {
                *self.lock() = StreamState::Gone;
                py.detach(|| drop(stream));
                ended.transpose().map_err(|error| of_next(py, error.into()))?;
                Ok(None)
            }
        }
    }

    /// Returns the stream with its arrays on another device, each moved when it is read. Consumes this stream,
    /// unless it is on the CPU and is to stay there.
    ///
    /// stream, threads, allocator: as for `Array.to_device`.
    #[pyo3(signature = (device, /, *, stream=None, threads=None, allocator=None))]
    fn to_device(
        slf: Bound<'_, Self>,
        device: &Bound<'_, PyAny>,
        stream: Option<&Bound<'_, PyAny>>,
        threads: Option<&Bound<'_, PyAny>>,
        allocator: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<Self>> {
        let _source = memory::scope(allocator, None)?;
        let own = slf.get().device();
        let transfer = ToDevice::read(own, device, stream, threads)?;
        if transfer.device.is_cpu() && own.is_cpu() {
            return Ok(slf.unbind());
        }
        crate::transfer::require_path(own, transfer.device)?;
        Py::new(slf.py(), Self::new(transfer.stream(slf.get().take()?)))
    }

    /// The type of device of every array.
    #[getter(device)]
    fn py_device(&self) -> Device {
        Device(self.device())
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        schema_capsule(py, &self.field)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let request = StreamRequest::of_host(self.device(), &self.field, requested_schema)?;
        request.host_capsule(py, self.take()?)
    }

    #[pyo3(signature = (requested_schema=None, **kwargs))]
    fn __arrow_c_device_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let request = StreamRequest::of_device(self.device(), &self.field, requested_schema, kwargs)?;
        request.device_capsule(py, self.take()?)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // A consumer that has the stream refers to them itself, and so does a thread that reads it.
        match self.state.try_lock().as_deref() {
            Ok(StreamState::Ready(_)) => self.held.iter().try_for_each(|held| held.traverse(&visit)),
            _ => Ok(()),
        }
    }

    /// Releases the stream of a cycle that nobody refers to.
    fn __clear__(&self) {
        if let Ok(state) = self.replace(StreamState::Gone) {
            Python::attach(|py| py.detach(|| drop(state)));
        }
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "an ArrayStream can be read once, and not pickled; pickle its batches, or what it is read from",
        ))
    }

    fn __repr__(&self) -> String {
        format!("ArrayStream({}, device={})", type_text(self.field.data_type()), self.device())
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;

    use arrow_schema::Field;

    use super::*;

    #[test]
    fn a_stream_ends_when_its_producer_panics() {
        let arrays = std::iter::from_fn(|| -> Option<Result<DeviceArray>> { panic!("on purpose") });
        let field = Arc::new(Field::new("x", DataType::Int32, true));
        let stream = ArrayStream::new(DeviceArrayStream::new(field, DLDeviceType::CPU, arrays));
        Python::initialize();
        Python::attach(|py| {
            assert!(catch_unwind(AssertUnwindSafe(|| stream.__next__(py).map(|_| ()))).is_err());
            assert!(stream.__next__(py).unwrap().is_none(), "not \"another thread reads the stream\"");
            stream.close(py).unwrap();
        });
    }
}
