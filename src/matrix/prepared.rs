//! A matrix with its plan, and chunks that are ready to be read.

use super::chunk::{MatrixChunk, after};
use crate::alloc::fallible;
use crate::arrow::{DeviceArray, Mask};
use crate::column::shared_dictionary;
use crate::convert::{MatrixColumns, check_matrix, check_matrix_nulls, pack_matrix, view_matrix, write_matrix};
use crate::copy_log::{self, Copied};
use crate::error::{Error, ErrorKind, Remedy, Result};
use crate::plan::{MatrixData, Plan};
use crate::spec::{CopyMode, MatrixOptions, MatrixSpec, MemoryOrder, Nulls};
use crate::tensor::{Output, Tensor};

/// The chunks of a matrix, decoded where they have to be.
///
/// # Errors
/// As [`MatrixChunk::new`]; under [`CopyMode::Never`] where something would have to be decoded.
pub(super) fn decode_chunks(
    spec: &MatrixSpec,
    chunks: &[DeviceArray],
    options: &MatrixOptions,
) -> Result<Vec<MatrixChunk>> {
    if options.copy == CopyMode::Never && spec.is_decoded() {
        // Refused before anything is decoded.
        let rows = chunks.iter().fold(0_usize, |rows, chunk| rows.saturating_add(chunk.len()));
        Plan::matrix(spec, MatrixData { rows, chunks: 1, ..MatrixData::default() }, 0, options)?;
    }
    chunks.iter().map(|chunk| MatrixChunk::new(spec, chunk)).collect()
}

/// Refuses the null or the value in the lowest row that a conversion of chunks in host memory would refuse.
pub(super) fn check_matrix_rows(spec: &MatrixSpec, chunks: &[DeviceArray], options: &MatrixOptions) -> Result<()> {
    let chunks = decode_chunks(spec, chunks, options)?;
    let columns = chunks.iter().map(|chunk| chunk.columns(spec, &(0..chunk.rows())));
    check_matrix(spec, &columns.collect::<Result<Vec<_>>>()?)
}

/// The nulls of a column.
fn nulls(chunks: &[MatrixColumns<'_>], index: usize) -> usize {
    chunks.iter().filter_map(|chunk| chunk.columns.get(index)?.mask.as_ref()).map(Mask::nulls).sum()
}

/// A matrix that is about to be made: what will be done is decided, and no value was read.
pub(super) struct Prepared<'a> {
    spec: &'a MatrixSpec,
    chunks: Vec<MatrixColumns<'a>>,
    options: &'a MatrixOptions,
    plan: Plan,
    /// The chunk that is the matrix as it lies, and the bytes from one column to the next.
    view: Option<(usize, usize)>,
    /// Whether no column has nulls or codes.
    is_plain: bool,
}

impl<'a> Prepared<'a> {
    /// `may_view`: whether the result may be the columns' own memory.
    ///
    /// # Errors
    /// When a copy is needed and not allowed, chunks have different dictionaries, or an array breaks the Arrow format.
    pub(super) fn new(
        spec: &'a MatrixSpec,
        chunks: &'a [MatrixChunk],
        options: &'a MatrixOptions,
        may_view: bool,
    ) -> Result<Self> {
        let mut rows = 0_usize;
        let mut columns = fallible::with_room(chunks.len())?;
        for chunk in chunks {
            columns.push(chunk.columns(spec, &(0..chunk.rows())).map_err(|error| after(error, rows))?);
            rows = rows.saturating_add(chunk.rows());
        }
        let chunks = columns;
        // Small chunks take about as long as looking for what most do not have.
        let is_plain = chunks.iter().all(|chunk| chunk.is_plain);
        let mut filled = 0_usize;
        for (index, (_, column)) in spec.columns().iter().enumerate().filter(|_| !is_plain) {
            if let Nulls::Filled(_) = column.nulls() {
                filled = filled.saturating_add(nulls(&chunks, index));
            }
            if column.has_codes() {
                shared_dictionary(column, chunks.iter().filter_map(|chunk| chunk.columns.get(index)))?;
            }
        }
        let mut data = MatrixData { rows, ..MatrixData::default() };
        let mut view = None;
        for (number, chunk) in chunks.iter().enumerate().filter(|(_, chunk)| chunk.rows > 0) {
            data.chunks += 1;
            let stride = if may_view && data.chunks == 1 { chunk.column_stride(spec) } else { None };
            view = stride.map(|stride| (number, stride));
        }
        if let Some((_, stride)) = view {
            data.is_column_major = true;
            data.is_row_major = spec.columns().len() == 1 || (rows == 1 && stride == spec.dtype().itemsize());
        }
        let plan = Plan::matrix(spec, data, filled, options)?;
        let view = view.filter(|_| plan.bytes == 0 || plan.steps.iter().all(|step| step.at_most));
        Ok(Self { spec, chunks, options, plan, view, is_plain })
    }

