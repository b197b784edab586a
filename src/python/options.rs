//! Reads the keywords that conversions share.

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyList, PyString};

use super::answers::mapping;
use super::counts::count;
use super::dtype;
use super::nulls::parse_nulls;
use super::words::{UNIT, Words};
use crate::dtype::DType;
use crate::spec::{Conversion, CopyMode, DecimalMode, DictionaryMode, PerColumn};

/// What an unversioned DLPack capsule of read-only memory is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Legacy {
    /// A private copy.
    #[default]
    Copy,
    /// The memory itself: the caller's word that the consumer does not write.
    View,
    /// Nothing: an error.
    Error,
}

/// The words of `legacy=`.
pub(super) const LEGACY: Words<Legacy> =
    Words { keyword: "legacy", words: &[("copy", Legacy::Copy), ("view", Legacy::View), ("error", Legacy::Error)] };
/// The words of `decimal=`; the values are the default, `None`.
const DECIMAL: Words<DecimalMode> = Words { keyword: "decimal", words: &[("unscaled", DecimalMode::Unscaled)] };
/// The words of `dictionary=`.
const DICTIONARY: Words<DictionaryMode> =
    Words { keyword: "dictionary", words: &[("codes", DictionaryMode::Codes), ("values", DictionaryMode::Values)] };

/// `copy=` of Python.
pub(super) fn copy_mode(copy: Option<bool>) -> CopyMode {
    match copy {
        None => CopyMode::IfNeeded,
        Some(true) => CopyMode::Always,
        Some(false) => CopyMode::Never,
    }
}

/// The name of a column, as a key of a keyword's dict.
///
/// # Errors
/// `TypeError` for a key that is no str.
pub(super) fn key(keyword: &str, name: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(name) = name.cast::<PyString>() {
        return Ok(name.to_str()?.to_owned());
    }
    let remedy = names_as_str(name)?.map_or_else(String::new, |name| format!("; pass {name}"));
    let wrong = format!("{keyword} has the key {}, and names of columns are str{remedy}", name.repr()?);
    Err(PyTypeError::new_err(wrong))
}

/// The names of columns that integers stand for, as `repr()` writes them; `None` for anything else. The integer columns of pandas are
/// called so.
///
/// # Errors
/// What `repr()` of an integer raises.
pub(super) fn names_as_str(object: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    let name = |object: &Bound<'_, PyAny>| -> PyResult<Option<String>> {
        if !object.is_instance_of::<PyInt>() && !object.is_instance_of::<PyString>() {
            return Ok(None);
        }
        Ok(Some(format!("\"{}\"", object.str()?)))
    };
    let Ok(list) = object.cast::<PyList>() else { return name(object) };
    let names: Option<Vec<_>> = list.iter().map(|item| name(&item)).collect::<PyResult<_>>()?;
    Ok(names.map(|names| format!("[{}]", names.join(", "))))
}

