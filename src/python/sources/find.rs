//! Opens a source: finds the stream of an object, and of the sources in it.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use super::asked::{Asked, fitted};
use super::datasets;
use super::forms::{Form, MAX_DEPTH, form, is_never};
use super::frames::exported;
use super::items::{self, Found};
use super::offers::{expected, is_dataset, name_of};
use super::opened::{Opened, stream_of, stream_of_none};
use super::projection::Projection;
use super::remedies::{Reads, remedy};
use crate::python::Tensor;
use crate::python::arrow_input::ArrowInput;
use crate::python::capsule::call;
use crate::python::errors::item_taken;
use crate::python::objects;
use crate::python::pandas::pandas_index;
use crate::spec::{CopyMode, PandasIndex};

/// Opens a source as a stream of the columns that are read of it; `None` for an object that is none. A source that can leave out the
/// others is asked to; of any other one all columns come. Takes the first item of an iterator, whose type is that of all.
///
/// # Errors
/// What the object's methods or its iterator raise; `TypeError` where the parts are no Arrow data, `ValueError` where there are
/// none, or none any more.
pub(in crate::python) fn open(object: &Bound<'_, PyAny>, projection: &Projection<'_>) -> PyResult<Option<Opened>> {
    match find(object, 0, projection)? {
        Found::Nothing => Ok(None),
        Found::Stream(opened) => Ok(Some(opened)),
        Found::Empty => Err(PyValueError::new_err(format!(
            "the {} has no items, so that its columns are not known; pass a table, or a reader with a schema",
            name_of(object),
        ))),
        Found::Other { item, is_taken } => {
            let text = format!("{}, whose first item is {item}{}", expected(object), remedy(object, Reads::Arrow)?);
            let error = PyTypeError::new_err(text);
            Err(if is_taken { item_taken(object.py(), error) } else { error })
        }
    }
}

/// Finds the stream of an object that has no Arrow dunder.
fn find(object: &Bound<'_, PyAny>, depth: usize, projection: &Projection<'_>) -> PyResult<Found> {
    if depth > MAX_DEPTH || is_never(object)? {
        return Ok(Found::Nothing);
    }
    if is_dataset(object)? {
        return find_in_dataset(object, projection);
    }
    let Some((form, method)) = form(object)? else { return items::find(object, depth, projection, part) };
    if let Some(asked) = Asked::of(object, (form, &method), projection)? {
        let found = found_in(object, depth, form, &asked.parts(object, (form, &method))?)?;
        match found {
            Found::Stream(opened) => {
                if let Some(opened) = fitted(opened, &asked) {
                    return Ok(Found::Stream(opened));
                }
            }
            other => return Ok(other),
        }
    }
    found_in(object, depth, form, &call(&method, (), None)?)
}

/// Finds the stream of what a method of an object returned.
fn found_in(object: &Bound<'_, PyAny>, depth: usize, form: &Form, parts: &Bound<'_, PyAny>) -> PyResult<Found> {
    if parts.is_none() {
        return Err(PyValueError::new_err(format!(
            "{}() of the {} returned None: its result can be read once, and was; pass a callable that runs the query",
            form.method,
            name_of(object),
        )));
    }
    match part(parts, depth, &Projection::All)? {
        Found::Stream(opened) => {
            let stream = objects::stream_of(object, opened.stream)?;
            Ok(Found::Stream(Opened { stream, again: form.again, is_item_taken: false, ..opened }))
        }
        Found::Empty => Ok(form
            .schema(object)?
            .map_or(Found::Empty, |field| Found::Stream(Opened::new(stream_of_none(field), PandasIndex::KeepNamed)))),
        Found::Nothing => Err(PyTypeError::new_err(format!(
            "{}() of the {} must return Arrow data, and returned {}",
            form.method,
            name_of(object),
            name_of(parts)
        ))),
        Found::Other { item, .. } => Err(PyTypeError::new_err(format!(
            "{}() of the {} must return batches of Arrow data, and the first one is {item}",
            form.method,
            name_of(object),
        ))),
    }
}

/// The stream of a part of a source: of Arrow data, or of a source in it.
fn part(object: &Bound<'_, PyAny>, depth: usize, projection: &Projection<'_>) -> PyResult<Found> {
    if let Ok(tensor) = object.cast_exact::<Tensor>() {
        let array = crate::column::to_arrow(tensor.get().tensor(), None, CopyMode::IfNeeded)?;
        return Ok(Found::Stream(Opened::new(stream_of(array), PandasIndex::KeepNamed)));
    }
    let (stream, is_part) = match exported(object, projection, &|_| Ok(()), &mut false)? {
        Some((ArrowInput::Array(array), is_part)) => (stream_of(array), is_part),
        Some((ArrowInput::Stream(stream), is_part)) => (stream, is_part),
        None => return find(object, depth + 1, projection),
    };
    let index = pandas_index(object, stream.field())?;
    Ok(Found::Stream(Opened::of_frame(stream, index, is_part)))
}

/// Finds the stream of the columns that are read of a data set.
fn find_in_dataset(object: &Bound<'_, PyAny>, projection: &Projection<'_>) -> PyResult<Found> {
    if let Some(asked) = Asked::of_dataset(object, projection)?
        && let Some(selected) = asked.dataset(object)?
    {
        match find_in_columns(&selected)? {
            Found::Stream(opened) => {
                if let Some(opened) = fitted(opened, &asked) {
                    return Ok(Found::Stream(opened));
                }
            }
            other => return Ok(other),
        }
    }
    find_in_columns(object)
}

/// Finds the stream of all columns of a data set.
fn find_in_columns(object: &Bound<'_, PyAny>) -> PyResult<Found> {
    match items::find(&datasets::parts(object)?, 0, &Projection::All, part)? {
        Found::Stream(opened) => Ok(Found::Stream(Opened { again: true, is_item_taken: false, ..opened })),
        Found::Empty => Ok(datasets::schema(object)?
            .map_or(Found::Empty, |field| Found::Stream(Opened::new(stream_of_none(field), PandasIndex::KeepNamed)))),
        Found::Other { item, .. } => Err(datasets::not_arrow(object, &format!("gives {item}"))),
        Found::Nothing => Ok(Found::Nothing),
    }
}
