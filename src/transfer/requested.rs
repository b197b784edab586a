//! Arrays of a requested type on a requested device. The host casts if it is one of the two devices.

use arrow_schema::FieldRef;

use super::destination::Destination;
use super::request::Transfer;
use super::to_device::array_to_device;
use crate::arrow::DeviceArray;
use crate::convert::{check_request_on, request_field};
use crate::device::Device;
use crate::error::Result;
use crate::spec::CopyMode;

/// Returns an array on the device of `transfer`, of the `requested` type if there is one.
///
/// # Errors
/// When no cast gives the requested type, or as [`array_to_device`].
pub(crate) fn requested_on(
    array: &DeviceArray,
    requested: Option<&FieldRef>,
    transfer: &Transfer<'_>,
) -> Result<DeviceArray> {
    let Some(requested) = requested else { return array_to_device(array, transfer) };
    match comes_before(array.device(), transfer.device) {
        true => request_field(&array_to_device(array, transfer)?, requested),
        false => array_to_device(&request_field(array, requested)?, transfer),
    }
}

/// Refuses a type that no array on `own` of this field can have on the device `target`.
///
/// # Errors
/// When there is no cast where it would be made.
pub(crate) fn check_requested_on(own: Device, target: Device, field: &FieldRef, requested: &FieldRef) -> Result<()> {
    check_request_on(if comes_before(own, target) { target } else { own }, field, requested)
}

fn comes_before(own: Device, target: Device) -> bool {
    Destination::new(Some(target), CopyMode::IfNeeded).comes_before(own)
}
