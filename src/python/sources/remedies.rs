//! What to write instead of an object that can be no source: errors say it as a line to paste.

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyComplex, PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PySet, PyString, PyTuple, PyType};

use super::offers::{expected, has_dunder, is_dataset};
use crate::python::answers::{answer, is_mapping};
use crate::python::masked::{is_masked_array, refuse_masked};
use crate::python::package::package;

/// Methods that return Arrow data or an array, of objects that cannot be read in parts.
const METHODS: [&str; 7] = ["to_pyarrow", "to_arrow", "toArrow", "fetch_arrow_table", "collect", "compute", "to_numpy"];

/// The functions that read files, by the ends of their names.
const READERS: [(&str, &str); 10] = [
    (".parquet", "pyarrow.parquet.read_table"),
    (".csv", "pyarrow.csv.read_csv"),
    (".json", "pyarrow.json.read_json"),
    (".jsonl", "pyarrow.json.read_json"),
    (".ndjson", "pyarrow.json.read_json"),
    (".orc", "pyarrow.orc.read_table"),
    (".feather", "pyarrow.feather.read_table"),
    (".arrow", "pyarrow.feather.read_table"),
    (".ipc", "pyarrow.feather.read_table"),
    (".npy", "numpy.load"),
];

/// The longest path that an error repeats, in bytes.
const LONGEST_PATH: usize = 200;

/// What a function reads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::python) enum Reads {
    Arrow,
    Tensors,
}

/// The `TypeError` for an object that speaks no protocol, and is no source.
pub(in crate::python) fn no_protocol(object: &Bound<'_, PyAny>) -> PyErr {
    let error = |remedy| PyTypeError::new_err(format!("{}{remedy}", expected(object)));
    remedy(object, Reads::Arrow).map_or_else(|ended| ended, error)
}

/// What ends the error for an object that cannot be read: why, and what to write instead; nothing where that is not known.
///
/// # Errors
/// As [`answer`], and [`refuse_masked`].
pub(in crate::python) fn remedy(object: &Bound<'_, PyAny>, reads: Reads) -> PyResult<String> {
    refuse_masked(object)?;
    let found = match reads {
        Reads::Arrow => of_data(object),
        Reads::Tensors => of_tensor(object),
    };
    let remedy = answer(object.py(), found)?.flatten();
    Ok(remedy.map_or_else(String::new, |remedy| format!("; {remedy}")))
}

fn of_data(object: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    let py = object.py();
    if object.is_instance_of::<PyType>() {
        return Ok(None);
    }
    if object.is_instance_of::<PyString>() || object.hasattr(intern!(py, "__fspath__"))? {
        return of_path(object).map(Some);
    }
    if object.is_instance_of::<PyDict>() || is_mapping(object)? && object.hasattr("values")? {
        return of_mapping(object).map(Some);
    }
    if object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>() {
        return object.try_iter()?.next().transpose()?.map_or(Ok(None), |first| of_items(&first));
    }
    if object.is_instance_of::<PySet>() || object.is_instance_of::<PyFrozenSet>() {
        return Ok(Some("a set has no order: pass pyarrow.array(sorted(values))".to_owned()));
    }
    if object.hasattr(intern!(py, "__dlpack__"))? {
        return Ok(Some("pass arrow_dlpack.from_dlpack(data)".to_owned()));
    }
    for method in METHODS {
        if answer(py, object.getattr(method))?.is_some_and(|method| method.is_callable()) {
            return Ok(Some(format!("call .{method}() and pass its result")));
        }
    }
    Ok(object.hasattr(intern!(py, "__array__"))?.then(|| "pass numpy.asarray(data)".to_owned()))
}

/// As [`of_data`], for a function that takes tensors.
fn of_tensor(object: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    if object.is_instance_of::<PyType>() {
        return Ok(None);
    }
    if object.is_instance_of::<PyDict>() {
        let each = "pass pyarrow.record_batch({name: arrow_dlpack.to_arrow(x) for name, x in data.items()})";
        return Ok(Some(format!("a dict is no tensor: {each}")));
    }
    if has_dunder(object)? {
        return Ok(Some("it is Arrow data already: pass arrow_dlpack.from_arrow(data) to import it".to_owned()));
    }
    if object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>() {
        let first = object.try_iter()?.next().transpose()?;
        let stacked = first.map(|first| stack_of(&first)).transpose()?.flatten();
        return Ok(Some(format!("pass {}", stacked.unwrap_or("numpy.asarray(values)"))));
    }
    Ok(object.hasattr(intern!(object.py(), "__array__"))?.then(|| "pass numpy.asarray(data)".to_owned()))
}

