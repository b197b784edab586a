//! Packs columns whose elements fill at most one cache line per row, 64 rows at a time.

use std::mem::MaybeUninit;
use std::ops::Range;

use super::bit_rows::{read_bits, write_bit_rows};
use super::interleave::{Lanes, interleave_kernel};
use super::isa::BLOCK_ROWS;
use super::isa::Isa;
use super::lane_prefetch::{ADDRESSES, fetch_lane_ahead, fetch_next};
use super::load::LANES;
use super::loads::Loads;
use super::select::{BitColumns, WORDS};
use super::stream::{LINE, copy_past_the_cache};
use super::target::Target;
use super::transpose::{Line, Tiles, Turn, quads, transpose};
use super::vector::WIDTH;
use crate::convert::lane::Lane;

/// Bytes of 64 rows of a group.
const BLOCK: usize = BLOCK_ROWS * LINE;
/// The smallest element of a tile, in bytes.
const TILED: usize = 4;
/// Bytes of a row of four such elements.
const QUAD: usize = 16;

/// Room for 64 rows of a group in the first-level cache, at each step on their way.
#[repr(C, align(64))]
pub(super) struct GroupBuffers {
    lanes: [MaybeUninit<u8>; BLOCK],
    interleaved: [MaybeUninit<u8>; BLOCK],
    /// One line more than the rows need, because each row is written as a whole line.
    rows: [MaybeUninit<u8>; BLOCK + LINE],
    ahead: [*const u8; ADDRESSES],
    /// The last row of the previous 64, and of these, if lines contain parts of two rows.
    before: Option<Line>,
    after: Line,
}

impl GroupBuffers {
    pub(super) fn new() -> Self {
        Self {
            lanes: [MaybeUninit::uninit(); BLOCK],
            interleaved: [MaybeUninit::uninit(); BLOCK],
            rows: [MaybeUninit::uninit(); BLOCK + LINE],
            ahead: [std::ptr::null(); ADDRESSES],
            before: None,
            after: Line([MaybeUninit::uninit(); LINE]),
        }
    }
}

/// Columns whose elements fill at most one cache line per row.
#[derive(Clone, Copy)]
pub(super) struct LaneGroup<'a> {
    pub(super) isa: Isa,
    pub(super) lanes: &'a [Lane<'a>],
    /// Bytes of an element.
    pub(super) size: usize,
    /// Whether rows are contiguous, or each fills an aligned line: non-temporal stores write them.
    pub(super) stream: bool,
    /// Bytes of the first columns, if lines contain the last columns of a row and the first ones of the next.
    pub(super) head: Option<usize>,
    /// The lanes that are prefetched while the last rows of these are read, and their first row: by default, more of these.
    pub(super) next: Option<(&'a [Lane<'a>], usize)>,
}

impl<'a> LaneGroup<'a> {
    /// Writes the columns of some rows, the first of which is row `first` of the columns; tells whether all valid elements
    /// fit.
    ///
    /// # Safety
    /// - `columns`: there is at least one, and they have these rows.
    /// - `room`: each row of `out` has room for the group, at its dtype's alignment (of a complex number, that of a part), and
    ///   lies apart from the other rows and the columns. What `stream` says of rows is true.
    /// - `head`: with one, the group fills a line, its elements have 4 or 8 bytes, rows come in 64s one after the other, with
    ///   one scratch, and the processor has AVX-512. Each row of `out` then has room for the end of the row before and the
    ///   head of its own; the very first of the scratch is not written.
    /// - `isa`: the processor has it.
    pub(super) unsafe fn pack(&self, first: usize, out: Target, scratch: &mut GroupBuffers) -> bool {
        #[cfg(target_arch = "x86_64")]
        if let Some(columns) = self.quad_columns(first, out) {
            // SAFETY: all clauses are promised in the same words; the addresses are those of these rows.
            return unsafe { self.pack_quads(&columns, first, out, scratch) };
        }
        if self.lanes.len() > 1 && self.lanes.iter().all(|lane| lane.bits().is_some()) {
            // SAFETY: `columns`, `room` and `isa` are promised, in the same words; the lanes are bits.
            return unsafe { self.pack_bits(first, out, scratch) };
        }
        // SAFETY: `columns`, `room`, `head` and `isa` are promised, in the same words.
        unsafe { self.pack_chunks(first, out, scratch) }
    }

