//! Asks an argument for Arrow data: by its dunders, those for devices before those for the host, pyarrow's the other way round.

use arrow_schema::FieldRef;
use pyo3::exceptions::{PyException, PyNotImplementedError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use super::capsule::{
    array_from_capsule, call_if_present, device_array_from_capsule, device_stream_from_capsule, schema_from_capsule,
    stream_from_capsule,
};
use super::dunder_order::is_host_first;
use super::exchange::is_package_tensor;
use super::pandas::pandas_index;
use super::schema::schema;
use super::{Array, ArrayStream, RecordBatch, Tensor, objects};
use crate::arrow::{DeviceArray, DeviceArrayStream};
use crate::device::Device;
use crate::spec::PandasIndex;

/// Arrow data that an argument gave.
#[derive(Debug)]
#[non_exhaustive]
pub enum ArrowInput {
    /// One array.
    Array(DeviceArray),
    /// A stream, not yet read.
    Stream(DeviceArrayStream),
}

impl ArrowInput {
    /// The type of every array.
    #[must_use]
    pub fn field(&self) -> &FieldRef {
        match self {
            Self::Array(array) => array.field(),
            Self::Stream(stream) => stream.field(),
        }
    }
}

/// Asks an object for Arrow data, through the first dunder that it has: device array, array, device stream, stream. Classes
/// of pyarrow are asked for the array before the device array. `None` for an object with none of them.
///
/// # Errors
/// What the dunder raises, or what is wrong with its capsules.
pub fn arrow(object: &Bound<'_, PyAny>) -> PyResult<Option<ArrowInput>> {
    arrow_unless(object, &|_| Ok(()))
}

/// What is known of a stream before it is read.
pub(super) struct Unread<'a> {
    pub(super) field: &'a FieldRef,
    /// Which index columns of pandas are among all columns.
    pub(super) index: PandasIndex,
    /// A device of the type that its arrays are on.
    pub(super) device: Option<Device>,
}

/// Refuses options that do not go together with what is known of a stream.
pub(super) type Refuses<'a> = &'a dyn Fn(&Unread<'_>) -> PyResult<()>;

/// As [`arrow`], unless the object is a stream that `refuses` refuses: nothing of it is read then, and a reader that would be
/// moved away is not even opened, where it tells its type.
///
/// # Errors
/// As [`arrow`], and what `refuses` says.
pub(super) fn arrow_unless(object: &Bound<'_, PyAny>, refuses: Refuses<'_>) -> PyResult<Option<ArrowInput>> {
    arrow_noting_loss(object, refuses, &mut false)
}

/// As [`arrow_unless`]. Sets `is_lost` once a reader has given its stream, which it may not give again.
///
/// # Errors
/// As [`arrow_unless`].
pub(super) fn arrow_noting_loss(
    object: &Bound<'_, PyAny>,
    refuses: Refuses<'_>,
    is_lost: &mut bool,
) -> PyResult<Option<ArrowInput>> {
    if let Ok(stream) = object.cast_exact::<ArrayStream>() {
        refuses(&unread(stream.get()))?;
        // A stream that another thread reads keeps its arrays.
        let taken = stream.get().take()?;
        *is_lost = true;
        return Ok(Some(ArrowInput::Stream(taken)));
    }
    if object.is_exact_instance_of::<Tensor>() || is_package_tensor(object) {
        return Ok(None);
    }
    let mut refusal = None;
    if let Some(array) = array_or_refusal(object, &mut refusal)? {
        return Ok(Some(ArrowInput::Array(array)));
    }
    match (stream_unless(object, refuses, is_lost)?, refusal) {
        (None, Some(refusal)) => Err(refusal),
        (stream, _) => Ok(stream.map(ArrowInput::Stream)),
    }
}

pub(super) fn unread(stream: &ArrayStream) -> Unread<'_> {
    Unread { field: stream.field(), index: PandasIndex::KeepNamed, device: Some(stream.device()) }
}

/// Asks an object for an array alone, and no stream: `None` where it has none, or refuses to be one.
///
/// # Errors
/// What the dunder raises, or what is wrong with its capsules.
pub(super) fn array(object: &Bound<'_, PyAny>) -> PyResult<Option<DeviceArray>> {
    array_or_refusal(object, &mut None)
}

