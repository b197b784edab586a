//! `Tensor.__dlpack__` as a C function that parses no arguments in the most frequent calls.
//!
//! `np.from_dlpack(ndarray)` takes about 200 ns in all; parsing keywords by their text would be a fifth of that. The
//! method is a C function that knows `max_version=(1, x)` with all else None, by the identity of interned names, and
//! leaves every other call to the method that it replaces.

use std::ffi::{CStr, c_char, c_int};
use std::ptr::null_mut;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyTuple};

use super::Tensor;
use crate::callback;
use crate::ffi::dlpack::DLPACK_MAJOR_VERSION;
use crate::python::capsule::versioned_capsule;
use crate::python::errors::panicked;

const NAME: &CStr = c"__dlpack__";
const DOC: &CStr = c"__dlpack__($self, /, *, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\n\
A DLPack capsule of the tensor, as the array API standard describes it.";

struct Replaced {
    /// The method that parses every argument.
    method: Py<PyAny>,
    max_version: Py<PyString>,
    /// The keywords that must be None.
    others: [Py<PyString>; 3],
}

static REPLACED: PyOnceLock<Replaced> = PyOnceLock::new();

/// Replaces the class's method.
pub(in crate::python) fn install(py: Python<'_>) -> PyResult<()> {
    if REPLACED.get(py).is_some() {
        return Ok(());
    }
    let class = py.get_type::<Tensor>();
    let intern = |name| PyString::intern(py, name).unbind();
    let replaced = Replaced {
        method: class.getattr("__dlpack__")?.unbind(),
        max_version: intern("max_version"),
        others: ["dl_device", "copy", "stream"].map(intern),
    };
    // A method keeps a pointer to its definition for as long as it lives, which is as long as the process.
    let definition = Box::leak(Box::new(ffi::PyMethodDef {
        ml_name: NAME.as_ptr().cast::<c_char>(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: call },
        ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
        ml_doc: DOC.as_ptr().cast::<c_char>(),
    }));
    // SAFETY: attached; the type and the definition live as long as the method.
    let method = unsafe { ffi::PyDescr_NewMethod(class.as_type_ptr(), definition) };
    // SAFETY: a new reference, or NULL with an exception set.
    let method = unsafe { Bound::from_owned_ptr_or_err(py, method) }?;
    let _ = REPLACED.set(py, replaced);
    class.setattr("__dlpack__", method)
}

/// # Safety
/// The vectorcall convention, by a method descriptor of `Tensor`, which has checked the type of `slf`.
unsafe extern "C" fn call(
    slf: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    nargs: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let export = || {
        // SAFETY: Python's vectorcall gives an instance of `Tensor`, and `args` with `nargs` values and one for each
        // name.
        unsafe { export(slf, args, nargs, names) }
    };
    callback::caught(export, |panic| {
        // SAFETY: Python calls methods attached.
        panicked(&*panic).restore(unsafe { Python::assume_attached() });
        null_mut()
    })
}

/// # Safety
/// As [`call`].
unsafe fn export(
    slf: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    nargs: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: Python calls methods attached.
    let py = unsafe { Python::assume_attached() };
    let Some(replaced) = REPLACED.get(py) else { return null_mut() };
    // SAFETY: `args` has `nargs` values and one for each name.
    if nargs == 0 && unsafe { is_versioned_export(replaced, args, names) } {
        // SAFETY: a live object during the call.
        let tensor = unsafe { Bound::ref_from_ptr(py, &slf) };
        // SAFETY: an instance of `Tensor` (a clause of `# Safety`).
        let tensor = unsafe { tensor.cast_unchecked::<Tensor>() };
        let tensor = tensor.get().tensor();
        // Memory of a device has an order to keep.
        if tensor.readiness().is_none() {
            return match versioned_capsule(py, tensor, false) {
                Ok(capsule) => capsule.into_ptr(),
                Err(error) => {
                    error.restore(py);
                    null_mut()
                }
            };
        }
    }
    // SAFETY: an instance of `Tensor`, and `args` with `nargs` values and one for each name, as Python gave them.
    unsafe { call_replaced(replaced, slf, args, nargs, names) }
}