    /// Like [`Self::pack`], lanes of [`Lane::bits`].
    ///
    /// # Safety
    /// As [`Self::pack`].
    unsafe fn pack_bits(&self, first: usize, out: Target, scratch: &mut GroupBuffers) -> bool {
        let width = self.lanes.len();
        let mut blocks: [BitColumns; WORDS] = [[0; BLOCK_ROWS]; WORDS];
        for row in (0..out.count()).step_by(WORDS * BLOCK_ROWS) {
            let used = (out.count() - row).div_ceil(BLOCK_ROWS).min(WORDS);
            let blocks = blocks.get_mut(..used).unwrap_or(&mut []);
            read_bits(self.lanes, first + row, blocks);
            for (block, words) in blocks.iter().enumerate() {
                let row = row + block * BLOCK_ROWS;
                // Each row is written with other bytes behind it, up to a line: the next rows have so many, and overwrite them.
                let has_room = (out.count() - row) * width >= (BLOCK_ROWS - 1) * width + LINE;
                let out = out.part(row..out.count().min(row + BLOCK_ROWS));
                if out.stride() == width && has_room && !self.stream {
                    // SAFETY: `room`: the rest of the rows, which nobody else uses and which are written after these, have
                    // the bytes of 63 rows and a line. The lanes are 2 to 64; `isa` is promised.
                    unsafe { write_bit_rows(self.isa, words, width, out.start(), width) };
                    continue;
                }
                let rows = scratch.rows.as_mut_ptr().cast::<u8>();
                let stride = if out.stride() == width { width } else { LINE };
                // SAFETY: `scratch.rows` has room for 64 rows of a line, and a line more. The lanes are 2 to 64; `isa` is
                // promised.
                unsafe { write_bit_rows(self.isa, words, width, rows, stride) };
                // SAFETY: 64 rows of `width` bytes, `stride` bytes apart, were just put together in `rows`; `out` has at
                // most 64.
                unsafe { self.copy_rows(rows, stride, out) };
            }
        }
        true
    }

    /// Copies rows of the group that were put together `stride` bytes apart: one after the other if those of `out` are.
    ///
    /// # Safety
    /// From `rows` on there are as many as `out` has; `room` of [`Self::pack`] for these.
    #[inline(always)]
    unsafe fn copy_rows(&self, rows: *const u8, stride: usize, out: Target) {
        let width = self.lanes.len() * self.size;
        if out.stride() == width && stride == width {
            // SAFETY: `out` has room for as many bytes as its rows have, one after the other, and so many are in `rows`.
            unsafe { write(self.isa, rows, out.start(), out.count() * width, self.stream) };
            return;
        }
        for row in 0..out.count() {
            let (from, to) = (rows.wrapping_add(row * stride), out.start().wrapping_add(row * out.stride()));
            // SAFETY: the row of `out` has room for the group, `width` bytes, and `rows` has as many, `stride` bytes apart.
            unsafe { write(self.isa, from, to, width, self.stream) };
        }
    }

