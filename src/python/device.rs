//! The class `Device`, and the ways in which callers name a device.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use super::answers::{answer, error_about};
use super::counts::{integer, is_bool};
use crate::ffi::dlpack::DLDeviceType;

/// Where memory is: a device type, with the codes that DLPack and Arrow share, and an ordinal.
#[pyclass(frozen, module = "arrow_dlpack")]
#[derive(Debug)]
pub struct Device(pub crate::device::Device);

#[pymethods]
impl Device {
    /// A device by name ("cpu", "cuda:1"), as (device_type, device_id), or by another library's device object.
    #[new]
    fn new(device: &Bound<'_, PyAny>) -> PyResult<Self> {
        extract(device).map(Self)
    }

    /// The `DLDeviceType`, which is `ArrowDeviceType` too: 1 for the CPU, 2 for CUDA.
    #[getter]
    fn r#type(&self) -> i32 {
        self.0.device_type().0
    }

    /// The ordinal; 0 for the CPU.
    #[getter]
    fn id(&self) -> i32 {
        self.0.id()
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("Device({:?})", self.0.to_string())
    }

    fn __eq__<'py>(&self, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = other.py();
        match answer(py, extract(other))? {
            Some(other) => (other == self.0).into_bound_py_any(py),
            None => Ok(py.NotImplemented().into_bound(py)),
        }
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let device = (slf.get().0.device_type().0, slf.get().0.id());
        (slf.get_type(), (device,)).into_pyobject(slf.py())
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.hash(&mut hasher);
        hasher.finish()
    }
}

/// Reads a device: a `Device`, a name, a `(type, id)` tuple, or an object whose `str()` is a name.
///
/// # Errors
/// `ConversionError` for a name of no device, `TypeError` for an object that is none.
pub(super) fn extract(object: &Bound<'_, PyAny>) -> PyResult<crate::device::Device> {
    if let Ok(device) = object.cast::<Device>() {
        return Ok(device.get().0);
    }
    if let Ok(tuple) = object.cast::<PyTuple>() {
        return from_tuple(tuple);
    }
    let text = object.str()?.to_string();
    if object.is_instance_of::<PyString>() {
        return Ok(text.parse()?);
    }
    text.parse().or_else(|_| words(&text).parse()).map_err(|_| {
        PyTypeError::new_err(format!(
            "expected a device such as \"cpu\" or \"cuda:0\", or (device_type, device_id); got {text:?}"
        ))
    })
}

/// A library's device object as a name and a number: mlx prints `Device(cpu, 0)`, JAX `TFRT_CPU_0`, CuPy `<CUDA Device 0>`.
fn words(text: &str) -> String {
    let text = text.to_lowercase();
    // What is inside says which one: before it is the class, perhaps with its module.
    let name = text.split_once('(').map_or(text.as_str(), |(_, inside)| inside);
    let words = name.split(|character: char| !character.is_ascii_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !matches!(*word, "" | "device" | "tfrt")).collect();
    words.join(":")
}

fn from_tuple(tuple: &Bound<'_, PyTuple>) -> PyResult<crate::device::Device> {
    let wrong = || {
        let told = |tuple| format!("a device is (device_type, device_id), two integers, not {tuple}");
        error_about(tuple.py(), tuple.str(), |tuple| PyTypeError::new_err(told(tuple)))
    };
    let (device_type, id) = tuple.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>().map_err(|_| wrong())?;
    let unknown = || {
        error_about(tuple.py(), tuple.str(), |tuple| {
            PyBufferError::new_err(format!("the device {tuple} does not exist"))
        })
    };
    let number = |value| answer(tuple.py(), integer("a device's number", value))?.ok_or_else(wrong);
    let (device_type, id): (Option<i64>, Option<i64>) = (number(&device_type)?, number(&id)?);
    let device_type = device_type.and_then(|device_type| i32::try_from(device_type).ok()).ok_or_else(unknown)?;
    let id = id.ok_or_else(unknown)?;
    crate::device::Device::from_arrow(device_type, id).map_err(|_| unknown())
}

/// Reads `requested_device`: `(device_type, device_id)`, or a type code, which names no ordinal.
pub(super) fn extract_requested(object: &Bound<'_, PyAny>) -> PyResult<(DLDeviceType, Option<i32>)> {
    match answer(object.py(), object.extract::<i32>())? {
        Some(device_type) if !is_bool(object)? => Ok((DLDeviceType(device_type), None)),
        _ => extract(object).map(|device| (device.device_type(), Some(device.id()))),
    }
}

/// Refuses data on a device where host memory is asked for.
///
/// # Errors
/// `BufferError` (as `ConversionError`) that says how to get it there.
pub(super) fn require_host(own: crate::device::Device) -> PyResult<()> {
    if own.is_cpu() {
        return Ok(());
    }
    Err(crate::error::Error::new(crate::error::ErrorKind::Device, format!("the data is on {own}"))
        .remedy_is(own.host_remedy())
        .into())
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn objects_of_libraries_are_a_name_and_a_number() {
        for (text, expected) in [
            ("Device(cpu, 0)", "cpu:0"),
            ("array_api_strict.Device('CPU_DEVICE')", "cpu"),
            ("Place(cpu)", "cpu"),
            ("Device(opencl:cpu:0)", "opencl:cpu:0"),
            ("TFRT_CPU_0", "cpu:0"),
            ("<CUDA Device 1>", "cuda:1"),
            ("Device('device1')", "device1"),
        ] {
            assert_eq!(words(text), expected);
        }
    }
}
