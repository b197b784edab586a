//! Writes rows of 4-byte elements that share cache lines with the next row: tiles of neighbouring columns are merged into
//! lines in registers.

use std::arch::x86_64::{
    __m512, __m512i, _mm512_castpd_ps, _mm512_load_ps, _mm512_loadu_epi32, _mm512_loadu_ps, _mm512_permutex2var_ps,
    _mm512_setzero_ps, _mm512_store_ps, _mm512_stream_ps,
};

use super::super::stream::{LINE, prefetch_to_second};
use super::super::target::Target;
use super::{LANES4, quad4, tile4};

/// How far ahead columns are fetched, into the second-level cache.
const FAR: usize = 1024;

/// Which elements of two vectors a line has.
type Merge = [i32; LANES4];

/// The elements from `from` on, of two vectors that follow each other.
const fn following(from: i32) -> Merge {
    let mut merge = [0; LANES4];
    let mut index = 0;
    while index < LANES4 {
        merge[index] = from + COUNTED[index];
        index += 1;
    }
    merge
}

/// The first `taken` elements of a quarter of the first vector, then those of the second from its first one on.
const fn then(quarter: i32, taken: i32) -> Merge {
    let mut merge = [0; LANES4];
    let mut index = 0;
    while index < LANES4 {
        let at = COUNTED[index];
        merge[index] = if at < taken { 4 * quarter + at } else { 16 + at - taken };
        index += 1;
    }
    merge
}

const COUNTED: Merge = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

/// Rows whose lines are merged, a group of columns after the other.
pub(in super::super) struct SharedLines<'a> {
    /// Where each column's first element is.
    pub(in super::super) columns: &'a [*const u8],
    /// The block's first row, in the columns and in `out`.
    pub(in super::super) first: usize,
    pub(in super::super) rows: usize,
    pub(in super::super) out: Target,
    /// Lines of the first columns, of one tile more than the block has.
    pub(in super::super) heads: *mut u8,
    /// Lines of the columns before those that are merged.
    pub(in super::super) tiles: *mut u8,
}

impl SharedLines<'_> {
    /// Where a row of the block starts.
    #[inline(always)]
    fn row(&self, row: usize) -> *mut u8 {
        self.out.part(self.first + row..self.out.count()).start()
    }
}

/// How the lines of 16 rows are merged. The same for all rows that come in 16s, as 16 rows are whole lines.
pub(in super::super) struct Merges {
    /// In each row, the elements before its first line.
    starts: [usize; LANES4],
    /// The elements of the last tile.
    rest: usize,
    lines: [Merge; LANES4],
    /// The last tile's elements, and then the head of the next row: of quarters, if there are at most four columns.
    ends: [Merge; 4],
    /// A line that starts in the last tile: of its elements and the next row's head, and of the rest of that head.
    last: [Merge; LANES4],
}

