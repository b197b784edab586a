//! Objects that yield Arrow data in parts and speak neither protocol: which methods they offer, and how to call them.
//!
//! Only the names of its methods identify a library; none is imported.

mod datasets;
mod items;
mod known;
mod offers;
mod remedies;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_schema::FieldRef;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{
    PyByteArray, PyBytes, PyDict, PyFrozenSet, PyIterator, PyList, PyMapping, PySet, PyString, PyTuple, PyType,
};

use self::items::Found;
pub(super) use self::items::raised;
pub(super) use self::known::{Known, columns, is_in_memory, is_query};
pub(super) use self::offers::has_dunder;
use self::offers::{expected, is_dataset, name_of};
pub(super) use self::remedies::{Reads, no_protocol, remedy};
use super::Tensor;
use super::capsule::call;
use super::errors::item_taken;
use super::input::{self, ArrowInput, Unread};
use super::pandas::pandas_index;
use super::schema::schema;
use crate::arrow::{DeviceArray, DeviceArrayStream};
use crate::device::Device;
use crate::spec::{CopyMode, PandasIndex};

/// A method that returns the parts.
struct Form {
    method: &'static str,
    /// Whether each call reads the data anew.
    again: bool,
    /// The attributes that can have the type of the parts, in the order in which they are tried.
    schemas: &'static [&'static str],
    /// The attribute that has the number of rows at hand, as `num_rows`.
    counted: Option<&'static str>,
    /// Whether it runs a query, whose rows may come in another order each time.
    runs_query: bool,
}

impl Form {
    /// The type of the parts of an object, where one of its attributes tells it.
    fn schema(&self, object: &Bound<'_, PyAny>) -> PyResult<Option<FieldRef>> {
        for name in self.schemas {
            if let Some(field) = object.getattr_opt(*name)?.map(|told| schema(&told)).transpose()?.flatten() {
                return Ok(Some(field));
            }
        }
        Ok(None)
    }
}

/// In the order in which they are tried: a method that returns a reader comes before one that returns batch after batch.
const FORMS: [Form; 7] = [
    // pyarrow.dataset.Scanner, Lance's scanner.
    Form { method: "to_reader", again: true, schemas: &["projected_schema"], counted: None, runs_query: false },
    // pyarrow.dataset.Dataset and Fragment, lance.LanceDataset.
    Form { method: "scanner", again: true, schemas: &["schema", "physical_schema"], counted: None, runs_query: false },
    // pyarrow.parquet.ParquetFile.
    Form {
        method: "iter_batches",
        again: true,
        schemas: &["schema_arrow"],
        counted: Some("metadata"),
        runs_query: false,
    },
    // polars.LazyFrame.
    Form { method: "collect_batches", again: true, schemas: &[], counted: None, runs_query: true },
    // A connection of DuckDB with the result of execute(): since 1.4, and before. Cursors of ADBC have the second one.
    Form { method: "to_arrow_reader", again: false, schemas: &[], counted: None, runs_query: true },
    Form { method: "fetch_record_batch", again: false, schemas: &[], counted: None, runs_query: true },
    Form { method: "to_batches", again: true, schemas: &["schema"], counted: None, runs_query: false },
];

/// How deep sources can be nested, such as a list of files whose batches are read.
pub(super) const MAX_DEPTH: usize = 4;

/// A source as a stream.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) stream: DeviceArrayStream,
    /// Which index columns of pandas are among all columns.
    pub(super) index: PandasIndex,
    /// Whether the object can be opened again, and gives the same rows then.
    pub(super) again: bool,
    /// Whether an item was taken from an iterator of the caller's.
    pub(super) is_item_taken: bool,
    /// Whether such an iterator is closed with the stream.
    pub(super) is_closed: Arc<AtomicBool>,
}

impl Opened {
    /// A stream that can be had again.
    pub(super) fn new(stream: DeviceArrayStream, index: PandasIndex) -> Self {
        Self { stream, index, again: true, is_item_taken: false, is_closed: Arc::default() }
    }

