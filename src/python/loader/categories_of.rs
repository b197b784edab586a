//! The function `categories`: the values that columns of a source have.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use super::sources::Sources;
use crate::loader::DistinctValues;
use crate::python::categories::array;
use crate::python::column_names::names;
use crate::python::counts::count;
use crate::stream_order::Interrupts;

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
///     that returns one of these: as for `Loader`.
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
    let opened = Sources::new(py, Some(source), None)?.open(py, 0, &|unread| {
        // A wrong name must not consume a stream.
        Ok(DistinctValues::new(unread.field, &columns, limit).map(drop)?)
    })?;
    opened.take_over();
    let mut stream = opened.stream;
    let found = py.detach(|| {
        let mut values = DistinctValues::new(stream.field(), &columns, limit)?;
        let mut interrupts = Interrupts::new();
        for array in &mut stream {
            values.add(&array?)?;
            interrupts.check()?;
        }
        values.finish()
    });
    drop(stream);
    let found = found?;
    if let (Some(_), [(_, only)]) = (single, found.as_slice()) {
        return array(py, only.values());
    }
    let dict = PyDict::new(py);
    found.iter().try_for_each(|(name, values)| dict.set_item(name, array(py, values.values())?))?;
    Ok(dict.into_any())
}
