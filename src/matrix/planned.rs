//! [`PlannedMatrix`]: a matrix with its plan, and chunks that are ready to be read.

use std::ops::Range;

use super::chunk::{MatrixChunk, all_columns};
use crate::arrow::{DeviceArray, Validated};
use crate::column::{
    Runner, SharedReads, are_compared, read_nulls, refuse_known_on_device, run_step, shared_dictionary,
};
use crate::convert::{
    Backend, ColumnChunk, MatrixColumns, MatrixTask, check_matrix, check_matrix_nulls, empty_matrix, view_matrix,
};
use crate::error::{Counted, Error, Result};
use crate::kernels::matrix_placement;
use crate::plan::{ChunkSize, MatrixData, Placement, Plan};
use crate::spec::{CopyMode, Element, MatrixOptions, MatrixSpec, MemoryOrder, Nulls, Spec};
use crate::stream_order::{self, Readiness};
use crate::tensor::{Output, Tensor};
use crate::transfer::{Facts, Unknowns};

/// The chunks of a matrix, decoded where they have to be.
///
/// # Errors
/// As [`MatrixChunk::on_any_device`]; under [`CopyMode::Never`] where something would have to be decoded.
pub(crate) fn decode_chunks(
    spec: &MatrixSpec,
    chunks: &[DeviceArray],
    options: &MatrixOptions,
) -> Result<Vec<MatrixChunk>> {
    if options.copy == CopyMode::Never && spec.is_decoded() {
        // Refused before anything is decoded.
        let rows = DeviceArray::rows_of(chunks);
        Plan::matrix(spec, MatrixData { rows, chunks: 1, ..MatrixData::default() }, options)?;
    }
    decode_each(spec, chunks, &Validated::default())
}

/// The error of decoding, or one in a lower row: of decoding those before, a null or a value.
fn lowest_error(spec: &MatrixSpec, chunks: &[DeviceArray], error: Error) -> Error {
    let Some(row) = error.row().filter(|_| DeviceArray::readiness_of(chunks).is_none()) else { return error };
    let before = DeviceArray::first_rows(chunks, row);
    let checked = decode_in_turn(spec, &before, &Validated::default()).and_then(|before| check_decoded(spec, &before));
    checked.err().filter(|lower| lower.is_lower_than(&error)).unwrap_or(error)
}

/// As [`decode_chunks`], where copies are allowed.
pub(super) fn decode_each(spec: &MatrixSpec, chunks: &[DeviceArray], known: &Validated) -> Result<Vec<MatrixChunk>> {
    decode_in_turn(spec, chunks, known).map_err(|error| lowest_error(spec, chunks, error))
}

fn decode_in_turn(spec: &MatrixSpec, chunks: &[DeviceArray], known: &Validated) -> Result<Vec<MatrixChunk>> {
    let mut before = 0_usize;
    let decode = |chunk: &DeviceArray| {
        let decoded = MatrixChunk::on_any_device(spec, chunk, known).map_err(|error| error.behind(before));
        before = before.saturating_add(chunk.len());
        decoded
    };
    chunks.iter().map(decode).collect()
}

/// Refuses the null or the value in the lowest row that a conversion of chunks in host memory would refuse.
pub(super) fn check_matrix_rows(spec: &MatrixSpec, chunks: &[DeviceArray], options: &MatrixOptions) -> Result<()> {
    check_decoded(spec, &decode_chunks(spec, chunks, options)?)
}

fn check_decoded(spec: &MatrixSpec, chunks: &[MatrixChunk]) -> Result<()> {
    check_matrix(spec, &all_columns(spec, chunks)?.0)
}

/// The chunks of the column at this position.
fn column_of<'b, 'a: 'b>(chunks: &'b [MatrixColumns<'a>], index: usize) -> impl Iterator<Item = &'b ColumnChunk<'a>> {
    chunks.iter().filter_map(move |chunk| chunk.columns.get(index))
}

