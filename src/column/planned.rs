//! [`PlannedColumn`]: a column with its plan, and chunks that are ready to be read.

use std::num::NonZero;

use smallvec::{SmallVec, smallvec};

use super::chunk_ref::{ColumnRef, columns, readiness_of};
use super::device_lists::{DeviceLists, dense_on_device};
use super::dictionaries::{are_compared, shared_dictionary};
use super::host_reads::{read_nulls, refuse_known_on_device};
use super::runner::{Runner, run_step};
use crate::arrow::{DeviceArray, Validated};
use crate::convert::{self, Backend, ColumnChunk, ColumnTask, HostPass, check_column, what};
use crate::error::{Error, Result};
use crate::kernels::{Casts, DeviceBackend, column_placement, gathers_on, reads_lists_on, refuse_decoding};
use crate::plan::{ChunkSize, Placement, Plan};
use crate::spec::{CopyMode, Options, Spec};
use crate::stream_order::Readiness;
use crate::tensor::{Output, Tensor};
use crate::transfer::Facts;

/// What results of data on a device share, so that the host waits once for all of them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SharedReads<'a> {
    /// What the host has found out for all of them; `None`: each does for itself.
    pub(crate) facts: Option<&'a Facts>,
    /// Checks the values of their casts; `None`: each checks its own.
    pub(crate) casts: Option<&'a Casts>,
}

impl SharedReads<'_> {
    /// Returns the same for a result of these columns. A result with lists of one length reads its bitmaps by itself: where those of the
    /// items are is known only once the offsets are read.
    pub(crate) fn of<'b>(self, columns: impl IntoIterator<Item = &'b Spec>) -> Self {
        Self { facts: self.facts.filter(|_| !columns.into_iter().any(Spec::is_of_lists)), ..self }
    }

    /// Calls `work` with what does the steps of a plan: the host, or kernels where data on a device is written by `readiness`.
    pub(crate) fn with_backend<R>(self, readiness: Option<&Readiness>, work: impl FnOnce(&dyn Backend) -> R) -> R {
        match readiness {
            None => work(&HostPass),
            Some(readiness) => work(&DeviceBackend { readiness, facts: self.facts, casts: self.casts }),
        }
    }
}

/// A column that is about to be made: what will be done is decided, and no value was read.
pub(crate) struct PlannedColumn<'a> {
    spec: &'a Spec,
    copy: CopyMode,
    plan: Plan,
    chunks: SmallVec<[ColumnChunk<'a>; 1]>,
    /// Of data on a device: when it is written.
    readiness: Option<&'a Readiness>,
}

