//! Makes a matrix from the columns of host chunks: a view, or one pass into row-major or column-major memory.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::num::NonZero;
use std::ops::Range;

use smallvec::smallvec;

use super::backend::MatrixTask;
use super::chunk::{MatrixColumns, PackedColumn};
use super::column::write_range;
use super::pack::{Isa, PackMisfit, Rows, pack_rows};
use super::rounds::in_shared_rounds;
use super::threads::{for_each_part, threads};
use super::wide::{write_wide, write_wide_columns};
use crate::alloc::HostBuffer;
use crate::arrow::DeviceArray;
use crate::error::{Error, ErrorKind, Result};
use crate::spec::{Element, MatrixSpec, MemoryOrder, signed};
use crate::tensor::{Output, Tensor, TensorParts};

/// Returns a view of the columns' memory as a matrix, with `stride` bytes from one column to the next, as
/// [`MatrixColumns::column_stride`] returns. The caller has checked that the bytes of bools are 0 or 1.
///
/// # Errors
/// When sizes are beyond 64 bits.
pub(crate) fn view_matrix(spec: &MatrixSpec, columns: &MatrixColumns<'_>, stride: usize) -> Result<Tensor> {
    let first = columns.columns.first().filter(|_| columns.column_stride(spec) == Some(stride));
    let first = first.ok_or_else(|| Error::internal("the columns do not lie as a matrix"))?;
    let element = spec.columns().first().map_or(Element::Bits, |(_, column)| column.element());
    let count = columns.columns.len();
    let stride = if count == 1 { 1 } else { signed(stride / spec.dtype().itemsize())? };
    let layout = (smallvec![signed(columns.rows)?, signed(count)?], smallvec![1, stride]);
    let parts = TensorParts::of_array(first.array, first.leaf.start(element), spec.dtype(), layout);
    // SAFETY: import checked that the array of structs, which `owner` is, has these columns of so many elements, in memory
    // that it keeps alive and that Arrow declares immutable; they lie `stride` bytes apart, none being changed.
    unsafe { Tensor::from_parts(parts) }
}

/// Returns a matrix without elements, of so many rows if it has no columns, on the device of a chunk.
///
/// # Errors
/// If the number of rows or columns exceeds 64 bits.
pub(crate) fn empty_matrix(spec: &MatrixSpec, rows: usize, chunk: &DeviceArray) -> Result<Tensor> {
    let columns = signed(spec.width())?;
    let rows = if columns == 0 { signed(rows)? } else { 0 };
    let layout = (smallvec![rows, columns], smallvec![columns, 1]);
    let parts = TensorParts::of_array(chunk, std::ptr::null(), spec.dtype(), layout);
    // SAFETY: an extent is 0, so shape and strides reach no element.
    unsafe { Tensor::from_parts(parts) }
}

/// Packs the chunks into a new tensor of shape `(rows, columns)`.
///
/// # Errors
/// If a cast refuses a value: names column and row. If an allocation fails.
pub(super) fn pack_matrix(task: MatrixTask<'_>) -> Result<Tensor> {
    let MatrixTask { spec, chunks, memory_order, .. } = task;
    let too_large = || Error::new(ErrorKind::Memory, "the matrix is larger than memory can be");
    let rows = chunks.iter().try_fold(0_usize, |rows, chunk| rows.checked_add(chunk.rows)).ok_or_else(too_large)?;
    let bytes = rows.checked_mul(spec.row_bytes()).ok_or_else(too_large)?;
    let columns = spec.width();
    let strides = if memory_order == MemoryOrder::F { [1, signed(rows)?] } else { [signed(columns)?, 1] };
    let mut buffer = HostBuffer::uninitialised(bytes)?;
    // A single column lies both ways.
    let target = if memory_order == MemoryOrder::F || columns == 1 {
        MatrixTarget::Columns(OutputColumns::new(buffer.as_uninit_mut(), rows.saturating_mul(spec.dtype().itemsize())))
    } else {
        MatrixTarget::Rows(Rows::in_buffer(&mut buffer, spec.row_bytes()))
    };
    write(spec, chunks, target, threads(task.threads.map(NonZero::get), bytes))?;
    let shape = smallvec![signed(rows)?, signed(columns)?];
    // SAFETY: every row of every chunk was written in the matrix's dtype.
    unsafe { Tensor::from_host_buffer(buffer, spec.dtype(), shape, strides.into(), None) }
}

