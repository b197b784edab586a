//! Writes a column into memory that the caller has allocated.

use arrow_schema::FieldRef;

use super::chunk_ref::{columns, require_host};
use super::{check_types, with_planned};
use crate::arrow::DeviceArray;
use crate::convert::{check_environment, row_stride};
use crate::cuda::is_cuda;
use crate::error::{Error, Remedy, Result};
use crate::plan::not_allowed;
use crate::spec::{CopyMode, Options, Spec};
use crate::tensor::Output;

/// As [`super::chunks_to_tensor_by`], into memory that is there: of the result's shape and dtype, with each value laid out as the
/// column's are, and rows any distance apart. Writes with as many threads as asked for, where that is worth it. Chunks on a CUDA
/// device are written to memory of the same device, on this thread's stream.
///
/// # Errors
/// As [`Conversion::write`](crate::Conversion::write).
pub(crate) fn chunks_to_tensor_into(
    field: &FieldRef,
    chunks: &[DeviceArray],
    options: &Options,
    out: &mut Output<'_>,
    threads: Option<std::num::NonZero<usize>>,
) -> Result<()> {
    let mut write = || {
        let spec = check_written(field, chunks, options, out)?;
        with_planned(&spec, &columns(chunks), options, |planned| planned.write(out, threads))
    };
    write().map_err(|error: Error| error.in_column(field.name()))
}

/// The spec of a column that is written to `out`.
///
/// # Errors
/// For what [`chunks_to_tensor_into`] refuses before it plans.
fn check_written(field: &FieldRef, chunks: &[DeviceArray], options: &Options, out: &Output<'_>) -> Result<Spec> {
    check_environment()?;
    check_types(field, chunks)?;
    let spec = Spec::new(field, options)?;
    require_copy(options.copy)?;
    let span = out.span();
    if chunks.iter().any(|chunk| chunk.view().overlaps(&span)) {
        return Err(overlap());
    }
    check_place(field, chunks, out, || row_stride(&spec, DeviceArray::rows_of(chunks), out).map(drop))?;
    Ok(spec)
}

/// Refuses an output that is not where the chunks are. On a device, `check_room` is called too, before the host waits for anything.
///
/// # Errors
/// When `out` or a chunk is elsewhere, or as `check_room`.
pub(crate) fn check_place(
    field: &FieldRef,
    chunks: &[DeviceArray],
    out: &Output<'_>,
    check_room: impl FnOnce() -> Result<()>,
) -> Result<()> {
    if let Some(readiness) = DeviceArray::readiness_of(chunks).filter(|readiness| is_cuda(readiness.device())) {
        out.require_device(readiness.device())?;
        return check_room();
    }
    out.require_host()?;
    chunks.iter().try_for_each(|chunk| require_host(chunk.device(), field.name()))
}

/// Refuses what [`chunks_to_tensor_into`] refuses before it plans.
///
/// # Errors
/// When `out` is on another device, or overlaps the data; when copies are not allowed; as [`Spec::new`].
pub(crate) fn check_column_output(
    field: &FieldRef,
    chunks: &[DeviceArray],
    options: &Options,
    out: &Output<'_>,
) -> Result<()> {
    check_written(field, chunks, options, out).map(drop).map_err(|error| error.in_column(field.name()))
}

/// Refuses to write to an output where copies are not allowed.
pub(crate) fn require_copy(copy: CopyMode) -> Result<()> {
    if copy == CopyMode::Never {
        return Err(not_allowed("what is written to out is a copy").remedy_is(Remedy::AllowCopyOrNoOutput));
    }
    Ok(())
}

/// The error for an output over memory that is read.
pub(crate) fn overlap() -> Error {
    Error::argument("out overlaps the memory that is to be read").remedy_is("pass an output of its own memory")
}
