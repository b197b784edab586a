//! The methods of the class `Loader`: an Arrow stream as training batches.

mod categories_of;
mod class;
mod exit;
mod iterator;
mod keywords;
mod opening;
mod pickled;
mod source;
mod sources;
mod statistics_of;
mod whole;

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::Arc;

use arrow_schema::{DataType, FieldRef};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};
use pyo3::wrap_pyfunction;

pub use class::Loader;
pub(super) use exit::{close_all, forget_ended};
pub use iterator::LoaderIterator;
use keywords::{LoadKeywords, Order, OrderKeywords, ShardingKeywords, number};
use sources::{FirstShard, Sources};

use super::categories::CategoryKeywords;
use super::counts::{self, word};
use super::exchange::{Access, Arrays, memory, namespace};
use super::options::{ElementKeywords, Legacy};
use super::selection::Columns;
use super::sources::{Known, Projection, name_of};
use crate::cuda::allocate_from;
use crate::loader::{Batches, Hashes, KnownState, Place, Progress, Sharding, Shuffle, SourceState, Terms};
use crate::spec::Conversion;

pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(categories_of::categories, module)?)?;
    module.add_function(wrap_pyfunction!(statistics_of::statistics, module)?)?;
    module.add_function(wrap_pyfunction!(_unpickle_loader, module)?)
}

fn too_late() -> PyErr {
    PyRuntimeError::new_err("the interpreter is going down, so no epoch can begin")
}

#[pymethods]
impl Loader {
    #[new]
    #[pyo3(signature = (source=None, *, batch_size, columns=None, dtype=None, nulls=None, decimal=None, dictionary=None, unit=None, length=None, categories=None, unknown=None, xp=None, device=None, allocator=None, shuffle_buffer=None, shuffle_bytes=None, seed=None, drop_last=false, prefetch=None, threads=None, rank=None, world_size=None, sources=None, lanes=None, shuffle_shards=None, readers=None, verify=None, worker=None), text_signature = "(source=None, *, batch_size, columns=None, dtype=None, nulls=\"error\", decimal=None, dictionary=None, unit=None, length=None, categories=None, unknown=\"error\", xp=None, device=None, allocator=None, shuffle_buffer=0, shuffle_bytes=None, seed=None, drop_last=False, prefetch=2, threads=None, rank=0, world_size=1, sources=None, lanes=1, shuffle_shards=None, readers=1, verify=\"replay\", worker=None)")]
    #[allow(clippy::too_many_arguments, reason = "one Python keyword each")]
    fn new(
        py: Python<'_>,
        source: Option<&Bound<'_, PyAny>>,
        batch_size: &Bound<'_, PyAny>,
        columns: Option<Columns>,
        dtype: Option<&Bound<'_, PyAny>>,
        nulls: Option<&Bound<'_, PyAny>>,
        decimal: Option<&Bound<'_, PyAny>>,
        dictionary: Option<&Bound<'_, PyAny>>,
        unit: Option<&Bound<'_, PyAny>>,
        length: Option<&Bound<'_, PyAny>>,
        categories: Option<&Bound<'_, PyAny>>,
        unknown: Option<&Bound<'_, PyAny>>,
        xp: Option<&Bound<'_, PyAny>>,
        device: Option<&Bound<'_, PyAny>>,
        allocator: Option<&Bound<'_, PyAny>>,
        shuffle_buffer: Option<&Bound<'_, PyAny>>,
        shuffle_bytes: Option<&Bound<'_, PyAny>>,
        seed: Option<&Bound<'_, PyAny>>,
        drop_last: bool,
        prefetch: Option<&Bound<'_, PyAny>>,
        threads: Option<&Bound<'_, PyAny>>,
        rank: Option<&Bound<'_, PyAny>>,
        world_size: Option<&Bound<'_, PyAny>>,
        sources: Option<&Bound<'_, PyAny>>,
        lanes: Option<&Bound<'_, PyAny>>,
        shuffle_shards: Option<bool>,
        readers: Option<&Bound<'_, PyAny>>,
        verify: Option<&str>,
        worker: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        memory::source(allocator)?;
        let xp = namespace(xp)?;
        Arrays::of(py, Legacy::default(), Access::AsMade, xp.as_ref())?;
        let sharding = ShardingKeywords { batch_size, drop_last, rank, world_size, worker }.read()?;
        let order = OrderKeywords { shuffle_buffer, shuffle_bytes, shuffle_shards, seed };
        let (order, seed) = order.read(py, sources.is_some(), sharding.world_size())?;
        let load = LoadKeywords { device, prefetch, readers }.read(sharding)?;
        let threads = threads.map(counts::threads).transpose()?;
        let groups = columns.as_ref().and_then(|columns| columns.groups(py));
        let elements = ElementKeywords { dtype, nulls, decimal, dictionary, unit, length };
        let mut conversion = elements.conversion(None, Some(true))?.select(Columns::whole(columns)).threads(threads);
        CategoryKeywords { categories, unknown }.read_into(&mut conversion)?;
        conversion.check_groups().and_then(|()| conversion.refuse_kept_nulls())?;
        let sources = Sources::new(py, source, sources)?;
        let lanes = checked_lanes(py, lanes, &sources, &conversion, (&sharding, &order))?;
        Ok(Self {
            sources,
            conversion,
            nulls: pickled::kept_nulls(nulls)?,
            groups,
            xp: xp.map(Bound::unbind),
            allocator: allocator.map(|allocator| allocator.clone().unbind()),
            load,
            verifies_all: keywords::verifies_all(verify)?,
            is_worker: worker.is_some(),
            progress: Arc::new(Progress::new(seed, sharding, order.buffer, Place::of_lanes(lanes))),
            order,
        })
    }

