//! The exchange tables of [`TensorClass`]es. Their functions synchronise nothing, and on failure leave their arguments to
//! the caller.

use std::any::Any;
use std::ffi::{CString, c_int, c_void};
use std::marker::PhantomData;
use std::ptr::{NonNull, null_mut};

use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::pyclass::PyClass;
use pyo3::pyclass::boolean_struct::True;

use super::super::attach::release_attached;
use super::super::errors::panicked;
use super::super::lent::LentTensor;
use super::super::{capsule, producer};
use crate::callback;
use crate::convert::compact;
use crate::cuda::is_cuda;
use crate::device::Device;
use crate::dlpack::{adopt_versioned, allocate_like, borrowed, export_versioned};
use crate::error::{Error, ErrorKind, Language};
use crate::ffi::dlpack::{
    DLDevice, DLDeviceType, DLManagedTensorVersioned, DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION, DLPackExchangeAPI,
    DLPackExchangeAPIHeader, DLPackSetError, DLPackVersion, DLTensor,
};
use crate::stream_order::{self, Wait};
use crate::transfer::REALIGNED;

/// A class of tensors: C consumers read its instances, and make them, through an [`exchange_api`] table.
///
/// The class must be frozen, so that a tensor that a consumer borrows stays where it is.
pub trait TensorClass: PyClass<Frozen = True> + Sync {
    /// Returns the instance's tensor.
    fn lent_tensor(&self) -> &LentTensor;

    /// Returns an instance over a tensor that a consumer made.
    ///
    /// # Errors
    /// For a tensor that the class cannot hold.
    fn from_lent(tensor: LentTensor) -> PyResult<Self>;
}

/// The table of a class.
struct ClassTable<T>(PhantomData<T>);

impl<T: TensorClass + Into<PyClassInitializer<T>>> ClassTable<T> {
    const API: &'static DLPackExchangeAPI = &DLPackExchangeAPI {
        header: DLPackExchangeAPIHeader {
            version: DLPackVersion { major: DLPACK_MAJOR_VERSION, minor: DLPACK_MINOR_VERSION },
            prev_api: null_mut(),
        },
        managed_tensor_allocator: Some(allocate),
        managed_tensor_from_py_object_no_sync: Some(from_object::<T>),
        managed_tensor_to_py_object_no_sync: Some(to_object::<T>),
        dltensor_from_py_object_no_sync: Some(borrow_object::<T>),
        current_work_stream: Some(current_work_stream),
    };
}

/// Returns the capsule of DLPack's exchange table for a class, which the class carries as the class attribute
/// `__dlpack_c_exchange_api__`. Through it, PyTorch and tvm-ffi read instances without a call of Python code.
///
/// Consumers read the table of the exact class alone: a subclass inherits the attribute, and its instances are refused.
///
/// # Errors
/// If the capsule cannot be allocated.
pub fn exchange_api<T: TensorClass + Into<PyClassInitializer<T>>>(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    capsule::exchange_capsule(py, ClassTable::<T>::API)
}

/// The body of a function whose caller is attached, as the exception that tells of a failure needs it.
///
/// # Safety
/// Attached.
pub(super) unsafe fn answer(body: impl FnOnce(Python<'_>) -> PyResult<()>) -> c_int {
    // SAFETY: attached (a clause of `# Safety`).
    let py = unsafe { Python::assume_attached() };
    match callback::run(|| body(py), |panic| Err(panicked(&*panic))) {
        Ok(()) => 0,
        Err(error) => {
            error.restore(py);
            -1
        }
    }
}

/// A pointer argument, if it can be one.
pub(super) fn argument<T>(pointer: *mut T, name: &str) -> PyResult<NonNull<T>> {
    NonNull::new(pointer).filter(|pointer| pointer.is_aligned()).ok_or_else(|| {
        let what = if pointer.is_null() { "NULL" } else { "a misaligned pointer" };
        PyValueError::new_err(format!("{name} is {what}"))
    })
}

/// The tensor behind an argument, which must be of exactly the type that carries the table.
///
/// # Safety
/// Attached; `object` is NULL or a live Python object.
unsafe fn tensor<'a, 'py: 'a, T: TensorClass>(
    py: Python<'py>,
    object: &'a *mut ffi::PyObject,
) -> PyResult<&'a LentTensor> {
    argument(*object, "py_object")?;
    // SAFETY: attached; `object` is a live Python object, as it is not NULL.
    let object = unsafe { Bound::ref_from_ptr(py, object) };
    match object.cast_exact::<T>() {
        Ok(tensor) => Ok(tensor.get().lent_tensor()),
        Err(_) => {
            let name = object.get_type().name()?;
            let class = py.get_type::<T>().fully_qualified_name()?;
            Err(PyTypeError::new_err(format!("this exchange API is that of {class}, and got {name}")))
        }
    }
}

