//! Reads the loader's columns and seed, and converts its state to and from a dict.

use pyo3::IntoPyObjectExt;
use std::num::NonZero;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyList, PySequence, PyString, PyTuple};

use super::sources::Sources;
use crate::loader::{
    DictionaryHashes, Digest, Hashes, LoadOptions, OfOthers, Place, STATE_VERSION, Sharding, SourceState, State, Terms,
    check_device,
};
use crate::python::answers::{answer, error_about};
use crate::python::counts::{count, word};
use crate::python::device;

/// The first version of the state's format: a number of batches, without hashes.
const FIRST_VERSION: u64 = 1;

/// The key of the hash of dictionaries, which only states of codes have.
const DICTIONARIES: &str = "dictionaries";

/// The key of the hash of each of several dictionaries, of which some columns may have had none.
const EACH_DICTIONARY: &str = "dictionaries_of_columns";

/// The key of the number of the last batches that other workers make, which only states of workers have.
const OF_OTHERS: &str = "of_others";

/// The key of whether those drop batches that are not full.
const DROP_LAST: &str = "drop_last";

/// Reads a number of at least `least`; `default` where none was passed.
pub(super) fn number(name: &str, value: Option<&Bound<'_, PyAny>>, default: usize, least: usize) -> PyResult<usize> {
    value.map_or(Ok(default), |value| count(name, value, least))
}

/// The keywords that say which batches are this loader's.
pub(super) struct ShardingKeywords<'a, 'py> {
    pub(super) batch_size: &'a Bound<'py, PyAny>,
    pub(super) drop_last: bool,
    pub(super) rank: Option<&'a Bound<'py, PyAny>>,
    pub(super) world_size: Option<&'a Bound<'py, PyAny>>,
    pub(super) worker: Option<&'a Bound<'py, PyAny>>,
}

impl ShardingKeywords<'_, '_> {
    pub(super) fn read(self) -> PyResult<Sharding> {
        let world_size = number("world_size", self.world_size, 1, 1)?;
        let batch_size = count("batch_size", self.batch_size, 1)?;
        let sharding = Sharding::new(batch_size, self.drop_last, number("rank", self.rank, 0, 0)?, world_size)?;
        Ok(match self.worker.map(worker).transpose()? {
            None => sharding,
            Some((worker, workers)) => sharding.for_worker(worker, workers)?,
        })
    }
}

/// The keywords that say where batches go, and what is read ahead.
pub(super) struct LoadKeywords<'a, 'py> {
    pub(super) device: Option<&'a Bound<'py, PyAny>>,
    pub(super) prefetch: Option<&'a Bound<'py, PyAny>>,
    pub(super) readers: Option<&'a Bound<'py, PyAny>>,
}

impl LoadKeywords<'_, '_> {
    pub(super) fn read(self, sharding: Sharding) -> PyResult<LoadOptions> {
        let mut load = LoadOptions::new(sharding);
        load.device = self.device.map_or(Ok(load.device), device::extract)?;
        check_device(load.device)?;
        load.prefetch = number("prefetch", self.prefetch, load.prefetch, 0)?;
        load.readers = number("readers", self.readers, load.readers, 1)?;
        Ok(load)
    }
}

/// The keywords that say in which order rows come.
pub(super) struct OrderKeywords<'a, 'py> {
    pub(super) shuffle_buffer: Option<&'a Bound<'py, PyAny>>,
    pub(super) shuffle_bytes: Option<&'a Bound<'py, PyAny>>,
    pub(super) shuffle_shards: Option<bool>,
    pub(super) seed: Option<&'a Bound<'py, PyAny>>,
}

/// The order of rows, but for its seed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    /// Rows of the shuffle buffer.
    pub(super) buffer: Option<NonZero<usize>>,
    /// The most bytes of these rows.
    pub(super) bytes: Option<NonZero<usize>>,
    pub(super) permutes_shards: bool,
}

impl OrderKeywords<'_, '_> {
    /// Returns the order, and its seed, if it is shuffled, with whether that was passed. `has_shards`: `sources=` was passed.
    pub(super) fn read(self, py: Python<'_>, has_shards: bool, world_size: usize) -> PyResult<(Order, SeedOfOrder)> {
        let buffer = NonZero::new(number("shuffle_buffer", self.shuffle_buffer, 0, 0)?);
        let bytes = NonZero::new(number("shuffle_bytes", self.shuffle_bytes, 0, 1)?);
        let permutes_shards = self.shuffle_shards.unwrap_or(has_shards && buffer.is_some());
        let is_shuffled = buffer.is_some() || permutes_shards;
        let passed = self.seed.map(|seed| word("seed", seed)).transpose()?.filter(|_| is_shuffled);
        if passed.is_none() && is_shuffled && world_size > 1 {
            let reason = "ranks that shuffle need one order in common: pass the same seed= to each of them";
            return Err(PyValueError::new_err(reason));
        }
        let seed = match passed {
            None if is_shuffled => Some(random_seed(py)?),
            passed => passed,
        };
        Ok((Order { buffer, bytes, permutes_shards }, (seed, passed.is_some())))
    }
}

