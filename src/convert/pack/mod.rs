//! Packs columns into the rows of a matrix in one pass that reads and writes each byte once.
//!
//! A group is the columns that fill a cache line of a row. It is packed 64 rows at a time: its lanes are cast, filled
//! and unpacked in the first-level cache, and transposed from there in registers. Lanes that need none of that are
//! transposed from the source directly. AVX-512 casts and fills most others in the registers of the transposition, so
//! that reads and writes alternate every few rows, and neither waits for the other.

#[cfg(target_arch = "x86_64")]
mod assembled_rows;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod bit_rows;
#[doc(hidden)]
mod group;
mod interleave;
mod isa;
mod lane_prefetch;
mod load;
mod loads;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(any(test, miri, not(target_arch = "x86_64")))]
mod plain;
mod row_assembly;
mod rows;
mod select;
#[cfg(target_arch = "x86_64")]
mod shared_lines;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod sse2;
mod stream;
mod target;
#[cfg(test)]
mod tests;
mod transpose;
mod vector;

use std::ops::Range;

use smallvec::SmallVec;

pub(crate) use isa::Isa;
pub(in crate::convert) use isa::{BLOCK_ROWS, Bytes, Compiled, VectorKernel};
pub(in crate::convert) use load::{Load, Stored};
#[cfg(target_arch = "aarch64")]
pub(in crate::convert) use neon::Neon;
pub(crate) use rows::Rows;
pub(in crate::convert) use select::{UnalignedBits, selecting, spread_lines, spreading};
pub(in crate::convert) use stream::{
    LINE, LinePrefetch, NON_TEMPORAL_FROM, copy_past_the_cache, fence, prefetch, prefetch_to_second,
};

/// The vectors of [`Isa::Portable`].
#[cfg(any(miri, not(target_arch = "x86_64")))]
pub(in crate::convert) use plain::Plain as Baseline;
/// The vectors of [`Isa::Portable`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(in crate::convert) use sse2::Sse2 as Baseline;
pub(in crate::convert) use vector::{Vector, WIDTH, transposed};

use super::chunk::PackedColumn;
use super::lane::Lane;
use super::misfit::Misfit;
use super::threads::for_each_part;
use crate::error::{Error, Result};
use group::{GroupBuffers, LaneGroup, part_unit};
use load::LANES;
use stream::{HUGE_PAGE, Pages};
use target::Target;

/// The least bytes of a column that are read in a run: long enough for the processor's prefetcher, and a few pages. Few
/// under Miri, so that small tests have several runs.
const RUN: usize = if cfg!(miri) { 256 } else { 8192 };
/// The bytes of rows that are written in a run, if columns have more than `RUN` then: in small pages, at most what the
/// TLB covers.
const SPAN: usize = HUGE_PAGE;
/// The same in huge pages, if rows have several lines: a new run starts at a new place of every column.
const WIDE_SPAN: usize = 16 * HUGE_PAGE;

/// A misfit: the column's number, and the position in the chunk.
pub(crate) struct PackMisfit {
    pub(crate) column: usize,
    pub(crate) misfit: Misfit,
}

/// Why rows were not written.
enum PackRefusal {
    /// A value does not fit, in a row before this one.
    MisfitBefore(usize),
    Misfit(PackMisfit),
    Error(Error),
}