impl Merges {
    /// Of rows of `columns` elements, the first of which starts `skip` elements before a line.
    #[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "less than a line")]
    pub(in super::super) fn new(columns: usize, skip: usize) -> Self {
        let rest = columns % LANES4;
        let mut starts = [0; LANES4];
        for (row, start) in starts.iter_mut().enumerate() {
            *start = (skip + LANES4 * LANES4 - row * rest) % LANES4;
        }
        let ends = [0, 1, 2, 3].map(|quarter| then(quarter, rest as i32));
        let lines = starts.map(|start| following(start as i32));
        // The second vector starts where the first one ends, which has `16 - rest` elements of the second already.
        let last = lines.map(|line| line.map(|at| if at < 16 { at } else { at + 16 - rest as i32 }));
        Self { starts, rest, lines, ends, last }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn vector(merge: &Merge) -> __m512i {
    // SAFETY: an array of 16 elements of 4 bytes.
    unsafe { _mm512_loadu_epi32(merge.as_ptr()) }
}

/// Writes every line that starts in one of the rows of a block.
///
/// # Safety
/// - `columns`: there are `16 * n + merges.rest` of them, `n` and the rest at least 1, with `block.rows` rows and 16 more from
///   `block.first` on, of any alignment.
/// - `room`: `out` has `block.rows` dense rows of one element of each column, and a row behind them. `merges` are those
///   of such rows, and of their place in their lines.
/// - `heads` and `tiles` have a line for each of the rows, `heads` 16 more, from the start of a line on.
/// - `block.rows` is a multiple of 16; the processor has AVX-512F.
#[target_feature(enable = "avx512f")]
pub(in super::super) unsafe fn shared_lines(block: &SharedLines<'_>, merges: &Merges) {
    let (groups, rest) = block.columns.as_chunks::<LANES4>();
    let mut before = block.heads;
    for (number, group) in groups.iter().enumerate() {
        let ahead = Ahead::new(block, groups, number);
        if number == 0 {
            for row in (0..block.rows + LANES4).step_by(LANES4) {
                // SAFETY: `columns`: 16 rows from `row` on, as `row` is at most `block.rows`.
                let lines = unsafe { tile(block, group, ahead, row) };
                for line in 0..LANES4 {
                    // SAFETY: `heads` has a line for each of these rows, each at the start of one.
                    unsafe { _mm512_store_ps(at(block.heads, row + line), lines[line]) };
                }
            }
            continue;
        }
        for row in (0..block.rows).step_by(LANES4) {
            // SAFETY: `columns`: 16 rows from `row` on.
            let lines = unsafe { tile(block, group, ahead, row) };
            let mut out = block.row(row).wrapping_add((number - 1) * LINE);
            for line in 0..LANES4 {
                // SAFETY: `before` is `heads` or `tiles`: this row's line was written there for the group before.
                let left = unsafe { _mm512_load_ps(at(before, row + line)) };
                // SAFETY: `tiles` has a line for each of the rows.
                unsafe { _mm512_store_ps(at(block.tiles, row + line), lines[line]) };
                let merged = _mm512_permutex2var_ps(left, vector(&merges.lines[line]), lines[line]);
                // SAFETY: `room`: 16 elements of this row, from the start of a line on, as `merges` says.
                unsafe { _mm512_stream_ps(out.wrapping_add(merges.starts[line] * 4).cast(), merged) };
                out = out.wrapping_add(block.out.stride());
            }
        }
        before = block.tiles;
    }
    // SAFETY: all clauses are promised; `before` has the last whole group's lines.
    unsafe { ends(block, merges, rest, before, groups.len()) };
}

/// As [`shared_lines`], the lines that have elements of the last columns, which fill no line.
///
/// # Safety
/// As [`shared_lines`]; `heads` has the lines of the first group, and `before` of the last whole one, number `groups - 1`;
/// `columns` are the ones behind that.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn ends(block: &SharedLines<'_>, merges: &Merges, columns: &[*const u8], before: *mut u8, groups: usize) {
    for row in (0..block.rows).step_by(LANES4) {
        let mut lines = [_mm512_setzero_ps(); LANES4];
        let few = columns.len() <= 4;
        if few {
            let mut lanes = [_mm512_setzero_ps(); 4];
            for (lane, column) in lanes.iter_mut().zip(columns) {
                prefetch_to_second(column.wrapping_add((block.first + row) * 4 + FAR));
                // SAFETY: `columns`: 16 rows from `row` on.
                *lane = unsafe { load(block, *column, row) };
            }
            // Rows n, n + 4, n + 8 and n + 12 are the quarters of a vector.
            let quads = quad4(lanes);
            for line in 0..LANES4 {
                lines[line] = _mm512_castpd_ps(quads[line % 4]);
            }
        } else {
            let mut lanes = [_mm512_setzero_ps(); LANES4];
            for (lane, column) in lanes.iter_mut().zip(columns) {
                prefetch_to_second(column.wrapping_add((block.first + row) * 4 + FAR));
                // SAFETY: `columns`: 16 rows from `row` on.
                *lane = unsafe { load(block, *column, row) };
            }
            lines = tile4(lanes);
        }
        let mut out = block.row(row).wrapping_add((groups - 1) * LINE);
        for line in 0..LANES4 {
            // SAFETY: `before` has a line for each of the rows.
            let left = unsafe { _mm512_load_ps(at(before, row + line)) };
            // SAFETY: `heads` has a line for each of the rows and for 16 more.
            let head = unsafe { _mm512_load_ps(at(block.heads, row + line + 1)) };
            let end = &merges.ends[if few { line / 4 } else { 0 }];
            let end = _mm512_permutex2var_ps(lines[line], vector(end), head);
            let start = merges.starts[line];
            let merged = _mm512_permutex2var_ps(left, vector(&merges.lines[line]), end);
            let to = out.wrapping_add(start * 4);
            // SAFETY: `room`: 16 elements of this row, or of this and the next one, which `out` has, from the start of a
            // line on, as `merges` says.
            unsafe { _mm512_stream_ps(to.cast(), merged) };
            if start < merges.rest {
                let merged = _mm512_permutex2var_ps(end, vector(&merges.last[line]), head);
                // SAFETY: `room`: the next line, which starts in this row and ends in the next one.
                unsafe { _mm512_stream_ps(to.wrapping_add(LINE).cast(), merged) };
            }
            out = out.wrapping_add(block.out.stride());
        }
    }
}

/// The columns that are prefetched at the end of a group, and their first row.
#[derive(Clone, Copy)]
struct Ahead<'a> {
    columns: &'a [*const u8; LANES4],
    first: usize,
}

