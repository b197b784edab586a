//! Streams that callers name, `with stream(s)`, and host waits that a signal ends.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{ThreadId, current};

use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyModule};
use pyo3::wrap_pyfunction;

use super::answers::{answer, text};
use super::attach::{Raised, release_attached};
use super::capsule::call_if_present;
use crate::alloc::Owner;
use crate::callback;
use crate::cuda::{self, Stream};
use crate::error::{Error, ErrorKind};
use crate::stream_order::{self, Interpreter};

pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<StreamContext>()?;
    module.add_function(wrap_pyfunction!(stream, module)?)?;
    module.add_function(wrap_pyfunction!(_cuda_functions, module)?)?;
    module.add_function(wrap_pyfunction!(_cuda_images, module)?)?;
    module.add_function(wrap_pyfunction!(_cuda_kept, module)?)?;
    module.add_function(wrap_pyfunction!(_cuda_host_waits, module)?)
}

/// Has the host's waits for a device run without the interpreter's lock, and signals end them.
pub(super) fn end_waits_by_signals(py: Python<'_>) -> PyResult<()> {
    know_whether_main(py)?;
    stream_order::wait_beside(Interpreter { detached, attached, handlers: run_handlers });
    Ok(())
}

/// A stream: a number as DLPack gives it, the handle that an object's `__cuda_stream__` returns, or that of a stream of PyTorch or
/// CuPy from before this protocol.
///
/// # Errors
/// `TypeError` for what is neither; `ConversionError` for 0 and negative numbers.
pub(super) fn extract(object: &Bound<'_, PyAny>) -> PyResult<Stream> {
    let has = |dunder| object.hasattr(dunder);
    let is_object = has(intern!(object.py(), "__cuda_stream__"))?;
    if !is_object && !object.is_instance_of::<PyBool>() && has(intern!(object.py(), "__index__"))? {
        return match answer(object.py(), object.extract::<usize>())? {
            Some(number) => Ok(Stream::named(number)?),
            None => {
                let reason = format!("{} is no stream", text(object.py(), object.str())?);
                Err(Error::argument(reason).remedy_is("pass 1, 2, a handle, or an object with __cuda_stream__").into())
            }
        };
    }
    let Some(returned) = call_if_present(object, intern!(object.py(), "__cuda_stream__"))? else {
        return match older_handle(object)? {
            Some(handle) => of_handle(handle),
            None => {
                let name = object.get_type().name()?;
                let reason = format!("a stream is an int, or an object with __cuda_stream__, not {name}");
                Err(PyTypeError::new_err(reason))
            }
        };
    };
    let Some((_version, handle)) = answer(object.py(), returned.extract::<(u32, usize)>())? else {
        let returned = returned.repr()?;
        return Err(PyTypeError::new_err(format!(
            "__cuda_stream__ must return (version, handle), and returned {returned}"
        )));
    };
    of_handle(handle)
}

/// The handle of a stream without `__cuda_stream__`: PyTorch before 2.10 has it as `cuda_stream`, CuPy before 14 as `ptr`.
fn older_handle(object: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
    let py = object.py();
    let found = match object.getattr_opt(intern!(py, "cuda_stream"))? {
        Some(handle) => Some(handle),
        // CuPy's events and memory have a `ptr`, too.
        None if object.hasattr(intern!(py, "wait_event"))? => object.getattr_opt(intern!(py, "ptr"))?,
        None => None,
    };
    match found {
        Some(handle) if !handle.is_instance_of::<PyBool>() => answer(py, handle.extract::<usize>()),
        _ => Ok(None),
    }
}

fn of_handle(handle: usize) -> PyResult<Stream> {
    // As a handle, 0 is the default stream of the runtime, which is the legacy one in every library that has it.
    Ok(if handle == 0 { Stream::LEGACY } else { Stream::named(handle)? })
}

/// A `with` block in which this thread uses a given CUDA stream.
#[pyclass(frozen, name = "StreamContext", module = "arrow_dlpack")]
pub struct StreamContext {
    stream: Stream,
    /// By what the caller named the stream.
    object: Py<PyAny>,
}

impl fmt::Debug for StreamContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamContext").field("stream", &self.stream).finish_non_exhaustive()
    }
}

/// What a caller named a stream by, which may own the stream.
struct StreamObject(Option<Py<PyAny>>);

impl Drop for StreamObject {
    fn drop(&mut self) {
        release_attached(&mut || drop(self.0.take()));
        // Once the interpreter exits, nothing of it is released.
        std::mem::forget(self.0.take());
    }
}

/// Keeps what names a stream, for as long as the stream may be asked for.
pub(super) fn owner_of(stream: &Bound<'_, PyAny>) -> Owner {
    Arc::new(StreamObject(Some(stream.clone().unbind())))
}

#[pymethods]
impl StreamContext {
    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        stream_order::push_stream(slf.get().stream, owner_of(slf.get().object.bind(slf.py())));
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        if stream_order::pop_stream(self.stream) {
            return Ok(());
        }
        Err(PyRuntimeError::new_err("blocks of stream() end in reverse order, on the thread that they began on"))
    }

    fn __repr__(&self) -> String {
        format!("stream({:#x})", self.stream.number())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.object)
    }
}