/// The seed of an order, and whether it is the caller's word.
type SeedOfOrder = (Option<u64>, bool);

/// Reads `verify=`: whether all rows that a state has hashes of are read again.
pub(super) fn verifies_all(verify: Option<&str>) -> PyResult<bool> {
    match verify {
        None | Some("replay") => Ok(false),
        Some("all") => Ok(true),
        Some(other) => Err(PyValueError::new_err(format!("verify must be \"replay\" or \"all\", not {other:?}"))),
    }
}

/// Reads `worker=`: a worker of the rank, and their number.
fn worker(worker: &Bound<'_, PyAny>) -> PyResult<(usize, usize)> {
    if let Ok(pair) = worker.cast::<PyTuple>()
        && let (2, Ok(worker), Ok(workers)) = (pair.len(), pair.get_item(0), pair.get_item(1))
    {
        return Ok((count("the worker", &worker, 0)?, count("the number of workers", &workers, 1)?));
    }
    Err(PyTypeError::new_err(format!("worker must be a tuple (worker, number of workers), not {}", worker.repr()?)))
}

/// The most lanes: a state has a number for each.
const MOST_LANES: usize = 1 << 16;

/// Checks `lanes=`.
///
/// # Errors
/// `ValueError` for more lanes than a state can have, and for lanes of a source without shards.
pub(super) fn lanes(lanes: usize, sources: &Sources) -> PyResult<NonZero<usize>> {
    if lanes > MOST_LANES {
        return Err(PyValueError::new_err(format!("lanes must be from 1 to {MOST_LANES}, not {lanes}")));
    }
    if lanes > 1 && !sources.is_list() {
        let reason = "lanes cut shards, and one source has none; pass sources=[(source, rows), ...]";
        return Err(PyValueError::new_err(reason));
    }
    NonZero::new(lanes).ok_or_else(|| PyValueError::new_err("lanes must be 1 or more, not 0"))
}

/// A seed that nobody chose.
fn random_seed(py: Python<'_>) -> PyResult<u64> {
    let bytes = py.import("os")?.call_method1("urandom", (8,))?.extract::<[u8; 8]>()?;
    Ok(u64::from_le_bytes(bytes))
}

/// The dict of a state.
pub(super) fn to_dict<'py>(py: Python<'py>, state: &State) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("version", STATE_VERSION)?;
    dict.set_item("seed", state.seed)?;
    dict.set_item("epoch", state.place.epoch())?;
    dict.set_item("taken", state.place.taken())?;
    dict.set_item("next_lane", state.place.next_lane())?;
    dict.set_item("batch_size", state.batch_size)?;
    dict.set_item("shuffle_buffer", state.terms.shuffle_buffer)?;
    dict.set_item("shuffle_shards", state.terms.shuffle_shards)?;
    dict.set_item("columns", state.terms.source.columns.as_ref())?;
    dict.set_item("rows", state.terms.source.rows)?;
    dict.set_item("shards", state.terms.source.shards.as_ref())?;
    dict.set_item("conversion", state.hashes.conversion)?;
    let hashes = state.hashes.digests.iter();
    let hashes: Vec<_> = hashes.map(|(shard, read)| (shard, read.samples, read.digest)).collect();
    // Lists, which JSON gives back as they are.
    let lists = hashes.into_iter().map(|hash| hash.into_pyobject(py)?.to_list().into_bound_py_any(py));
    dict.set_item("hashes", PyList::new(py, lists.collect::<PyResult<Vec<_>>>()?)?)?;
    let dictionaries = &state.hashes.dictionaries;
    if let Some(all) = dictionaries.all {
        dict.set_item(DICTIONARIES, all)?;
    }
    if dictionaries.each.len() > 1 && !dictionaries.is_empty() {
        dict.set_item(EACH_DICTIONARY, &dictionaries.each)?;
    }
    if state.of_others.batches > 0 {
        dict.set_item(OF_OTHERS, state.of_others.batches)?;
        if let Some(drop_last) = state.of_others.drop_last {
            dict.set_item(DROP_LAST, drop_last)?;
        }
    }
    Ok(dict)
}

