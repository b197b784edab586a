//! Rows of a matrix from the columns of one chunk, in host memory.

use smallvec::smallvec;

use super::column::{ColumnChunk, check_nulls};
use super::pack::{Isa, PackedColumn, Rows, pack_rows};
use crate::alloc::HostBuffer;
use crate::copy_log::{self, Copied};
use crate::error::{Error, ErrorKind, Result};
use crate::spec::MatrixSpec;
use crate::tensor::Tensor;

/// The columns of a matrix over one chunk, or over some of its rows.
pub(crate) struct MatrixColumns<'a> {
    /// The number of rows, which matrices without columns have too.
    pub(crate) rows: usize,
    /// The columns, in the order of the matrix.
    pub(crate) columns: Vec<ColumnChunk<'a>>,
}

impl MatrixColumns<'_> {
    /// Each column with its spec.
    pub(crate) fn packed<'a>(&'a self, spec: &'a MatrixSpec) -> Vec<PackedColumn<'a>> {
        spec.columns().iter().zip(&self.columns).map(|((_, spec), chunk)| PackedColumn { spec, chunk }).collect()
    }
}

/// Packs the chunks, each the columns of the matrix over some rows, into a fresh row-major tensor of shape
/// `(rows, columns)`.
///
/// # Errors
/// For a null that is refused, and a value that a cast cannot take: names column and row. When memory cannot be had.
pub(crate) fn pack_matrix(spec: &MatrixSpec, chunks: &[MatrixColumns<'_>], threads: usize) -> Result<Tensor> {
    let too_large = || Error::new(ErrorKind::Memory, "the matrix is larger than memory can be");
    for (index, (_, column)) in spec.columns().iter().enumerate() {
        check_nulls(column, chunks.iter().filter_map(|chunk| chunk.columns.get(index)))?;
    }
    let rows = chunks.iter().try_fold(0_usize, |rows, chunk| rows.checked_add(chunk.rows)).ok_or_else(too_large)?;
    let bytes = rows.checked_mul(spec.row_bytes()).ok_or_else(too_large)?;
    let signed = |count: usize| i64::try_from(count).map_err(|_| too_large());
    let (shape, columns) = (smallvec![signed(rows)?, signed(spec.columns().len())?], spec.columns().len());
    let strides = smallvec![signed(columns)?, 1];
    let mut buffer = HostBuffer::uninitialised(bytes)?;
    let mut rest = Rows::new(buffer.as_uninit_mut(), spec.row_bytes());
    let mut row = 0;
    for chunk in chunks {
        let (out, after) = rest.split_at(chunk.rows);
        write_packed(&chunk.packed(spec), 0, row, out, threads)?;
        (rest, row) = (after, row + chunk.rows);
    }
    if bytes > 0 {
        copy_log::record(|| Copied {
            what: format!("{columns} columns: {rows} rows of {}", spec.dtype()),
            why: "packed row-major".to_owned(),
            bytes,
        });
    }
    // SAFETY: every row of every chunk was written in the matrix's dtype.
    unsafe { Tensor::from_host_buffer(buffer, spec.dtype(), shape, strides, None) }
}

/// Writes rows `first..` of a chunk's columns as the rows of `out`, as many as that has, nulls filled. `row` is the number
/// of the chunk's first row in the whole source, for messages.
///
/// # Errors
/// For a value that a cast cannot take, which names column and row; when the columns do not fit `out`, or memory cannot
/// be had.
pub(crate) fn write_packed(
    columns: &[PackedColumn<'_>],
    first: usize,
    row: usize,
    out: Rows<'_>,
    threads: usize,
) -> Result<()> {
    let Some(dtype) = columns.first().map(|column| column.spec.dtype()) else { return Ok(()) };
    let fits = |column: &PackedColumn<'_>| {
        let rows = column.chunk.leaf.rows.checked_sub(first);
        column.spec.dtype() == dtype && column.spec.row_elements() == 1 && rows.is_some_and(|rows| rows >= out.count())
    };
    let aligned = |bytes: usize| bytes.is_multiple_of(dtype.alignment());
    let room = columns.len().checked_mul(dtype.itemsize()).is_some_and(|bytes| bytes <= out.width());
    if !columns.iter().all(fits) || !room || !aligned(out.start().addr()) || !aligned(out.stride()) {
        return Err(Error::invalid("the columns do not fit the rows that they are written to"));
    }
    // SAFETY: checked above: scalars of one dtype, enough rows of them, enough room in each row, aligned.
    match unsafe { pack_rows(Isa::detect(), threads, columns, first, out) }? {
        Ok(()) => Ok(()),
        Err(found) => Err(match columns.get(found.column) {
            Some(column) => found.misfit.error(column.spec, row).in_column(column.spec.field().name()),
            None => Error::invalid("a value does not fit"),
        }),
    }
}