/// Sets the CUDA stream of this thread inside a `with` block; outside, it is the legacy default stream. Blocks
/// can be nested.
///
/// stream: 1 for the legacy default stream, 2 for the per-thread default stream, a handle, or an object with
///     `__cuda_stream__`, `cuda_stream` (PyTorch before 2.10) or `ptr` (CuPy before 14), whose 0 is the legacy default
///     stream. The stream must live until the block ends, and then as long as tensors that an exchange table gave
///     to others in the block: an object that owns its stream is kept as long.
#[pyfunction]
#[pyo3(signature = (stream, /))]
fn stream(stream: &Bound<'_, PyAny>) -> PyResult<StreamContext> {
    Ok(StreamContext { stream: extract(stream)?, object: stream.clone().unbind() })
}

/// A stream as allocators are given it.
#[pyclass(frozen, name = "Stream", module = "arrow_dlpack")]
#[derive(Debug)]
pub(super) struct NamedStream(pub(super) Stream);

#[pymethods]
impl NamedStream {
    /// The version of this protocol, and the handle.
    fn __cuda_stream__(&self) -> (u32, usize) {
        (0, self.0.number())
    }

    fn __repr__(&self) -> String {
        format!("Stream({:#x})", self.0.number())
    }
}

/// The names of the driver's functions that are called here.
#[pyfunction]
fn _cuda_functions() -> &'static [&'static str] {
    cuda::FUNCTIONS
}

/// The image that the kernels were loaded from, "cubin" or "PTX", by the ordinal of the device.
#[pyfunction]
fn _cuda_images() -> HashMap<i32, &'static str> {
    cuda::images().into_iter().collect()
}

/// How many objects of the driver are kept idle for later, by kind.
#[pyfunction]
fn _cuda_kept() -> HashMap<&'static str, usize> {
    HashMap::from(cuda::kept())
}

/// How often the host has waited for a device.
#[pyfunction]
fn _cuda_host_waits() -> u64 {
    stream_order::host_waits()
}

/// Runs a wait without the interpreter's lock. Whether this thread holds it is not known inside a callback.
fn detached(wait: &mut (dyn FnMut() + Send)) {
    if callback::is_running() || Python::try_attach(|py| py.detach(&mut *wait)).is_none() {
        // Also while the interpreter goes down.
        wait();
    }
}

/// Runs releases with the interpreter's lock, on a thread of ours that does not hold it.
fn attached(releases: &mut (dyn FnMut() + Send)) {
    if super::attach::is_exiting() || Python::try_attach(|_| releases()).is_none() {
        // Each leaves alone what is the interpreter's.
        releases();
    }
}

/// Runs the handlers of signals, whose exception ends what is running. Only the main thread runs them, so that others
/// need not wait for the interpreter's lock.
fn run_handlers() -> crate::error::Result<()> {
    if callback::is_running() || is_main() == Some(false) {
        return Ok(());
    }
    let ran = Python::try_attach(|py| {
        let known = if is_main().is_none() { know_whether_main(py) } else { Ok(()) };
        known.and_then(|()| py.check_signals()).map_err(|error| Raised::new(py, error))
    });
    match ran {
        Some(Err(raised)) => {
            Err(Error::new(ErrorKind::Interrupted, "a signal's handler raised an exception")
                .caused_by(Arc::new(raised)))
        }
        // None: the interpreter is going down.
        Some(Ok(())) | None => Ok(()),
    }
}

thread_local! {
    /// Whether this thread is the main one of the interpreter, in the process with this id: after a fork it is another.
    static IS_MAIN: Cell<Option<(u32, bool)>> = const { Cell::new(None) };
}

/// The main thread of the interpreter, in the process with this id: what tells any other thread that it is not, without the interpreter's
/// lock, for which its caller may wait.
static MAIN: Mutex<Option<(u32, ThreadId)>> = Mutex::new(None);

/// Whether this is the main thread; `None` until [`know_whether_main`] has asked in this process, on this thread or the main one.
fn is_main() -> Option<bool> {
    let process = std::process::id();
    let own = IS_MAIN.get().filter(|(known_in, _)| *known_in == process).map(|(_, is_main)| is_main);
    own.or_else(|| {
        let main = MAIN.lock().unwrap_or_else(PoisonError::into_inner);
        main.filter(|(known_in, _)| *known_in == process).map(|(_, main)| main == current().id())
    })
}

fn know_whether_main(py: Python<'_>) -> PyResult<()> {
    let threading = PyModule::import(py, intern!(py, "threading"))?;
    let main = threading.call_method0(intern!(py, "main_thread"))?.getattr(intern!(py, "ident"))?;
    let own = threading.call_method0(intern!(py, "get_ident"))?;
    let (process, is_main) = (std::process::id(), main.eq(own)?);
    IS_MAIN.set(Some((process, is_main)));
    if is_main {
        *MAIN.lock().unwrap_or_else(PoisonError::into_inner) = Some((process, current().id()));
    }
    Ok(())
}