/// Packs the chunks into the caller's tensor.
///
/// # Errors
/// As [`pack_matrix`]; and if `out` has another dtype or shape, or has neither dense rows nor dense columns. What `out`
/// holds is unspecified after an error.
pub(super) fn write_matrix(task: MatrixTask<'_>, out: &mut Output<'_>) -> Result<()> {
    let MatrixTask { spec, chunks, .. } = task;
    let rows = chunks.iter().fold(0_usize, |rows, chunk| rows.saturating_add(chunk.rows));
    let (columns, size) = (spec.width(), spec.dtype().itemsize());
    let (stride, by_column) = matrix_stride(spec, rows, out)?;
    let Some(stride) = stride.checked_mul(size) else {
        return Err(Error::argument("out has strides beyond the address space"));
    };
    let start = out.start();
    let target = if by_column {
        let room = rows.saturating_mul(size);
        // SAFETY: `Output` has checked that elements lie apart and are ours; the columns have `rows` dense elements each.
        MatrixTarget::Columns(unsafe { OutputColumns::from_raw(start, stride, columns, room) })
    } else {
        // SAFETY: `Output` has checked that elements lie apart and are ours; each row has `columns` dense elements.
        MatrixTarget::Rows(unsafe { Rows::from_raw(start, stride, rows, spec.row_bytes()) })
    };
    let bytes = rows.saturating_mul(spec.row_bytes());
    write(spec, chunks, target, threads(task.threads.map(NonZero::get), bytes))
}

/// Returns the elements from one row, or column, of `out` to the next, and whether its columns are dense instead of its
/// rows.
///
/// # Errors
/// If `out` has another dtype or shape than a matrix of this many rows, or neither its rows nor its columns are dense.
pub(crate) fn matrix_stride(spec: &MatrixSpec, rows: usize, out: &Output<'_>) -> Result<(usize, bool)> {
    let columns = spec.width();
    out.require(spec.dtype(), &[signed(rows)?, signed(columns)?])?;
    let by_column = out.is_column_major();
    let &[row, column] = out.strides() else { return Err(Error::internal("a matrix without two strides")) };
    if !by_column && columns != 1 && column != 1 {
        return Err(Error::argument(format!(
            "out has strides {:?}: neither its rows nor its columns lie dense",
            out.strides()
        ))
        .remedy_is("pass a row-major or a column-major tensor; rows, or columns, may lie apart"));
    }
    let stride = usize::try_from(if by_column { column } else { row });
    Ok((stride.map_err(|_| Error::argument("out has strides beyond the address space"))?, by_column))
}

