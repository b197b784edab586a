//! [`RowBlock`]: rows on their way into a batch, appended to recycled memory.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::Arc;

use arrow_schema::FieldRef;
use smallvec::smallvec;

use super::chunk::{ColumnChunk, MatrixColumns};
use super::column::{write_range, write_validity};
use super::matrix::write_packed;
use super::pack::{Isa, LINE, Rows, prefetch};
use crate::alloc::{Owner, PooledBuffer};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::spec::{Dims, MatrixSpec, Spec, signed};
use crate::stream_order::Readiness;
use crate::tensor::{Tensor, TensorParts};

/// The layout of a row: elements of one dtype, and their shape.
#[derive(Clone, Debug)]
pub(crate) struct RowLayout {
    dtype: DType,
    elements: usize,
    bytes: usize,
    shape: Dims,
    strides: Dims,
    /// The Arrow field of the elements, unless they were cast.
    field: Option<FieldRef>,
}

impl RowLayout {
    /// A row of a matrix: the elements of each column.
    pub(crate) fn of_matrix(spec: &MatrixSpec) -> Result<Self> {
        let columns = spec.width();
        let extent = signed(columns)?;
        Self::new(spec.dtype(), columns, smallvec![extent], smallvec![1], None)
    }

    /// A row of a column, which can have dimensions of its own.
    pub(crate) fn of_column(spec: &Spec) -> Result<Self> {
        let (shape, strides) = (Dims::from_slice(spec.inner_shape()), Dims::from_slice(spec.inner_strides()));
        Self::new(spec.dtype(), spec.row_elements(), shape, strides, spec.kept_field().cloned())
    }

    /// The validity of a row of a column: a bool for each element.
    pub(crate) fn of_validity(spec: &Spec) -> Result<Self> {
        let (shape, strides) = (Dims::from_slice(spec.inner_shape()), Dims::from_slice(spec.inner_strides()));
        Self::new(DType::Bool, spec.row_elements(), shape, strides, None)
    }

    fn new(dtype: DType, elements: usize, shape: Dims, strides: Dims, field: Option<FieldRef>) -> Result<Self> {
        let too_large = || Error::new(ErrorKind::Memory, "a row is larger than memory can be");
        let bytes = elements.checked_mul(dtype.itemsize()).ok_or_else(too_large)?;
        Ok(Self { dtype, elements, bytes, shape, strides, field })
    }

    /// Bytes of a row.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Where the rows of a tensor are: their bytes, or a copy of them that is written as the order says.
pub(crate) struct RowsPlace {
    /// The address of the first row; any where there are no bytes.
    pub(crate) data: *mut u8,
    pub(crate) device: Device,
    /// Keeps that memory alive, which nobody else has.
    pub(crate) owner: Owner,
    /// `None` for ordinary host memory.
    pub(crate) readiness: Option<Readiness>,
}

/// Rows of one layout, the first of a block of memory, which has room for more.
#[derive(Debug)]
pub(crate) struct RowBlock {
    memory: PooledBuffer,
    layout: Arc<RowLayout>,
    /// Rows that were written: their bytes are elements of the layout's dtype.
    rows: usize,
}

impl RowBlock {
    /// No rows, and no memory for them yet.
    pub(crate) fn new(layout: Arc<RowLayout>) -> Self {
        Self { memory: PooledBuffer::none(), layout, rows: 0 }
    }

    /// How many rows there are.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// How many rows the memory has room for.
    pub(crate) fn capacity(&self) -> usize {
        self.memory.len().checked_div(self.layout.bytes).unwrap_or(usize::MAX)
    }

    /// Moves the rows to other memory, which has to have room for them.
    ///
    /// # Errors
    /// When it has not. Nothing changes then.
    pub(crate) fn move_to(&mut self, mut memory: PooledBuffer) -> Result<()> {
        let written = self.written(0..self.rows);
        let from = self.memory.as_uninit_mut().get(written.clone()).ok_or_else(beyond)?;
        memory.as_uninit_mut().get_mut(written).ok_or_else(beyond)?.copy_from_slice(from);
        std::mem::replace(&mut self.memory, memory).discard();
        Ok(())
    }

    /// Appends rows of a matrix. `row` is the number of the first one in the whole source, for messages.
    ///
    /// # Errors
    /// For a value that a cast cannot take; when the columns or the rows do not fit. Nothing is appended then.
    pub(crate) fn append_matrix(
        &mut self,
        spec: &MatrixSpec,
        columns: &MatrixColumns<'_>,
        row: usize,
        threads: usize,
    ) -> Result<()> {
        let count = columns.rows;
        let out = self.spare(count)?;
        if !out.is_empty() {
            let bytes = out.len() / count;
            if spec.width().checked_mul(spec.dtype().itemsize()) != Some(bytes) {
                return Err(beyond());
            }
            write_packed(&columns.packed(spec), 0, row, Rows::new(out, bytes), threads)?;
        }
        // `write_packed` has written every row, and rows have no gaps.
        self.rows += count;
        Ok(())
    }

