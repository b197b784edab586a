//! `device=` of functions and `to_device` of classes. Conversions that read or return host memory run on the host:
//! device data that the CPU is asked for is moved first, and host data is converted before it moves to a device.

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

use super::exchange::memory;
use super::{counts, cuda_stream, device};
use crate::arrow::{DeviceArray, DeviceArrayStream};
use crate::convert::copy_array_for;
use crate::cuda::{SourceScope, allocate_from, is_host_visible, memory_source};
use crate::device::Device;
use crate::error::{Error, ErrorKind, Remedy, Result};
use crate::ragged::Ragged;
use crate::spec::CopyMode;
use crate::tensor::Tensor;
use crate::transfer::{Transfer, array_to_device, is_shared, stream_to_device, tensor_to_device, tensors_to_device};

/// What `device=` and `copy=` of a function ask for.
#[derive(Clone, Copy)]
pub(super) struct DeviceRequest {
    device: Option<Device>,
    copy: CopyMode,
}

impl DeviceRequest {
    pub(super) fn read(device: Option<&Bound<'_, PyAny>>, copy: CopyMode) -> PyResult<Self> {
        Ok(Self { device: device.map(device::extract).transpose()?, copy })
    }

    pub(super) fn new(device: Option<Device>, copy: CopyMode) -> Self {
        Self { device, copy }
    }

    /// The device to go to from `own`; `None` where data is to stay.
    fn elsewhere(&self, own: Device) -> Result<Option<Device>> {
        let Some(device) = self.device.filter(|device| *device != own) else { return Ok(None) };
        if self.copy == CopyMode::Never && !is_shared(own, device)? {
            let reason = format!("the data is on {own}, and is copied to be on {device}");
            return Err(Error::new(ErrorKind::Copy, reason).remedy_is(Remedy::AllowCopy));
        }
        Ok(Some(device))
    }

    /// Whether the result is to be on the host.
    pub(super) fn is_on_host(&self) -> bool {
        self.device.is_some_and(Device::is_cpu)
    }

    /// Whether results of data on `own` may have to go: what kernels make of page-locked and managed memory is on its device.
    pub(super) fn is_elsewhere(&self, own: Device) -> bool {
        self.device.is_some_and(|device| device != own || is_host_visible(own))
    }

    /// Refuses a result that would be elsewhere than `own`: what is written to `out=` is there.
    pub(super) fn require(&self, own: Device) -> PyResult<()> {
        device::require(own, self.device.unwrap_or(own))
    }

    /// An array, where it is asked for.
    pub(super) fn array(&self, py: Python<'_>, array: &DeviceArray) -> PyResult<DeviceArray> {
        let Some(device) = self.elsewhere(array.device())? else { return Ok(array.clone()) };
        let why = format!("device=\"{device}\"");
        Ok(py.detach(|| array_to_device(array, &Transfer::to(device, &why)))?)
    }

    /// Tensors, where they are asked for; those that are copied from one device, in memory of one block.
    pub(super) fn tensors(&self, py: Python<'_>, tensors: Vec<Tensor>) -> PyResult<Vec<Tensor>> {
        let mut target = None;
        for tensor in &tensors {
            target = self.elsewhere(tensor.device())?.or(target);
        }
        let Some(device) = target else { return Ok(tensors) };
        let why = format!("device=\"{device}\"");
        Ok(py.detach(|| tensors_to_device(&tensors, &Transfer::to(device, &why)))?)
    }

    /// A tensor, where it is asked for.
    pub(super) fn tensor(&self, py: Python<'_>, tensor: Tensor) -> PyResult<Tensor> {
        let Some(device) = self.elsewhere(tensor.device())? else { return Ok(tensor) };
        let why = format!("device=\"{device}\"");
        Ok(py.detach(|| tensor_to_device(&tensor, &Transfer::to(device, &why)))?)
    }

    /// Rows of different lengths, where they are asked for.
    pub(super) fn ragged(&self, py: Python<'_>, ragged: Ragged) -> PyResult<Ragged> {
        // Of page-locked memory the values may be made by a kernel, which writes to its device.
        let own = ragged.parts().iter().find_map(|part| self.elsewhere(part.device()).transpose()).transpose()?;
        let Some(device) = own else { return Ok(ragged) };
        let why = format!("device=\"{device}\"");
        Ok(py.detach(|| ragged.to_device(&Transfer::to(device, &why)))?)
    }

    /// Whether what is on `own` is copied to come where it is asked for: nobody else has that copy.
    ///
    /// # Errors
    /// When no way between the devices is known, or the driver fails.
    pub(super) fn is_copied_from(&self, own: Device) -> Result<bool> {
        self.device.filter(|device| *device != own).map_or(Ok(false), |device| Ok(!is_shared(own, device)?))
    }