    /// Whether the matrix is a view, or may be one.
    pub(super) fn is_view(&self) -> bool {
        self.view.is_some() || self.plan.bytes == 0
    }

    /// The columns of each chunk.
    pub(super) fn chunks(&self) -> &[MatrixColumns<'a>] {
        &self.chunks
    }

    /// What will be done.
    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The part of each column in the plan.
    pub(super) fn column_plans(&self) -> Vec<Plan> {
        let columns = self.spec.columns().iter().enumerate();
        columns.map(|(index, (_, column))| self.plan.of_matrix_column(column, nulls(&self.chunks, index))).collect()
    }

    /// Refuses nulls, where a spec does.
    pub(super) fn check_nulls(&self) -> Result<()> {
        if self.is_plain { Ok(()) } else { check_matrix_nulls(self.spec, &self.chunks) }
    }

    /// The matrix.
    ///
    /// # Errors
    /// For a null that is refused, a value that a cast cannot take, bytes that are no booleans where no copy is allowed;
    /// when memory cannot be had.
    pub(super) fn run(&self) -> Result<Tensor> {
        self.check_nulls()?;
        if let Some((number, stride)) = self.view
            && let Some(chunk) = self.chunks.get(number)
        {
            if let Some(tensor) = view_matrix(self.spec, chunk, stride)? {
                return Ok(tensor);
            }
            if self.options.copy == CopyMode::Never {
                let reason = format!("a copy of {} bytes is needed ({})", self.plan.bytes, self.plan.reasons());
                return Err(Error::new(ErrorKind::Copy, reason).remedy_is(Remedy::AllowCopy));
            }
        }
        // What was to be a view has the order that the view has.
        let memory_order = if self.view.is_some() { MemoryOrder::F } else { self.options.memory_order };
        let tensor = pack_matrix(self.spec, &self.chunks, memory_order, self.threads())?;
        self.record();
        Ok(tensor)
    }

    /// Writes the matrix into memory of somebody else's.
    ///
    /// # Errors
    /// As [`Prepared::run`]; when `out` has another dtype or shape, its elements lie neither row by row nor column by column,
    /// or it overlaps the data that is to be read.
    pub(super) fn write(&self, out: &mut Output<'_>) -> Result<()> {
        self.check_nulls()?;
        write_matrix(self.spec, &self.chunks, out, self.threads())?;
        self.record();
        Ok(())
    }

    fn threads(&self) -> Option<usize> {
        self.options.threads.map(std::num::NonZero::get)
    }

    /// Puts the copy on the record.
    fn record(&self) {
        if self.plan.bytes > 0 {
            record(self.spec, || self.plan.clone());
        }
    }
}

/// Puts the copy that a plan says on the record.
pub(super) fn record(spec: &MatrixSpec, plan: impl FnOnce() -> Plan) {
    copy_log::record(|| {
        let (columns, dtype, plan) = (spec.columns().len(), spec.dtype(), plan());
        let what = format!("matrix of {} rows and {columns} columns of {dtype}", plan.rows);
        Copied { what, why: plan.reasons(), bytes: plan.bytes }
    });
}