    /// Appends the rows of a column's chunk. `row` is the number of the first one in the whole source, for messages.
    ///
    /// # Errors
    /// For a value that a cast cannot take; when the rows do not fit. Nothing is appended then.
    pub(crate) fn append_column(&mut self, spec: &Spec, chunk: &ColumnChunk<'_>, row: usize) -> Result<()> {
        let dtype = self.layout.dtype;
        let out = self.spare(chunk.leaf.rows)?;
        let fits = spec.dtype() == dtype && out.len().checked_div(dtype.itemsize()) == Some(chunk.leaf.elements);
        // Rows without elements have no memory, which would be aligned.
        let is_aligned = out.is_empty() || out.as_ptr().addr().is_multiple_of(dtype.alignment());
        if !fits || !is_aligned {
            return Err(beyond());
        }
        if !out.is_empty() {
            // SAFETY: checked above: as many elements as `out` has room for, of one dtype, aligned for it.
            let written = unsafe { write_range(Isa::detect(), spec, chunk, 0, out) };
            written.map_err(|misfit| misfit.error(spec, row).in_column(spec.field().name()))?;
        }
        self.rows += chunk.leaf.rows;
        Ok(())
    }

    /// Appends the validity of a column's rows: a bool for each element.
    ///
    /// # Errors
    /// When the rows do not fit. Nothing is appended then.
    pub(crate) fn append_validity(&mut self, chunk: &ColumnChunk<'_>) -> Result<()> {
        let dtype = self.layout.dtype;
        let out = self.spare(chunk.leaf.rows)?;
        if dtype != DType::Bool || out.len() != chunk.leaf.elements {
            return Err(beyond());
        }
        write_validity(chunk, out);
        self.rows += chunk.leaf.rows;
        Ok(())
    }

    /// Appends the validity of a matrix's rows, all true, and returns true, if no column has a null in them; else appends nothing.
    ///
    /// # Errors
    /// When the rows do not fit.
    pub(crate) fn append_all_valid(&mut self, columns: &MatrixColumns<'_>) -> Result<bool> {
        if self.layout.dtype != DType::Bool || columns.columns.iter().any(|column| column.mask.is_some()) {
            return Ok(false);
        }
        self.spare(columns.rows)?.fill(MaybeUninit::new(1));
        self.rows += columns.rows;
        Ok(true)
    }

    /// Appends a copy of a row of another block of the same layout.
    ///
    /// # Errors
    /// When there is no such row, or no room.
    pub(crate) fn push(&mut self, other: &mut Self, row: usize) -> Result<()> {
        let from = other.row(row).ok_or_else(beyond)?;
        let out = self.spare(1)?;
        if out.len() != from.len() {
            return Err(beyond());
        }
        out.copy_from_slice(from);
        self.rows += 1;
        Ok(())
    }

    /// The bytes of all rows, for [`gather`](Self::gather).
    pub(crate) fn all_rows(&mut self) -> &mut [MaybeUninit<u8>] {
        let bytes = self.written(0..self.rows);
        self.memory.as_uninit_mut().get_mut(bytes).unwrap_or_default()
    }

    /// Appends copies of rows of other blocks of the same layout: row r is row r mod 2^shift of block r / 2^shift. `blocks` are the
    /// rows of each.
    ///
    /// # Errors
    /// When there is no such row, or no room. Nothing is appended then.
    pub(crate) fn gather(&mut self, blocks: &[&mut [MaybeUninit<u8>]], shift: u32, rows: &[usize]) -> Result<()> {
        let (bytes, mask) = (self.layout.bytes, (1 << shift) - 1);
        let row_at = |row: usize| blocks.get(row >> shift)?.get((row & mask).checked_mul(bytes)?..)?.get(..bytes);
        let mut out = self.spare(rows.len())?;
        for (index, row) in rows.iter().enumerate() {
            if let Some(ahead) = rows.get(index + FETCH_AHEAD).and_then(|row| row_at(*row)) {
                fetch(ahead.as_ptr().cast(), bytes);
            }
            let (to, rest) = out.split_at_mut_checked(bytes).ok_or_else(beyond)?;
            to.copy_from_slice(row_at(*row).ok_or_else(beyond)?);
            out = rest;
        }
        self.rows += rows.len();
        Ok(())
    }

    /// Exchanges a row for one of another block of the same layout.
    ///
    /// # Errors
    /// When there are no such rows.
    pub(crate) fn swap(&mut self, row: usize, other: &mut Self, other_row: usize) -> Result<()> {
        match (self.row(row), other.row(other_row)) {
            (Some(one), Some(two)) if one.len() == two.len() => {
                exchange(one, two);
                Ok(())
            }
            _ => Err(beyond()),
        }
    }

    /// Fetches a row that is soon to be exchanged: rows at random places are not foreseen by the processor.
    #[inline]
    pub(crate) fn prefetch(&self, row: usize) {
        fetch(self.memory.as_ptr().wrapping_add(row.wrapping_mul(self.layout.bytes)), self.layout.bytes);
    }

