//! How data would get from one device to another, without asking the driver: for `explain`.

use super::arena::Arena;
use super::elsewhere;
use super::to_device::Way;
use crate::arrow::{Decomposed, DeviceArray};
use crate::cuda::is_host_visible;
use crate::device::Device;
use crate::error::Result;
use crate::ffi::dlpack::DLDeviceType;

/// How data would get from one device to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// It is there.
    Same,
    /// The other device reaches the same memory.
    Shared,
    /// Only the driver knows whether the host reads the memory in place.
    SharedOrCopied,
    /// By a copy, made like this.
    Copied(&'static str),
}

impl Route {
    /// # Errors
    /// If no route between them is known.
    pub(crate) fn between(own: Device, target: Device) -> Result<Self> {
        let way = Way::by(own, target, |device| Ok(is_host_visible(device)))?;
        Ok(match (way, own.device_type(), target.device_type()) {
            (Way::Same, _, _) => Self::Same,
            (Way::HostReads, DLDeviceType::CUDA_MANAGED, _) => Self::SharedOrCopied,
            (Way::HostReads | Way::Relabelled, _, _) => Self::Shared,
            (Way::Copied, DLDeviceType::CPU, DLDeviceType::CUDA) => {
                Self::Copied("staged by way of page-locked blocks, or direct from page-locked memory")
            }
            (Way::Copied, DLDeviceType::CPU, DLDeviceType::CUDA_HOST) => Self::Copied("by threads of the host"),
            (Way::Copied, _, DLDeviceType::CPU) => Self::Copied("staged by way of page-locked blocks"),
            (Way::Copied, _, DLDeviceType::CUDA | DLDeviceType::CUDA_HOST) => Self::Copied("direct"),
            (Way::Copied, _, _) => return Err(elsewhere(own, target)),
        })
    }
}

impl Route {
    /// Returns whether data is certainly copied between these devices.
    #[cfg(feature = "python")]
    pub(crate) fn is_copy(own: Device, target: Device) -> bool {
        matches!(Self::between(own, target), Ok(Self::Copied(_)))
    }
}

/// Returns the bytes of a copy of an array to the host; `None` if only its offsets tell.
pub(crate) fn bytes_to_host(array: &DeviceArray) -> Option<usize> {
    let unread = |_: &[_]| Err(elsewhere(array.device(), Device::CPU));
    let apart = Decomposed::new(array, true, &mut { unread }).ok()?;
    let mut arena = Arena::default();
    apart.pieces.iter().try_for_each(|piece| arena.place(piece.len()).map(drop)).ok()?;
    Some(arena.bytes())
}