/// Whether a call asks for no more than a versioned capsule.
///
/// # Safety
/// `args` has a value for each entry of `names`, a tuple of strings or NULL.
unsafe fn is_versioned_export(replaced: &Replaced, args: *const *mut ffi::PyObject, names: *mut ffi::PyObject) -> bool {
    if names.is_null() {
        return false;
    }
    // SAFETY: `names` is a tuple (a clause of `# Safety`), not NULL.
    let count = unsafe { ffi::PyTuple_Size(names) };
    let mut versioned = false;
    for index in 0..count {
        // SAFETY: below the tuple's size; a borrowed reference.
        let name = unsafe { ffi::PyTuple_GetItem(names, index) };
        // SAFETY: `args` has `count` values, of which this is the address of one.
        let value = unsafe { args.wrapping_offset(index).read() };
        if name == replaced.max_version.as_ptr() {
            // SAFETY: attached; `value` lives during the call, as the caller's argument.
            versioned = unsafe { is_current_version(value) };
            if !versioned {
                return false;
            }
        // SAFETY: None is immortal.
        } else if value != unsafe { ffi::Py_None() } || !replaced.others.iter().any(|other| other.as_ptr() == name) {
            return false;
        }
    }
    versioned
}

/// Whether an object is a tuple of two small integers, the first one our major version.
///
/// # Safety
/// Attached; a live object.
unsafe fn is_current_version(version: *mut ffi::PyObject) -> bool {
    // SAFETY: attached, and a live object (clauses of `# Safety`).
    if unsafe { ffi::PyTuple_Check(version) } == 0 {
        return false;
    }
    // SAFETY: attached; `PyTuple_Check` has just said that it is a tuple.
    if unsafe { ffi::PyTuple_Size(version) } != 2 {
        return false;
    }
    let small = |index| {
        // SAFETY: below the tuple's size; a borrowed reference.
        let entry = unsafe { ffi::PyTuple_GetItem(version, index) };
        let mut overflow: c_int = 0;
        // SAFETY: a live object.
        if unsafe { ffi::PyLong_Check(entry) } == 0 {
            return None;
        }
        // SAFETY: an int: sets no exception.
        let value = unsafe { ffi::PyLong_AsLongAndOverflow(entry, &raw mut overflow) };
        u32::try_from(value).ok().filter(|_| overflow == 0)
    };
    small(0) == Some(DLPACK_MAJOR_VERSION) && small(1).is_some()
}

/// Calls the method that parses every argument.
///
/// # Safety
/// As [`call`].
unsafe fn call_replaced(
    replaced: &Replaced,
    slf: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    nargs: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let outcome = Python::attach(|py| -> PyResult<Py<PyAny>> {
        let value = |index: usize| {
            // SAFETY: `args` has `nargs` values and one for each name; this is the address of one.
            let value = unsafe { args.wrapping_add(index).read() };
            // SAFETY: a borrowed reference, which becomes an owned one.
            unsafe { Bound::from_borrowed_ptr(py, value) }
        };
        let positional = usize::try_from(nargs).unwrap_or(0);
        let mut arguments = vec![
            // SAFETY: a live object.
            unsafe { Bound::from_borrowed_ptr(py, slf) },
        ];
        arguments.extend((0..positional).map(value));
        let keywords = PyDict::new(py);
        // SAFETY: a tuple of strings, or NULL.
        if let Some(names) = unsafe { Bound::from_borrowed_ptr_or_opt(py, names) } {
            for (index, name) in names.cast::<PyTuple>()?.iter().enumerate() {
                keywords.set_item(name, value(positional + index))?;
            }
        }
        Ok(replaced.method.bind(py).call(PyTuple::new(py, arguments)?, Some(&keywords))?.unbind())
    });
    match outcome {
        Ok(capsule) => capsule.into_ptr(),
        Err(error) => {
            Python::attach(|py| error.restore(py));
            null_mut()
        }
    }
}
