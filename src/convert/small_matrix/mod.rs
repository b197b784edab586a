//! Packs plain columns into a matrix that fits into the second-level cache together with them.
//!
//! The setup of the general pass would cost as much as such a matrix, so this one has none. It copies half a cache line
//! of a row at a time: the columns of a whole line start in the same set of the first-level cache, and would evict each
//! other from it.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod half_line;
#[cfg(test)]
mod tests;

use smallvec::smallvec;

use super::pack::{Isa, Rows};
use crate::alloc::HostBuffer;
use crate::arrow::{PlainColumns, Starts};
use crate::error::{Error, Result};
use crate::spec::Dims;
use crate::tensor::{Output, Tensor};
use half_line::{HALF, LANES, Strip, TILE};

/// Bytes of a matrix from which on it is not small.
const SMALL_BELOW: usize = 1 << 20;
/// Rows that are written together, so that both halves of a line are written while it is at hand.
const BLOCK: usize = 32;
/// As above, of columns that crowd each other: each is read for longer before the next one takes its place.
const CROWDED: usize = 128;
/// Bytes after which addresses have the same place in the first-level cache: 64 sets of lines. No system's pages decide it.
const SETS: usize = 4096;

/// Whether a matrix of so many bytes is small.
pub(crate) fn is_small(bytes: usize) -> bool {
    bytes < SMALL_BELOW
}

/// A small row-major matrix of these columns; `None` where another way has to be taken.
///
/// # Errors
/// When an allocation fails.
pub(crate) fn pack_small(columns: &PlainColumns<'_>) -> Result<Option<Tensor>> {
    let (count, size) = (columns.starts().len(), columns.dtype().itemsize());
    let Some(bytes) = count.checked_mul(size).and_then(|width| width.checked_mul(columns.rows())) else {
        return Ok(None);
    };
    if !is_small(bytes) || !are_served(columns) {
        return Ok(None);
    }
    let mut buffer = HostBuffer::uninitialised(bytes)?;
    let out = Rows::new(buffer.as_uninit_mut(), count * size);
    // SAFETY: fresh memory, of as many rows as columns have; the processor has the set that was detected.
    unsafe { write(Isa::detect(), columns, &out) };
    let signed = |count| i64::try_from(count).map_err(|_| Error::unsupported("a count beyond 64 bits"));
    let (shape, strides): (Dims, Dims) =
        (smallvec![signed(columns.rows())?, signed(count)?], smallvec![signed(count)?, 1]);
    // SAFETY: every row was written in the columns' dtype.
    unsafe { Tensor::from_host_buffer(buffer, columns.dtype(), shape, strides, None) }.map(Some)
}

/// Writes the columns as the rows of `out`. Returns false, and writes nothing, if `out` overlaps them or is not for this
/// function: the general path writes it, or tells why it cannot be written.
pub(crate) fn write_small(columns: &PlainColumns<'_>, out: &mut Output<'_>) -> bool {
    let size = columns.dtype().itemsize();
    let (&[rows, count], &[row, 1]) = (out.shape(), out.strides()) else { return false };
    let fits = usize::try_from(rows) == Ok(columns.rows())
        && usize::try_from(count) == Ok(columns.starts().len())
        && out.dtype() == columns.dtype()
        && !columns.overlap(&out.span());
    let stride = usize::try_from(row).ok().and_then(|row| row.checked_mul(size));
    let width = columns.starts().len().saturating_mul(size);
    let (Some(stride), true) = (stride, fits && are_served(columns)) else { return false };
    if !is_small(columns.rows().saturating_mul(stride)) {
        return false;
    }
    // SAFETY: `Output` has checked that elements lie apart and are ours: rows of as many dense elements as there are columns.
    let out = unsafe { Rows::from_raw(out.start(), stride, columns.rows(), width) };
    // SAFETY: as many rows as columns have, apart from them, as was just checked; the processor has the set that was detected.
    unsafe { write(Isa::detect(), columns, &out) };
    true
}

/// Whether there are as many rows and columns as are written together.
fn are_served(columns: &PlainColumns<'_>) -> bool {
    let size = columns.dtype().itemsize();
    matches!(size, 4 | 8) && columns.starts().len() >= HALF / size && columns.rows() > TILE
}

/// Writes every row.
///
/// # Safety
/// The columns are served, `out` has as many rows as they have, each with room for a value of each, apart from the columns.
/// The processor has `isa`.
unsafe fn write(isa: Isa, columns: &PlainColumns<'_>, out: &Rows<'_>) {
    let (starts, size) = (columns.starts(), columns.dtype().itemsize());
    let lanes = HALF / size;
    let dense = out.stride() == starts.len() * size;
    // Rows of whole half lines are written as rows that start on one, each with the first columns of the next row behind the
    // last ones of its own.
    let before = out.start().addr().wrapping_neg() % HALF;
    let skip =
        if dense && starts.len().is_multiple_of(lanes) && before.is_multiple_of(size) { before / size } else { 0 };
    let (head, tail) = starts.split_at(skip.min(starts.len()));
    let mut rotated = Starts::from_slice(tail);
    rotated.extend(head.iter().map(|start| start.wrapping_add(size)));
    let rows = if skip == 0 { out.count() } else { out.count() - 1 };
    for (index, start) in head.iter().enumerate() {
        // SAFETY: each column has a value, and the first row room for one of each.
        unsafe { copy_value(*start, out.start().wrapping_add(index * size), size) };
    }
    for (index, start) in tail.iter().enumerate().filter(|_| skip > 0) {
        let last = out.start().wrapping_add(rows * out.stride() + (skip + index) * size);
        // SAFETY: each column has `rows + 1` values, and the last row, number `rows`, room for one of each.
        unsafe { copy_value(start.wrapping_add(rows * size), last, size) };
    }
    let crowded = matches!(starts, [first, second, ..] if first.addr().abs_diff(second.addr()).is_multiple_of(SETS));
    let block = if crowded { CROWDED } else { BLOCK };
    for first in (0..rows).step_by(block) {
        let end = rows.min(first + block);
        for column in (0..rotated.len()).step_by(lanes) {
            // The last ones begin where there are enough: some are written twice, with the same values.
            let column = column.min(rotated.len().saturating_sub(lanes));
            let mut of = [std::ptr::null(); LANES];
            let starts = rotated.get(column..column + lanes).unwrap_or(&[]);
            of.iter_mut().zip(starts).for_each(|(lane, start)| *lane = *start);
            let start = out.start().wrapping_add((skip + column) * size);
            let strip = Strip { lanes: &of, out: start, stride: out.stride() };
            // SAFETY: each column has these rows, and one more where it begins with its second (`rows` leaves out the
            // last row then); each row of `out` has half a line here, as `column + lanes` is at most the row's width;
            // they are `TILE` rows or more, as there are more than that in all, and the processor has `isa`.
            unsafe { strip.write(isa, size, first.min(end.saturating_sub(TILE))..end) };
        }
    }
}

/// Copies a value of 4 or 8 bytes.
///
/// # Safety
/// There are `size` bytes, 4 or 8, and room for as many, apart from each other.
#[inline(always)]
unsafe fn copy_value(from: *const u8, out: *mut u8, size: usize) {
    // The compiler inlines a copy whose size is a constant.
    if size == 4 {
        // SAFETY: `size` is 4: there are 4 bytes, and room for them.
        unsafe { out.copy_from_nonoverlapping(from, 4) };
    } else {
        // SAFETY: `size` is 8, the only other one: there are 8 bytes, and room for them.
        unsafe { out.copy_from_nonoverlapping(from, 8) };
    }
}
