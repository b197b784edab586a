//! Reads the keywords that conversions share.

use arrow_schema::{DataType, FieldRef};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping, PyString};

use super::dtype;
use super::nulls::parse_nulls;
use crate::dtype::DType;
use crate::error::Error;
use crate::spec::{CopyMode, DecimalMode, DictionaryMode, NullPolicy, Options, require_columns};

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

impl Legacy {
    pub(super) fn parse(text: &str) -> PyResult<Self> {
        match text {
            "copy" => Ok(Self::Copy),
            "view" => Ok(Self::View),
            "error" => Ok(Self::Error),
            _ => Err(PyValueError::new_err(format!("legacy must be \"copy\", \"view\" or \"error\", not {text:?}"))),
        }
    }
}

/// A dict, or another mapping as one; `None` for anything else.
pub(super) fn mapping<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyDict>>> {
    if let Ok(dict) = object.cast::<PyDict>() {
        return Ok(Some(dict.clone()));
    }
    // A string is asked for by far the most, and to ask whether something is a mapping takes long.
    if object.is_instance_of::<PyString>() {
        return Ok(None);
    }
    let Ok(mapping) = object.cast::<PyMapping>() else { return Ok(None) };
    let dict = PyDict::new(object.py());
    dict.update(mapping)?;
    Ok(Some(dict))
}

/// `copy=` of Python.
pub(super) fn copy_mode(copy: Option<bool>) -> CopyMode {
    match copy {
        None => CopyMode::IfNeeded,
        Some(true) => CopyMode::Always,
        Some(false) => CopyMode::Never,
    }
}

/// An option that is one value, or one for each column that a dict names.
#[derive(Clone, Debug, PartialEq)]
enum PerColumn<T> {
    One(T),
    Each(Vec<(String, T)>),
}

impl<T: Copy + Default> PerColumn<T> {
    fn read(object: &Bound<'_, PyAny>, parse: impl Fn(&Bound<'_, PyAny>) -> PyResult<T>) -> PyResult<Self> {
        let Some(columns) = mapping(object)? else { return parse(object).map(Self::One) };
        let columns = columns.iter().map(|(name, value)| Ok((name.extract::<String>()?, parse(&value)?)));
        columns.collect::<PyResult<_>>().map(Self::Each)
    }

    fn read_keyword(
        object: Option<&Bound<'_, PyAny>>,
        parse: impl Fn(&Bound<'_, PyAny>) -> PyResult<T>,
    ) -> PyResult<Self> {
        object.map_or(Ok(Self::One(T::default())), |object| Self::read(object, parse))
    }

    #[inline]
    fn of(&self, column: &str) -> T {
        match self {
            Self::One(value) => *value,
            Self::Each(columns) => {
                columns.iter().find(|(name, _)| name == column).map(|(_, value)| *value).unwrap_or_default()
            }
        }
    }

    fn is_by_column(&self) -> bool {
        matches!(self, Self::Each(_))
    }

    /// What `read` makes this of, of values as `write` writes them; `None` for the default.
    fn write<'py, W: IntoPyObject<'py>>(
        &self,
        py: Python<'py>,
        write: impl Fn(T) -> Option<W>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self {
            Self::One(value) => write(*value).map(|value| value.into_bound_py_any(py)).transpose(),
            Self::Each(columns) => {
                let dict = PyDict::new(py);
                columns
                    .iter()
                    .try_for_each(|(name, value)| dict.set_item(name, write(*value).into_bound_py_any(py)?))?;
                Ok(Some(dict.into_any()))
            }
        }
    }

    fn names(&self) -> impl Iterator<Item = &String> {
        let columns = match self {
            Self::One(_) => [].as_slice(),
            Self::Each(columns) => columns,
        };
        columns.iter().map(|(name, _)| name)
    }
}

