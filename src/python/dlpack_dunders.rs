//! `__dlpack__`, as the array API standard 2024.12 describes it.

use std::borrow::Cow;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::answers::{answer, error_about};
use super::capsule::{legacy_capsule, versioned_capsule};
use super::options::{Legacy, copy_mode};
use super::{cuda_stream, device};
use crate::convert::compact;
use crate::cuda::{Stream, is_cuda, is_host_visible};
use crate::device::Device;
use crate::error::{Error, ErrorKind};
use crate::ffi::dlpack::{DLDeviceType, DLPACK_MAJOR_VERSION};
use crate::plan::not_allowed;
use crate::stream_order::{self, Readiness, Wait};
use crate::tensor::Tensor;
use crate::transfer::{Transfer, copy_on_device, is_shared, plan_transfer, tensor_to_device};

/// The keywords of `__dlpack__`, as they came.
pub(super) struct DlpackArguments<'a, 'py> {
    pub(super) stream: Option<&'a Bound<'py, PyAny>>,
    pub(super) max_version: Option<&'a Bound<'py, PyAny>>,
    pub(super) dl_device: Option<&'a Bound<'py, PyAny>>,
    pub(super) copy: Option<bool>,
}

/// The keywords of a call `__dlpack__(**kwargs)`.
#[derive(Default)]
pub(super) struct DlpackKeywords<'py> {
    stream: Option<Bound<'py, PyAny>>,
    max_version: Option<Bound<'py, PyAny>>,
    dl_device: Option<Bound<'py, PyAny>>,
    copy: Option<bool>,
}

impl<'py> DlpackKeywords<'py> {
    /// # Errors
    /// `TypeError` for an unknown keyword, as Python raises it: consumers of older protocols then leave it out.
    pub(super) fn read(kwargs: Option<&Bound<'py, PyDict>>) -> PyResult<Self> {
        let mut keywords = Self::default();
        for (name, value) in kwargs.into_iter().flatten() {
            let given = Some(&value).filter(|value| !value.is_none());
            match name.extract::<String>()?.as_str() {
                "stream" => keywords.stream = given.cloned(),
                "max_version" => keywords.max_version = given.cloned(),
                "dl_device" => keywords.dl_device = given.cloned(),
                "copy" => keywords.copy = given.map(copy_of_dlpack).transpose()?.flatten(),
                other => {
                    let message = format!("__dlpack__() got an unexpected keyword argument '{other}'");
                    return Err(PyTypeError::new_err(message));
                }
            }
        }
        Ok(keywords)
    }

    pub(super) fn arguments(&self) -> DlpackArguments<'_, 'py> {
        DlpackArguments {
            stream: self.stream.as_ref(),
            max_version: self.max_version.as_ref(),
            dl_device: self.dl_device.as_ref(),
            copy: self.copy,
        }
    }
}

/// Exports a tensor as the consumer asks. `sole_owner` says that the tensor was copied for this call: the capsule alone
/// keeps it.
///
/// # Errors
/// `TypeError` for arguments of wrong types alone; `BufferError` for all that cannot be met.
pub(super) fn export_dlpack<'py>(
    py: Python<'py>,
    tensor: &Tensor,
    legacy: Legacy,
    sole_owner: bool,
    arguments: &DlpackArguments<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let asked = arguments.dl_device.map(requested).transpose()?;
    let consumer = Consumer::of(tensor, asked, arguments.stream)?;
    let versioned = match arguments.max_version {
        None => false,
        Some(max_version) => major(max_version)? >= DLPACK_MAJOR_VERSION,
    };
    let ready = match tensor.readiness() {
        None => match asked.filter(|asked| *asked != tensor.device()) {
            None => ReadyTensor { tensor: Cow::Borrowed(tensor), sole_owner },
            Some(asked) => moved_to(py, tensor, consumer, asked, arguments.copy)?,
        },
        Some(readiness) => on_device(py, tensor, readiness, consumer, asked, arguments.copy, sole_owner)?,
    };
    let ReadyTensor { tensor, sole_owner } = ready;
    if arguments.copy == Some(true) && !sole_owner {
        let copy = copied(&tensor, consumer, "__dlpack__(copy=True)")?;
        return if versioned { versioned_capsule(py, &copy, true) } else { legacy_capsule(py, &copy) };
    }
    if versioned {
        return versioned_capsule(py, &tensor, sole_owner);
    }
    if tensor.is_writable() {
        return legacy_capsule(py, &tensor);
    }
    let unsayable = "an unversioned DLPack capsule cannot say that the memory is read-only";
    match (legacy, arguments.copy) {
        (Legacy::View, _) => legacy_capsule(py, &tensor),
        (Legacy::Copy, None) if !is_allocated(tensor.device()) => {
            let reason = format!("{unsayable}, and no memory on {} is allocated here for a copy", tensor.device());
            let to_host = if is_cuda(tensor.device()) { "or dl_device=(1, 0), " } else { "" };
            let remedy = format!("pass max_version=(1, 0), {to_host}or convert with legacy=\"view\"");
            Err(Error::new(ErrorKind::Device, reason).remedy_is(remedy).into())
        }
        (Legacy::Copy, None) => legacy_capsule(py, &copied(&tensor, consumer, unsayable)?),
        (Legacy::Copy, Some(_)) => Err(not_allowed(unsayable)
            .remedy_is("pass max_version=(1, 0), or copy=None, or convert with legacy=\"view\"")
            .into()),
        (Legacy::Error, _) => {
            let error = Error::new(ErrorKind::Unsupported, unsayable);
            Err(error.remedy_is("pass max_version=(1, 0), or convert with legacy=\"copy\" or \"view\"").into())
        }
    }
}

