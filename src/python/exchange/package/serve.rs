//! The package's side of the table: its functions, which extensions call.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::super::produce::{answer, argument, arrived};
use super::layout::{self, Header, Origin, Table, Text};
use super::source::lend_source;
use crate::arrow::{DeviceArray, DeviceArrayStream, read_field, release_directly};
use crate::callback;
use crate::copy_log::{self, Copied};
use crate::cuda::Stream;
use crate::dlpack::adopt_versioned;
use crate::error::Error;
use crate::ffi::arrow_device::{ArrowDeviceArray, ArrowDeviceArrayStream, ArrowSchema};
use crate::ffi::dlpack::DLManagedTensorVersioned;
use crate::python::attach::release_attached;
use crate::python::stream::wrap;
use crate::python::{ArrayStream, Tensor, capsule, errors};
use crate::stream_order;

static TABLE: Table = Table {
    header: Header { major: layout::MAJOR, minor: layout::MINOR, size: size_of::<Table>() },
    class: Some(class),
    tensor_to_object: Some(tensor_to_object),
    array_to_object: Some(array_to_object),
    stream_to_object: Some(stream_to_object),
    current_stream: Some(current_stream),
    enter_stream: Some(enter_stream),
    leave_stream: Some(leave_stream),
    is_tracking: Some(is_tracking),
    record_copy: Some(record_copy),
    memory_source: Some(lend_source),
};

/// Adds the table to the package's module.
pub(in crate::python) fn serve(module: &Bound<'_, PyModule>) -> PyResult<()> {
    SERVED.store(true, Ordering::Release);
    let table = NonNull::from(&TABLE).cast::<c_void>();
    module.add(layout::ATTRIBUTE, capsule::static_capsule(module.py(), table, layout::CAPSULE)?)
}

static SERVED: AtomicBool = AtomicBool::new(false);

/// Whether this copy is the package.
pub(super) fn is_served() -> bool {
    SERVED.load(Ordering::Acquire)
}

/// Writes a new reference to where a caller wants it.
///
/// # Safety
/// `out` is a place to write to.
unsafe fn write_object(out: NonNull<*mut c_void>, object: Bound<'_, PyAny>) {
    // SAFETY: `out` is a place to write to (a clause of `# Safety`).
    unsafe { out.write(object.into_ptr().cast()) };
}

/// A field that a caller lends; `None` for NULL.
///
/// # Safety
/// `schema` is NULL, or points to a struct as the C data interface describes it.
unsafe fn field(schema: *const ArrowSchema, name: &str) -> PyResult<Option<arrow_schema::FieldRef>> {
    if schema.is_null() {
        return Ok(None);
    }
    let schema = argument(schema.cast_mut(), name)?;
    // SAFETY: a struct (a clause of `# Safety`), neither NULL nor misaligned (`argument`), which the caller lends for the call.
    let schema = unsafe { schema.as_ref() };
    // SAFETY: as the C data interface describes it (a clause of `# Safety`).
    Ok(Some(unsafe { read_field(schema) }?))
}

/// `class`.
///
/// # Safety
/// Attached; `out` is a place to write to.
unsafe extern "C" fn class(number: u32, out: *mut *mut c_void) -> c_int {
    let find = |py: Python<'_>| {
        let out = argument(out, "out")?;
        let class: Bound<'_, PyType> = match number {
            layout::CLASS_TENSOR => py.get_type::<Tensor>(),
            number => errors::class_of(py, number)?.ok_or_else(|| {
                PyValueError::new_err(format!("this version of arrow_dlpack has no class of number {number}"))
            })?,
        };
        // SAFETY: a place to write to (a clause of `# Safety`), neither NULL nor misaligned (`argument`).
        unsafe { write_object(out, class.into_any()) };
        Ok(())
    };
    // SAFETY: attached (a clause of `# Safety`).
    unsafe { answer(find) }
}

