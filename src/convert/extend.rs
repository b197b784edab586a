//! Results that grow: appends the rows of each chunk as it comes, and releases the chunk.

use smallvec::smallvec;

use super::chunk::{ColumnChunk, MatrixColumns};
use super::column::{layout, write_range, write_validity};
use super::encode::vocabulary;
use super::matrix::write_rows;
use super::pack::{Isa, Rows};
use super::rounds::in_rounds;
use super::threads::threads;
use crate::alloc::GrowingBuffer;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::spec::{MatrixSpec, Spec, signed};
use crate::tensor::Tensor;

fn too_large() -> Error {
    Error::new(ErrorKind::Memory, "the result is larger than memory can be")
}

/// Packs the chunks' rows behind those that `out` has.
///
/// # Errors
/// For a value that a cast cannot take: names column and row, counted from the first chunk. When an allocation fails.
pub(crate) fn append_matrix(
    spec: &MatrixSpec,
    chunks: &[MatrixColumns<'_>],
    out: &mut GrowingBuffer,
    asked: Option<usize>,
) -> Result<()> {
    let rows = chunks.iter().try_fold(0_usize, |rows, chunk| rows.checked_add(chunk.rows)).ok_or_else(too_large)?;
    let bytes = rows.checked_mul(spec.row_bytes()).ok_or_else(too_large)?;
    write_rows(spec, chunks, Rows::in_huge_pages(out.spare(bytes)?, spec.row_bytes()), threads(asked, bytes))?;
    out.advance(bytes);
    Ok(())
}

/// Converts a chunk's elements behind those that `out` has. `row` is the number of the chunk's first row, for messages.
///
/// # Errors
/// For a value that a cast cannot take: names column and row. When an allocation fails.
pub(crate) fn append_column(spec: &Spec, chunk: &ColumnChunk<'_>, row: usize, out: &mut GrowingBuffer) -> Result<()> {
    let itemsize = spec.dtype().itemsize();
    let bytes = chunk.leaf.elements.checked_mul(itemsize).ok_or_else(too_large)?;
    // The block is aligned for every dtype, and only elements of this one are in it.
    let spare = out.spare(bytes)?;
    in_rounds(chunk.leaf.elements, itemsize, |elements| {
        let bytes = elements.start.saturating_mul(itemsize)..elements.end.saturating_mul(itemsize);
        let spare = spare.get_mut(bytes).ok_or_else(too_large)?;
        // SAFETY: `write_range`: the chunk has these elements, for which `spare` has room; it is aligned as above, and the
        // processor has what was detected.
        let written = unsafe { write_range(Isa::detect(), spec, chunk, elements.start, spare) };
        written.map_err(|misfit| misfit.error(spec, row).in_column(spec.field().name()))
    })?;
    out.advance(bytes);
    Ok(())
}

/// Appends a bool for each element of a chunk in host memory: whether it is valid.
///
/// # Errors
/// When an allocation fails.
pub(crate) fn append_validity(chunk: &ColumnChunk<'_>, out: &mut GrowingBuffer) -> Result<()> {
    let elements = chunk.leaf.elements;
    write_validity(chunk, out.spare(elements)?);
    out.advance(elements);
    Ok(())
}

/// The validity of rows of a column that was appended.
///
/// # Errors
/// As [`grown_matrix`].
pub(crate) fn grown_validity(spec: &Spec, out: GrowingBuffer, rows: usize) -> Result<Tensor> {
    let (shape, strides) = layout(spec, rows)?;
    // SAFETY: `append_validity` wrote every byte, as 0 or 1; fewer than the shape needs are refused.
    unsafe { Tensor::from_host_buffer(out.into_buffer()?, DType::Bool, shape, strides, None) }
}

/// The rows of a matrix that were appended.
///
/// # Errors
/// When `out` has other bytes than so many rows have.
pub(crate) fn grown_matrix(spec: &MatrixSpec, out: GrowingBuffer, rows: usize) -> Result<Tensor> {
    let (rows, columns) = (signed(rows)?, signed(spec.width())?);
    // SAFETY: `append_matrix` wrote every byte, as elements of the matrix's dtype; fewer than the shape needs are refused.
    unsafe {
        Tensor::from_host_buffer(
            out.into_buffer()?,
            spec.dtype(),
            smallvec![rows, columns],
            smallvec![columns, 1],
            None,
        )
    }
}

/// The rows of a column that were appended.
///
/// # Errors
/// As [`grown_matrix`].
pub(crate) fn grown_column(spec: &Spec, out: GrowingBuffer, rows: usize) -> Result<Tensor> {
    let (shape, strides) = layout(spec, rows)?;
    // SAFETY: `append_column` wrote every byte, as elements of the spec's dtype; fewer than the shape needs are refused.
    let tensor = unsafe {
        Tensor::from_host_buffer(out.into_buffer()?, spec.dtype(), shape, strides, spec.kept_field().cloned())
    }?;
    Ok(match vocabulary(spec)? {
        Some(categories) => tensor.with_categories(categories, false),
        None => tensor,
    })
}
