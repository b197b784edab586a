//! Puts a raised exception aside while a callback runs Python code.

use std::ptr::null_mut;

use pyo3::ffi;
use pyo3::prelude::*;

/// Runs `work` with a raised exception put aside, as callbacks that run Python code need it.
#[allow(deprecated, reason = "PyErr_GetRaisedException is not in the stable ABI of 3.11")]
pub(in crate::python) fn with_exception_aside(_py: Python<'_>, work: &mut dyn FnMut()) {
    // SAFETY: attached; asks without taking a reference.
    if unsafe { ffi::PyErr_Occurred() }.is_null() {
        work();
        // SAFETY: attached; what `work` left raised has nowhere to go.
        unsafe { ffi::PyErr_Clear() };
        return;
    }
    let (mut kind, mut value, mut traceback) = (null_mut(), null_mut(), null_mut());
    // SAFETY: attached; three places to write to.
    unsafe { ffi::PyErr_Fetch(&raw mut kind, &raw mut value, &raw mut traceback) };
    work();
    // SAFETY: attached; gives back what was fetched, and drops what `work` left raised.
    unsafe { ffi::PyErr_Restore(kind, value, traceback) };
}

/// As [`with_exception_aside`], attached by Python's own account of the thread, whatever PyO3's says.
pub(in crate::python) fn attached_with_exception_aside(work: &mut dyn FnMut()) {
    // SAFETY: may be called at any time.
    if unsafe { ffi::Py_IsInitialized() } == 0 {
        return;
    }
    // SAFETY: the interpreter is there; attached or not, this attaches and remembers what was before.
    let state = unsafe { ffi::PyGILState_Ensure() };
    // SAFETY: attached just now.
    with_exception_aside(unsafe { Python::assume_attached() }, work);
    // SAFETY: the state that `PyGILState_Ensure` gave, given back once.
    unsafe { ffi::PyGILState_Release(state) };
}
