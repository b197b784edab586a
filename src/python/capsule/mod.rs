//! The only user of PyCapsule: takes the structs of both protocols out of capsules, and puts ours into them.
#![allow(unsafe_code, reason = "a capsule is a pointer and a name, and both protocols define what it points to")]

mod aside;
mod call;

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use arrow_schema::{Field, FieldRef};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::critical_section::with_critical_section;

pub(super) use self::aside::{attached_with_exception_aside, with_exception_aside};
pub(super) use self::call::{call, call_if_present, call_method};
use super::answers::{error_about, text};
use super::attach::release_attached;
use crate::arrow::{
    DeviceArray, DeviceArrayStream, export_array, export_device_array, export_device_stream, export_schema,
    export_stream, read_field,
};
use crate::callback;
use crate::dlpack::{export_legacy, export_versioned, import_legacy_guarded, import_versioned_guarded};
use crate::ffi::arrow_device::{ArrowArray, ArrowArrayStream, ArrowDeviceArray, ArrowDeviceArrayStream, ArrowSchema};
use crate::ffi::dlpack::{DLManagedTensor, DLManagedTensorVersioned, DLPackExchangeAPI, DLPackExchangeAPIHeader};
use crate::tensor::Tensor;

/// The id of the running interpreter; 0 is the main one.
pub(super) fn interpreter_id(_py: Python<'_>) -> i64 {
    // SAFETY: attached, so there is a current interpreter.
    let interpreter = unsafe { ffi::PyInterpreterState_Get() };
    // SAFETY: the current interpreter's own state.
    unsafe { ffi::PyInterpreterState_GetID(interpreter) }
}

/// The pointer of a capsule of this name; `None` for anything else.
fn pointer<T>(capsule: &Bound<'_, PyAny>, name: &CStr) -> Option<NonNull<T>> {
    // SAFETY: attached; any object may be asked.
    let pointer = NonNull::new(unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr()) });
    if pointer.is_none() {
        // SAFETY: attached; not being such a capsule is no error here.
        unsafe { ffi::PyErr_Clear() };
    }
    pointer.map(NonNull::cast)
}

/// As [`pointer`], of a struct to read.
///
/// # Errors
/// When the pointer is misaligned for the struct: nothing is read by it then.
fn struct_pointer<T>(capsule: &Bound<'_, PyAny>, name: &CStr) -> PyResult<Option<NonNull<T>>> {
    let found = pointer::<T>(capsule, name);
    if found.is_some_and(|found| !found.is_aligned()) {
        return Err(PyValueError::new_err(format!("the PyCapsule {name:?} has a misaligned pointer")));
    }
    Ok(found)
}

/// A new capsule. The destructor, if any, is given the capsule and takes care of the pointer.
///
/// # Safety
/// `destructor` fits `pointer`, which nobody else frees.
unsafe fn new_capsule<'py>(
    py: Python<'py>,
    pointer: *mut c_void,
    name: &'static CStr,
    destructor: Option<ffi::PyCapsule_Destructor>,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: attached; a static name.
    let capsule = unsafe { ffi::PyCapsule_New(pointer, name.as_ptr(), destructor) };
    // SAFETY: a new reference, or NULL with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, capsule) }
}

/// The C string that a Python type's capsules are known under.
trait Named {
    const NAME: &'static CStr;
}

/// A struct of the Arrow interfaces that owns something until it is released.
///
/// # Safety
/// `release_in_place` may be called on any initialised value, and releases it at most once.
unsafe trait Releasable: Named {
    /// # Safety
    /// `this` is an initialised struct that nobody else uses now.
    unsafe fn release_in_place(this: *mut Self);
}

macro_rules! releasable {
    ($($type:ty = $name:literal, $($release:ident).+;)+) => { $(
        impl Named for $type {
            const NAME: &'static CStr = $name;
        }
        // SAFETY: calls the release callback that is there, which sets it to NULL.
        unsafe impl Releasable for $type {
            unsafe fn release_in_place(this: *mut Self) {
                // SAFETY: `this` is an initialised struct that nobody else uses now.
                let mut release = unsafe { (*this).$($release).+ };
                if release.is_none() {
                    return;
                }
                release_attached(&mut || {
                    // Once, however often the guard calls.
                    let Some(release) = release.take() else { return };
                    // SAFETY: not released yet. `array` is the first member where the two types differ.
                    unsafe { release(this.cast()) };
                });
            }
        }
    )+ };
}
releasable! {
    ArrowSchema = c"arrow_schema", release;
    ArrowArray = c"arrow_array", release;
    ArrowDeviceArray = c"arrow_device_array", array.release;
    ArrowArrayStream = c"arrow_array_stream", release;
    ArrowDeviceArrayStream = c"arrow_device_array_stream", release;
}

