//! Reads tensors by DLPack or the CUDA array interface, and copies them if that is requested or needed.

use pyo3::prelude::*;

use super::masked::refuse_masked;
use super::{Tensor, producer};
use crate::convert::compact;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Remedy};
use crate::ffi::dlpack::DLDeviceType;
use crate::plan::not_allowed;
use crate::spec::CopyMode;
use crate::stream_order;
use crate::tensor::Tensor as Core;
use crate::transfer::{Destination, copy_on_device};

/// Why a tensor of another library is copied where nobody asked for it.
pub(super) const REALIGNED: &str = "misaligned elements realigned";

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
pub(super) fn dlpack_to_convert(
    object: &Bound<'_, PyAny>,
    device: Option<Device>,
    copy: CopyMode,
) -> PyResult<Option<Core>> {
    let Some((tensor, moved)) = imported(object, device, copy)? else { return Ok(None) };
    if !tensor.device().is_cpu() {
        return settled(object, tensor, moved, copy).map(Some);
    }
    if copy == CopyMode::Never {
        refuse_copied(object, &tensor)?;
    }
    Ok(Some(tensor))
}

/// An imported tensor, copied where that was asked for or its elements are misaligned.
fn settled(object: &Bound<'_, PyAny>, tensor: Core, moved: bool, copy: CopyMode) -> PyResult<Core> {
    let reason = match copy {
        CopyMode::Always if !moved => "copy=True",
        CopyMode::IfNeeded if !tensor.is_aligned() && is_reached(&tensor) => REALIGNED,
        CopyMode::Never if !tensor.is_aligned() => {
            let reason = format!("the elements are not aligned for {}", tensor.dtype());
            return Err(not_allowed(reason).remedy_is("pass copy=None to realign them").into());
        }
        CopyMode::Never => {
            refuse_copied(object, &tensor)?;
            return Ok(tensor);
        }
        _ => return Ok(tensor),
    };
    if !is_reached(&tensor) {
        let error = Error::new(
            ErrorKind::Device,
            format!("no memory on {} is allocated here, and {reason} needs some", tensor.device()),
        );
        return Err(error.remedy_is(Remedy::from("pass copy=None").or(tensor.device().host_remedy())).into());
    }
    if tensor.device().device_type() == DLDeviceType::CUDA {
        return Ok(copy_on_device(&tensor, stream_order::current_stream(), reason)?);
    }
    Ok(object.py().detach(|| compact(&tensor, reason))?)
}

/// Whether elements can be copied where they are.
fn is_reached(tensor: &Core) -> bool {
    [DLDeviceType::CPU, DLDeviceType::CUDA].contains(&tensor.device().device_type())
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
    if let (Some(tensor), CopyMode::Never) = (&tensor, copy) {
        refuse_copied(object, tensor)?;
    }
    Ok(tensor)
}

/// Refuses what a producer has copied to hand it out.
fn refuse_copied(object: &Bound<'_, PyAny>, tensor: &Core) -> PyResult<()> {
    if tensor.is_copied() && !object.is_exact_instance_of::<Tensor>() {
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
