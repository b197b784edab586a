//! Converts the columns of structs to one tensor.

use super::chunk::MatrixChunk;
use super::prepared::{Prepared, decode_chunks, what};
use crate::arrow::{DeviceArray, PlainColumns};
use crate::column::{Look, check_types, overlap, require_copy, require_host};
use crate::convert::{check_environment, is_small, matrix_stride, pack_small, write_small};
use crate::copy_log;
use crate::cuda::is_cuda;
use crate::error::{Error, Result};
use crate::kernels::Casts;
use crate::plan::{MatrixData, Plan};
use crate::spec::{CopyMode, MatrixOptions, MatrixSpec, MemoryOrder};
use crate::tensor::{Output, Tensor};
use crate::transfer::Fetched;

/// Bytes of plain columns that are packed in some microseconds.
const QUICK: usize = 1 << 18;

/// Runs the last step of a conversion, knowing how many bytes it moves: without the interpreter, say.
pub(crate) type Worker<'a> = dyn Fn(usize, &mut (dyn FnMut() + Send)) + 'a;

/// Runs a conversion at once.
pub(crate) fn work_here(_bytes: usize, work: &mut (dyn FnMut() + Send)) {
    work();
}

/// What `work` gives, which `worker` calls.
pub(crate) fn by<R: Send>(worker: &Worker<'_>, bytes: usize, work: impl FnOnce() -> Result<R> + Send) -> Result<R> {
    let (mut work, mut result) = (Some(work), None);
    worker(bytes, &mut || result = work.take().map(|work| work()));
    result.unwrap_or_else(|| Err(Error::internal("the conversion was not run")))
}

/// As [`by`], for plain columns: few bytes of them are packed while an interpreter would be let go of and taken back.
fn unless_quick<R: Send>(worker: &Worker<'_>, bytes: usize, work: impl FnOnce() -> Result<R> + Send) -> Result<R> {
    if bytes < QUICK { work() } else { by(worker, bytes, work) }
}

/// Converts the columns of a spec into a matrix of shape `(rows, columns)`, the last step by `worker`. Of data on a device, what was
/// read for several matrices at once, and who checks the values of casts.
pub(crate) fn convert_matrix(
    spec: &MatrixSpec,
    chunks: &[DeviceArray],
    options: &MatrixOptions,
    worker: &Worker<'_>,
    (fetched, casts): (Option<&Fetched>, Option<&Casts>),
) -> Result<Tensor> {
    check_environment()?;
    check_types(spec.field(), chunks)?;
    if options.memory_order == MemoryOrder::C
        && options.copy != CopyMode::Never
        && let Some(columns) = small(spec, chunks)
        && let Some(tensor) = unless_quick(worker, bytes_of(spec, chunks), || pack_small(&columns))?
    {
        record_small(spec, columns.rows(), options);
        return Ok(tensor);
    }
    let convert = |worker: &Worker<'_>| {
        let chunks = decode_chunks(spec, chunks, options)?;
        let prepared = Prepared::new(spec, &chunks, options, true, Look::AtMemory, fetched)?;
        by(worker, prepared.plan().bytes, || prepared.run(casts))
    };
    // Decoding moves bytes too: as many as these, if nothing refuses it.
    if spec.is_decoded() { by(worker, bytes_of(spec, chunks), || convert(&work_here)) } else { convert(worker) }
}

/// As [`convert_matrix`], into memory that is there: of the matrix's shape and dtype, row-major or column-major, with any distance
/// between rows or columns. Columns on a CUDA device are written to memory of the same device, on this thread's stream.
pub(crate) fn write_matrix(
    spec: &MatrixSpec,
    chunks: &[DeviceArray],
    options: &MatrixOptions,
    out: &mut Output<'_>,
    worker: &Worker<'_>,
) -> Result<()> {
    check_environment()?;
    check_types(spec.field(), chunks)?;
    require_copy(options.copy)?;
    match DeviceArray::readiness_of(chunks).filter(|readiness| is_cuda(readiness.device())) {
        Some(readiness) => {
            // Before the host waits for anything.
            out.require_device(readiness.device())?;
            matrix_stride(spec, rows_of(chunks), out)?;
        }
        None => {
            out.require_host()?;
            chunks.iter().try_for_each(|chunk| require_host(chunk.device(), spec.field().name()))?;
        }
    }
    if let Some(columns) = small(spec, chunks)
        && unless_quick(worker, bytes_of(spec, chunks), || Ok(write_small(&columns, out)))?
    {
        record_small(spec, columns.rows(), options);
        return Ok(());
    }
    let memory_order = if out.is_column_major() { MemoryOrder::F } else { MemoryOrder::C };
    let options = &MatrixOptions { memory_order, ..options.clone() };
    let mut write = |worker: &Worker<'_>| {
        let chunks = decode_chunks(spec, chunks, options)?;
        let prepared = Prepared::new(spec, &chunks, options, false, Look::AtMemory, None)?;
        check_overlap(spec, &chunks, &prepared, out)?;
        by(worker, prepared.plan().bytes, || prepared.write(out))
    };
    if spec.is_decoded() { by(worker, bytes_of(spec, chunks), || write(&work_here)) } else { write(worker) }
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

/// What [`convert_matrix`] would do.
#[derive(Clone, Debug)]
pub(crate) struct MatrixPlan {
    /// The plan.
    pub(crate) whole: Plan,
    /// The part of each column in it.
    pub(crate) columns: Vec<Plan>,
    /// Why it would be refused all the same: nulls.
    pub(crate) refusal: Option<Error>,
}

/// What [`convert_matrix`] would do, as far as is known without a look at the memory of a device.
///
/// # Errors
/// As that, but for nulls, and for what values decide.
pub(crate) fn plan_matrix(spec: &MatrixSpec, chunks: &[DeviceArray], options: &MatrixOptions) -> Result<MatrixPlan> {
    check_types(spec.field(), chunks)?;
    let chunks = decode_chunks(spec, chunks, options)?;
    let prepared = Prepared::new(spec, &chunks, options, true, Look::AtStructure, None)?;
    let (whole, columns) = (prepared.plan().clone(), prepared.column_plans());
    Ok(MatrixPlan { whole, columns, refusal: prepared.check_nulls().err() })
}

/// Bytes of the result.
fn bytes_of(spec: &MatrixSpec, chunks: &[DeviceArray]) -> usize {
    rows_of(chunks).saturating_mul(spec.row_bytes())
}

fn rows_of(chunks: &[DeviceArray]) -> usize {
    chunks.iter().fold(0_usize, |rows, chunk| rows.saturating_add(chunk.len()))
}

/// Refuses an output over memory that the columns are read from.
fn check_overlap(spec: &MatrixSpec, chunks: &[MatrixChunk], prepared: &Prepared<'_>, out: &Output<'_>) -> Result<()> {
    let span = out.span();
    let mut both = chunks.iter().zip(prepared.chunks());
    match both.find_map(|(chunk, columns)| chunk.overlaps(spec, columns, &span)) {
        Some(column) => Err(overlap().in_column(&column)),
        None => Ok(()),
    }
}
