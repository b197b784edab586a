//! The package's exceptions, and the conversion of [`Error`] to them.

use std::any::Any;
use std::error::Error as _;

use pyo3::exceptions::{
    PyBaseException, PyBufferError, PyKeyboardInterrupt, PyMemoryError, PyRuntimeError, PyStopIteration, PyUserWarning,
    PyValueError,
};
use pyo3::panic::PanicException;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyIterator, PyList, PyType};

use super::answers::answer;
use super::attach::Raised;
use super::escapes::message;
use crate::callback;
use crate::error::{Error, ErrorKind, Language};

/// The end of a remedy that points to the validity of nulls, and what follows it for a stream, which cannot be read again.
const ASK: &str = "ask for validity()";
const OF_A_TABLE: &str = ", both of a table that the stream is read into first";

struct Exceptions {
    conversion: Py<PyType>,
    copy: Py<PyType>,
    null: Py<PyType>,
    cast: Py<PyType>,
    unsupported: Py<PyType>,
    internal: Py<PyType>,
    read_only_view: Py<PyType>,
}

static EXCEPTIONS: PyOnceLock<Exceptions> = PyOnceLock::new();

/// Makes an exception class of the package. The attributes have defaults, so that every instance has them.
fn class<'py>(name: &str, bases: &[Bound<'py, PyType>], doc: &str, py: Python<'py>) -> PyResult<Bound<'py, PyType>> {
    let members = PyDict::new(py);
    members.set_item("__module__", "arrow_dlpack")?;
    members.set_item("__doc__", doc)?;
    for attribute in ["column", "row", "reason", "remedy"] {
        members.set_item(attribute, py.None())?;
    }
    let bases = pyo3::types::PyTuple::new(py, bases)?;
    Ok(py.get_type::<PyType>().call1((name, bases, members))?.cast_into::<PyType>()?)
}

fn warning(py: Python<'_>) -> PyResult<Bound<'_, PyType>> {
    let members = PyDict::new(py);
    members.set_item("__module__", "arrow_dlpack")?;
    members.set_item(
        "__doc__",
        "Warns that a library which ignores the read-only flag received a view of read-only memory.",
    )?;
    let made = py.get_type::<PyType>().call1(("ReadOnlyViewWarning", (py.get_type::<PyUserWarning>(),), members))?;
    Ok(made.cast_into::<PyType>()?)
}

/// The class `ReadOnlyViewWarning`.
pub(super) fn read_only_view_warning(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    Ok(exceptions(py)?.read_only_view.bind(py).clone().into_any())
}

/// A class by its number in the package's table; `None` for none.
pub(super) fn class_of(py: Python<'_>, number: u32) -> PyResult<Option<Bound<'_, PyType>>> {
    let Exceptions { conversion, copy, null, cast, unsupported, internal, read_only_view } = exceptions(py)?;
    let classes = [conversion, copy, null, cast, unsupported, internal, read_only_view];
    let class = usize::try_from(number).ok().and_then(|number| classes.get(number).copied());
    Ok(class.map(|class| class.bind(py).clone()))
}

/// Raises the classes of the package, which `class` gives by number, instead of classes of this copy; those that were raised by
/// then stay.
pub(super) fn adopt<'py>(py: Python<'py>, class: impl Fn(u32) -> PyResult<Bound<'py, PyType>>) -> PyResult<()> {
    let class = |number| class(number).map(Bound::unbind);
    EXCEPTIONS.get_or_try_init(py, || {
        PyResult::Ok(Exceptions {
            conversion: class(0)?,
            copy: class(1)?,
            null: class(2)?,
            cast: class(3)?,
            unsupported: class(4)?,
            internal: class(5)?,
            read_only_view: class(6)?,
        })
    })?;
    Ok(())
}

fn exceptions(py: Python<'_>) -> PyResult<&Exceptions> {
    EXCEPTIONS.get_or_try_init(py, || {
        let roots = [py.get_type::<PyBufferError>(), py.get_type::<PyValueError>()];
        let doc = "A conversion that is impossible as requested. `column` and `row` say where, `reason` why, `remedy` what helps.";
        let conversion = class("ConversionError", &roots, doc, py)?;
        let subclass = |name, doc| class(name, std::slice::from_ref(&conversion), doc, py).map(Bound::unbind);
        Ok(Exceptions {
            copy: subclass("CopyError", "A copy is needed, and `copy=False` forbids it.")?,
            null: subclass("NullError", "A null that the null policy refuses, or that the result cannot represent.")?,
            cast: subclass("CastError", "A value that does not fit the requested type.")?,
            unsupported: subclass("UnsupportedTypeError", "A type or layout that the other protocol cannot represent.")?,
            internal: subclass("InternalError", "A bug in this package. `remedy` says where to report it.")?,
            read_only_view: warning(py)?.unbind(),
            conversion: conversion.unbind(),
        })
    })
}

/// The exception of a panic, as PyO3 raises one that leaves a method.
pub(super) fn panicked(panic: &(dyn Any + Send)) -> PyErr {
    PanicException::new_err(callback::panic_message(panic).to_owned())
}

pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let exceptions = exceptions(module.py())?;
    for class in [
        &exceptions.conversion,
        &exceptions.copy,
        &exceptions.null,
        &exceptions.cast,
        &exceptions.unsupported,
        &exceptions.internal,
        &exceptions.read_only_view,
    ] {
        let class = class.bind(module.py());
        module.add(class.name()?, class)?;
    }
    Ok(())
}

