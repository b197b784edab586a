//! Transposes tiles with 16-byte vectors, of any instruction set that has them.

use std::ops::Range;

use super::tile_grid::{Grid, each_tile};
use crate::convert::pack::{LINE, Vector, WIDTH, transposed};

/// Writes the columns of a grid with dense rows of `SIZE`-byte elements, `GROUP` columns at a time: the rows of full
/// tiles, and all columns unless there are fewer than a group has. Returns the number of columns and rows written.
///
/// # Safety
/// As [`super::tile_grid::split`]; elements have `SIZE` bytes, and `GROUP` of them a vector, or half of one if `SIZE` is 1.
pub(super) unsafe fn split<V: Vector, const SIZE: usize, const GROUP: usize>(grid: Grid) -> (usize, usize) {
    // A tile reads a cache line of each row, and writes a cache line of each column, in quarters.
    let (tile, quarter) = (LINE / SIZE, WIDTH / SIZE);
    if grid.columns < GROUP {
        return (0, 0);
    }
    let write_tile = |start: Grid, band: Range<usize>| {
        for column in band.clone().step_by(GROUP) {
            // The last columns are read together with some before them, which are already written.
            let written = GROUP.saturating_sub(band.end - column);
            for first in (0..tile).step_by(quarter) {
                // Before the band there are columns wherever it has too few.
                let part = start.part(first, 0).columns_from(column - band.start, written);
                // SAFETY: the part has a quarter of a tile's rows and `GROUP` columns: `written` of them lie before
                // `column`, which are columns of the grid, as it has `GROUP` or more, and bands before the last are
                // whole; a copy is made of whole bands only.
                let lines = unsafe { read::<V, SIZE, GROUP>(part) };
                // SAFETY: each column from `written` on has room for a quarter of a line from the part's first row on, at 16
                // bytes if streamed.
                unsafe { write(part, written, transposed::<V, SIZE, GROUP>(lines)) };
            }
        }
    };
    // SAFETY: as promised, and elements have `SIZE` bytes.
    let rows = unsafe { each_tile(grid, tile, write_tile) };
    (grid.columns, rows)
}

/// Returns the rows of a part, in order: two in a vector if `SIZE` is 1, else one.
///
/// # Safety
/// The part has as many rows as a vector has elements, with `GROUP` readable elements each.
#[inline(always)]
unsafe fn read<V: Vector, const SIZE: usize, const GROUP: usize>(part: Grid) -> [V; GROUP] {
    std::array::from_fn(|index| {
        if SIZE == 1 {
            let first = part.part(2 * index, 0);
            // SAFETY: the row has 8 elements of one byte.
            let even = unsafe { V::load_half(first.source) };
            // SAFETY: the row behind has 8 elements of one byte.
            let odd = unsafe { V::load_half(first.part(1, 0).source) };
            let [rows, _] = even.zip::<8>(odd);
            return rows;
        }
        // SAFETY: the row has `GROUP` elements, 16 bytes.
        unsafe { V::load(part.part(index, 0).source) }
    })
}

/// Writes a quarter of a line of each column but the first `skip`.
///
/// # Safety
/// Each has room for it, at an address that is aligned to 16 if the grid is streamed.
#[inline(always)]
unsafe fn write<V: Vector, const GROUP: usize>(part: Grid, skip: usize, lines: [V; GROUP]) {
    for (column, line) in lines.into_iter().enumerate().skip(skip) {
        let out = part.part(0, column).out;
        if part.stream {
            // SAFETY: the column has room for a vector, and is aligned to it, as the grid is streamed.
            unsafe { line.stream(out) };
        } else {
            // SAFETY: the column has room for a vector, of any alignment.
            unsafe { line.store(out) };
        }
    }
}
