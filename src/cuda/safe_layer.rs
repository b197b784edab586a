//! Contexts and streams of cudarc's safe layer as ours.

use cudarc::driver::{CudaContext, CudaStream};

use super::context::CudaDevice;
use super::driver::StreamHandle;
use super::stream::Stream;
use crate::error::{Error, ErrorKind, Result};

impl Stream {
    /// Returns a stream of cudarc, whose NULL is the legacy default stream.
    ///
    /// # Safety
    /// As [`Stream::new`]: the stream lives until nothing here uses it any more.
    #[must_use]
    pub unsafe fn of_cudarc(stream: &CudaStream) -> Self {
        let address = stream.cu_stream().addr();
        if address == 0 { Self::LEGACY } else { Self::own(StreamHandle::from_address(address)) }
    }
}

/// Returns the device of a context of cudarc.
///
/// # Errors
/// If it is not the primary context of the device.
pub(crate) fn require_primary(context: &CudaContext) -> Result<&'static CudaDevice> {
    let missing = || Error::new(ErrorKind::Device, format!("there is no device cuda:{}", context.ordinal()));
    let device = CudaDevice::get(i32::try_from(context.ordinal()).map_err(|_| missing())?)?;
    if device.context().address() == context.cu_ctx().addr() {
        return Ok(device);
    }
    let reason = format!("a context of cudarc that is not the primary one of cuda:{}", device.ordinal());
    Err(Error::new(ErrorKind::Device, reason)
        .remedy_is("make it by CudaContext::new; contexts other than the primary one are not supported"))
}
