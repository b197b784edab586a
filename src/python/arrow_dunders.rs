//! The Arrow dunders of every class.

use arrow_schema::FieldRef;
use pyo3::exceptions::{PyNotImplementedError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::capsule::{
    array_capsule, device_array_capsule, device_stream_capsule, schema_capsule, schema_from_capsule, stream_capsule,
};
use super::device;
use super::words::Words;
use crate::arrow::{DeviceArray, DeviceArrayStream};
use crate::convert::{check_request_on, request_field};
use crate::device::Device;
use crate::ffi::dlpack::DLDeviceType;
use crate::transfer::{Transfer, check_requested_on, requested_on, require_path, with_null_count};

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
    let requested = requested_field(requested_schema)?;
    let array = py.detach(|| keywords.apply(array, requested.as_ref()))?;
    pair(schema_capsule(py, array.field())?, device_array_capsule(py, &array)?)
}

/// The keywords of a device dunder: `requested_device` is where the data is moved to, `sync="host"` waits on the host; others
/// must be None.
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
                    keywords.device = Some(device::extract_requested(&value)?);
                }
                "sync" => keywords.on_host = is_on_host(&value)?,
                other => return Err(PyNotImplementedError::new_err(format!("the keyword {other} is not supported"))),
            }
        }
        Ok(keywords)
    }

    /// The device that data on `own` is wanted on.
    fn target(&self, own: Device) -> Device {
        match self.device {
            Some((kind, None)) if kind == own.device_type() => own,
            Some((kind, ordinal)) => Device::new(kind, ordinal.unwrap_or(0)),
            None => own,
        }
    }

    /// An array as it is exported: of the type that is requested, where it is requested.
    ///
    /// # Errors
    /// When no cast gives the requested type, or no copy reaches the requested device.
    pub(super) fn apply(&self, array: &DeviceArray, requested: Option<&FieldRef>) -> crate::error::Result<DeviceArray> {
        let transfer = Transfer::to(self.target(array.device()), "requested_device");
        let array = with_null_count(&requested_on(array, requested, &transfer)?)?;
        Ok(if self.on_host { array.synchronised_on_host() } else { array })
    }

    /// Refuses a device that no array of a stream can come to.
    pub(super) fn require_path(&self, own: DLDeviceType) -> PyResult<()> {
        let own = Device::new(own, 0);
        Ok(require_path(own, self.target(own))?)
    }

    /// Refuses a type that no array of a stream on `own` can have.
    pub(super) fn check_request(&self, own: Device, field: &FieldRef, requested: &FieldRef) -> PyResult<()> {
        Ok(check_requested_on(own, self.target(own), field, requested)?)
    }

    /// A stream as it is exported: what is wrong with an array is told where it comes.
    pub(super) fn apply_to_stream(self, stream: DeviceArrayStream, requested: Option<FieldRef>) -> DeviceArrayStream {
        let field = requested.as_ref().unwrap_or(stream.field()).clone();
        let device = self.target(Device::new(stream.device_type(), 0));
        let arrays = stream.map(move |array| self.apply(&array?, requested.as_ref()));
        DeviceArrayStream::new(field, device.device_type(), arrays)
    }
}

/// Reads `sync`: "event", or "host".
///
/// # Errors
/// `TypeError` for what is no text, `ValueError` for another one.
pub(super) fn is_on_host(sync: &Bound<'_, PyAny>) -> PyResult<bool> {
    const SYNC: Words<bool> = Words { keyword: "sync", words: &[("event", false), ("host", true)] };
    SYNC.parse(&sync.extract::<String>().map_err(|_| PyTypeError::new_err(SYNC.rule(&[])))?)
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

/// What a consumer asks of a stream, checked against its type before the stream is taken from whoever has it.
pub(super) struct StreamRequest {
    requested: Option<FieldRef>,
    keywords: DeviceKeywords,
}

impl StreamRequest {
    /// Reads the arguments of `__arrow_c_stream__`.
    ///
    /// # Errors
    /// When the arrays are not in host memory, or do not cast to the type that is requested.
    pub(super) fn of_host(
        own: Device,
        field: &FieldRef,
        requested_schema: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        device::require_host(own)?;
        let requested = requested_field(requested_schema)?;
        if let Some(requested) = &requested {
            check_request_on(own, field, requested)?;
        }
        Ok(Self { requested, keywords: DeviceKeywords::default() })
    }

    /// Reads the arguments of `__arrow_c_device_stream__`.
    ///
    /// # Errors
    /// For keywords that are not supported, a device that the arrays cannot come to, and a type that they do not cast to.
    pub(super) fn of_device(
        own: Device,
        field: &FieldRef,
        requested_schema: Option<&Bound<'_, PyAny>>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let (keywords, requested) = (DeviceKeywords::read(kwargs)?, requested_field(requested_schema)?);
        if let Some(requested) = &requested {
            keywords.check_request(own, field, requested)?;
        }
        keywords.require_path(own.device_type())?;
        Ok(Self { requested, keywords })
    }

    /// The `arrow_array_stream` capsule.
    pub(super) fn host_capsule(self, py: Python<'_>, stream: DeviceArrayStream) -> PyResult<Bound<'_, PyAny>> {
        let stream = match self.requested {
            None => stream,
            Some(requested) => {
                let (field, device_type) = (requested.clone(), stream.device_type());
                let arrays = stream.map(move |array| request_field(&array?, &requested));
                DeviceArrayStream::new(field, device_type, arrays)
            }
        };
        stream_capsule(py, stream)
    }

    /// The `arrow_device_array_stream` capsule.
    pub(super) fn device_capsule(self, py: Python<'_>, stream: DeviceArrayStream) -> PyResult<Bound<'_, PyAny>> {
        device_stream_capsule(py, self.keywords.apply_to_stream(stream, self.requested))
    }
}

/// Two capsules as Arrow's array dunders return them.
fn pair<'py>(one: Bound<'py, PyAny>, other: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(one.py(), [&one, &other])
}