fn raise(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    // An exception of a source is raised unchanged, with a note of its shard.
    let raised = error.source().and_then(|source| source.downcast_ref::<Raised>());
    if let Some(raised) = raised.and_then(|raised| raised.again(py)) {
        return Ok(match error.shard() {
            Some(shard) => of_shard(py, raised, shard),
            None => raised,
        });
    }
    let exceptions = exceptions(py)?;
    let class = match error.kind() {
        ErrorKind::Copy => &exceptions.copy,
        ErrorKind::Null => &exceptions.null,
        ErrorKind::Cast => &exceptions.cast,
        ErrorKind::Unsupported => &exceptions.unsupported,
        ErrorKind::Internal => &exceptions.internal,
        ErrorKind::Interrupted => return Ok(PyKeyboardInterrupt::new_err(())),
        ErrorKind::Memory => return Ok(PyMemoryError::new_err(message(&error.told_in(Language::Python).to_string()))),
        _ => &exceptions.conversion,
    };
    let exception = class.bind(py).call1((message(&error.told_in(Language::Python).to_string()),))?;
    exception.setattr("column", error.column())?;
    exception.setattr("row", error.row())?;
    exception.setattr("reason", message(error.reason()))?;
    exception.setattr("remedy", error.remedy_in(Language::Python).as_deref().map(message))?;
    // As `raise` in an `except` block does it. PyO3 raises a finished exception without.
    exception.setattr("__context__", py.import("sys")?.call_method0("exception")?)?;
    Ok(PyErr::from_value(exception))
}

/// The error for a refused null, where `source` is an iterator that is read by now: nobody can ask for its validity any more.
pub(super) fn null_in_stream(source: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    let py = source.py();
    let add = || -> PyResult<()> {
        let exception = error.value(py);
        let is_null = exception.is_instance(exceptions(py)?.null.bind(py))?;
        if !is_null || source.cast::<PyIterator>().is_err() {
            return Ok(());
        }
        let Some(remedy) = exception.getattr("remedy")?.extract::<Option<String>>()? else { return Ok(()) };
        if remedy.ends_with(ASK) {
            exception.setattr("remedy", format!("{remedy}{OF_A_TABLE}"))?;
            exception.setattr("args", (format!("{exception}{OF_A_TABLE}"),))?;
        }
        Ok(())
    };
    let added = add();
    as_it_is(py, error, added)
}