    /// Begins an epoch, or goes on with the one of a state that was loaded.
    fn __iter__(&self, py: Python<'_>) -> PyResult<LoaderIterator> {
        if super::attach::has_begun() {
            return Err(too_late());
        }
        self.refuse_torch_worker(py)?;
        let next = self.progress.next()?;
        let mut load = self.load.clone();
        let Order { buffer, bytes, permutes_shards } = self.order;
        load.shuffle = buffer.zip(next.seed).map(|(buffer, seed)| Shuffle { bytes, ..Shuffle::new(buffer, seed) });
        load.shuffle_shards = next.seed.filter(|_| permutes_shards);
        let counted = self.sources.counted(py)?;
        let first = self.sources.shards(&counted, &FirstShard::none()).first(&load, &next.place)?;
        let projection = Projection::of(&self.conversion);
        let opened = self.sources.open(py, first, &projection, &|unread| {
            self.terms_of(counted.clone(), unread.field, next.resumed.as_ref())?;
            Ok(Batches::check(unread.field, &self.conversion.clone().index(unread.index), &load)?)
        })?;
        let shards = self.sources.shards(&counted, &FirstShard::of(&opened, &projection, &self.conversion)?);
        let conversion = self.conversion.clone().index(opened.index);
        let mut terms = self.terms_of(counted, opened.whole(), next.resumed.as_ref())?;
        // Of a source that tells its rows, these were compared.
        let had = next.resumed.as_ref().and_then(|resumed| resumed.source.rows).filter(|_| terms.source.rows.is_none());
        let tell = opened.teller();
        let conversion_hash = Batches::conversion_hash(opened.stream.field(), &conversion)?;
        let dictionaries = next.hashes.dictionaries_of(conversion_hash);
        let mut hashes =
            Hashes { conversion: Some(conversion_hash), digests: BTreeMap::new(), dictionaries: dictionaries.clone() };
        if next.place.taken().iter().any(|taken| *taken > 0) {
            let compared = next.hashes.comparable(conversion_hash, self.verifies_all);
            hashes.digests = compared.map_err(|error| tell(py, error.into()))?;
        }
        let known = KnownState {
            batch_size: next.batch_size,
            of_others: Some(next.of_others),
            rows: terms.source.rows,
            had,
            digests: hashes.digests.clone(),
            dictionaries,
            all: self.verifies_all,
        };
        let memory = memory::source(self.allocator.as_ref().map(|allocator| allocator.bind(py)))?;
        let batches = py.detach(|| {
            let _memory = memory.map(allocate_from);
            Batches::resume(&shards, (first, opened.stream), &conversion, &load, &next.place, &known)
        });
        let batches = batches.map_err(|error| tell(py, error.into()))?;
        let batches = Arc::new(batches);
        exit::remember(&batches);
        if super::attach::has_begun() {
            // Perhaps too late to be found among those that are closed.
            py.detach(|| batches.close());
            return Err(too_late());
        }
        // For the states of an epoch that goes on with one, if the source does not tell it itself.
        terms.source.rows = terms.source.rows.or(had);
        let run = self.progress.begin(next, terms.source, hashes, batches.log().clone());
        let xp = self.xp.as_ref().map(|xp| xp.clone_ref(py));
        Ok(LoaderIterator::new(py, (batches, opened.held), &self.conversion.selection, xp, self.progress.clone(), run))
    }