/// Puts an Arrow struct into a capsule that releases it unless it was moved out.
fn arrow_capsule<T: Releasable>(py: Python<'_>, value: T) -> PyResult<Bound<'_, PyAny>> {
    unsafe extern "C" fn destroy<T: Releasable>(capsule: *mut ffi::PyObject) {
        let free = || {
            // SAFETY: Python calls this once, with our capsule, whose name nobody changes.
            let pointer = unsafe { ffi::PyCapsule_GetPointer(capsule, T::NAME.as_ptr()) }.cast::<T>();
            if pointer.is_null() {
                // SAFETY: attached; a capsule that was renamed sets an exception, which has nowhere to go.
                unsafe { ffi::PyErr_Clear() };
                return;
            }
            // SAFETY: our box, whose content nobody uses any more.
            unsafe { T::release_in_place(pointer) };
            // SAFETY: made by `Box::into_raw` below.
            drop(unsafe { Box::from_raw(pointer) });
        };
        callback::caught(free, |_| ());
    }
    let pointer = Box::into_raw(Box::new(value));
    // SAFETY: `destroy` releases and frees the box.
    let capsule = unsafe { new_capsule(py, pointer.cast(), T::NAME, Some(destroy::<T>)) };
    if capsule.is_err() {
        // SAFETY: no capsule owns the box.
        unsafe { T::release_in_place(pointer) };
        // SAFETY: `Box::into_raw` made the pointer above, and no capsule owns it.
        drop(unsafe { Box::from_raw(pointer) });
    }
    capsule
}

/// The struct in a capsule of an Arrow interface.
fn arrow_pointer<T: Named>(capsule: &Bound<'_, PyAny>) -> PyResult<NonNull<T>> {
    struct_pointer(capsule, T::NAME)?.ok_or_else(|| {
        let told = |found| format!("expected a PyCapsule named {:?}, got {found}", T::NAME.to_string_lossy());
        error_about(capsule.py(), capsule.repr(), |found| PyTypeError::new_err(told(found)))
    })
}

/// Whether this is a capsule of a device array, consumed or not.
pub(super) fn is_device_array(capsule: &Bound<'_, PyAny>) -> bool {
    pointer::<c_void>(capsule, ArrowDeviceArray::NAME).is_some()
}

/// Whether this is a capsule of a device stream, consumed or not.
pub(super) fn is_device_stream(capsule: &Bound<'_, PyAny>) -> bool {
    pointer::<c_void>(capsule, ArrowDeviceArrayStream::NAME).is_some()
}

/// Reads an `arrow_schema` capsule.
pub(super) fn schema_from_capsule(capsule: &Bound<'_, PyAny>) -> PyResult<FieldRef> {
    with_critical_section(capsule, || {
        let schema = arrow_pointer::<ArrowSchema>(capsule)?;
        // SAFETY: not NULL, aligned (`struct_pointer`), and the capsule's struct, which lives as long as the capsule that we
        // hold. Nobody moves it out meanwhile: consumers do so attached and in the capsule's critical section, and reading runs
        // no Python code, which could leave that section.
        let schema = unsafe { schema.as_ref() };
        // SAFETY: a struct of the Arrow PyCapsule interface, by its capsule's name: it is as the C data interface describes
        // it.
        Ok(unsafe { read_field(schema) }?)
    })
}

/// An `arrow_schema` capsule of a field.
pub(super) fn schema_capsule<'py>(py: Python<'py>, field: &Field) -> PyResult<Bound<'py, PyAny>> {
    arrow_capsule(py, export_schema(field)?.into_raw())
}

/// Takes the array out of an `arrow_array` capsule.
pub(super) fn array_from_capsule(capsule: &Bound<'_, PyAny>, field: FieldRef) -> PyResult<DeviceArray> {
    with_critical_section(capsule, || {
        let array = arrow_pointer::<ArrowArray>(capsule)?;
        // SAFETY: a struct of the Arrow PyCapsule interface, by its capsule's name; the critical section makes us its
        // only consumer now.
        Ok(unsafe { DeviceArray::import_guarded(array.as_ptr(), field, release_attached) }?)
    })
}

/// Takes the array out of an `arrow_device_array` capsule.
pub(super) fn device_array_from_capsule(capsule: &Bound<'_, PyAny>, field: FieldRef) -> PyResult<DeviceArray> {
    with_critical_section(capsule, || {
        let array = arrow_pointer::<ArrowDeviceArray>(capsule)?;
        // SAFETY: a struct of the Arrow PyCapsule interface, by its capsule's name; the critical section makes us its
        // only consumer now.
        Ok(unsafe { DeviceArray::import_device_guarded(array.as_ptr(), field, release_attached) }?)
    })
}