/// What a plan needs to know of all chunks of a column together.
fn column_size(chunks: &[MatrixColumns<'_>], index: usize, spec: &Spec) -> ChunkSize {
    let sizes = column_of(chunks, index).map(|chunk| chunk.size(spec));
    let mut size = sizes.fold(ChunkSize::without_nulls(0), ChunkSize::and);
    size.unread.dictionary = are_compared(spec, column_of(chunks, index));
    size
}

/// A matrix that is about to be made: what will be done is decided, and no value was read.
pub(crate) struct PlannedMatrix<'a> {
    spec: &'a MatrixSpec,
    arrays: &'a [MatrixChunk],
    chunks: Vec<MatrixColumns<'a>>,
    options: &'a MatrixOptions,
    plan: Plan,
    /// The chunk that is the matrix as it lies, and the bytes from one column to the next.
    view: Option<(usize, usize)>,
    /// Whether no column has nulls or codes.
    is_plain: bool,
    data: MatrixData,
    /// Of data on a device: when it is written.
    readiness: Option<&'a Readiness>,
    /// Whether all that only the memory of a device tells was read.
    is_read: bool,
}

impl<'a> PlannedMatrix<'a> {
    /// Plans decoded chunks. Reads bitmaps of host memory, and no memory of a device.
    ///
    /// # Errors
    /// When a copy is needed and not allowed, chunks in host memory have different dictionaries, or an array breaks the Arrow format.
    pub(crate) fn new(spec: &'a MatrixSpec, arrays: &'a [MatrixChunk], options: &'a MatrixOptions) -> Result<Self> {
        let (chunks, rows) = all_columns(spec, arrays)?;
        let readiness = DeviceArray::readiness_of(arrays.iter().map(MatrixChunk::array));
        let placement = readiness.map_or(Placement::Host, |readiness| matrix_placement(spec, &chunks, readiness));
        let mut data = MatrixData { rows, placement, ..MatrixData::default() };
        let shared = arrays.iter().map(|chunk| chunk.shared_bytes(spec));
        data.shared_bytes = shared.fold(0, usize::saturating_add);
        // Small chunks take about as long as looking for what most do not have.
        let is_plain = chunks.iter().all(|chunk| chunk.is_plain);
        for (index, (_, column)) in spec.columns().iter().enumerate().filter(|_| !is_plain) {
            let size = column_size(&chunks, index, column);
            data.unread.null_values |= size.unread.null_values && column.nulls() != Nulls::Refused;
            data.unread.dictionary |= size.unread.dictionary;
            match column.nulls() {
                Nulls::Filled(_) => {
                    data.filled = data.filled.saturating_add(size.nulls);
                    data.is_uncounted |= !size.is_counted;
                }
                Nulls::Refused => data.unread.bitmaps |= size.unread.bitmaps,
                Nulls::Kept => {}
            }
            if column.has_codes() && placement == Placement::Host {
                shared_dictionary(column, column_of(&chunks, index))?;
            }
        }
        let mut view = None;
        for (number, chunk) in chunks.iter().enumerate().filter(|(_, chunk)| chunk.rows > 0) {
            data.chunks += 1;
            let stride = if !options.is_written && data.chunks == 1 { chunk.column_stride(spec) } else { None };
            view = stride.map(|stride| (number, stride));
        }
        if let Some((_, stride)) = view {
            data.is_column_major = true;
            data.is_row_major = spec.columns().len() == 1 || (rows == 1 && stride == spec.dtype().itemsize());
        }
        let plan = Plan::matrix(spec, data, options)?;
        view = view.filter(|_| plan.bytes == 0 || plan.steps.iter().all(|step| step.at_most));
        let is_read = readiness.is_none();
        Ok(Self { spec, arrays, chunks, options, plan, view, is_plain, data, readiness, is_read })
    }

