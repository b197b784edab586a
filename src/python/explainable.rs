//! Finds what `explain` can look at: an object's data if it is at hand, else its type. Consumes no stream.

use arrow_schema::FieldRef;
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use super::answers::answer;
use super::arrow_input::{self, ArrowInput};
use super::input::InputChunks;
use super::schema::schema_of_query;
use super::sources::{self, Known, no_protocol};
use super::{ArrayStream, Tensor, device, tensor_input};
use crate::conversion::Subject;
use crate::device::Device;
use crate::spec::{Conversion, CopyMode};

/// What can be explained.
pub(super) enum Explainable {
    /// Data, or a type of data, none of which is read.
    Of(Subject),
    /// The type of what had to be run to know.
    Query(FieldRef),
}

impl Explainable {
    /// Finds out what an object offers.
    ///
    /// # Errors
    /// `TypeError` for an object that speaks no protocol, or would be consumed; what its dunders raise.
    pub(super) fn read(object: &Bound<'_, PyAny>, conversion: &Conversion) -> PyResult<Self> {
        let is_tensor = object.is_exact_instance_of::<Tensor>();
        if !is_tensor && let Some(array) = arrow_input::array(object)? {
            return Ok(Self::Of(Subject::Chunks(array.field().clone(), vec![array])));
        }
        if !is_tensor && let Some(found) = Self::of_stream(object, conversion)? {
            return Ok(found);
        }
        match tensor_input::dlpack_as_it_is(object, None, CopyMode::IfNeeded)? {
            Some(tensor) => Ok(Self::Of(Subject::Tensor(tensor))),
            None if has(object, "__next__")? => Err(PyTypeError::new_err(
                "explain cannot look at an iterator: its type is that of its first item, and to read that takes it from the iterator; pass \
                 that item, or its schema",
            )),
            None if are_at_hand(object)? => Self::of_chunks(object, conversion),
            None => match sources::columns(object)? {
                Some(Known::Type(field)) => Ok(Self::Of(Subject::Type(field, Device::CPU))),
                _ if sources::is_source(object)? => Err(PyTypeError::new_err(format!(
                    "explain cannot tell the type of the {}: it is known when the first item is read; pass that item, or its schema",
                    object.get_type().name()?
                ))),
                _ => Err(no_protocol(object)),
            },
        }
    }

    /// What the streams of an object would hold, or its schema alone; `None` for an object with neither.
    fn of_stream(object: &Bound<'_, PyAny>, conversion: &Conversion) -> PyResult<Option<Self>> {
        let is_stream = has(object, "__arrow_c_stream__")? || has(object, "__arrow_c_device_stream__")?;
        // What has a length can be asked for a stream again and again; a reader has none.
        let again = is_stream && has(object, "__len__")? && !object.is_exact_instance_of::<ArrayStream>();
        if again && !is_query(object)? {
            return Self::of_chunks(object, conversion).map(Some);
        }
        // Another object that tells a schema cannot be converted: a file that has to be read first.
        let is_read = is_stream || has(object, "__arrow_c_schema__")? || sources::is_source(object)?;
        if is_read && let Some(field) = schema_of_query(object)? {
            return Ok(Some(Self::Of(Subject::Type(field, stream_device(object)?))));
        }
        if again && let Some(ArrowInput::Stream(stream)) = arrow_input::arrow(object)? {
            return Ok(Some(Self::Query(stream.field().clone())));
        }
        if is_stream {
            return Err(PyTypeError::new_err(
                "explain does not read a stream, and this one tells no schema: pass its schema, or one of its batches",
            ));
        }
        Ok(None)
    }

    /// Of data that is read as for this conversion.
    fn of_chunks(object: &Bound<'_, PyAny>, conversion: &Conversion) -> PyResult<Self> {
        let chunks = InputChunks::read_columns(object, conversion, &|_| Ok(()), None)?;
        let (field, device) = (chunks.field().clone(), chunks.device());
        if chunks.arrays.len() != 1 && chunks.arrays.iter().any(|array| !array.device().is_cpu()) {
            return Ok(Self::Of(Subject::Type(field, device)));
        }
        Ok(Self::Of(Subject::Chunks(field, chunks.arrays.into_vec())))
    }
}

/// Whether an object is a list or a tuple of data that can be read again without a query.
fn are_at_hand(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    if !object.is_instance_of::<PyList>() && !object.is_instance_of::<PyTuple>() {
        return Ok(false);
    }
    for item in object.try_iter()? {
        let item = item?;
        let is_array = has(&item, "__arrow_c_array__")? || has(&item, "__arrow_c_device_array__")?;
        let is_table = has(&item, "__arrow_c_stream__")? && has(&item, "__len__")? && !is_query(&item)?;
        if !is_array && !is_table {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether the type of an object has an attribute: columns of a data frame are attributes of the object alone.
fn has(object: &Bound<'_, PyAny>, name: &str) -> PyResult<bool> {
    object.get_type().hasattr(name).and_then(|found| if found { Ok(true) } else { object_has_dunder(object, name) })
}

/// Whether an object itself has an Arrow dunder.
fn object_has_dunder(object: &Bound<'_, PyAny>, name: &str) -> PyResult<bool> {
    if name.starts_with("__arrow_c_") { object.hasattr(name) } else { Ok(false) }
}

/// Whether an object with a length is a query: its stream, and its length, are made by running it.
fn is_query(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    for name in ["execute", "fetchall", "collect", "compute"] {
        if object.get_type().hasattr(name)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Where the arrays of a stream are, as far as its object says; host memory, where nothing is said.
fn stream_device(object: &Bound<'_, PyAny>) -> PyResult<Device> {
    let py = object.py();
    if !object.hasattr(intern!(py, "__arrow_c_device_stream__"))? {
        return Ok(Device::CPU);
    }
    let Some(device) = object.getattr_opt(intern!(py, "device"))? else { return Ok(Device::CPU) };
    Ok(answer(py, device::extract(&device))?.unwrap_or(Device::CPU))
}