/// The state of a dict.
///
/// # Errors
/// `ValueError` for a dict that is no state of this version.
pub(super) fn from_dict(dict: &Bound<'_, PyDict>) -> PyResult<State> {
    let version: u64 = item(dict, "version")?;
    if !(FIRST_VERSION..=STATE_VERSION).contains(&version) {
        let reason = format!(
            "the state is of version {version}, and this package reads versions {FIRST_VERSION} to {STATE_VERSION}; load it with \
             the version of arrow-dlpack that it was taken with"
        );
        return Err(PyValueError::new_err(reason));
    }
    let is_first = version == FIRST_VERSION;
    let source = SourceState {
        columns: item(dict, "columns")?,
        rows: item(dict, "rows")?,
        shards: if is_first { None } else { item(dict, "shards")? },
    };
    let terms = Terms {
        shuffle_buffer: item(dict, "shuffle_buffer")?,
        shuffle_shards: !is_first && item(dict, "shuffle_shards")?,
        source,
    };
    let (seed, epoch, batch_size) = (item(dict, "seed")?, item(dict, "epoch")?, item(dict, "batch_size")?);
    if is_first {
        // It counts batches of each rank, of an order of one lane.
        let (batches, world_size): (usize, usize) = (item(dict, "batches")?, item(dict, "world_size")?);
        let taken = batches.checked_mul(world_size).and_then(|batches| batches.checked_mul(batch_size));
        let taken =
            taken.ok_or_else(|| PyValueError::new_err("the state has more batches than rows can be counted"))?;
        let place = Place::after(epoch, vec![taken], 0)?;
        return Ok(State { seed, place, batch_size, of_others: OfOthers::default(), terms, hashes: Hashes::default() });
    }
    let place = Place::after(epoch, item(dict, "taken")?, item(dict, "next_lane")?)?;
    let digests: Vec<(usize, usize, u64)> = item(dict, "hashes")?;
    let digests = digests.into_iter().map(|(shard, samples, digest)| (shard, Digest { samples, digest })).collect();
    let dictionaries = DictionaryHashes {
        all: if dict.contains(DICTIONARIES)? { item(dict, DICTIONARIES)? } else { None },
        each: if dict.contains(EACH_DICTIONARY)? { item(dict, EACH_DICTIONARY)? } else { Vec::new() },
    };
    let hashes = Hashes { conversion: item(dict, "conversion")?, digests, dictionaries };
    let batches = if dict.contains(OF_OTHERS)? { item(dict, OF_OTHERS)? } else { 0 };
    let drop_last = if dict.contains(DROP_LAST)? { Some(item(dict, DROP_LAST)?) } else { None };
    let of_others = OfOthers { batches, drop_last };
    Ok(State { seed, place, batch_size, of_others, terms, hashes })
}

fn item<'py, T>(dict: &Bound<'py, PyDict>, key: &str) -> PyResult<T>
where
    T: for<'a> FromPyObject<'a, 'py>,
{
    let value = dict
        .get_item(key)?
        .ok_or_else(|| PyValueError::new_err(format!("the state has no {key:?}: it is not of a Loader")))?;
    let wrong = || {
        let told = |value| format!("the state's {key:?} cannot be {value}");
        error_about(dict.py(), value.str(), |value| PyValueError::new_err(told(value)))
    };
    // A bool passes for a number when it is extracted.
    let is_bool = |value: &Bound<'py, PyAny>| value.is_instance_of::<PyBool>();
    if is_bool(&value) && !["shuffle_shards", DROP_LAST].contains(&key) {
        return Err(wrong());
    }
    let value = match sequence(&value) {
        Some(items) if items.iter().any(is_bool) => return Err(wrong()),
        // JSON has lists where a tuple is extracted.
        Some(items) if key == "hashes" => {
            let tuple = |item: &Bound<'py, PyAny>| match sequence(item) {
                Some(parts) if parts.iter().any(is_bool) => Err(wrong()),
                Some(parts) => Ok(PyTuple::new(dict.py(), parts)?.into_any()),
                None => Ok(item.clone()),
            };
            items.iter().map(tuple).collect::<PyResult<Vec<_>>>()?.into_bound_py_any(dict.py())?
        }
        Some(items) => items.into_bound_py_any(dict.py())?,
        // Whatever length a sequence of another class claims, `extract` would allocate.
        None if value.cast::<PySequence>().is_ok() && !value.is_instance_of::<PyString>() => return Err(wrong()),
        None => value.clone(),
    };
    answer(dict.py(), value.extract().map_err(Into::into))?.ok_or_else(wrong)
}

/// Returns the items of a list or a tuple, as many as there are.
fn sequence<'py>(value: &Bound<'py, PyAny>) -> Option<Vec<Bound<'py, PyAny>>> {
    if let Ok(list) = value.cast::<PyList>() {
        return Some(list.iter().collect());
    }
    value.cast::<PyTuple>().ok().map(|tuple| tuple.iter().collect())
}
