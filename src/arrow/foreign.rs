//! Reads fields of foreign C structs: checks a pointer before following it, and a count before using it.

use std::ffi::c_void;

use crate::error::{Error, Result};
use crate::ffi::arrow_device::ArrowArray;

/// Deeper nesting is refused: it has no use, and a cycle would not end.
pub(crate) const MAX_DEPTH: usize = 64;

/// Returns a reference behind a foreign pointer, if the pointer can be one.
///
/// # Safety
/// A pointer that is neither NULL nor misaligned points to an initialised `T` that lives and is not written for `'a`.
#[inline]
pub(super) unsafe fn foreign<'a, T>(pointer: *const T, what: &str) -> Result<&'a T> {
    // SAFETY: promised in the same words.
    unsafe { reference(pointer) }.map_err(|is| wrong(what, is))
}

/// Returns a reference behind a foreign pointer, or what the pointer is instead.
///
/// # Safety
/// As [`foreign`].
#[inline]
unsafe fn reference<'a, T>(pointer: *const T) -> std::result::Result<&'a T, &'static str> {
    if !pointer.is_aligned() {
        return Err("a misaligned pointer");
    }
    // SAFETY: aligned, and by `# Safety` NULL or valid for `'a`.
    unsafe { pointer.as_ref() }.ok_or("NULL")
}

// A separate function, so that the successful path is small enough to be inlined.
#[cold]
fn wrong(what: &str, is: &str) -> Error {
    Error::invalid(format!("{what} is {is}"))
}

#[cold]
fn wrong_entry(what: &str, is: &str) -> Error {
    Error::invalid(format!("an entry of {what} is {is}"))
}

/// Returns the `index`-th entry of a foreign array of pointers, dereferenced. `what` names the array in an error.
///
/// # Safety
/// `pointers`, unless NULL or misaligned, has more than `index` entries, each as [`foreign`] asks.
#[inline]
pub(super) unsafe fn foreign_entry<'a, T>(pointers: *const *mut T, index: usize, what: &str) -> Result<&'a T> {
    // SAFETY: a pointer that is neither NULL nor misaligned has more than `index` entries, so the first one is live.
    unsafe { foreign(pointers, what) }?;
    // SAFETY: the array has more than `index` entries.
    let entry = unsafe { pointers.add(index) };
    // SAFETY: `entry` is inside the array, which is initialised and aligned.
    let pointer = unsafe { entry.read() };
    // SAFETY: each entry is a pointer as `foreign` asks.
    unsafe { reference(pointer.cast_const()) }.map_err(|is| wrong_entry(what, is))
}

/// The error for positions beyond the address space, which checked arrays have none of.
pub(super) fn overflow() -> Error {
    Error::invalid("the array's positions overflow")
}

/// Returns the array's own offset, checked at import.
#[inline]
pub(super) fn slot(array: &ArrowArray) -> Result<usize> {
    usize::try_from(array.offset).map_err(|_| overflow())
}

/// Returns the `index`-th buffer; `None` if the type has fewer.
#[inline]
pub(super) fn buffer(array: &ArrowArray, index: usize) -> Option<*const u8> {
    if index >= usize::try_from(array.n_buffers).ok()? || array.buffers.is_null() {
        return None;
    }
    // SAFETY: import checked that `buffers` has `n_buffers` entries and is aligned; `index` is below that.
    let entry = unsafe { array.buffers.add(index) };
    // SAFETY: inside the array of initialised pointers, which lives as long as the array.
    let start: *const c_void = unsafe { entry.read() };
    Some(start.cast())
}

/// Returns the `index`-th child struct of an array that import has checked.
#[inline]
pub(super) fn child(array: &ArrowArray, index: usize) -> Result<&ArrowArray> {
    if usize::try_from(array.n_children).is_ok_and(|count| index < count) {
        // SAFETY: import checked `children`: `n_children` live, aligned structs, owned by `array`.
        return unsafe { foreign_entry(array.children, index, "ArrowArray.children") };
    }
    Err(Error::invalid(format!("child {index} of an array that has {}", array.n_children)))
}

/// Returns the dictionary of an array that import has checked.
#[inline]
pub(super) fn dictionary(array: &ArrowArray) -> Option<&ArrowArray> {
    // SAFETY: import checked the dictionary: NULL or a live, aligned array, owned by `array`.
    unsafe { array.dictionary.as_ref() }
}

#[cfg(test)]
mod tests {
    use std::ptr::{null, null_mut, without_provenance};

    use super::*;

    #[test]
    fn an_array_of_pointers_is_told_from_its_entries() {
        let entries = [null_mut::<ArrowArray>()];
        for (pointers, expected) in [
            (null(), "ArrowArray.children is NULL"),
            (without_provenance(1), "ArrowArray.children is a misaligned pointer"),
            (entries.as_ptr(), "an entry of ArrowArray.children is NULL"),
        ] {
            // SAFETY: NULL, misaligned, or an array of one pointer, which is NULL.
            let error = unsafe { foreign_entry(pointers, 0, "ArrowArray.children") }.unwrap_err();
            assert_eq!(error.reason(), expected);
        }
    }
}
