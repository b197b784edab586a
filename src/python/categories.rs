//! Reads `categories=` and `unknown=`, and makes the class of what they are read from again.

use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, Int64Array, LargeBinaryArray, LargeStringArray, StringArray, UInt64Array};
use arrow_schema::Field;
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFrozenSet, PyInt, PyList, PySet, PyString, PyTuple};

use super::answers::{answer, mapping};
use super::counts::wide;
use super::input::InputChunks;
use super::options::key;
use super::sources::name_of;
use super::stream::wrap;
use crate::arrow::DeviceArray;
use crate::categories::{Categories, joined};
use crate::spec::{Conversion, CopyMode, PerColumn};

/// The keywords that say which columns become codes, as they were passed.
#[derive(Clone, Copy)]
pub(super) struct CategoryKeywords<'a, 'py> {
    pub(super) categories: Option<&'a Bound<'py, PyAny>>,
    pub(super) unknown: Option<&'a Bound<'py, PyAny>>,
}

impl CategoryKeywords<'_, '_> {
    pub(super) fn are_defaults(&self) -> bool {
        let Self { categories, unknown } = self;
        categories.is_none() && unknown.is_none()
    }

    /// Sets what these keywords ask for.
    ///
    /// # Errors
    /// For values that are no categories, and codes without categories.
    pub(super) fn read_into(self, conversion: &mut Conversion) -> PyResult<()> {
        let Some(categories) = self.categories else {
            let is_code =
                |unknown: &Bound<'_, PyAny>| Ok::<_, PyErr>(mapping(unknown)?.is_some() || code(unknown)?.is_some());
            if self.unknown.map(is_code).transpose()? == Some(true) {
                let reason = "unknown= is the code of values that are none of categories=: pass both";
                return Err(PyValueError::new_err(reason));
            }
            return Ok(());
        };
        let by_column = self.unknown.map(mapping).transpose()?.flatten();
        let for_all = match (self.unknown, &by_column) {
            (Some(unknown), None) => code(unknown)?,
            _ => None,
        };
        let Some(columns) = mapping(categories)? else {
            if by_column.is_some() {
                return Err(PyValueError::new_err("unknown= has a code by column, and categories= has no columns"));
            }
            conversion.categories = PerColumn::All(Some(with_unknown(read(categories)?, for_all)));
            return Ok(());
        };
        for name in by_column.iter().flat_map(|codes| codes.keys()) {
            if !columns.contains(&name)? {
                return Err(PyValueError::new_err(format!(
                    "unknown= has column {}, and categories= has not",
                    name.repr()?
                )));
            }
        }
        let named = columns.iter().map(|(name, values)| {
            if values.is_none() {
                return Ok((key("categories", &name)?, None));
            }
            let own = by_column.as_ref().map(|codes| codes.get_item(&name)).transpose()?.flatten();
            let unknown = own.map_or(Ok(for_all), |own| code(&own))?;
            Ok((key("categories", &name)?, Some(with_unknown(read(&values)?, unknown))))
        });
        conversion.categories = PerColumn::Named(named.collect::<PyResult<_>>()?);
        Ok(())
    }
}

/// Adds the keywords that the categories of a conversion were read from.
pub(super) fn write_categories(conversion: &Conversion, keywords: &Bound<'_, PyDict>) -> PyResult<()> {
    let py = keywords.py();
    match &conversion.categories {
        PerColumn::All(None) => Ok(()),
        PerColumn::All(Some(categories)) => {
            keywords.set_item("categories", array(py, categories.values())?)?;
            keywords.set_item("unknown", categories.unknown_code())
        }
        PerColumn::Named(columns) => {
            let (values, codes) = (PyDict::new(py), PyDict::new(py));
            for (name, categories) in columns {
                let of = categories.as_ref().map(|categories| array(py, categories.values())).transpose()?;
                values.set_item(name, of)?;
                codes.set_item(name, categories.as_ref().and_then(Categories::unknown_code))?;
            }
            keywords.set_item("categories", values)?;
            keywords.set_item("unknown", codes)
        }
    }
}

/// An array of arrow-rs for Python.
pub(super) fn array<'py>(py: Python<'py>, values: &ArrayRef) -> PyResult<Bound<'py, PyAny>> {
    let field = Arc::new(Field::new("", values.data_type().clone(), false));
    wrap(py, DeviceArray::from_arrow(values.as_ref(), field)?)
}

fn with_unknown(categories: Categories, unknown: Option<i32>) -> Categories {
    match unknown {
        Some(code) => categories.unknown(code),
        None => categories,
    }
}

