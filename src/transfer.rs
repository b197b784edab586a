//! Copies between the host and devices, and between memory of one device.
#![allow(unsafe_code, reason = "copies between memory of the device and of the host")]

mod arena;
mod batch;
mod bytes_of_copy;
mod destination;
mod facts;
mod host_read;
mod number;
mod on_device;
mod own_memory;
mod path;
mod request;
#[cfg(feature = "python")]
mod requested;
#[cfg(feature = "python")]
mod settled;
mod staging;
mod to_device;

pub(crate) use batch::{Returning, in_page_locked, page_locked, taken_over, to_device};
pub(crate) use bytes_of_copy::{EvenLists, bytes_of_copy};
pub(crate) use destination::Destination;
#[cfg(feature = "python")]
pub(crate) use destination::require_path;
pub(crate) use facts::{Facts, Unknowns};
pub(crate) use host_read::{HostRead, read_to_host};
pub(crate) use number::numbers_by;
/// For the tests of this crate, and no part of its interface.
#[doc(hidden)]
pub use number::with_null_count;
/// For the tests of this crate, and no part of its interface.
#[doc(hidden)]
pub use on_device::copy_on_device;
pub(crate) use on_device::zero_on;
pub(crate) use own_memory::{OwnBuffer, PinnedOwner, device_address, host_address, require_free, written};
/// For the tests of this crate, and no part of its interface.
#[doc(hidden)]
pub use path::is_shared;
#[cfg(feature = "python")]
pub(crate) use path::plan_transfer;
pub(crate) use path::{elsewhere, is_read_in_place, plan_transfer_unasked};
pub use request::Transfer;
#[cfg(feature = "python")]
pub(crate) use requested::{check_requested_on, requested_on};
#[cfg(feature = "python")]
pub(crate) use settled::{REALIGNED, copied_where_it_is, why_copied};
pub(crate) use to_device::array_to_read;
pub use to_device::{array_to_device, stream_to_device, tensor_to_device, tensors_to_device};
