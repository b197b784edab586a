//! Transposes tiles with 32-byte vectors: two of them are a row of a tile, which is one cache line.

#![expect(
    clippy::indexing_slicing,
    clippy::needless_range_loop,
    reason = "constants index arrays of constant length; iterators are not unrolled into registers"
)]

use std::arch::x86_64::{
    __m256, __m256d, _mm_storeu_pd, _mm256_and_si256, _mm256_castpd_ps, _mm256_castpd256_pd128, _mm256_castps_pd,
    _mm256_castsi256_pd, _mm256_cmpeq_epi8, _mm256_loadu_pd, _mm256_loadu_ps, _mm256_movemask_ps,
    _mm256_permute2f128_pd, _mm256_set1_epi8, _mm256_set1_epi32, _mm256_set1_epi64x, _mm256_setr_epi64x,
    _mm256_setzero_pd, _mm256_setzero_ps, _mm256_shuffle_epi8, _mm256_storeu_pd, _mm256_storeu_ps, _mm256_stream_ps,
    _mm256_unpackhi_pd, _mm256_unpackhi_ps, _mm256_unpacklo_pd, _mm256_unpacklo_ps,
};

mod assembled_rows;
mod load;

use std::mem::MaybeUninit;

pub(super) use assembled_rows::ASSEMBLER;
use load::{doubles, halves, singles, to_signs4, to_signs8};

use super::isa::BLOCK_ROWS;
use super::load::{LANES, Load, Stored, each_lane};
use super::select::UnalignedBits;
use super::stream::{LINE, prefetch_to_second};
use super::transpose::Tiles;
use super::vector::WIDTH;

/// Lanes of 4-byte elements in half a line, and rows of a tile of them.
const LANES4: usize = 8;
/// Lanes of 8-byte elements in half a line, and rows of a tile of them.
const LANES8: usize = 4;

/// Writes up to 16 lanes of 4-byte elements as rows. Returns false if a cast made an infinity.
///
/// # Safety
/// As [`super::transpose::transpose`]; the processor has AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn transpose4(tiles: &Tiles<'_>) -> bool {
    match tiles.row_bytes / WIDTH {
        // SAFETY: `lanes` and `rows` are promised, and rows have room for a vector.
        1 => unsafe { rows4::<1>(tiles) },
        // SAFETY: `lanes` and `rows` are promised, and rows have room for two vectors.
        2 => unsafe { rows4::<2>(tiles) },
        // SAFETY: `lanes` and `rows` are promised, and rows have room for three vectors.
        3 => unsafe { rows4::<3>(tiles) },
        // SAFETY: `lanes` and `rows` are promised, and rows have room for a line.
        _ => unsafe { rows4::<4>(tiles) },
    }
}

/// As [`transpose4`], for rows of so many vectors of 16 bytes.
///
/// # Safety
/// As [`transpose4`]; each row has room for the vectors.
#[target_feature(enable = "avx2")]
unsafe fn rows4<const VECTORS: usize>(tiles: &Tiles<'_>) -> bool {
    if let Some(loads) = tiles.loads {
        if loads.iter().all(|load| load.stored == Stored::Alike) {
            // SAFETY: `lanes` and `rows` are promised; `loads` are the tile's, and none casts.
            return unsafe { made_rows4::<VECTORS, false>(tiles, loads) };
        }
        // SAFETY: `lanes` and `rows` are promised; `loads` are the tile's.
        return unsafe { made_rows4::<VECTORS, true>(tiles, loads) };
    }
    let ([left, right], _) = tiles.lanes.as_chunks::<LANES4>() else { return true };
    for row in (0..tiles.rows).step_by(LANES4) {
        tiles.fetch(row, LANES4);
        // SAFETY: `lanes`: each has elements up to `tiles.rows`, which is a multiple of 64, so 8 from `row` on.
        let left = octets(unsafe { loaded(left, row) });
        let mut rest = left;
        if VECTORS > 2 {
            // SAFETY: `lanes`: 8 elements from `row` on, as of those on the left.
            rest = octets(unsafe { loaded(right, row) });
        }
        for line in 0..LANES4 {
            // SAFETY: `rows`: this one has room for the vectors, on a cache line if `stream`, which are four then.
            unsafe { store_vectors::<VECTORS>(tiles.row(row + line), left[line], rest[line], tiles.stream) };
        }
    }
    true
}