/// What `copy=` is where data is copied on its way: a copy that is always made is that one.
pub(super) fn unless_moved(copy: CopyMode, is_moved: bool) -> CopyMode {
    if is_moved && copy == CopyMode::Always { CopyMode::IfNeeded } else { copy }
}

/// The options of `to_tensor`, `to_tensors` and `explain`, perhaps by column.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ConversionOptions {
    dtype: PerColumn<Option<DType>>,
    nulls: PerColumn<NullPolicy>,
    decimal: PerColumn<DecimalMode>,
    dictionary: PerColumn<Option<DictionaryMode>>,
    copy: CopyMode,
    writable: bool,
}

/// The keywords that say what the elements of the result are, as they were passed.
#[derive(Clone, Copy)]
pub(super) struct ElementKeywords<'a, 'py> {
    pub(super) dtype: Option<&'a Bound<'py, PyAny>>,
    pub(super) nulls: Option<&'a Bound<'py, PyAny>>,
    pub(super) decimal: Option<&'a Bound<'py, PyAny>>,
    pub(super) dictionary: Option<&'a Bound<'py, PyAny>>,
}

impl ElementKeywords<'_, '_> {
    /// Whether none was passed.
    pub(super) fn are_defaults(&self) -> bool {
        self.dtype.is_none() && self.nulls.is_none() && self.decimal.is_none() && self.dictionary.is_none()
    }
}

impl ConversionOptions {
    /// What no keyword is.
    #[inline]
    pub(super) fn defaults(copy: Option<bool>, writable: Option<bool>) -> Self {
        Self {
            dtype: PerColumn::One(None),
            nulls: PerColumn::One(NullPolicy::default()),
            decimal: PerColumn::One(DecimalMode::default()),
            dictionary: PerColumn::One(None),
            copy: copy_mode(copy),
            writable: writable == Some(true),
        }
    }

    pub(super) fn read(
        keywords: ElementKeywords<'_, '_>,
        copy: Option<bool>,
        writable: Option<bool>,
    ) -> PyResult<Self> {
        Ok(Self {
            dtype: PerColumn::read_keyword(keywords.dtype, parse_dtype)?,
            nulls: PerColumn::read_keyword(keywords.nulls, parse_nulls)?,
            decimal: PerColumn::read_keyword(keywords.decimal, parse_decimal)?,
            dictionary: PerColumn::read_keyword(keywords.dictionary, parse_dictionary)?,
            copy: copy_mode(copy),
            writable: writable == Some(true),
        })
    }

    /// The dtype that was asked for, for all columns.
    pub(super) fn dtype(&self) -> Option<DType> {
        if let PerColumn::One(dtype) = &self.dtype { *dtype } else { None }
    }

    /// Whether all columns have the same dtype option.
    pub(super) fn is_one_dtype(&self) -> bool {
        matches!(self.dtype, PerColumn::One(_))
    }

    /// The options for memory that was copied for this call alone: no other copy has to be made of it.
    pub(super) fn of_own(self) -> Self {
        Self { copy: unless_moved(self.copy, true), writable: false, ..self }
    }

    /// `copy=`.
    pub(super) fn copy(&self) -> CopyMode {
        self.copy
    }

    /// Whether `writable=` asks for memory of its own.
    pub(super) fn writable(&self) -> bool {
        self.writable
    }

    /// Adds the keywords `dtype`, `decimal` and `dictionary` that these options are read from.
    pub(super) fn write(&self, keywords: &Bound<'_, PyDict>) -> PyResult<()> {
        let py = keywords.py();
        let dtype = self.dtype.write(py, |dtype| dtype.map(DType::name))?;
        let decimal = self.decimal.write(py, |decimal| (decimal == DecimalMode::Unscaled).then_some("unscaled"))?;
        let dictionary = self.dictionary.write(py, |dictionary| {
            dictionary.map(|dictionary| match dictionary {
                DictionaryMode::Codes => "codes",
                DictionaryMode::Values => "values",
            })
        })?;
        for (name, value) in [("dtype", dtype), ("decimal", decimal), ("dictionary", dictionary)] {
            value.map_or(Ok(()), |value| keywords.set_item(name, value))?;
        }
        Ok(())
    }