impl From<Error> for PackRefusal {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// Writes the columns' rows from `first` on, as many as `out` has, on this many threads.
///
/// # Errors
/// The inner error is the value that does not fit in the lowest row, of the first such column. The outer one is a
/// failed allocation.
///
/// # Safety
/// The clauses, by the names that the functions below call them:
/// - `columns`: they have scalar elements, all of one dtype, and rows `first..first + out.count()`.
/// - `room`: each row of `out` has room for one element of each column, at the dtype's alignment (of a complex number,
///   that of a part); rows lie apart from each other and from the columns, and nobody else uses them during the call.
/// - `isa`: the processor has its instructions.
pub(crate) unsafe fn pack_rows(
    isa: Isa,
    threads: usize,
    columns: &[PackedColumn<'_>],
    first: usize,
    out: Rows<'_>,
) -> Result<std::result::Result<(), PackMisfit>> {
    let huge_pages = out.huge_pages();
    let out = Target::new(out.start(), out.stride(), out.count());
    let width: usize = columns.iter().map(|column| column.spec.dtype().itemsize()).sum();
    let stream = isa.streams() && out.count().saturating_mul(width) >= NON_TEMPORAL_FROM;
    // SAFETY: `columns`, `room` and `isa` are our caller's promises, in the same words; the target has the rows of
    // `out`.
    unsafe { pack(isa, threads, columns, first, out, RowMemory { stream, huge_pages }) }
}

/// How the memory of the rows is written, and whether huge pages back it.
#[derive(Clone, Copy)]
struct RowMemory {
    /// Whether non-temporal stores write whole lines.
    stream: bool,
    huge_pages: bool,
}

/// Like [`pack_rows`], past the cache or not.
///
/// # Safety
/// As [`pack_rows`].
unsafe fn pack(
    isa: Isa,
    threads: usize,
    columns: &[PackedColumn<'_>],
    first: usize,
    out: Target,
    memory: RowMemory,
) -> Result<std::result::Result<(), PackMisfit>> {
    let mut lanes: SmallVec<[Lane<'_>; 16]> = SmallVec::with_capacity(columns.len());
    for (column, PackedColumn { spec, chunk }) in columns.iter().enumerate() {
        match Lane::new(isa, spec, chunk) {
            Ok(lane) => lanes.push(lane),
            Err(misfit) => return Ok(Err(PackMisfit { column, misfit })),
        }
    }
    let Some(lane) = lanes.first() else { return Ok(Ok(())) };
    let size = lane.size();
    let packer = Packer { isa, lanes: &lanes, size, memory };
    let packed = for_each_part(threads, out.count(), BLOCK_ROWS, |rows| {
        let (first, out) = (first + rows.start, out.part(rows));
        // SAFETY: `columns` and `room` for the rows of this part, which `for_each_part` gives to no other thread; `isa`
        // is promised.
        unsafe { packer.pack(first, out) }.map_err(|refusal| match refusal {
            // SAFETY: `columns`: the last of these rows is before `first + out.count()`.
            PackRefusal::MisfitBefore(end) => unsafe { lowest_misfit(&lanes, first..end.min(first + out.count())) },
            refusal => refusal,
        })
    });
    match packed {
        Ok(()) => Ok(Ok(())),
        Err(PackRefusal::Misfit(misfit)) => Ok(Err(misfit)),
        Err(PackRefusal::Error(error)) => Err(error),
        Err(PackRefusal::MisfitBefore(row)) => Err(Error::invalid(format!("a value before row {row} changed"))),
    }
}

/// Returns the misfit in the lowest of these rows, of the first such column.
///
/// # Safety
/// The columns have these rows.
#[cold]
unsafe fn lowest_misfit(lanes: &[Lane<'_>], rows: Range<usize>) -> PackRefusal {
    let mut lowest = PackRefusal::MisfitBefore(rows.end);
    let mut end = rows.end;
    for (column, lane) in lanes.iter().enumerate() {
        // SAFETY: the columns have `rows`, and `end` starts at `rows.end` and only shrinks.
        if let Err(misfit) = unsafe { lane.check(rows.start..end) } {
            end = misfit.index;
            lowest = PackRefusal::Misfit(PackMisfit { column, misfit });
        }
    }
    lowest
}

/// Columns and how they are packed.
#[derive(Clone, Copy)]
struct Packer<'a> {
    isa: Isa,
    lanes: &'a [Lane<'a>],
    /// Bytes of an element.
    size: usize,
    memory: RowMemory,
}

impl Packer<'_> {
    /// Writes rows, the first of which is row `first` of the columns. The first of these that applies:
    ///
    /// | rows | written by | because |
    /// |---|---|---|
    /// | stay in the cache, or no store goes past it | `cached` | the caller reads them there |
    /// | are shorter than a line | `groups`, past the cache if dense | one group has all columns, and its rows fill lines |
    /// | are whole lines, from one on | `groups`, past the cache | each group writes a whole line of each row |
    /// | are whole lines, dense, not from one on | `line_by_line` | a line has the end of a row and the start of the next |
    /// | are dense | `sharing_lines` | as there, and each row starts elsewhere in its line |
    /// | lie apart | `groups` | a line has bytes that are not the matrix's |
    ///
    /// # Safety
    /// As [`pack_rows`].
    unsafe fn pack(&self, first: usize, out: Target) -> std::result::Result<(), PackRefusal> {
        let width = self.lanes.len() * self.size;
        let dense = out.stride() == width;
        let whole_lines = width.is_multiple_of(LINE) && out.stride().is_multiple_of(LINE);
        let before = out.start().addr() % LINE;
        let packed = if !self.memory.stream {
            // SAFETY: `columns`, `room` and `isa` are promised.
            unsafe { self.cached(first, out) }
        } else if width < LINE {
            // SAFETY: `columns`, `room` and `isa` are promised; if groups stream, rows are dense and, by the branch, shorter
            // than a line.
            unsafe { self.groups(first, out, dense) }
        } else if whole_lines && before == 0 {
            // SAFETY: `columns`, `room` and `isa` are promised; rows are whole lines, and the first starts on one.
            unsafe { self.groups(first, out, true) }
        } else if whole_lines && dense && before.is_multiple_of(self.size) {
            // SAFETY: `columns`, `room` and `isa` are promised; rows are dense, whole lines long, and `skip` bytes from
            // the first to a line are whole elements, as `before` and a line are.
            unsafe { self.line_by_line(first, out, LINE - before) }
        } else if dense {
            // SAFETY: `columns`, `room` and `isa` are promised; rows are dense, and not shorter than a line, by the branch
            // for those that are.
            unsafe { self.sharing_lines(first, out) }
        } else {
            // SAFETY: `columns`, `room` and `isa` are promised; nothing is streamed.
            unsafe { self.groups(first, out, false) }
        };
        if self.memory.stream {
            fence();
        }
        packed
    }

    /// Writes rows a group of columns at a time, for a run of rows.
    ///
    /// # Safety
    /// As [`pack_rows`]. If `stream`, rows lie one after the other and are shorter than a line, or each is made of whole
    /// lines.
    unsafe fn groups(&self, first: usize, out: Target, stream: bool) -> std::result::Result<(), PackRefusal> {
        let mut scratch = GroupBuffers::new();
        let run = self.run(out.stride());
        let in_order = stream && out.stride() == self.lanes.len() * self.size;
        let mut pages = Pages::new(out.start(), if in_order { out.count() * out.stride() } else { 0 });
        for start in (0..out.count()).step_by(run) {
            let end = out.count().min(start + run);
            // SAFETY: `room`: `pages` has either no bytes or all of dense rows, every one of which is to be written;
            // runs follow each other, so that none of the rows from `start` on is written yet.
            unsafe { pages.make(out.part(end..end).start()) };
            let mut columns = self.group_starts().peekable();
            while let Some(column) = columns.next() {
                let next = columns.peek().map_or((0, first + end), |next| (*next, first + start));
                let group = LaneGroup { next: Some((self.line(next.0), next.1)), ..self.group(column, stream) };
                let out = out.behind(column * self.size).part(start..end);
                // SAFETY: `columns` and `room` for rows `start..end` and for the group's columns, of which there is at
                // least one; `isa` is promised, and what `stream` asks of rows.
                if !unsafe { group.pack(first + start, out, &mut scratch) } {
                    // The written bytes do not matter any more. Other columns may misfit in lower rows, and the first
                    // ones of these may be those of the row behind.
                    return Err(PackRefusal::MisfitBefore(first + end + 1));
                }
            }
        }
        Ok(())
    }

    /// Writes rows that are whole lines long, but start `skip` bytes before one: as rows that start there, each with the
    /// first columns of the next row behind the last ones of its own.
    ///
    /// # Safety
    /// As [`pack_rows`]. Rows lie one after the other and are whole lines long; `skip` bytes, which are whole elements,
    /// lead from the first to the next line.
    unsafe fn line_by_line(&self, first: usize, out: Target, skip: usize) -> std::result::Result<(), PackRefusal> {
        let Some(last) = out.count().checked_sub(1) else { return Ok(()) };
        let (head, tail) = self.lanes.split_at((skip / self.size).min(self.lanes.len()));
        // SAFETY: `columns`, `room` and `isa` are promised for the same rows, and so is what `skip` leads to.
        let turned = unsafe { self.turned(first, out, skip) }?;
        let next_row = head.iter().map(|lane| lane.after(1));
        let lanes: SmallVec<[Lane<'_>; 16]> = tail.iter().copied().chain(next_row).collect();
        let rest = out.behind(skip).part(turned..last);
        // SAFETY: `room`: from a line on, the rest of each row but the last and the head of the row behind it, as many
        // bytes as a row. `columns`: `next_row` starts one row later, and ends with the last row.
        unsafe { Packer { lanes: &lanes, ..*self }.groups(first + turned, rest, true) }?;
        // SAFETY: `columns` and `room` for the head of the first row; nothing is streamed.
        unsafe { Packer { lanes: head, ..*self }.groups(first, out.part(0..1), false) }?;
        // SAFETY: `columns` and `room` for the rest of the last row; nothing is streamed.
        unsafe { Packer { lanes: tail, ..*self }.groups(first + last, out.behind(skip).part(last..last + 1), false) }
    }

    /// As [`Self::line_by_line`], the whole lines of the first rows, where registers turn the last columns of a row and the
    /// first ones of the next into a line. Of how many rows all lines are written.
    ///
    /// # Safety
    /// As [`Self::line_by_line`].
    unsafe fn turned(&self, first: usize, out: Target, skip: usize) -> std::result::Result<usize, PackRefusal> {
        let out = out.part(0..out.count() / BLOCK_ROWS * BLOCK_ROWS);
        if self.isa != Isa::Avx512 || !matches!(self.size, 4 | 8) || out.count() == 0 {
            return Ok(0);
        }
        let (head, rest) = self.lanes.split_at((skip / self.size).min(self.lanes.len()));
        let (body, tail) = rest.split_at(rest.len().saturating_sub(LINE / self.size - head.len()));
        // Where every line would be turned, columns are read from their second element on instead.
        if body.is_empty() && head.iter().chain(tail).all(Lane::is_view) {
            return Ok(0);
        }
        let ends: SmallVec<[Lane<'_>; LANES]> = head.iter().chain(tail).copied().collect();
        let ends =
            LaneGroup { isa: self.isa, lanes: &ends, size: self.size, stream: true, head: Some(skip), next: None };
        let body = Packer { lanes: body, ..*self };
        let (mut scratch, run) = (GroupBuffers::new(), self.run(out.stride()));
        let mut pages = Pages::new(out.start().wrapping_add(skip), out.count() * out.stride() - skip);
        for start in (0..out.count()).step_by(run) {
            let end = out.count().min(start + run);
            // SAFETY: `room`: `pages` has what is behind the first row's head, and all of it is to be written; runs
            // follow each other, so that none of the rows from `start` on is written yet.
            unsafe { pages.make(out.part(end..end).start()) };
            let out = out.part(start..end);
            // SAFETY: `columns` and `room` for the lines inside a row: `skip` bytes into it a line starts, and `body`
            // is whole lines, as head and tail make one.
            unsafe { body.groups(first + start, out.behind(skip), true) }?;
            let ends = LaneGroup { next: Some((body.line(0), first + end)), ..ends };
            // SAFETY: the group's `head` clauses: head and tail fill a line, `isa` and `size` were checked above, runs
            // are multiples of 64 rows and share the scratch. Each line has the end of a row and the head of the next,
            // which `room` covers; the one before the first row is not written.
            if !unsafe { ends.pack(first + start, out.before(LINE - skip), &mut scratch) } {
                return Err(PackRefusal::MisfitBefore(first + end));
            }
        }
        Ok(out.count() - 1)
    }

    /// How many rows of so many bytes are written in a run: whole chunks.
    fn run(&self, stride: usize) -> usize {
        let span = if self.memory.huge_pages && stride > LINE { WIDE_SPAN } else { SPAN };
        (span / stride.max(1)).max(RUN / self.size).next_multiple_of(BLOCK_ROWS)
    }

    /// The first column of each group. The last group begins where its columns are what tiles write: a few are written twice,
    /// with the same values.
    fn group_starts(&self) -> impl Iterator<Item = usize> + use<> {
        let (columns, most) = (LINE / self.size, self.lanes.len());
        let rest = (most % columns).next_multiple_of((part_unit(self.isa) / self.size).max(1));
        let last = most.saturating_sub(rest);
        (0..most).step_by(columns).map(move |column| column.min(last))
    }

    /// Returns as many columns as a line has, from this one on.
    fn group(&self, column: usize, stream: bool) -> LaneGroup<'_> {
        LaneGroup { isa: self.isa, lanes: self.line(column), size: self.size, stream, head: None, next: None }
    }

    /// The columns of a line, from this one on.
    fn line(&self, column: usize) -> &[Lane<'_>] {
        let end = self.lanes.len().min(column + LINE / self.size);
        self.lanes.get(column..end).unwrap_or(&[])
    }
}