/// As [`rows4`], for elements that are filled, or cast too (`CASTS`): without casts no branch is between the loads.
///
/// # Safety
/// As [`rows4`]; with loads that cast, `CASTS` is true.
#[target_feature(enable = "avx2")]
unsafe fn made_rows4<const VECTORS: usize, const CASTS: bool>(tiles: &Tiles<'_>, loads: &[Load<'_>; LANES]) -> bool {
    let mut infinite = _mm256_setzero_ps();
    for chunk in (0..tiles.rows).step_by(BLOCK_ROWS) {
        let words = halves(tiles.words(chunk));
        for row in (chunk..chunk + BLOCK_ROWS).step_by(LANES4) {
            let half = row / 32 % 2;
            tiles.fetch(row, LANES4);
            let to_signs = to_signs4(row);
            let left = octets(each_lane!(8, lane => {
                let (load, bits) = (&loads[lane], (words[lane][half], to_signs));
                // SAFETY: `lanes`: it has elements up to `tiles.rows`, which is a multiple of 64, so 8 from `row` on, stored as its
                // load says.
                unsafe { singles::<CASTS>(tiles.lanes[lane], row, load, bits, &mut infinite) }
            }));
            let mut rest = left;
            if VECTORS > 2 {
                rest = octets(each_lane!(8, lane => {
                    let (lane, load, bits) = (LANES4 + lane, &loads[LANES4 + lane], (words[LANES4 + lane][half], to_signs));
                    // SAFETY: `lanes`: 8 elements from `row` on, as of those on the left.
                    unsafe { singles::<CASTS>(tiles.lanes[lane], row, load, bits, &mut infinite) }
                }));
            }
            for line in 0..LANES4 {
                // SAFETY: `rows`: this one has room for the vectors, on a cache line if `stream`, which are four then.
                unsafe { store_vectors::<VECTORS>(tiles.row(row + line), left[line], rest[line], tiles.stream) };
            }
        }
    }
    _mm256_movemask_ps(infinite) == 0
}

/// As [`transpose4`], for up to 8 lanes of 8-byte elements. No cast makes an infinity.
///
/// # Safety
/// As [`transpose4`].
#[target_feature(enable = "avx2")]
pub(super) unsafe fn transpose8(tiles: &Tiles<'_>) {
    match tiles.row_bytes / WIDTH {
        // SAFETY: `lanes` and `rows` are promised, and rows have room for a vector.
        1 => unsafe { rows8::<1>(tiles) },
        // SAFETY: `lanes` and `rows` are promised, and rows have room for two vectors.
        2 => unsafe { rows8::<2>(tiles) },
        // SAFETY: `lanes` and `rows` are promised, and rows have room for three vectors.
        3 => unsafe { rows8::<3>(tiles) },
        // SAFETY: `lanes` and `rows` are promised, and rows have room for a line.
        _ => unsafe { rows8::<4>(tiles) },
    }
}