    /// Returns the addresses of four adjacent columns that need no change; `None` for others.
    #[cfg(target_arch = "x86_64")]
    fn quad_columns(&self, first: usize, out: Target) -> Option<[*const u8; 4]> {
        let is_quad = self.isa == Isa::Avx512 && self.size == TILED && out.stride() == QUAD;
        let lanes: &[Lane<'_>; 4] = self.lanes.try_into().ok().filter(|_| is_quad)?;
        // No two rows share a cache line.
        let starts_with_a_row = out.start().addr().is_multiple_of(QUAD);
        (starts_with_a_row && lanes.iter().all(Lane::is_view))
            .then(|| lanes.each_ref().map(|lane| lane.stored_at(first)))
    }

    /// Like [`Self::pack`], for [`Self::quad_columns`].
    ///
    /// # Safety
    /// As [`Self::pack`]; `columns` are what [`Self::quad_columns`] gives for these rows.
    #[cfg(target_arch = "x86_64")]
    unsafe fn pack_quads(
        &self,
        columns: &[*const u8; 4],
        first: usize,
        out: Target,
        scratch: &mut GroupBuffers,
    ) -> bool {
        let head = if self.stream { (out.start().align_offset(LINE) / QUAD).min(out.count()) } else { 0 };
        let tail = head + (out.count() - head) / LANES * LANES;
        let columns = columns.map(|column| column.wrapping_add(head * TILED));
        let inner = out.part(head..tail);
        // SAFETY: rows `head..tail` of `out` and of the columns, as both have `out.count()`; if `stream`, `head` rows
        // lead to a line. `quad_columns` gives none without AVX-512.
        unsafe { super::avx512::quad_rows(&columns, inner.start(), inner.count(), self.stream) };
        [0..head, tail..out.count()].into_iter().all(|rows| {
            // SAFETY: the rows before and behind the inner ones, of `out` and of the columns.
            unsafe { self.pack_chunks(first + rows.start, out.part(rows), scratch) }
        })
    }

    /// Like [`Self::pack`], 64 rows at a time.
    ///
    /// # Safety
    /// As [`Self::pack`].
    unsafe fn pack_chunks(&self, first: usize, out: Target, scratch: &mut GroupBuffers) -> bool {
        let loads = self.loads(out);
        // SAFETY: `columns`, `room`, `head` and `isa` are promised; `loads` are those of this group and `out`.
        unsafe { self.pack_loaded(&loads, first, out, scratch) }
    }

    /// As [`Self::pack_chunks`], with the loads that tiles use for the lanes.
    ///
    /// # Safety
    /// As [`Self::pack`]; `loads` are the group's, for rows as far apart as those of `out`.
    pub(super) unsafe fn pack_loaded(
        &self,
        loads: &Loads<'_>,
        first: usize,
        out: Target,
        scratch: &mut GroupBuffers,
    ) -> bool {
        // SAFETY: `columns`, `room`, `head` and `isa` are promised for all rows; so are `loads`.
        let done = unsafe { self.pack_lines(loads, first, out, scratch) };
        (done..out.count()).step_by(BLOCK_ROWS).all(|row| {
            let part = out.part(row..out.count().min(row + BLOCK_ROWS));
            let loads = if part.count() == BLOCK_ROWS { loads } else { &Loads::MADE };
            // SAFETY: at most 64 of the rows of `out` and of the columns; lanes are loaded only where they are 64.
            let fits = unsafe { self.chunk(loads, first + row, part, scratch) };
            // SAFETY: the rows of the call above, which may be written again.
            let fits = fits || unsafe { self.look_closer(first + row, part, scratch) };
            if self.head.is_some() {
                scratch.before = Some(scratch.after);
            }
            fits
        })
    }

    /// Writes rows from lanes that are all read in place, in one call for all whole blocks of 64 rows. Returns the number of
    /// rows, 0 if an element may not fit.
    ///
    /// # Safety
    /// As [`Self::pack_loaded`].
    unsafe fn pack_lines(&self, loads: &Loads<'_>, first: usize, out: Target, scratch: &mut GroupBuffers) -> usize {
        let width = self.lanes.len() * self.size;
        let overlaps_rows = self.overlaps_rows(out);
        if !overlaps_rows && !self.writes_rows(out) {
            return 0;
        }
        let row_bytes = if overlaps_rows { width.next_multiple_of(WIDTH) } else { width };
        // The surplus of the last row goes into one more row: it has at most as many bytes as that, which are 8 or more.
        let rows = if row_bytes > width { out.count().saturating_sub(1) } else { out.count() };
        let rows = rows / BLOCK_ROWS * BLOCK_ROWS;
        if rows == 0 || !matches!(self.size, 4 | 8) {
            return 0;
        }
        let Some(lanes) = loads.all_in_place(first) else { return 0 };
        let turn = self.turn(scratch.before, &mut scratch.after);
        let next = self.next_lanes(loads, first..first + rows);
        let tiles = Tiles { next: next.as_ref(), row_bytes, ..self.tiles(&lanes, loads, (first, rows), out, turn) };
        // SAFETY: the first `rows` rows, a multiple of 64, of `out` and of the columns. Each has room for `row_bytes`: those
        // of the group, a line or the part that `writes_rows` allows; or, by `overlaps_rows`, up to `width` more, which the
        // row behind has: there is one, by `rows`, and it is written later.
        let fits = unsafe { transpose(self.isa, self.size, &tiles) };
        if fits && self.head.is_some() {
            scratch.before = Some(scratch.after);
        }
        if fits { rows } else { 0 }
    }

    /// The row before a tile and the place of its last row, where lines have parts of two rows.
    #[inline(always)]
    fn turn(&self, before: Option<Line>, after: &mut Line) -> Option<Turn> {
        self.head.map(|head| Turn { before, head, after: std::ptr::from_mut(after) })
    }

    /// Tiles of these lanes.
    #[inline(always)]
    fn tiles<'b>(
        &self,
        lanes: &'b [*const u8; LANES],
        loads: &'b Loads<'_>,
        (first, rows): (usize, usize),
        out: Target,
        turn: Option<Turn>,
    ) -> Tiles<'b> {
        let (loads, start, stride) = (loads.made(), out.start(), out.stride());
        let (row_bytes, stream) = (self.lanes.len() * self.size, self.stream);
        Tiles { lanes, loads, first, turn, rows, next: None, out: start, stride, row_bytes, stream, ahead: &[] }
    }

    /// Returns whether tiles write rows of the group where they belong: whole lines, or parts of longer rows.
    #[inline(always)]
    fn writes_rows(&self, out: Target) -> bool {
        let width = self.lanes.len() * self.size;
        width == LINE || out.stride() != width && width.is_multiple_of(part_unit(self.isa))
    }

    /// Returns whether tiles write dense rows that are shorter than a line as whole vectors of 16 bytes, of which the next row overwrites the
    /// surplus. Not with AVX-512, whose masked stores have no surplus, nor past the cache, where whole lines are written.
    #[inline(always)]
    fn overlaps_rows(&self, out: Target) -> bool {
        let width = self.lanes.len() * self.size;
        self.isa != Isa::Avx512 && !self.stream && self.lanes.len() > 1 && width < LINE && out.stride() == width
    }

    /// Returns where the lanes start that are prefetched behind the end of these rows; `None` if lanes are not prefetched.
    fn next_lanes(&self, loads: &Loads<'_>, rows: Range<usize>) -> Option<[*const u8; LANES]> {
        let mut next = loads.all_in_place(rows.end)?;
        // Columns of NumPy start in the middle of a cache line, so each 64-byte load reads two lines. A prefetch costs such
        // loads more than it saves.
        let in_lines = || next.iter().all(|lane| lane.addr().is_multiple_of(LINE));
        let pays = self.isa == Isa::Avx512 && rows.len() > BLOCK_ROWS && (loads.made().is_some() || in_lines());
        if let Some((lanes, row)) = self.next.filter(|_| pays) {
            next.iter_mut().zip(lanes).for_each(|(start, lane)| *start = lane.stored_at(row));
        }
        pays.then_some(next)
    }

    /// Returns how tiles of whole blocks load the lanes.
    pub(super) fn loads(&self, out: Target) -> Loads<'a> {
        let width = self.lanes.len() * self.size;
        match self.isa {
            Isa::Avx512 if self.size >= TILED => {}
            isa if (self.writes_rows(out) || self.overlaps_rows(out)) && matches!(self.size, 4 | 8) => {
                return Loads::new(self.lanes, |lane| lane.load().filter(|load| load.is_in_place(isa)));
            }
            _ => return Loads::MADE,
        }
        let is_column = out.stride() == self.size;
        let is_quad = width == QUAD && out.stride() == QUAD;
        let is_large = width > QUAD || is_quad || self.writes_rows(out);
        let has_tiles = matches!(self.size, 4 | 8) && !is_column && is_large;
        Loads::new(self.lanes, |lane| lane.load().filter(|load| has_tiles || load.is_alike()))
    }

    /// As [`Self::pack`], up to 64 rows, without casts in registers: these may report a misfit where there is none.
    ///
    /// # Safety
    /// As [`Self::pack`], for at most 64 rows.
    #[cold]
    #[inline(never)]
    unsafe fn look_closer(&self, first: usize, out: Target, scratch: &mut GroupBuffers) -> bool {
        // SAFETY: `columns`, `room`, `head` and `isa` are promised for these rows; no lane is loaded.
        unsafe { self.chunk(&Loads::MADE, first, out, scratch) }
    }

    /// As [`Self::pack`], up to 64 rows. Returns false if an element may not fit; casts in registers may be wrong about
    /// that.
    ///
    /// # Safety
    /// As [`Self::pack`], for at most 64 rows, and for 64 where lanes are loaded.
    #[inline(always)]
    unsafe fn chunk(&self, loads: &Loads<'_>, first: usize, out: Target, scratch: &mut GroupBuffers) -> bool {
        let width = self.lanes.len() * self.size;
        let (start, count) = (out.start(), out.count());
        let dense = out.stride() == width;
        let mut lanes = [std::ptr::null(); LANES];
        // Contiguous rows of one element have the column's own layout.
        let is_column = dense && width == self.size;
        let (fits, ahead) = if self.size < TILED && !is_column {
            // SAFETY: the columns have `count` rows from `first` on, at most 64.
            unsafe { self.interleave_lanes(first, count, scratch, &mut lanes) }
        } else {
            // SAFETY: the columns have `count` rows from `first` on, at most 64; lanes are in place only where they
            // have 64.
            unsafe { self.place_lanes(loads.in_place(), first, count, scratch, &mut lanes) }
        };
        if let ([column, ..], true) = (lanes, is_column) {
            // SAFETY: a row is an element, so `count` elements from `column` on, where there are 64, go to as many rows
            // one after the other.
            unsafe { write(self.isa, column, start, count * width, self.stream) };
            return fits;
        }
        let tiled = self.size.max(TILED);
        // `lanes` points into `scratch`: from here on only its other fields are borrowed, each by itself.
        let turn = self.turn(scratch.before, &mut scratch.after);
        let mut tiles = self.tiles(&lanes, loads, (first, BLOCK_ROWS), out, turn);
        tiles.ahead = scratch.ahead.get(..ahead).unwrap_or(&[]);
        if count == BLOCK_ROWS && self.writes_rows(out) {
            // SAFETY: `lanes` have 64 elements each, in place or in the scratch; 64 rows have room for the group, whose
            // bytes alone are written, a line or what `writes_rows` allows; `turn.after` is the scratch's.
            return fits & unsafe { transpose(self.isa, tiled, &tiles) };
        }
        // Elsewhere rows would reach beyond theirs: they are put together here, and copied without what is too much.
        let rows = scratch.rows.as_mut_ptr().cast::<u8>();
        let stride = if dense { width } else { LINE };
        tiles = Tiles { out: rows, stride, row_bytes: LINE, stream: false, ..tiles };
        let fits = fits
            & if tiled == TILED && width <= QUAD {
                // SAFETY: `lanes` have 64 elements each; `scratch.rows` has room for 64 rows of a line, and a line
                // more.
                unsafe { quads(self.isa, &tiles) }
            } else {
                // SAFETY: `lanes` have 64 elements each; `scratch.rows` has room for 64 rows of a line, and a line
                // more.
                unsafe { transpose(self.isa, tiled, &tiles) }
            };
        // SAFETY: `count` rows of `width` bytes, `tiles.stride` bytes apart, were just put together in `rows`.
        unsafe { self.copy_rows(rows, tiles.stride, out) };
        fits
    }

    /// Finds or makes 64 elements of each lane of a tile, the unused ones too; tells whether all fit, and how much of
    /// `scratch.ahead` is filled.
    ///
    /// # Safety
    /// The columns have `count` rows from `first` on, at most 64, and 64 where they are in place; the processor has
    /// `isa`.
    #[inline(always)]
    unsafe fn place_lanes(
        &self,
        in_place: &[bool; LANES],
        first: usize,
        count: usize,
        scratch: &mut GroupBuffers,
        starts: &mut [*const u8; LANES],
    ) -> (bool, usize) {
        let (mut fits, mut ahead) = (true, 0);
        let mut room = scratch.lanes.as_mut_ptr().cast::<u8>();
        for (number, ((start, lane), lane_in_place)) in starts.iter_mut().zip(self.lanes).zip(in_place).enumerate() {
            if self.isa != Isa::Avx512 {
                fetch_lane_ahead(self.lanes, in_place, number, first);
            }
            if *lane_in_place {
                *start = lane.stored_at(first);
            } else {
                if self.isa == Isa::Avx512 {
                    ahead = fetch_next(&mut scratch.ahead, ahead, lane, first);
                }
                // SAFETY: the column has `count` rows from `first` on; `scratch.lanes` has room for 64 elements of each
                // column, and is aligned.
                fits &= unsafe { lane.chunk(first, count, room) };
                *start = room;
            }
            room = room.wrapping_add(BLOCK_ROWS * self.size);
        }
        fill_up(starts);
        (fits, ahead)
    }

    /// As [`Self::place_lanes`], of elements of which several make one of a tile.
    ///
    /// # Safety
    /// The columns have `count` rows from `first` on, at most 64; the processor has `isa`.
    #[inline(always)]
    unsafe fn interleave_lanes(
        &self,
        first: usize,
        count: usize,
        scratch: &mut GroupBuffers,
        starts: &mut [*const u8; LANES],
    ) -> (bool, usize) {
        let (mut fits, mut ahead) = (true, 0);
        let mut room = scratch.lanes.as_mut_ptr().cast::<u8>();
        let interleave = interleave_kernel(self.isa, self.size);
        let mut interleaved = scratch.interleaved.as_mut_ptr().cast::<u8>();
        for (start, group) in starts.iter_mut().zip(self.lanes.chunks(TILED / self.size)) {
            let mut parts: Lanes = [std::ptr::null(); TILED];
            for (part, lane) in parts.iter_mut().zip(group) {
                *part = room;
                if count == BLOCK_ROWS && lane.is_view() {
                    *part = lane.stored_at(first);
                } else {
                    // SAFETY: the column has `count` rows from `first` on; `scratch.lanes` has room for 64 elements of
                    // each column, and is aligned.
                    fits &= unsafe { lane.chunk(first, count, room) };
                }
                ahead = fetch_next(&mut scratch.ahead, ahead, lane, first);
                room = room.wrapping_add(BLOCK_ROWS * self.size);
            }
            fill_up(&mut parts);
            // SAFETY: each part has 64 elements, and `scratch.interleaved` room for 64 of 4 bytes for each group of lanes.
            unsafe { interleave(parts.as_ptr().cast(), 0, &[0; 16], interleaved) };
            *start = interleaved;
            interleaved = interleaved.wrapping_add(BLOCK_ROWS * TILED);
        }
        fill_up(starts);
        (fits, ahead)
    }
}

/// Tiles write parts of lines that are multiples of so many bytes: AVX-512 masks elements of four, the others write vectors.
#[inline(always)]
pub(super) fn part_unit(isa: Isa) -> usize {
    if isa == Isa::Avx512 { TILED } else { WIDTH }
}

/// Points unused lanes at the first lane. Their elements are overwritten, masked out, or not copied.
#[inline(always)]
fn fill_up(lanes: &mut [*const u8]) {
    let first = lanes.first().copied().unwrap_or(std::ptr::null());
    for lane in lanes.iter_mut().rev().take_while(|lane| lane.is_null()) {
        *lane = first;
    }
}

/// Copies contiguous rows.
///
/// # Safety
/// Both have so many bytes, apart from each other; the processor has `isa`.
#[inline(always)]
unsafe fn write(isa: Isa, from: *const u8, out: *mut u8, bytes: usize, stream: bool) {
    if stream {
        // SAFETY: both have `bytes` bytes, apart from each other, and the processor has `isa`.
        unsafe { copy_past_the_cache(isa, from, out, bytes) };
    } else {
        // SAFETY: both have `bytes` bytes, apart from each other.
        unsafe { out.copy_from_nonoverlapping(from, bytes) };
    }
}