impl<'a> PlannedColumn<'a> {
    /// Plans chunks that [`decode_column`] has decoded where they have to be. Reads bitmaps of host memory, and no memory of a device.
    ///
    /// # Errors
    /// As [`Plan::new`]; when an array breaks the Arrow format.
    #[inline]
    pub(crate) fn new(spec: &'a Spec, columns: &[ColumnRef<'a>], options: &Options) -> Result<Self> {
        let copy = options.copy;
        // Most columns have one chunk, and their conversion takes about as long as a collection does.
        if let [only] = columns
            && only.array.readiness().is_none()
        {
            let chunk = only.chunk(spec)?;
            let plan = Plan::new(spec, &[chunk.size(spec)], options, Placement::Host)?;
            return Ok(Self { spec, copy, plan, chunks: smallvec![chunk], readiness: None });
        }
        let chunks = read_chunks(spec, columns)?;
        let sizes = chunks.iter().zip(columns);
        let size = |(chunk, column): (&ColumnChunk<'_>, &ColumnRef<'_>)| ChunkSize {
            continues: column.continues,
            ..chunk.size(spec)
        };
        let mut sizes: SmallVec<[ChunkSize; 1]> = sizes.map(size).collect();
        let readiness = readiness_of(columns);
        if readiness.is_some() && are_compared(spec, &chunks) {
            sizes.iter_mut().for_each(|size| size.unread.dictionary = true);
        }
        let placement = readiness.map_or(Placement::Host, |readiness| column_placement(spec, &chunks, readiness));
        let plan = Plan::new(spec, &sizes, options, placement).or_else(|error| {
            // A copy that is allowed would be refused for other dictionaries.
            let is_on_host = placement == Placement::Host;
            is_on_host.then(|| shared_dictionary(spec, &chunks)).transpose()?;
            Err(error)
        })?;
        Ok(Self { spec, copy, plan, chunks, readiness })
    }

    /// When a copy may be made.
    pub(crate) fn copy(&self) -> CopyMode {
        self.copy
    }

    /// What will be done.
    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The chunks.
    fn chunks(&self) -> &[ColumnChunk<'_>] {
        &self.chunks
    }

    /// Refuses the null or the value in the lowest row that [`PlannedColumn::run`] would refuse, of data in host memory.
    pub(super) fn check_values(&self) -> Result<()> {
        check_column(self.spec, self.chunks())
    }

    /// Refuses what [`PlannedColumn::run`] would refuse, as far as is known before a value or memory of a device is read: nulls, and
    /// chunks with different dictionaries.
    pub(crate) fn check(&self) -> Result<()> {
        if self.plan.placement == Placement::Host {
            shared_dictionary(self.spec, self.chunks())?;
            convert::check_nulls(self.spec, self.chunks())
        } else {
            self.chunks.iter().try_for_each(|chunk| refuse_known_on_device(self.spec, &chunk.leaf))
        }
    }

    /// What a backend makes the column of.
    fn task(&self) -> ColumnTask<'_> {
        ColumnTask { spec: self.spec, plan: &self.plan, chunks: &self.chunks }
    }

    /// Reads which elements on a device are null, where only its memory tells whether a null is refused. The host waits for it.
    fn read_nulls(&mut self, shared: SharedReads<'_>) -> Result<()> {
        if self.plan.placement != Placement::Host {
            for chunk in &mut self.chunks {
                chunk.mask = read_nulls(self.spec, chunk, shared.facts)?;
            }
        }
        Ok(())
    }

    /// The tensor, of shape `(rows, *inner)`; its last step is run by `runner`.
    ///
    /// # Errors
    /// For a null that is refused, a value that a cast cannot take, and chunks with different dictionaries; when an allocation fails.
    #[inline]
    pub(crate) fn run(&mut self, shared: SharedReads<'_>, runner: &Runner<'_>) -> Result<Tensor> {
        self.read_nulls(shared)?;
        let dictionary = shared_dictionary(self.spec, self.chunks())?;
        let this = &*self;
        let convert = |backend: &dyn Backend| convert::run(this.task(), this.copy, backend);
        let tensor = run_step(runner, this.plan.bytes, || shared.with_backend(this.readiness, convert));
        let all_valid = || !this.chunks.iter().any(ColumnChunk::may_have_nulls);
        Ok(match (convert::vocabulary(this.spec)?, dictionary) {
            (Some(categories), _) => tensor?.with_categories(categories, all_valid()),
            (None, Some(dictionary)) => tensor?.with_dictionary(dictionary, all_valid()),
            (None, None) => tensor?,
        })
    }

    /// The same column, which is written into memory that is there.
    pub(crate) fn into_output(mut self) -> Self {
        self.plan = self.plan.into_output(self.spec.dtype().itemsize());
        self
    }

    /// Writes the column into memory that is there, of its shape and dtype.
    ///
    /// # Errors
    /// As [`PlannedColumn::run`]; when `out` does not fit.
    pub(super) fn write(mut self, out: &mut Output<'_>, threads: Option<NonZero<usize>>) -> Result<()> {
        self.read_nulls(SharedReads::default())?;
        shared_dictionary(self.spec, self.chunks())?;
        convert::check_nulls(self.spec, self.chunks())?;
        let this = self.into_output();
        SharedReads::default()
            .with_backend(this.readiness, |backend| backend.write_column(this.task(), out, threads))?;
        this.plan.record(|| what(this.spec, this.plan.rows));
        Ok(())
    }
}

/// The chunks, with the nulls of host memory.
///
/// # Errors
/// When an array breaks the Arrow format.
pub(crate) fn read_chunks<'a>(spec: &Spec, columns: &[ColumnRef<'a>]) -> Result<SmallVec<[ColumnChunk<'a>; 1]>> {
    let mut before = 0_usize;
    let chunk = |chunk: &ColumnRef<'a>| {
        let made = chunk.chunk(spec).map_err(|error| error.behind(before));
        // Values without bytes need no memory, so that rows of many chunks may be more than `usize` counts: the plan refuses them.
        before = before.saturating_add(chunk.rows());
        made
    };
    columns.iter().map(chunk).collect()
}

/// The chunks of a column that are read in place of the stored ones.
#[derive(Debug)]
pub(crate) struct DecodedColumn {
    /// The chunks: decoded, or as fixed-size lists over the stored items.
    pub(crate) chunks: Vec<DeviceArray>,
    /// The spec of the fixed-size lists; `None` for decoded chunks, which the column's own spec describes.
    pub(crate) spec: Option<Spec>,
}