/// Whom the data is for, by the argument `stream`.
#[derive(Clone, Copy)]
enum Consumer {
    /// None: one that works on the legacy default stream of the device, or on the host.
    Default,
    /// -1: one that orders its work itself.
    Unordered,
    On(Stream),
}

impl Consumer {
    fn of(tensor: &Tensor, asked: Option<Device>, stream: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        match stream {
            None => Ok(Self::Default),
            Some(stream) if answer(stream.py(), stream.extract::<i64>())? == Some(-1) => Ok(Self::Unordered),
            // ROCm's default stream, whose number is not CUDA's.
            Some(stream)
                if tensor.device().device_type() == DLDeviceType::ROCM
                    && answer(stream.py(), stream.extract::<i64>())? == Some(0) =>
            {
                Ok(Self::Default)
            }
            // Whatever it is.
            Some(_) if tensor.readiness().is_none() && asked.is_none_or(|asked| !is_cuda(asked)) => {
                Err(no_stream(tensor.device()).into())
            }
            Some(stream) => cuda_stream::extract(stream).map(Self::On),
        }
    }

    /// The stream that a copy is made on.
    fn stream(self) -> Stream {
        match self {
            Self::Default => Stream::LEGACY,
            Self::Unordered => stream_order::current_stream(),
            Self::On(stream) => stream,
        }
    }
}

/// A tensor that the consumer can have now.
struct ReadyTensor<'a> {
    tensor: Cow<'a, Tensor>,
    sole_owner: bool,
}

/// Reads the argument `copy`.
///
/// # Errors
/// `TypeError` for anything but a bool and None.
pub(super) fn copy_of_dlpack(copy: &Bound<'_, PyAny>) -> PyResult<Option<bool>> {
    let wrong = || {
        let told =
            |found| PyTypeError::new_err(format!("copy must be a bool or None: {found} is not an instance of 'bool'"));
        error_about(copy.py(), copy.repr(), told)
    };
    answer(copy.py(), copy.extract())?.ok_or_else(wrong)
}

fn requested(dl_device: &Bound<'_, PyAny>) -> PyResult<Device> {
    let wrong = || {
        let told = |found| format!("dl_device must be a tuple (device_type, device_id) of two integers, not {found}");
        error_about(dl_device.py(), dl_device.repr(), |found| PyTypeError::new_err(told(found)))
    };
    let tuple = dl_device.cast::<PyTuple>().map_err(|_| wrong())?;
    device::extract(tuple).map_err(|error| match error.is_instance_of::<PyTypeError>(dl_device.py()) {
        true => wrong(),
        false => error,
    })
}

/// Host memory has no streams: only None, or -1, which asks for no synchronisation.
fn no_stream(device: Device) -> Error {
    let reason = format!("stream must be None for data on {device}");
    Error::new(ErrorKind::Device, reason).remedy_is("pass stream=None")
}