/// Has this thread's stream wait for a tensor: the one that `current_work_stream` names, for the consumer to work on. The host waits for
/// page-locked memory.
pub(super) fn wait_by_this_thread(py: Python<'_>, tensor: &crate::tensor::Tensor) -> PyResult<()> {
    let Some(readiness) = tensor.readiness().filter(|_| is_cuda(tensor.device())) else { return Ok(()) };
    readiness.lend(Wait::LentByExchange);
    if tensor.device().device_type() == DLDeviceType::CUDA_HOST {
        // `current_work_stream` names no stream for it, so that a consumer on the host reads at once. Detached here, because a wait in
        // a callback does not know that the thread is attached.
        return Ok(py.detach(|| readiness.wait_on_host(Wait::DlpackHostVisible))?);
    }
    let stream = stream_order::current_stream();
    readiness.wait_on_stream(tensor.device(), stream, Wait::ExchangeStream)?;
    if !stream.is_default() {
        // Nothing else says when the consumer's work there is done.
        readiness.record_stream_for(stream, stream_order::current_stream_owner(), Wait::ReleaseBehindRecorded)?;
    }
    Ok(())
}

/// A tensor that a C function gave us, written in the order of this thread's stream, and realigned where it is misaligned.
pub(super) fn arrived(tensor: crate::tensor::Tensor) -> PyResult<crate::tensor::Tensor> {
    producer::require_known(tensor.device())?;
    if let Some(readiness) = tensor.readiness().filter(|_| is_cuda(tensor.device())) {
        let current = stream_order::enter(tensor.device())?;
        tensor.check_memory(&current)?;
        // Whoever made it worked on the stream that `current_work_stream` names.
        let stream = stream_order::current_stream();
        current.require_own(stream)?;
        readiness.written_behind_others(&current, stream, Wait::ExchangeImport)?;
    }
    let misaligned = tensor.device().is_cpu() && !tensor.is_aligned();
    Ok(if misaligned { compact(&tensor, REALIGNED)? } else { tensor })
}

/// `managed_tensor_from_py_object_no_sync`.
///
/// # Safety
/// As `dlpack.h` says: attached, a live object, a place to write to.
unsafe extern "C" fn from_object<T: TensorClass>(
    object: *mut c_void,
    out: *mut *mut DLManagedTensorVersioned,
) -> c_int {
    let export = |py: Python<'_>| {
        let (out, object) = (argument(out, "out")?, object.cast());
        // SAFETY: attached; `dlpack.h` promises a live object.
        let tensor = unsafe { tensor::<T>(py, &object) }?;
        wait_by_this_thread(py, tensor)?;
        let managed = export_versioned(tensor, false)?.into_raw();
        // SAFETY: `dlpack.h` promises a place to write to, which `argument` found to be neither NULL nor misaligned.
        unsafe { out.write(managed.as_ptr()) };
        Ok(())
    };
    // SAFETY: `dlpack.h` promises that the caller is attached.
    unsafe { answer(export) }
}

/// `managed_tensor_to_py_object_no_sync`. The tensor is the caller's unless this succeeds.
///
/// # Safety
/// As `dlpack.h` says: attached, a tensor of the caller's, a place to write to.
unsafe extern "C" fn to_object<T: TensorClass + Into<PyClassInitializer<T>>>(
    managed: *mut DLManagedTensorVersioned,
    out: *mut *mut c_void,
) -> c_int {
    let import = |py: Python<'_>| {
        let (managed, out) = (argument(managed, "tensor")?, argument(out, "out_py_object")?);
        let wrap = |tensor| -> PyResult<_> { Bound::new(py, T::from_lent(LentTensor::new(arrived(tensor)?))?) };
        // SAFETY: `dlpack.h` promises a managed tensor of the caller's, which is ours if this succeeds; it is not NULL.
        let object = unsafe { adopt_versioned(managed, release_attached, wrap) }?;
        // SAFETY: `dlpack.h` promises a place to write to, which `argument` found to be neither NULL nor misaligned.
        unsafe { out.write(object.into_ptr().cast()) };
        Ok(())
    };
    // SAFETY: `dlpack.h` promises that the caller is attached.
    unsafe { answer(import) }
}