/// The error of an item of `sources=`, which says the item's number: once, as the caller's code may raise one exception again.
pub(super) fn of_item(py: Python<'_>, error: PyErr, number: usize) -> PyErr {
    let item = format!("sources[{number}]");
    let told = |text: &str| (!text.starts_with(&item)).then(|| format!("{item}: {text}"));
    let added = add(&error.value(py).clone(), &item, told);
    as_it_is(py, error, added)
}

/// The error of a caller's options, which says that an item of the caller's iterator is lost by it; once, as [`of_item`].
pub(super) fn item_taken(py: Python<'_>, error: PyErr) -> PyErr {
    const TAKEN: &str = "one item was taken from the iterator";
    let told = |text: &str| (!text.ends_with(TAKEN)).then(|| format!("{text}; {TAKEN}"));
    let added = add(&error.value(py).clone(), TAKEN, told);
    as_it_is(py, error, added)
}

/// Replaces the text of an exception by what `told` makes of it; `None` leaves the text. An exception without a text alone gets a note.
fn add(exception: &Bound<'_, PyBaseException>, note: &str, told: impl FnOnce(&str) -> Option<String>) -> PyResult<()> {
    if let Ok((text,)) = exception.getattr("args")?.extract::<(String,)>() {
        return told(&text).map_or(Ok(()), |told| exception.setattr("args", (told,)));
    }
    if let Some(notes) = exception.getattr_opt("__notes__")?
        && notes.contains(note)?
    {
        return Ok(());
    }
    exception.call_method1("add_note", (note,)).map(drop)
}

/// The exception of a source, with a note of its shard's number: as it is, if it takes no notes.
pub(super) fn of_shard(py: Python<'_>, error: PyErr, shard: usize) -> PyErr {
    let add = || -> PyResult<()> {
        let exception = error.value(py);
        if let Some(notes) = exception.getattr_opt("__notes__")? {
            // A source may raise one and the same exception again, also in another shard.
            let notes = notes.cast_into::<PyList>()?;
            for index in (0..notes.len()).rev() {
                if is_of_shard(&notes.get_item(index)?) {
                    notes.del_item(index)?;
                }
            }
        }
        exception.call_method1("add_note", (format!("shard {shard}"),)).map(drop)
    };
    let added = add();
    as_it_is(py, error, added)
}

/// Whether a note of an exception is one of [`of_shard`].
fn is_of_shard(note: &Bound<'_, PyAny>) -> bool {
    let digits = note.extract::<String>().ok().and_then(|note| Some(note.strip_prefix("shard ")?.to_owned()));
    digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit()))
}

/// The exception to raise, whether or not something could be added to it: a failure to add must not hide it.
fn as_it_is(py: Python<'_>, error: PyErr, added: PyResult<()>) -> PyErr {
    answer(py, added).err().unwrap_or(error)
}

/// The exception that leaves a `__next__` of ours: `RuntimeError` in place of a `StopIteration` of the code of a source or of `xp`,
/// which would pass for the end of the data. Generators do the same (PEP 479).
pub(super) fn of_next(py: Python<'_>, error: PyErr) -> PyErr {
    if !error.is_instance_of::<PyStopIteration>(py) {
        return error;
    }
    let told =
        PyRuntimeError::new_err("Python code that the next item needs raised StopIteration before the end of the data");
    told.set_cause(py, Some(error));
    told
}

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        Python::attach(|py| raise(py, &error).unwrap_or_else(|failure| failure))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bug_of_ours_is_an_exception_that_says_where_to_report_it() {
        Python::initialize();
        Python::attach(|py| {
            let raised = PyErr::from(Error::internal("a block was lost").in_column("x"));
            let exceptions = exceptions(py).unwrap();
            assert!(raised.get_type(py).is(&exceptions.internal));
            assert!(raised.is_instance(py, exceptions.conversion.bind(py)));
            let remedy: String = raised.value(py).getattr("remedy").unwrap().extract().unwrap();
            assert_eq!(
                remedy,
                format!("this is a bug of arrow-dlpack: please report this at {}", env!("CARGO_PKG_REPOSITORY"))
            );
            assert_eq!(raised.value(py).to_string(), format!("column \"x\": a block was lost; {remedy}"));
        });
    }
}
