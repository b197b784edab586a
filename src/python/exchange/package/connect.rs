//! An extension's side of the table: finds the package that is installed, and has this copy of the crate use its streams, logs,
//! allocators and exceptions.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::OnceLock;

use pyo3::exceptions::{PyImportError, PyModuleNotFoundError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

use super::layout::{
    self, ArrayToObject, Class, CurrentStream, EnterStream, GetSource, Header, IsTracking, LeaveStream, RecordCopy,
    StreamToObject, Table, TensorToObject, Text,
};
use super::source::borrowed_source;
use crate::copy_log::{self, Copied};
use crate::cuda::{self, MemorySource, Stream};
use crate::python::{capsule, errors};
use crate::stream_order;

/// The functions of the package's table, all of which are there.
#[derive(Clone, Copy)]
pub(super) struct Functions {
    class: Class,
    pub(super) tensor_to_object: TensorToObject,
    pub(super) array_to_object: ArrayToObject,
    pub(super) stream_to_object: StreamToObject,
    current_stream: CurrentStream,
    enter_stream: EnterStream,
    leave_stream: LeaveStream,
    is_tracking: IsTracking,
    record_copy: RecordCopy,
    memory_source: GetSource,
}

static PACKAGE: OnceLock<Functions> = OnceLock::new();
static TENSOR: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// The package's functions, once this copy is connected.
pub(super) fn package() -> Option<&'static Functions> {
    PACKAGE.get()
}

/// Connects this copy to the package that is installed, the first time that there is one; `false` without one.
///
/// # Errors
/// `ImportError` for a package whose table this copy cannot use, and what the import of the package raises.
pub(in crate::python) fn connect(py: Python<'_>) -> PyResult<bool> {
    if PACKAGE.get().is_some() {
        return Ok(true);
    }
    let module = match py.import(layout::MODULE) {
        Ok(module) => module,
        Err(error) if is_missing(py, &error)? => return Ok(false),
        Err(error) => return Err(error),
    };
    let functions = read(&module)?;
    let class = |number| functions.class(py, number);
    // A second thread has found the same.
    let _ = TENSOR.set(py, class(layout::CLASS_TENSOR)?.unbind());
    errors::adopt(py, class)?;
    // A second thread has found the same.
    if PACKAGE.set(functions).is_ok() {
        copy_log::record_elsewhere(copy_log::LogsOfOtherCopy { is_tracking, record });
        stream_order::streams_elsewhere(stream_order::StreamsOfOtherCopy { current, enter, leave });
        cuda::sources_elsewhere(source);
    }
    Ok(true)
}

/// Whether an import failed because the package is not installed.
fn is_missing(py: Python<'_>, error: &PyErr) -> PyResult<bool> {
    if !error.is_instance_of::<PyModuleNotFoundError>(py) {
        return Ok(false);
    }
    let name: Option<String> = error.value(py).getattr("name")?.extract()?;
    // A folder of the package's name is a namespace without the module.
    Ok(name.is_some_and(|name| ["arrow_dlpack", layout::MODULE].contains(&&*name)))
}

fn read(module: &Bound<'_, PyModule>) -> PyResult<Functions> {
    let wanted = layout::MAJOR;
    let (built, installed) = (env!("CARGO_PKG_VERSION"), version(module));
    let refused = |what: &str, remedy: &str| {
        PyImportError::new_err(format!(
            "this extension was built with arrow-dlpack {built}, whose table for other extensions has version {wanted}, and the \
             installed arrow_dlpack {installed} has {what}; {remedy}"
        ))
    };
    let upgrade = "upgrade the package: pip install --upgrade arrow-dlpack";
    let Some(capsule) = module.getattr_opt(layout::ATTRIBUTE)? else { return Err(refused("none", upgrade)) };
    let header = capsule::static_pointer::<Header>(&capsule, layout::CAPSULE)
        .ok_or_else(|| refused("something else in its place", upgrade))?;
    // SAFETY: not NULL, aligned (`static_pointer`), and in a capsule of this name: a table, which starts with a header at every
    // version, and lives as long as the process.
    let Header { major, size, .. } = *unsafe { header.as_ref() };
    if major != wanted {
        let remedy = match major < wanted {
            true => upgrade,
            false => "upgrade the extension, or install an older arrow_dlpack",
        };
        return Err(refused(&format!("version {major}"), remedy));
    }
    if size < size_of::<Table>() {
        return Err(refused(&format!("one of {size} bytes instead of {}", size_of::<Table>()), upgrade));
    }
    // SAFETY: a table of our major version that has all our members, by its size; it lives as long as the process.
    let table = unsafe { header.cast::<Table>().as_ref() };
    Functions::of(table).ok_or_else(|| refused("one without some of its functions", upgrade))
}

