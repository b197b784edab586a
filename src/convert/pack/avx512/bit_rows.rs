//! Packs columns of bits as rows of bools: turns the bits of eight columns into a byte for each of 64 rows, in registers, and
//! spreads the bits of a line to its bytes.

use std::arch::x86_64::{
    __m512i, _mm_cvtsi64_si128, _mm_maskz_set1_epi8, _mm_setr_epi8, _mm_storeu_si128, _mm256_maskz_set1_epi8,
    _mm256_storeu_si256, _mm512_and_si512, _mm512_andnot_si512, _mm512_broadcast_i32x4, _mm512_loadu_si512,
    _mm512_maskz_set1_epi8, _mm512_or_si512, _mm512_permutexvar_epi16, _mm512_set1_epi64, _mm512_shuffle_epi8,
    _mm512_slli_epi64, _mm512_srl_epi64, _mm512_srli_epi64, _mm512_storeu_si512, _mm512_unpackhi_epi8,
    _mm512_unpackhi_epi16, _mm512_unpackhi_epi32, _mm512_unpacklo_epi8, _mm512_unpacklo_epi16, _mm512_unpacklo_epi32,
    _mm512_xor_si512,
};

use super::super::select::BitColumns;
use super::super::stream::LINE;

/// Columns of a vector: 64 bits each.
const COLUMNS: usize = 8;
/// Where a vector's words of 16 bits come from.
type WordOrder = [u16; 32];

/// From pairs of columns, two bytes for each eight rows, to eight bytes for each eight rows.
const PAIRS_TO_ROWS: WordOrder = {
    let (mut order, mut place, mut word) = ([0; 32], 0, 0);
    while place < order.len() {
        order[place] = word;
        // The four pairs of the same rows are eight words apart.
        word = if word < 24 { word + 8 } else { word - 23 };
        place += 1;
    }
    order
};

/// From the bytes of 64 rows in order to where interleaving those of `vectors` vectors, each lane of 16 bytes by itself, puts
/// them in order: each lane gives as many rows to each of the vectors that come out.
const fn before_interleaving(vectors: u16) -> WordOrder {
    let words = 8 / vectors;
    let (mut order, mut place, mut lane) = ([0; 32], 0, 0);
    while lane < 4 {
        let mut word = 0;
        while word < 8 {
            order[place] = word / words * (4 * words) + lane * words + word % words;
            word += 1;
            place += 1;
        }
        lane += 1;
    }
    order
}

/// As [`super::super::bit_rows::write_bit_rows`]. Writes nothing behind rows that follow each other.
///
/// # Safety
/// `room` and `columns` of [`super::super::bit_rows::write_bit_rows`]; the processor has AVX-512F, AVX-512BW and AVX-512VL.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(in super::super) unsafe fn write_bit_rows(words: &BitColumns, columns: usize, out: *mut u8, stride: usize) {
    match columns {
        ..=8 => {
            let rows = [one(words, 0, const { &before_interleaving(1) })];
            // SAFETY: `room` and `columns` are promised; the rows have as many bits.
            unsafe { write(rows, columns, out, stride) }
        }
        9..=16 => {
            let rows = two(words, 0, const { &before_interleaving(2) });
            // SAFETY: `room` and `columns` are promised; the rows have as many bits.
            unsafe { write(rows, columns, out, stride) }
        }
        17..=32 => {
            let rows = four(words, 0, const { &before_interleaving(4) });
            // SAFETY: `room` and `columns` are promised; the rows have as many bits.
            unsafe { write(rows, columns, out, stride) }
        }
        _ => {
            let rows = eight(words, const { &before_interleaving(8) });
            // SAFETY: `room` and `columns` are promised; the rows have as many bits.
            unsafe { write(rows, columns, out, stride) }
        }
    }
}

/// Returns a byte for each of 64 rows, in this order of pairs of rows: the bits of eight columns.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn one(words: &BitColumns, first: usize, order: &WordOrder) -> __m512i {
    let columns: &[u64; COLUMNS] = words[first..].first_chunk().unwrap_or(&[0; COLUMNS]);
    let pairs = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15));
    // SAFETY: there are eight words of 8 bytes.
    let columns = unsafe { _mm512_loadu_si512(columns.as_ptr().cast()) };
    let rows = permuted(_mm512_shuffle_epi8(columns, pairs), &PAIRS_TO_ROWS);
    // Transposes each square of eight columns by eight rows in three steps.
    let rows = exchange::<7>(rows, 0x00aa_00aa_00aa_00aa);
    let rows = exchange::<14>(rows, 0x0000_cccc_0000_cccc);
    let rows = exchange::<28>(rows, 0x0000_0000_f0f0_f0f0);
    permuted(rows, order)
}

/// Returns two bytes for each row: 32 rows a vector, in order.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn two(words: &BitColumns, first: usize, order: &WordOrder) -> [__m512i; 2] {
    let (low, high) = (one(words, first, order), one(words, first + COLUMNS, order));
    [_mm512_unpacklo_epi8(low, high), _mm512_unpackhi_epi8(low, high)]
}

/// Returns four bytes for each row: 16 rows a vector, in order.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn four(words: &BitColumns, first: usize, order: &WordOrder) -> [__m512i; 4] {
    let [a, c] = two(words, first, order);
    let [b, d] = two(words, first + 2 * COLUMNS, order);
    [_mm512_unpacklo_epi16(a, b), _mm512_unpackhi_epi16(a, b), _mm512_unpacklo_epi16(c, d), _mm512_unpackhi_epi16(c, d)]
}

