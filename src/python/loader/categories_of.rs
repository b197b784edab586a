//! The function `categories`: the values that columns of a source have.

use arrow_schema::FieldRef;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use super::whole::read_whole;
use crate::loader::DistinctValues;
use crate::python::categories::array;
use crate::python::column_names::names;
use crate::python::counts::count;

/// The most values of a column, unless the caller says otherwise.
const MOST_VALUES: usize = 1_000_000;

/// Returns the different values that a column of a source has, as an array for `categories=`; of a list of columns,
/// a dict of them by name. Reads the source once, array by array.
///
/// The values are in ascending order, of their bytes or of their numbers, so they depend neither on the order of the
/// rows nor on how the source is cut. Nulls are no values. The type is string, binary or int64; uint64 if a value
/// needs it. Values of a dictionary that no row has do not count.
///
/// source: Arrow data of any library, an iterable of it, a data set or file that is read in batches, or a callable
///     that returns one of these: as for `Loader`. Or shards: a list of (source, rows), such as that of
///     `parquet_shards`, which are read one after the other.
/// columns: the name of a column, or a list of names.
/// limit: the most values of a column; more are an error. The values and one array of the source are in memory.
#[pyfunction]
#[pyo3(signature = (source, columns, *, limit=None), text_signature = "(source, columns, *, limit=1_000_000)")]
pub(super) fn categories<'py>(
    py: Python<'py>,
    source: &Bound<'py, PyAny>,
    columns: &Bound<'py, PyAny>,
    limit: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let single = columns.cast::<PyString>().ok();
    let columns = single.map_or_else(|| names(columns), |name| Ok(vec![name.extract::<String>()?]))?;
    let limit = limit.map_or(Ok(MOST_VALUES), |limit| count("limit", limit, 1))?;
    let begin = |field: &FieldRef| DistinctValues::new(field, &columns, limit);
    let values = read_whole(py, source, columns.clone(), begin, |values, array| values.add(array))?;
    let found = py.detach(|| values.finish())?;
    if let (Some(_), [(_, only)]) = (single, found.as_slice()) {
        return array(py, only.values());
    }
    let dict = PyDict::new(py);
    found.iter().try_for_each(|(name, values)| dict.set_item(name, array(py, values.values())?))?;
    Ok(dict.into_any())
}