    /// Reads what only the memory of a device tells: which elements are null, where nulls are refused, and whether a view is one piece
    /// of memory, which decides if it is one. The host waits for bitmaps.
    ///
    /// # Errors
    /// When the driver fails, or the memory is not what the arrays say; when a copy is needed after all, and not allowed.
    fn read_device(&mut self, facts: Option<&Facts>) -> Result<()> {
        let Some(readiness) = self.readiness.filter(|_| !self.is_read) else { return Ok(()) };
        if let Some(chunk) = self.view.and_then(|(number, _)| self.chunks.get(number))
            && !is_one_piece(self.spec, chunk, readiness.device())?
        {
            let data = MatrixData { is_row_major: false, is_column_major: false, ..self.data };
            (self.view, self.plan) = (None, Plan::matrix(self.spec, data, self.options)?);
        }
        if !self.is_plain {
            self.chunks.iter_mut().try_for_each(|chunk| read_nulls_of(self.spec, chunk, facts))?;
            for (index, (_, column)) in self.spec.columns().iter().enumerate() {
                shared_dictionary(column, column_of(&self.chunks, index))?;
            }
        }
        self.is_read = true;
        Ok(())
    }

    /// Whether the matrix is a view, or may be one.
    pub(super) fn is_view(&self) -> bool {
        self.view.is_some() || self.plan.bytes == 0
    }

    /// The columns of each chunk.
    pub(super) fn chunks(&self) -> &[MatrixColumns<'a>] {
        &self.chunks
    }

    pub(crate) fn spec(&self) -> &MatrixSpec {
        self.spec
    }

    /// Whether it is written into memory that is there.
    pub(crate) fn is_written(&self) -> bool {
        self.options.is_written
    }

    /// When a copy may be made.
    pub(crate) fn copy(&self) -> CopyMode {
        self.options.copy
    }

    /// What will be done.
    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The part of each column in the plan.
    pub(crate) fn column_plans(&self) -> Vec<Plan> {
        let part = |(index, (_, column)): (usize, &(usize, Spec))| {
            let shared = self.arrays.iter().map(|chunk| chunk.shared_rows(index)).fold(0, usize::saturating_add);
            self.plan.of_matrix_column(column, column_size(&self.chunks, index, column), shared)
        };
        self.spec.columns().iter().enumerate().map(part).collect()
    }

    /// Refuses nulls, where a spec does; of a device whose memory was not looked at, those that the arrays have counted.
    pub(crate) fn check_nulls(&self) -> Result<()> {
        if self.is_plain {
            return Ok(());
        }
        if !self.is_read {
            return self.spec.columns().iter().enumerate().try_for_each(|(index, (_, column))| {
                column_of(&self.chunks, index).try_for_each(|chunk| refuse_known_on_device(column, &chunk.leaf))
            });
        }
        check_matrix_nulls(self.spec, &self.chunks)
    }

    /// The matrix; its last step is run by `runner`.
    ///
    /// # Errors
    /// For a null that is refused, a value that a cast cannot take, bytes that are no booleans where no copy is allowed, chunks on a device with
    /// different dictionaries; when an allocation fails.
    pub(crate) fn run(&mut self, shared: SharedReads<'_>, runner: &Runner<'_>) -> Result<Tensor> {
        self.read_device(shared.facts)?;
        let this = &*self;
        run_step(runner, this.plan.bytes, || this.convert(shared))
    }

    fn convert(&self, shared: SharedReads<'_>) -> Result<Tensor> {
        self.check_nulls()?;
        if let (Some(_), Some(first), 0) = (self.readiness, self.arrays.first(), self.plan.bytes)
            && self.view.is_none()
        {
            // Nothing is allocated on a device for no elements.
            return empty_matrix(self.spec, self.plan.rows, first.array());
        }
        shared.with_backend(self.readiness, |backend| {
            if let Some((number, stride)) = self.view
                && let Some(chunk) = self.chunks.get(number)
            {
                if self.are_bools(chunk, backend)? {
                    return view_matrix(self.spec, chunk, stride);
                }
                if self.options.copy == CopyMode::Never {
                    return Err(self.plan.refused());
                }
            }
            // A view of columns is column-major, so the copy in its place is, too.
            let memory_order = if self.view.is_some() { MemoryOrder::F } else { self.options.memory_order };
            let tensor = backend.matrix(MatrixTask { memory_order, ..self.task() })?;
            record(self.spec, &self.plan);
            Ok(tensor)
        })
    }

