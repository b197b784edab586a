//! Transposes tiles with 64-byte vectors: one of them is a row of a tile, which is one cache line.

#![expect(
    clippy::indexing_slicing,
    clippy::needless_range_loop,
    reason = "constants index arrays of constant length; iterators are not unrolled into registers"
)]

use std::arch::x86_64::{
    __m512, __m512d, __m512i, _mm512_add_epi32, _mm512_castpd_ps, _mm512_castps_pd, _mm512_castsi512_ps,
    _mm512_load_ps, _mm512_loadu_epi64, _mm512_loadu_pd, _mm512_loadu_ps, _mm512_mask_storeu_ps, _mm512_maskz_mov_ps,
    _mm512_maskz_set1_epi8, _mm512_permutex2var_ps, _mm512_set1_epi32, _mm512_set1_epi64, _mm512_setr_epi32,
    _mm512_setzero_pd, _mm512_setzero_ps, _mm512_shuffle_f64x2, _mm512_store_ps, _mm512_storeu_ps, _mm512_stream_ps,
    _mm512_test_epi64_mask, _mm512_unpackhi_pd, _mm512_unpackhi_ps, _mm512_unpacklo_pd, _mm512_unpacklo_ps,
};

mod assembled_rows;
mod bit_rows;
mod load;
mod shared_lines;

use std::mem::MaybeUninit;

use super::isa::BLOCK_ROWS;
use super::select::UnalignedBits;
use super::stream::{LINE, prefetch, prefetch_to_second};
use super::transpose::Tiles;

pub(super) use assembled_rows::ASSEMBLER;
pub(super) use bit_rows::write_bit_rows;
use load::{doubles, singles};
pub(super) use shared_lines::{Merges, SharedLines, shared_lines};

use super::load::{Load, Stored, each_lane};

/// Lanes and rows of a tile of 4-byte elements.
const LANES4: usize = 16;
/// Prefetch distance, in rows, of columns that become rows of 16 bytes: 1 KiB.
const QUADS_AHEAD: usize = 256;
/// Lanes and rows of a tile of 8-byte elements.
const LANES8: usize = 8;

/// A kind of rows: each is a line.
const WHOLE: u8 = 0;
/// A kind of rows: less than a line of each is written, and nothing behind that.
const PART: u8 = 1;
/// A kind of rows: a line has the end of one and the start of the next (`tiles.turn`).
const TURNED: u8 = 2;

/// Writes 16 lanes of 4-byte elements as rows. Returns false if a cast produced an infinity.
///
/// # Safety
/// As [`super::transpose::transpose`]; the processor has what [`super::Isa::Avx512`] says.
#[target_feature(enable = "avx512f,avx512dq,avx512vl")]
pub(super) unsafe fn transpose4(tiles: &Tiles<'_>) -> bool {
    if tiles.turn.is_some() {
        // SAFETY: `lanes`, `rows` and `turn` are promised, in the same words; there is a turn.
        unsafe { transpose4_by::<TURNED>(tiles) }
    } else if tiles.row_bytes < LINE {
        // SAFETY: `lanes` and `rows` are promised, in the same words; there is no turn.
        unsafe { transpose4_by::<PART>(tiles) }
    } else {
        // SAFETY: `lanes` and `rows` are promised, in the same words; there is no turn, and a row is a line.
        unsafe { transpose4_by::<WHOLE>(tiles) }
    }
}

/// As [`transpose4`], for rows of this kind.
///
/// # Safety
/// As [`transpose4`].
#[target_feature(enable = "avx512f,avx512dq,avx512vl")]
unsafe fn transpose4_by<const ROWS: u8>(tiles: &Tiles<'_>) -> bool {
    let Some(loads) = tiles.loads else {
        // SAFETY: `lanes`, `rows` and `turn` are promised; nothing is loaded otherwise, so the elements are the
        // result's.
        unsafe { transpose4_alike::<ROWS>(tiles) };
        return true;
    };
    if loads.iter().any(|load| load.stored != Stored::Bits) {
        // SAFETY: `lanes`, `rows` and `turn` are promised; `loads` are the tile's.
        return unsafe { transpose4_made::<ROWS>(tiles, loads) };
    }
    // SAFETY: `rows` and `turn` are promised; `loads` are the tile's, and bits are not read through `lanes`.
    unsafe { lines_of_bits::<ROWS>(tiles, loads) };
    true
}