/// Reads an option that is one value, or a dict by column.
fn read_keyword<T: Default>(
    keyword: &str,
    object: Option<&Bound<'_, PyAny>>,
    parse: impl Fn(&Bound<'_, PyAny>) -> PyResult<T>,
) -> PyResult<PerColumn<T>> {
    let Some(object) = object else { return Ok(PerColumn::default()) };
    let Some(columns) = mapping(object)? else { return parse(object).map(PerColumn::All) };
    let columns = columns.iter().map(|(name, value)| Ok((key(keyword, &name)?, parse(&value)?)));
    columns.collect::<PyResult<_>>().map(PerColumn::Named)
}

/// What [`read_keyword`] makes this option of, of values as `write` writes them; `None` for the default.
fn write_keyword<'py, T: Copy, W: IntoPyObject<'py>>(
    option: &PerColumn<T>,
    py: Python<'py>,
    write: impl Fn(T) -> Option<W>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    match option {
        PerColumn::All(value) => write(*value).map(|value| value.into_bound_py_any(py)).transpose(),
        PerColumn::Named(columns) => {
            let dict = PyDict::new(py);
            columns.iter().try_for_each(|(name, value)| dict.set_item(name, write(*value).into_bound_py_any(py)?))?;
            Ok(Some(dict.into_any()))
        }
    }
}

/// The keywords that say what the elements of the result are, as they were passed.
#[derive(Clone, Copy)]
pub(super) struct ElementKeywords<'a, 'py> {
    pub(super) dtype: Option<&'a Bound<'py, PyAny>>,
    pub(super) nulls: Option<&'a Bound<'py, PyAny>>,
    pub(super) decimal: Option<&'a Bound<'py, PyAny>>,
    pub(super) dictionary: Option<&'a Bound<'py, PyAny>>,
    pub(super) unit: Option<&'a Bound<'py, PyAny>>,
    pub(super) length: Option<&'a Bound<'py, PyAny>>,
}

impl ElementKeywords<'_, '_> {
    pub(super) fn are_defaults(&self) -> bool {
        let Self { dtype, nulls, decimal, dictionary, unit, length } = self;
        [dtype, nulls, decimal, dictionary, unit, length].into_iter().all(|keyword| keyword.is_none())
    }

    /// Returns the conversion that these keywords ask for.
    pub(super) fn conversion(self, copy: Option<bool>, writable: Option<bool>) -> PyResult<Conversion> {
        let mut conversion = Conversion::default();
        self.read_into(&mut conversion, copy, writable)?;
        Ok(conversion)
    }

    /// Sets what these keywords ask for, in place: a call is short, and to move a conversion would take a part of it.
    #[inline]
    pub(super) fn read_into(
        self,
        conversion: &mut Conversion,
        copy: Option<bool>,
        writable: Option<bool>,
    ) -> PyResult<()> {
        conversion.copy = copy_mode(copy);
        conversion.writable = writable == Some(true);
        if !self.are_defaults() {
            conversion.dtype = read_keyword("dtype", self.dtype, parse_dtype)?;
            conversion.nulls = read_keyword("nulls", self.nulls, parse_nulls)?;
            conversion.decimal =
                read_keyword("decimal", self.decimal, |word| Ok(DECIMAL.read(word)?.unwrap_or_default()))?;
            conversion.dictionary = read_keyword("dictionary", self.dictionary, |word| DICTIONARY.read(word))?;
            conversion.unit = read_keyword("unit", self.unit, |word| UNIT.read(word))?;
            conversion.length = read_keyword("length", self.length, parse_length)?;
        }
        Ok(())
    }
}

/// Adds the keywords `dtype`, `decimal`, `dictionary`, `unit` and `length` that a conversion was read from.
pub(super) fn write_keywords(conversion: &Conversion, keywords: &Bound<'_, PyDict>) -> PyResult<()> {
    let py = keywords.py();
    let dtype = write_keyword(&conversion.dtype, py, |dtype| dtype.map(DType::name))?;
    let decimal = write_keyword(&conversion.decimal, py, |decimal| DECIMAL.word(decimal))?;
    let dictionary = write_keyword(&conversion.dictionary, py, |dictionary| DICTIONARY.word(dictionary?))?;
    let unit = write_keyword(&conversion.unit, py, |unit| UNIT.word(unit?))?;
    let length = write_keyword(&conversion.length, py, |length| length)?;
    let element = [("dtype", dtype), ("decimal", decimal), ("dictionary", dictionary)];
    for (name, value) in element.into_iter().chain([("unit", unit), ("length", length)]) {
        value.map_or(Ok(()), |value| keywords.set_item(name, value))?;
    }
    Ok(())
}

fn parse_dtype(object: &Bound<'_, PyAny>) -> PyResult<Option<DType>> {
    if object.is_none() {
        return Ok(None);
    }
    dtype::resolve(object).map(Some)
}

/// Reads `length=`, by itself.
pub(super) fn read_length(object: Option<&Bound<'_, PyAny>>) -> PyResult<PerColumn<Option<usize>>> {
    read_keyword("length", object, parse_length)
}

fn parse_length(object: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
    if object.is_none() {
        return Ok(None);
    }
    count("length", object, 0).map(Some)
}