/// An `arrow_array` capsule. The array must be in host memory.
pub(super) fn array_capsule<'py>(py: Python<'py>, array: &DeviceArray) -> PyResult<Bound<'py, PyAny>> {
    super::device::require_host(array.device())?;
    arrow_capsule(py, export_array(array)?.into_raw())
}

/// An `arrow_device_array` capsule.
pub(super) fn device_array_capsule<'py>(py: Python<'py>, array: &DeviceArray) -> PyResult<Bound<'py, PyAny>> {
    arrow_capsule(py, export_device_array(array)?.into_raw())
}

/// Takes the stream out of an `arrow_array_stream` capsule.
pub(super) fn stream_from_capsule(capsule: &Bound<'_, PyAny>) -> PyResult<DeviceArrayStream> {
    let ask = with_critical_section(capsule, || {
        let stream = arrow_pointer::<ArrowArrayStream>(capsule)?;
        // SAFETY: a struct of the Arrow PyCapsule interface, by its capsule's name; the critical section makes us its
        // only consumer now.
        PyResult::Ok(unsafe { DeviceArrayStream::moved_out(stream.as_ptr(), release_attached) }?)
    })?;
    // The producer may run Python on a thread of its own, and may take long.
    Ok(capsule.py().detach(ask)?)
}

/// Takes the stream out of an `arrow_device_array_stream` capsule.
pub(super) fn device_stream_from_capsule(capsule: &Bound<'_, PyAny>) -> PyResult<DeviceArrayStream> {
    let ask = with_critical_section(capsule, || {
        let stream = arrow_pointer::<ArrowDeviceArrayStream>(capsule)?;
        // SAFETY: a struct of the Arrow PyCapsule interface, by its capsule's name; the critical section makes us its
        // only consumer now.
        PyResult::Ok(unsafe { DeviceArrayStream::moved_out(stream.as_ptr(), release_attached) }?)
    })?;
    Ok(capsule.py().detach(ask)?)
}

/// An `arrow_array_stream` capsule. The stream's arrays must be in host memory.
pub(super) fn stream_capsule(py: Python<'_>, stream: DeviceArrayStream) -> PyResult<Bound<'_, PyAny>> {
    arrow_capsule(py, export_stream(stream)?.into_raw())
}

/// An `arrow_device_array_stream` capsule.
pub(super) fn device_stream_capsule(py: Python<'_>, stream: DeviceArrayStream) -> PyResult<Bound<'_, PyAny>> {
    arrow_capsule(py, export_device_stream(stream).into_raw())
}

const USED_VERSIONED: &CStr = c"used_dltensor_versioned";
const USED_LEGACY: &CStr = c"used_dltensor";

/// A managed tensor of DLPack, legacy or versioned.
trait ManagedStruct: Named {
    /// The name of a capsule whose tensor has a new owner.
    const USED: &'static CStr;
    /// # Safety
    /// `managed` is owned by the caller and not deleted yet.
    unsafe fn delete(managed: *mut Self);
}

macro_rules! managed_tensor {
    ($($type:ty = $name:literal, $used:ident;)+) => { $(
        impl Named for $type {
            const NAME: &'static CStr = $name;
        }
        impl ManagedStruct for $type {
            const USED: &'static CStr = $used;
            unsafe fn delete(managed: *mut Self) {
                // SAFETY: `managed` is owned by the caller and not deleted yet, so the struct is alive.
                if let Some(deleter) = unsafe { (*managed).deleter } {
                    // SAFETY: the deleter of a tensor that is owned by the caller, who does not use it any more.
                    unsafe { deleter(managed) };
                }
            }
        }
    )+ };
}
managed_tensor! {
    DLManagedTensor = c"dltensor", USED_LEGACY;
    DLManagedTensorVersioned = c"dltensor_versioned", USED_VERSIONED;
}

/// Puts a managed tensor into a capsule that deletes it unless a consumer took it.
fn dlpack_capsule<M: ManagedStruct>(py: Python<'_>, managed: NonNull<M>) -> PyResult<Bound<'_, PyAny>> {
    unsafe extern "C" fn destroy<M: ManagedStruct>(capsule: *mut ffi::PyObject) {
        let delete = || {
            // SAFETY: Python calls this once, with our capsule. A consumer renamed it if the tensor is its own now.
            if unsafe { ffi::PyCapsule_IsValid(capsule, M::NAME.as_ptr()) } == 0 {
                return;
            }
            // SAFETY: valid under this name, so this sets no exception.
            let managed = unsafe { ffi::PyCapsule_GetPointer(capsule, M::NAME.as_ptr()) }.cast::<M>();
            // SAFETY: nobody took the tensor.
            unsafe { M::delete(managed) };
        };
        callback::caught(delete, |_| ());
    }
    // SAFETY: `destroy` deletes the tensor.
    let capsule = unsafe { new_capsule(py, managed.as_ptr().cast(), M::NAME, Some(destroy::<M>)) };
    if capsule.is_err() {
        // SAFETY: no capsule owns the tensor.
        unsafe { M::delete(managed.as_ptr()) };
    }
    capsule
}

/// A `dltensor_versioned` capsule; see [`export_versioned`] for `sole_owner`.
pub(super) fn versioned_capsule<'py>(
    py: Python<'py>,
    tensor: &Tensor,
    sole_owner: bool,
) -> PyResult<Bound<'py, PyAny>> {
    dlpack_capsule(py, export_versioned(tensor, sole_owner)?.into_raw())
}

/// A `dltensor` capsule, which cannot say that its memory is read-only.
pub(super) fn legacy_capsule<'py>(py: Python<'py>, tensor: &Tensor) -> PyResult<Bound<'py, PyAny>> {
    dlpack_capsule(py, export_legacy(tensor)?.into_raw())
}

