//! Rows of 4-byte elements that share cache lines with the next row: a few are assembled in a cached buffer, whose whole lines are
//! then streamed, or where they belong. `avx2` and `avx512` do both.

use std::mem::MaybeUninit;

use super::PackRefusal;
use super::stream::{LINE, Pages};
use super::target::Target;
use crate::alloc::HostBuffer;

/// Bytes of an element.
const SIZE: usize = 4;

/// Columns to assemble rows of, and the buffer for the rows.
pub(super) struct AssembledRows<'a> {
    /// Where each column's first element is.
    pub(super) columns: &'a [*const u8],
    /// Bytes of the buffer before the first row.
    before: usize,
    /// The buffer, from the start of a line on, or the rows themselves.
    buffer: *mut u8,
}

/// How an instruction set assembles rows.
///
/// # Safety of its functions
/// - `columns`: there are more than 16, with `rows` rows from `first` on, of any alignment.
/// - `buffer`: nobody else uses it. To assemble, it has room for `rows` rows behind `before` bytes. To stream, it has
///   [`Assembler::line_count`] lines, the first of which starts on a line of the cache, and `before` is less than a line.
/// - `room`: `out` is the place of the buffer's first line, at the start of a line of the cache. Of the lines that `rows` rows fill from there
///   on, those behind the first `left_out` may be written, and nobody else uses them.
/// - `isa`: the processor has it.
pub(super) struct Assembler {
    /// Rows that are assembled at a time: whole lines of each column, and of the result for each column.
    pub(super) rows: usize,
    /// Puts rows together in the buffer, the first of them row `first` of the columns.
    pub(super) assemble: unsafe fn(rows: &AssembledRows<'_>, first: usize),
    /// Writes the whole lines of the assembled rows by non-temporal stores, but for the first `left_out` ones, and moves the bytes behind them
    /// to the buffer's start, for the next rows. The buffer has been written, the bytes before the first row too unless those are left out.
    /// May prefetch the columns from row `next` on meanwhile, so that reads and writes wait for memory at the same time.
    pub(super) stream: unsafe fn(rows: &AssembledRows<'_>, out: *mut u8, left_out: usize, next: usize),
}

impl Assembler {
    /// Returns how many lines the buffer has for so many columns: those of the rows, and one for the bytes before the first row.
    const fn line_count(&self, columns: usize) -> usize {
        columns * self.rows * SIZE / LINE + 1
    }

    /// Writes as many rows as come in [`Self::rows`], and returns their number. `columns` are where the first elements are.
    ///
    /// # Safety
    /// `columns`: more than 16 views of 4 bytes, each with `out.count()` elements. `room`: `out` has at least `self.rows` dense rows of one
    /// element of each, apart from the columns, that nobody else uses. `isa`: the processor has it.
    pub(super) unsafe fn write(&self, columns: &[*const u8], out: Target) -> Result<usize, PackRefusal> {
        let rows = out.count() / self.rows * self.rows;
        // In the buffer, rows start at the same position in a cache line as in the target.
        let before = out.start().addr() % LINE;
        let mut memory = HostBuffer::uninitialised(self.line_count(columns.len()) * LINE)?;
        // These are copied whole, also where no row was assembled: before the first row, and behind the last one.
        if let ([first, .., last], _) = memory.as_uninit_mut().as_chunks_mut::<LINE>() {
            (*first, *last) = ([MaybeUninit::new(0); LINE], [MaybeUninit::new(0); LINE]);
        }
        let buffer = memory.as_ptr();
        let block = AssembledRows { columns, before, buffer };
        let mut pages = Pages::new(out.start(), out.count() * out.stride());
        for start in (0..rows).step_by(self.rows) {
            let end = start + self.rows;
            // SAFETY: `room`: `pages` has all rows of `out`, which are all to be written; none of those from `start` on is
            // written yet.
            unsafe { pages.make(out.part(end..end).start()) };
            // SAFETY: `columns`: more than 16, with rows up to `end`, which is at most `rows`. `buffer`: it has that many lines,
            // from the start of one on, all ours, and `before` is less than a line. `isa` is promised.
            unsafe { (self.assemble)(&block, start) };
            let is_inside = start == 0 && before > 0;
            if is_inside {
                // SAFETY: rows are longer than a line, so both have these bytes: `out` from its start on, and the buffer up to its
                // first line's end.
                unsafe { out.start().copy_from_nonoverlapping(buffer.wrapping_add(before), LINE - before) };
            }
            let to = out.part(start..end).start().wrapping_sub(before);
            // SAFETY: `buffer`: written above, and before these rows by the call for the rows before. `room`: less than a line before
            // these rows is the end of the row before, or left out; up to the last whole line there are the rows themselves. `to` is on
            // a line, by `before`. `isa`: as above.
            unsafe { (self.stream)(&block, to, usize::from(is_inside), end) };
        }
        let behind = out.part(rows..rows).start().wrapping_sub(before);
        // SAFETY: there is a last row. `stream` has put its end, which fills no line, at the start of the buffer: `before` bytes, which
        // the row has, as it is longer than a line.
        unsafe { behind.copy_from_nonoverlapping(buffer, before) };
        Ok(rows)
    }

    /// Puts as many rows as come in [`Self::rows`] together where they belong, and returns their number. `columns` are where the first
    /// elements are.
    ///
    /// # Safety
    /// `columns`: more than 16 views of 4 bytes, each with `out.count()` elements. `room`: `out` has dense rows of one element of each,
    /// apart from the columns, that nobody else uses. `isa`: the processor has it.
    pub(super) unsafe fn write_in_place(&self, columns: &[*const u8], out: Target) -> usize {
        let rows = out.count() / self.rows * self.rows;
        for start in (0..rows).step_by(self.rows) {
            let block = AssembledRows { columns, before: 0, buffer: out.part(start..rows).start() };
            // SAFETY: `columns`: more than 16, with rows up to `start + self.rows`, which is at most `rows`. `buffer`: `out` has room for
            // these rows, one after the other. `isa` is promised.
            unsafe { (self.assemble)(&block, start) };
        }
        rows
    }
}

impl AssembledRows<'_> {
    /// Where an element of an assembled row is.
    #[inline(always)]
    pub(super) fn element(&self, row: usize, column: usize) -> *mut f32 {
        self.buffer.wrapping_add(self.before + (row * self.columns.len() + column) * SIZE).cast()
    }

    /// Where a line of the buffer is.
    #[inline(always)]
    pub(super) fn line_at(&self, number: usize) -> *mut f32 {
        self.buffer.wrapping_add(number * LINE).cast()
    }
}
