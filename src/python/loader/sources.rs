//! What a loader reads: one source, or several as shards with their numbers of rows.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Arc;

use arrow_schema::FieldRef;
use pyo3::exceptions::{PyTypeError, PyUserWarning, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use super::source::LoaderSource;
use crate::arrow::DeviceArrayStream;
use crate::error::{Counted, Error, ErrorKind, Result};
use crate::loader::{Shards, SourceState, other_schema};
use crate::python::arrow_input::Refuses;
use crate::python::attach::attached;
use crate::python::counts::count;
use crate::python::errors::{of_item, of_shard};
use crate::python::sources::{Known, Opened, Projection, raised};
use crate::spec::{Conversion, PandasIndex};

/// One source, or shards.
#[derive(Debug)]
pub(super) struct Sources {
    shards: Arc<Vec<Shard>>,
    /// The items of `sources=`, for a pickle; `None` for one source.
    items: Option<Py<PyList>>,
}

#[derive(Debug)]
struct Shard {
    source: LoaderSource,
    /// The rows that the caller told.
    told: Option<usize>,
}

/// What the shard that was opened first says of all others.
#[derive(Clone, Debug)]
pub(super) struct FirstShard {
    /// The columns that are read of each shard: all, if all were read of the first one.
    projection: Projection<'static>,
    /// The type of all columns, where not all are read: those who read the shards do not see them.
    whole: Option<FieldRef>,
}

impl FirstShard {
    /// No shard was opened.
    pub(super) fn none() -> Self {
        Self { projection: Projection::All, whole: None }
    }

    /// # Errors
    /// For paths that lead to no field.
    pub(super) fn of(opened: &Opened, projection: &Projection<'_>, conversion: &Conversion) -> Result<Self> {
        let Some(whole) = &opened.whole else { return Ok(Self::none()) };
        // Shards of which fields are named by path may differ in other columns.
        let whole = conversion.paths(whole)?.is_none().then(|| whole.clone());
        Ok(Self { projection: projection.shared(), whole })
    }

    /// The stream of another shard, with the columns that were read of the first one.
    ///
    /// # Errors
    /// If the shards have other columns, whether they are read or not.
    fn fitted(&self, opened: Opened) -> Result<DeviceArrayStream> {
        let opened = opened.narrowed(&self.projection);
        let other = self.whole.as_ref().and_then(|whole| other_schema(opened.whole(), whole));
        other.map_or(Ok(opened.stream), Err)
    }
}

impl Sources {
    /// # Errors
    /// `TypeError` if both are given, and for an object that is no source, such as None; `ValueError` for no shards.
    pub(super) fn new(
        py: Python<'_>,
        source: Option<&Bound<'_, PyAny>>,
        sources: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        match (source, sources) {
            (Some(source), None) if are_pairs(source)? => Err(PyTypeError::new_err(
                "the source is a list of (source, rows), which are shards; pass it as sources=",
            )),
            (source, None) => {
                let none = py.None().into_bound(py);
                let source = LoaderSource::new(source.unwrap_or(&none))?;
                Ok(Self { shards: Arc::new(vec![Shard { source, told: None }]), items: None })
            }
            (None, Some(sources)) => Self::of_items(sources),
            (Some(_), Some(_)) => Err(PyTypeError::new_err("Loader() takes a source or sources=, and not both")),
        }
    }

    /// One source, or the shards of a list of (source, rows), for a function that reads all of it.
    ///
    /// # Errors
    /// As [`Sources::new`].
    pub(super) fn of_one_or_shards(py: Python<'_>, source: &Bound<'_, PyAny>) -> PyResult<Self> {
        if are_pairs(source)? { Self::of_items(source) } else { Self::new(py, Some(source), None) }
    }

    fn of_items(sources: &Bound<'_, PyAny>) -> PyResult<Self> {
        if !sources.is_instance_of::<PyList>() && !sources.is_instance_of::<PyTuple>() {
            let found = sources.get_type().name()?;
            let reason = format!("sources must be a list of sources or of (source, rows), not {found}; pass [source]");
            return Err(PyTypeError::new_err(reason));
        }
        let items: Vec<Bound<'_, PyAny>> = sources.try_iter()?.collect::<PyResult<_>>()?;
        if items.is_empty() {
            return Err(PyValueError::new_err("sources has no shard; pass one source or more"));
        }
        let shard = |(number, item)| Shard::new(item).map_err(|error| of_item(sources.py(), error, number));
        let mut shards = items.iter().enumerate().map(shard).collect::<PyResult<Vec<_>>>()?;
        refuse_one_reader_twice(sources.py(), &shards)?;
        share_turns(&mut shards);
        Ok(Self { shards: Arc::new(shards), items: Some(PyList::new(sources.py(), items)?.unbind()) })
    }

    /// Whether these are shards.
    pub(super) fn is_list(&self) -> bool {
        self.items.is_some()
    }

    /// How many shards there are.
    pub(super) fn len(&self) -> usize {
        self.shards.len()
    }

    fn get(&self, shard: usize) -> PyResult<&Shard> {
        self.shards.get(shard).ok_or_else(|| PyValueError::new_err(format!("there is no shard {shard}")))
    }

    /// The rows that the caller told of a shard.
    pub(super) fn told(&self, shard: usize) -> Option<usize> {
        self.shards.get(shard)?.told
    }

    /// The stream of a shard, as [`LoaderSource::open`].
    pub(super) fn open(
        &self,
        py: Python<'_>,
        shard: usize,
        projection: &Projection<'_>,
        refuses: Refuses<'_>,
    ) -> PyResult<Opened> {
        let opened = self.get(shard)?.source.open(py, projection, refuses, &|| Ok(()));
        opened.map_err(|error| if self.len() > 1 { of_shard(py, error, shard) } else { error })
    }

    /// The shards of these [counts](Self::counted), which have the schema of the first one. They are opened on the threads that read them.
    pub(super) fn shards(&self, counted: &SourceState, first: &FirstShard) -> Shards {
        // One source is opened once, by iter(). The iteration does not hold it, so that a cycle through it can be collected.
        let Some(rows) = counted.shards.clone() else { return Shards::of_stream(None) };
        let (shards, first) = (self.shards.clone(), first.clone());
        Shards::opened_by(rows, move |shard, stop| {
            let open = |py: Python<'_>| {
                let shard = shards.get(shard).ok_or_else(|| Error::internal("there is no such shard"))?;
                let opened = shard.source.open(py, &first.projection, &|_| Ok(()), stop);
                first.fitted(opened.map_err(|error| raised(py, error))?)
            };
            let gone = || Error::new(ErrorKind::Producer, "the interpreter is going down, and no shard can be opened");
            attached(open).unwrap_or_else(|| Err(gone()))
        })
    }

    /// What is known of the columns, as [`LoaderSource::columns`].
    pub(super) fn columns(&self, py: Python<'_>) -> PyResult<Option<(Known, PandasIndex)>> {
        self.get(0)?.source.columns(py)
    }

    /// How many rows there are, and each shard has, as far as that is known. Asks each source once.
    ///
    /// # Errors
    /// As [`LoaderSource::rows`].
    pub(super) fn counted(&self, py: Python<'_>) -> PyResult<SourceState> {
        let shards = self.shards.iter().map(|shard| shard.rows(py)).collect::<PyResult<Vec<_>>>()?;
        Ok(SourceState { columns: None, rows: total(&shards), shards: self.is_list().then_some(shards) })
    }

    /// Warns of a query, as [`LoaderSource::warn_of_query`].
    pub(super) fn warn_of_query(&self, py: Python<'_>) -> PyResult<()> {
        self.shards.iter().try_for_each(|shard| shard.source.warn_of_query(py))
    }

    /// Warns of more lanes than rows: one without a row ends each epoch before its first batch.
    ///
    /// # Errors
    /// As [`LoaderSource::rows`]; the warning, if the filters make it an error.
    pub(super) fn warn_of_lanes(&self, py: Python<'_>, lanes: usize) -> PyResult<()> {
        let rows = if lanes > 1 { self.counted(py)?.rows } else { None };
        let Some(rows) = rows.filter(|rows| (1..lanes).contains(rows)) else { return Ok(()) };
        let few = if rows == 1 { "1 row is".to_owned() } else { format!("{rows} rows are") };
        let message = format!(
            "no epoch has a batch, because {few} too few for {lanes} lanes: an epoch ends at the first lane without a row. \
             Pass fewer lanes=."
        );
        PyErr::warn(py, &py.get_type::<PyUserWarning>(), &CString::new(message)?, 1)
    }

    /// The object of one source, or the list of shards, for another loader.
    ///
    /// # Errors
    /// As [`LoaderSource::unread`].
    pub(super) fn unread<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        for shard in &*self.shards {
            shard.source.unread(py)?;
        }
        match &self.items {
            Some(items) => Ok(items.bind(py).clone().into_any()),
            None => Ok(self.get(0)?.source.unread(py)?.clone()),
        }
    }

    /// The objects that are read, and are not called for what is read.
    pub(super) fn data<'a, 'py>(&'a self, py: Python<'py>) -> PyResult<Vec<&'a Bound<'py, PyAny>>> {
        let data = self.shards.iter().filter(|shard| !shard.source.is_callable());
        data.map(|shard| shard.source.unread(py)).collect()
    }

    /// Whether two loaders can read them.
    pub(super) fn is_read_again(&self, py: Python<'_>) -> PyResult<bool> {
        for shard in &*self.shards {
            if !shard.source.is_read_again(py)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The name of the type of one source, or how many shards there are.
    pub(super) fn name(&self, py: Python<'_>) -> PyResult<String> {
        match self.is_list() {
            true => Ok(Counted(self.len(), "shard").to_string()),
            false => self.get(0)?.source.name(py),
        }
    }

    pub(super) fn traverse(&self, visit: &PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
        // An iteration that has the shards too would lose them to the collector, which does not see it.
        if Arc::strong_count(&self.shards) == 1 {
            self.shards.iter().try_for_each(|shard| shard.source.traverse(visit))?;
        }
        visit.call(&self.items)
    }
}

/// Has shards of one object opened one after the other: two threads that open one ParquetFile of pyarrow at once crash it.
fn share_turns(shards: &mut [Shard]) {
    let mut first = HashMap::with_capacity(shards.len());
    for number in 0..shards.len() {
        let (before, rest) = shards.split_at_mut(number);
        let Some(shard) = rest.first_mut() else { return };
        let known = *first.entry(shard.source.identity()).or_insert(number);
        if let Some(known) = before.get(known) {
            shard.source.shares_turns_of(&known.source);
        }
    }
}

/// Refuses an object that is two of the shards, and can be read once: the second shard would have no rows.
///
/// # Errors
/// `ValueError` if there is one.
fn refuse_one_reader_twice(py: Python<'_>, shards: &[Shard]) -> PyResult<()> {
    let mut known = HashMap::with_capacity(shards.len());
    for (number, shard) in shards.iter().enumerate() {
        if let Some(first) = known.insert(shard.source.identity(), number)
            && !shard.source.is_read_again(py)?
        {
            let name = shard.source.name(py)?;
            return Err(PyValueError::new_err(format!(
                "shards {first} and {number} are one {name}, which can be read once: the second would have no rows; pass it \
                 once, or callables that open it"
            )));
        }
    }
    Ok(())
}

/// The sum of numbers of rows; `None` if one is not known.
fn total(rows: &[Option<usize>]) -> Option<usize> {
    rows.iter().try_fold(0_usize, |all, rows| all.checked_add((*rows)?))
}

/// Whether an object is a list of (source, rows), which is no source: the numbers are no data.
fn are_pairs(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    if !object.is_instance_of::<PyList>() && !object.is_instance_of::<PyTuple>() {
        return Ok(false);
    }
    let mut are_pairs = false;
    for item in object.try_iter()? {
        if pair(&item?)?.is_none() {
            return Ok(false);
        }
        are_pairs = true;
    }
    Ok(are_pairs)
}

/// A source and its number of rows or None, if an item is a pair of these.
fn pair<'py>(item: &Bound<'py, PyAny>) -> PyResult<Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
    let Ok(pair) = item.cast::<PyTuple>() else { return Ok(None) };
    let (2, Ok(source), Ok(rows)) = (pair.len(), pair.get_item(0), pair.get_item(1)) else { return Ok(None) };
    Ok((rows.is_none() || rows.hasattr("__index__")?).then_some((source, rows)))
}

impl Shard {
    /// A source, or a pair of it and its number of rows, if that is known.
    fn new(item: &Bound<'_, PyAny>) -> PyResult<Self> {
        let Some((source, rows)) = pair(item)? else {
            return Ok(Self { source: LoaderSource::new(item)?, told: None });
        };
        let told = if rows.is_none() { None } else { Some(count("the rows of a shard", &rows, 0)?) };
        Ok(Self { source: LoaderSource::new(&source)?, told })
    }

    fn rows(&self, py: Python<'_>) -> PyResult<Option<usize>> {
        match self.told {
            None => self.source.rows(py),
            told => Ok(told),
        }
    }
}