/// The chunks of a column with runs, or a dictionary's values, written out, or lists of one length as fixed-size lists; `None` where they
/// are read as they are stored.
///
/// # Errors
/// When no copy is allowed, before anything is decoded; for a list of another length; of data on a device, unless kernels decode it where
/// they convert.
pub(crate) fn decode_column(
    spec: &Spec,
    columns: &[ColumnRef<'_>],
    options: &Options,
) -> Result<Option<DecodedColumn>> {
    let Some(field) = spec.decoded() else { return Ok(None) };
    if let Some(readiness) = readiness_of(columns) {
        let device = readiness.device();
        return match spec.of_dense_lists().filter(|_| reads_lists_on(spec, device)) {
            _ if gathers_on(spec, device) => Ok(None),
            Some(own) => Ok(Some(DecodedColumn { chunks: lists_of_device(spec, columns)?, spec: Some(own) })),
            None => Err(refuse_decoding(spec, readiness)),
        };
    }
    let lowest = |error| lowest_error(spec, columns, error);
    if let Some(dense) = dense_column(spec, columns).map_err(lowest)? {
        return Ok(Some(dense));
    }
    if options.copy == CopyMode::Never {
        let sizes = columns.iter().map(ColumnRef::uncounted).collect::<Vec<_>>();
        Plan::new(spec, &sizes, options, Placement::Host)?;
    }
    let known = Validated::default();
    let chunks = in_order(columns, |chunk| chunk.decode(spec, field, &known).map(Some)).map_err(lowest)?;
    Ok(chunks.map(|chunks| DecodedColumn { chunks, spec: None }))
}

/// The error of decoding, or one in a lower row: of decoding those before, a null or a value.
pub(crate) fn lowest_error(spec: &Spec, columns: &[ColumnRef<'_>], error: Error) -> Error {
    let arrays: Result<Vec<DeviceArray>> = columns.iter().map(ColumnRef::whole_array).collect();
    let (Some(row), Ok(arrays), Some(field)) = (error.row(), arrays, spec.decoded()) else { return error };
    let before = DeviceArray::first_rows(&arrays, row);
    let before: Vec<_> = before.iter().map(ColumnRef::whole).collect();
    let known = Validated::default();
    let decoded = in_order(&before, |chunk| chunk.decode(spec, field, &known).map(Some));
    let check = || with_planned(spec, &before, &Options::default(), |planned| planned.check_values());
    let checked = decoded.and_then(|_| check());
    checked.err().filter(|lower| lower.is_lower_than(&error)).unwrap_or(error)
}

/// Chunks of lists whose items follow each other, as fixed-size lists; `None` if those of a chunk do not, or the items are decoded.
fn dense_column(spec: &Spec, columns: &[ColumnRef<'_>]) -> Result<Option<DecodedColumn>> {
    let Some(own) = spec.of_dense_lists() else { return Ok(None) };
    let chunks = in_order(columns, |chunk| chunk.dense(spec))?;
    Ok(chunks.map(|chunks| DecodedColumn { chunks, spec: Some(own) }))
}

/// The chunks of lists on a device as fixed-size lists.
fn lists_of_device(spec: &Spec, columns: &[ColumnRef<'_>]) -> Result<Vec<DeviceArray>> {
    let mut rows = 0_usize;
    let lists = columns.iter().map(|chunk| {
        let first_row = rows;
        rows = rows.saturating_add(chunk.rows());
        Ok(DeviceLists { array: chunk.whole_array()?, spec, first_row })
    });
    dense_on_device(&lists.collect::<Result<Vec<_>>>()?)
}

/// Calls `make` with each chunk until it returns `None`, and then returns `None`; else returns all results. Rows in errors count from the
/// first chunk.
fn in_order(
    columns: &[ColumnRef<'_>],
    make: impl Fn(&ColumnRef<'_>) -> Result<Option<DeviceArray>>,
) -> Result<Option<Vec<DeviceArray>>> {
    let mut before = 0_usize;
    let made = columns.iter().map(|chunk| {
        let made = make(chunk).map_err(|error| error.behind(before)).transpose();
        before = before.saturating_add(chunk.rows());
        made
    });
    made.collect::<Option<Result<Vec<_>>>>().transpose()
}

/// Calls `work` with the planned column, decoded where it has to be.
///
/// # Errors
/// As [`decode_column`], [`PlannedColumn::new`] and `work`.
pub(crate) fn with_planned<R>(
    spec: &Spec,
    chunks: &[ColumnRef<'_>],
    options: &Options,
    work: impl FnOnce(PlannedColumn<'_>) -> Result<R>,
) -> Result<R> {
    match decode_column(spec, chunks, options)? {
        None => work(PlannedColumn::new(spec, chunks, options)?),
        Some(decoded) => {
            work(PlannedColumn::new(decoded.spec.as_ref().unwrap_or(spec), &columns(&decoded.chunks), options)?)
        }
    }
}
