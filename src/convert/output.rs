//! Writes one column into the memory of an `Output`.

use std::mem::MaybeUninit;
use std::ops::Range;

use super::chunk::{ColumnChunk, PackedColumn};
use super::column::write_range;
use super::matrix::{ChunkRows, for_each_piece, write_packed};
use super::misfit::Misfit;
use super::pack::{Isa, Rows};
use super::rounds::in_rounds_on;
use super::threads::{for_each_part, threads};
use crate::alloc::HostBuffer;
use crate::error::{Error, Result};
use crate::spec::{Dims, Spec, signed};
use crate::tensor::Output;

/// Bytes that are prepared together for strided rows.
const BLOCK: usize = 1 << 15;

/// Writes the chunks of a column into `out`, of shape `(rows, *inner)`. Rows may be strided; each has the spec's
/// layout. Refused nulls were looked for.
///
/// # Errors
/// If a cast refuses a value: names column and row. If `out` has another dtype, shape or layout,
/// or an allocation fails. What `out` holds is unspecified after an error.
pub(super) fn write_column(
    spec: &Spec,
    chunks: &[ColumnChunk<'_>],
    out: &mut Output<'_>,
    asked: Option<usize>,
) -> Result<()> {
    let rows = chunks.iter().fold(0_usize, |rows, chunk| rows.saturating_add(chunk.leaf.rows));
    let row_stride = row_stride(spec, rows, out)?;
    let row_bytes = spec.row_elements().saturating_mul(spec.dtype().itemsize());
    if row_bytes == 0 {
        return Ok(());
    }
    let stride = row_stride.checked_mul(spec.dtype().itemsize()).unwrap_or(row_bytes);
    let threads = threads(asked, rows.saturating_mul(row_bytes));
    // SAFETY: `Output` has checked that elements lie apart, inside its memory, which is ours: rows of `row_bytes` each.
    let out = unsafe { Rows::from_raw(out.start(), stride, rows, row_bytes) };
    in_rounds_on(threads, rows, row_bytes, |round| {
        for_each_part(threads, round.len(), 64, |rows| {
            let rows = round.start + rows.start..round.start + rows.end;
            for_each_piece(chunks.iter().map(|chunk| (chunk.leaf.rows, chunk)), &rows, |chunk, piece| {
                // SAFETY: rounds and parts have different rows, and the pieces of a part follow each other.
                let out = unsafe { out.part(piece.rows.clone()) };
                write_piece(spec, chunk, &piece, out)
            })
        })
    })
}

/// Returns the elements from one row of `out` to the next, if it has room for this many rows in the spec's layout.
///
/// # Errors
/// If `out` has another dtype, shape or layout.
pub(crate) fn row_stride(spec: &Spec, rows: usize, out: &Output<'_>) -> Result<usize> {
    let mut shape: Dims = Dims::from_slice(&[signed(rows)?]);
    shape.extend_from_slice(spec.inner_shape());
    out.require(spec.dtype(), &shape)?;
    let (row_stride, inner) = out.strides().split_first().unwrap_or((&1, &[]));
    if !shape.contains(&0) && !spec.lays_out(spec.dtype(), spec.inner_shape(), inner) {
        let own = spec.inner_strides();
        return Err(Error::argument(format!(
            "the values of out have strides {inner:?}, and those of the column {own:?}"
        ))
        .remedy_is("pass an output whose values are laid out as the column's; rows may lie apart"));
    }
    // A single row has any stride.
    let stride = usize::try_from(*row_stride).ok().filter(|_| rows > 1);
    Ok(stride.unwrap_or(spec.row_elements()))
}

/// Writes some rows of a chunk.
fn write_piece(spec: &Spec, chunk: &ColumnChunk<'_>, piece: &ChunkRows, out: Rows<'_>) -> Result<()> {
    if spec.row_elements() == 1 && out.stride() != out.width() {
        return write_packed(&[PackedColumn { spec, chunk }], piece.first, piece.before, out, 1);
    }
    let in_column = |misfit: Misfit| misfit.error(spec, piece.before);
    if out.stride() == out.width() {
        // SAFETY: the stride is the width, so the rows are one slice; this piece's rows are no other piece's.
        let bytes = unsafe { bytes_of(&out, 0..out.count()) };
        return write_rows(spec, chunk, piece.first, bytes).map_err(in_column);
    }
    let block = (BLOCK / out.width().max(1)).max(1);
    let mut scratch = HostBuffer::uninitialised(block * out.width())?;
    for start in (0..out.count()).step_by(block) {
        let rows = block.min(out.count() - start);
        let scratch = scratch.as_uninit_mut().get_mut(..rows * out.width()).unwrap_or(&mut []);
        write_rows(spec, chunk, piece.first + start, scratch).map_err(in_column)?;
        for (row, bytes) in (start..).zip(scratch.chunks(out.width().max(1))) {
            // SAFETY: one row of this piece, and no other piece has it.
            unsafe { bytes_of(&out, row..row + 1) }.copy_from_slice(bytes);
        }
    }
    Ok(())
}

/// Returns the bytes of contiguous rows, or of a single row.
///
/// # Safety
/// `rows` are within `out.count()`; there is one, or `out.stride()` is `out.width()`; nobody else uses them while the slice
/// lives.
#[allow(clippy::mut_from_ref, reason = "the contract says that nobody else has these bytes")]
unsafe fn bytes_of<'a>(out: &'a Rows<'_>, rows: Range<usize>) -> &'a mut [MaybeUninit<u8>] {
    let bytes = rows.len() * out.width();
    if bytes == 0 {
        return &mut [];
    }
    let start = out.start().wrapping_add(rows.start * out.stride());
    // SAFETY: these rows lie one after the other or are one row, `bytes` writable bytes in all, which nobody else uses
    // meanwhile.
    unsafe { std::slice::from_raw_parts_mut(start.cast(), bytes) }
}

/// Writes rows `first..` of a chunk, as many as `out` has room for.
fn write_rows(
    spec: &Spec,
    chunk: &ColumnChunk<'_>,
    first: usize,
    out: &mut [MaybeUninit<u8>],
) -> std::result::Result<(), Misfit> {
    // SAFETY: pieces are cut to the chunk's rows; `Output`, and memory of ours, is aligned for the dtype.
    unsafe { write_range(Isa::detect(), spec, chunk, first * spec.row_elements(), out) }
}