fn version(module: &Bound<'_, PyModule>) -> String {
    let version = module.getattr("__version__").and_then(|version| version.extract());
    version.unwrap_or_else(|_| "of an unknown version".to_owned())
}

impl Functions {
    fn of(table: &Table) -> Option<Self> {
        Some(Self {
            class: table.class?,
            tensor_to_object: table.tensor_to_object?,
            array_to_object: table.array_to_object?,
            stream_to_object: table.stream_to_object?,
            current_stream: table.current_stream?,
            enter_stream: table.enter_stream?,
            leave_stream: table.leave_stream?,
            is_tracking: table.is_tracking?,
            record_copy: table.record_copy?,
            memory_source: table.memory_source?,
        })
    }

    /// A class of the package.
    fn class<'py>(&self, py: Python<'py>, number: u32) -> PyResult<Bound<'py, PyType>> {
        let mut object: *mut c_void = null_mut();
        // SAFETY: attached, and a place to write to, as the table asks.
        let status = unsafe { (self.class)(number, &raw mut object) };
        // SAFETY: the answer of a function of the table.
        Ok(unsafe { answered(py, status, object) }?.cast_into::<PyType>()?)
    }
}

/// The object that a function of the table wrote, or the exception that it set.
///
/// # Safety
/// `status` and `object` are the answer of a function of the table: a new reference with 0, an exception set otherwise.
pub(super) unsafe fn answered(py: Python<'_>, status: i32, object: *mut c_void) -> PyResult<Bound<'_, PyAny>> {
    let object = if status == 0 { object } else { null_mut() };
    // SAFETY: a new reference, or NULL with an exception set (a clause of `# Safety`).
    unsafe { Bound::from_owned_ptr_or_err(py, object.cast()) }
}

/// Whether an object is a `Tensor` of the package: its DLPack says more than its Arrow dunders, which may copy.
pub(in crate::python) fn is_package_tensor(object: &Bound<'_, PyAny>) -> bool {
    TENSOR.get(object.py()).is_some_and(|class| object.get_type().is(class))
}

fn is_tracking() -> bool {
    // SAFETY: any thread may call it at any time.
    package().is_some_and(|package| unsafe { (package.is_tracking)() } != 0)
}

fn record(copied: &Copied) {
    let Some(package) = package() else { return };
    // SAFETY: any thread may call it; both texts live during the call.
    unsafe { (package.record_copy)(Text::of(&copied.what), Text::of(&copied.why), copied.bytes) };
}

fn current() -> Option<Stream> {
    // SAFETY: any thread may call it at any time.
    let number = unsafe { (package()?.current_stream)() };
    // 0 is none.
    Stream::named(number).ok()
}

fn enter(stream: Stream) -> Option<u64> {
    // SAFETY: any thread may call it with any number.
    let scope = unsafe { (package()?.enter_stream)(stream.number()) };
    // 0 is a stream that the package refuses.
    Some(scope).filter(|scope| *scope > 0)
}

fn leave(scope: u64) {
    let Some(package) = package() else { return };
    // SAFETY: any thread may call it with any number.
    unsafe { (package.leave_stream)(scope) };
}

fn source() -> Option<MemorySource> {
    let mut source = MaybeUninit::uninit();
    // SAFETY: any thread may call it, with a place to write to.
    if unsafe { (package()?.memory_source)(source.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the function answered 0, so it has written a source.
    let source = unsafe { source.assume_init() };
    // SAFETY: written by `memory_source`, and used here alone.
    unsafe { borrowed_source(source) }
}