    /// Writes the matrix into memory of somebody else's; its last step is run by `runner`.
    ///
    /// # Errors
    /// As [`PlannedMatrix::run`]; when `out` has another dtype or shape, its elements lie neither row by row nor column by column.
    pub(super) fn write(&mut self, out: &mut Output<'_>, runner: &Runner<'_>) -> Result<()> {
        self.read_device(None)?;
        let this = &*self;
        run_step(runner, this.plan.bytes, || {
            this.check_nulls()?;
            SharedReads::default().with_backend(this.readiness, |backend| backend.write_matrix(this.task(), out))?;
            record(this.spec, &this.plan);
            Ok(())
        })
    }

    /// Whether every byte of the columns of `arrow.bool8` is 0 or 1.
    fn are_bools(&self, chunk: &MatrixColumns<'_>, backend: &dyn Backend) -> Result<bool> {
        for ((_, spec), column) in self.spec.columns().iter().zip(&chunk.columns) {
            if spec.element() == Element::Bool8 && !backend.are_bools(column)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What a backend makes the matrix of.
    fn task(&self) -> MatrixTask<'_> {
        let &MatrixOptions { memory_order, threads, .. } = self.options;
        MatrixTask { spec: self.spec, plan: &self.plan, chunks: &self.chunks, memory_order, threads }
    }
}

/// Whether all that a matrix of these columns spans is one piece of the device's memory: consumers may copy it whole.
///
/// # Errors
/// When a column is not memory of the device. Names the column.
fn is_one_piece(spec: &MatrixSpec, columns: &MatrixColumns<'_>, device: crate::device::Device) -> Result<bool> {
    let mut span: Option<Range<usize>> = None;
    for ((_, spec), chunk) in spec.columns().iter().zip(&columns.columns) {
        let values = chunk.leaf.element_bytes(spec.element());
        let checked = stream_order::check_memory(device, values.start, values.len());
        checked.map_err(|error| error.in_column(spec.field().name()))?;
        span = Some(span.map_or(values.start, |span| span.start)..values.end);
    }
    let span = span.unwrap_or(0..0);
    // Each column is memory of the device; the span between them may not be.
    Ok(stream_order::check_memory(device, span.start, span.len()).is_ok())
}

/// Finds which elements of a chunk on a device are null, where nulls are refused, of all columns together, unless that was done.
fn read_nulls_of(spec: &MatrixSpec, chunk: &mut MatrixColumns<'_>, facts: Option<&Facts>) -> Result<()> {
    let refused = spec.columns().iter().zip(&chunk.columns).filter(|((_, spec), _)| spec.nulls() == Nulls::Refused);
    let mut unknowns = Unknowns::default();
    refused.for_each(|((_, spec), column)| unknowns.add_bitmaps(column.leaf.bitmaps(spec.gathers())));
    let readiness = chunk.columns.first().and_then(|column| column.array.readiness());
    let own = match (facts, readiness) {
        (None, Some(readiness)) => Some(unknowns.find(readiness)?),
        _ => None,
    };
    for ((_, spec), column) in spec.columns().iter().zip(&mut chunk.columns) {
        column.mask = read_nulls(spec, column, facts.or(own.as_ref()))?;
    }
    Ok(())
}

/// Puts the copy that a plan says on the record.
pub(super) fn record(spec: &MatrixSpec, plan: &Plan) {
    plan.record(|| what(spec, plan));
}

/// The matrix, for the copy log.
pub(super) fn what(spec: &MatrixSpec, plan: &Plan) -> String {
    format!("matrix of {} and {} of {}", Counted(plan.rows, "row"), Counted(spec.width(), "column"), spec.dtype())
}
