//! Reads integer arguments of Python and of NumPy, and refuses bools.

use std::num::NonZero;

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt};

use super::answers::{answer, error_about, text};

/// An integer that is `least` or more.
///
/// # Errors
/// `TypeError` for a bool, a float or anything else that is no integer; `ValueError` for one below `least`.
pub(super) fn count(name: &str, value: &Bound<'_, PyAny>, least: usize) -> PyResult<usize> {
    let count: Option<usize> = integer(name, value)?;
    count.filter(|count| *count >= least).ok_or_else(|| beyond(name, least, "", value))
}

/// The error for an integer that is no count.
fn beyond(name: &str, least: usize, or_none: &str, value: &Bound<'_, PyAny>) -> PyErr {
    let found = || -> PyResult<PyErr> {
        let counts = match answer(value.py(), value.gt(least))? {
            Some(true) => format!("from {least} to {}", usize::MAX),
            _ => format!("{least} or more"),
        };
        let value = text(value.py(), value.str())?;
        Ok(PyValueError::new_err(format!("{name} must be {counts}{or_none}, not {value}")))
    };
    found().unwrap_or_else(|ended| ended)
}

/// A seed or the number of an epoch: an integer of 64 bits without a sign.
///
/// # Errors
/// As [`count`].
pub(super) fn word(name: &str, value: &Bound<'_, PyAny>) -> PyResult<u64> {
    let refused = || {
        let told = |value| format!("{name} must be from 0 to 2**64 - 1, not {value}");
        error_about(value.py(), value.str(), |value| PyValueError::new_err(told(value)))
    };
    integer(name, value)?.ok_or_else(refused)
}

/// `threads=`.
///
/// # Errors
/// As [`count`].
pub(super) fn threads(value: &Bound<'_, PyAny>) -> PyResult<NonZero<usize>> {
    let count = integer("threads", value)?.and_then(NonZero::new);
    count.ok_or_else(|| beyond("threads", 1, ", or None", value))
}

/// The position that an index of Python means in a sequence, where a negative one counts from the end; `None` beyond either end.
///
/// # Errors
/// `TypeError` as [`count`].
pub(super) fn position(name: &str, index: &Bound<'_, PyAny>, length: usize) -> PyResult<Option<usize>> {
    let from_start = |index: isize| if index < 0 { index.checked_add_unsigned(length) } else { Some(index) };
    let position = integer(name, index)?.and_then(from_start).and_then(|position| usize::try_from(position).ok());
    Ok(position.filter(|position| *position < length))
}

/// An integer; `None` where the type cannot hold it.
///
/// # Errors
/// `TypeError` for a bool, a float or anything else that is no integer.
pub(super) fn integer<T: TryFrom<i128>>(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Option<T>> {
    let wrong = || match value.get_type().name() {
        Ok(found) => PyTypeError::new_err(format!("{name} must be an integer, not {found}")),
        Err(error) => error,
    };
    if is_bool(value)? {
        return Err(wrong());
    }
    match wide(value) {
        Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => Ok(None),
        found => answer(value.py(), found)?.map(|integer| T::try_from(integer).ok()).ok_or_else(wrong),
    }
}

/// The integer that an object stands for by its `__index__`. PyO3 shifts what becomes 128 bits, which not all such objects can be.
///
/// # Errors
/// `AttributeError` for an object without `__index__`; what that raises.
pub(super) fn wide(object: &Bound<'_, PyAny>) -> PyResult<i128> {
    if object.is_instance_of::<PyInt>() {
        return object.extract();
    }
    object.call_method0(intern!(object.py(), "__index__"))?.extract()
}

/// Whether an object is a bool of Python or of an array library: in Python those count as 0 and 1.
pub(super) fn is_bool(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    if value.is_exact_instance_of::<PyInt>() {
        return Ok(false);
    }
    if value.is_instance_of::<PyBool>() {
        return Ok(true);
    }
    let dtype = value.getattr_opt(intern!(value.py(), "dtype"))?;
    dtype.map_or(Ok(false), |dtype| Ok(dtype.str()?.to_string_lossy().ends_with("bool")))
}
