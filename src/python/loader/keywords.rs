//! Reads the loader's columns and seed, and converts its state to and from a dict.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict};

use crate::loader::{STATE_VERSION, Source, State, Terms};

/// A seed that nobody chose.
pub(super) fn random_seed(py: Python<'_>) -> PyResult<u64> {
    let bytes = py.import("os")?.call_method1("urandom", (8,))?.extract::<[u8; 8]>()?;
    Ok(u64::from_le_bytes(bytes))
}

/// The dict of a state.
pub(super) fn to_dict<'py>(py: Python<'py>, state: &State) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("version", STATE_VERSION)?;
    dict.set_item("seed", state.seed)?;
    dict.set_item("epoch", state.epoch)?;
    dict.set_item("batches", state.batches)?;
    dict.set_item("batch_size", state.terms.batch_size)?;
    dict.set_item("shuffle_buffer", state.terms.shuffle_buffer)?;
    dict.set_item("drop_last", state.terms.drop_last)?;
    dict.set_item("world_size", state.terms.world_size)?;
    dict.set_item("columns", state.terms.source.columns.as_ref())?;
    dict.set_item("rows", state.terms.source.rows)?;
    Ok(dict)
}

/// The state of a dict.
///
/// # Errors
/// `ValueError` for a dict that is no state of this version.
pub(super) fn from_dict(dict: &Bound<'_, PyDict>) -> PyResult<State> {
    let version: u64 = item(dict, "version")?;
    if version != STATE_VERSION {
        let reason = format!("the state is of version {version}, and this package reads version {STATE_VERSION}");
        return Err(PyValueError::new_err(reason));
    }
    let source = Source { columns: item(dict, "columns")?, rows: item(dict, "rows")? };
    let terms = Terms {
        batch_size: item(dict, "batch_size")?,
        shuffle_buffer: item(dict, "shuffle_buffer")?,
        drop_last: item(dict, "drop_last")?,
        world_size: item(dict, "world_size")?,
        source,
    };
    Ok(State { seed: item(dict, "seed")?, epoch: item(dict, "epoch")?, batches: item(dict, "batches")?, terms })
}

fn item<'py, T>(dict: &Bound<'py, PyDict>, key: &str) -> PyResult<T>
where
    T: for<'a> FromPyObject<'a, 'py>,
{
    let value = dict
        .get_item(key)?
        .ok_or_else(|| PyValueError::new_err(format!("the state has no {key:?}: it is not of a Loader")))?;
    let wrong = || PyValueError::new_err(format!("the state's {key:?} cannot be {value}"));
    // A bool passes for a number when it is extracted.
    if value.is_instance_of::<PyBool>() && key != "drop_last" {
        return Err(wrong());
    }
    value.extract().map_err(|_| wrong())
}
