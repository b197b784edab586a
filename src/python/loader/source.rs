//! The source of a loader, and how often it can be read.

use std::ffi::CString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use pyo3::exceptions::{PyTypeError, PyUserWarning};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyList, PyTuple, PyWeakrefMethods, PyWeakrefReference};

use super::opening::{SourceTurns, read_already};
use crate::loader::StopCheck;
use crate::python::answers::answer;
use crate::python::arrow_input::{self, ArrowInput, Refuses};
use crate::python::capsule::call;
use crate::python::pandas::pandas_index;
use crate::python::sources::{
    self, Known, MAX_DEPTH, Opened, Projection, Reads, counted, has_dunder, is_in_memory, is_read_again,
    is_read_by_method, is_source, no_protocol, remedy, stream_of,
};
use crate::python::{Array, RecordBatch, Tensor};
use crate::spec::{CopyMode, PandasIndex};

/// Whether this process was warned of a query that several ranks run.
static IS_WARNED: AtomicBool = AtomicBool::new(false);

/// What a loader reads.
#[derive(Debug)]
pub(super) struct LoaderSource {
    object: Py<PyAny>,
    /// Whether the object is called for what is read.
    is_callable: bool,
    /// Spent once a stream was read that the object may not give again.
    turns: Arc<SourceTurns>,
    /// What the callable gave last, where it can be read once alone: the object, or items of the lists that it gave.
    last: Mutex<Vec<LastReturned>>,
}

/// What a callable gave, to be recognised if it gives it again.
#[derive(Debug)]
enum LastReturned {
    /// Not kept for that.
    Weak(Py<PyWeakrefReference>),
    /// No object that can be referred to weakly, such as a `map`: kept, as somebody else keeps it.
    Kept(Py<PyAny>),
}

/// Whether others than so many lists refer to what a callable has returned to us.
fn is_kept(object: &Bound<'_, PyAny>, lists: usize) -> PyResult<bool> {
    let py = object.py();
    let count = py.import(intern!(py, "sys"))?.getattr(intern!(py, "getrefcount"))?;
    let references = |object: &Bound<'_, PyAny>| count.call1((object,))?.extract::<usize>();
    Ok(references(object)? > references(PyList::empty(py).as_any())?.saturating_add(lists))
}

/// Finds the items of lists that can be read once, and whether somebody else refers to each. A connection is one object for all results,
/// and has no result that was read already.
fn find_items<'py>(
    object: &Bound<'py, PyAny>,
    (depth, is_list_kept): (usize, bool),
    found: &mut Vec<(Bound<'py, PyAny>, bool)>,
) -> PyResult<()> {
    if depth <= MAX_DEPTH && is_list(object) {
        let is_list_kept = is_list_kept || is_kept(object, depth.min(1))?;
        return object.try_iter()?.try_for_each(|item| find_items(&item?, (depth + 1, is_list_kept), found));
    }
    if !is_connection(object)? && !is_read_again(object)? {
        // Counted before there is a clone.
        let is_kept = is_list_kept || is_kept(object, 1)?;
        found.push((object.clone(), is_kept));
    }
    Ok(())
}

fn is_list(object: &Bound<'_, PyAny>) -> bool {
    object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>()
}

fn is_connection(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(!has_dunder(object)? && is_read_by_method(object)?)
}

impl LastReturned {
    /// `None` for an object that nobody can give again, or that cannot be told from another one.
    fn of(object: &Bound<'_, PyAny>, is_kept: bool) -> Option<Self> {
        match PyWeakrefReference::new(object) {
            Ok(reference) => Some(Self::Weak(reference.unbind())),
            Err(_) => is_kept.then(|| Self::Kept(object.clone().unbind())),
        }
    }

    fn is(&self, object: &Bound<'_, PyAny>) -> bool {
        match self {
            Self::Weak(reference) => reference.bind(object.py()).upgrade().is_some_and(|last| last.is(object)),
            Self::Kept(last) => last.is(object),
        }
    }
}