    /// The number of batches of an epoch, where the source tells its rows.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let counted = self.sources.counted(py)?;
        match counted.rows {
            Some(_) if self.sources.is_list() => Ok(self
                .sources
                .shards(&counted, &FirstShard::none())
                .rounds(&self.load, &self.progress.first_place())?),
            Some(rows) => Ok(self.load.sharding.batches(rows)),
            None => {
                Err(PyTypeError::new_err("the source does not tell how many rows it has, so the loader has no length"))
            }
        }
    }

    /// True: whether there are batches is known when one is asked for, and a length may be known never.
    fn __bool__(&self) -> bool {
        true
    }

    /// Rows of a full batch.
    #[getter]
    fn batch_size(&self) -> usize {
        self.load.sharding.batch_size()
    }

    /// The epoch of the current iteration, or of the next `iter()`.
    #[getter]
    fn epoch(&self) -> u64 {
        self.progress.epoch()
    }

    /// How many rows of the epoch that ended last are in no batch of any rank; None before an epoch has ended, and
    /// after a state was loaded. Of several iterations at once the latest alone counts.
    #[getter]
    fn left_out(&self) -> Option<usize> {
        self.progress.left_out()
    }

    /// Sets the epoch of the next `iter()`. Each epoch has its own order. Keeps a loaded state of the same epoch.
    fn set_epoch(&self, epoch: &Bound<'_, PyAny>) -> PyResult<()> {
        self.progress.set_epoch(word("epoch", epoch)?);
        Ok(())
    }

    /// Returns the position of the iteration, as a dict that JSON can hold.
    ///
    /// `load_state_dict` of a loader with the same source, seed, shuffle_buffer and columns continues after the last
    /// batch that was handed out, also with another batch_size, world_size or drop_last.
    fn state_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        keywords::to_dict(py, &self.progress.state(self.terms_now(py)?))
    }

    /// Returns a dict that is equal for all ranks that read the same source with the same options and are in step.
    ///
    /// It has the options that determine the order, the columns, the number of rows, and hashes of the rows that
    /// were read: of the epoch that has just ended, or of the current one. A rank has the `hashes` of the shards that
    /// it has opened: compare those of two ranks that are of the same shard and number of samples.
    fn fingerprint<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = keywords::to_dict(py, &self.progress.fingerprint(self.terms_now(py)?))?;
        dict.set_item("world_size", self.load.sharding.world_size())?;
        dict.set_item("drop_last", self.load.sharding.drop_last())?;
        Ok(dict)
    }

    /// Restores a state of `state_dict`: the next `iter()` continues from there.
    ///
    /// Raises ConversionError (a ValueError) for a state of other options or of another source. `iter()` raises it
    /// if the difference shows only when the source is opened, and the first batch if its rows have changed.
    fn load_state_dict(&self, py: Python<'_>, state: &Bound<'_, PyAny>) -> PyResult<()> {
        let state = state.cast::<PyDict>().map_err(|_| {
            let found = name_of(state);
            PyTypeError::new_err(format!("the state must be a dict of state_dict(), not {found}"))
        })?;
        let state = keywords::from_dict(state)?;
        Ok(self.progress.load(state, &self.terms(py)?)?)
    }

    /// Pickles the source, the options and where the iteration stands: the loader of the pickle goes on as one that loaded the
    /// `state_dict()` of this one. Raises TypeError for a source that cannot be pickled.
    fn __reduce_ex__<'py>(&self, py: Python<'py>, protocol: u32) -> PyResult<Bound<'py, PyTuple>> {
        let _ = protocol;
        pickled::reduce(py, self, self.state_dict(py)?)
    }

    /// A loader of the same source object that stands where this one stands; `copy.deepcopy` copies the source too.
    fn __copy__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Self>> {
        let (source, options) = pickled::shared(py, self)?;
        made(source.as_ref(), &options, &self.state_dict(py)?)
    }

    /// `Loader[T]`, for annotations: T is the type of the batches.
    #[classmethod]
    #[pyo3(signature = (batch, /))]
    fn __class_getitem__<'py>(cls: &Bound<'py, PyType>, batch: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        cls.py().import("types")?.getattr("GenericAlias")?.call1((cls, batch))
    }

    /// Raises ValueError for a source that can be read once, and was: another loader of it would find no rows.
    fn _refuse_spent(&self, py: Python<'_>) -> PyResult<()> {
        self.sources.unread(py).map(drop)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.sources.traverse(&visit)?;
        visit.call(&self.nulls)?;
        visit.call(&self.groups)?;
        visit.call(&self.xp)?;
        visit.call(&self.allocator)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let sharding = &self.load.sharding;
        let rank = if sharding.world_size() == 1 {
            String::new()
        } else {
            format!(", rank={}, world_size={}", sharding.rank(), sharding.world_size())
        };
        let worker = match self.is_worker {
            true => format!(", worker=({}, {})", sharding.worker(), sharding.workers()),
            false => String::new(),
        };
        Ok(format!("Loader({}, batch_size={}{rank}{worker})", self.sources.name(py)?, sharding.batch_size()))
    }
}