/// As [`transpose4`], for elements of the result's dtype.
///
/// # Safety
/// As [`transpose4`].
#[target_feature(enable = "avx512f")]
unsafe fn transpose4_alike<const ROWS: u8>(tiles: &Tiles<'_>) {
    let (mut before, index) = (row_before(tiles), turned(tiles));
    for row in (0..tiles.rows).step_by(LANES4) {
        tiles.fetch(row, LANES4);
        tiles.fetch_in_place(row, LANES4, 4);
        let mut tile = [_mm512_setzero_ps(); LANES4];
        for lane in 0..LANES4 {
            // SAFETY: `lanes`: it has elements up to `tiles.rows`, which is a multiple of 64, so 16 from `row` on.
            tile[lane] = unsafe { _mm512_loadu_ps(tiles.lanes[lane].cast::<f32>().wrapping_add(row)) };
        }
        let lines = tile4(tile);
        // SAFETY: `rows`: those from `row` to `row + 16` have room for `row_bytes`, on cache lines if `stream`.
        unsafe { write::<_, ROWS>(tiles, row, lines, (&mut before, index)) };
    }
    // SAFETY: `turn`: its `after` may be written.
    unsafe { keep(tiles, before) };
}

/// As [`transpose4`], for elements that are cast or filled.
///
/// # Safety
/// As [`transpose4`].
#[target_feature(enable = "avx512f,avx512dq,avx512vl")]
unsafe fn transpose4_made<const ROWS: u8>(tiles: &Tiles<'_>, loads: &[Load<'_>; LANES4]) -> bool {
    let (mut before, index) = (row_before(tiles), turned(tiles));
    let mut infinite = 0;
    for chunk in (0..tiles.rows).step_by(BLOCK_ROWS) {
        let words = tiles.words(chunk);
        for row in (chunk..chunk + BLOCK_ROWS).step_by(LANES4) {
            tiles.fetch(row, LANES4);
            tiles.fetch_in_place(row, LANES4, 4);
            let tile = each_lane!(16, lane => {
                let bits = words[lane] >> (row - chunk);
                // SAFETY: `lanes`: it has elements up to `tiles.rows`, which is a multiple of 64, so 16 from `row` on,
                // stored as its load says.
                unsafe { singles(tiles.lanes[lane], row, &loads[lane], bits, &mut infinite) }
            });
            let lines = tile4(tile);
            // SAFETY: `rows`: those from `row` to `row + 16` have room for `row_bytes`, on cache lines if `stream`.
            unsafe { write::<_, ROWS>(tiles, row, lines, (&mut before, index)) };
        }
    }
    // SAFETY: `turn`: its `after` may be written.
    unsafe { keep(tiles, before) };
    infinite == 0
}

/// As [`transpose4`], for bits: the bits of a row are the mask of its line.
///
/// # Safety
/// As [`transpose4`].
#[target_feature(enable = "avx512f")]
unsafe fn lines_of_bits<const ROWS: u8>(tiles: &Tiles<'_>, loads: &[Load<'_>; LANES4]) {
    #[expect(clippy::cast_possible_truncation, reason = "the first four bytes")]
    let elements = loads.map(|load| load.element as i32);
    // SAFETY: an array of 16 elements of 4 bytes.
    let elements = unsafe { _mm512_loadu_ps(elements.as_ptr().cast()) };
    let (mut before, index) = (row_before(tiles), turned(tiles));
    for chunk in (0..tiles.rows).step_by(BLOCK_ROWS) {
        let words = tiles.words(chunk);
        // SAFETY: `words` has 16 of 8 bytes, of which these are the first eight.
        let low = unsafe { _mm512_loadu_epi64(words.as_ptr().cast()) };
        // SAFETY: the last eight of the 16 words.
        let high = unsafe { _mm512_loadu_epi64(words.as_ptr().wrapping_add(LANES8).cast()) };
        for row in 0..BLOCK_ROWS {
            let bit = _mm512_set1_epi64(1 << row);
            let (low, high) = (_mm512_test_epi64_mask(low, bit), _mm512_test_epi64_mask(high, bit));
            let line = _mm512_maskz_mov_ps(u16::from(high) << 8 | u16::from(low), elements);
            // SAFETY: `rows`: this one has room for `row_bytes`, on a cache line if `stream`.
            unsafe { write::<1, ROWS>(tiles, chunk + row, [line], (&mut before, index)) };
        }
    }
    // SAFETY: `turn`: its `after` may be written.
    unsafe { keep(tiles, before) };
}

