//! What is refused on a stream that is being captured into a graph?

use crate::cuda::{Current, Stream};
use crate::device::Device;
use crate::error::{Error, ErrorKind, Remedy, Result};
use crate::ffi::dlpack::DLDeviceType;

/// Refuses a stream under capture, and the legacy default stream beside the capture of a stream that waits for it. `why` says
/// what the capture rules out.
///
/// # Errors
/// If the stream is being captured, or the driver fails.
pub(crate) fn refuse_capture(current: &Current, stream: Stream, why: &str) -> Result<()> {
    if current.is_capturing(stream)? {
        return Err(captured(current, stream, why));
    }
    Ok(())
}

/// Returns the error about a stream under capture, which names what to do before it.
pub(crate) fn captured(current: &Current, stream: Stream, why: &str) -> Error {
    captured_with(current, stream, why, |device| Remedy::BeforeCapture { device })
}

/// Returns the error about a stream under capture.
pub(super) fn captured_with(
    current: &Current,
    stream: Stream,
    why: &str,
    remedy: impl FnOnce(String) -> Remedy,
) -> Error {
    let which = if stream == Stream::LEGACY {
        "a stream that waits for the legacy default stream is being captured"
    } else {
        "the stream is being captured"
    };
    let device = Device::new(DLDeviceType::CUDA, current.device().ordinal());
    Error::new(ErrorKind::Device, format!("{which}, and {why}")).remedy_is(remedy(device.to_string()))
}

/// Returns the error about another library's event that was recorded in a stream under capture.
pub(super) fn event_captured(current: &Current) -> Error {
    let device = Device::new(DLDeviceType::CUDA, current.device().ordinal());
    let reason = "the event of the data was recorded in a stream under capture, so that only the graph writes the data";
    Error::new(ErrorKind::Device, reason).remedy_is(Remedy::WrittenBeforeCapture { device: device.to_string() })
}
