//! Reads tensors by DLPack or the CUDA array interface, and copies them if that is requested or needed.

use pyo3::prelude::*;

use super::masked::refuse_masked;
use super::{Array, Tensor, producer};
use crate::device::Device;
use crate::plan::not_allowed;
use crate::spec::CopyMode;
use crate::stream_order;
use crate::tensor::Tensor as Core;
use crate::transfer::{Destination, copied_where_it_is, why_copied};

/// Imports a tensor of DLPack, or of the CUDA array interface where that is all there is; `None` for an object without.
///
/// A copy is made here, not asked for, so that it is one whatever the producer understands.
///
/// # Errors
/// What the producer raises, or what is wrong with its tensor; when `device` or `copy` cannot be met.
pub fn import_dlpack(object: &Bound<'_, PyAny>, device: Option<Device>, copy: CopyMode) -> PyResult<Option<Core>> {
    let Some((tensor, moved)) = imported(object, device, copy)? else { return Ok(None) };
    settled(object, tensor, moved, copy).map(Some)
}

/// As [`import_dlpack`], of a tensor that becomes a column: that realigns elements in host memory itself.
pub(super) fn dlpack_to_convert(object: &Bound<'_, PyAny>, copy: CopyMode) -> PyResult<Option<Core>> {
    match dlpack_as_it_is(object, None, copy)? {
        Some(tensor) if !tensor.device().is_cpu() => settled(object, tensor, false, copy).map(Some),
        Some(tensor) => refuse_copied(object, &tensor, copy).map(|()| Some(tensor)),
        None => Ok(None),
    }
}

/// An imported tensor, copied where that was asked for or its elements are misaligned.
fn settled(object: &Bound<'_, PyAny>, tensor: Core, moved: bool, copy: CopyMode) -> PyResult<Core> {
    let Some(why) = why_copied(&tensor, moved, copy)? else {
        return refuse_copied(object, &tensor, copy).map(|()| tensor);
    };
    let stream = stream_order::current_stream();
    Ok(object.py().detach(|| copied_where_it_is(&tensor, stream, why))?)
}

/// As [`dlpack_as_it_is`], of a producer that has not copied it where `copy` forbids that.
///
/// # Errors
/// As [`import_dlpack`].
pub(super) fn dlpack_unmoved(
    object: &Bound<'_, PyAny>,
    device: Option<Device>,
    copy: CopyMode,
) -> PyResult<Option<Core>> {
    let tensor = dlpack_as_it_is(object, device, copy)?;
    tensor.map(|tensor| refuse_copied(object, &tensor, copy).map(|()| tensor)).transpose()
}

/// Refuses what a producer has copied to hand it out, where no copy is allowed.
fn refuse_copied(object: &Bound<'_, PyAny>, tensor: &Core, copy: CopyMode) -> PyResult<()> {
    if copy == CopyMode::Never && tensor.is_copied() && !object.is_exact_instance_of::<Tensor>() {
        let reason = "the producer made a copy, which copy=False forbids";
        return Err(not_allowed(reason).into());
    }
    Ok(())
}

/// As [`import_dlpack`], the producer's own memory, aligned or not. It is on `device` if the producer alone can take it there.
///
/// # Errors
/// As [`import_dlpack`], but for what is copied here.
pub(super) fn dlpack_as_it_is(
    object: &Bound<'_, PyAny>,
    device: Option<Device>,
    copy: CopyMode,
) -> PyResult<Option<Core>> {
    if let Ok(tensor) = object.cast_exact::<Tensor>() {
        return Ok(Some(tensor.get().tensor().clone()));
    }
    // DLPack has no place for its type.
    if let Ok(array) = object.cast_exact::<Array>() {
        let array = array.get();
        return Ok(Some(object.py().detach(|| array.tensor(copy.once()))?));
    }
    refuse_masked(object)?;
    producer::ask(object, device, copy)
}

/// The tensor on the device asked for, and whether it was copied to be there.
fn imported(object: &Bound<'_, PyAny>, device: Option<Device>, copy: CopyMode) -> PyResult<Option<(Core, bool)>> {
    let Some(tensor) = dlpack_as_it_is(object, device, copy)? else { return Ok(None) };
    if device.is_none_or(|device| device == tensor.device()) {
        return Ok(Some((tensor, false)));
    }
    let there = object.py().detach(|| Destination::new(device, copy).tensor(tensor.clone()))?;
    let moved = !std::ptr::eq(there.as_ptr(), tensor.as_ptr());
    Ok(Some((there, moved)))
}
