//! Transposes lanes to rows: 64 elements of several columns become one cache line in each of 64 rows.
//! Dispatch table: `avx2.rs` and `avx512.rs` use its types.

use std::mem::MaybeUninit;

use super::isa::{BLOCK_ROWS, Isa};
use super::load::{LANES, Load};
use super::stream::{LINE, prefetch, prefetch_to_second};
use super::vector::{Vector, WIDTH, transposed};

/// Prefetch distance of lanes that are read in place. The lines go to the second-level cache: in the first-level cache, lanes
/// that start at the same offset in their pages would evict each other.
const FAR: usize = 2048;

/// The number of lines that are prefetched together.
pub(super) const AHEAD: usize = 4;

/// A buffer of one cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Line(pub(super) [MaybeUninit<u8>; LINE]);

/// Describes lines that span two rows: the last lanes of one row, then the first lanes of the next. Only AVX-512 writes them.
#[derive(Clone, Copy)]
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "only AVX-512 writes them"))]
pub(super) struct Turn {
    /// The whole previous row. Without one, the first row has no line.
    pub(super) before: Option<Line>,
    /// Bytes of a row's first lanes.
    pub(super) head: usize,
    /// The address to write the whole last row to.
    pub(super) after: *mut Line,
}

/// Lanes that fill a cache line or a part of one, and the rows that they are written to.
#[derive(Clone, Copy)]
#[cfg_attr(
    not(target_arch = "x86_64"),
    expect(
        dead_code,
        reason = "only AVX2 and AVX-512 cast lanes in place, and AVX-512 alone turns and prefetches them"
    )
)]
pub(super) struct Tiles<'a> {
    /// The address of each lane's first element.
    pub(super) lanes: &'a [*const u8; LANES],
    /// How to load the elements, the first of which is number `first`; `None` if all have the result's dtype.
    pub(super) loads: Option<&'a [Load<'a>; LANES]>,
    pub(super) first: usize,
    /// Set if a line spans two rows.
    pub(super) turn: Option<Turn>,
    /// The number of rows: 64, or a multiple of 64 if all lanes are read in place.
    pub(super) rows: usize,
    /// The addresses of the lanes that are read after these, if lanes are prefetched: those read in place, with AVX-512.
    pub(super) next: Option<&'a [*const u8; LANES]>,
    /// The address of the first row.
    pub(super) out: *mut u8,
    /// Bytes from one row to the next. If it is less than a line, the next row overwrites the surplus of this one.
    pub(super) stride: usize,
    /// Bytes of a row that are written: with `stream` or `turn` a line, else one to four vectors of 16 bytes, or a part of a line
    /// that is a multiple of 4 bytes where AVX-512 writes elements of 4 or 8 bytes.
    pub(super) row_bytes: usize,
    /// Whether rows are aligned cache lines, to be written by non-temporal stores.
    pub(super) stream: bool,
    /// Addresses of the source lines that are read next, four lines each. They are prefetched while rows are written, so that
    /// loads and stores wait for memory at the same time.
    pub(super) ahead: &'a [*const u8],
}

impl Tiles<'_> {
    #[inline(always)]
    pub(super) fn row(&self, row: usize) -> *mut u8 {
        self.out.wrapping_add(row * self.stride)
    }

    /// The bits of 64 elements of each lane from `row` on; all are set of lanes without bits.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "only AVX2 and AVX-512 fill nulls in tiles"))]
    #[inline(always)]
    pub(super) fn words(&self, row: usize) -> [u64; LANES] {
        let mut words = [u64::MAX; LANES];
        for (word, load) in words.iter_mut().zip(self.loads.into_iter().flatten()) {
            if let Some(bits) = &load.bits {
                *word = bits.ahead(self.first + row);
            }
        }
        words
    }

    /// Prefetches the lines of so many rows of lanes that are read in place: a line of lanes that have the result's dtype.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "only AVX-512 prefetches lanes in place"))]
    #[inline(always)]
    pub(super) fn fetch_in_place(&self, row: usize, rows: usize, size: usize) {
        let Some(next) = self.next else { return };
        let ahead = |stored: usize| ahead(self.lanes, next, row * stored, self.rows * stored);
        let Some(loads) = self.loads else {
            let (lanes, at) = ahead(size);
            for lane in lanes.iter().take(LINE / size) {
                prefetch_to_second(lane.wrapping_add(at));
            }
            return;
        };
        for (index, load) in loads.iter().enumerate().take(LINE / size) {
            let stored = load.stored.bytes(size);
            let (lanes, at) = ahead(stored);
            let Some(lane) = lanes.get(index) else { return };
            for line in (0..rows * stored).step_by(LINE) {
                prefetch_to_second(lane.wrapping_add(at + line));
            }
        }
    }

    /// Prefetches the lines that belong to these rows, one line of each column in turn.
    #[inline(always)]
    pub(super) fn fetch(&self, row: usize, rows: usize) {
        let steps = BLOCK_ROWS / AHEAD / rows;
        let (line, step) = (row % BLOCK_ROWS / (BLOCK_ROWS / AHEAD), row / rows % steps);
        let due = self.ahead.len().div_ceil(steps);
        let first = self.ahead.len().min(step * due);
        for start in self.ahead.get(first..self.ahead.len().min(first + due)).unwrap_or(&[]) {
            prefetch(start.wrapping_add(line * LINE));
        }
    }
}

