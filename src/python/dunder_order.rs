//! Is an object asked for `__arrow_c_array__` before `__arrow_c_device_array__`?

use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::prelude::*;
use pyo3::types::PyType;

use super::answers::answer;
use super::package::package;

/// The size of the cache: a power of two, larger than the number of pyarrow's array types.
const SLOTS: usize = 128;
/// The lowest bit of an entry is the answer: types start at multiples of 16, so no address has it.
const HOST_FIRST: usize = 1;
const TYPE_ALIGNMENT: usize = 16;

/// Cached answers: the address of a type, with the lowest bit. A new type at the address of a freed one may get its answer, which changes
/// only the order of the two methods.
static ANSWERS: [AtomicUsize; SLOTS] = [const { AtomicUsize::new(0) }; SLOTS];

/// Returns whether the object's exact type is one of pyarrow's whose `__arrow_c_array__` raises for device memory. That method takes three
/// quarters of the time of `__arrow_c_device_array__`.
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
    // A class that raises is not pyarrow's. Batches of pyarrow 17 export device memory as null pointers instead of raising, and have no
    // `copy_to`.
    let package = answer(class.py(), package(class))?;
    Ok(package.is_some_and(|package| package == "pyarrow")
        && answer(class.py(), class.hasattr("copy_to"))? == Some(true))
}
