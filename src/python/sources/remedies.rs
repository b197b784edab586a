//! What to write instead of an object that can be no source: errors say it as a line to paste.

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyComplex, PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PySet, PyString, PyTuple, PyType};

use super::forms::is_read_by_method;
use super::offers::{expected, has_dunder, is_dataset};
use crate::python::answers::{answer, is_mapping};
use crate::python::masked::{is_masked_array, refuse_masked};
use crate::python::package::package;

/// Methods that return Arrow data or an array, of objects that cannot be read in parts.
const METHODS: [&str; 8] =
    ["to_pyarrow", "to_arrow", "toArrow", "fetch_arrow_table", "read_all", "collect", "compute", "to_numpy"];

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

/// The most arrays of a list that are looked at for an error.
const MOST_ARRAYS: usize = 16;

/// The longest path that an error repeats, in bytes.
const LONGEST_PATH: usize = 200;

/// What a function reads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::python) enum Reads {
    Arrow,
    /// Tensors, to import them.
    Tensors,
    /// Tensors, to make Arrow data of them.
    TensorsForArrow,
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
        Reads::Tensors => of_tensor(object, "it is Arrow data: pass arrow_dlpack.to_tensor(data)"),
        Reads::TensorsForArrow => {
            of_tensor(object, "it is Arrow data already: pass arrow_dlpack.from_arrow(data) to import it")
        }
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
        return object.try_iter()?.next().transpose()?.map_or(Ok(None), |first| of_items(object, &first));
    }
    if object.is_instance_of::<PySet>() || object.is_instance_of::<PyFrozenSet>() {
        return Ok(Some("a set has no order: pass pyarrow.array(sorted(values))".to_owned()));
    }
    if object.hasattr(intern!(py, "__dlpack__"))? {
        return Ok(Some("pass arrow_dlpack.from_dlpack(data)".to_owned()));
    }
    if let Some(remedy) = of_dataset_column(object)? {
        return Ok(Some(remedy));
    }
    if is_array_of_pandas(object)? {
        if object.hasattr(intern!(py, "levels"))? {
            return Ok(Some("call .to_frame(index=False) and pass its result".to_owned()));
        }
        // NumPy's arrays of other types have no tensors.
        let numbers = if is_of_numbers(object)? { "call .to_numpy() and pass its result, or " } else { "" };
        return Ok(Some(format!("{numbers}pass pandas.Series(data)")));
    }
    for method in METHODS {
        if answer(py, object.getattr(method))?.is_some_and(|method| method.is_callable()) {
            return Ok(Some(format!("call .{method}() and pass its result")));
        }
    }
    Ok(object.hasattr(intern!(py, "__array__"))?.then(|| "pass numpy.asarray(data)".to_owned()))
}

