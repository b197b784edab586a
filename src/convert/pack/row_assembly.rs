//! Assembles rows that share cache lines in a cached buffer, 64 at a time, and writes them from there as whole lines; rows that stay in the
//! cache are assembled where they belong.

use super::group::{GroupBuffers, LaneGroup};
use super::isa::BLOCK_ROWS;
use super::loads::Loads;
use super::stream::{LINE, LinePrefetch, Pages};
use super::target::Target;
use super::{PackRefusal, Packer};
use crate::alloc::HostBuffer;

impl Packer<'_> {
    /// Writes contiguous rows that are no whole lines: views of 4 bytes with AVX2 and AVX-512 in a way of their own.
    ///
    /// # Safety
    /// As [`super::pack_rows`]; rows lie one after the other, and are a line long or longer.
    pub(super) unsafe fn sharing_lines(&self, first: usize, out: Target) -> Result<(), PackRefusal> {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `columns`, `room` and `isa` are promised; rows are dense, and not shorter than a line.
        let written = unsafe { self.views(first, out) }?;
        #[cfg(not(target_arch = "x86_64"))]
        let written = 0;
        // SAFETY: `columns`, `room` and `isa` are promised for the rows behind the written ones, which are as dense.
        unsafe { self.waiting(first + written, out.part(written..out.count())) }
    }

    /// Writes rows that stay in the cache: contiguous ones of 4-byte views in a way of their own with AVX2.
    ///
    /// # Safety
    /// As [`super::pack_rows`].
    pub(super) unsafe fn cached(&self, first: usize, out: Target) -> Result<(), PackRefusal> {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `columns`, `room` and `isa` are promised.
        let written = unsafe { self.views_in_place(first, out) };
        #[cfg(not(target_arch = "x86_64"))]
        let written = 0;
        // SAFETY: `columns`, `room` and `isa` are promised for the rows behind the written ones; nothing is streamed.
        unsafe { self.groups(first + written, out.part(written..out.count()), false) }
    }

    /// Writes contiguous rows. While non-temporal stores write one block, the columns of the next block are prefetched.
    ///
    /// # Safety
    /// As [`super::pack_rows`]; rows lie one after the other, and are a line long or longer.
    unsafe fn waiting(&self, first: usize, out: Target) -> Result<(), PackRefusal> {
        let width = out.stride();
        // In the buffer, rows start at the same position in a cache line as in the target.
        let before = out.start().addr() % LINE;
        let waiting = HostBuffer::uninitialised(LINE + BLOCK_ROWS.min(out.count()) * width)?;
        let block = Target::new(waiting.as_ptr().wrapping_add(before), width, BLOCK_ROWS);
        let groups = self.loaded_groups(block);
        let mut ahead: Vec<LinePrefetch> = self.lanes.iter().map(|lane| lane.ahead(first)).collect();
        let mut scratch = GroupBuffers::new();
        let mut pages = Pages::new(out.start(), out.count() * width);
        for start in (0..out.count()).step_by(BLOCK_ROWS) {
            let rows = start..out.count().min(start + BLOCK_ROWS);
            let last = rows.end == out.count();
            // SAFETY: `room`: `pages` has all rows of `out`, which lie one after the other and are all to be written;
            // none of those from `start` on is written yet.
            unsafe { pages.make(out.part(rows.end..rows.end).start()) };
            for (group, loads, offset) in &groups {
                let block = block.behind(*offset).part(0..rows.len());
                // SAFETY: `columns` for these rows; `waiting` has room for as many behind `before` bytes, which is less
                // than a line.
                if !unsafe { group.pack_loaded(loads, first + start, block, &mut scratch) } {
                    return Err(PackRefusal::MisfitBefore(first + rows.end));
                }
            }
            let (mut from, mut to) =
                (waiting.as_ptr().cast_const(), out.part(rows.clone()).start().wrapping_sub(before));
            let mut bytes = before + rows.len() * width;
            if start == 0 && before > 0 {
                let (head, there) = (from.wrapping_add(before), to.wrapping_add(before));
                // SAFETY: a row is a line long or longer, so `out` has room for `LINE - before` bytes, and `waiting`
                // has them behind `before`.
                unsafe { there.copy_from_nonoverlapping(head, LINE - before) };
                (from, to, bytes) = (from.wrapping_add(LINE), to.wrapping_add(LINE), bytes - LINE);
            }
            let lines = bytes / LINE;
            for (number, ahead) in ahead.iter_mut().enumerate() {
                let line = lines.min(number * self.size);
                let (from, to) = (from.wrapping_add(line * LINE), to.wrapping_add(line * LINE));
                // SAFETY: `waiting` has `before + rows.len() * width` bytes, of which these are whole lines, and `out`
                // has room for them from the start of a line on; the processor has `isa`.
                unsafe { ahead.fetch_and_copy(self.isa, from, to, self.size.min(lines - line)) };
            }
            let left = (from.wrapping_add(lines * LINE), bytes % LINE);
            let there = if last { to.wrapping_add(lines * LINE) } else { waiting.as_ptr() };
            // SAFETY: less than a line, that the buffer has behind the lines, and `out` or the start of the buffer room for.
            unsafe { there.copy_from_nonoverlapping(left.0, left.1) };
        }
        Ok(())
    }

    /// The groups of columns, how tiles take them, and the bytes of a row before each.
    fn loaded_groups(&self, out: Target) -> Vec<(LaneGroup<'_>, Loads<'_>, usize)> {
        let loaded = |column| {
            let group = self.group(column, false);
            (group, group.loads(out), column * self.size)
        };
        self.group_starts().map(loaded).collect()
    }
}
