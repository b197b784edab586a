//! What do sources tell about their columns before they are opened?

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyList, PySlice, PyString, PyTuple};

use super::forms::{MAX_DEPTH, form, is_never};
use super::offers::{has_dunder, is_dataset};
use super::{datasets, items};
use crate::python::answers::answer;
use crate::python::arrow_input::{arrow, has_length};
use crate::python::capsule::call_method;
use crate::python::schema::schema_of_query;

/// What is known of the columns of a source that is not opened.
pub(in crate::python) enum Known {
    /// The type of its rows.
    Type(FieldRef),
    /// The names of its columns, in a struct type whose other types mean nothing.
    Names(FieldRef),
}

impl Known {
    /// The type, or the struct type with the names.
    pub(in crate::python) fn field(&self) -> &FieldRef {
        match self {
            Self::Type(field) | Self::Names(field) => field,
        }
    }
}

/// What an object tells about its columns, without opening it, reading it or running a query; `None` where it tells nothing.
///
/// # Errors
/// What the object's attributes raise.
pub(in crate::python) fn columns(object: &Bound<'_, PyAny>) -> PyResult<Option<Known>> {
    at(object, 0)
}

fn at(object: &Bound<'_, PyAny>, depth: usize) -> PyResult<Option<Known>> {
    if has_dunder(object)? {
        return of_data(object, depth > 0);
    }
    if depth > MAX_DEPTH || is_never(object)? {
        return Ok(None);
    }
    if is_dataset(object)? {
        return Ok(datasets::schema(object)?.map(Known::Type));
    }
    let first = match (object.cast::<PyList>(), object.cast::<PyTuple>()) {
        (Ok(list), _) => list.get_item(0).ok(),
        (_, Ok(_)) if depth > 0 => return Ok(None),
        (_, Ok(tuple)) => tuple.get_item(0).ok(),
        _ => return of_source(object),
    };
    first.map_or(Ok(None), |first| at(&first, depth + 1))
}

/// Of an object that is read by a method, or iterated over.
pub(super) fn of_source(object: &Bound<'_, PyAny>) -> PyResult<Option<Known>> {
    let Some((form, _)) = form(object)? else { return Ok(None) };
    if let Some(field) = form.schema(object)? {
        return Ok(Some(Known::Type(field)));
    }
    if let Some(field) = schema_of_query(object)? {
        return Ok(Some(Known::Type(field)));
    }
    names(object)
}

/// Of an object with an Arrow dunder; `is_item` where it is one of several.
fn of_data(object: &Bound<'_, PyAny>, is_item: bool) -> PyResult<Option<Known>> {
    if let Some(field) = schema_of_query(object)? {
        return Ok(Some(Known::Type(field)));
    }
    match of_no_rows(object, is_item)? {
        None => names(object),
        known => Ok(known),
    }
}

/// Of data in memory that tells no schema, such as frames of pandas and chunked arrays: that of none of its rows.
fn of_no_rows(object: &Bound<'_, PyAny>, is_item: bool) -> PyResult<Option<Known>> {
    let py = object.py();
    if !has_length(object)? || !is_in_memory(object)? {
        return Ok(None);
    }
    // Slices of a frame of pandas can go by labels.
    let rows = object.getattr_opt(intern!(py, "iloc"))?.unwrap_or_else(|| object.clone());
    if !rows.get_type().hasattr(intern!(py, "__getitem__"))? {
        return Ok(None);
    }
    let none = call_method(&rows, intern!(py, "__getitem__"), (PySlice::new(py, 0, 0, 1),))?;
    let none = if is_item { items::without_index(none)? } else { none };
    let Some(data) = arrow(&none)? else { return Ok(None) };
    let field = data.field().clone();
    Ok(match field.data_type() {
        DataType::Null => None,
        // The type of Python objects is known only of values.
        DataType::Struct(columns) if columns.iter().any(|column| column.data_type().is_null()) => {
            Some(Known::Names(field))
        }
        _ => Some(Known::Type(field)),
    })
}

/// Whether an object has its rows in memory: it is an array, or its type tells how much memory that is, as tables and data frames do.
/// Of a query the length is another query.
pub(in crate::python) fn is_in_memory(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let kind = object.get_type();
    for name in ["__arrow_c_array__", "__arrow_c_device_array__", "nbytes", "memory_usage", "estimated_size"] {
        if kind.hasattr(name)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether an object is a query, which is run each time that it is read: the order of its rows may change.
///
/// # Errors
/// What the object's attributes raise.
pub(in crate::python) fn is_query(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    if has_dunder(object)? {
        // A query tells its schema by a method, where a stream has it as an attribute.
        let (py, kind) = (object.py(), object.get_type());
        let by_method = |name| Ok::<_, PyErr>(kind.getattr_opt(name)?.is_some_and(|schema| schema.is_callable()));
        let tells = by_method(intern!(py, "collect_schema"))? || by_method(intern!(py, "schema"))?;
        return Ok((tells || has_length(object)?) && !is_in_memory(object)?);
    }
    if is_never(object)? || is_dataset(object)? {
        return Ok(false);
    }
    Ok(form(object)?.is_some_and(|(form, _)| form.runs_query))
}

/// The columns by name: `columns` of frames, which have `dtypes` too, or `description` of a cursor of a database with a result.
fn names(object: &Bound<'_, PyAny>) -> PyResult<Option<Known>> {
    let py = object.py();
    let names = match object.getattr_opt(intern!(py, "dtypes"))? {
        Some(_) => match object.getattr_opt(intern!(py, "columns"))? {
            Some(columns) => answer(py, columns.extract::<Vec<String>>())?,
            None => None,
        },
        None => object.getattr_opt(intern!(py, "description"))?.and_then(|description| described(&description)),
    };
    let column = |name: String| Arc::new(Field::new(name, DataType::Null, true));
    let row =
        |names: Vec<String>| Arc::new(Field::new("", DataType::Struct(names.into_iter().map(column).collect()), false));
    Ok(names.map(|names| Known::Names(row(names))))
}

/// The names of the columns of a cursor, as the database API of Python describes them: seven items each, the name first.
fn described(description: &Bound<'_, PyAny>) -> Option<Vec<String>> {
    let name = |column: Bound<'_, PyAny>| {
        let column = column.cast_into::<PyTuple>().ok().filter(|column| column.len() == 7)?;
        column.get_item(0).ok()?.cast::<PyString>().ok()?.extract().ok()
    };
    description.cast::<PyList>().ok()?.iter().map(name).collect()
}