/// The code of unknown values; `None` for an error.
fn code(object: &Bound<'_, PyAny>) -> PyResult<Option<i32>> {
    let wrong = || match object.repr() {
        Ok(found) => PyValueError::new_err(format!("unknown must be \"error\" or a code of int32, not {found}")),
        Err(error) => error,
    };
    if object.is_none() || object.cast::<PyString>().is_ok_and(|text| text == "error") {
        return Ok(None);
    }
    if object.is_instance_of::<PyBool>() || !object.hasattr("__index__")? {
        return Err(wrong());
    }
    answer(object.py(), object.extract())?.map(Some).ok_or_else(wrong)
}

/// The error for an object that is no list and no Arrow array: others have that of their own protocol as its cause.
fn not_read(object: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    let py = object.py();
    let is_about_type =
        error.get_type(py).is(py.get_type::<PyTypeError>()) || error.get_type(py).is(py.get_type::<PyBufferError>());
    if !is_about_type {
        return error;
    }
    let list = if object.is_instance_of::<PySet>() || object.is_instance_of::<PyFrozenSet>() {
        // Else ranks, and each run of a program, would have codes of their own.
        "sorted(values): processes have the strings of a set in different orders"
    } else {
        "list(values)"
    };
    let wrong = PyTypeError::new_err(format!(
        "categories must be a list of strings, bytes or integers, or an Arrow array, not {}; pass {list}",
        name_of(object)
    ));
    wrong.set_cause(py, Some(error));
    wrong
}

/// The categories that are these values: a list, or Arrow data of one column.
fn read(object: &Bound<'_, PyAny>) -> PyResult<Categories> {
    let values = if object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>() {
        of_list(object)?
    } else {
        if object.is_instance_of::<PyString>() || object.is_instance_of::<PyBytes>() {
            return Err(PyTypeError::new_err(
                "categories must be a list of values or an Arrow array, not a single value",
            ));
        }
        let chunks = InputChunks::read(object, CopyMode::IfNeeded).map_err(|error| not_read(object, error))?;
        let arrays = chunks.arrays().iter().map(DeviceArray::to_arrow).collect::<Result<Vec<_>, _>>()?;
        joined(chunks.field().data_type(), &arrays)?
    };
    Ok(Categories::new(values)?)
}

/// A list of strings, of bytes or of integers as an array.
fn of_list(list: &Bound<'_, PyAny>) -> PyResult<ArrayRef> {
    /// The most bytes that offsets of 32 bits reach.
    const SMALL: usize = 0x7fff_ffff;
    let items = list.try_iter()?.collect::<PyResult<Vec<_>>>()?;
    let mixed = || {
        PyTypeError::new_err(
            "a list of categories has strings, bytes or integers alone, and no None: nulls= says what nulls become",
        )
    };
    let Some(first) = items.first() else {
        return Err(PyValueError::new_err("an empty list of categories has no type; pass an Arrow array"));
    };
    if first.is_instance_of::<PyString>() {
        let texts = items.iter().map(|item| item.cast::<PyString>().map_err(|_| mixed())?.extract::<String>());
        let texts = texts.collect::<PyResult<Vec<_>>>()?;
        return Ok(match texts.iter().map(String::len).sum::<usize>() <= SMALL {
            true => Arc::new(StringArray::from_iter_values(texts)),
            false => Arc::new(LargeStringArray::from_iter_values(texts)),
        });
    }
    if first.is_instance_of::<PyBytes>() {
        let bytes = items.iter().map(|item| item.cast::<PyBytes>().map_err(|_| mixed()).map(|item| item.as_bytes()));
        let bytes = bytes.collect::<PyResult<Vec<_>>>()?;
        return Ok(match bytes.iter().map(|bytes| bytes.len()).sum::<usize>() <= SMALL {
            true => Arc::new(BinaryArray::from_iter_values(bytes)),
            false => Arc::new(LargeBinaryArray::from_iter_values(bytes)),
        });
    }
    for item in &items {
        let is_index = item.is_instance_of::<PyInt>() || answer(item.py(), item.hasattr("__index__"))? == Some(true);
        if !is_index || item.is_instance_of::<PyBool>() {
            return Err(mixed());
        }
    }
    let ints = items.iter().map(wide).collect::<PyResult<Vec<_>>>()?;
    if let Ok(ints) = ints.iter().map(|int| i64::try_from(*int)).collect::<Result<Vec<_>, _>>() {
        return Ok(Arc::new(Int64Array::from(ints)));
    }
    let ints = ints.iter().map(|int| u64::try_from(*int)).collect::<Result<Vec<_>, _>>();
    let beyond = |_| PyValueError::new_err("a list of categories has integers that neither int64 nor uint64 can hold");
    Ok(Arc::new(UInt64Array::from(ints.map_err(beyond)?)))
}