    /// As [`DeviceRequest::stream`], its arrays in memory of their own: what is not copied to be where it is asked for is copied there.
    pub(super) fn copied_stream(&self, stream: DeviceArrayStream) -> PyResult<DeviceArrayStream> {
        let own = Device::new(stream.device_type(), 0);
        let target = self.device.unwrap_or(own);
        crate::transfer::require_way(own, target)?;
        let (asked, field, source) = (*self, stream.field().clone(), memory_source());
        let why = format!("device=\"{target}\"");
        let arrays = stream.map(move |array| {
            let _source = allocate_from(source.clone());
            let array = array?;
            let is_moved = asked.is_copied_from(array.device())?;
            let device = asked.device.unwrap_or(array.device());
            let there = array_to_device(&array, &Transfer::to(device, &why))?;
            if is_moved { Ok(there) } else { copy_array_for(&there, "copy=True") }
        });
        Ok(DeviceArrayStream::new(field, target.device_type(), arrays))
    }

    /// The device to go to from that of a stream's arrays, of which only the type is known.
    fn stream_elsewhere(&self, own: Device) -> Option<Device> {
        self.device.filter(|device| !device.is_cpu() || !own.is_cpu())
    }

    /// Refuses a stream none of whose arrays can come where it is asked for, before one is read.
    pub(super) fn require_way(&self, own: Option<Device>) -> PyResult<()> {
        let Some((own, device)) = own.and_then(|own| Some((own, self.stream_elsewhere(own)?))) else { return Ok(()) };
        if device.device_type() != own.device_type() {
            self.elsewhere(own)?;
        }
        Ok(crate::transfer::require_way(own, device)?)
    }

    /// A stream, whose arrays come where they are asked for.
    pub(super) fn stream(&self, stream: DeviceArrayStream) -> PyResult<DeviceArrayStream> {
        let own = Device::new(stream.device_type(), 0);
        let Some(device) = self.stream_elsewhere(own) else { return Ok(stream) };
        let stream = if device.device_type() == own.device_type() {
            // Which of the devices of its type each array is on, only the array tells.
            let (field, asked) = (stream.field().clone(), *self);
            let arrays = stream.map(move |array| {
                let array = array?;
                asked.elsewhere(array.device()).map(|_| array)
            });
            DeviceArrayStream::new(field, own.device_type(), arrays)
        } else {
            self.elsewhere(own)?;
            stream
        };
        crate::transfer::require_way(own, device)?;
        let why = format!("device=\"{device}\"");
        Ok(stream_to_device(stream, device, None, None, why))
    }
}

/// The keywords of `to_device`.
pub(super) struct ToDevice {
    pub(super) device: Device,
    stream: Option<crate::cuda::Stream>,
    threads: Option<std::num::NonZero<usize>>,
    why: String,
}

impl ToDevice {
    /// # Errors
    /// When the device is none, or there is a stream and none of the devices has any.
    pub(super) fn read(
        own: Device,
        device: &Bound<'_, PyAny>,
        stream: Option<&Bound<'_, PyAny>>,
        threads: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let device = device::extract(device)?;
        if stream.is_some() && !crate::cuda::is_cuda(own) && !crate::cuda::is_cuda(device) {
            return Err(PyBufferError::new_err("stream must be None for host memory"));
        }
        let (stream, threads) =
            (stream.map(cuda_stream::extract).transpose()?, threads.map(counts::threads).transpose()?);
        Ok(Self { device, stream, threads, why: format!("to_device(\"{device}\")") })
    }

    fn transfer(&self) -> Transfer<'_> {
        let mut transfer = Transfer::to(self.device, &self.why);
        (transfer.stream, transfer.threads) = (self.stream, self.threads);
        transfer
    }

    pub(super) fn array(&self, py: Python<'_>, array: &DeviceArray) -> PyResult<DeviceArray> {
        Ok(py.detach(|| array_to_device(array, &self.transfer()))?)
    }

    pub(super) fn tensor(&self, py: Python<'_>, tensor: &Tensor) -> PyResult<Tensor> {
        Ok(py.detach(|| tensor_to_device(tensor, &self.transfer()))?)
    }

    pub(super) fn stream(self, stream: DeviceArrayStream) -> DeviceArrayStream {
        stream_to_device(stream, self.device, self.stream, self.threads, self.why)
    }
}

/// Has a result on a device, of data on `own`, come from where the keywords say, until what is
/// returned is dropped. What stays on the host comes from nowhere else.
pub(super) fn result_source(
    own: Device,
    device: Option<&Bound<'_, PyAny>>,
    allocator: Option<&Bound<'_, PyAny>>,
    xp: Option<&Bound<'_, PyAny>>,
) -> PyResult<Option<SourceScope>> {
    let on_host = device.is_none() && own.is_cpu();
    memory::scope(allocator, xp.filter(|_| !on_host))
}
