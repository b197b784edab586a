//! Whether an object is asked for Arrow data of the host before data of any device.

use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::prelude::*;
use pyo3::types::PyType;

use super::answers::answer;
use super::package::package;

/// A power of two; more than pyarrow has types of arrays.
const SLOTS: usize = 128;
/// Types start at multiples of 16, so the lowest bit of an address is free for the answer.
const HOST_FIRST: usize = 1;
const TYPE_ALIGNMENT: usize = 16;

/// Answers by type: its address, and the lowest bit. A new type at the address of one that is gone only gets the other order.
static ANSWERS: [AtomicUsize; SLOTS] = [const { AtomicUsize::new(0) }; SLOTS];

/// Returns whether the object's exact type is one of pyarrow's whose `__arrow_c_array__` refuses memory of other devices: it takes
/// three quarters of the time of `__arrow_c_device_array__`.
///
/// # Errors
/// As [`answer`].
#[inline]
pub(super) fn is_host_first(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let address = object.get_type_ptr().addr();
    let Some(slot) = ANSWERS.get(address / TYPE_ALIGNMENT % SLOTS) else { return Ok(false) };
    let known = slot.load(Ordering::Relaxed);
    if known & !HOST_FIRST == address {
        return Ok(known & HOST_FIRST != 0);
    }
    let is_first = is_of_pyarrow(&object.get_type())?;
    if address.is_multiple_of(TYPE_ALIGNMENT) {
        slot.store(address | usize::from(is_first), Ordering::Relaxed);
    }
    Ok(is_first)
}

#[cold]
fn is_of_pyarrow(class: &Bound<'_, PyType>) -> PyResult<bool> {
    // Whatever a class of somebody else's raises: it is none of pyarrow's. Batches of pyarrow 17 have no `copy_to`, and export memory of
    // other devices as null pointers.
    let package = answer(class.py(), package(class))?;
    Ok(package.is_some_and(|package| package == "pyarrow")
        && answer(class.py(), class.hasattr("copy_to"))? == Some(true))
}
