//! Which path data takes from one device to another: the only place that decides it, for a transfer as for a report of one.

use std::ffi::c_int;

use crate::cuda::{is_cuda, is_host_visible};
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::ffi::dlpack::DLDeviceType;
use crate::plan::{TransferPath, TransferStep};
use crate::stream_order;

/// `CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS`.
const CONCURRENT_MANAGED_ACCESS: c_int = 89;

/// Returns whether the host may read device memory in place, once it is written. Managed memory of some devices is
/// excluded, because these must be idle meanwhile.
///
/// # Errors
/// When the driver fails.
pub(crate) fn is_read_in_place(device: Device) -> Result<bool> {
    if device.device_type() == DLDeviceType::CUDA_MANAGED {
        return Ok(stream_order::device(device.id())?.attribute(CONCURRENT_MANAGED_ACCESS)? != 0);
    }
    Ok(is_host_visible(device))
}

/// Returns the step that takes data from one device to another.
///
/// # Errors
/// If no path between them is known, or the driver fails.
pub(crate) fn plan_transfer(from: Device, to: Device) -> Result<TransferStep> {
    let step = plan_transfer_unasked(from, to)?;
    let path = match step.path {
        TransferPath::HostReadsOrCopied if is_read_in_place(from)? => TransferPath::HostReads,
        TransferPath::HostReadsOrCopied => TransferPath::Copied(STAGED),
        known => known,
    };
    Ok(TransferStep { path, ..step })
}

const STAGED: &str = "staged by way of page-locked blocks";

/// As [`plan_transfer`], without asking the driver: what only that knows is left open.
///
/// # Errors
/// If no path between them is known.
pub(crate) fn plan_transfer_unasked(from: Device, to: Device) -> Result<TransferStep> {
    use DLDeviceType as Type;
    let is_known = |device: Device| device.is_cpu() || is_cuda(device) && device.id() >= 0;
    let (own, target) = (from.device_type(), to.device_type());
    let path = if from == to || own == target && is_host_visible(from) {
        TransferPath::Same
    } else if !is_known(from) || !is_known(to) {
        return Err(elsewhere(from, to));
    } else {
        match (own, target) {
            (_, Type::CUDA_MANAGED) => return Err(elsewhere(from, to)),
            (Type::CUDA_MANAGED, Type::CUDA) => TransferPath::Relabelled,
            (Type::CUDA_MANAGED, Type::CPU) => TransferPath::HostReadsOrCopied,
            (_, Type::CPU) if is_host_visible(from) => TransferPath::HostReads,
            (Type::CPU, Type::CUDA) => {
                TransferPath::Copied("staged by way of page-locked blocks, or direct from page-locked memory")
            }
            (Type::CPU, Type::CUDA_HOST) => TransferPath::Copied("by threads of the host"),
            (_, Type::CPU) => TransferPath::Copied(STAGED),
            _ => TransferPath::Copied("direct"),
        }
    };
    Ok(TransferStep { from, to, path })
}

/// Returns the error for data that no copy takes to the requested device.
pub(crate) fn elsewhere(own: Device, asked: Device) -> Error {
    let reason = format!("the data is on {own} and was asked for on {asked}, and no copy between these is known here");
    Error::new(ErrorKind::Device, reason)
        .remedy_is(format!("ask for it on {own}, and copy it with the library that takes it"))
}

/// Returns whether another device has this device's data without a copy.
///
/// # Errors
/// As [`plan_transfer`].
#[doc(hidden)]
pub fn is_shared(own: Device, asked: Device) -> Result<bool> {
    Ok(!plan_transfer(own, asked)?.is_copy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_leads_to_a_device_without_a_number() {
        for kind in [DLDeviceType::CUDA, DLDeviceType::CUDA_HOST] {
            let nowhere = Device::new(kind, -3);
            assert_eq!(plan_transfer_unasked(Device::CPU, nowhere).unwrap_err().kind(), ErrorKind::Device);
            assert_eq!(plan_transfer_unasked(nowhere, Device::CPU).unwrap_err().kind(), ErrorKind::Device);
            assert!(plan_transfer_unasked(Device::CPU, Device::new(kind, 0)).is_ok());
        }
    }
}
