//! Selects columns of what gives a stream of all of them: of relations always, of frames in memory where one of their columns cannot be
//! exported.

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::Arc;

use arrow_schema::{DataType, Field};
use pyo3::exceptions::PyException;
use pyo3::intern;
use pyo3::prelude::*;

use super::known::is_in_memory;
use super::offers::{has_dunder, name_of};
use super::projection::{Projection, names};
use crate::error::Counted;
use crate::python::answers::answer;
use crate::python::arrow_input::{ArrowInput, Refuses, arrow_noting_loss, has_length};
use crate::python::capsule::call_method;
use crate::python::errors::class_of;

/// The names of some columns, and how many there are in all.
struct Selected {
    names: Vec<String>,
    all: usize,
    /// Whether no two of all are the same in another case, which SQL takes for one.
    are_distinct: bool,
}

/// Asks an object for Arrow data, as [`arrow_noting_loss`]. A frame in memory that raises is asked for the
/// columns that are read: others may have no Arrow type, or one name. Tells whether it was.
///
/// # Errors
/// As [`arrow_noting_loss`]; of a frame the first error, unless its columns are refused.
pub(in crate::python) fn exported(
    object: &Bound<'_, PyAny>,
    projection: &Projection<'_>,
    refuses: Refuses<'_>,
    is_lost: &mut bool,
) -> PyResult<Option<(ArrowInput, bool)>> {
    let whole = |input| (input, false);
    if projection.is_all() {
        return Ok(arrow_noting_loss(object, refuses, is_lost)?.map(whole));
    }
    let is_typed = Cell::new(false);
    let typed: Refuses<'_> = &|unread| {
        is_typed.set(true);
        refuses(unread)
    };
    let error = match arrow_noting_loss(object, typed, is_lost) {
        Err(error) if !is_typed.get() && is_of_export(object.py(), &error)? => error,
        other => return Ok(other?.map(whole)),
    };
    // What is wrong with the selection is no answer to the call.
    let Some(frame) = answer(object.py(), frame_of(object, projection))?.flatten() else { return Err(error) };
    match arrow_noting_loss(&frame, typed, is_lost) {
        Err(other) if is_typed.get() || !other.is_instance_of::<PyException>(object.py()) => Err(other),
        Err(_) => Err(error),
        Ok(input) => Ok(input.map(|input| (input, true))),
    }
}

/// Whether a frame's own dunder raised an error: of types that are exported and not known here, ours names the column.
fn is_of_export(py: Python<'_>, error: &PyErr) -> PyResult<bool> {
    let own = class_of(py, 0)?.is_some_and(|conversion| error.is_instance(py, &conversion));
    Ok(!own && error.is_instance_of::<PyException>(py))
}

/// The columns of a frame in memory that are read; `None` where all are, or it is no frame.
fn frame_of<'py>(object: &Bound<'py, PyAny>, projection: &Projection<'_>) -> PyResult<Option<Bound<'py, PyAny>>> {
    if !has_length(object)? || !is_in_memory(object)? || !object.hasattr(intern!(object.py(), "dtypes"))? {
        return Ok(None);
    }
    let Some(selected) = selected(object, projection)? else { return Ok(None) };
    call_method(object, intern!(object.py(), "__getitem__"), (selected.names,)).map(Some)
}

/// A relation of DuckDB with the columns alone that are read; `None` where all are, or the object is no relation.
///
/// # Errors
/// What signals raise.
pub(in crate::python) fn relation<'py>(
    object: &Bound<'py, PyAny>,
    projection: &Projection<'_>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Some(selected) = of_relation(object, projection)? else { return Ok(None) };
    let quoted = selected.names.iter().map(|name| format!("\"{}\"", name.replace('"', "\"\"")));
    let text = quoted.collect::<Vec<_>>().join(", ");
    let selected = answer(object.py(), call_method(object, intern!(object.py(), "select"), (text,)))?;
    match selected {
        Some(selected) if has_dunder(&selected)? => Ok(Some(selected)),
        _ => Ok(None),
    }
}

/// What a report says of a relation that is asked for some of its columns; `None` where all of it is read.
///
/// # Errors
/// As [`relation`].
pub(super) fn note(object: &Bound<'_, PyAny>, projection: &Projection<'_>) -> PyResult<Option<String>> {
    let told = |selected: Selected| {
        let (part, all) = (selected.names.len(), Counted(selected.all, "column"));
        format!("the {} is read by select(...), which reads {part} of its {all}", name_of(object))
    };
    Ok(of_relation(object, projection)?.map(told))
}

fn of_relation(object: &Bound<'_, PyAny>, projection: &Projection<'_>) -> PyResult<Option<Selected>> {
    let py = object.py();
    // Relations alone have both methods: select() takes SQL.
    let kind = object.get_type();
    let is_relation = !projection.is_all()
        && kind.hasattr(intern!(py, "sql_query"))?
        && kind.hasattr(intern!(py, "select"))?
        && has_dunder(object)?;
    if !is_relation {
        return Ok(None);
    }
    Ok(answer(py, selected(object, projection))?.flatten().filter(|selected| selected.are_distinct))
}

/// The columns that are read of an object that tells the names of all, as a list of strings; `None` where all are read.
fn selected(object: &Bound<'_, PyAny>, projection: &Projection<'_>) -> PyResult<Option<Selected>> {
    let Some(columns) = object.getattr_opt(intern!(object.py(), "columns"))? else { return Ok(None) };
    let all = columns.try_iter()?.map(|name| name?.extract::<String>()).collect::<PyResult<Vec<_>>>()?;
    let field = |name: &String| Field::new(name, DataType::Null, true);
    let field = Arc::new(Field::new_struct("", all.iter().map(field).collect::<Vec<_>>(), false));
    let read = projection.columns(&field);
    let names = |field: &Field| names(field).into_iter().map(str::to_owned).collect();
    let are_distinct = all.iter().map(|name| name.to_lowercase()).collect::<HashSet<_>>().len() == all.len();
    Ok(read.map(|read| Selected { names: names(read.field()), all: all.len(), are_distinct }))
}
