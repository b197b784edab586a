//! Reads the keywords of `to_device`, and where the memory of a result on a device comes from.

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

use super::exchange::memory;
use super::{counts, cuda_stream, device};
use crate::arrow::{DeviceArray, DeviceArrayStream};
use crate::cuda::SourceScope;
use crate::device::Device;
use crate::tensor::Tensor;
use crate::transfer::{Transfer, array_to_device, stream_to_device, tensor_to_device};

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

/// Sets where the memory of results on a device comes from, as the keywords say, until what is returned is dropped. `own`: the device of the
/// data. Results in host memory come from the host's allocator alone.
pub(super) fn result_source(
    own: Device,
    device: Option<&Bound<'_, PyAny>>,
    allocator: Option<&Bound<'_, PyAny>>,
    xp: Option<&Bound<'_, PyAny>>,
) -> PyResult<Option<SourceScope>> {
    let on_host = device.is_none() && own.is_cpu();
    memory::scope(allocator, xp.filter(|_| !on_host))
}
