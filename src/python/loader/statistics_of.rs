//! The function `statistics`: numbers that the columns of a source have, as fills of nulls.

use arrow_schema::FieldRef;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use super::whole::read_whole;
use crate::loader::{Statistic, Statistics};
use crate::python::answers::mapping;
use crate::python::counts::count;
use crate::python::options::key;
use crate::spec::Scalar;

/// The most values of a column whose mode is asked for, unless the caller says otherwise.
const MOST_VALUES: usize = 1_000_000;

/// Returns a statistic of each of some columns of a source, as a dict by name: fills for `nulls=` of any loader or
/// function. Reads the source once, array by array.
///
/// Nulls and NaN are no values. "mean" and "std" are floats: sums of integers are exact, those of floats are
/// compensated. "std" divides by the number of values. "min", "max" and "mode" are values of the column; the mode is
/// the most frequent one, of several the lowest. "count" is the number of values, "null_count" that of nulls, also of
/// columns that are no numbers, except structs: name their fields. Temporal columns count in their ticks, values of
/// lists of a fixed size one by one, other lists as one value each.
///
/// source: Arrow data of any library, an iterable of it, a data set or file that is read in batches, or a callable
///     that returns one of these: as for `Loader`. Or shards: a list of (source, rows), such as that of
///     `parquet_shards`, which are read one after the other.
/// statistics: a dict of "mean", "min", "max", "std", "mode", "count" or "null_count" by column. A column without
///     values has only counts: all others are an error.
/// limit: the most different values of a column whose "mode" is asked for; more are an error. They are in memory.
#[pyfunction]
#[pyo3(signature = (source, statistics, *, limit=None), text_signature = "(source, statistics, *, limit=1_000_000)")]
pub(super) fn statistics<'py>(
    py: Python<'py>,
    source: &Bound<'py, PyAny>,
    statistics: &Bound<'py, PyAny>,
    limit: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let columns = mapping(statistics)?.ok_or_else(|| {
        PyTypeError::new_err("statistics must be a dict such as {\"a\": \"mean\"}, of a statistic by column")
    })?;
    let column = |(name, statistic): (Bound<'py, PyAny>, Bound<'py, PyAny>)| {
        let known = statistic.cast::<PyString>().ok().and_then(|name| Statistic::of_name(&name.to_string()));
        let wrong = || -> PyResult<PyErr> {
            let reason = format!(
                "a statistic is \"mean\", \"min\", \"max\", \"std\", \"mode\", \"count\" or \"null_count\", not {}",
                statistic.repr()?
            );
            Ok(PyValueError::new_err(reason))
        };
        match known {
            Some(known) => Ok((key("statistics", &name)?, known)),
            None => Err(wrong()?),
        }
    };
    let columns = columns.iter().map(column).collect::<PyResult<Vec<_>>>()?;
    let limit = limit.map_or(Ok(MOST_VALUES), |limit| count("limit", limit, 1))?;
    let names = columns.iter().map(|(name, _)| name.clone());
    let begin = |field: &FieldRef| Statistics::new(field, &columns, limit);
    let statistics = read_whole(py, source, names, begin, |seen, array| seen.add(array))?;
    let found = py.detach(|| statistics.finish())?;
    let dict = PyDict::new(py);
    for (name, value) in found {
        match value {
            Scalar::Bool(value) => dict.set_item(name, value)?,
            Scalar::Int(value) => dict.set_item(name, value)?,
            Scalar::Float(value) | Scalar::Rounded(value) => dict.set_item(name, value)?,
        }
    }
    Ok(dict)
}