/// Sees to it that a consumer of memory of a device finds it written, and finds it where it asked for it.
fn on_device<'a>(
    py: Python<'_>,
    tensor: &'a Tensor,
    readiness: &Readiness,
    consumer: Consumer,
    asked: Option<Device>,
    copy: Option<bool>,
    sole_owner: bool,
) -> PyResult<ReadyTensor<'a>> {
    let own = tensor.device();
    let elsewhere = asked.filter(|asked| asked.to_dlpack() != own.to_dlpack());
    let tensor = match elsewhere {
        None => Cow::Borrowed(tensor),
        Some(asked) if asked.is_cpu() && is_cuda(own) => {
            if matches!(consumer, Consumer::On(_)) {
                return Err(no_stream(asked).into());
            }
            plan_transfer(own, asked)?.refuse(copy_mode(copy))?;
            let host = py.detach(|| tensor_to_device(tensor, &Transfer::to(asked, "__dlpack__(dl_device=(1, 0))")))?;
            // The same memory, where the host reads that where it is.
            let moved = !std::ptr::eq(host.as_ptr(), tensor.as_ptr());
            return Ok(ReadyTensor { sole_owner: sole_owner || moved, tensor: Cow::Owned(host) });
        }
        Some(asked) if is_shared(own, asked)? => {
            Cow::Owned(py.detach(|| tensor_to_device(tensor, &Transfer::to(asked, "")))?)
        }
        Some(asked) => return moved_to(py, tensor, consumer, asked, copy),
    };
    if copy == Some(true) && !sole_owner {
        // A consumer that waits for the copy has waited for the source.
        return Ok(ReadyTensor { tensor, sole_owner });
    }
    match consumer {
        Consumer::Unordered => {}
        // It knows no streams, and reads at once.
        Consumer::Default if is_host_visible(tensor.device()) => {
            py.detach(|| readiness.wait_on_host(Wait::DlpackHostVisible))?;
        }
        Consumer::Default | Consumer::On(_) => {
            readiness.wait_on_stream(tensor.device(), consumer.stream(), Wait::DlpackStream)?;
        }
    }
    Ok(ReadyTensor { tensor, sole_owner })
}

/// A copy of a tensor on another device, made on the consumer's stream.
fn moved_to(
    py: Python<'_>,
    tensor: &Tensor,
    consumer: Consumer,
    asked: Device,
    copy: Option<bool>,
) -> PyResult<ReadyTensor<'static>> {
    plan_transfer(tensor.device(), asked)?.refuse(copy_mode(copy))?;
    let why = format!("__dlpack__(dl_device=({}, {}))", asked.device_type().0, asked.id());
    let transfer = Transfer { stream: Some(consumer.stream()), ..Transfer::to(asked, &why) };
    let moved = py.detach(|| tensor_to_device(tensor, &transfer))?;
    if let (Some(readiness), true) = (moved.readiness(), is_host_visible(asked)) {
        py.detach(|| readiness.wait_on_host(Wait::DlpackHostVisible))?;
    }
    Ok(ReadyTensor { tensor: Cow::Owned(moved), sole_owner: true })
}

/// Returns whether copies are made in memory of this kind.
fn is_allocated(device: Device) -> bool {
    device.is_cpu() || device.device_type() == DLDeviceType::CUDA
}

/// Copies a tensor into new memory on the device where it is.
fn copied(tensor: &Tensor, consumer: Consumer, why: &str) -> crate::error::Result<Tensor> {
    let device = tensor.device();
    if device.is_cpu() {
        return compact(tensor, why);
    }
    if !is_allocated(device) {
        let reason = format!("no memory on {device} is allocated here, and {why} needs some");
        return Err(
            Error::new(ErrorKind::Device, reason).remedy_is("pass copy=None, or dl_device=(1, 0) and copy=True")
        );
    }
    copy_on_device(tensor, consumer.stream(), why)
}

fn major(max_version: &Bound<'_, PyAny>) -> PyResult<u32> {
    let wrong = || PyTypeError::new_err("max_version must be a tuple (major, minor) of two integers");
    let version = max_version.cast::<PyTuple>().map_err(|_| wrong())?;
    let (major, _minor) = answer(version.py(), version.extract::<(u32, u32)>())?.ok_or_else(wrong)?;
    Ok(major)
}

/// `__dlpack_device__()`.
pub(super) fn dlpack_device(device: Device) -> (i32, i32) {
    let device = device.to_dlpack();
    (device.device_type.0, device.device_id)
}
