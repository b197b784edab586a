//! Reads the items of a Python iterator as one stream: asks for each after the one before has been read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_schema::FieldRef;
use pyo3::exceptions::{PyException, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::forms::is_read_again;
use super::held::HeldObject;
use super::offers::{has_dunder, name_of};
use super::opened::Opened;
use super::projection::Projection;
use crate::arrow::{DeviceArray, DeviceArrayStream, difference};
use crate::convert::request_field;
use crate::error::{Error, ErrorKind, Result};
use crate::python::answers::answer;
use crate::python::attach::{Raised, attached};
use crate::python::capsule::{call, call_method};
use crate::python::errors::item_taken;
use crate::python::package::package;

/// What an object is as a source.
#[derive(Debug)]
pub(super) enum Found {
    /// No source.
    Nothing,
    /// A source without items, and so without a type.
    Empty,
    /// An iterable of something else.
    Other {
        /// The type of its first item.
        item: String,
        /// Whether that was taken from an iterator of the caller's.
        is_taken: bool,
    },
    /// A source.
    Stream(Opened),
}

/// Finds the stream of an item, which is a source at this depth, and of which these columns are read.
pub(super) type OpenItem = fn(&Bound<'_, PyAny>, usize, &Projection<'_>) -> PyResult<Found>;

/// The items of an iterator that are not read yet.
struct Items {
    /// Let go once it has no more items, or raised.
    iterator: HeldObject,
    /// `next` of Python.
    next: HeldObject,
    /// Whether the iterator raised when it was last asked.
    has_raised: bool,
    field: FieldRef,
    /// The type of all columns of the first item.
    whole: FieldRef,
    /// The columns that are read of each item: all, if all were read of the first one.
    projection: Projection<'static>,
    /// What is left of the last item that was taken.
    current: DeviceArrayStream,
    /// How many items were taken.
    taken: usize,
    /// Whether the arrays of the present item say otherwise than the first one which fields have nulls, or what they are called.
    is_other: bool,
    part: OpenItem,
    depth: usize,
    /// Whether the iterator is closed where it is not read to its end.
    is_closed: Arc<AtomicBool>,
}

/// Finds the stream of an iterable, each item of which `part` opens.
pub(super) fn find(
    object: &Bound<'_, PyAny>,
    depth: usize,
    projection: &Projection<'_>,
    part: OpenItem,
) -> PyResult<Found> {
    let py = object.py();
    if !object.get_type().hasattr(intern!(py, "__iter__"))? {
        return Ok(Found::Nothing);
    }
    let builtins = py.import(intern!(py, "builtins"))?;
    let iterator = match call(&builtins.getattr(intern!(py, "iter"))?, (object,), None) {
        Err(error) if error.is_instance_of::<PyTypeError>(py) => return Ok(Found::Nothing),
        iterator => iterator?,
    };
    let next = builtins.getattr(intern!(py, "next"))?;
    let is_own = iterator.is(object);
    let Some(first) = take(&next, &iterator)? else { return Ok(Found::Empty) };
    let found = open_item(&first, part, depth, projection);
    let found = found.map_err(|error| if is_own { item_taken(py, error) } else { error });
    let opened = match found? {
        Found::Stream(opened) => opened,
        _ => return Ok(Found::Other { item: name_of(&first), is_taken: is_own }),
    };
    let is_closed = Arc::new(AtomicBool::new(false));
    let (field, device_type) = (opened.stream.field().clone(), opened.stream.device_type());
    let iterator = HeldObject::new(iterator.unbind());
    let held = opened.held.iter().chain([&iterator]).cloned().collect();
    let items = Items {
        iterator,
        next: HeldObject::new(next.unbind()),
        has_raised: false,
        field: field.clone(),
        whole: opened.whole().clone(),
        projection: if opened.whole.is_some() { projection.shared() } else { Projection::All },
        current: opened.stream,
        taken: 1,
        is_other: false,
        part,
        depth,
        is_closed: is_closed.clone(),
    };
    let stream = DeviceArrayStream::new(field, device_type, items);
    let again = is_read_again(object)?;
    Ok(Found::Stream(Opened {
        stream,
        whole: opened.whole,
        index: opened.index,
        again,
        is_item_taken: is_own,
        is_closed,
        held,
    }))
}

/// The next item; `None` at the end.
fn take<'py>(next: &Bound<'py, PyAny>, iterator: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    // No iterator gives itself, so that it can stand for the end.
    let item = call(next, (iterator, iterator), None)?;
    Ok((!item.is(iterator)).then_some(item))
}

/// Finds the stream of an item. A tuple is none: its parts can be the same rows twice, as a batch and the fragment that it is of.
fn open_item(item: &Bound<'_, PyAny>, part: OpenItem, depth: usize, projection: &Projection<'_>) -> PyResult<Found> {
    if item.is_instance_of::<PyTuple>() && !has_dunder(item)? {
        return if item.hasattr(intern!(item.py(), "record_batch"))? {
            Err(is_tagged(item))
        } else {
            Ok(Found::Nothing)
        };
    }
    part(&without_index(item.clone())?, depth, projection)
}

/// The error of a batch with its fragment, as `scan_batches` of a scanner of pyarrow gives it.
fn is_tagged(item: &Bound<'_, PyAny>) -> PyErr {
    PyTypeError::new_err(format!(
        "an item is a {}, a tuple of a batch and its fragment, and must be a batch alone; pass scanner.to_reader(), or item.record_batch \
         of each item",
        name_of(item)
    ))
}

