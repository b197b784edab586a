//! `__dlpack__`, as the array API standard 2024.12 describes it.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::capsule::{legacy_capsule, versioned_capsule};
use super::device;
use super::options::Legacy;
use crate::convert::compact;
use crate::error::{Error, ErrorKind};
use crate::ffi::dlpack::DLPACK_MAJOR_VERSION;
use crate::tensor::Tensor;

/// The keywords of `__dlpack__`, as they came.
pub(super) struct DlpackArguments<'a, 'py> {
    pub(super) stream: Option<&'a Bound<'py, PyAny>>,
    pub(super) max_version: Option<&'a Bound<'py, PyAny>>,
    pub(super) dl_device: Option<&'a Bound<'py, PyAny>>,
    pub(super) copy: Option<bool>,
}

/// Exports a tensor as the consumer asks. `sole_owner` says that the tensor was copied for this call: the capsule alone
/// keeps it.
///
/// # Errors
/// `TypeError` for arguments of wrong types alone; `BufferError` for all that cannot be met.
pub(super) fn dlpack<'py>(
    py: Python<'py>,
    tensor: &Tensor,
    legacy: Legacy,
    sole_owner: bool,
    arguments: &DlpackArguments<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    if let Some(stream) = arguments.stream {
        check_stream(tensor, stream)?;
    }
    if let Some(dl_device) = arguments.dl_device {
        let Ok(dl_device) = dl_device.cast::<PyTuple>() else {
            return Err(PyTypeError::new_err("dl_device must be a tuple (device_type, device_id)"));
        };
        device::require(tensor.device(), device::extract(dl_device)?)?;
    }
    let versioned = match arguments.max_version {
        None => false,
        Some(max_version) => major(max_version)? >= DLPACK_MAJOR_VERSION,
    };
    if arguments.copy == Some(true) && !sole_owner {
        let copy = compact(tensor, "__dlpack__(copy=True)")?;
        return if versioned { versioned_capsule(py, &copy, true) } else { legacy_capsule(py, &copy) };
    }
    if versioned {
        return versioned_capsule(py, tensor, sole_owner);
    }
    if tensor.is_writable() {
        return legacy_capsule(py, tensor);
    }
    let unsayable = "an unversioned DLPack capsule cannot say that the memory is read-only";
    match (legacy, arguments.copy) {
        (Legacy::View, _) => legacy_capsule(py, tensor),
        (Legacy::Copy, None) => legacy_capsule(py, &compact(tensor, unsayable)?),
        (Legacy::Copy, Some(_)) => {
            let error = Error::new(ErrorKind::Copy, unsayable);
            Err(error.remedy_is("pass max_version=(1, 0), or copy=None, or convert with legacy=\"view\"").into())
        }
        (Legacy::Error, _) => {
            let error = Error::new(ErrorKind::Unsupported, unsayable);
            Err(error.remedy_is("pass max_version=(1, 0), or convert with legacy=\"copy\" or \"view\"").into())
        }
    }
}

/// Host memory has no streams: only None, or -1, which asks for no synchronisation.
fn check_stream(tensor: &Tensor, stream: &Bound<'_, PyAny>) -> PyResult<()> {
    if stream.extract::<i64>().is_ok_and(|stream| stream == -1) {
        return Ok(());
    }
    let reason = format!("stream must be None for data on {}", tensor.device());
    Err(Error::new(ErrorKind::Device, reason).remedy_is("pass stream=None").into())
}

fn major(max_version: &Bound<'_, PyAny>) -> PyResult<u32> {
    let wrong = || PyTypeError::new_err("max_version must be a tuple (major, minor) of two integers");
    let version = max_version.cast::<PyTuple>().map_err(|_| wrong())?;
    let (major, _minor) = version.extract::<(u32, u32)>().map_err(|_| wrong())?;
    Ok(major)
}

/// `__dlpack_device__()`.
pub(super) fn dlpack_device(device: crate::device::Device) -> (i32, i32) {
    let device = device.to_dlpack();
    (device.device_type.0, device.device_id)
}
