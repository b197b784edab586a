//! What a loader reads, and how often it can.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_schema::FieldRef;
use pyo3::exceptions::{PyException, PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};

use crate::arrow::{DeviceArray, DeviceArrayStream};
use crate::python::capsule::call;
use crate::python::input::{self, ArrowInput, Refuses};
use crate::python::pandas::pandas_index;
use crate::python::{Array, RecordBatch, Tensor};
use crate::spec::{CopyMode, PandasIndex};

const DUNDERS: [&str; 4] =
    ["__arrow_c_device_array__", "__arrow_c_array__", "__arrow_c_device_stream__", "__arrow_c_stream__"];

/// What a loader reads.
#[derive(Debug)]
pub(super) struct Source {
    object: Py<PyAny>,
    /// Whether the object is called for what is read.
    is_callable: bool,
    /// Whether a stream was read that the object may not give again.
    read: AtomicBool,
    /// What the callable gave last, where it can be read once alone.
    last: Mutex<Option<Py<PyWeakrefReference>>>,
}

impl Source {
    /// # Errors
    /// `TypeError` for an object that neither has an Arrow dunder nor can be called.
    pub(super) fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let is_callable = !has_dunder(object)?;
        if is_callable && !object.is_callable() {
            return Err(PyTypeError::new_err(format!(
                "the source must be {EXPECTED}, not {}",
                object.get_type().name()?
            )));
        }
        let (read, last) = (AtomicBool::new(false), Mutex::new(None));
        Ok(Self { object: object.clone().unbind(), is_callable, read, last })
    }

    /// The stream of an epoch, and which index columns of pandas are among all its columns; unless it is one that `refuses`
    /// refuses: nothing of it is read then.
    ///
    /// # Errors
    /// What the callable or the dunder raises; when the source can be read once, and was; what `refuses` says.
    pub(super) fn open(&self, py: Python<'_>, refuses: Refuses<'_>) -> PyResult<(DeviceArrayStream, PandasIndex)> {
        let object = self.object.bind(py);
        if self.is_callable {
            let opened = call(object, (), None)?;
            if !has_dunder(&opened)? {
                let found = opened.get_type().name()?.to_string();
                return Err(PyTypeError::new_err(format!("the source's callable must return {DATA}, not {found}")));
            }
            return self.open_again(&opened, refuses);
        }
        if self.read.load(Ordering::Acquire) {
            return Err(read_already());
        }
        let (stream, again) = read(object, refuses)?;
        if !again {
            self.read.store(true, Ordering::Release);
        }
        let index = pandas_index(object, stream.field())?;
        Ok((stream, index))
    }

    /// Opens what the callable gave, unless that is the reader that it gave before: there may be nothing left in it.
    fn open_again(
        &self,
        opened: &Bound<'_, PyAny>,
        refuses: Refuses<'_>,
    ) -> PyResult<(DeviceArrayStream, PandasIndex)> {
        let py = opened.py();
        let lock = || self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let last = lock().as_ref().map(|last| last.clone_ref(py));
        if last.and_then(|last| last.bind(py).upgrade()).is_some_and(|last| last.is(opened)) {
            return Err(read_already());
        }
        let (stream, again) = read(opened, refuses)?;
        // Not every object can be referred to weakly, and a reference would keep the reader.
        *lock() = if again { None } else { PyWeakrefReference::new(opened).ok().map(Bound::unbind) };
        let index = pandas_index(opened, stream.field())?;
        Ok((stream, index))
    }

    /// The type of the rows, and which index columns of pandas are among all its columns, where the object tells it: nothing is opened for it, and no query is run.
    pub(super) fn schema(&self, py: Python<'_>) -> PyResult<Option<(FieldRef, PandasIndex)>> {
        if self.is_callable {
            return Ok(None);
        }
        let object = self.object.bind(py);
        let field = match input::schema(object) {
            // What is wrong with the source is told when it is opened.
            Err(error) if error.is_instance_of::<PyException>(py) => None,
            field => field?,
        };
        field.map(|field| pandas_index(object, &field).map(|index| (field, index))).transpose()
    }

    /// How many rows there are, where the object tells.
    ///
    /// # Errors
    /// What its `__len__` raises.
    pub(super) fn rows(&self, py: Python<'_>) -> PyResult<Option<usize>> {
        let known = self.known_rows(py)?;
        if known.is_some() || self.is_callable || !input::has_length(self.object.bind(py))? {
            return Ok(known);
        }
        self.object.bind(py).len().map(Some)
    }

    /// As [`Source::rows`], where the object knows without looking: the length of a query may take as long as the query.
    pub(super) fn known_rows(&self, py: Python<'_>) -> PyResult<Option<usize>> {
        let object = self.object.bind(py);
        if self.is_callable {
            return Ok(None);
        }
        if let Ok(batch) = object.cast_exact::<RecordBatch>() {
            return Ok(Some(batch.get().0.len()));
        }
        if let Ok(array) = object.cast_exact::<Array>() {
            return Ok(Some(array.get().0.len()));
        }
        Ok(object.getattr_opt("num_rows")?.and_then(|rows| rows.extract().ok()))
    }

    /// The name of the object's type.
    pub(super) fn name(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.object.bind(py).get_type().name()?.to_string())
    }

    pub(super) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.object)
    }
}

const DATA: &str = "Arrow data (with __arrow_c_stream__, __arrow_c_array__ or a device form of them)";
const EXPECTED: &str =
    "Arrow data (with __arrow_c_stream__, __arrow_c_array__ or a device form of them), or a callable that opens it";

fn has_dunder(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    for dunder in DUNDERS {
        if object.hasattr(dunder)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn read_already() -> PyErr {
    PyValueError::new_err(
        "the source is a stream, which can be read once, and was; pass a callable that opens it anew for each epoch",
    )
}

/// The stream of an object, and whether it can be had again.
fn read(object: &Bound<'_, PyAny>, refuses: Refuses<'_>) -> PyResult<(DeviceArrayStream, bool)> {
    if let Ok(tensor) = object.cast_exact::<Tensor>() {
        let array = crate::column::to_arrow(tensor.get().tensor(), None, CopyMode::IfNeeded)?;
        return Ok((stream_of(array), true));
    }
    match input::arrow_unless(object, refuses)? {
        Some(ArrowInput::Array(array)) => Ok((stream_of(array), true)),
        Some(ArrowInput::Stream(stream)) => Ok((stream, input::has_length(object)?)),
        None => Err(PyTypeError::new_err(format!("expected {DATA}, got {}", object.get_type().name()?))),
    }
}

/// The stream of one array.
fn stream_of(array: DeviceArray) -> DeviceArrayStream {
    let (field, device_type) = (array.field().clone(), array.device().device_type());
    DeviceArrayStream::new(field, device_type, std::iter::once(Ok(array)))
}