/// A frame of pandas without its index. Of one part after the other, some have an index that is a range, and no column, and others
/// one that is a column.
pub(super) fn without_index(item: Bound<'_, PyAny>) -> PyResult<Bound<'_, PyAny>> {
    let py = item.py();
    let mut is_pandas = false;
    for class in item.get_type().mro().iter() {
        is_pandas |= answer(py, package(&class))?.is_some_and(|package| package == "pandas");
    }
    if !is_pandas {
        return Ok(item);
    }
    let Some(reset) = item.getattr_opt(intern!(py, "reset_index"))? else { return Ok(item) };
    let keywords = pyo3::types::PyDict::new(py);
    keywords.set_item(intern!(py, "drop"), true)?;
    call(&reset, (), Some(&keywords))
}

impl Items {
    /// Takes the next item; whether there was one.
    fn advance(&mut self, py: Python<'_>) -> PyResult<bool> {
        let callable = self.next.get(py).zip(self.iterator.get(py));
        let item = match callable.map(|(next, iterator)| take(&next, &iterator)) {
            Some(Ok(Some(item))) => item,
            Some(Err(error)) => {
                self.has_raised = true;
                // Another iterator than a generator may go on after a signal.
                if error.is_instance_of::<PyException>(py) {
                    drop(self.iterator.take());
                }
                return Err(error);
            }
            Some(Ok(None)) | None => {
                drop(self.iterator.take());
                return if self.has_raised { Err(ended_early().into()) } else { Ok(false) };
            }
        };
        self.has_raised = false;
        self.taken = self.taken.saturating_add(1);
        let Found::Stream(opened) = open_item(&item, self.part, self.depth, &self.projection)? else {
            let (number, name) = (self.taken, name_of(&item));
            return Err(PyTypeError::new_err(format!("item {number} of the iterator is no Arrow data but {name}")));
        };
        // An item that cannot leave out columns comes among others that can.
        let opened = opened.narrowed(&self.projection);
        self.check(opened.whole())?;
        self.is_other = opened.stream.field().data_type() != self.field.data_type();
        self.current = opened.stream;
        Ok(true)
    }

    /// Refuses an item of other columns than the first one.
    fn check(&self, field: &FieldRef) -> Result<()> {
        let Some((found, first)) = difference(field, &self.whole) else { return Ok(()) };
        let reason = format!("item {} of the iterator has {found}, and the first one {first}", self.taken);
        Err(Error::argument(reason).remedy_is("give all items one schema"))
    }
}

impl Items {
    /// An array under the field of the first item: fields that are nullable in one of them alone are those of the first.
    fn of_first(&self, array: &DeviceArray) -> Result<DeviceArray> {
        request_field(array, &self.field).map_err(|error| {
            if error.kind() != ErrorKind::Null {
                return error;
            }
            let (column, taken) = (error.column().unwrap_or_default(), self.taken);
            let reason = format!(
                "item {taken} of the iterator has a null in a column that is not nullable in the first item; else their types are \
                 the same"
            );
            let remedy = format!("make {column:?} nullable in the schema of the first item, as pyarrow's Table.cast does");
            Error::new(ErrorKind::Null, reason).in_column(column).remedy_is(remedy)
        })
    }
}

impl Iterator for Items {
    type Item = Result<DeviceArray>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(array) = self.current.next() {
                return Some(if self.is_other { array.and_then(|array| self.of_first(&array)) } else { array });
            }
            match attached(|py| self.advance(py).map_err(|error| raised(py, error))) {
                Some(Ok(true)) => {}
                Some(Ok(false)) => return None,
                Some(Err(error)) => return Some(Err(error)),
                None => {
                    let reason = "the interpreter is going down, and the source cannot be read on";
                    return Some(Err(Error::new(ErrorKind::Producer, reason)));
                }
            }
        }
    }
}

impl Drop for Items {
    fn drop(&mut self) {
        let is_closed = self.is_closed.load(Ordering::Acquire);
        attached(|py| {
            if let Some(iterator) = self.iterator.take()
                && is_closed
                && let Err(error) = close(iterator.bind(py))
            {
                error.write_unraisable(py, Some(iterator.bind(py)));
            }
            drop(self.next.take());
        });
        // The interpreter is going down: whoever still has a reference keeps it.
        std::mem::forget((self.iterator.take(), self.next.take()));
    }
}

/// Closes a generator, which ends its `with` blocks.
fn close(iterator: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = iterator.py();
    if iterator.hasattr(intern!(py, "throw"))? && iterator.hasattr(intern!(py, "close"))? {
        call_method(iterator, intern!(py, "close"), ())?;
    }
    Ok(())
}

/// The error of an iterator that has no more items after it raised, as a generator has none.
fn ended_early() -> Error {
    let reason = "the iterator raised an exception before, and ended with that: items may be missing";
    Error::new(ErrorKind::Producer, reason).remedy_is("read a new one from the start")
}

/// What an iterator raised, to be raised again where the stream is read.
pub(in crate::python) fn raised(py: Python<'_>, error: PyErr) -> Error {
    let kind = if error.is_instance_of::<PyException>(py) { ErrorKind::Producer } else { ErrorKind::Interrupted };
    Error::new(kind, error.to_string()).caused_by(Arc::new(Raised::new(py, error)))
}
