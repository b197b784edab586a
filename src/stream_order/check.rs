//! The checks that `ARROW_DLPACK_CHECK` adds: addresses of host memory, because a device pointer labelled as the CPU's
//! looks like any other, and data that only a copy can check.

use std::env;
use std::sync::OnceLock;

use crate::cuda::{Pointer, is_started};
use crate::error::{Error, ErrorKind, Result};
use crate::ffi::dlpack::DLDeviceType;

/// Under `ARROW_DLPACK_CHECK=1`, refuses a host address that the driver knows as a device's, if this process uses a
/// driver.
///
/// # Errors
/// If it is a device's address, or the driver fails.
pub(crate) fn check_host(address: usize) -> Result<()> {
    if address == 0 || !is_check_asked() {
        return Ok(());
    }
    match Pointer::of(address)?.device {
        Some(device) if device.device_type() == DLDeviceType::CUDA => {
            let reason = format!("the address {address:#x} is said to be on the CPU, and is on {device}");
            Err(Error::new(ErrorKind::Device, reason).remedy_is("have its producer say which device it is on"))
        }
        _ => Ok(()),
    }
}

/// Returns whether `ARROW_DLPACK_CHECK` is 1, and there is a driver to ask.
#[inline]
pub(crate) fn is_check_asked() -> bool {
    static ASKED: OnceLock<bool> = OnceLock::new();
    is_started() && *ASKED.get_or_init(|| env::var_os("ARROW_DLPACK_CHECK").is_some_and(|value| value == "1"))
}