/// As [`transpose8`], for rows of so many vectors of 16 bytes.
///
/// # Safety
/// As [`transpose8`]; each row has room for the vectors.
#[target_feature(enable = "avx2")]
unsafe fn rows8<const VECTORS: usize>(tiles: &Tiles<'_>) {
    if let Some(loads) = tiles.loads {
        // SAFETY: `lanes` and `rows` are promised; `loads` are the tile's.
        return unsafe { made_rows8::<VECTORS>(tiles, loads) };
    }
    let ([left, right, ..], _) = tiles.lanes.as_chunks::<LANES8>() else { return };
    for row in (0..tiles.rows).step_by(LANES8) {
        tiles.fetch(row, LANES8);
        // SAFETY: `lanes`: each has elements up to `tiles.rows`, which is a multiple of 64, so 4 from `row` on.
        let left = unsafe { quartets(left, row) };
        let mut rest = left;
        if VECTORS > 2 {
            // SAFETY: `lanes`: 4 elements from `row` on, as of those on the left.
            rest = unsafe { quartets(right, row) };
        }
        for line in 0..LANES8 {
            // SAFETY: `rows`: this one has room for the vectors, on a cache line if `stream`, which are four then.
            unsafe { store_vectors::<VECTORS>(tiles.row(row + line), left[line], rest[line], tiles.stream) };
        }
    }
}

/// As [`rows8`], for elements that are cast or filled.
///
/// # Safety
/// As [`rows8`].
#[target_feature(enable = "avx2")]
unsafe fn made_rows8<const VECTORS: usize>(tiles: &Tiles<'_>, loads: &[Load<'_>; LANES]) {
    for chunk in (0..tiles.rows).step_by(BLOCK_ROWS) {
        let words = tiles.words(chunk);
        for row in (chunk..chunk + BLOCK_ROWS).step_by(LANES8) {
            tiles.fetch(row, LANES8);
            let to_signs = to_signs8(row);
            let left = turned4(each_lane!(4, lane => {
                // SAFETY: `lanes`: it has elements up to `tiles.rows`, which is a multiple of 64, so 4 from `row` on, stored as its
                // load says.
                unsafe { doubles(tiles.lanes[lane], row, &loads[lane], (words[lane], to_signs)) }
            }));
            let mut rest = left;
            if VECTORS > 2 {
                rest = turned4(each_lane!(4, lane => {
                    let lane = LANES8 + lane;
                    // SAFETY: `lanes`: 4 elements from `row` on, as of those on the left.
                    unsafe { doubles(tiles.lanes[lane], row, &loads[lane], (words[lane], to_signs)) }
                }));
            }
            for line in 0..LANES8 {
                // SAFETY: `rows`: this one has room for the vectors, on a cache line if `stream`, which are four then.
                unsafe { store_vectors::<VECTORS>(tiles.row(row + line), left[line], rest[line], tiles.stream) };
            }
        }
    }
}

/// Eight elements of each lane of 4-byte elements, from row `row` of the lanes on.
///
/// # Safety
/// Each lane has 8 readable elements from there on, of any alignment.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn loaded<const COUNT: usize>(lanes: &[*const u8; COUNT], row: usize) -> [__m256; COUNT] {
    let mut columns = [_mm256_setzero_ps(); COUNT];
    for lane in 0..COUNT {
        // SAFETY: 8 elements from `row` on, as promised.
        columns[lane] = unsafe { _mm256_loadu_ps(lanes[lane].cast::<f32>().wrapping_add(row)) };
    }
    columns
}

/// Eight rows of 8 columns of 4-byte elements, half a line each.
#[inline]
#[target_feature(enable = "avx2")]
fn octets(columns: [__m256; LANES4]) -> [__m256d; LANES4] {
    let [a, b, c, d, e, f, g, h] = columns;
    // Rows n and n + 4 in one vector, of the first four columns and of the others.
    let (first, second) = (quad4([a, b, c, d]), quad4([e, f, g, h]));
    let mut rows = [_mm256_setzero_pd(); LANES4];
    for row in 0..4 {
        rows[row] = _mm256_permute2f128_pd::<0x20>(first[row], second[row]);
        rows[row + 4] = _mm256_permute2f128_pd::<0x31>(first[row], second[row]);
    }
    rows
}