/// The loader of a pickle: the constructor checks its options, and `load_state_dict` its state.
#[pyfunction]
fn _unpickle_loader<'py>(
    source: Option<Bound<'py, PyAny>>,
    options: &Bound<'py, PyDict>,
    state: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, Loader>> {
    made(source.as_ref(), options, state)
}

fn made<'py>(
    source: Option<&Bound<'py, PyAny>>,
    options: &Bound<'py, PyDict>,
    state: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, Loader>> {
    let py = options.py();
    let made = py.get_type::<Loader>().call((source,), Some(options))?.cast_into::<Loader>()?;
    made.get().load_state_dict(py, state)?;
    Ok(made)
}

/// Returns the lanes of sources that fit the options, as far as the sources tell what they hold before one is read.
///
/// # Errors
/// When they have no shards that lanes or their order could be of, or columns that the conversion does not take.
fn checked_lanes(
    py: Python<'_>,
    lanes: Option<&Bound<'_, PyAny>>,
    sources: &Sources,
    conversion: &Conversion,
    (sharding, order): (&Sharding, &Order),
) -> PyResult<NonZero<usize>> {
    let lanes = keywords::lanes(number("lanes", lanes, 1, 1)?, sources)?;
    sharding.check_lanes(lanes.get())?;
    if order.permutes_shards && !sources.is_list() {
        return Err(PyValueError::new_err("shuffle_shards permutes shards, and one source has none; pass sources="));
    }
    if sharding.world_size() > 1 {
        sources.warn_of_query(py)?;
    }
    sources.warn_of_lanes(py, lanes.get())?;
    match sources.columns(py)? {
        Some((Known::Type(field), index)) => Batches::check_type(&field, &conversion.clone().index(index))?,
        Some((Known::Names(field), _)) if !conversion.may_have_paths(&field) => conversion.check_names(&field)?,
        Some((Known::Names(_), _)) | None => {}
    }
    Ok(lanes)
}

impl Loader {
    /// Refuses to iterate in a worker process of torch's `DataLoader`, unless the loader is that worker's: each worker has a copy of
    /// the loader, and would read every batch.
    fn refuse_torch_worker(&self, py: Python<'_>) -> PyResult<()> {
        let modules = py.import("sys")?.getattr("modules")?.cast_into::<PyDict>()?;
        // Where it was not imported this is no worker of it.
        let Some(data) = modules.get_item("torch.utils.data")?.filter(|data| !data.is_none()) else { return Ok(()) };
        let Some(info) = data.getattr_opt("get_worker_info")? else { return Ok(()) };
        let info = info.call0()?;
        if info.is_none() {
            return Ok(());
        }
        let of_torch: (usize, usize) = (info.getattr("id")?.extract()?, info.getattr("num_workers")?.extract()?);
        if self.is_worker && of_torch == (self.load.sharding.worker(), self.load.sharding.workers()) {
            return Ok(());
        }
        Err(PyRuntimeError::new_err(
            "a Loader in a worker process of torch's DataLoader: each worker would read every batch, so that each came as often as \
             there are workers; pass num_workers=0 to the DataLoader: the Loader prepares batches ahead on a thread of its own, which \
             prefetch= and threads= set; or pass an arrow_dlpack.torch.LoaderDataset, which deals its batches to the workers",
        ))
    }

    fn terms_alone(&self) -> Terms {
        Terms::new(self.order.buffer.map_or(0, NonZero::get), self.order.permutes_shards)
    }

    /// What a state has to fit, with a source of this type and these counts.
    ///
    /// # Errors
    /// Where the options name other columns, or the epoch is that of a state of another source.
    fn terms_of(&self, counted: SourceState, field: &FieldRef, resumed: Option<&Terms>) -> PyResult<Terms> {
        self.conversion.check_columns(&*self.conversion.type_at_paths(field)?)?;
        let mut terms = Terms { source: counted, ..self.terms_alone() };
        if let DataType::Struct(fields) = field.data_type() {
            terms.source.columns = Some(fields.iter().map(|field| field.name().clone()).collect());
        }
        if let Some(resumed) = resumed {
            resumed.check(&terms)?;
        }
        Ok(terms)
    }

    /// What a state has to fit, as far as the source tells it without being opened.
    fn terms(&self, py: Python<'_>) -> PyResult<Terms> {
        Ok(Terms { source: self.sources.counted(py)?, ..self.terms_alone() })
    }

    /// As [`terms`](Self::terms), but of an epoch that has begun those that it began with: to count the rows of thousands of shards
    /// takes longer than a batch.
    fn terms_now(&self, py: Python<'_>) -> PyResult<Terms> {
        match self.progress.begun_source() {
            Some(source) => Ok(Terms { source, ..self.terms_alone() }),
            None => self.terms(py),
        }
    }
}
