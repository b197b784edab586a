//! Converts the columns of structs to one tensor.

use super::chunk::MatrixChunk;
use super::planned::{PlannedMatrix, decode_chunks, what};
use crate::arrow::{DeviceArray, PlainColumns};
use crate::column::{
    Runner, SharedReads, check_place, check_types, overlap, require_copy, run_here, run_step, run_unless_quick,
};
use crate::convert::{check_environment, is_small, matrix_stride, pack_small, write_small};
use crate::copy_log;
use crate::error::Result;
use crate::plan::{MatrixData, Plan};
use crate::spec::{CopyMode, MatrixOptions, MatrixSpec, MemoryOrder};
use crate::tensor::{Output, Tensor};

/// Converts the columns of a spec into a matrix of shape `(rows, columns)`, the last step by `runner`.
pub(crate) fn convert_matrix(
    spec: &MatrixSpec,
    chunks: &[DeviceArray],
    options: &MatrixOptions,
    shared: SharedReads<'_>,
    runner: &Runner<'_>,
) -> Result<Tensor> {
    check_environment()?;
    check_types(spec.field(), chunks)?;
    if options.memory_order == MemoryOrder::C
        && options.copy != CopyMode::Never
        && let Some(columns) = small(spec, chunks)
        && let Some(tensor) = run_unless_quick(runner, bytes_of(spec, chunks), || pack_small(&columns))?
    {
        record_small(spec, columns.rows(), options);
        return Ok(tensor);
    }
    let convert = |runner: &Runner<'_>| {
        let chunks = decode_chunks(spec, chunks, options)?;
        PlannedMatrix::new(spec, &chunks, options)?.run(shared, runner)
    };
    // Decoding moves bytes too: as many as these, if nothing refuses it.
    if spec.is_decoded() { run_step(runner, bytes_of(spec, chunks), || convert(&run_here)) } else { convert(runner) }
}

/// As [`convert_matrix`], into memory that is there: of the matrix's shape and dtype, row-major or column-major, with any distance
/// between rows or columns. Columns on a CUDA device are written to memory of the same device, on this thread's stream.
pub(crate) fn write_matrix(
    spec: &MatrixSpec,
    chunks: &[DeviceArray],
    options: &MatrixOptions,
    out: &mut Output<'_>,
    runner: &Runner<'_>,
) -> Result<()> {
    check_written(spec, chunks, options, out)?;
    if let Some(columns) = small(spec, chunks)
        && run_unless_quick(runner, bytes_of(spec, chunks), || Ok(write_small(&columns, out)))?
    {
        record_small(spec, columns.rows(), options);
        return Ok(());
    }
    let options = &options.written_to(out);
    let mut write = |runner: &Runner<'_>| {
        let chunks = decode_chunks(spec, chunks, options)?;
        let mut planned = PlannedMatrix::new(spec, &chunks, options)?;
        check_overlap(spec, &chunks, &planned, out)?;
        planned.write(out, runner)
    };
    if spec.is_decoded() { run_step(runner, bytes_of(spec, chunks), || write(&run_here)) } else { write(runner) }
}

/// Refuses what [`write_matrix`] refuses before it plans.
fn check_written(spec: &MatrixSpec, chunks: &[DeviceArray], options: &MatrixOptions, out: &Output<'_>) -> Result<()> {
    check_environment()?;
    check_types(spec.field(), chunks)?;
    require_copy(options.copy)?;
    check_place(spec.field(), chunks, out, || matrix_stride(spec, DeviceArray::rows_of(chunks), out).map(drop))
}

/// Refuses what [`write_matrix`] refuses of memory that has room.
///
/// # Errors
/// When `out` is on another device, or overlaps the data; when copies are not allowed; as [`PlannedMatrix::new`].
pub(crate) fn check_matrix_output(
    spec: &MatrixSpec,
    chunks: &[DeviceArray],
    options: &MatrixOptions,
    out: &Output<'_>,
) -> Result<()> {
    check_written(spec, chunks, options, out)?;
    let options = options.written_to(out);
    let chunks = decode_chunks(spec, chunks, &options)?;
    check_overlap(spec, &chunks, &PlannedMatrix::new(spec, &chunks, &options)?, out)
}

impl MatrixOptions {
    /// The options of a matrix that is written to `out`.
    pub(crate) fn written_to(&self, out: &Output<'_>) -> Self {
        let memory_order = if out.is_column_major() { MemoryOrder::F } else { MemoryOrder::C };
        Self { memory_order, is_written: true, ..self.clone() }
    }
}

/// The columns of a small matrix that are written as they lie, which no other step stands before: nothing is null, cast,
/// decoded or joined. `None` for every other matrix.
#[inline]
fn small<'a>(spec: &MatrixSpec, chunks: &'a [DeviceArray]) -> Option<PlainColumns<'a>> {
    let [only] = chunks else { return None };
    if spec.changes_elements() || !only.device().is_cpu() || !is_small(bytes_of(spec, chunks)) {
        return None;
    }
    only.view().plain_columns(spec.columns().iter().map(|(position, _)| *position), spec.dtype())
}

/// Puts the copy that a small matrix is on the record.
fn record_small(spec: &MatrixSpec, rows: usize, options: &MatrixOptions) {
    copy_log::record(|| {
        let data = MatrixData { rows, chunks: 1, ..MatrixData::default() };
        let options = MatrixOptions { memory_order: MemoryOrder::C, ..options.clone() };
        let plan = Plan::matrix(spec, data, &options).unwrap_or_default();
        plan.copied(&what(spec, &plan))
    });
}

/// Bytes of the result.
fn bytes_of(spec: &MatrixSpec, chunks: &[DeviceArray]) -> usize {
    DeviceArray::rows_of(chunks).saturating_mul(spec.row_bytes())
}

/// Refuses an output over memory that the columns are read from.
fn check_overlap(
    spec: &MatrixSpec,
    chunks: &[MatrixChunk],
    planned: &PlannedMatrix<'_>,
    out: &Output<'_>,
) -> Result<()> {
    let span = out.span();
    let mut both = chunks.iter().zip(planned.chunks());
    match both.find_map(|(chunk, columns)| chunk.overlaps(spec, columns, &span)) {
        Some(column) => Err(overlap().in_column(&column)),
        None => Ok(()),
    }
}
