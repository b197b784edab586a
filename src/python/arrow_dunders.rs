//! What every class answers to Arrow's dunders.

use arrow_schema::FieldRef;
use pyo3::exceptions::{PyNotImplementedError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::capsule::{array_capsule, device_array_capsule, schema_capsule, schema_from_capsule};
use super::device;
use super::input::pair;
use crate::arrow::{DeviceArray, DeviceArrayStream};
use crate::convert::request_field;
use crate::error::{Error, ErrorKind};
use crate::ffi::dlpack::DLDeviceType;
use crate::transfer::with_null_count;

/// `__arrow_c_array__(requested_schema=None)`.
pub(super) fn c_array<'py>(
    py: Python<'py>,
    array: &DeviceArray,
    requested_schema: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyTuple>> {
    device::require_host(array.device())?;
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
    let keywords = DeviceKeywords::read(kwargs)?;
    keywords.require(array.device())?;
    let array = as_requested(array, requested_schema)?;
    let array = py.detach(|| keywords.apply(&array))?;
    pair(schema_capsule(py, array.field())?, device_array_capsule(py, &array)?)
}

/// The keywords of a device dunder: `requested_device` must be where the data is, `sync="host"` waits on the host; others must
/// be None.
#[derive(Clone, Copy, Default)]
pub(super) struct DeviceKeywords {
    /// The device that is asked for; without an ordinal, any of the type.
    device: Option<(DLDeviceType, Option<i32>)>,
    on_host: bool,
}

impl DeviceKeywords {
    pub(super) fn read(kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut keywords = Self::default();
        for (name, value) in kwargs.into_iter().flatten() {
            if value.is_none() {
                continue;
            }
            match name.to_string().as_str() {
                "requested_device" => {
                    let asked = device::extract_requested(&value)?;
                    let ordinal = value.extract::<i32>().is_err().then_some(asked.id());
                    keywords.device = Some((asked.device_type(), ordinal));
                }
                "sync" => keywords.on_host = is_on_host(&value)?,
                other => return Err(PyNotImplementedError::new_err(format!("the keyword {other} is not supported"))),
            }
        }
        Ok(keywords)
    }

    /// Refuses data that is on another device.
    pub(super) fn require(&self, own: crate::device::Device) -> PyResult<()> {
        match self.device {
            None => Ok(()),
            Some((kind, ordinal)) => {
                device::require(own, crate::device::Device::new(kind, ordinal.unwrap_or(own.id())))
            }
        }
    }

    /// As [`DeviceKeywords::require`], for a stream: which of the type's devices each array is on, only the array tells.
    pub(super) fn require_type(&self, own: DLDeviceType) -> PyResult<()> {
        match self.device {
            Some((kind, ordinal)) if kind != own => {
                let own = crate::device::Device::new(own, 0);
                device::require(own, crate::device::Device::new(kind, ordinal.unwrap_or(0)))
            }
            _ => Ok(()),
        }
    }

    /// An array as it is exported.
    pub(super) fn apply(&self, array: &DeviceArray) -> crate::error::Result<DeviceArray> {
        let array = with_null_count(array)?;
        Ok(if self.on_host { array.synchronised_on_host() } else { array })
    }

    /// A stream as it is exported: what is wrong with an array is told where it comes.
    pub(super) fn apply_to_stream(self, stream: DeviceArrayStream) -> DeviceArrayStream {
        let (field, device_type) = (stream.field().clone(), stream.device_type());
        let arrays = stream.map(move |array| {
            let array = array?;
            let own = array.device();
            match self.device {
                Some((_, Some(ordinal))) if ordinal != own.id() => {
                    let asked = crate::device::Device::new(own.device_type(), ordinal);
                    let reason = format!("an array is on {own}, and the stream was asked for on {asked}");
                    Err(Error::new(ErrorKind::Device, reason).remedy_is("ask for the type of device alone"))
                }
                _ => self.apply(&array),
            }
        });
        DeviceArrayStream::new(field, device_type, arrays)
    }
}

/// Reads `sync`: "event", or "host".
///
/// # Errors
/// `TypeError` for what is no text, `ValueError` for another one.
pub(super) fn is_on_host(sync: &Bound<'_, PyAny>) -> PyResult<bool> {
    let text: String = sync.extract().map_err(|_| PyTypeError::new_err("sync must be \"event\" or \"host\""))?;
    match text.as_str() {
        "event" => Ok(false),
        "host" => Ok(true),
        other => Err(PyValueError::new_err(format!("sync must be \"event\" or \"host\", not {other:?}"))),
    }
}

/// Refuses what the keywords of a device dunder ask for, if the data is on another device.
pub(super) fn require_device(own: crate::device::Device, kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
    DeviceKeywords::read(kwargs)?.require(own)
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