/// Returns eight bytes for each row: 8 rows a vector, in order.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn eight(words: &BitColumns, order: &WordOrder) -> [__m512i; 8] {
    let (low, high) = (four(words, 0, order), four(words, 4 * COLUMNS, order));
    std::array::from_fn(|index| match (low[index / 2], high[index / 2]) {
        (low, high) if index % 2 == 0 => _mm512_unpacklo_epi32(low, high),
        (low, high) => _mm512_unpackhi_epi32(low, high),
    })
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn permuted(words: __m512i, order: &WordOrder) -> __m512i {
    // SAFETY: there are 32 words of 2 bytes.
    let order = unsafe { _mm512_loadu_si512(order.as_ptr().cast()) };
    _mm512_permutexvar_epi16(order, words)
}

/// Exchanges the bits of `low`, in each 64, with those `STEP` above them.
#[inline]
#[target_feature(enable = "avx512f")]
fn exchange<const STEP: u32>(bits: __m512i, low: i64) -> __m512i {
    let differ = _mm512_xor_si512(bits, _mm512_srli_epi64::<STEP>(bits));
    let differ = _mm512_and_si512(differ, _mm512_set1_epi64(low));
    _mm512_xor_si512(_mm512_xor_si512(bits, differ), _mm512_slli_epi64::<STEP>(differ))
}

/// Writes rows of bits, `N` bytes of them for a row, as bytes.
///
/// # Safety
/// `room` and `columns` of [`super::super::bit_rows::write_bit_rows`], whose bits the rows have; the processor has AVX-512F,
/// AVX-512BW and AVX-512VL.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn write<const N: usize>(mut rows: [__m512i; N], columns: usize, out: *mut u8, stride: usize) {
    let (mut words, mut bits, mut room) = ([[0_u64; COLUMNS]; N], columns, COLUMNS * N);
    let dense = stride == columns;
    while dense && room < 64 {
        rows = rows.map(|rows| joined(rows, bits, room));
        (bits, room) = (2 * bits, 2 * room);
    }
    for (words, rows) in words.iter_mut().zip(rows) {
        // SAFETY: eight words of 8 bytes.
        unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), rows) };
    }
    if dense {
        // SAFETY: `room`: the bytes of 64 rows, one after the other, for which these words have as many bits.
        unsafe { write_lines(words.as_flattened(), bits, out) };
    } else {
        // SAFETY: `room`; the words have 64 rows.
        unsafe { write_rows::<N>(words.as_flattened(), out, stride) };
    }
}

/// Brings pairs of `bits` bits together that are `room` bits apart, at most 32. The bits between them are 0.
#[inline]
#[target_feature(enable = "avx512f")]
fn joined(pairs: __m512i, bits: usize, room: usize) -> __m512i {
    let ones = u64::MAX / (u64::MAX >> (64 - 2 * room)) * (u64::MAX >> (64 - bits));
    let low = _mm512_set1_epi64(ones.cast_signed());
    #[expect(clippy::cast_possible_wrap, reason = "below 32")]
    let apart = _mm_cvtsi64_si128((room - bits) as i64);
    _mm512_or_si512(_mm512_and_si512(pairs, low), _mm512_srl_epi64(_mm512_andnot_si512(low, pairs), apart))
}

/// Writes the lowest `bits` bits of each word, whose other bits are 0, one after the other, as bytes. Never inlined: in memory, a bit mask is loaded
/// where it would be taken out of a vector.
///
/// # Safety
/// `bits` is at most 64, and the words have whole lines of them; so many bytes are ours from `out` on. The processor has
/// AVX-512F and AVX-512BW.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn write_lines(words: &[u64], bits: usize, mut out: *mut u8) {
    let (mut line, mut filled) = (0, 0);
    for word in words {
        line |= word << filled;
        filled += bits;
        if filled >= LINE {
            let bools = _mm512_maskz_set1_epi8(line, 1);
            // SAFETY: the words have another whole line.
            unsafe { _mm512_storeu_si512(out.cast(), bools) };
            out = out.wrapping_add(LINE);
            filled -= LINE;
            // What the line has not taken: none of the bits where it took all 64.
            line = word >> 1 >> (bits - filled - 1);
        }
    }
}

/// Writes rows, each of which has `N` bytes of bits, as bytes; other bytes follow them, up to a line.
///
/// # Safety
/// `room` of [`super::super::bit_rows::write_bit_rows`], for the rows of the words; the processor has AVX-512F, AVX-512BW and
/// AVX-512VL.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[expect(clippy::cast_possible_truncation, reason = "the bits of 16 or 32 bytes")]
unsafe fn write_rows<const N: usize>(words: &[u64], out: *mut u8, stride: usize) {
    let mut row = out;
    for word in words {
        for part in (0..64).step_by(COLUMNS * N) {
            let bits = word >> part;
            match N {
                ..=2 => {
                    let bools = _mm_maskz_set1_epi8(bits as u16, 1);
                    // SAFETY: `room`: 16 bytes of the line from the row's start on.
                    unsafe { _mm_storeu_si128(row.cast(), bools) };
                }
                4 => {
                    let bools = _mm256_maskz_set1_epi8(bits as u32, 1);
                    // SAFETY: `room`: 32 bytes of the line from the row's start on.
                    unsafe { _mm256_storeu_si256(row.cast(), bools) };
                }
                _ => {
                    let bools = _mm512_maskz_set1_epi8(bits, 1);
                    // SAFETY: `room`: the line from the row's start on.
                    unsafe { _mm512_storeu_si512(row.cast(), bools) };
                }
            }
            row = row.wrapping_add(stride);
        }
    }
}
