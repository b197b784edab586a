//! Merges rows that share cache lines in registers: rows of 4-byte views, with AVX-512.

use super::isa::{BLOCK_ROWS, Isa};
use super::stream::{LINE, Pages};
use super::target::Target;
use super::{PackRefusal, Packer};
use crate::alloc::HostBuffer;
use crate::convert::lane::Lane;

/// Bytes of an element.
const SIZE: usize = 4;
/// Elements of a line, and rows of a tile.
const ELEMENTS: usize = LINE / SIZE;
/// Rows of a block: a page of each column, so that few columns are read at a time.
const ROWS: usize = 1024;
/// Up to so many columns, blocks are shorter: while the first columns of one are read, nothing is written.
const NARROW: usize = 3 * ELEMENTS;

impl Packer<'_> {
    /// Writes the first rows, and the head of the row behind them up to a line; returns how many: 0 if registers do not
    /// merge them.
    ///
    /// # Safety
    /// As [`Self::sharing_lines`]; rows lie one after the other, and are a line long or longer.
    pub(super) unsafe fn merged(&self, first: usize, out: Target) -> Result<usize, PackRefusal> {
        let before = out.start().addr() % LINE;
        // Tiles of the first columns are made for 16 rows more.
        let rows = (out.count() / ELEMENTS).saturating_sub(1) * ELEMENTS;
        let fits = self.isa == Isa::Avx512 && self.size == SIZE && self.lanes.len() > ELEMENTS;
        let ragged = !self.lanes.len().is_multiple_of(ELEMENTS) && before.is_multiple_of(SIZE);
        if !fits || !ragged || rows < BLOCK_ROWS || !self.lanes.iter().all(Lane::is_view) {
            return Ok(0);
        }
        let skip = (LINE - before) / SIZE % ELEMENTS;
        let (head, _) = self.lanes.split_at(skip.min(self.lanes.len()));
        if !head.is_empty() {
            // SAFETY: `columns` and `room` for the head of the first row; nothing is streamed.
            unsafe { Packer { lanes: head, ..*self }.groups(first, out.part(0..1), false) }?;
        }
        let columns: Vec<*const u8> = self.lanes.iter().map(|lane| lane.stored_at(first)).collect();
        let merges = super::avx512::Merges::new(columns.len(), skip);
        let block = if columns.len() < NARROW { BLOCK_ROWS } else { ROWS.min(rows) };
        let lines = HostBuffer::uninitialised((2 * block + ELEMENTS) * LINE)?;
        let (tiles, heads) = (lines.as_ptr(), lines.as_ptr().wrapping_add(block * LINE));
        // The head of the first row is written.
        let mut pages = Pages::new(out.start().wrapping_add(skip * SIZE), out.count() * out.stride() - skip * SIZE);
        for start in (0..rows).step_by(block) {
            let end = rows.min(start + block);
            // SAFETY: `room`: `pages` has what is behind the first row's head, and all of it is to be written. Of
            // what the block before wrote, less than a line is behind `start`: far from the end of the next huge page.
            unsafe { pages.make(out.part(end..end).start()) };
            let block =
                super::avx512::SharedLines { columns: &columns, first: start, rows: end - start, out, heads, tiles };
            // SAFETY: `columns`: views of `size` bytes, more than a line of them and no multiple of that; they have
            // `out.count()` rows, which are 16 more than `rows`. `room`: rows are dense, and `end` is before
            // `out.count()`. The buffer, which starts on a line, has `block` lines and as many and 16 more. `end -
            // start` is a multiple of 16, as `rows` and `block` are. The processor has AVX-512.
            unsafe { super::avx512::shared_lines(&block, &merges) };
        }
        Ok(rows)
    }
}
