//! Writes rows of 4-byte views that share cache lines: by way of a buffer with AVX2, or in place where they stay in the cache, and few columns
//! with AVX-512, which merges many in registers.

use smallvec::SmallVec;

use super::assembled_rows::Assembler;
use super::avx512::{Merges, SharedLines, shared_lines};
use super::isa::{BLOCK_ROWS, Isa};
use super::stream::{LINE, Pages};
use super::target::Target;
use super::{PackRefusal, Packer, avx2, avx512};
use crate::alloc::HostBuffer;
use crate::convert::lane::Lane;

/// Bytes of an element.
const SIZE: usize = 4;
/// Elements of a line, and rows of a tile.
const ELEMENTS: usize = LINE / SIZE;
/// Rows of a block: a page of each column, so that few columns are read at a time.
const ROWS: usize = 1024;
/// The most columns that AVX-512 assembles in a buffer, from a line or two of each: the TLB and the prefetchers follow no more columns.
const MOST_ASSEMBLED: usize = 5 * ELEMENTS;

/// The most columns that AVX2 assembles in place: more take as long a line of columns at a time.
const MOST_IN_PLACE: usize = 4 * ELEMENTS;

/// Returns whether this processor assembles few columns faster than it merges them. Those of AMD, which alone have SSE4a, do not. Unit
/// tests assemble on every processor.
fn assembles() -> bool {
    cfg!(test) || !is_x86_feature_detected!("sse4a")
}

/// What assembles rows of so many columns; `None` where they are merged.
fn assembler(isa: Isa, columns: usize) -> Option<&'static Assembler> {
    match isa {
        Isa::Avx2 => Some(&avx2::ASSEMBLER),
        _ => (columns <= MOST_ASSEMBLED && assembles()).then_some(&avx512::ASSEMBLER),
    }
}

impl Packer<'_> {
    /// Writes the first rows, and perhaps the head of the row behind them up to a line; returns how many: 0 for others than
    /// 4-byte views.
    ///
    /// # Safety
    /// As [`Self::sharing_lines`]; rows lie one after the other, and are a line long or longer.
    pub(super) unsafe fn views(&self, first: usize, out: Target) -> Result<usize, PackRefusal> {
        let fits = matches!(self.isa, Isa::Avx2 | Isa::Avx512) && self.size == SIZE && self.lanes.len() > ELEMENTS;
        let ragged = !self.lanes.len().is_multiple_of(ELEMENTS) && out.start().addr().is_multiple_of(SIZE);
        if !fits || !ragged || out.count() < BLOCK_ROWS + ELEMENTS || !self.lanes.iter().all(Lane::is_view) {
            return Ok(0);
        }
        let columns: Vec<*const u8> = self.lanes.iter().map(|lane| lane.stored_at(first)).collect();
        if let Some(assembler) = assembler(self.isa, columns.len()) {
            // SAFETY: `columns` and `room`: views of 4 bytes, more than 16, and at least 80 dense rows; the processor has what `isa` says.
            return unsafe { assembler.write(&columns, out) };
        }
        // SAFETY: `columns` and `room`: views of 4 bytes, more than 16 and no multiple of it, and at least 80 dense rows; the
        // processor has AVX-512, as AVX2 assembles.
        unsafe { self.merged(first, &columns, out) }
    }

    /// Writes the first rows where they belong, each to its end before those 64 rows on, so that lines are whole before the first-level
    /// cache loses them; returns how many: 0 for others than 4-byte views with AVX2.
    ///
    /// # Safety
    /// As [`Self::cached`].
    pub(super) unsafe fn views_in_place(&self, first: usize, out: Target) -> usize {
        let count = self.lanes.len();
        let fits = self.size == SIZE && (ELEMENTS + 1..=MOST_IN_PLACE).contains(&count) && out.stride() == count * SIZE;
        let ragged = !count.is_multiple_of(ELEMENTS) && out.count() >= BLOCK_ROWS;
        if self.isa != Isa::Avx2 || !fits || !ragged || !self.lanes.iter().all(Lane::is_view) {
            return 0;
        }
        let columns: SmallVec<[*const u8; MOST_IN_PLACE]> =
            self.lanes.iter().map(|lane| lane.stored_at(first)).collect();
        // SAFETY: `columns` and `room`: views of 4 bytes, more than 16, and dense rows of one element of each; the processor has AVX2.
        unsafe { avx2::ASSEMBLER.write_in_place(&columns, out) }
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