/// Returns where lanes are prefetched while byte `at` of lanes of so many bytes is read: `FAR` bytes ahead, which is in the next
/// lanes at their end. The memory behind these lanes is read after all other columns, when the cache has lost it.
#[inline(always)]
fn ahead<'a>(
    lanes: &'a [*const u8; LANES],
    next: &'a [*const u8; LANES],
    at: usize,
    bytes: usize,
) -> (&'a [*const u8; LANES], usize) {
    let at = at + FAR;
    if at < bytes { (lanes, at) } else { (next, at - bytes) }
}

/// Writes rows, the lowest first, a line or a part of one each: of 16 lanes of 4-byte elements, 8 of 8 bytes, or 4 of 16
/// bytes. Returns false if a valid element may not fit.
///
/// # Safety
/// - `lanes`: each of these has a readable element for each row, of any alignment, stored as `loads` says: of the result's dtype unless
///   AVX2 or AVX-512 loads others.
/// - `rows`: each has room for `row_bytes`, on a cache line if `stream`; what does not fit into the row reaches into the next one. These are
///   what [`Tiles::row_bytes`] says. Rows are 64, or several times that of elements of 4 or 8 bytes.
/// - `turn`: where there is one, `after` may be written, `before` is whole, and the processor has AVX-512.
/// - `isa`: the processor has it.
pub(super) unsafe fn transpose(isa: Isa, size: usize, tiles: &Tiles<'_>) -> bool {
    match (isa, size) {
        // SAFETY: the processor has AVX-512 (`isa`); `lanes`, `rows` and `turn` are promised for elements of 4 bytes.
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx512, 4) => return unsafe { super::avx512::transpose4(tiles) },
        // SAFETY: the processor has AVX-512 (`isa`); `lanes`, `rows` and `turn` are promised for elements of 8 bytes.
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx512, 8) => unsafe { super::avx512::transpose8(tiles) },
        // SAFETY: the processor has AVX2 (`isa`); `lanes` and `rows` are promised for elements of 4 bytes.
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx2, 4) => return unsafe { super::avx2::transpose4(tiles) },
        // SAFETY: the processor has AVX2 (`isa`); `lanes` and `rows` are promised for elements of 8 bytes.
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx2, 8) => unsafe { super::avx2::transpose8(tiles) },
        // SAFETY: every AArch64 processor has NEON; `lanes` and `rows` are promised for elements of this size.
        #[cfg(target_arch = "aarch64")]
        (Isa::Neon, _) => unsafe { lines::<super::Neon>(size, tiles) },
        // SAFETY: `lanes` and `rows` are promised for elements of this size.
        _ => unsafe { lines::<super::Baseline>(size, tiles) },
    }
    true
}

/// # Safety
/// As [`transpose`], for rows of one to four vectors.
unsafe fn lines<V: Vector>(size: usize, tiles: &Tiles<'_>) {
    match tiles.row_bytes / WIDTH {
        // SAFETY: `lanes` and `rows` are promised, and rows have room for a vector.
        1 => unsafe { vectors::<V, 1>(size, tiles) },
        // SAFETY: `lanes` and `rows` are promised, and rows have room for two vectors.
        2 => unsafe { vectors::<V, 2>(size, tiles) },
        // SAFETY: `lanes` and `rows` are promised, and rows have room for three vectors.
        3 => unsafe { vectors::<V, 3>(size, tiles) },
        // SAFETY: `lanes` and `rows` are promised, and rows have room for a line.
        _ => unsafe { vectors::<V, 4>(size, tiles) },
    }
}