impl LoaderSource {
    /// # Errors
    /// `TypeError` for an object that is neither Arrow data nor a source of it, and cannot be called.
    pub(super) fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let is_callable = !has_dunder(object)? && object.is_callable();
        if !is_callable && !is_data(object)? {
            return Err(PyTypeError::new_err(format!(
                "the source must be {DATA}, or a callable that opens it, not {}{}",
                object.get_type().name()?,
                remedy(object, Reads::Arrow)?
            )));
        }
        Ok(Self { object: object.clone().unbind(), is_callable, turns: Arc::default(), last: Mutex::default() })
    }

    /// The stream of an epoch, of the columns that are read of it; unless it is one that `refuses` refuses: nothing of it is
    /// read then, but an item of an iterator.
    ///
    /// # Errors
    /// What the callable, the dunder or the iterator raises; when the source can be read once, and was; what `refuses` says; what `stop`
    /// says while other threads open the source.
    pub(super) fn open(
        &self,
        py: Python<'_>,
        projection: &Projection<'_>,
        refuses: Refuses<'_>,
        stop: StopCheck<'_>,
    ) -> PyResult<Opened> {
        let object = self.object.bind(py);
        if self.is_callable {
            let opened = call(object, (), None)?;
            if !is_data(&opened)? {
                let (found, remedy) = (opened.get_type().name()?, remedy(&opened, Reads::Arrow)?);
                let text = format!("the source's callable must return {DATA}, not {found}{remedy}");
                return Err(PyTypeError::new_err(text));
            }
            let _turn = self.turns.take(py, stop)?;
            let stream = self.open_again(&opened, projection, refuses)?;
            // Perhaps nobody else refers to it, and a stream of DuckDB reads from the connection of its relation.
            return Ok(stream.holding(opened.unbind()));
        }
        // Of two threads that open one iterator at once, each would take items of it.
        let turn = self.turns.take(py, stop)?;
        let (opened, again) = read_noting_loss(object, projection, refuses)?;
        if !again {
            turn.spend();
        }
        opened
    }

    /// Opens what the callable gave, unless that is the reader that it gave before, or a list of it: there may be nothing left in it.
    fn open_again(
        &self,
        object: &Bound<'_, PyAny>,
        projection: &Projection<'_>,
        refuses: Refuses<'_>,
    ) -> PyResult<Opened> {
        let lock = || self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut readers = Vec::new();
        if is_list(object) {
            find_items(object, (0, false), &mut readers)?;
        } else if !is_connection(object)? {
            let is_kept = is_kept(object, 0)?;
            readers.push((object.clone(), is_kept));
        }
        // Taken, as to drop what it refers to may run code of the object.
        let last = std::mem::take(&mut *lock());
        if last.iter().any(|last| readers.iter().any(|(reader, _)| last.is(reader))) {
            *lock() = last;
            return Err(read_already());
        }
        let opened = read_noting_loss(object, projection, refuses);
        *lock() = match &opened {
            _ if readers.is_empty() => Vec::new(),
            Ok((Ok(_), true)) => Vec::new(),
            Ok((_, false)) => readers.iter().filter_map(|(reader, kept)| LastReturned::of(reader, *kept)).collect(),
            // Nothing was read of this one.
            Ok((Err(_), true)) | Err(_) => last,
        };
        opened?.0
    }

    /// What is known of the columns, and which index columns of pandas are among all of them, where the object tells it: nothing is
    /// opened for it, and no query is run.
    pub(super) fn columns(&self, py: Python<'_>) -> PyResult<Option<(Known, PandasIndex)>> {
        if self.is_callable {
            return Ok(None);
        }
        let object = self.object.bind(py);
        // What is wrong with the source is told when it is opened.
        let known = answer(py, sources::columns(object))?.flatten();
        let index = |known: Known| pandas_index(object, known.field()).map(|index| (known, index));
        known.map(index).transpose()
    }

    /// How many rows there are, where the object knows without looking: the length of a query takes as long as the query.
    ///
    /// # Errors
    /// What its `__len__` raises, where rows in memory are counted.
    pub(super) fn rows(&self, py: Python<'_>) -> PyResult<Option<usize>> {
        if self.is_callable {
            return Ok(None);
        }
        rows_of(self.object.bind(py), 0)
    }

    /// Warns, the first time in this process, if the object is a query, whose rows may have another order in each rank.
    ///
    /// # Errors
    /// The warning, if the filters make it an error: it is raised again for the next loader.
    pub(super) fn warn_of_query(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_callable || IS_WARNED.load(Ordering::Relaxed) || !sources::is_query(self.object.bind(py))? {
            return Ok(());
        }
        let message = format!(
            "each rank runs the query of this {} by itself: ranks lose and repeat rows unless it returns the same rows in the same \
             order each time. Give it an ORDER BY over a unique key, or write its result to files and pass those; compare \
             Loader.fingerprint() of the ranks.",
            self.name(py)?
        );
        let category = py.get_type::<PyUserWarning>();
        PyErr::warn(py, &category, &CString::new(message)?, 1)?;
        IS_WARNED.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// The object, for another loader.
    ///
    /// # Errors
    /// When it can be read once, and was: the other loader would miss what was read.
    pub(super) fn unread<'a, 'py>(&'a self, py: Python<'py>) -> PyResult<&'a Bound<'py, PyAny>> {
        if self.turns.is_spent() { Err(read_already()) } else { Ok(self.object.bind(py)) }
    }

    /// The object's address, by which it is told from others that live.
    pub(super) fn identity(&self) -> usize {
        self.object.as_ptr().addr()
    }

    /// Takes turns with another source, which reads the same object.
    pub(super) fn shares_turns_of(&mut self, other: &Self) {
        self.turns = other.turns.clone();
    }

    /// Whether the object is called for what is read.
    pub(super) fn is_callable(&self) -> bool {
        self.is_callable
    }

    /// Whether two loaders can read the object.
    pub(super) fn is_read_again(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.is_callable || is_read_again(self.object.bind(py))?)
    }

    /// The name of the object's type.
    pub(super) fn name(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.object.bind(py).get_type().name()?.to_string())
    }

    pub(super) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        // Whoever holds the lock changes what it guards, and is not this collection.
        for last in self.last.try_lock().iter().flat_map(|last| last.iter()) {
            if let LastReturned::Kept(last) = last {
                visit.call(last)?;
            }
        }
        visit.call(&self.object)
    }
}