    /// Refuses `nulls="keep"` where there is no validity beside the values.
    pub(super) fn refuse_keep(&self) -> PyResult<()> {
        let lost = || {
            Error::argument("a batch has no validity, so that nulls=\"keep\" would lose which values are null")
                .remedy_is(
                    "pass a number to fill them with, or nulls=\"nan\", or leave rows with nulls out of the source",
                )
        };
        let error = match &self.nulls {
            PerColumn::One(NullPolicy::Keep) => Some(lost()),
            PerColumn::One(_) => None,
            PerColumn::Each(columns) => {
                let kept = columns.iter().filter(|(_, nulls)| *nulls == NullPolicy::Keep);
                Error::of_columns(kept.map(|(name, _)| lost().in_column(name)))
            }
        };
        error.map_or(Ok(()), |error| Err(error.into()))
    }

    /// The options of one column.
    #[inline]
    pub(super) fn of(&self, column: &str) -> Options {
        let mut options = Options::default().nulls(self.nulls.of(column)).copy(self.copy).writable(self.writable);
        options.dtype = self.dtype.of(column);
        options.decimal = self.decimal.of(column);
        options.dictionary = self.dictionary.of(column);
        options
    }

    /// Refuses dicts that name columns which do not exist: a typing error must not pass for a default. The error tells what of
    /// the `selected` columns does not exist, too.
    #[inline]
    pub(super) fn check_columns<'a>(
        &'a self,
        field: &FieldRef,
        selected: impl IntoIterator<Item = &'a str>,
    ) -> PyResult<()> {
        let by_column = self.dtype.is_by_column() || self.nulls.is_by_column();
        if by_column || self.decimal.is_by_column() || self.dictionary.is_by_column() {
            return self.check_names(field, selected);
        }
        Ok(())
    }

    fn check_names<'a>(&'a self, field: &FieldRef, selected: impl IntoIterator<Item = &'a str>) -> PyResult<()> {
        let names = self.dtype.names().chain(self.nulls.names()).chain(self.decimal.names());
        let names = names.chain(self.dictionary.names()).map(String::as_str);
        if matches!(field.data_type(), DataType::Struct(_)) {
            return Ok(require_columns(field, selected.into_iter().chain(names))?);
        }
        let missing = names.filter(|name| name != field.name());
        let errors =
            missing.map(|name| Error::argument("there is no such column: the data is one array").in_column(name));
        Error::of_columns(errors).map_or(Ok(()), |error| Err(error.into()))
    }
}

fn parse_dtype(object: &Bound<'_, PyAny>) -> PyResult<Option<DType>> {
    if object.is_none() {
        return Ok(None);
    }
    dtype::resolve(object).map(Some)
}

fn parse_decimal(object: &Bound<'_, PyAny>) -> PyResult<DecimalMode> {
    if object.is_none() {
        return Ok(DecimalMode::Value);
    }
    match object.cast::<PyString>().map(|text| text.to_string()).as_deref() {
        Ok("unscaled") => Ok(DecimalMode::Unscaled),
        _ => Err(PyValueError::new_err(format!("decimal must be None or \"unscaled\", not {}", object.repr()?))),
    }
}

fn parse_dictionary(object: &Bound<'_, PyAny>) -> PyResult<Option<DictionaryMode>> {
    if object.is_none() {
        return Ok(None);
    }
    match object.cast::<PyString>().map(|text| text.to_string()).as_deref() {
        Ok("codes") => Ok(Some(DictionaryMode::Codes)),
        Ok("values") => Ok(Some(DictionaryMode::Values)),
        _ => Err(PyValueError::new_err(format!(
            "dictionary must be \"codes\", \"values\" or None, not {}",
            object.repr()?
        ))),
    }
}
