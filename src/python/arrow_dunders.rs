//! What every class answers to Arrow's dunders.

use arrow_schema::FieldRef;
use pyo3::exceptions::PyNotImplementedError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::capsule::{array_capsule, device_array_capsule, schema_capsule, schema_from_capsule};
use super::device;
use super::input::pair;
use crate::arrow::DeviceArray;
use crate::convert::request_field;

/// `__arrow_c_array__(requested_schema=None)`.
pub(super) fn c_array<'py>(
    py: Python<'py>,
    array: &DeviceArray,
    requested_schema: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyTuple>> {
    let array = as_requested(array, requested_schema)?;
    pair(schema_capsule(py, array.field())?, array_capsule(py, &array)?)
}

/// `__arrow_c_device_array__(requested_schema=None, **kwargs)`.
pub(super) fn c_device_array<'py>(
    py: Python<'py>,
    array: &DeviceArray,
    requested_schema: Option<&Bound<'py, PyAny>>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyTuple>> {
    require_device(array.device(), kwargs)?;
    let array = as_requested(array, requested_schema)?;
    pair(schema_capsule(py, array.field())?, device_array_capsule(py, &array)?)
}

/// Reads the keywords of a device dunder: `requested_device` must be where the data is; others must be None.
pub(super) fn require_device(own: crate::device::Device, kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
    for (name, value) in kwargs.into_iter().flatten() {
        if value.is_none() {
            continue;
        }
        if name.to_string() != "requested_device" {
            return Err(PyNotImplementedError::new_err(format!("the keyword {name} is not supported")));
        }
        device::require(own, device::extract_requested(&value)?)?;
    }
    Ok(())
}

/// The field of a `requested_schema` argument.
pub(super) fn requested_field(requested_schema: Option<&Bound<'_, PyAny>>) -> PyResult<Option<FieldRef>> {
    let capsule = requested_schema.filter(|capsule| !capsule.is_none());
    capsule.map(schema_from_capsule).transpose()
}

/// The array as a `requested_schema` argument asks.
pub(super) fn as_requested(array: &DeviceArray, requested_schema: Option<&Bound<'_, PyAny>>) -> PyResult<DeviceArray> {
    match requested_field(requested_schema)? {
        None => Ok(array.clone()),
        Some(field) => Ok(request_field(array, &field)?),
    }
}