/// As [`transpose4`], for 8 lanes of 8-byte elements. No cast can produce an infinity here.
///
/// # Safety
/// As [`transpose4`].
#[target_feature(enable = "avx512f,avx512dq,avx512vl")]
pub(super) unsafe fn transpose8(tiles: &Tiles<'_>) {
    if tiles.turn.is_some() {
        // SAFETY: `lanes`, `rows` and `turn` are promised, in the same words; there is a turn.
        unsafe { transpose8_by::<TURNED>(tiles) }
    } else if tiles.row_bytes < LINE {
        // SAFETY: `lanes` and `rows` are promised, in the same words; there is no turn.
        unsafe { transpose8_by::<PART>(tiles) }
    } else {
        // SAFETY: `lanes` and `rows` are promised, in the same words; there is no turn, and a row is a line.
        unsafe { transpose8_by::<WHOLE>(tiles) }
    }
}

/// As [`transpose8`], for rows of this kind.
///
/// # Safety
/// As [`transpose8`].
#[target_feature(enable = "avx512f,avx512dq,avx512vl")]
unsafe fn transpose8_by<const ROWS: u8>(tiles: &Tiles<'_>) {
    let (mut before, index) = (row_before(tiles), turned(tiles));
    for chunk in (0..tiles.rows).step_by(BLOCK_ROWS) {
        let words = tiles.words(chunk);
        for row in (chunk..chunk + BLOCK_ROWS).step_by(LANES8) {
            tiles.fetch(row, LANES8);
            tiles.fetch_in_place(row, LANES8, 8);
            let mut tile = [_mm512_setzero_pd(); LANES8];
            if let Some(loads) = tiles.loads {
                tile = each_lane!(8, lane => {
                    let bits = words[lane] >> (row - chunk);
                    // SAFETY: `lanes`: it has elements up to `tiles.rows`, which is a multiple of 64, so 8 from `row`
                    // on, stored as its load says.
                    unsafe { doubles(tiles.lanes[lane], row, &loads[lane], bits) }
                });
            } else {
                for lane in 0..LANES8 {
                    // SAFETY: `lanes`: 8 elements from `row` on, of the result's dtype, as nothing is loaded otherwise.
                    tile[lane] = unsafe { _mm512_loadu_pd(tiles.lanes[lane].cast::<f64>().wrapping_add(row)) };
                }
            }
            let lines = tile8(tile);
            // SAFETY: `rows`: those from `row` to `row + 8` have room for `row_bytes`, on cache lines if `stream`.
            unsafe { write::<_, ROWS>(tiles, row, lines, (&mut before, index)) };
        }
    }
    // SAFETY: `turn`: its `after` may be written.
    unsafe { keep(tiles, before) };
}

/// Writes 4 lanes of 4-byte elements as 64 rows of 16 bytes, one after the other. Returns false if a cast produced an infinity.
///
/// # Safety
/// As [`super::transpose::quads`], for rows that lie one after the other; the processor has what [`super::Isa::Avx512`]
/// says.
#[target_feature(enable = "avx512f,avx512dq,avx512vl")]
pub(super) unsafe fn quads(tiles: &Tiles<'_>) -> bool {
    let words = tiles.words(0);
    let mut infinite = 0;
    for row in (0..BLOCK_ROWS).step_by(LANES4) {
        let columns = each_lane!(4, lane => match tiles.loads {
            // SAFETY: `row + 16 <= 64`, and each lane has 64 elements, stored as its load says.
            Some(loads) => unsafe {
                singles(tiles.lanes[lane], row, &loads[lane], words[lane] >> row, &mut infinite)
            },
            // SAFETY: `row + 16 <= 64`, and each lane has 64 elements.
            None => unsafe { _mm512_loadu_ps(tiles.lanes[lane].cast::<f32>().wrapping_add(row)) },
        });
        let quads = across(quad4(columns));
        for index in 0..4 {
            let bytes = _mm512_castpd_ps(quads[index]);
            // SAFETY: 16 rows of 16 bytes, one after the other, are four lines, on cache lines if `stream`; this is one
            // of them.
            unsafe { store(tiles.row(row + index * 4), bytes, tiles.stream) };
        }
    }
    infinite == 0
}

