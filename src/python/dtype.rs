//! Reads `dtype=`: a name, or a type object of any library. Imports no library for it: each object tells what it is.

use arrow_schema::{DataType, Field};
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyComplex, PyFloat, PyInt, PyString, PyType};

use super::answers::answer;
use super::escapes::python_escapes;
use super::schema::own_schema;
use super::words::UNIT;
use crate::dtype::DType;
use crate::spec::BOOL8;

/// Names of numbers on which libraries disagree, or which are no names of dtypes, and what to write for them.
const UNCLEAR: &[(&str, &str)] = &[
    ("float", "it is 32 bits wide in Arrow, and 64 in NumPy and Python: write \"float32\" or \"float64\""),
    ("double", "write \"float64\""),
    ("single", "write \"float32\""),
    ("half", "write \"float16\""),
    ("halffloat", "write \"float16\""),
    ("int", "its width differs between libraries: write \"int32\" or \"int64\""),
    ("uint", "its width differs between libraries: write \"uint32\" or \"uint64\""),
    ("long", "its width differs between libraries: write \"int32\" or \"int64\""),
    ("byte", "it is signed in NumPy: write \"int8\" or \"uint8\""),
    ("complex", "write \"complex64\" or \"complex128\""),
    ("boolean", "write \"bool\""),
    ("bool_", "write \"bool\""),
    ("bool8", "write \"bool\""),
];

/// NumPy's codes of a kind and a number of bytes.
const CODES: &[(&str, DType)] = &[
    ("b1", DType::Bool),
    ("i1", DType::Int8),
    ("i2", DType::Int16),
    ("i4", DType::Int32),
    ("i8", DType::Int64),
    ("u1", DType::UInt8),
    ("u2", DType::UInt16),
    ("u4", DType::UInt32),
    ("u8", DType::UInt64),
    ("f2", DType::Float16),
    ("f4", DType::Float32),
    ("f8", DType::Float64),
    ("c8", DType::Complex64),
    ("c16", DType::Complex128),
];

/// The dtype that an argument stands for.
///
/// # Errors
/// `ValueError` for anything that stands for none, which says what to write where that is known; what the object raises.
pub(super) fn resolve(object: &Bound<'_, PyAny>) -> PyResult<DType> {
    if let Ok(text) = object.cast::<PyString>() {
        return named(text.to_str()?);
    }
    if let Ok(class) = object.cast::<PyType>() {
        return of_class(class);
    }
    if let Some(field) = own_schema(object)? {
        return of_arrow(&field);
    }
    let py = object.py();
    let text = object.str()?.to_string();
    if let Some(dtype) = printed(&text) {
        return Ok(dtype);
    }
    // pandas and TensorFlow describe their types by a NumPy dtype, or by a class of its scalars.
    for attribute in [intern!(py, "numpy_dtype"), intern!(py, "as_numpy_dtype")] {
        let Some(theirs) = answer(py, object.getattr(attribute))? else { continue };
        let dtype = match theirs.cast::<PyType>() {
            Ok(class) => answer(py, of_class(class))?,
            Err(_) => printed(&theirs.str()?.to_string()),
        };
        if let Some(dtype) = dtype {
            return Ok(dtype);
        }
    }
    if let Some(remedy) = remedy_of_times(&text) {
        return Err(no_dtype(&object.repr()?.to_string(), &remedy));
    }
    match code(&text) {
        // NumPy prints the dtypes of foreign byte order by their code.
        Err(reason) => Err(no_dtype(&object.repr()?.to_string(), reason)),
        Ok(_) => Err(unknown(&object.repr()?.to_string())),
    }
}

/// The dtype that a name stands for, perhaps at the end of a dotted path such as `torch.float32`, or a code of NumPy.
fn named(text: &str) -> PyResult<DType> {
    if let Ok(dtype) = text.parse() {
        return Ok(dtype);
    }
    let reason = match code(text) {
        Ok(Some(dtype)) => return Ok(dtype),
        Ok(None) => None,
        Err(reason) => Some(reason.to_owned()),
    };
    let lower = text.to_ascii_lowercase();
    let reason = reason
        .or_else(|| UNCLEAR.iter().find(|(name, _)| *name == lower).map(|(_, reason)| (*reason).to_owned()))
        .or_else(|| printed(text).map(|dtype| format!("write \"{dtype}\"")))
        .or_else(|| remedy_of_times(text))
        .or_else(|| {
            (text.len() == 1)
                .then(|| "libraries disagree on single letters: write a name such as \"float32\"".to_owned())
        });
    let text = python_escapes(&format!("{text:?}"));
    Err(reason.map_or_else(|| unknown(&text), |reason| no_dtype(&text, &reason)))
}

/// The dtype of one of NumPy's codes; `None` for any other text.
///
/// # Errors
/// Why a code of another byte order is refused.
fn code(text: &str) -> Result<Option<DType>, &'static str> {
    let order = text.chars().next().filter(|first| "<>=|".contains(*first));
    let rest = order.map_or(text, |order| text.trim_start_matches(order));
    let found = CODES.iter().find(|(code, _)| *code == rest).map(|(_, dtype)| *dtype);
    match order {
        Some('>') if found.is_some() => {
            Err("tensors have the byte order of the processor: write the code without the order, such as \"f4\"")
        }
        _ => Ok(found),
    }
}

