//! Reads `out=`: memory of any library that a conversion writes into.

use std::sync::Arc;

use pyo3::buffer::{ElementType, PyUntypedBuffer};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;

use crate::dtype::DType;
use crate::ffi::dlpack::DLDeviceType;
use crate::plan::not_allowed;
use crate::python::answers::answer;
use crate::python::exchange::work_stream;
use crate::python::masked::refuse_masked;
use crate::python::tensor_input::dlpack_as_it_is;
use crate::spec::{CopyMode, Dims};
use crate::stream_order::{self, Wait};
use crate::tensor::{Output, Tensor, TensorParts};

/// Calls `work` with the memory of a writable tensor in host memory.
///
/// # Errors
/// `TypeError` for an object without `__dlpack__`, what that raises, or what `work` gives; when the tensor cannot be
/// written.
pub(in crate::python) fn with_output<R>(
    object: &Bound<'_, PyAny>,
    work: impl FnOnce(&mut Output<'_>) -> PyResult<R>,
) -> PyResult<R> {
    refuse_masked(object)?;
    // NumPy answers the buffer protocol in a fraction of the time that a capsule takes it.
    if is_tensor(object)?
        && let Some(buffer) = answer(object.py(), PyUntypedBuffer::get(object))?
    {
        if let Some(tensor) = of_buffer(&buffer) {
            // SAFETY: `buffer` keeps the memory where it is until it is released; for the rest, as below.
            let written =
                unsafe { Output::from_tensor(&tensor) }.map_err(PyErr::from).and_then(|mut out| work(&mut out));
            buffer.release(object.py());
            return written;
        }
        buffer.release(object.py());
    }
    // A producer that would have to copy refuses: the copy would be written, and lost.
    let Some(tensor) = dlpack_as_it_is(object, None, CopyMode::Never)? else {
        let name = object.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string());
        return Err(PyTypeError::new_err(format!("out must be a writable tensor (with __dlpack__), and is {name}")));
    };
    if tensor.is_copied() && !object.is_exact_instance_of::<super::Tensor>() {
        let reason = "the library of out made a copy of it, which nobody would see";
        return Err(not_allowed(reason).remedy_is("pass a tensor that is exported as it is").into());
    }
    // SAFETY: the tensor keeps the memory alive. That nobody else uses it meanwhile is what a caller who passes `out=` says, as
    // with every library that has one: we hold no slice of it, and its other users are Python code.
    let mut out = unsafe { Output::from_tensor(&tensor) }?;
    let written = work(&mut out);
    // Also after an error, because started work writes the memory.
    let waits = behind_ours(object, &tensor).or_else(|error| {
        // A library whose stream does not wait finds the memory written.
        let readiness = tensor.readiness();
        readiness.map_or(Ok(()), |readiness| readiness.wait_on_host(Wait::OutputTaken))?;
        Err(error)
    });
    let written = written?;
    waits.map(|()| written)
}

/// Has the stream that the library of `out` works on wait until our stream has written the memory.
fn behind_ours(object: &Bound<'_, PyAny>, tensor: &Tensor) -> PyResult<()> {
    let device = tensor.device();
    let Some(readiness) = tensor.readiness().filter(|_| device.device_type() == DLDeviceType::CUDA) else {
        return Ok(());
    };
    let Some(stream) = work_stream(object, device)? else { return Ok(()) };
    // A stream of another context cannot wait for ours.
    if !stream.is_default() && !stream_order::enter(device)?.is_own(stream) {
        return Ok(());
    }
    Ok(readiness.wait_on_stream(device, stream, Wait::OutputTaken)?)
}

/// Whether an object of another library's speaks DLPack.
fn is_tensor(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(!object.is_exact_instance_of::<super::Tensor>()
        && object.get_type().hasattr(intern!(object.py(), "__dlpack__"))?)
}

/// The memory of a buffer, as long as that is held; `None` for elements that buffers have no name for, or whose layout is none
/// of a tensor's: what `__dlpack__` says is heard then.
fn of_buffer(buffer: &PyUntypedBuffer) -> Option<Tensor> {
    let format = buffer.format();
    if buffer.suboffsets().is_some() || matches!(format.to_bytes().first(), Some(b'>' | b'!')) {
        return None;
    }
    let dtype = dtype_of(ElementType::from_format(format))?;
    let bytes = dtype.itemsize();
    if buffer.item_size() != bytes {
        return None;
    }
    let shape = buffer.shape().iter().map(|extent| i64::try_from(*extent).ok()).collect::<Option<Dims>>()?;
    let size = i64::try_from(bytes).ok()?;
    let whole = |stride: &isize| i64::try_from(*stride).ok().filter(|stride| stride % size == 0);
    let strides = buffer.strides().iter().map(|stride| Some(whole(stride)? / size)).collect::<Option<Dims>>()?;
    let parts = TensorParts::of_host(buffer.buf_ptr().cast(), dtype, (shape, strides), Arc::new(()));
    let parts = TensorParts { read_only: buffer.readonly(), ..parts };
    // SAFETY: the buffer protocol gives these elements, in memory that stays while the buffer is held, as our only caller does
    // for as long as it has the tensor.
    unsafe { Tensor::from_parts(parts) }.ok().map(Tensor::into_lent)
}

/// The dtype that buffers have a name for.
fn dtype_of(element: ElementType) -> Option<DType> {
    Some(match element {
        ElementType::Bool => DType::Bool,
        ElementType::SignedInteger { bytes: 1 } => DType::Int8,
        ElementType::SignedInteger { bytes: 2 } => DType::Int16,
        ElementType::SignedInteger { bytes: 4 } => DType::Int32,
        ElementType::SignedInteger { bytes: 8 } => DType::Int64,
        ElementType::UnsignedInteger { bytes: 1 } => DType::UInt8,
        ElementType::UnsignedInteger { bytes: 2 } => DType::UInt16,
        ElementType::UnsignedInteger { bytes: 4 } => DType::UInt32,
        ElementType::UnsignedInteger { bytes: 8 } => DType::UInt64,
        ElementType::Float { bytes: 2 } => DType::Float16,
        ElementType::Float { bytes: 4 } => DType::Float32,
        ElementType::Float { bytes: 8 } => DType::Float64,
        _ => return None,
    })
}
