//! Splits the rows of a matrix into columns in one pass that reads and writes each byte once.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod tile_grid;
mod vectors;

use std::sync::Arc;

use smallvec::smallvec;

use super::pack::{Isa, LINE, NON_TEMPORAL_FROM, fence};
use super::rounds::in_rounds_on;
use super::threads::{for_each_part, threads};
use crate::alloc::HostBuffer;
use crate::copy_log::{self, Copied};
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::tensor::{Tensor, TensorParts};
use tile_grid::{Grid, split};

/// The bytes of a block of rows: they stay in the first-level cache, and the next block in the second.
const BLOCK: usize = 1 << 14;
/// The least rows of a block, because columns are written in runs of them.
const FEWEST: usize = 32;

/// Copies a host tensor of two dimensions into one new block, in which each column is dense and starts on a cache line. `why` goes to
/// the copy log.
///
/// # Errors
/// If the tensor has other dimensions or is not in host memory, or the allocation fails.
pub(crate) fn split_rows(tensor: &Tensor, asked: Option<usize>, why: &str) -> Result<Tensor> {
    let isa = Isa::detect();
    let (&[rows, columns], &[row_step, column_step]) = (tensor.shape(), tensor.strides()) else {
        return Err(Error::internal(format!("a matrix of shape {:?}", tensor.shape())));
    };
    if tensor.device() != Device::CPU {
        return Err(Error::new(ErrorKind::Device, format!("the tensor is on {}", tensor.device())));
    }
    let too_large = || {
        let reason = format!("a copy of shape {:?} is larger than memory can be", tensor.shape());
        Error::new(ErrorKind::Memory, reason)
    };
    let size = tensor.dtype().itemsize();
    let count = |extent: i64| usize::try_from(extent).map_err(|_| too_large());
    // A tensor's byte span fits the address space, and so does each step that it takes.
    let step = |stride: i64| isize::try_from(stride).map(|stride| stride.wrapping_mul(size.cast_signed()));
    let column = count(rows)?.checked_mul(size).ok_or_else(too_large)?;
    // An odd number of lines: columns at multiples of a power of two would share few sets of the cache. Short columns are packed closer, so
    // that they are a column-major matrix again: with gaps of a quarter of a column they would be none.
    let lines = column.div_ceil(LINE) | usize::from(column >= 8 * LINE);
    let stride = lines.checked_mul(LINE).ok_or_else(too_large)?;
    let bytes = stride.checked_mul(count(columns)?).ok_or_else(too_large)?;
    let buffer = HostBuffer::uninitialised(if tensor.is_empty() { 0 } else { bytes })?;
    if !tensor.is_empty() {
        let grid = Grid {
            source: tensor.as_ptr().cast_const(),
            rows: count(rows)?,
            columns: count(columns)?,
            row_step: step(row_step).map_err(|_| too_large())?,
            column_step: step(column_step).map_err(|_| too_large())?,
            out: buffer.as_ptr(),
            size,
            stride,
            stream: bytes >= NON_TEMPORAL_FROM && isa.streams(),
        };
        let threads = threads(asked, bytes);
        in_rounds_on(threads, grid.rows, grid.columns.saturating_mul(size), |round| {
            for_each_part::<Error>(threads, round.len(), LINE, |part| {
                let part = grid.part(round.start + part.start, 0).first(part.len(), grid.columns);
                // SAFETY: the tensor has these rows and columns; the buffer has `stride` bytes for each column, and no other
                // thread writes these rows of them.
                unsafe { split_blocks(isa, part) };
                Ok(())
            })
        })?;
        copy_log::record(|| {
            let what = format!("tensor of {} {:?}", tensor.dtype(), tensor.shape());
            Copied { what, why: why.to_owned(), bytes: tensor.nbytes() }
        });
    }
    let strides = smallvec![1, i64::try_from(stride / size.max(1)).map_err(|_| too_large())?];
    let layout = (smallvec![rows, columns], strides);
    let parts = TensorParts::of_host(buffer.as_ptr(), tensor.dtype(), layout, Arc::new(buffer));
    let (copied, field) = (!tensor.is_empty(), tensor.field().cloned());
    let parts = TensorParts { read_only: false, copied, field, ..parts };
    // SAFETY: every row of every column was written, in a buffer that the owner keeps.
    let columns = unsafe { Tensor::from_parts(parts) }?;
    Ok(columns.with_codes_of(tensor))
}

/// Writes the columns of a grid, block by block.
///
/// # Safety
/// As [`split`].
unsafe fn split_blocks(isa: Isa, grid: Grid) {
    if usize::try_from(grid.row_step) == Ok(grid.size) {
        for column in 0..grid.columns {
            let column = grid.part(0, column);
            // SAFETY: the column's elements lie one after the other (`row_step` is their size), and `out` has room for
            // all of them, apart.
            unsafe { column.out.copy_from_nonoverlapping(column.source, column.rows * column.size) };
        }
        return;
    }
    let row_bytes = grid.columns.saturating_mul(grid.size).max(1);
    let tile = LINE / grid.size.max(1);
    let block = (BLOCK / row_bytes).max(FEWEST).next_multiple_of(tile.max(1));
    for row in (0..grid.rows).step_by(block) {
        // SAFETY: a part of the grid: the rows and columns that it has are promised, and so is the room.
        unsafe { split(isa, grid.part(row, 0).first(block, grid.columns)) };
    }
    if grid.stream {
        fence();
    }
}
