//! Calls other libraries' Python code, which may release the interpreter, and so may not return once the interpreter
//! exits.

use std::hint::black_box;
use std::ptr::null_mut;

use pyo3::BoundObject as _;
use pyo3::exceptions::{PyAttributeError, PyTypeError};
use pyo3::ffi::PyObject;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::python::answers::answer;
use crate::python::interrupted::unhidden;

#[allow(clashing_extern_declarations, reason = "PyO3 declares them without unwinding")]
unsafe extern "C-unwind" {
    fn PyObject_Call(callable: *mut PyObject, arguments: *mut PyObject, keywords: *mut PyObject) -> *mut PyObject;
    fn PyObject_CallMethodObjArgs(object: *mut PyObject, name: *mut PyObject, ...) -> *mut PyObject;
}

type Call = unsafe extern "C-unwind" fn(*mut PyObject, *mut PyObject, *mut PyObject) -> *mut PyObject;
type CallMethod = unsafe extern "C-unwind" fn(*mut PyObject, *mut PyObject, ...) -> *mut PyObject;

/// Until 3.13, CPython ends a daemon thread that asks for the interpreter while that goes down by unwinding its stack.
/// Rust must not catch that, nor let it pass: the thread waits for the end of the process instead.
struct ParkWhenUnwound;

impl Drop for ParkWhenUnwound {
    fn drop(&mut self) {
        loop {
            std::thread::park();
        }
    }
}

/// Runs a call of C, in which this thread may be unwound.
///
/// The function that `work` calls has to come out of `black_box`: the optimiser knows two declarations of one function as
/// one, and believes the one that says that nothing unwinds.
fn parked_when_unwound<R>(work: impl FnOnce() -> R) -> R {
    let park = ParkWhenUnwound;
    let result = work();
    std::mem::forget(park);
    result
}

/// Calls an object of somebody else's.
///
/// # Errors
/// What it raises.
pub(in crate::python) fn call<'py>(
    callable: &Bound<'py, PyAny>,
    arguments: impl IntoPyObject<'py, Target = PyTuple>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = callable.py();
    let arguments = arguments.into_pyobject(py).map_err(Into::into)?.into_bound();
    let keywords = keywords.map_or(null_mut(), |keywords| keywords.as_ptr());
    let call = black_box(PyObject_Call as Call);
    // SAFETY: attached; a live callable and tuple, and a live dict or NULL.
    let result = parked_when_unwound(|| unsafe { call(callable.as_ptr(), arguments.as_ptr(), keywords) });
    // SAFETY: a new reference, or NULL with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, result) }.map_err(|error| {
        // The object of a bound method.
        match callable.getattr_opt(intern!(py, "__self__")) {
            Ok(Some(owner)) => unhidden(&owner, error),
            _ => error,
        }
    })
}

/// As [`call`], of a method.
///
/// # Errors
/// What the method raises; `AttributeError` where there is none.
pub(in crate::python) fn call_method<'py>(
    object: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
    arguments: impl IntoPyObject<'py, Target = PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    call(&object.getattr(name)?, arguments, None)
}

/// Calls a method without arguments and without making a bound method first; `None` where the object has none, or says by None
/// that it has none.
///
/// # Errors
/// What the method raises.
pub(in crate::python) fn call_if_present<'py>(
    object: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = object.py();
    let (call, this, end) =
        (black_box(PyObject_CallMethodObjArgs as CallMethod), object.as_ptr(), null_mut::<PyObject>());
    // SAFETY: attached; two live objects, and the NULL that ends the arguments.
    let result = parked_when_unwound(|| unsafe { call(this, name.as_ptr(), end) });
    // SAFETY: a new reference, or NULL with an exception set.
    let error = match unsafe { Bound::from_owned_ptr_or_err(py, result) } {
        Ok(result) => return Ok(Some(result)),
        Err(error) => error,
    };
    // The look for the method may raise, too: what the call raised is the answer then.
    let is_absent = if error.is_instance_of::<PyAttributeError>(py) {
        answer(py, object.hasattr(name))? == Some(false)
    } else if error.is_instance_of::<PyTypeError>(py) {
        answer(py, object.getattr(name))?.is_some_and(|method| method.is_none())
    } else {
        false
    };
    if is_absent { Ok(None) } else { Err(unhidden(object, error)) }
}