/// `tensor_to_object`.
///
/// # Safety
/// Attached; a managed tensor of the caller's, a struct to read, a place to write to. The Arrow structs in `origin` are NULL, or as
/// the C data interface describes them.
unsafe extern "C" fn tensor_to_object(
    managed: *mut DLManagedTensorVersioned,
    origin: *const Origin,
    out: *mut *mut c_void,
) -> c_int {
    let import = |py: Python<'_>| {
        let (managed, out) = (argument(managed, "tensor")?, argument(out, "out")?);
        let origin = argument(origin.cast_mut(), "origin")?;
        // SAFETY: a struct to read (a clause of `# Safety`), neither NULL nor misaligned (`argument`).
        let origin = unsafe { origin.as_ref() };
        // SAFETY: `origin` has NULL or a struct of the C data interface (a clause of `# Safety`).
        let own = unsafe { field(origin.field, "the field") }?;
        // SAFETY: `origin` has NULL or a struct of the C data interface (a clause of `# Safety`).
        let of_dictionary = unsafe { field(origin.dictionary_field, "the field of the dictionary") }?;
        let dictionary = match (NonNull::new(origin.dictionary), of_dictionary) {
            (Some(dictionary), Some(field)) => {
                let dictionary = argument(dictionary.as_ptr(), "the dictionary")?;
                // SAFETY: a struct of the C device interface (a clause of `# Safety`), neither NULL nor misaligned (`argument`).
                Some(unsafe { DeviceArray::import_device(dictionary.as_ptr(), field) }?)
            }
            (None, _) => None,
            (Some(_), None) => return Err(Error::invalid("a dictionary came without its field").into()),
        };
        let copied = origin.flags & layout::ORIGIN_COPIED != 0;
        let wrap = |tensor: crate::tensor::Tensor| -> PyResult<_> {
            let tensor = arrived(tensor)?.with_origin(own, dictionary, copied)?;
            Ok(Bound::new(py, Tensor::new(tensor))?.into_any())
        };
        // SAFETY: a managed tensor of the caller's (a clause of `# Safety`), which is ours if this succeeds; it is not NULL.
        let object = unsafe { adopt_versioned(managed, release_attached, wrap) }?;
        // SAFETY: a place to write to (a clause of `# Safety`), neither NULL nor misaligned (`argument`).
        unsafe { write_object(out, object) };
        Ok(())
    };
    // SAFETY: attached (a clause of `# Safety`).
    unsafe { answer(import) }
}

/// `array_to_object`.
///
/// # Safety
/// Attached; structs as the C data and device interfaces describe them, a place to write to.
unsafe extern "C" fn array_to_object(
    array: *mut ArrowDeviceArray,
    schema: *const ArrowSchema,
    out: *mut *mut c_void,
) -> c_int {
    let import = |py: Python<'_>| {
        let (array, out) = (argument(array, "array")?, argument(out, "out")?);
        // SAFETY: NULL or a struct of the C data interface (a clause of `# Safety`).
        let field = unsafe { field(schema, "the field") }?.ok_or_else(|| Error::invalid("the field is NULL"))?;
        // SAFETY: a struct of the C device interface (a clause of `# Safety`), neither NULL nor misaligned (`argument`).
        let array = unsafe { DeviceArray::import_device(array.as_ptr(), field) }?;
        // SAFETY: a place to write to (a clause of `# Safety`), neither NULL nor misaligned (`argument`).
        unsafe { write_object(out, wrap(py, array)?) };
        Ok(())
    };
    // SAFETY: attached (a clause of `# Safety`).
    unsafe { answer(import) }
}

/// `stream_to_object`.
///
/// # Safety
/// Attached; a struct as the C device stream interface describes it, a place to write to.
unsafe extern "C" fn stream_to_object(stream: *mut ArrowDeviceArrayStream, out: *mut *mut c_void) -> c_int {
    let import = |py: Python<'_>| {
        let (stream, out) = (argument(stream, "stream")?, argument(out, "out")?);
        // SAFETY: a struct of the C device stream interface (a clause of `# Safety`), neither NULL nor misaligned (`argument`).
        let ask = unsafe { DeviceArrayStream::moved_out(stream.as_ptr(), release_directly) }?;
        // The producer may run Python on a thread of its own, and may take long.
        let stream = py.detach(ask)?;
        let object = Bound::new(py, ArrayStream::new(stream))?;
        // SAFETY: a place to write to (a clause of `# Safety`), neither NULL nor misaligned (`argument`).
        unsafe { write_object(out, object.into_any()) };
        Ok(())
    };
    // SAFETY: attached (a clause of `# Safety`).
    unsafe { answer(import) }
}

/// `current_stream`.
unsafe extern "C" fn current_stream() -> usize {
    callback::run(|| stream_order::this_copys_stream().map_or(0, Stream::number), |_| 0)
}

/// `enter_stream`.
unsafe extern "C" fn enter_stream(stream: usize) -> u64 {
    callback::run(|| Stream::named(stream).map_or(0, stream_order::enter_stream), |_| 0)
}

/// `leave_stream`.
unsafe extern "C" fn leave_stream(scope: u64) {
    callback::run(|| stream_order::leave_stream(scope), |_| ());
}

/// `is_tracking`.
unsafe extern "C" fn is_tracking() -> c_int {
    callback::run(|| c_int::from(copy_log::is_tracking()), |_| 0)
}

/// `record_copy`.
///
/// # Safety
/// Both texts are bytes to read during the call.
unsafe extern "C" fn record_copy(what: Text, why: Text, bytes: usize) {
    let record = || {
        // SAFETY: bytes to read during the call (a clause of `# Safety`).
        let what = unsafe { what.read() };
        // SAFETY: bytes to read during the call (a clause of `# Safety`).
        let why = unsafe { why.read() };
        copy_log::record(|| Copied { what, why, bytes });
    };
    callback::run(record, |_| ());
}