/// `dltensor_from_py_object_no_sync`.
///
/// # Safety
/// As `dlpack.h` says: attached, a live object, a place to write to.
unsafe extern "C" fn borrow_object<T: TensorClass>(object: *mut c_void, out: *mut DLTensor) -> c_int {
    let borrow = |py: Python<'_>| {
        let (out, object) = (argument(out, "out")?, object.cast());
        // SAFETY: attached; `dlpack.h` promises a live object.
        let tensor = unsafe { tensor::<T>(py, &object) }?;
        if !tensor.is_writable() {
            let error = Error::new(ErrorKind::Unsupported, "a DLTensor cannot say that its memory is read-only");
            let remedy = "take a managed tensor, whose flags can, or convert with writable=True";
            return Err(error.remedy_is(remedy).into());
        }
        wait_by_this_thread(py, tensor)?;
        // SAFETY: `dlpack.h` promises a place to write to, which `argument` checked. The class is frozen, so nobody has the
        // instance exclusively before it is freed: what `lent_tensor` lends of it stays where it is, with its shape and
        // strides, as long as the object that the consumer holds.
        unsafe { out.write(borrowed(tensor)) };
        Ok(())
    };
    // SAFETY: `dlpack.h` promises that the caller is attached.
    unsafe { answer(borrow) }
}

/// `current_work_stream`.
///
/// # Safety
/// As `dlpack.h` says: attached, a place to write to.
unsafe extern "C" fn current_work_stream(device_type: DLDeviceType, device_id: i32, out: *mut *mut c_void) -> c_int {
    let stream = |_: Python<'_>| {
        let out = argument(out, "out_current_stream")?;
        let device = Device::from(DLDevice { device_type, device_id });
        let stream = match device_type {
            DLDeviceType::CPU | DLDeviceType::CUDA_HOST | DLDeviceType::ROCM_HOST => null_mut(),
            DLDeviceType::CUDA | DLDeviceType::CUDA_MANAGED => {
                let (current, stream) = (stream_order::enter(device)?, stream_order::current_stream());
                current.require_own(stream)?;
                std::ptr::without_provenance_mut(stream.number())
            }
            _ => return Err(PyBufferError::new_err(format!("this build works on no stream of {device}"))),
        };
        // SAFETY: `dlpack.h` promises a place to write to, which `argument` found to be neither NULL nor misaligned.
        unsafe { out.write(stream) };
        Ok(())
    };
    // SAFETY: `dlpack.h` promises that the caller is attached.
    unsafe { answer(stream) }
}

/// `managed_tensor_allocator`. Errors go to the callback alone: the caller need not be attached.
///
/// # Safety
/// As `dlpack.h` says: a tensor to read, a place to write to.
unsafe extern "C" fn allocate(
    prototype: *mut DLTensor,
    out: *mut *mut DLManagedTensorVersioned,
    context: *mut c_void,
    set_error: Option<DLPackSetError>,
) -> c_int {
    let allocated = match (NonNull::new(prototype), NonNull::new(out)) {
        (Some(prototype), Some(out)) if prototype.is_aligned() && out.is_aligned() => {
            // SAFETY: a tensor to read (a clause of `# Safety`), and aligned.
            let prototype = unsafe { prototype.as_ref() };
            let allocate = || {
                // SAFETY: `shape` has `ndim` entries, as `dlpack.h` says (a clause of `# Safety`).
                unsafe { allocate_like(prototype) }
            };
            let panicked = |panic: Box<dyn Any + Send>| {
                Err(Error::unsupported(format!("the allocation panicked: {}", callback::panic_message(&*panic))))
            };
            callback::run(allocate, panicked).map(|managed| {
                // SAFETY: a place to write to (a clause of `# Safety`), and aligned.
                unsafe { out.write(managed.as_ptr()) };
            })
        }
        _ => Err(Error::argument("prototype or out is NULL or misaligned")),
    };
    let (Err(error), Some(set_error)) = (&allocated, set_error) else { return if allocated.is_ok() { 0 } else { -1 } };
    let kind = match error.kind() {
        ErrorKind::Memory => c"MemoryError",
        ErrorKind::Device | ErrorKind::Unsupported => c"BufferError",
        ErrorKind::Internal => c"RuntimeError",
        _ => c"ValueError",
    };
    // No message of ours has a NUL.
    let message = CString::new(error.told_in(Language::Python).to_string()).unwrap_or_default();
    // SAFETY: `dlpack.h` promises a function for this context; both strings live during the call.
    unsafe { set_error(context, kind.as_ptr(), message.as_ptr()) };
    -1
}