impl<'a> Ahead<'a> {
    /// Those that are read after a group. What follows the group in memory is read after all other columns, when the cache may
    /// have lost it; in short blocks it is soon enough.
    #[inline(always)]
    fn new(block: &SharedLines<'_>, groups: &'a [[*const u8; LANES4]], number: usize) -> Option<Self> {
        let behind = block.first + block.rows;
        let is_long = block.rows * 4 > 2 * FAR;
        match groups.get(number + 1).filter(|_| is_long) {
            Some(next) => Some(Self { columns: next, first: block.first }),
            None => groups.get(if is_long { 0 } else { number }).map(|columns| Self { columns, first: behind }),
        }
    }
}

/// The lines of 16 rows, of 16 columns.
///
/// # Safety
/// The columns have 16 rows of the block from `row` on; the processor has AVX-512F.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn tile(
    block: &SharedLines<'_>,
    columns: &[*const u8; LANES4],
    ahead: Option<Ahead<'_>>,
    row: usize,
) -> [__m512; LANES4] {
    let far = row + FAR / 4;
    let (fetched, from) = match ahead {
        Some(ahead) if far >= block.rows => (ahead.columns, ahead.first + far - block.rows),
        _ => (columns, block.first + far),
    };
    let mut lanes = [_mm512_setzero_ps(); LANES4];
    for lane in 0..LANES4 {
        prefetch_to_second(fetched[lane].wrapping_add(from * 4));
        // SAFETY: the column has 16 rows from `row` on.
        lanes[lane] = unsafe { load(block, columns[lane], row) };
    }
    tile4(lanes)
}

/// 16 elements of a column.
///
/// # Safety
/// The column has 16 rows of the block from `row` on; the processor has AVX-512F.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn load(block: &SharedLines<'_>, column: *const u8, row: usize) -> __m512 {
    let start = column.wrapping_add((block.first + row) * 4);
    // SAFETY: 16 elements of 4 bytes, of any alignment.
    unsafe { _mm512_loadu_ps(start.cast()) }
}

/// Where a row's line is.
#[inline(always)]
fn at(lines: *mut u8, row: usize) -> *mut f32 {
    lines.wrapping_add(row * LINE).cast()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_followed_by_the_next_one_and_the_last_by_the_next_block() {
        let columns = [std::ptr::null(); 3 * LANES4];
        let (groups, _) = columns.as_chunks::<LANES4>();
        let followed = |rows, number| {
            let out = Target::new(std::ptr::null_mut(), 4 * columns.len(), 0);
            let (heads, tiles) = (std::ptr::null_mut(), std::ptr::null_mut());
            let block = SharedLines { columns: &columns, first: 4096, rows, out, heads, tiles };
            let ahead = Ahead::new(&block, groups, number).unwrap();
            (groups.iter().position(|group| std::ptr::eq(group, ahead.columns)).unwrap(), ahead.first)
        };
        assert_eq!([0, 1, 2].map(|number| followed(1024, number)), [(1, 4096), (2, 4096), (0, 5120)]);
        // Shorter than what is fetched ahead: each group goes on in the next block.
        assert_eq!([0, 1, 2].map(|number| followed(64, number)), [(0, 4160), (1, 4160), (2, 4160)]);
    }
}
