//! [`Destination`]: takes data, results and streams to the device that a caller asks for.

use std::borrow::Cow;

use super::path::{plan_transfer, plan_transfer_unasked};
use super::request::Transfer;
use super::to_device::{array_to_device, stream_to_device, tensors_to_device};
use crate::arrow::{DeviceArray, DeviceArrayStream};
#[cfg(feature = "python")]
use crate::convert::copy_array_for;
use crate::cuda::{Stream, is_cuda};
#[cfg(feature = "python")]
use crate::cuda::{allocate_from, memory_source};
use crate::device::Device;
use crate::error::{Error, Language, Result};
use crate::plan::TransferStep;
use crate::spec::CopyMode;
use crate::stream_order;
use crate::tensor::Tensor;

/// Where a caller asks for something, and when a copy may be made for that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Destination {
    device: Option<Device>,
    copy: CopyMode,
    /// The stream of the copies; `None` is this thread's.
    stream: Option<Stream>,
}

impl Destination {
    /// `None` leaves everything where it is.
    pub(crate) fn new(device: Option<Device>, copy: CopyMode) -> Self {
        Self { device, copy, stream: None }
    }

    /// The same, where this stream copies tensors; `None` is this thread's.
    pub(crate) fn on_stream(self, stream: Option<Stream>) -> Self {
        Self { stream, ..self }
    }

    /// The step that takes what is on `own` there; `None` where nothing is to be done.
    ///
    /// # Errors
    /// If no path between the devices is known, or a copy is needed and not allowed.
    pub(crate) fn plan(&self, own: Device) -> Result<Option<TransferStep>> {
        let Some(device) = self.device.filter(|device| *device != own) else { return Ok(None) };
        let step = plan_transfer(own, device)?;
        step.refuse(self.copy)?;
        Ok(Some(step))
    }

    /// Whether what is on `own` is copied to come there: nobody else has that copy.
    ///
    /// # Errors
    /// If no path between the devices is known, or the driver fails.
    pub(crate) fn is_copied_from(&self, own: Device) -> Result<bool> {
        match self.device.filter(|device| *device != own) {
            Some(device) => Ok(plan_transfer(own, device)?.is_copy()),
            None => Ok(false),
        }
    }

    /// As [`Destination::is_copied_from`], whatever the driver says.
    pub(crate) fn is_surely_copied_from(&self, own: Device) -> bool {
        let copies = |device| plan_transfer_unasked(own, device).is_ok_and(|step| step.is_copy());
        self.device.filter(|device| *device != own).is_some_and(copies)
    }

    /// Whether what is on `own` comes there before it is converted: the host converts if it is one of the two.
    pub(crate) fn comes_before(&self, own: Device) -> bool {
        self.device.is_some_and(Device::is_cpu) && !own.is_cpu()
    }

    /// When a copy may be made on `own`, of what goes there: one that is always made is the one on its way.
    ///
    /// # Errors
    /// As [`Destination::is_copied_from`].
    pub(crate) fn copy_before(&self, own: Device) -> Result<CopyMode> {
        Ok(if self.is_copied_from(own)? { self.copy.once() } else { self.copy })
    }

    /// As [`Destination::copy_before`], whatever the driver says.
    pub(crate) fn surely_copy_before(&self, own: Device) -> CopyMode {
        if self.is_surely_copied_from(own) { self.copy.once() } else { self.copy }
    }