    /// Drops the rows from this one on.
    pub(crate) fn truncate(&mut self, rows: usize) {
        self.rows = self.rows.min(rows);
    }

    /// Bytes of the rows.
    pub(crate) fn len(&self) -> usize {
        self.written(0..self.rows).end
    }

    /// The rows as a writable tensor, which gives the memory back when nobody has it any more.
    ///
    /// # Errors
    /// When the shape is more than 64 bits count.
    pub(crate) fn into_tensor(self) -> Result<Tensor> {
        let place = |memory: PooledBuffer| {
            Ok(RowsPlace { data: memory.as_ptr(), device: Device::CPU, owner: Arc::new(memory), readiness: None })
        };
        // SAFETY: the rows stay in the block, which the owner keeps and nobody else has.
        unsafe { self.into_tensor_by(place) }
    }

    /// The rows as a writable tensor, where `place` puts them: it is given their memory, in which they come first.
    ///
    /// # Errors
    /// Those of `place`; when the shape is more than 64 bits count.
    ///
    /// # Safety
    /// Where `place` says there are as many bytes of the rows, as long as the owner lives, and nobody else has them.
    pub(crate) unsafe fn into_tensor_by(self, place: impl FnOnce(PooledBuffer) -> Result<RowsPlace>) -> Result<Tensor> {
        let (mut shape, mut strides): (Dims, Dims) =
            (smallvec![signed(self.rows)?], smallvec![signed(self.layout.elements)?]);
        shape.extend_from_slice(&self.layout.shape);
        strides.extend_from_slice(&self.layout.strides);
        let RowsPlace { data, device, owner, readiness } = place(self.memory)?;
        let parts = TensorParts::of_host(data, self.layout.dtype, (shape, strides), owner);
        let field = self.layout.field.clone();
        let parts = TensorParts { device, read_only: false, copied: true, readiness, field, ..parts };
        // SAFETY: the rows were written as elements of the dtype, `elements` of them each, which is what the strides of a spec
        // reach; at `data` they are alive as long as the owner, and nobody else has them (clauses of `# Safety`).
        unsafe { Tensor::from_parts(parts) }
    }

    /// The bytes of a row.
    pub(crate) fn row_bytes(&mut self, row: usize) -> Option<&[u8]> {
        let bytes = self.row(row)?;
        let (data, len) = (bytes.as_ptr().cast::<u8>(), bytes.len());
        // SAFETY: the pointer and the length are those of a slice, so they are in one allocation, aligned and not null. `row`
        // returns bytes of rows below `self.rows`, which were written. The slice that is returned borrows `self` mutably, so
        // nothing writes to them while it lives.
        Some(unsafe { std::slice::from_raw_parts(data, len) })
    }

    /// Where these rows are.
    fn written(&self, rows: Range<usize>) -> Range<usize> {
        // Rows that exist have bytes that memory has.
        rows.start.saturating_mul(self.layout.bytes)..rows.end.saturating_mul(self.layout.bytes)
    }

    fn row(&mut self, row: usize) -> Option<&mut [MaybeUninit<u8>]> {
        let bytes = self.written(row..row.checked_add(1).filter(|end| *end <= self.rows)?);
        self.memory.as_uninit_mut().get_mut(bytes)
    }

    /// The room for the next rows.
    fn spare(&mut self, count: usize) -> Result<&mut [MaybeUninit<u8>]> {
        let end = self.rows.checked_add(count).ok_or_else(beyond)?;
        let bytes = self.written(self.rows..end);
        self.memory.as_uninit_mut().get_mut(bytes).ok_or_else(beyond)
    }
}

/// The most bytes of a row that are fetched ahead: what follows them is foreseen.
const FETCHED: usize = 256;
/// How many rows ahead rows at random places are prefetched: as many as are copied while memory answers.
pub(crate) const FETCH_AHEAD: usize = 16;

/// Fetches an element that is soon to be read, if there is one.
#[inline]
pub(crate) fn prefetch_element<T>(elements: &[T], index: usize) {
    if let Some(element) = elements.get(index) {
        prefetch(std::ptr::from_ref(element).cast());
    }
}

/// Fetches a row of so many bytes.
#[inline]
pub(super) fn fetch(start: *const u8, bytes: usize) {
    // Its last byte too: a row that is not aligned ends in one more line.
    for byte in (0..bytes.min(FETCHED)).step_by(LINE).chain(bytes.min(FETCHED).checked_sub(1)) {
        prefetch(start.wrapping_add(byte));
    }
}

/// Exchanges rows of the same length, which are short: word by word.
#[inline]
fn exchange(one: &mut [MaybeUninit<u8>], two: &mut [MaybeUninit<u8>]) {
    let (one, one_tail) = one.as_chunks_mut::<8>();
    let (two, two_tail) = two.as_chunks_mut::<8>();
    one.swap_with_slice(two);
    one_tail.swap_with_slice(two_tail);
}

fn beyond() -> Error {
    Error::internal("rows do not fit the block that they are written to")
}

#[cfg(test)]
mod tests;
