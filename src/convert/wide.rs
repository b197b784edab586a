//! Writes columns of several elements a row, such as embeddings, among the columns of a matrix.

use std::mem::MaybeUninit;
use std::ops::Range;

use super::chunk::PackedColumn;
use super::lane::Lane;
use super::misfit::Misfit;
use super::pack::{Isa, Rows};
use super::threads::for_each_part;
use crate::error::{Error, Result};

/// Bytes of elements that are made before they are copied to their rows: half of a first-level cache.
const BUFFER: usize = 16 << 10;

/// Memory for elements on their way, aligned for any.
#[repr(C, align(64))]
struct ElementBuffer([MaybeUninit<u8>; BUFFER]);

/// Writes the elements of a column's rows from `first` on to the rows of `out`, as many rows as that has. `row` is the source's
/// number of the chunk's first row, for messages.
///
/// # Errors
/// For the first value that a cast cannot take: names the column and the row.
///
/// # Safety
/// The column has these rows, of `out.width()` bytes each; `out` is aligned for the dtype, and lies apart from the column. The
/// processor has `isa`.
pub(super) unsafe fn write_wide(
    (isa, threads): (Isa, usize),
    column: PackedColumn<'_>,
    (first, row): (usize, usize),
    out: &Rows<'_>,
) -> Result<()> {
    let (spec, per_row, bytes) = (column.spec, column.spec.row_elements(), out.width());
    if bytes == 0 {
        return Ok(());
    }
    let named = |misfit: Misfit| misfit.error(spec, row).in_column(spec.field().name());
    let lane = Lane::new(isa, spec, column.chunk).map_err(named)?;
    let together = (BUFFER / bytes).max(1);
    for_each_part(threads, out.count(), together, |rows| {
        let mut buffer = ElementBuffer([MaybeUninit::uninit(); BUFFER]);
        let mut start = rows.start;
        while start < rows.end {
            let target = out.start().wrapping_add(start * out.stride());
            let count = together.min(rows.end - start);
            let element = (first + start) * per_row;
            if lane.is_view() || bytes > BUFFER {
                // SAFETY: row `start` of `out`, of `bytes` bytes, which no other part has; it is not read meanwhile.
                let target = unsafe { std::slice::from_raw_parts_mut(target.cast(), bytes) };
                // SAFETY: the column has this row's elements, as many as `target` has room for (`# Safety`); `target` starts at an
                // element of the aligned `out`, apart from the column; the processor has `isa`.
                unsafe { lane.write(element, target) }.map_err(named)?;
                start += 1;
                continue;
            }
            let made = buffer.0.get_mut(..count * bytes).ok_or_else(beyond)?;
            // SAFETY: the column has the elements of `count` rows (`# Safety`), for which `made` has room; it is aligned for any dtype,
            // and our own.
            unsafe { lane.write(element, made) }.map_err(named)?;
            for (number, elements) in made.chunks_exact(bytes).enumerate() {
                let target = target.wrapping_add(number * out.stride());
                // SAFETY: `made` has `bytes` bytes from here on, and row `start + number < rows.end` of `out` has room for them, which
                // no other part has.
                unsafe { target.copy_from_nonoverlapping(elements.as_ptr().cast(), bytes) };
            }
            start += count;
        }
        Ok(())
    })
}

/// Writes the elements of some rows of a column to the columns of a column-major matrix: `place` returns where those of a column go,
/// given its number among these and a range of the rows.
///
/// # Errors
/// The first value that a cast cannot take.
///
/// # Safety
/// The column has the rows `first..first + rows`. The processor has `isa`.
pub(super) unsafe fn write_wide_columns<'a>(
    isa: Isa,
    column: PackedColumn<'_>,
    (first, rows): (usize, usize),
    mut place: impl FnMut(usize, Range<usize>) -> &'a mut [MaybeUninit<u8>],
) -> std::result::Result<(), Misfit> {
    let (per_row, size) = (column.spec.row_elements(), column.spec.dtype().itemsize());
    let lane = Lane::new(isa, column.spec, column.chunk)?;
    let mut buffer = ElementBuffer([MaybeUninit::uninit(); BUFFER]);
    // Long rows are made in pieces, short ones several at a time.
    let piece = per_row.min(BUFFER / size);
    let together = (BUFFER / (piece * size).max(1)).max(1);
    for start in (0..rows).step_by(together) {
        let count = together.min(rows - start);
        for from in (0..per_row).step_by(piece.max(1)) {
            let elements = piece.min(per_row - from);
            let made = buffer.0.get_mut(..count * elements * size).unwrap_or(&mut []);
            // SAFETY: `made` takes the elements of `count` whole rows, or a piece of one row, as `together` is 1 if there are several
            // pieces; the column has them (`# Safety`). `made` is aligned for any dtype, and our own.
            unsafe { lane.write((first + start) * per_row + from, made) }?;
            for number in 0..elements {
                let out = place(from + number, start..start + count);
                let own = made.chunks_exact(size).skip(number).step_by(elements);
                out.chunks_exact_mut(size).zip(own).for_each(|(out, element)| out.copy_from_slice(element));
            }
        }
    }
    Ok(())
}

fn beyond() -> Error {
    Error::internal("rows do not fit the memory that they are made in")
}
