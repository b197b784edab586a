//! Allocates a tensor that a consumer describes.

use std::mem::MaybeUninit;
use std::ptr::NonNull;

use super::export::export_versioned;
use super::import::shape;
use crate::alloc::HostBuffer;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::ffi::dlpack::{DLManagedTensorVersioned, DLTensor};
use crate::spec::row_major_strides;
use crate::tensor::Tensor;

/// Allocates a row-major tensor of the prototype's dtype and shape, with zero elements, so that nobody reads what the
/// memory held before. Ignores the prototype's data pointer, strides and byte offset.
///
/// # Errors
/// If the prototype is not a tensor of host memory, its dtype is unknown here, or the allocation fails.
///
/// # Safety
/// `shape` of the prototype, unless NULL or misaligned, has `ndim` entries.
pub unsafe fn allocate_like(prototype: &DLTensor) -> Result<NonNull<DLManagedTensorVersioned>> {
    let device = Device::from(prototype.device);
    if !device.is_cpu() {
        let reason = format!("memory on {device} cannot be allocated by this build");
        return Err(Error::new(ErrorKind::Device, reason).remedy_is("ask for memory of the CPU"));
    }
    let dtype = DType::try_from(prototype.dtype)?;
    // SAFETY: `shape`, unless NULL or misaligned, has `ndim` entries, as promised.
    let shape = unsafe { shape(prototype) }?;
    let strides = row_major_strides(&shape)?;
    let too_large =
        || Error::new(ErrorKind::Memory, format!("shape {shape:?} of {dtype} is larger than memory can be"));
    let bytes = shape.iter().try_fold(dtype.itemsize(), |bytes, extent| match usize::try_from(*extent) {
        Ok(extent) => bytes.checked_mul(extent).ok_or_else(too_large),
        Err(_) => Err(Error::invalid(format!("shape {shape:?} has a negative extent"))),
    })?;
    let mut buffer = HostBuffer::uninitialised(bytes)?;
    buffer.as_uninit_mut().fill(MaybeUninit::new(0));
    // SAFETY: every byte was written, and zero bytes are elements of every dtype.
    let tensor = unsafe { Tensor::from_host_buffer(buffer, dtype, shape, strides, None) }?;
    Ok(export_versioned(&tensor, false)?.into_raw())
}