    /// What is known of the stream before it is read on.
    pub(super) fn unread(&self) -> Unread<'_> {
        let device = Some(Device::new(self.stream.device_type(), 0));
        Unread { field: self.stream.field(), index: self.index, device }
    }

    /// Has an iterator of the caller's closed with the stream, as nobody else reads it on.
    pub(super) fn take_over(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    /// What adds to an error of the caller's options that an item is lost, if one is.
    pub(super) fn teller(&self) -> impl Fn(Python<'_>, PyErr) -> PyErr + use<> {
        let is_item_taken = self.is_item_taken;
        move |py, error| if is_item_taken { item_taken(py, error) } else { error }
    }
}

/// Whether an object can be a source, as far as it tells without being asked for data.
///
/// # Errors
/// What its attributes raise.
pub(super) fn is_source(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    is_source_at(object, 0)
}

fn is_source_at(object: &Bound<'_, PyAny>, depth: usize) -> PyResult<bool> {
    let first = match (object.cast::<PyList>(), object.cast::<PyTuple>()) {
        (Ok(list), _) => list.get_item(0).ok(),
        (_, Ok(tuple)) => tuple.get_item(0).ok(),
        _ => return Ok(is_read_by_method(object)? || !is_never(object)? && object.get_type().hasattr("__iter__")?),
    };
    let Some(first) = first else { return Ok(true) };
    Ok(has_dunder(&first)? || depth < MAX_DEPTH && is_source_at(&first, depth + 1)?)
}

/// Whether an object has a method that reads it, and not an iterator alone.
///
/// # Errors
/// What its attributes raise.
pub(super) fn is_read_by_method(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(!is_never(object)? && (is_dataset(object)? || form(object)?.is_some()))
}

/// What has the number of rows of a source at hand, as its attribute `num_rows`: the object, or a part of it.
///
/// # Errors
/// What the object's attributes raise.
pub(super) fn counted<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let counted = form(object)?.and_then(|(form, _)| form.counted);
    Ok(counted.map(|counted| object.getattr_opt(counted)).transpose()?.flatten().unwrap_or_else(|| object.clone()))
}

/// Opens a source as a stream; `None` for an object that is none. Takes the first item of an iterator, whose type is that of all.
///
/// # Errors
/// What the object's methods or its iterator raise; `TypeError` where the parts are no Arrow data, `ValueError` where there are
/// none, or none any more.
pub(super) fn open(object: &Bound<'_, PyAny>) -> PyResult<Option<Opened>> {
    match find(object, 0)? {
        Found::Nothing => Ok(None),
        Found::Stream(opened) => Ok(Some(opened)),
        Found::Empty => Err(PyValueError::new_err(format!(
            "the {} has no items, so that its columns are not known; pass a table, or a reader with a schema",
            name_of(object),
        ))),
        Found::Other { item, is_taken } => {
            let text = format!("{}, whose first item is {item}{}", expected(object), remedy(object, Reads::Arrow));
            let error = PyTypeError::new_err(text);
            Err(if is_taken { item_taken(object.py(), error) } else { error })
        }
    }
}

/// Finds the stream of an object that has no Arrow dunder.
fn find(object: &Bound<'_, PyAny>, depth: usize) -> PyResult<Found> {
    if depth > MAX_DEPTH || is_never(object)? {
        return Ok(Found::Nothing);
    }
    if is_dataset(object)? {
        return datasets::find(object);
    }
    let Some((form, method)) = form(object)? else { return items::find(object, depth) };
    let parts = call(&method, (), None)?;
    if parts.is_none() {
        return Err(PyValueError::new_err(format!(
            "{}() of the {} returned None: its result can be read once, and was; pass a callable that runs the query",
            form.method,
            name_of(object),
        )));
    }
    match part(&parts, depth)? {
        Found::Stream(opened) => Ok(Found::Stream(Opened { again: form.again, is_item_taken: false, ..opened })),
        Found::Empty => Ok(form
            .schema(object)?
            .map_or(Found::Empty, |field| Found::Stream(Opened::new(stream_of_none(field), PandasIndex::KeepNamed)))),
        Found::Nothing => Err(PyTypeError::new_err(format!(
            "{}() of the {} must return Arrow data, and returned {}",
            form.method,
            name_of(object),
            name_of(&parts)
        ))),
        Found::Other { item, .. } => Err(PyTypeError::new_err(format!(
            "{}() of the {} must return batches of Arrow data, and the first one is {item}",
            form.method,
            name_of(object),
        ))),
    }
}