/// Four rows of 4 lanes of 8-byte elements, half a line each, from row `row` of the lanes on.
///
/// # Safety
/// Each lane has 4 readable elements from there on, of any alignment.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn quartets(lanes: &[*const u8; LANES8], row: usize) -> [__m256d; LANES8] {
    let mut columns = [_mm256_setzero_pd(); LANES8];
    for lane in 0..LANES8 {
        // SAFETY: 4 elements from `row` on, as promised.
        columns[lane] = unsafe { _mm256_loadu_pd(lanes[lane].cast::<f64>().wrapping_add(row)) };
    }
    turned4(columns)
}

/// Four rows of 4 columns of 8-byte elements, half a line each.
#[inline]
#[target_feature(enable = "avx2")]
fn turned4([a, b, c, d]: [__m256d; LANES8]) -> [__m256d; LANES8] {
    // Rows n and n + 2 in one vector, of the first two columns and of the others.
    let first = [_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b)];
    let second = [_mm256_unpacklo_pd(c, d), _mm256_unpackhi_pd(c, d)];
    [
        _mm256_permute2f128_pd::<0x20>(first[0], second[0]),
        _mm256_permute2f128_pd::<0x20>(first[1], second[1]),
        _mm256_permute2f128_pd::<0x31>(first[0], second[0]),
        _mm256_permute2f128_pd::<0x31>(first[1], second[1]),
    ]
}

/// Writes 4 lanes of 4-byte elements as 64 rows of 16 bytes, one after the other. Returns false if a cast made an infinity.
///
/// # Safety
/// As [`super::transpose::quads`], for rows that lie one after the other; the processor has AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn quads(tiles: &Tiles<'_>) -> bool {
    let Some(lanes) = tiles.lanes.first_chunk::<4>() else { return true };
    let (words, mut infinite) = (halves(tiles.words(0)), _mm256_setzero_ps());
    for row in (0..BLOCK_ROWS).step_by(LANES4) {
        let half = row / 32;
        let to_signs = to_signs4(row);
        let columns = match tiles.loads {
            Some(loads) => each_lane!(4, lane => {
                let bits = (words[lane][half], to_signs);
                // SAFETY: `row + 8 <= 64`, and each lane has 64 elements, stored as its load says.
                unsafe { singles::<true>(lanes[lane], row, &loads[lane], bits, &mut infinite) }
            }),
            // SAFETY: `row + 8 <= 64`, and each lane has 64 elements.
            None => unsafe { loaded(lanes, row) },
        };
        // Rows n and n + 4 in one vector.
        let [a, b, c, d] = quad4(columns);
        let low = |a, b| _mm256_permute2f128_pd::<0x20>(a, b);
        let high = |a, b| _mm256_permute2f128_pd::<0x31>(a, b);
        let out = tiles.row(row);
        // SAFETY: `out` has room for 64 rows of 16 bytes, of which these 8 are two lines, on cache lines if `stream`;
        // this is the first.
        unsafe { store(out, low(a, b), low(c, d), tiles.stream) };
        // SAFETY: the second of the two lines.
        unsafe { store(out.wrapping_add(LINE), high(a, b), high(c, d), tiles.stream) };
    }
    _mm256_movemask_ps(infinite) == 0
}

/// Writes the first vectors of 16 bytes of a line.
///
/// # Safety
/// `out` has room for them; if there are four, it is on a cache line if `stream`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn store_vectors<const VECTORS: usize>(out: *mut u8, left: __m256d, right: __m256d, stream: bool) {
    if VECTORS > 3 {
        // SAFETY: four vectors are a line, for which `out` has room; it is on one if `stream`.
        return unsafe { store(out, left, right, stream) };
    }
    let last = if VECTORS > 2 { right } else { left };
    if VECTORS > 1 {
        // SAFETY: `out` has room for two vectors, at any alignment.
        unsafe { _mm256_storeu_pd(out.cast(), left) };
    }
    if VECTORS != 2 {
        let (at, last) = (out.wrapping_add((VECTORS - 1) * WIDTH), _mm256_castpd256_pd128(last));
        // SAFETY: `out` has room for `VECTORS` vectors, of which this is the last, at any alignment.
        unsafe { _mm_storeu_pd(at.cast(), last) };
    }
}