/// The dtype that a type object prints as: its name, in lower case or capitalised, at the end of a dotted path.
fn printed(text: &str) -> Option<DType> {
    let name = text.rsplit('.').next()?.to_ascii_lowercase();
    match name.as_str() {
        "bool_" | "boolean" => Some(DType::Bool),
        // NumPy's other integers of 64 bits.
        "longlong" => Some(DType::Int64),
        "ulonglong" => Some(DType::UInt64),
        name => name.parse().ok(),
    }
}

/// The dtype of a class: Python's numbers, or a class of another library whose instances are such numbers, or that is itself a
/// type of Arrow.
fn of_class(class: &Bound<'_, PyType>) -> PyResult<DType> {
    let py = class.py();
    for (known, dtype) in [
        (py.get_type::<PyFloat>(), DType::Float64),
        (py.get_type::<PyInt>(), DType::Int64),
        (py.get_type::<PyBool>(), DType::Bool),
        (py.get_type::<PyComplex>(), DType::Complex128),
    ] {
        if class.is(&known) {
            return Ok(dtype);
        }
    }
    if let Some(dtype) = printed(&class.name()?.to_string()) {
        return Ok(dtype);
    }
    // pandas' have their name under this one, JAX's and ml_dtypes' their dtype.
    for attribute in [intern!(py, "name"), intern!(py, "dtype")] {
        if let Some(theirs) = answer(py, class.getattr(attribute))?
            && let Some(dtype) = printed(&theirs.str()?.to_string())
        {
            return Ok(dtype);
        }
    }
    let found = class.repr()?.to_string();
    Err(remedy_of_times(&class.name()?.to_string()).map_or_else(|| unknown(&found), |remedy| no_dtype(&found, &remedy)))
}

/// What to write for the name of a type of times, such as NumPy's `datetime64[ms]` or polars' `Datetime(time_unit='ms', ...)`;
/// `None` for any other text.
fn remedy_of_times(text: &str) -> Option<String> {
    let kind = text.trim_start_matches(['<', '>', '=', '|']).to_ascii_lowercase();
    if !["datetime", "timedelta", "duration", "m8["].iter().any(|start| kind.starts_with(start)) {
        return None;
    }
    let is_of = |unit: &str| {
        [format!("[{unit}]"), format!("[{unit},"), format!("time_unit='{unit}'")].iter().any(|unit| text.contains(unit))
    };
    let unit = UNIT.words.iter().map(|(unit, _)| *unit).find(|unit| is_of(unit));
    Some(match unit {
        Some(unit) => remedy_of_unit(unit),
        None => format!("{}, or another unit", remedy_of_unit("s")),
    })
}

fn remedy_of_unit(unit: &str) -> String {
    format!("pass unit=\"{unit}\" instead, for integers of that unit")
}

/// The dtype of the numbers of an Arrow type.
fn of_arrow(field: &Field) -> PyResult<DType> {
    let data_type = field.data_type();
    let found = match (field.extension_type_name(), data_type) {
        (Some(BOOL8), DataType::Int8) | (None, DataType::Boolean) => Some(DType::Bool),
        (Some(name), DataType::FixedSizeBinary(width)) => {
            DType::of_extension(name).filter(|dtype| usize::try_from(*width) == Ok(dtype.itemsize()))
        }
        (Some(_), _) => None,
        (None, data_type) => DType::ALL.iter().copied().find(|dtype| dtype.to_arrow().as_ref() == Some(data_type)),
    };
    found.ok_or_else(|| {
        let unit = match data_type {
            DataType::Time32(unit)
            | DataType::Time64(unit)
            | DataType::Timestamp(unit, _)
            | DataType::Duration(unit) => UNIT.word(*unit),
            _ => None,
        };
        let remedy = match data_type {
            DataType::Date32 | DataType::Time32(_) => "write \"int32\" for its ticks, in the unit of the column",
            DataType::Date64 | DataType::Time64(_) | DataType::Timestamp(..) | DataType::Duration(_) => {
                "write \"int64\" for its ticks, in the unit of the column"
            }
            DataType::Decimal32(..) | DataType::Decimal64(..) | DataType::Decimal128(..) | DataType::Decimal256(..) => {
                "write \"float64\", or decimal=\"unscaled\" for the stored integers"
            }
            _ => "write the dtype of a number, such as \"float32\"",
        };
        let name = field.extension_type_name().map_or_else(|| data_type.to_string(), str::to_owned);
        let by_unit = unit.map_or_else(String::new, |unit| format!("{}, or ", remedy_of_unit(unit)));
        no_dtype(&format!("the Arrow type {name}"), &format!("{by_unit}{remedy}"))
    })
}

fn no_dtype(what: &str, reason: &str) -> PyErr {
    PyValueError::new_err(format!("{what} is not a dtype: {reason}"))
}

fn unknown(what: &str) -> PyErr {
    no_dtype(what, "write a name such as \"float32\", or pass a type of Arrow, NumPy, polars, torch or another library")
}
