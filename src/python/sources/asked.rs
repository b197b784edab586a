//! Asks a source for some of its columns alone, if it can leave out the others.

use arrow_schema::FieldRef;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::datasets;
use super::forms::{Form, form, is_never};
use super::frames;
use super::known::{Known, of_source};
use super::offers::{has_dunder, is_dataset, name_of};
use super::opened::{Opened, columns_of};
use super::projection::{Projection, names};
use crate::error::Counted;
use crate::python::answers::answer;
use crate::python::capsule::{call, call_method};
use crate::spec::PathColumns;

/// How a source is asked for columns.
#[derive(Clone, Copy)]
enum Way {
    /// By the argument `columns` of the method that returns the parts.
    Argument,
    /// By its method `select`, or `select_columns` of a data set, which returns a source of these columns.
    Select,
}

/// The columns that a source is asked for.
pub(super) struct Asked {
    /// The type of all its columns.
    pub(super) whole: FieldRef,
    /// The type of those that it is asked for, in its order.
    pub(super) part: FieldRef,
    way: Way,
}

impl Asked {
    /// What a source that offers this form is asked for; `None` where all of it is read: it cannot select columns, does not tell their
    /// names, or can be read once.
    ///
    /// # Errors
    /// What the object's attributes raise, where that is no answer.
    pub(super) fn of(
        object: &Bound<'_, PyAny>,
        (form, method): (&Form, &Bound<'_, PyAny>),
        projection: &Projection<'_>,
    ) -> PyResult<Option<Self>> {
        if projection.is_all() || !form.again {
            return Ok(None);
        }
        let Some(way) = answer(object.py(), way(object, method))?.flatten() else { return Ok(None) };
        // What is wrong with the source is told when it is read.
        let Some(Known::Type(whole)) = answer(object.py(), of_source(object))?.flatten() else { return Ok(None) };
        let Some(columns) = projection.columns(&whole) else { return Ok(None) };
        let part = columns.field().clone();
        let is_plain = matches!(way, Way::Argument) || !names(&part).into_iter().any(is_pattern);
        Ok(is_plain.then_some(Self { whole, part, way }))
    }

    /// What a data set is asked for; `None` where all of it is read: one that streams reads all columns in any case.
    ///
    /// # Errors
    /// What the object's attributes raise, where that is no answer.
    pub(super) fn of_dataset(object: &Bound<'_, PyAny>, projection: &Projection<'_>) -> PyResult<Option<Self>> {
        let py = object.py();
        if projection.is_all()
            || !object.hasattr(intern!(py, "format"))?
            || !object.hasattr(intern!(py, "select_columns"))?
        {
            return Ok(None);
        }
        // What is wrong with the data set is told when it is read.
        let Some(whole) = answer(py, datasets::schema(object))?.flatten() else { return Ok(None) };
        let part = projection.columns(&whole).map(|columns| columns.field().clone());
        Ok(part.map(|part| Self { whole, part, way: Way::Select }))
    }

    /// The data set of these columns; `None` where it cannot select them.
    ///
    /// # Errors
    /// What signals raise.
    pub(super) fn dataset<'py>(&self, object: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = object.py();
        answer(py, call_method(object, intern!(py, "select_columns"), (names(&self.part),)))
    }

    /// The parts of the source, of these columns.
    ///
    /// # Errors
    /// What the object's methods raise.
    pub(super) fn parts<'py>(
        &self,
        object: &Bound<'py, PyAny>,
        (form, method): (&Form, &Bound<'py, PyAny>),
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = object.py();
        match self.way {
            Way::Argument => {
                let keywords = PyDict::new(py);
                keywords.set_item(intern!(py, "columns"), names(&self.part))?;
                call(method, (), Some(&keywords))
            }
            Way::Select => {
                let selected = call_method(object, intern!(py, "select"), (names(&self.part),))?;
                call(&selected.getattr(form.method)?, (), None)
            }
        }
    }
}

/// The source as a stream of the columns that it was asked for; `None` where it has not all of them, each once.
pub(super) fn fitted(opened: Opened, asked: &Asked) -> Option<Opened> {
    let whole = Some(asked.whole.clone());
    let (wanted, found) = (names(&asked.part), names(opened.stream.field()));
    if wanted == found {
        return Some(Opened { whole, ..opened });
    }
    let position = |name: &&str| {
        let mut positions = found.iter().enumerate().filter(|(_, found)| *found == name);
        let (position, _) = positions.next()?;
        positions.next().is_none().then_some(position)
    };
    let positions = wanted.iter().map(position).collect::<Option<Vec<_>>>()?;
    let columns = PathColumns::of_columns(opened.stream.field(), positions)?;
    Some(Opened { stream: columns_of(opened.stream, columns), whole, ..opened })
}

/// What a report says of a source that is asked for some of its columns alone; `None` where all of it is read.
///
/// # Errors
/// As [`Asked::of`].
pub(in crate::python) fn note(object: &Bound<'_, PyAny>, projection: &Projection<'_>) -> PyResult<Option<String>> {
    if has_dunder(object)? {
        return frames::note(object, projection);
    }
    if projection.is_all() || is_never(object)? {
        return Ok(None);
    }
    let (asked, how) = if is_dataset(object)? {
        (Asked::of_dataset(object, projection)?, "select_columns(...)".to_owned())
    } else {
        let Some((form, method)) = form(object)? else { return Ok(None) };
        let asked = Asked::of(object, (form, &method), projection)?;
        let how = match asked {
            Some(Asked { way: Way::Argument, .. }) => format!("{}(columns=...)", form.method),
            _ => format!("select(...).{}()", form.method),
        };
        (asked, how)
    };
    let Some(asked) = asked else { return Ok(None) };
    let (part, whole) = (names(&asked.part).len(), names(&asked.whole).len());
    let columns = Counted(whole, "column");
    Ok(Some(format!("the {} is read by {how}, which reads {part} of its {columns}", name_of(object))))
}

/// How an object can be asked for columns before it is read; `None` where it cannot.
fn way(object: &Bound<'_, PyAny>, method: &Bound<'_, PyAny>) -> PyResult<Option<Way>> {
    let py = object.py();
    let has = |name| object.getattr_opt(name).map(|found| found.is_some_and(|method| method.is_callable()));
    // Queries of polars, whose types are known without running them.
    if has(intern!(py, "select"))? && has(intern!(py, "collect_schema"))? {
        return Ok(Some(Way::Select));
    }
    let signature = py.import(intern!(py, "inspect"))?.getattr(intern!(py, "signature"))?;
    let parameters = call(&signature, (method,), None)?.getattr(intern!(py, "parameters"))?;
    Ok(parameters.contains(intern!(py, "columns"))?.then_some(Way::Argument))
}

/// Whether polars takes a name for a pattern of names.
fn is_pattern(name: &str) -> bool {
    name == "*" || name.starts_with('^')
}