/// Takes the tensor out of a `dltensor_versioned` or `dltensor` capsule.
pub(super) fn tensor_from_capsule(capsule: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    with_critical_section(capsule, || {
        if let Some(managed) = take::<DLManagedTensorVersioned>(capsule)? {
            // SAFETY: renaming the capsule made the tensor ours; it is as `dlpack.h` describes it.
            return Ok(unsafe { import_versioned_guarded(managed, release_attached) }?);
        }
        if let Some(managed) = take::<DLManagedTensor>(capsule)? {
            // SAFETY: renaming the capsule made the tensor ours; it is as `dlpack.h` describes it.
            return Ok(unsafe { import_legacy_guarded(managed, release_attached) }?);
        }
        let used = [USED_LEGACY, USED_VERSIONED];
        if used.iter().any(|name| pointer::<c_void>(capsule, name).is_some()) {
            return Err(PyValueError::new_err("the DLPack capsule was consumed already; a capsule can be used once"));
        }
        let found = text(capsule.py(), capsule.repr())?;
        Err(PyTypeError::new_err(format!(
            "__dlpack__ must return a PyCapsule named \"dltensor_versioned\" or \"dltensor\", and returned {found}"
        )))
    })
}

/// The capsule's tensor, with the capsule marked as used; `None` for a capsule of another name.
fn take<M: ManagedStruct>(capsule: &Bound<'_, PyAny>) -> PyResult<Option<NonNull<M>>> {
    let Some(managed) = struct_pointer::<M>(capsule, M::NAME)? else { return Ok(None) };
    // SAFETY: a valid capsule, a static name.
    if unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), M::USED.as_ptr()) } != 0 {
        return Err(PyErr::fetch(capsule.py()));
    }
    Ok(Some(managed))
}

/// A capsule of something static, which nobody frees.
pub(super) fn static_capsule<'py>(
    py: Python<'py>,
    pointer: NonNull<c_void>,
    name: &'static CStr,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: without a destructor, nothing is done with the pointer.
    unsafe { new_capsule(py, pointer.as_ptr(), name, None) }
}

/// The pointer in a capsule of something static; `None` for anything else, and where it is misaligned.
pub(super) fn static_pointer<T>(capsule: &Bound<'_, PyAny>, name: &CStr) -> Option<NonNull<T>> {
    pointer(capsule, name).filter(|pointer: &NonNull<T>| pointer.is_aligned())
}

const EXCHANGE_API: &CStr = c"dlpack_exchange_api";

/// A capsule of an exchange table, which nobody frees.
pub(super) fn exchange_capsule<'py>(py: Python<'py>, table: &'static DLPackExchangeAPI) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the table is static. Consumers read it through the pointer, and have no reason to write.
    unsafe { new_capsule(py, std::ptr::from_ref(table).cast_mut().cast(), EXCHANGE_API, None) }
}

/// The newest table in a capsule of an exchange table; `None` for anything else.
pub(super) fn exchange_table(capsule: &Bound<'_, PyAny>) -> Option<NonNull<DLPackExchangeAPIHeader>> {
    pointer(capsule, EXCHANGE_API).filter(|table| table.is_aligned())
}