const DATA: &str = "Arrow data (with __arrow_c_stream__, __arrow_c_array__ or a device form of them), an iterable of it, or a \
                    data set, file or query that is read in batches";

fn is_data(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(has_dunder(object)? || is_source(object)?)
}

/// The rows of an object, as [`LoaderSource::rows`]; lists have those of their items.
fn rows_of(object: &Bound<'_, PyAny>, depth: usize) -> PyResult<Option<usize>> {
    if depth > MAX_DEPTH {
        return Ok(None);
    }
    if let Ok(batch) = object.cast_exact::<RecordBatch>() {
        return Ok(Some(batch.get().0.len()));
    }
    if let Ok(array) = object.cast_exact::<Array>() {
        return Ok(Some(array.get().0.len()));
    }
    if is_list(object) {
        let mut all = Some(0_usize);
        for item in object.try_iter()? {
            all = all.zip(rows_of(&item?, depth + 1)?).and_then(|(all, rows)| all.checked_add(rows));
        }
        return Ok(all);
    }
    let counted = if has_dunder(object)? { object.clone() } else { counted(object)? };
    if let Some(rows) = attribute(&counted, "num_rows")?
        && let Some(rows) = answer(object.py(), rows.extract())?
    {
        return Ok(Some(rows));
    }
    let has_length = arrow_input::has_length(object)?;
    if has_length && is_in_memory(object)? { object.len().map(Some) } else { Ok(None) }
}

/// An attribute of an object, unless it fails.
fn attribute<'py>(object: &Bound<'py, PyAny>, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
    answer(object.py(), object.getattr(name))
}

/// Opens an object as a stream, and tells whether all of it can be read again, also where opening fails.
///
/// # Errors
/// What the object's attributes raise before anything of it is read. A signal's handler may raise at any attribute: those that are
/// asked for afterwards must not hide that something was lost.
fn read_noting_loss(
    object: &Bound<'_, PyAny>,
    projection: &Projection<'_>,
    refuses: Refuses<'_>,
) -> PyResult<(PyResult<Opened>, bool)> {
    // An iterator that fails has lost an item.
    let mut is_lost = !has_dunder(object)? && object.cast::<PyIterator>().is_ok();
    let opened = read(object, projection, refuses, &mut is_lost);
    let again = opened.as_ref().map_or(!is_lost, |opened| opened.again);
    Ok((opened, again))
}

/// Opens an object as a stream. Sets `is_lost` if a stream was taken that the object may not give again.
fn read(
    object: &Bound<'_, PyAny>,
    projection: &Projection<'_>,
    refuses: Refuses<'_>,
    is_lost: &mut bool,
) -> PyResult<Opened> {
    if let Ok(tensor) = object.cast_exact::<Tensor>() {
        let array = crate::column::to_arrow(tensor.get().tensor(), None, CopyMode::IfNeeded)?;
        return Ok(Opened::new(stream_of(array), PandasIndex::KeepNamed));
    }
    let (stream, again, is_part) = match sources::exported(object, projection, refuses, is_lost)? {
        Some((ArrowInput::Array(array), is_part)) => (stream_of(array), true, is_part),
        Some((ArrowInput::Stream(stream), is_part)) => {
            // An array that it refused says nothing of its stream, which only containers give again.
            let again = is_read_again(object)? && arrow_input::has_length(object)?;
            *is_lost = !again;
            (stream, again, is_part)
        }
        None => {
            let opened = sources::open(object, projection)?.ok_or_else(|| no_protocol(object))?;
            refuses(&opened.unread()).map_err(|error| opened.teller()(object.py(), error))?;
            opened.take_over();
            return Ok(opened);
        }
    };
    let index = pandas_index(object, stream.field())?;
    Ok(Opened { again, ..Opened::of_frame(stream, index, is_part) })
}