/// Writes a cache line.
///
/// # Safety
/// `out` has room for it, and is on a cache line if `stream`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn store(out: *mut u8, left: __m256d, right: __m256d, stream: bool) {
    let (left, right) = (_mm256_castpd_ps(left), _mm256_castpd_ps(right));
    let (first, second) = (out.cast::<f32>(), out.wrapping_add(32).cast::<f32>());
    if stream {
        // SAFETY: `out` has room for 64 bytes, of which this is the first half; streamed lines are aligned to 64.
        unsafe { _mm256_stream_ps(first, left) };
        // SAFETY: the second half, 32 bytes behind the first.
        unsafe { _mm256_stream_ps(second, right) };
    } else {
        // SAFETY: `out` has room for 64 bytes, of which this is the first half; any alignment is written.
        unsafe { _mm256_storeu_ps(first, left) };
        // SAFETY: the second half, 32 bytes behind the first.
        unsafe { _mm256_storeu_ps(second, right) };
    }
}

/// Transposes four vectors within each 128-bit half, which has four elements.
#[inline]
#[target_feature(enable = "avx2")]
fn quad4([a, b, c, d]: [__m256; 4]) -> [__m256d; 4] {
    let low = (_mm256_castps_pd(_mm256_unpacklo_ps(a, b)), _mm256_castps_pd(_mm256_unpackhi_ps(a, b)));
    let high = (_mm256_castps_pd(_mm256_unpacklo_ps(c, d)), _mm256_castps_pd(_mm256_unpackhi_ps(c, d)));
    [
        _mm256_unpacklo_pd(low.0, high.0),
        _mm256_unpackhi_pd(low.0, high.0),
        _mm256_unpacklo_pd(low.1, high.1),
        _mm256_unpackhi_pd(low.1, high.1),
    ]
}

/// Copies cache lines by non-temporal stores, and prefetches as many lines from `ahead` on.
///
/// # Safety
/// Both have so many lines, apart from each other; `out` starts on one. The processor has AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn copy_lines(source: *const u8, out: *mut u8, lines: usize, ahead: *const u8) {
    for line in 0..lines {
        prefetch_to_second(ahead.wrapping_add(line * LINE));
        for half in [line * LINE, line * LINE + LINE / 2] {
            // SAFETY: `source` has `lines * LINE` bytes, and `half + 32` is at most that.
            let bytes = unsafe { _mm256_loadu_ps(source.wrapping_add(half).cast()) };
            // SAFETY: `out` has as many, from the start of a line on, so that each half is aligned to 32.
            unsafe { _mm256_stream_ps(out.wrapping_add(half).cast(), bytes) };
        }
    }
}

/// Writes a byte, 0 or 1, for each bit.
///
/// # Safety
/// The lines are aligned if `stream`; the processor has AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn spread_lines(bits: UnalignedBits<'_>, out: &mut [[MaybeUninit<u8>; LINE]], stream: bool) {
    // Broadcasts each byte of 32 bits to eight bytes, then tests one bit in each.
    let bytes = _mm256_setr_epi64x(0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202, 0x0303_0303_0303_0303);
    let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64.cast_signed());
    for (number, line) in out.iter_mut().enumerate() {
        let word = bits.word(number * LINE);
        let mut halves = [_mm256_setzero_pd(); 2];
        for (index, half) in halves.iter_mut().enumerate() {
            #[expect(clippy::cast_possible_truncation, reason = "one half, then the other")]
            let spread = _mm256_shuffle_epi8(_mm256_set1_epi32((word >> (index * 32)) as i32), bytes);
            let is_set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit);
            *half = _mm256_castsi256_pd(_mm256_and_si256(is_set, _mm256_set1_epi8(1)));
        }
        // SAFETY: the line is an array of 64 bytes, aligned if `stream`.
        unsafe { store(line.as_mut_ptr().cast(), halves[0], halves[1], stream) };
    }
}