fn of_path(object: &Bound<'_, PyAny>) -> PyResult<String> {
    let py = object.py();
    let path = match object.cast::<PyString>() {
        Ok(path) => path.clone().into_any(),
        Err(_) => py.import(intern!(py, "os"))?.call_method1(intern!(py, "fspath"), (object,))?,
    };
    let (text, written) = (path.str()?.to_string(), path.repr()?.to_string());
    let written = if text.len() > LONGEST_PATH || text.contains('\n') { "path".to_owned() } else { written };
    let name = text.to_lowercase();
    let reader = READERS.iter().find(|(end, _)| name.ends_with(end)).map(|(_, reader)| *reader);
    let in_parts = match reader {
        Some("pyarrow.parquet.read_table") => {
            format!(", or pyarrow.parquet.ParquetFile({written}) to read it in parts")
        }
        _ => String::new(),
    };
    let reader = reader.unwrap_or("pyarrow.dataset.dataset");
    Ok(format!("a path is not opened here: pass {reader}({written}){in_parts}"))
}

fn of_mapping(object: &Bound<'_, PyAny>) -> PyResult<String> {
    let first = |parts: &str| -> PyResult<Option<Bound<'_, PyAny>>> {
        object.call_method0(parts)?.try_iter()?.next().transpose()
    };
    if let (Some(key), Some(value)) = (first("keys")?, first("values")?) {
        let is_dataset = is_dataset(&value)?;
        if is_dataset || is_table(&value)? {
            let name = if is_dataset { "dataset" } else { "data" };
            let what = if is_dataset { "data set" } else { "table" };
            return Ok(format!("it has a {what} for each key: pass one of them, such as {name}[{}]", key.repr()?));
        }
        if is_scalar(&value) {
            return Ok("pass pyarrow.Table.from_pylist([data])".to_owned());
        }
    }
    let data = if object.is_instance_of::<PyDict>() { "data" } else { "dict(data)" };
    Ok(format!("a mapping has no schema: pass pyarrow.table({data})"))
}

/// Whether an object is Arrow data of several columns.
fn is_table(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(has_dunder(object)? && (object.hasattr("columns")? || object.hasattr("schema")?))
}

fn is_scalar(object: &Bound<'_, PyAny>) -> bool {
    object.is_none()
        || object.is_instance_of::<PyBool>()
        || object.is_instance_of::<PyInt>()
        || object.is_instance_of::<PyFloat>()
        || object.is_instance_of::<PyComplex>()
        || object.is_instance_of::<PyString>()
}

/// The remedy for a list that has this item first.
fn of_items(first: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    if let Some(stack) = stack_of(first)? {
        return Ok(Some(format!(
            "pass {stack} for one array, or [arrow_dlpack.from_dlpack(array) for array in arrays] to read their rows one \
             after another"
        )));
    }
    if first.is_instance_of::<PyDict>() {
        return Ok(Some("pass pyarrow.Table.from_pylist(rows)".to_owned()));
    }
    let is_row = first.is_instance_of::<PyList>() || first.is_instance_of::<PyTuple>();
    let is_value = is_scalar(first) || first.hasattr(intern!(first.py(), "__array__"))?;
    Ok((is_row || is_value).then(|| "pass pyarrow.array(values)".to_owned()))
}

/// The call that makes one array of arrays of an item's kind; `None` where it is none.
fn stack_of(item: &Bound<'_, PyAny>) -> PyResult<Option<&'static str>> {
    if !item.hasattr(intern!(item.py(), "__dlpack__"))? || has_dunder(item)? {
        return Ok(None);
    }
    Ok(Some(match package(item.get_type().as_any())?.as_str() {
        "torch" => "torch.stack(arrays)",
        "jax" | "jaxlib" => "jax.numpy.stack(arrays)",
        "cupy" => "cupy.stack(arrays)",
        _ if is_masked_array(item)? => "numpy.ma.stack(arrays)",
        _ => "numpy.stack(arrays)",
    }))
}
