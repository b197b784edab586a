//! Reads `nulls=`: a policy by name, or a number to fill nulls with.

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyString};

use super::answers::answer;
use super::counts::wide;
use crate::loader::Statistic;
use crate::spec::{NullPolicy, Scalar};

pub(super) fn parse_nulls(object: &Bound<'_, PyAny>) -> PyResult<NullPolicy> {
    if let Ok(text) = object.cast::<PyString>() {
        return match text.to_string().as_str() {
            "error" => Ok(NullPolicy::Error),
            "nan" => Ok(NullPolicy::Nan),
            "keep" => Ok(NullPolicy::Keep),
            other => {
                let statistic = Statistic::of_name(other).map_or_else(String::new, |_| {
                    format!(
                        "; pass nulls=arrow_dlpack.statistics(data, {{\"column\": {other:?}}}) for those of the data"
                    )
                });
                Err(PyValueError::new_err(format!(
                    "nulls must be \"error\", \"nan\", \"keep\", or a number to fill them with, not {other:?}{statistic}"
                )))
            }
        };
    }
    if let Ok(value) = object.cast::<PyBool>() {
        return Ok(NullPolicy::Fill(Scalar::Bool(value.is_true())));
    }
    let py = object.py();
    let is_float = object.is_instance_of::<PyFloat>();
    if object.is_instance_of::<PyInt>() || (!is_float && object.hasattr("__index__")?) {
        match wide(object) {
            Ok(value) => return Ok(NullPolicy::Fill(Scalar::Int(value))),
            Err(error) if error.is_instance_of::<PyOverflowError>(py) => {}
            // An array of one float has `__index__` too, which refuses.
            Err(error) if error.is_instance_of::<PyTypeError>(py) => {}
            Err(error) => return Err(error),
        }
    }
    // `__float__` of a complex number drops the imaginary part; real ones of other libraries may refuse to name theirs.
    if !is_float && answer(py, object.getattr("imag").and_then(|imag| imag.is_truthy()))? == Some(true) {
        return Err(no_fill());
    }
    match object.extract::<f64>() {
        Ok(value) if is_float => Ok(NullPolicy::Fill(Scalar::Float(value))),
        Ok(value) => of_double(object, value).map(NullPolicy::Fill),
        Err(error) if error.is_instance_of::<PyTypeError>(py) => Err(no_fill()),
        Err(error) if error.is_instance_of::<PyOverflowError>(py) => Err(beyond_doubles()),
        Err(error) => Err(error),
    }
}

fn no_fill() -> PyErr {
    PyTypeError::new_err("nulls must be \"error\", \"nan\", \"keep\", or a real number to fill them with")
}

fn beyond_doubles() -> PyErr {
    PyValueError::new_err("the fill value is beyond the range of float64, and of every other dtype")
}

/// A number that is no integer of 128 bits, and `near`, which `__float__` made of it: the number may lie beside it.
fn of_double(object: &Bound<'_, PyAny>, near: f64) -> PyResult<Scalar> {
    /// From here on every double is an integer, and not every integer a double.
    const INTEGERS: f64 = 9_007_199_254_740_992.0;
    // Numbers that compare exactly: those of Python and NumPy. Of any other its double is all that is known.
    if !object.hasattr("as_integer_ratio")? || near.is_nan() || object.eq(near)? {
        return Ok(Scalar::Float(near));
    }
    if near.is_infinite() {
        return Err(beyond_doubles());
    }
    if near.abs() >= INTEGERS {
        let integer = object.call_method0("__int__")?;
        if integer.eq(object)?
            && let Ok(value) = integer.extract::<i128>()
        {
            return Ok(Scalar::Int(value));
        }
    }
    Ok(Scalar::Rounded(near))
}