/// Writes 4 columns of 4-byte elements as contiguous rows of 16 bytes, without a buffer in between, 16 rows at a time.
///
/// # Safety
/// The columns have these rows, and so has `out`, apart from them, from a cache line on if `stream`. The processor has
/// AVX-512F.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn quad_rows(columns: &[*const u8; 4], out: *mut u8, rows: usize, stream: bool) {
    for row in (0..rows / LANES4 * LANES4).step_by(LANES4) {
        let mut lanes = [_mm512_setzero_ps(); 4];
        for index in 0..4 {
            let from = columns[index].cast::<f32>().wrapping_add(row);
            // Non-temporal stores wait for memory. Prefetching meanwhile keeps loads from waiting too.
            prefetch(from.wrapping_add(QUADS_AHEAD).cast());
            // SAFETY: each column has `rows` elements, and `row + 16 <= rows`.
            lanes[index] = unsafe { _mm512_loadu_ps(from) };
        }
        let quads = across(quad4(lanes));
        for index in 0..4 {
            let bytes = _mm512_castpd_ps(quads[index]);
            // SAFETY: `out` has room for `rows` rows of 16 bytes: the 16 from `row` on are four lines, on cache lines
            // if `stream`.
            unsafe { store(out.wrapping_add((row + index * 4) * 16), bytes, stream) };
        }
    }
}

/// Returns the row before the first one, if there is one.
#[inline]
#[target_feature(enable = "avx512f")]
fn row_before(tiles: &Tiles<'_>) -> __m512 {
    match tiles.turn.and_then(|turn| turn.before) {
        // SAFETY: a `Line` has 64 bytes and that alignment; `before` is one that `keep` wrote.
        Some(line) => unsafe { _mm512_load_ps((&raw const line).cast()) },
        None => _mm512_setzero_ps(),
    }
}

/// Keeps the last row for the next 64 rows.
///
/// # Safety
/// `turn.after`, if there is a turn, may be written.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn keep(tiles: &Tiles<'_>, last: __m512) {
    if let Some(turn) = tiles.turn {
        // SAFETY: `after` may be written, and a `Line` has 64 bytes and that alignment.
        unsafe { _mm512_store_ps(turn.after.cast(), last) };
    }
}

/// Writes the lines of the rows from `row` on. With a turn, a line has the end of one row and the start of the next.
///
/// # Safety
/// Each of these `N` rows has room for `row_bytes`: for a line unless `ROWS` is `PART`, on a cache line if `stream`.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn write<const N: usize, const ROWS: u8>(
    tiles: &Tiles<'_>,
    row: usize,
    lines: [__m512; N],
    (before, index): (&mut __m512, __m512i),
) {
    let (mut next, mask) = (tiles.row(row), row_mask(tiles));
    for line in 0..N {
        let out = next;
        next = next.wrapping_add(tiles.stride);
        let mut bytes = lines[line];
        if ROWS == TURNED {
            bytes = _mm512_permutex2var_ps(*before, index, bytes);
            *before = lines[line];
            // The very first row has no row before it.
            if line == 0 && row == 0 && tiles.turn.is_some_and(|turn| turn.before.is_none()) {
                continue;
            }
        }
        if ROWS == PART {
            // SAFETY: the row has room for the elements of the mask, and no other is written.
            unsafe { _mm512_mask_storeu_ps(out.cast(), mask, bytes) };
            continue;
        }
        // SAFETY: the row has room for a line, on a cache line if `stream`.
        unsafe { store(out, bytes, tiles.stream) };
    }
}

/// The mask of a row's elements of 4 bytes, or halves of elements of 8.
#[inline]
fn row_mask(tiles: &Tiles<'_>) -> u16 {
    #[expect(clippy::cast_possible_truncation, reason = "a bit for each of at most 16 elements")]
    let mask = ((1_u32 << (tiles.row_bytes / 4).min(16)) - 1) as u16;
    mask
}

/// Selects the elements of a row and of the next one that make a line.
#[inline]
#[target_feature(enable = "avx512f")]
fn turned(tiles: &Tiles<'_>) -> __m512i {
    #[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "less than a line")]
    let head = tiles.turn.map_or(0, |turn| (turn.head / 4) as i32);
    let counted = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    _mm512_add_epi32(counted, _mm512_set1_epi32(head))
}

/// # Safety
/// `out` has room for a line, and is on one if `stream`.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn store(out: *mut u8, line: __m512, stream: bool) {
    if stream {
        // SAFETY: `out` has room for 64 bytes, and is on a cache line, as `stream` is set.
        unsafe { _mm512_stream_ps(out.cast(), line) };
    } else {
        // SAFETY: `out` has room for 64 bytes, of any alignment.
        unsafe { _mm512_storeu_ps(out.cast(), line) };
    }
}

/// Interleaves two columns within each 128-bit quarter.
#[inline]
#[target_feature(enable = "avx512f")]
fn pairs(a: __m512, b: __m512) -> (__m512d, __m512d) {
    (_mm512_castps_pd(_mm512_unpacklo_ps(a, b)), _mm512_castps_pd(_mm512_unpackhi_ps(a, b)))
}