/// Writes rows of `GROUPS` vectors, of elements of `size` bytes.
///
/// # Safety
/// As [`transpose`]. Each row has room for `GROUPS` vectors, at an address that is aligned to them if `stream`.
unsafe fn vectors<V: Vector, const GROUPS: usize>(size: usize, tiles: &Tiles<'_>) {
    match size {
        // SAFETY: four lanes of 4-byte elements fill a vector: `lanes` and `rows` are promised.
        4 => unsafe { tiled::<V, 4, 4, GROUPS>(tiles) },
        // SAFETY: two lanes of 8-byte elements fill a vector: `lanes` and `rows` are promised.
        8 => unsafe { tiled::<V, 8, 2, GROUPS>(tiles) },
        // SAFETY: a 16-byte element fills a vector: `lanes` and `rows` are promised.
        _ => unsafe { tiled::<V, 16, 1, GROUPS>(tiles) },
    }
}

/// Writes rows of `GROUPS` vectors, of elements of `SIZE` bytes, `COUNT` of them each.
///
/// # Safety
/// As [`vectors`] or [`quads`], for `GROUPS * COUNT` lanes, 16 at most.
#[expect(
    clippy::indexing_slicing,
    clippy::needless_range_loop,
    reason = "constants index arrays of constant length; iterators are not unrolled into registers"
)]
unsafe fn tiled<V: Vector, const SIZE: usize, const COUNT: usize, const GROUPS: usize>(tiles: &Tiles<'_>) {
    let Some(groups) = tiles.lanes.as_chunks::<COUNT>().0.first_chunk::<GROUPS>() else { return };
    for row in (0..tiles.rows).step_by(COUNT) {
        tiles.fetch(row, COUNT);
        // SAFETY: `lanes`: each has elements up to `tiles.rows`, which is a multiple of 64, so `COUNT` from `row` on, which
        // are a vector.
        let load = |lane: *const u8| unsafe { V::load(lane.wrapping_add(row * SIZE)) };
        let groups = groups.map(|lanes| transposed::<V, SIZE, COUNT>(lanes.map(load)));
        // Row by row, as the next row may overwrite the end of one.
        for index in 0..COUNT {
            for group in 0..GROUPS {
                let (line, out) = (groups[group][index], tiles.row(row + index).wrapping_add(group * WIDTH));
                if tiles.stream {
                    // SAFETY: `rows`: vector `group` of this row, aligned as rows of streams are.
                    unsafe { line.stream(out) };
                } else {
                    // SAFETY: `rows`: vector `group` of this row, at any alignment.
                    unsafe { line.store(out) };
                }
            }
        }
    }
}

/// Writes 64 rows, the lowest first, of 4 lanes of 4-byte elements, 16 bytes each.
///
/// # Safety
/// As [`transpose`], for 4 lanes, and rows that have room for 16 bytes; if `stream`, rows lie one after the other from a
/// cache line on.
pub(super) unsafe fn quads(isa: Isa, tiles: &Tiles<'_>) -> bool {
    match (isa, tiles.stride) {
        // SAFETY: the processor has AVX-512 (`isa`); 4 lanes of 64 elements, and rows 16 bytes apart with room for as
        // many.
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx512, 16) => return unsafe { super::avx512::quads(tiles) },
        // SAFETY: the processor has AVX2 (`isa`); 4 lanes of 64 elements, and rows 16 bytes apart from `out` on.
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx2, 16) => return unsafe { super::avx2::quads(tiles) },
        // SAFETY: the processor has AVX2 (`isa`); 4 lanes of 64 elements, and rows with room for a vector each.
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx2, _) => return unsafe { super::avx2::transpose4(&Tiles { row_bytes: WIDTH, ..*tiles }) },
        // SAFETY: every AArch64 processor has NEON; 4 lanes of 64 elements, and rows with room for 16 bytes each.
        #[cfg(target_arch = "aarch64")]
        (Isa::Neon, _) => unsafe { tiled::<super::Neon, 4, 4, 1>(tiles) },
        // SAFETY: 4 lanes of 64 elements, and rows with room for 16 bytes each.
        _ => unsafe { tiled::<super::Baseline, 4, 4, 1>(tiles) },
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behind_their_end_lanes_are_prefetched_from_the_next_ones() {
        let memory = [0_u8; 2];
        let [lanes, next] = memory.each_ref().map(|start| [std::ptr::from_ref(start); LANES]);
        let ahead = |at| ahead(&lanes, &next, at, 2 * FAR);
        assert_eq!(ahead(0), (&lanes, FAR));
        assert_eq!(ahead(FAR - LINE), (&lanes, 2 * FAR - LINE));
        assert_eq!(ahead(FAR), (&next, 0));
        assert_eq!(ahead(2 * FAR - LINE), (&next, FAR - LINE));
    }
}
