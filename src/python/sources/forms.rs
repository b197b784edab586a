//! How an object can be read in parts, as its methods tell, and whether more than once.

use arrow_schema::FieldRef;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyFrozenSet, PyIterator, PyList, PySet, PyString, PyTuple, PyType};

use super::offers::{has_dunder, is_dataset};
use crate::python::answers::is_mapping;
use crate::python::arrow_input::has_length;
use crate::python::schema::schema;

/// A method that returns the parts.
pub(super) struct Form {
    pub(super) method: &'static str,
    /// Whether each call reads the data anew.
    pub(super) again: bool,
    /// The attributes that can have the type of the parts, in the order in which they are tried.
    pub(super) schemas: &'static [&'static str],
    /// The attribute that has the number of rows at hand, as `num_rows`.
    pub(super) counted: Option<&'static str>,
    /// Whether it runs a query, whose rows may come in another order each time.
    pub(super) runs_query: bool,
}

impl Form {
    /// The type of the parts of an object, where one of its attributes tells it.
    pub(super) fn schema(&self, object: &Bound<'_, PyAny>) -> PyResult<Option<FieldRef>> {
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
pub(in crate::python) const MAX_DEPTH: usize = 4;

/// Whether an object can be a source, as far as it tells without being asked for data.
///
/// # Errors
/// What its attributes raise.
pub(in crate::python) fn is_source(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    is_source_at(object, 0)
}

fn is_source_at(object: &Bound<'_, PyAny>, depth: usize) -> PyResult<bool> {
    let first = match (object.cast::<PyList>(), object.cast::<PyTuple>()) {
        (Ok(list), _) => list.get_item(0).ok(),
        // A tuple among items is no item.
        (_, Ok(_)) if depth > 0 => return Ok(false),
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
pub(in crate::python) fn is_read_by_method(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(!is_never(object)? && (is_dataset(object)? || form(object)?.is_some()))
}

/// What has the number of rows of a source at hand, as its attribute `num_rows`: the object, or a part of it.
///
/// # Errors
/// What the object's attributes raise.
pub(in crate::python) fn counted<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let counted = form(object)?.and_then(|(form, _)| form.counted);
    Ok(counted.map(|counted| object.getattr_opt(counted)).transpose()?.flatten().unwrap_or_else(|| object.clone()))
}

/// Whether an object gives the same rows each time it is read, as containers do: their types have a length. Some libraries hand out a
/// reader that was read again, as an empty stream.
pub(in crate::python) fn is_read_again(object: &Bound<'_, PyAny>) -> PyResult<bool> {
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
    let offers = |name| Ok::<_, PyErr>(object.getattr_opt(name)?.is_some_and(|method| method.is_callable()));
    if has_length(object)? || offers("__arrow_c_array__")? || offers("__arrow_c_device_array__")? {
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

/// The form that an object offers, with its method.
pub(super) fn form<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<(&'static Form, Bound<'py, PyAny>)>> {
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
pub(super) fn is_never(object: &Bound<'_, PyAny>) -> PyResult<bool> {
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
    Ok(is_mapping(object)? || object.hasattr("__dlpack__")? || object.hasattr("__array__")?)
}