/// As [`of_data`], for a function that takes tensors; `of_arrow` is what to do with Arrow data.
fn of_tensor(object: &Bound<'_, PyAny>, of_arrow: &str) -> PyResult<Option<String>> {
    if object.is_instance_of::<PyType>() {
        return Ok(None);
    }
    if object.is_instance_of::<PyDict>() {
        let each = "pass pyarrow.record_batch({name: arrow_dlpack.to_arrow(x) for name, x in data.items()})";
        return Ok(Some(format!("a dict is no tensor: {each}")));
    }
    if has_dunder(object)? {
        return Ok(Some(of_arrow.to_owned()));
    }
    if object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>() {
        let first = object.try_iter()?.next().transpose()?;
        let stacked = first.map(|first| stack_of(&first)).transpose()?.flatten();
        return Ok(Some(format!("pass {}", stacked.unwrap_or("numpy.asarray(values)"))));
    }
    if is_array_of_pandas(object)? && !is_of_numbers(object)? {
        // Its parts are columns.
        if object.hasattr(intern!(object.py(), "levels"))? {
            return Ok(None);
        }
        return Ok(Some("pass arrow_dlpack.from_arrow(pandas.Series(data))".to_owned()));
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

/// The remedy for a list or a tuple that has this item first.
fn of_items(items: &Bound<'_, PyAny>, first: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    if let Some(stack) = stack_of(first)? {
        return of_arrays(items, stack).map(Some);
    }
    if is_shard(first)? {
        return Ok(Some("it is a list of shards: pass it to Loader as sources=".to_owned()));
    }
    if first.is_instance_of::<PyDict>() {
        return Ok(Some("pass pyarrow.Table.from_pylist(rows)".to_owned()));
    }
    if let Some(remedy) = of_tuples(first)? {
        return Ok(Some(remedy));
    }
    let is_row = first.is_instance_of::<PyList>() || first.is_instance_of::<PyTuple>();
    let is_value = is_scalar(first) || first.hasattr(intern!(first.py(), "__array__"))?;
    Ok((is_row || is_value).then(|| "pass pyarrow.array(values)".to_owned()))
}

/// The remedy for items that are tuples with Arrow data, of which only the caller knows what the rest is.
fn of_tuples(first: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    let Ok(tuple) = first.cast::<PyTuple>() else { return Ok(None) };
    if first.hasattr(intern!(first.py(), "record_batch"))? {
        return Ok(Some("pass scanner.to_reader(), or [item.record_batch for item in items]".to_owned()));
    }
    for (position, item) in tuple.iter().enumerate() {
        if has_dunder(&item)? {
            return Ok(Some(format!("pass the data of each tuple alone, as [item[{position}] for item in items]")));
        }
    }
    Ok(None)
}

/// The shape of an array, and the name of its dtype, if it has one.
type ShapeAndDtype = (Vec<usize>, Option<String>);

/// The remedy for several arrays: it depends on which of their lengths are equal.
fn of_arrays(arrays: &Bound<'_, PyAny>, stack: &str) -> PyResult<String> {
    let mut all = Vec::new();
    for array in arrays.try_iter()?.take(MOST_ARRAYS) {
        let array = array?;
        let shape = answer(arrays.py(), array.getattr("shape").and_then(|shape| shape.extract::<Vec<usize>>()))?;
        let dtype = array.getattr_opt("dtype")?.map(|dtype| dtype.str()).transpose()?.map(|dtype| dtype.to_string());
        all.push((shape.unwrap_or_default(), dtype));
    }
    let are = |is_like: fn(&ShapeAndDtype, &ShapeAndDtype) -> bool| {
        all.first().is_none_or(|first| all.iter().all(|array| is_like(array, first)))
    };
    let columns = "pyarrow.table({\"x\": arrow_dlpack.to_arrow(x), \"y\": arrow_dlpack.to_arrow(y)})";
    let one_after_another =
        "[arrow_dlpack.from_dlpack(array) for array in arrays] to read their rows one after another";
    let mut remedies = Vec::new();
    if are(|(shape, _), (first, _)| shape == first) {
        remedies.push(format!("{stack} for one array"));
    }
    if are(|(shape, dtype), (first, of_first)| shape.get(1..) == first.get(1..) && dtype == of_first) {
        remedies.push(one_after_another.to_owned());
    }
    if all.len() > 1 && are(|(shape, _), (first, _)| shape.first() == first.first()) {
        remedies.push(if remedies.is_empty() {
            format!("{columns} for a column of each")
        } else {
            format!("for a column of each, {columns}")
        });
    }
    Ok(match remedies.as_slice() {
        [] => "pass one of them, as arrow_dlpack.from_dlpack(array)".to_owned(),
        remedies => format!("pass {}", remedies.join(", or ")),
    })
}

/// Whether an item is a source, or a callable that opens it, with its number of rows or None.
fn is_shard(item: &Bound<'_, PyAny>) -> PyResult<bool> {
    let Ok((source, rows)) = item.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>() else { return Ok(false) };
    let is_counted = rows.is_none() || rows.is_instance_of::<PyInt>();
    Ok(is_counted && (source.is_callable() || has_dunder(&source)? || is_read_by_method(&source)?))
}

/// Whether the class of an object is of this package.
fn is_of(object: &Bound<'_, PyAny>, name: &str) -> PyResult<bool> {
    Ok(answer(object.py(), package(object.get_type().as_any()))?.is_some_and(|package| package == name))
}

/// Whether an object is an index or an array of pandas.
fn is_array_of_pandas(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(is_of(object, "pandas")? && object.hasattr(intern!(object.py(), "__array__"))?)
}

/// Whether an object has a dtype of NumPy that DLPack has, too.
fn is_of_numbers(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let Some(dtype) = object.getattr_opt(intern!(object.py(), "dtype"))? else { return Ok(false) };
    let kind = answer(object.py(), dtype.getattr("kind").and_then(|kind| kind.extract::<String>()))?;
    Ok(is_of(&dtype, "numpy")? && kind.is_some_and(|kind| ["b", "i", "u", "f", "c"].contains(&kind.as_str())))
}

/// The remedy for a column of a data set of Hugging Face, whose items are Python's.
fn of_dataset_column(object: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    if !is_of(object, "datasets")? {
        return Ok(None);
    }
    let Some(name) = object.getattr_opt("column_name")? else { return Ok(None) };
    Ok(Some(format!("pass dataset.with_format(\"arrow\")[{}]", name.repr()?)))
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