/// The stream of a part of a source: of Arrow data, or of a source in it.
fn part(object: &Bound<'_, PyAny>, depth: usize) -> PyResult<Found> {
    if let Ok(tensor) = object.cast_exact::<Tensor>() {
        let array = crate::column::to_arrow(tensor.get().tensor(), None, CopyMode::IfNeeded)?;
        return Ok(Found::Stream(Opened::new(stream_of(array), PandasIndex::KeepNamed)));
    }
    let stream = match input::arrow(object)? {
        Some(ArrowInput::Array(array)) => stream_of(array),
        Some(ArrowInput::Stream(stream)) => stream,
        None => return find(object, depth + 1),
    };
    let index = pandas_index(object, stream.field())?;
    Ok(Found::Stream(Opened::new(stream, index)))
}

/// Whether an object gives the same rows each time it is read, as containers do: their types have a length. Some libraries hand out a
/// reader that was read again, as an empty stream.
pub(super) fn is_read_again(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    is_read_again_at(object, 0)
}

fn is_read_again_at(object: &Bound<'_, PyAny>, depth: usize) -> PyResult<bool> {
    if depth <= MAX_DEPTH && (object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>()) {
        for item in object.try_iter()? {
            if !is_read_again_at(&item?, depth + 1)? {
                return Ok(false);
            }
        }
        return Ok(true);
    }
    let has_length = input::has_length(object)?;
    if has_length || object.hasattr("__arrow_c_array__")? || object.hasattr("__arrow_c_device_array__")? {
        return Ok(true);
    }
    if has_dunder(object)? {
        return Ok(false);
    }
    if let Some((form, _)) = form(object)? {
        return Ok(form.again);
    }
    Ok(object.cast::<PyIterator>().is_err())
}

/// The stream of one array.
pub(super) fn stream_of(array: DeviceArray) -> DeviceArrayStream {
    let (field, device_type) = (array.field().clone(), array.device().device_type());
    DeviceArrayStream::new(field, device_type, std::iter::once(Ok(array)))
}

/// A stream without arrays, in host memory.
fn stream_of_none(field: FieldRef) -> DeviceArrayStream {
    DeviceArrayStream::new(field, crate::ffi::dlpack::DLDeviceType::CPU, std::iter::empty())
}

/// The form that an object offers, with its method.
fn form<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<(&'static Form, Bound<'py, PyAny>)>> {
    for form in &FORMS {
        if let Some(method) = object.getattr_opt(form.method)?
            && method.is_callable()
        {
            return Ok(Some((form, method)));
        }
    }
    Ok(None)
}

/// Whether an object is no source whatever it offers: texts, mappings, sets, which have no order, classes and tensors.
fn is_never(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let is_text = object.is_instance_of::<PyString>()
        || object.is_instance_of::<PyBytes>()
        || object.is_instance_of::<PyByteArray>();
    let is_set = object.is_instance_of::<PySet>() || object.is_instance_of::<PyFrozenSet>();
    if is_text || is_set || object.is_instance_of::<PyDict>() || object.is_instance_of::<PyType>() {
        return Ok(true);
    }
    if object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>() {
        return Ok(false);
    }
    // To iterate over an array, such as one of Dask, can compute it.
    Ok(object.cast::<PyMapping>().is_ok() || object.hasattr("__dlpack__")? || object.hasattr("__array__")?)
}
