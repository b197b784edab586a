//! How does a stream that was named before wait, without its device being entered?

use super::{Readiness, Ready, Wait, host};
use crate::cuda::{Called, CudaDevice, Stream, is_cuda};
use crate::device::Device;
use crate::error::Result;

impl Readiness {
    /// Makes a stream wait until the memory is written, if the stream was found before to be of the device's primary context.
    /// Returns false, and does nothing, if it was not, if it is being captured, if another library's event may be of a capture, or if
    /// the driver asks for a current context.
    ///
    /// # Errors
    /// If the device cannot be used, or the driver fails.
    pub(super) fn is_ordered_unguarded(&self, device: Device, stream: Stream, wait: Wait) -> Result<bool> {
        let Some(entered) = knows(device, stream)? else { return Ok(false) };
        if self.is_written() {
            return Ok(true);
        }
        if matches!(self.ready(), Some(Ready::Foreign(event)) if !event.is_known_outside()) {
            return Ok(false);
        }
        match self.is_waited_for(entered, stream, wait) {
            Err(status) if status.needs_context() => Ok(false),
            is_ordered => Ok(is_ordered?),
        }
    }

    /// Makes a stream wait by two calls of the driver, which need no guard: a stream that is named by its handle knows its
    /// context. Returns false, and does nothing, if the stream is being captured.
    fn is_waited_for(&self, entered: &CudaDevice, stream: Stream, wait: Wait) -> Called<bool> {
        let Some(event) = self.event().filter(|_| !wait.is_skipped()) else { return Ok(true) };
        if entered.is_capturing(stream)? {
            return Ok(false);
        }
        entered.stream_waits(stream, event)?;
        Ok(true)
    }
}

/// Returns the device, if it was found before that a stream is one of its primary context.
///
/// # Errors
/// If the device cannot be used.
fn knows(device: Device, stream: Stream) -> Result<Option<&'static CudaDevice>> {
    if !is_cuda(device) || stream.is_default() {
        return Ok(None);
    }
    let entered = host::device(device.id())?;
    Ok(entered.knows(stream).then_some(entered))
}