/// Writes every row of the chunks as a row of `out`.
///
/// # Errors
/// For a value that a cast cannot take: names column and row.
pub(super) fn write_rows(spec: &MatrixSpec, chunks: &[MatrixColumns<'_>], out: Rows<'_>, threads: usize) -> Result<()> {
    write(spec, chunks, MatrixTarget::Rows(out), threads)
}

/// Where the elements of a matrix go.
enum MatrixTarget<'a> {
    Rows(Rows<'a>),
    Columns(OutputColumns<'a>),
}

/// Columns of a matrix to be written: `stride` bytes apart, each with `room` bytes.
struct OutputColumns<'a> {
    start: *mut u8,
    stride: usize,
    count: usize,
    room: usize,
    memory: PhantomData<&'a mut [MaybeUninit<u8>]>,
}

// SAFETY: the columns are borrowed exclusively, and are plain bytes.
unsafe impl Send for OutputColumns<'_> {}
// SAFETY: a shared reference only gives their address.
unsafe impl Sync for OutputColumns<'_> {}

impl<'a> OutputColumns<'a> {
    /// As many columns of `stride` bytes as `out` has room for, one after the other; none where columns have no bytes.
    fn new(out: &'a mut [MaybeUninit<u8>], stride: usize) -> Self {
        let count = out.len().checked_div(stride).unwrap_or(0);
        Self { start: out.as_mut_ptr().cast(), stride, count, room: stride, memory: PhantomData }
    }

    /// # Safety
    /// From `start` on there are `count` columns, `stride` bytes apart, of `room` writable bytes each, which nobody else
    /// uses for `'a`. `room` is at most `stride`.
    unsafe fn from_raw(start: *mut u8, stride: usize, count: usize, room: usize) -> Self {
        Self { start, stride, count, room, memory: PhantomData }
    }

    /// Some bytes of a column; none where it has fewer.
    ///
    /// # Safety
    /// Nobody has these bytes at the same time.
    #[allow(clippy::mut_from_ref, reason = "parts on several threads have different bytes")]
    unsafe fn part(&self, column: usize, bytes: Range<usize>) -> &mut [MaybeUninit<u8>] {
        if column >= self.count || bytes.end > self.room || bytes.start >= bytes.end {
            return &mut [];
        }
        let start = self.start.wrapping_add(column * self.stride + bytes.start);
        // SAFETY: inside the column, whose bytes are writable (`from_raw`); nobody has them at the same time (a clause of
        // `# Safety`).
        unsafe { std::slice::from_raw_parts_mut(start.cast(), bytes.len()) }
    }
}

/// Writes every row of the chunks.
fn write(spec: &MatrixSpec, chunks: &[MatrixColumns<'_>], target: MatrixTarget<'_>, threads: usize) -> Result<()> {
    let row_bytes = spec.row_bytes();
    match (target, chunks) {
        (MatrixTarget::Rows(out), [only]) => {
            let columns = only.packed(spec);
            in_shared_rounds(out.count(), row_bytes, |rows| {
                // SAFETY: rounds have different rows, and follow each other.
                let out = unsafe { out.part(rows.clone()) };
                write_packed(&columns, rows.start, 0, out, threads)
            })
        }
        (MatrixTarget::Rows(out), _) => {
            let chunks: Vec<(usize, Vec<PackedColumn<'_>>)> =
                chunks.iter().map(|chunk| (chunk.rows, chunk.packed(spec))).collect();
            in_shared_rounds(out.count(), row_bytes, |round| {
                for_each_part(threads, round.len(), 1, |rows| {
                    let rows = round.start + rows.start..round.start + rows.end;
                    for_each_piece(chunks.iter().map(|(rows, columns)| (*rows, columns)), &rows, |columns, piece| {
                        // SAFETY: parts have different rows, and the pieces of a part follow each other.
                        let out = unsafe { out.part(piece.rows) };
                        write_packed(columns, piece.first, piece.before, out, 1)
                    })
                })
            })
        }
        (MatrixTarget::Columns(out), _) => {
            let rows = chunks.iter().fold(0_usize, |rows, chunk| rows.saturating_add(chunk.rows));
            in_shared_rounds(rows, row_bytes, |round| {
                for_each_part(threads, round.len(), 64, |rows| {
                    let rows = round.start + rows.start..round.start + rows.end;
                    for_each_piece(chunks.iter().map(|chunk| (chunk.rows, chunk)), &rows, |chunk, piece| {
                        write_columns(&chunk.packed(spec), spec.dtype().itemsize(), &piece, &out)
                    })
                })
            })
        }
    }
}

/// Rows of one chunk that are written together.
pub(super) struct ChunkRows {
    /// The rows of the whole matrix.
    pub(super) rows: Range<usize>,
    /// The first of them, counted from the chunk's first row.
    pub(super) first: usize,
    /// Rows of the whole matrix before the chunk.
    pub(super) before: usize,
}

/// Calls `work` with each chunk that has some of the rows, and with those.
pub(super) fn for_each_piece<T>(
    chunks: impl Iterator<Item = (usize, T)>,
    rows: &Range<usize>,
    mut work: impl FnMut(T, ChunkRows) -> Result<()>,
) -> Result<()> {
    let mut before = 0;
    for (count, chunk) in chunks {
        let piece = rows.start.max(before)..rows.end.min(before + count);
        if piece.start < piece.end {
            work(chunk, ChunkRows { first: piece.start - before, rows: piece, before })?;
        }
        before += count;
    }
    Ok(())
}

/// Writes some rows of a chunk's columns, column by column.
fn write_columns(columns: &[PackedColumn<'_>], size: usize, piece: &ChunkRows, out: &OutputColumns<'_>) -> Result<()> {
    let (isa, count) = (Isa::detect(), piece.rows.len());
    let mut lowest: Option<(usize, Error)> = None;
    let mut before = 0;
    for column in columns {
        let (spec, chunk) = (column.spec, column.chunk);
        if spec.dtype().itemsize() != size || !has_rows(column, piece.first, count) {
            return Err(Error::internal("the columns do not fit the matrix that they are written to"));
        }
        let part = |index: usize, rows: Range<usize>| {
            let bytes = (piece.rows.start + rows.start) * size..(piece.rows.start + rows.end) * size;
            // SAFETY: parts on several threads have different rows, and here one is written after the other.
            unsafe { out.part(before + index, bytes) }
        };
        let written = match spec.row_elements() {
            // SAFETY: checked above: enough rows; `Output`, and memory of ours, is aligned for the dtype. The processor has what was
            // detected.
            1 => unsafe { write_range(isa, spec, chunk, piece.first, part(0, 0..count)) },
            // SAFETY: checked above: enough rows. The processor has what was detected.
            _ => unsafe { write_wide_columns(isa, *column, (piece.first, count), part) },
        };
        let row_elements = spec.row_elements();
        before += row_elements;
        if let Err(misfit) = written {
            let row = misfit.index / row_elements.max(1);
            if lowest.as_ref().is_none_or(|(lowest, _)| row < *lowest) {
                lowest = Some((row, misfit.error(spec, piece.before).in_column(spec.field().name())));
            }
        }
    }
    lowest.map_or(Ok(()), |(_, error)| Err(error))
}

/// Writes the rows of a chunk's columns from `first` on as the rows of `out`, as many as that has, nulls filled. `row`
/// is the source's number of the chunk's first row, for messages.
///
/// # Errors
/// For a value that a cast cannot take, which names column and row; when the columns do not fit `out`, or an allocation fails.
pub(crate) fn write_packed(
    columns: &[PackedColumn<'_>],
    first: usize,
    row: usize,
    out: Rows<'_>,
    threads: usize,
) -> Result<()> {
    let Some(dtype) = columns.first().map(|column| column.spec.dtype()) else { return Ok(()) };
    let fits = |column: &PackedColumn<'_>| column.spec.dtype() == dtype && has_rows(column, first, out.count());
    let aligned = |bytes: usize| bytes.is_multiple_of(dtype.alignment());
    let elements = columns.iter().try_fold(0_usize, |sum, column| sum.checked_add(column.spec.row_elements()));
    let bytes = elements.and_then(|elements| elements.checked_mul(dtype.itemsize()));
    let room = bytes.is_some_and(|bytes| bytes <= out.width());
    if !columns.iter().all(fits) || !room || !aligned(out.start().addr()) || !aligned(out.stride()) {
        return Err(Error::internal("the columns do not fit the rows that they are written to"));
    }
    let is_scalar = |column: &PackedColumn<'_>| column.spec.row_elements() == 1;
    if columns.iter().all(is_scalar) {
        // SAFETY: checked above: scalars of one dtype, enough rows of them, enough room in each row, aligned.
        let packed = unsafe { pack_rows(Isa::detect(), threads, columns, first, out) }?;
        return packed.map_err(|found| misfit_of(columns, found, row));
    }
    let (mut rest, mut start) = (columns, 0);
    let mut lowest: Option<Error> = None;
    while let Some(head) = rest.first() {
        let scalars = rest.iter().take_while(|column| is_scalar(column)).count();
        let (some, after) = rest.split_at_checked(scalars.max(1)).ok_or_else(|| Error::internal("no columns"))?;
        let elements = if scalars == 0 { head.spec.row_elements() } else { scalars };
        let width = elements * dtype.itemsize();
        // SAFETY: columns follow each other in a row, and are written one after the other.
        let out = unsafe { out.behind(start, width) };
        let written = if scalars == 0 {
            // SAFETY: checked above: enough rows, of as many bytes as there is room for, aligned: columns start at elements.
            unsafe { write_wide((Isa::detect(), threads), *head, (first, row), &out) }
        } else {
            // SAFETY: checked above: scalars of one dtype, enough rows of them, enough room in each row, aligned.
            let packed = unsafe { pack_rows(Isa::detect(), threads, some, first, out) }?;
            packed.map_err(|found| misfit_of(some, found, row))
        };
        if let Err(error) = written {
            if error.kind() != ErrorKind::Cast {
                return Err(error);
            }
            lowest = Some(lowest.filter(|lowest| !error.is_lower_than(lowest)).unwrap_or(error));
        }
        (rest, start) = (after, start + width);
    }
    lowest.map_or(Ok(()), Err)
}

/// Whether a column has so many rows from `first` on, and all their elements.
fn has_rows(column: &PackedColumn<'_>, first: usize, count: usize) -> bool {
    let leaf = &column.chunk.leaf;
    let elements = |rows: usize| rows.checked_mul(column.spec.row_elements());
    let end = first.checked_add(count).filter(|end| *end <= leaf.rows);
    end.and_then(elements).is_some_and(|elements| elements <= leaf.elements)
}

/// The error of a value that does not fit.
fn misfit_of(columns: &[PackedColumn<'_>], found: PackMisfit, row: usize) -> Error {
    match columns.get(found.column) {
        Some(column) => found.misfit.error(column.spec, row).in_column(column.spec.field().name()),
        None => Error::internal("a value does not fit"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Float32Array, RecordBatch};

    use super::*;
    use crate::convert::ColumnChunk;
    use crate::dtype::DType;
    use crate::spec::Options;

    fn spec_of(batch: &DeviceArray, dtype: DType) -> MatrixSpec {
        MatrixSpec::new(batch.field(), None, |_| Options::default(), Some(dtype)).unwrap()
    }

    #[test]
    fn rows_that_columns_do_not_fit_are_refused() {
        let column = |at: f32| -> ArrayRef { Arc::new(Float32Array::from(vec![at, at + 1.0])) };
        let batch = RecordBatch::try_from_iter([("a", column(0.0)), ("b", column(10.0))]).unwrap();
        let batch = DeviceArray::from_record_batch(&batch).unwrap();
        let (floats, doubles) = (spec_of(&batch, DType::Float32), spec_of(&batch, DType::Float64));
        let chunks = floats.columns().iter().map(|(position, spec)| {
            let leaf = batch.view().struct_field(*position).unwrap().leaf(spec).unwrap();
            ColumnChunk { mask: None, leaf, array: &batch }
        });
        let chunks = MatrixColumns { rows: 2, columns: chunks.collect(), is_plain: false };
        let columns = chunks.packed(&floats);
        let mixed = [columns[0], chunks.packed(&doubles)[1]];
        let mut memory = HostBuffer::uninitialised(64).unwrap();
        for (columns, first, start, stride, count, fits) in [
            (&columns[..], 0, 0, 8, 2, true),
            (&columns, 1, 4, 12, 1, true),
            (&columns, 0, 0, 4, 2, false),
            (&columns, 0, 1, 8, 2, false),
            (&columns, 0, 0, 9, 2, false),
            (&columns, 0, 0, 8, 3, false),
            (&columns, 1, 0, 8, 2, false),
            (&mixed, 0, 0, 16, 2, false),
        ] {
            let out = &mut memory.as_uninit_mut()[start..start + stride * count];
            let written = write_packed(columns, first, 0, Rows::new(out, stride), 1);
            assert_eq!(written.is_ok(), fits, "{count} rows from {first} on, {stride} bytes apart from {start} on");
        }
    }
}
