//! Asks DLPack producers for their tensors, in an order that makes them safe to use.
//!
//! A CUDA producer is called with its device current, and is given one of two streams. If its library has an exchange table, and works
//! on a stream of its own, the producer is given that stream: no stream has to wait. If the library has no table, or works on a default
//! stream, as PyTorch mostly does, the producer is given an idle stream of ours, and makes it wait for its work: a slow producer delays
//! no other import. An event that is recorded on the stream afterwards tells when the tensor is written. The host does not wait.

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};

use super::answers::{answer, text};
use super::capsule::{call, call_if_present, tensor_from_capsule};
use super::exchange::work_stream;
use super::tensor::of_cuda_array_interface;
use crate::cuda::{Current, PooledStream, Stream, is_cuda};
use crate::device::Device;
use crate::error::{Error, ErrorKind};
use crate::ffi::dlpack::{DLDeviceType, DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
use crate::spec::CopyMode;
use crate::stream_order::{self, Readiness, Wait, captured};
use crate::tensor::Tensor;

/// The tensor of an object with `__dlpack__`, or, without that, with `__cuda_array_interface__`; `None` without either.
///
/// Keywords are passed only when they say something, and dropped one by one for producers that know an older protocol.
/// Another device is not asked for of memory that we move ourselves: from CUDA, and from the CPU to CUDA.
///
/// # Errors
/// What the producer raises, or what is wrong with its tensor.
pub(super) fn ask(object: &Bound<'_, PyAny>, device: Option<Device>, copy: CopyMode) -> PyResult<Option<Tensor>> {
    // A class that speaks no DLPack, of a base that does, says so by None.
    let Some(method) = object.getattr_opt(intern!(object.py(), "__dlpack__"))?.filter(|method| !method.is_none())
    else {
        return of_cuda_array_interface(object);
    };
    let advertised = advertised_device(object)?;
    if let Some(advertised) = advertised.filter(|advertised| has_streams(*advertised)) {
        return on_stream(object, &method, advertised, copy).map(Some);
    }
    let is_ours = |advertised: Device| is_cuda(advertised) || advertised.is_cpu() && device.is_some_and(is_cuda);
    let elsewhere = |advertised: Device| Some(advertised) != device && !is_ours(advertised);
    let transfer = device.filter(|_| advertised.is_some_and(elsewhere));
    let call = DlpackCall { stream: None, transfer, copy };
    let tensor = tensor_from_capsule(&call.make(&method)?.0)?;
    behind(&tensor, Stream::LEGACY)?;
    Ok(Some(tensor))
}

/// Whether producers order memory of this type by streams. Of page-locked memory they say what they say of the host's: PyTorch
/// refuses a stream there, and hands it out as the CPU's.
fn has_streams(device: Device) -> bool {
    is_cuda(device) && device.device_type() != DLDeviceType::CUDA_HOST
}

fn on_stream(
    object: &Bound<'_, PyAny>,
    method: &Bound<'_, PyAny>,
    advertised: Device,
    copy: CopyMode,
) -> PyResult<Tensor> {
    // PyTorch exports from the current device alone.
    let current = stream_order::enter(advertised)?;
    let works_on = work_stream(object, advertised)?;
    if let Some(stream) = works_on.filter(|stream| !stream.is_default() && current.is_own(*stream)) {
        // Nothing has to wait: the library's own stream, which is not drawn into a graph by that.
        let (capsule, has_waited) = DlpackCall { stream: Some(stream), transfer: None, copy }.make(method)?;
        let stream = if has_waited { stream } else { Stream::LEGACY };
        return ordered(&current, &capsule, advertised, |readiness| behind_others(readiness, &current, stream));
    }
    let stream = PooledStream::idle(&current).map_err(Error::from)?;
    let made = DlpackCall { stream: Some(stream.stream()), transfer: None, copy }.make(method);
    // A stream of ours that waits for one under capture becomes a part of the graph.
    if works_on.is_none_or(|stream| !stream.is_default())
        && current.is_capturing(stream.stream()).map_err(Error::from)?
    {
        let error = captured(&current, stream.stream(), "the library of the tensor works on it");
        stream.leave_to_graph();
        return Err(error.into());
    }
    let (capsule, has_waited) = made?;
    ordered(&current, &capsule, advertised, |readiness| {
        if has_waited {
            readiness.written_behind(&current, stream.stream(), Wait::DlpackImport)
        } else {
            behind_others(readiness, &current, Stream::LEGACY)
        }
    })
}

/// Orders memory behind another library's stream: without one that was named, behind the legacy default one.
fn behind_others(readiness: &Readiness, current: &Current, stream: Stream) -> crate::error::Result<()> {
    let wait = if stream == Stream::LEGACY { Wait::DlpackDefault } else { Wait::DlpackImport };
    readiness.written_behind_others(current, stream, wait)
}

/// The tensor of a capsule, ordered by `order`.
fn ordered(
    current: &Current,
    capsule: &Bound<'_, PyAny>,
    advertised: Device,
    order: impl FnOnce(&Readiness) -> crate::error::Result<()>,
) -> PyResult<Tensor> {
    let tensor = tensor_from_capsule(capsule)?;
    let Some(readiness) = tensor.readiness() else { return Ok(tensor) };
    let found = tensor.device();
    if !is_cuda(found) || found.device_type() == DLDeviceType::CUDA && found.id() != advertised.id() {
        let reason = format!("__dlpack_device__ says {advertised}, and the capsule {found}");
        return Err(Error::new(ErrorKind::Device, reason).into());
    }
    order(readiness)?;
    tensor.check_memory(current)?;
    Ok(tensor)
}

/// Orders a tensor behind the stream that its producer was given; without one, behind the legacy default stream, as DLPack
/// says.
pub(super) fn behind(tensor: &Tensor, stream: Stream) -> PyResult<()> {
    let device = tensor.device();
    require_known(device)?;
    let Some(readiness) = tensor.readiness().filter(|_| is_cuda(device)) else { return Ok(()) };
    if !has_streams(device) && !stream_order::is_available() {
        // Host memory all the same.
        return Ok(());
    }
    let current = stream_order::enter(device)?;
    tensor.check_memory(&current)?;
    Ok(readiness.written_behind_others(&current, stream, Wait::DlpackDefault)?)
}

/// What `__dlpack_device__` says; `None` without it.
fn advertised_device(object: &Bound<'_, PyAny>) -> PyResult<Option<Device>> {
    let py = object.py();
    let Some(returned) = call_if_present(object, intern!(py, "__dlpack_device__"))? else { return Ok(None) };
    let (device_type, id) = match answer(py, returned.extract::<(i32, Option<i64>)>())? {
        Some((device_type, Some(id))) => (device_type, id),
        // paddle names no ordinal for the one CPU.
        Some((device_type, None)) if device_type == DLDeviceType::CPU.0 => (device_type, 0),
        _ => {
            let returned = text(py, returned.repr())?;
            let wrong = format!("__dlpack_device__ must return (device_type, device_id), and returned {returned}");
            return Err(PyTypeError::new_err(wrong));
        }
    };
    let device = Device::from_arrow(device_type, id)?;
    require_known(device)?;
    Ok(Some(device))
}

/// Refuses a device whose work is ordered by streams of a runtime that is not used here.
pub(super) fn require_known(device: Device) -> crate::error::Result<()> {
    if device.device_type() == DLDeviceType::ROCM {
        let reason = format!("the tensor is on {device}, and this build orders no work on its streams");
        return Err(Error::new(ErrorKind::Device, reason).remedy_is(device.host_remedy()));
    }
    Ok(())
}

/// A call of `__dlpack__`.
struct DlpackCall {
    stream: Option<Stream>,
    transfer: Option<Device>,
    copy: CopyMode,
}

impl DlpackCall {
    /// The capsule, and whether the producer knew the argument `stream`.
    fn make<'py>(&self, method: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyAny>, bool)> {
        let py = method.py();
        let keywords = PyDict::new(py);
        let stream = intern!(py, "stream");
        if let Some(own) = self.stream {
            keywords.set_item(stream, own.number())?;
        }
        if let Some(device) = self.transfer {
            let device = device.to_dlpack();
            keywords.set_item(intern!(py, "dl_device"), (device.device_type.0, device.device_id))?;
        }
        if self.copy == CopyMode::Never {
            keywords.set_item(intern!(py, "copy"), false)?;
        }
        static VERSION: PyOnceLock<Py<PyTuple>> = PyOnceLock::new();
        let known = (DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION);
        let version = VERSION.get_or_try_init(py, || known.into_pyobject(py).map(Bound::unbind))?;
        keywords.set_item(intern!(py, "max_version"), version)?;
        let mut outcome = call(method, (), Some(&keywords));
        // Newest keyword first: `copy` and `dl_device` came after `max_version`, which came after `stream`. An error of a class
        // of its own is none about keywords.
        for keyword in [intern!(py, "copy"), intern!(py, "dl_device"), intern!(py, "max_version"), stream] {
            if let Err(refused) = &outcome
                && refused.get_type(py).is(py.get_type::<PyTypeError>())
                && keywords.contains(keyword)?
            {
                keywords.del_item(keyword)?;
                let refused = refused.clone_ref(py);
                outcome = call(method, (), Some(&keywords));
                if let Err(error) = &outcome {
                    follow(py, error, refused);
                }
            }
        }
        let has_waited = keywords.contains(stream)?;
        Ok((outcome?, has_waited))
    }
}

/// Names the error of a try as the cause of that of the next one, unless the producer has named one itself. One exception that is raised
/// again does not become its own cause: who follows the causes would never end.
fn follow(py: Python<'_>, error: &PyErr, refused: PyErr) {
    // There are fewer tries than this.
    let mut causes = std::iter::successors(Some(refused.clone_ref(py)), |error| error.cause(py)).take(8);
    if error.cause(py).is_none() && !causes.any(|cause| cause.value(py).is(error.value(py))) {
        error.set_cause(py, Some(refused));
    }
}
