//! Writes rows of 4-byte views that share cache lines, with AVX-512: few columns by way of a buffer, many merged in registers.

use std::mem::MaybeUninit;

use super::avx512::{ASSEMBLED, AssembledRows, Merges, SharedLines, shared_lines};
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
/// The most columns that are assembled in a buffer, from a line or two of each: the TLB and the prefetchers follow no more columns.
const MOST_ASSEMBLED: usize = 5 * ELEMENTS;

/// Returns whether this processor assembles few columns faster than it merges them. Those of AMD, which alone have SSE4a, do not. Unit
/// tests assemble on every processor.
fn assembles() -> bool {
    cfg!(test) || !is_x86_feature_detected!("sse4a")
}

impl Packer<'_> {
    /// Writes the first rows, and perhaps the head of the row behind them up to a line; returns how many: 0 for others than
    /// 4-byte views.
    ///
    /// # Safety
    /// As [`Self::sharing_lines`]; rows lie one after the other, and are a line long or longer.
    pub(super) unsafe fn views(&self, first: usize, out: Target) -> Result<usize, PackRefusal> {
        let fits = self.isa == Isa::Avx512 && self.size == SIZE && self.lanes.len() > ELEMENTS;
        let ragged = !self.lanes.len().is_multiple_of(ELEMENTS) && out.start().addr().is_multiple_of(SIZE);
        if !fits || !ragged || out.count() < BLOCK_ROWS + ELEMENTS || !self.lanes.iter().all(Lane::is_view) {
            return Ok(0);
        }
        let columns: Vec<*const u8> = self.lanes.iter().map(|lane| lane.stored_at(first)).collect();
        if columns.len() <= MOST_ASSEMBLED && assembles() {
            // SAFETY: `columns` and `room`: views of 4 bytes, more than 16, and at least 80 dense rows; the processor has AVX-512.
            return unsafe { assembled(&columns, out) };
        }
        // SAFETY: `columns` and `room`: views of 4 bytes, more than 16 and no multiple of it, and at least 80 dense rows; the
        // processor has AVX-512.
        unsafe { self.merged(first, &columns, out) }
    }

    /// As [`Self::views`], merged in registers. `columns` are where the lanes' first elements are.
    ///
    /// # Safety
    /// As [`Self::views`], for views of 4 bytes: more than 16 and no multiple of it, and at least 32 rows; the processor has
    /// AVX-512.
    unsafe fn merged(&self, first: usize, columns: &[*const u8], out: Target) -> Result<usize, PackRefusal> {
        // Tiles of the first columns are made for 16 rows more.
        let rows = (out.count() / ELEMENTS).saturating_sub(1) * ELEMENTS;
        let skip = (LINE - out.start().addr() % LINE) / SIZE % ELEMENTS;
        let (head, _) = self.lanes.split_at(skip.min(self.lanes.len()));
        if !head.is_empty() {
            // SAFETY: `columns` and `room` for the head of the first row; nothing is streamed.
            unsafe { Packer { lanes: head, ..*self }.groups(first, out.part(0..1), false) }?;
        }
        let merges = Merges::new(columns.len(), skip);
        let block = ROWS.min(rows);
        let lines = HostBuffer::uninitialised((2 * block + ELEMENTS) * LINE)?;
        let (tiles, heads) = (lines.as_ptr(), lines.as_ptr().wrapping_add(block * LINE));
        // The head of the first row is written.
        let mut pages = Pages::new(out.start().wrapping_add(skip * SIZE), out.count() * out.stride() - skip * SIZE);
        for start in (0..rows).step_by(block) {
            let end = rows.min(start + block);
            // SAFETY: `room`: `pages` has what is behind the first row's head, and all of it is to be written. Of
            // what the block before wrote, less than a line is behind `start`: far from the end of the next huge page.
            unsafe { pages.make(out.part(end..end).start()) };
            let block = SharedLines { columns, first: start, rows: end - start, out, heads, tiles };
            // SAFETY: `columns`: views of `size` bytes, more than a line of them and no multiple of that; they have
            // `out.count()` rows, which are 16 more than `rows`. `room`: rows are dense, and `end` is before
            // `out.count()`. The buffer, which starts on a line, has `block` lines and as many and 16 more. `end -
            // start` is a multiple of 16, as `rows` and `block` are. The processor has AVX-512.
            unsafe { shared_lines(&block, &merges) };
        }
        Ok(rows)
    }
}

/// As [`Packer::views`], by way of a buffer. `columns` are where the first elements are.
///
/// # Safety
/// `columns`: more than 16 views of 4 bytes, each with `out.count()` elements. `room`: `out` has at least 32 dense rows of one element of
/// each, apart from the columns, that nobody else uses. The processor has AVX-512.
unsafe fn assembled(columns: &[*const u8], out: Target) -> Result<usize, PackRefusal> {
    let rows = out.count() / ASSEMBLED * ASSEMBLED;
    // In the buffer, rows start at the same position in a cache line as in the target.
    let before = out.start().addr() % LINE;
    let mut memory = HostBuffer::uninitialised(AssembledRows::line_count(columns.len()) * LINE)?;
    // Lines are copied whole, also where no row was assembled yet: before the first one, and behind the last one.
    memory.as_uninit_mut().fill(MaybeUninit::new(0));
    let buffer = memory.as_ptr();
    let block = AssembledRows { columns, before, buffer };
    let mut pages = Pages::new(out.start(), out.count() * out.stride());
    for start in (0..rows).step_by(ASSEMBLED) {
        let end = start + ASSEMBLED;
        // SAFETY: `room`: `pages` has all rows of `out`, which are all to be written; none of those from `start` on is
        // written yet.
        unsafe { pages.make(out.part(end..end).start()) };
        // SAFETY: `columns`: more than 16, with rows up to `end`, which is at most `rows`. `buffer`: it has that many lines,
        // from the start of one on, all ours, and `before` is less than a line. `isa`: the processor has AVX-512.
        unsafe { block.assemble(start) };
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
        unsafe { block.stream(to, usize::from(is_inside), end) };
    }
    let behind = out.part(rows..rows).start().wrapping_sub(before);
    // SAFETY: there is a last row, as there are at least 32. `stream` has put its end, which fills no line, at the start of the
    // buffer: `before` bytes, which the row has, as it is longer than a line.
    unsafe { behind.copy_from_nonoverlapping(buffer, before) };
    Ok(rows)
}
