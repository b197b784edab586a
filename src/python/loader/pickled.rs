//! The arguments that make a loader again: its source and its options, of a pickle or a copy.

use std::num::NonZero;

use pyo3::exceptions::{PyException, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFunction, PyList, PyModule, PyTuple, PyType};

use super::class::Loader;
use crate::python::answers::mapping;
use crate::python::categories::write_categories;
use crate::python::options::write_keywords;
use crate::python::{Array, Device, RecordBatch, pickle};
use crate::spec::Selection;

/// `__reduce_ex__` of a loader in this state.
///
/// # Errors
/// For a source that cannot be pickled, or that was read and can be read once.
pub(super) fn reduce<'py>(
    py: Python<'py>,
    loader: &Loader,
    state: Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyTuple>> {
    let unread = loader.sources.unread(py)?;
    // A function is pickled by its name, and by some picklers by value: nobody knows here which one asks.
    let refused = loader.sources.data(py)?.into_iter().find_map(|data| Some((data, ask(data, 0).err()?)));
    if let Some((source, error)) = refused {
        if !error.is_instance_of::<PyException>(py) {
            return Err(error);
        }
        let refused = PyTypeError::new_err(format!(
            "a Loader of {} cannot be pickled: {}; pass a callable that opens the source, such as a function of a module or a \
             functools.partial of one",
            source.get_type().name()?,
            error.value(py)
        ));
        refused.set_cause(py, Some(error));
        return Err(refused);
    }
    let (source, options) = passed(loader, unread, options(py, loader)?)?;
    let arguments = (source, options, state);
    (pickle::rebuild(py, "_unpickle_loader")?, arguments).into_pyobject(py)
}

/// The arguments of a loader that shares the source of this one.
///
/// # Errors
/// For a source that can be read once.
pub(super) fn shared<'py>(py: Python<'py>, loader: &Loader) -> PyResult<Arguments<'py>> {
    let unread = loader.sources.unread(py)?;
    if !loader.sources.is_read_again(py)? {
        return Err(PyTypeError::new_err(format!(
            "the source is of type {} and can be read once, so that two loaders cannot share it; pass a callable that opens it",
            loader.sources.name(py)?
        )));
    }
    passed(loader, unread, options(py, loader)?)
}

/// What the constructor takes: the source, and the keywords.
type Arguments<'py> = (Option<Bound<'py, PyAny>>, Bound<'py, PyDict>);

/// The source as the constructor takes it: by position, or shards by keyword.
fn passed<'py>(loader: &Loader, unread: Bound<'py, PyAny>, options: Bound<'py, PyDict>) -> PyResult<Arguments<'py>> {
    if !loader.sources.is_list() {
        return Ok((Some(unread), options));
    }
    options.set_item("sources", unread)?;
    Ok((None, options))
}

/// The first protocol in which arrays hand out their memory without copying it.
const OUT_OF_BAND: u32 = 5;

/// How deep a source is asked whether its parts can be pickled.
const ASKED: usize = 2;

/// Fails as a pickler would, without pickling: by asking the object, the items of a list and the attributes of an instance.
fn ask(object: &Bound<'_, PyAny>, depth: usize) -> PyResult<()> {
    let py = object.py();
    let kind = object.get_type();
    // Functions, classes and modules are the pickler's matter, and types may have been registered with it.
    let by_name = object.is_instance_of::<PyFunction>()
        || object.is_instance_of::<PyType>()
        || object.is_instance_of::<PyModule>();
    if depth > ASKED || by_name || py.import("copyreg")?.getattr("dispatch_table")?.contains(&kind)? {
        return Ok(());
    }
    // They pickle, and would be copied for the question.
    if object.is_exact_instance_of::<Array>() || object.is_exact_instance_of::<RecordBatch>() {
        return Ok(());
    }
    if object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>() {
        return object.try_iter()?.try_for_each(|item| ask(&item?, depth + 1));
    }
    let reduced = object.call_method1("__reduce_ex__", (OUT_OF_BAND,))?;
    let Ok(reduced) = reduced.cast::<PyTuple>() else { return Ok(()) };
    let Ok(state) = reduced.get_item(2) else { return Ok(()) };
    // Of a class with slots: a pair of the dict and the slots.
    let states = state.cast::<PyTuple>().map_or_else(|_| vec![state.clone()], |states| states.iter().collect());
    for state in states.iter().filter_map(|state| state.cast::<PyDict>().ok()) {
        state.iter().try_for_each(|(_, value)| ask(&value, depth + 1))?;
    }
    Ok(())
}

/// The options as keywords of the constructor.
fn options<'py>(py: Python<'py>, loader: &Loader) -> PyResult<Bound<'py, PyDict>> {
    let (load, sharding) = (&loader.load, &loader.load.sharding);
    let options = PyDict::new(py);
    match &loader.conversion.selection {
        Selection::Whole(None) | Selection::Each(None) => {}
        Selection::Whole(Some(columns)) | Selection::Each(Some(columns)) => options.set_item("columns", columns)?,
        Selection::Named(_) => {
            options.set_item("columns", loader.groups.as_ref().map(|groups| groups.bind(py).copy()).transpose()?)?
        }
    }
    write_keywords(&loader.conversion, &options)?;
    write_categories(&loader.conversion, &options)?;
    if let Some(nulls) = &loader.nulls {
        options.set_item("nulls", nulls)?;
    }
    if let Some(xp) = &loader.xp {
        // Modules do not pickle, and their names do.
        match xp.bind(py).cast::<PyModule>() {
            Ok(module) => options.set_item("xp", module.name()?)?,
            Err(_) => options.set_item("xp", xp)?,
        }
    }
    if let Some(allocator) = &loader.allocator {
        options.set_item("allocator", allocator)?;
    }
    if let Some(seed) = loader.progress.passed_seed() {
        options.set_item("seed", seed)?;
    }
    if let Some(threads) = loader.conversion.threads {
        options.set_item("threads", threads.get())?;
    }
    options.set_item("device", Device(load.device))?;
    options.set_item("batch_size", sharding.batch_size())?;
    options.set_item("shuffle_buffer", loader.order.buffer.map_or(0, NonZero::get))?;
    if let Some(bytes) = loader.order.bytes {
        options.set_item("shuffle_bytes", bytes.get())?;
    }
    options.set_item("drop_last", sharding.drop_last())?;
    options.set_item("prefetch", load.prefetch)?;
    options.set_item("rank", sharding.rank())?;
    options.set_item("world_size", sharding.world_size())?;
    if loader.sources.is_list() {
        options.set_item("lanes", loader.progress.first_place().taken().len())?;
        options.set_item("shuffle_shards", loader.order.permutes_shards)?;
        options.set_item("readers", load.readers)?;
    }
    if loader.is_worker {
        options.set_item("worker", (sharding.worker(), sharding.workers()))?;
    }
    if loader.verifies_all {
        options.set_item("verify", "all")?;
    }
    Ok(options)
}

/// `nulls=` as it was passed: a dict is copied, as the caller may change it.
pub(super) fn kept_nulls(nulls: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Py<PyAny>>> {
    let Some(nulls) = nulls else { return Ok(None) };
    Ok(Some(match mapping(nulls)? {
        Some(dict) => dict.copy()?.into_any().unbind(),
        None => nulls.clone().unbind(),
    }))
}