    /// An array, there.
    ///
    /// # Errors
    /// As [`Destination::plan`] and [`array_to_device`].
    pub(crate) fn array<'a>(&self, array: &'a DeviceArray) -> Result<Cow<'a, DeviceArray>> {
        match self.plan(array.device())? {
            Some(step) => array_to_device(array, &Transfer::to(step.to, &why(step.to))).map(Cow::Owned),
            None => Ok(Cow::Borrowed(array)),
        }
    }

    /// Tensors, there; those that are copied from one device, in memory of one block.
    ///
    /// # Errors
    /// As [`Destination::plan`] and [`tensors_to_device`].
    pub(crate) fn tensors(&self, tensors: Vec<Tensor>) -> Result<Vec<Tensor>> {
        let mut target = None;
        for tensor in &tensors {
            target = self.plan(tensor.device())?.map(|step| step.to).or(target);
        }
        match target {
            Some(device) => {
                let why = why(device);
                tensors_to_device(&tensors, &Transfer { stream: self.stream, ..Transfer::to(device, &why) })
            }
            None => Ok(tensors),
        }
    }

    /// A tensor, there.
    ///
    /// # Errors
    /// As [`Destination::tensors`].
    pub(crate) fn tensor(&self, tensor: Tensor) -> Result<Tensor> {
        if self.device.is_none_or(|device| device == tensor.device()) {
            return Ok(tensor);
        }
        self.tensors(vec![tensor])?.pop().ok_or_else(|| Error::internal("a tensor was lost on its way"))
    }

    /// The device that a stream's arrays, of which only the type of device is known, are to leave theirs for.
    fn of_stream(&self, own: Device) -> Option<Device> {
        self.device.filter(|device| !device.is_cpu() || !own.is_cpu())
    }

    /// Refuses a stream on a device like `own`, if none of its arrays can come there, before one is read.
    ///
    /// # Errors
    /// As [`Destination::plan`], if the types of the devices decide it; if there is no driver or no such device.
    pub(crate) fn check_stream(&self, own: Device) -> Result<()> {
        let Some(device) = self.of_stream(own) else { return Ok(()) };
        if device.device_type() != own.device_type() {
            self.plan(own)?;
        }
        require_path(own, device)
    }

    /// A stream, its arrays there.
    ///
    /// # Errors
    /// As [`Destination::check_stream`].
    #[cfg_attr(not(feature = "python"), allow(dead_code, reason = "only Python hands streams on"))]
    pub(crate) fn stream(&self, stream: DeviceArrayStream) -> Result<DeviceArrayStream> {
        let own = Device::new(stream.device_type(), 0);
        self.check_stream(own)?;
        let Some(device) = self.of_stream(own) else { return Ok(stream) };
        let stream = if device.device_type() == own.device_type() {
            // Which of the devices of its type each array is on, only the array tells.
            let (field, there) = (stream.field().clone(), *self);
            let arrays = stream.map(move |array| {
                let array = array?;
                there.plan(array.device()).map(|_| array)
            });
            DeviceArrayStream::new(field, own.device_type(), arrays)
        } else {
            stream
        };
        Ok(stream_to_device(stream, device, None, None, why(device)))
    }
}

#[cfg(feature = "python")]
impl Destination {
    /// As [`Destination::array`]; where a copy is asked for, in memory of its own: what is not copied to come there is copied there.
    ///
    /// # Errors
    /// As [`Destination::array`] and [`copy_array_for`].
    pub(crate) fn delivered(&self, array: &DeviceArray) -> Result<DeviceArray> {
        let there = self.array(array)?;
        if self.copy != CopyMode::Always || self.is_copied_from(array.device())? {
            Ok(there.into_owned())
        } else {
            copy_array_for(&there, Language::copy_option())
        }
    }

    /// As [`Destination::stream`], its arrays as by [`Destination::delivered`].
    ///
    /// # Errors
    /// As [`Destination::check_stream`].
    pub(crate) fn delivered_stream(&self, stream: DeviceArrayStream) -> Result<DeviceArrayStream> {
        if self.copy != CopyMode::Always {
            return self.stream(stream);
        }
        let own = Device::new(stream.device_type(), 0);
        let target = self.device.unwrap_or(own);
        require_path(own, target)?;
        let (there, field, source) = (*self, stream.field().clone(), memory_source());
        let arrays = stream.map(move |array| {
            let _source = allocate_from(source.clone());
            there.delivered(&array?)
        });
        Ok(DeviceArrayStream::new(field, target.device_type(), arrays))
    }
}

/// Refuses a device that no array on a device like `own` can come to.
///
/// # Errors
/// If no path is known, or there is no driver or no such device.
pub(crate) fn require_path(own: Device, device: Device) -> Result<()> {
    match plan_transfer(own, device)?.is_nothing() {
        true => Ok(()),
        false if is_cuda(device) => stream_order::enter(device).map(drop),
        false => crate::cuda::driver().map(drop),
    }
}

/// What asks for a transfer, for the copy log.
fn why(device: Device) -> String {
    Language::device_option(&device.to_string())
}
