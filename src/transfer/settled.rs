//! Tensors of other libraries: which are copied where they are, and why.

use super::on_device::copy_on_device;
use crate::convert::compact;
use crate::cuda::Stream;
use crate::error::{Error, ErrorKind, Language, Remedy, Result};
use crate::ffi::dlpack::DLDeviceType;
use crate::plan::not_allowed;
use crate::spec::CopyMode;
use crate::tensor::Tensor;

/// Why a tensor is copied where nobody asked for it.
pub(crate) const REALIGNED: &str = "misaligned elements realigned";

/// Returns why an imported tensor is copied where it is: a copy is asked for, and `is_moved` was none on the way, or its elements are
/// misaligned.
///
/// # Errors
/// When the copy is not allowed, or no memory is allocated on that device.
pub(crate) fn why_copied(tensor: &Tensor, is_moved: bool, copy: CopyMode) -> Result<Option<&'static str>> {
    let is_reached = matches!(tensor.device().device_type(), DLDeviceType::CPU | DLDeviceType::CUDA);
    let why = match copy {
        CopyMode::Always if !is_moved => Language::copy_option(),
        CopyMode::IfNeeded if !tensor.is_aligned() && is_reached => REALIGNED,
        CopyMode::Never if !tensor.is_aligned() => {
            let reason = format!("the elements are not aligned for {}", tensor.dtype());
            return Err(not_allowed(reason).remedy_is(Remedy::AllowRealigning));
        }
        _ => return Ok(None),
    };
    if is_reached {
        return Ok(Some(why));
    }
    let reason = format!("no memory on {} is allocated here, and {why} needs some", tensor.device());
    Err(Error::new(ErrorKind::Device, reason).remedy_is(Remedy::CopyIfNeeded.or(tensor.device().host_remedy())))
}

/// Returns a copy of a tensor where it is, in host memory or on a CUDA device in the order of `stream`.
///
/// # Errors
/// When an allocation fails, or as [`copy_on_device`].
pub(crate) fn copied_where_it_is(tensor: &Tensor, stream: Stream, why: &str) -> Result<Tensor> {
    if tensor.device().is_cpu() { compact(tensor, why) } else { copy_on_device(tensor, stream, why) }
}
