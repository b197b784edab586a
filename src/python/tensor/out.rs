//! `out=`: memory of any library that a conversion writes into.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::error::{Error, ErrorKind};
use crate::python::input::dlpack_as_it_is;
use crate::spec::CopyMode;
use crate::tensor::Output;

/// Calls `work` with the memory of a writable tensor in host memory.
///
/// # Errors
/// `TypeError` for an object without `__dlpack__`, what that raises, or what `work` gives; when the tensor cannot be
/// written.
pub(in crate::python) fn with_output<R>(
    object: &Bound<'_, PyAny>,
    work: impl FnOnce(&mut Output<'_>) -> PyResult<R>,
) -> PyResult<R> {
    // A producer that would have to copy refuses: the copy would be written, and lost.
    let Some(tensor) = dlpack_as_it_is(object, None, CopyMode::Never)? else {
        let name = object.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string());
        return Err(PyTypeError::new_err(format!("out must be a writable tensor (with __dlpack__), and is {name}")));
    };
    if tensor.is_copied() && !object.is_exact_instance_of::<super::Tensor>() {
        let reason = "the library of out made a copy of it, which nobody would see";
        return Err(Error::new(ErrorKind::Copy, reason).remedy_is("pass a tensor that is exported as it is").into());
    }
    // SAFETY: the tensor keeps the memory alive. That nobody else uses it meanwhile is what a caller who passes `out=` says, as
    // with every library that has one: we hold no slice of it, and its other users are Python code.
    let mut out = unsafe { Output::from_tensor(&tensor) }?;
    work(&mut out)
}
