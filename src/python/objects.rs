//! Which columns does an object say are of Python objects, where its Arrow type has their addresses alone?

use std::collections::HashSet;
use std::sync::Arc;

use arrow_schema::FieldRef;
use pyo3::intern;
use pyo3::prelude::*;

use super::answers::{answer, mapping};
use super::capsule::call;
use crate::arrow::DeviceArrayStream;
use crate::spec::{may_be_objects, with_objects};

/// The type of an object's rows, with its columns of Python objects marked. Only an object with columns of addresses is asked.
pub(super) fn field_of(object: &Bound<'_, PyAny>, field: FieldRef) -> PyResult<FieldRef> {
    if !may_be_objects(&field) {
        return Ok(field);
    }
    Ok(match answer(object.py(), Objects::of(object))? {
        Some(Objects::Columns(names)) if !names.is_empty() => with_objects(&field, |name| names.contains(name)),
        Some(Objects::Values) => with_objects(&field, |_| true),
        _ => field,
    })
}

/// As [`field_of`], of the stream of an object's rows.
pub(super) fn stream_of(object: &Bound<'_, PyAny>, stream: DeviceArrayStream) -> PyResult<DeviceArrayStream> {
    let field = field_of(object, stream.field().clone())?;
    if Arc::ptr_eq(&field, stream.field()) {
        return Ok(stream);
    }
    let (device_type, of_arrays) = (stream.device_type(), field.clone());
    Ok(DeviceArrayStream::new(field, device_type, stream.map(move |array| array?.relabel(of_arrays.clone()))))
}

/// What an object says is of Python objects.
enum Objects {
    Nothing,
    /// The values of a series.
    Values,
    /// The columns of a frame, by name.
    Columns(HashSet<String>),
}

impl Objects {
    /// By the `dtype` of a series, the `schema` of a frame or the `collect_schema()` of a query. A schema is a dict of dtypes by name.
    fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = object.py();
        let is_object = |dtype: &Bound<'_, PyAny>| PyResult::Ok(dtype.str()?.to_str()? == "Object");
        let attribute = |name| object.getattr_opt(name);
        if let Some(dtype) = attribute(intern!(py, "dtype"))? {
            return Ok(if is_object(&dtype)? { Self::Values } else { Self::Nothing });
        }
        let schema = match attribute(intern!(py, "collect_schema"))? {
            Some(collect) => Some(call(&collect, (), None)?),
            None => attribute(intern!(py, "schema"))?,
        };
        let Some(columns) = mapping(schema.as_ref().unwrap_or(object))? else { return Ok(Self::Nothing) };
        let mut names = HashSet::new();
        for (name, dtype) in columns {
            if is_object(&dtype)? {
                names.insert(name.extract()?);
            }
        }
        Ok(Self::Columns(names))
    }
}