/// Transposes four columns of 16 elements: quarter q of vector n is row n + 4 * q.
#[inline]
#[target_feature(enable = "avx512f")]
fn quad4([a, b, c, d]: [__m512; 4]) -> [__m512d; 4] {
    let (low, high) = (pairs(a, b), pairs(c, d));
    [
        _mm512_unpacklo_pd(low.0, high.0),
        _mm512_unpackhi_pd(low.0, high.0),
        _mm512_unpacklo_pd(low.1, high.1),
        _mm512_unpackhi_pd(low.1, high.1),
    ]
}

/// Transposes four vectors of four 128-bit quarters.
#[inline]
#[target_feature(enable = "avx512f")]
fn across([a, b, c, d]: [__m512d; 4]) -> [__m512d; 4] {
    const EVEN: i32 = 0x88;
    const ODD: i32 = 0xdd;
    let (ab_even, ab_odd) = (_mm512_shuffle_f64x2::<EVEN>(a, b), _mm512_shuffle_f64x2::<ODD>(a, b));
    let (cd_even, cd_odd) = (_mm512_shuffle_f64x2::<EVEN>(c, d), _mm512_shuffle_f64x2::<ODD>(c, d));
    [
        _mm512_shuffle_f64x2::<EVEN>(ab_even, cd_even),
        _mm512_shuffle_f64x2::<EVEN>(ab_odd, cd_odd),
        _mm512_shuffle_f64x2::<ODD>(ab_even, cd_even),
        _mm512_shuffle_f64x2::<ODD>(ab_odd, cd_odd),
    ]
}

/// Transposes 16 vectors of 16 elements.
#[inline]
#[target_feature(enable = "avx512f")]
fn tile4(t: [__m512; 16]) -> [__m512; 16] {
    let a = quad4([t[0], t[1], t[2], t[3]]);
    let b = quad4([t[4], t[5], t[6], t[7]]);
    let c = quad4([t[8], t[9], t[10], t[11]]);
    let d = quad4([t[12], t[13], t[14], t[15]]);
    let mut rows = [_mm512_setzero_ps(); 16];
    for row in 0..4 {
        // Four columns each: quarter q of vector n is row n + 4 * q.
        let lines = across([a[row], b[row], c[row], d[row]]);
        for index in 0..4 {
            rows[row + index * 4] = _mm512_castpd_ps(lines[index]);
        }
    }
    rows
}

/// Transposes 8 vectors of 8 elements.
#[inline]
#[target_feature(enable = "avx512f")]
fn tile8(t: [__m512d; 8]) -> [__m512; 8] {
    let low = |index: usize| _mm512_unpacklo_pd(t[index], t[index + 1]);
    let high = |index: usize| _mm512_unpackhi_pd(t[index], t[index + 1]);
    let even = across([low(0), low(2), low(4), low(6)]);
    let odd = across([high(0), high(2), high(4), high(6)]);
    [even[0], odd[0], even[1], odd[1], even[2], odd[2], even[3], odd[3]].map(|row| _mm512_castpd_ps(row))
}

/// Copies cache lines by non-temporal stores, and prefetches as many lines from `ahead` on.
///
/// # Safety
/// Both have so many lines, apart from each other; `out` starts on one. The processor has AVX-512F.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn copy_lines(source: *const u8, out: *mut u8, lines: usize, ahead: *const u8) {
    for line in 0..lines {
        prefetch_to_second(ahead.wrapping_add(line * LINE));
        // SAFETY: `line < lines`, and `source` has as many.
        let bytes = unsafe { _mm512_loadu_ps(source.wrapping_add(line * 64).cast()) };
        // SAFETY: `line < lines`; `out` has as many, and starts on one, so that each is aligned.
        unsafe { _mm512_stream_ps(out.wrapping_add(line * 64).cast(), bytes) };
    }
}

/// Writes a byte, 0 or 1, for each bit.
///
/// # Safety
/// The lines are aligned if `stream`; the processor has AVX-512F and AVX-512BW.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn spread_lines(bits: UnalignedBits<'_>, out: &mut [[MaybeUninit<u8>; LINE]], stream: bool) {
    for (number, line) in out.iter_mut().enumerate() {
        let bytes = _mm512_castsi512_ps(_mm512_maskz_set1_epi8(bits.word(number * LINE), 1));
        // SAFETY: the line is an array of 64 bytes, aligned if `stream`.
        unsafe { store(line.as_mut_ptr().cast(), bytes, stream) };
    }
}