/// The array of the first dunder that gives one. Without one, `refusal` is the first that there was: a chunked array may
/// have the array dunders for the case of one chunk, and a device dunder may be there for others than this one.
fn array_or_refusal(object: &Bound<'_, PyAny>, refusal: &mut Option<PyErr>) -> PyResult<Option<DeviceArray>> {
    if let Ok(array) = object.cast_exact::<Array>() {
        return Ok(Some(array.get().0.clone()));
    }
    if let Ok(batch) = object.cast_exact::<RecordBatch>() {
        return Ok(Some(batch.get().0.clone()));
    }
    let py = object.py();
    type Import = fn(&Bound<'_, PyAny>, FieldRef) -> PyResult<DeviceArray>;
    // Where one form is refused, the other one is asked for: both give the same array.
    let mut dunders: [(_, Import); 2] = [
        (intern!(py, "__arrow_c_device_array__"), device_array_from_capsule),
        (intern!(py, "__arrow_c_array__"), array_from_capsule),
    ];
    if is_host_first(object)? {
        dunders.reverse();
    }
    for (dunder, import) in dunders {
        match call_if_present(object, dunder) {
            Ok(None) => {}
            Ok(Some(pair)) => return array_of_pair(&pair, dunder, import).map(Some),
            Err(error) if refuses_as_array(py, &error) => _ = refusal.get_or_insert(error),
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

fn refuses_as_array(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyNotImplementedError>(py) || error.get_type(py).is(py.get_type::<PyValueError>())
}

fn array_of_pair(
    pair: &Bound<'_, PyAny>,
    dunder: &Bound<'_, PyString>,
    import: fn(&Bound<'_, PyAny>, FieldRef) -> PyResult<DeviceArray>,
) -> PyResult<DeviceArray> {
    let capsules = pair.cast::<PyTuple>().ok().filter(|pair| pair.len() == 2);
    let Some(capsules) = capsules else {
        return Err(PyTypeError::new_err(format!("{dunder} must return two capsules, and returned {}", pair.repr()?)));
    };
    let (schema, array) = (capsules.get_borrowed_item(0)?, capsules.get_borrowed_item(1)?);
    import(&array, schema_from_capsule(&schema)?)
}

fn stream_unless(
    object: &Bound<'_, PyAny>,
    refuses: Refuses<'_>,
    is_lost: &mut bool,
) -> PyResult<Option<DeviceArrayStream>> {
    let py = object.py();
    let (on_device, on_host) = (intern!(py, "__arrow_c_device_stream__"), intern!(py, "__arrow_c_stream__"));
    // An object with a length can be asked for its stream again; the reader of another library is consumed by the question.
    let gives_again = has_length(object)?;
    if !gives_again {
        let has_devices = object.hasattr(on_device)?;
        if (has_devices || object.hasattr(on_host)?)
            && let Some(field) = told_schema(object)?
        {
            let index = pandas_index(object, &field)?;
            refuses(&Unread { field: &field, index, device: (!has_devices).then_some(Device::CPU) })?;
        }
    }
    // As an array's, a dunder for devices that is not implemented leaves the one for the host.
    let (on_its_device, refusal) = match call_if_present(object, on_device) {
        Err(error) if error.is_instance_of::<PyNotImplementedError>(py) => (None, Some(error)),
        asked => (asked?, None),
    };
    let is_of_device = on_its_device.is_some();
    let capsule = match on_its_device {
        None => call_if_present(object, on_host)?,
        given => given,
    };
    if let (None, Some(refusal)) = (&capsule, refusal) {
        return Err(refusal);
    }
    // A dunder that raises gives nothing away.
    *is_lost |= capsule.is_some() && !gives_again;
    let import = if is_of_device { device_stream_from_capsule } else { stream_from_capsule };
    let stream = capsule.map(|capsule| objects::stream_of(object, import(&capsule)?)).transpose()?;
    if let Some(stream) = &stream {
        let (index, device) = (pandas_index(object, stream.field())?, Device::new(stream.device_type(), 0));
        refuses(&Unread { field: stream.field(), index, device: Some(device) })?;
    }
    Ok(stream)
}

/// Whether the type has a length, as containers have: their dunders can be called again and again. Readers have none.
pub(super) fn has_length(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    object.get_type().hasattr(intern!(object.py(), "__len__"))
}

/// The type that a reader tells before it is opened; opening it tells all the same.
fn told_schema(object: &Bound<'_, PyAny>) -> PyResult<Option<FieldRef>> {
    schema(object).or_else(|error| match error.is_instance_of::<PyException>(object.py()) {
        true => Ok(None),
        false => Err(error),
    })
}
