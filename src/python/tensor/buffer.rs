//! Exports a [`Tensor`] by the buffer protocol (<https://docs.python.org/3/c-api/buffer.html>).

use std::ffi::{CStr, c_char, c_int};

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::alloc::fallible;
use crate::dtype::DType;
use crate::tensor::Tensor;

/// Shape and strides (in bytes) of a buffer view, one after the other.
struct BufferDims(Vec<isize>);

/// Fills a view but for its owner.
///
/// # Errors
/// `BufferError` when the tensor has no form that the flags ask for; the view owns nothing then.
pub(super) fn fill_buffer(tensor: &Tensor, view: &mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
    let refuse = |reason: &str| Err(PyBufferError::new_err(reason.to_owned()));
    let wants = |flag: c_int| flags & flag == flag;
    if !tensor.device().is_cpu() {
        return refuse("the buffer protocol reaches host memory only");
    }
    let Some(format) = buffer_format(tensor.dtype()) else {
        return refuse(&format!("the buffer protocol has no format for {}", tensor.dtype()));
    };
    if wants(ffi::PyBUF_WRITABLE) && !tensor.is_writable() {
        return refuse("the tensor is read-only; convert with writable=True for memory of its own");
    }
    let row_major = tensor.is_row_major();
    if !row_major && (!wants(ffi::PyBUF_STRIDES) || wants(ffi::PyBUF_C_CONTIGUOUS)) {
        return refuse("the tensor is strided, and the consumer asks for row-major memory");
    }
    if wants(ffi::PyBUF_F_CONTIGUOUS) && !is_column_major(tensor) {
        return refuse("the consumer asks for column-major memory");
    }
    if wants(ffi::PyBUF_ANY_CONTIGUOUS) && !row_major && !is_column_major(tensor) {
        return refuse("the tensor is strided, and the consumer asks for contiguous memory");
    }
    let overflow = |_| PyBufferError::new_err("the tensor is larger than a buffer can be");
    let itemsize = isize::try_from(tensor.dtype().itemsize()).map_err(overflow)?;
    let mut dims = fallible::with_room(tensor.ndim() * 2)?;
    for extent in tensor.shape() {
        dims.push(isize::try_from(*extent).map_err(overflow)?);
    }
    for stride in tensor.strides() {
        // The tensor's byte span fits the address space, so that each step does.
        dims.push(isize::try_from(*stride).map_err(overflow)?.saturating_mul(itemsize));
    }
    view.len = isize::try_from(tensor.nbytes()).map_err(overflow)?;
    view.ndim = c_int::try_from(tensor.ndim()).map_err(overflow)?;
    view.itemsize = itemsize;
    view.readonly = c_int::from(!tensor.is_writable());
    // Some consumers take NULL for a failure, also at size 0.
    view.buf = if tensor.is_empty() { std::ptr::dangling_mut::<u64>().cast() } else { tensor.as_ptr().cast() };
    view.format =
        if wants(ffi::PyBUF_FORMAT) { format.as_ptr().cast_mut().cast::<c_char>() } else { std::ptr::null_mut() };
    view.suboffsets = std::ptr::null_mut();
    let dims = Box::leak(Box::new(BufferDims(dims)));
    let start = dims.0.as_mut_ptr();
    // NULL also where there are no dimensions, as the protocol says.
    let of_dims = |flag: c_int, first: *mut isize| {
        if wants(flag) && tensor.ndim() > 0 { first } else { std::ptr::null_mut() }
    };
    view.shape = of_dims(ffi::PyBUF_ND, start);
    view.strides = of_dims(ffi::PyBUF_STRIDES, start.wrapping_add(tensor.ndim()));
    view.internal = std::ptr::from_mut(dims).cast();
    Ok(())
}

fn is_column_major(tensor: &Tensor) -> bool {
    let mut expected = 1_i64;
    tensor.is_empty()
        || tensor.shape().iter().zip(tensor.strides()).all(|(extent, stride)| {
            let dense = *extent == 1 || *stride == expected;
            expected = expected.saturating_mul(*extent);
            dense
        })
}

/// The `struct` format of a dtype, in native size and order.
fn buffer_format(dtype: DType) -> Option<&'static CStr> {
    Some(match dtype {
        DType::Bool => c"?",
        DType::Int8 => c"b",
        DType::Int16 => c"h",
        DType::Int32 => c"i",
        DType::Int64 => c"q",
        DType::UInt8 => c"B",
        DType::UInt16 => c"H",
        DType::UInt32 => c"I",
        DType::UInt64 => c"Q",
        DType::Float16 => c"e",
        DType::Float32 => c"f",
        DType::Float64 => c"d",
        DType::Complex64 => c"Zf",
        DType::Complex128 => c"Zd",
        _ => return None,
    })
}

/// Frees what [`fill_buffer`] allocated.
///
/// # Safety
/// `view` was filled by [`fill_buffer`], and is released once.
pub(super) unsafe fn release_buffer(view: &mut ffi::Py_buffer) {
    if !view.internal.is_null() {
        // SAFETY: `internal` is the box that `fill_buffer` leaked, given back once.
        drop(unsafe { Box::from_raw(view.internal.cast::<BufferDims>()) });
        view.internal = std::ptr::null_mut();
    }
}
