//! Packs columns of bits as rows of bools: transposes 64 bits of each column, then spreads the bits of each row to bytes.

use super::isa::{BLOCK_ROWS, Isa};
use super::select::BitColumns;
use super::vector::{Vector, WIDTH};
use crate::convert::lane::Lane;

/// Reads the bits of columns from row `first` on, for as many blocks as there are, at most eight. Other lanes are left out.
pub(super) fn read_bits(lanes: &[Lane<'_>], first: usize, blocks: &mut [BitColumns]) {
    for (column, lane) in lanes.iter().enumerate() {
        let Some(bits) = lane.bits() else { continue };
        for (words, bits) in blocks.iter_mut().zip(bits.words(first)) {
            if let Some(word) = words.get_mut(column) {
                *word = bits;
            }
        }
    }
}

/// Writes 64 rows, in order: for each column a byte, 0 or 1, and then any bytes up to at most a line from the row's start.
///
/// # Safety
/// - `room`: from `out` on there is room for 64 rows, `stride` bytes apart, and for a line from the start of the last one;
///   nobody else uses it.
/// - `columns`: 1 to 64 of the words are used.
/// - `isa`: the processor has it.
pub(super) unsafe fn write_bit_rows(isa: Isa, words: &BitColumns, columns: usize, out: *mut u8, stride: usize) {
    match isa {
        // SAFETY: `room` and `columns` are promised, and so is the set, in the words of `Isa::Avx512`.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe { super::avx512::write_bit_rows(words, columns, out, stride) },
        // SAFETY: `room` and `columns` are promised, and so is the set, in the words of `Isa::Avx2`.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { avx2(words, columns, out, stride) },
        // SAFETY: `room` and `columns` are promised; every AArch64 processor has NEON.
        #[cfg(target_arch = "aarch64")]
        Isa::Neon => unsafe { vectors::<super::Neon>(words, columns, out, stride) },
        // SAFETY: `room` and `columns` are promised.
        _ => unsafe { vectors::<super::Baseline>(words, columns, out, stride) },
    }
}

/// As [`write_bit_rows`], by vectors of 16 bytes.
///
/// # Safety
/// `room` and `columns` of [`write_bit_rows`].
#[inline(always)]
unsafe fn vectors<V: Vector>(words: &BitColumns, columns: usize, out: *mut u8, stride: usize) {
    let write = |bits: u64, row: *mut u8, bytes: usize| {
        for at in (0..bytes).step_by(WIDTH) {
            #[expect(clippy::cast_possible_truncation, reason = "the sixteen bits of these bytes")]
            let bytes = V::spread((bits >> at) as u16);
            // SAFETY: `room`: `at` is a multiple of 16 below the bytes of the row, which are at most 64, so that the 16
            // bytes from there on are in the line at the row's start.
            unsafe { bytes.store(row.wrapping_add(at)) };
        }
    };
    match columns {
        ..=8 => each_row::<8>(words, out, stride, |bits, row| write(bits, row, 8)),
        9..=16 => each_row::<16>(words, out, stride, |bits, row| write(bits, row, 16)),
        17..=32 => each_row::<32>(words, out, stride, |bits, row| write(bits, row, columns)),
        _ => each_row::<64>(words, out, stride, |bits, row| write(bits, row, columns)),
    }
}

/// As [`write_bit_rows`].
///
/// # Safety
/// `room` and `columns` of [`write_bit_rows`]; the processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn avx2(words: &BitColumns, columns: usize, out: *mut u8, stride: usize) {
    use std::arch::x86_64::{
        _mm256_and_si256, _mm256_min_epu8, _mm256_set1_epi8, _mm256_set1_epi32, _mm256_set1_epi64x, _mm256_setr_epi64x,
        _mm256_shuffle_epi8, _mm256_storeu_si256,
    };

    use super::stream::LINE;

    // Broadcasts each byte of 32 bits to eight bytes, then keeps one bit in each.
    let bytes = _mm256_setr_epi64x(0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202, 0x0303_0303_0303_0303);
    let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64.cast_signed());
    let write = |bits: u64, row: *mut u8| {
        #[expect(clippy::cast_possible_truncation, reason = "the bits of 32 bytes")]
        let spread = _mm256_shuffle_epi8(_mm256_set1_epi32(bits as i32), bytes);
        let bools = _mm256_min_epu8(_mm256_and_si256(spread, bit), _mm256_set1_epi8(1));
        // SAFETY: `room`: rows are written half a line at a time, and a line from each row's start on is ours.
        unsafe { _mm256_storeu_si256(row.cast(), bools) };
    };
    match columns {
        ..=8 => each_row::<8>(words, out, stride, write),
        9..=16 => each_row::<16>(words, out, stride, write),
        17..=32 => each_row::<32>(words, out, stride, write),
        _ => each_row::<64>(words, out, stride, |bits, row| {
            write(bits, row);
            write(bits >> (LINE / 2), row.wrapping_add(LINE / 2));
        }),
    }
}

/// Calls `write` with the bits of each row, in order, the first column's in the lowest bit, and with the address of the row. `N`
/// columns are used; the bits above theirs are of other rows.
#[inline(always)]
fn each_row<const N: usize>(words: &BitColumns, out: *mut u8, stride: usize, mut write: impl FnMut(u64, *mut u8)) {
    let Some(&words) = words.first_chunk::<N>() else { return };
    let mut words = words;
    transpose_bits(&mut words);
    let mut row = out;
    for part in (0..BLOCK_ROWS).step_by(N) {
        for word in words {
            write(word >> part, row);
            row = row.wrapping_add(stride);
        }
    }
}

/// Transposes the squares of `N` by `N` bits that lie side by side in `N` words: bit `part * N + row` of word `column` goes to
/// bit `part * N + column` of word `row`.
#[inline(always)]
fn transpose_bits<const N: usize>(words: &mut [u64; N]) {
    if N > 32 {
        swap_bits::<32>(words, 0x0000_0000_ffff_ffff);
    }
    if N > 16 {
        swap_bits::<16>(words, 0x0000_ffff_0000_ffff);
    }
    if N > 8 {
        swap_bits::<8>(words, 0x00ff_00ff_00ff_00ff);
    }
    swap_bits::<4>(words, 0x0f0f_0f0f_0f0f_0f0f);
    swap_bits::<2>(words, 0x3333_3333_3333_3333);
    swap_bits::<1>(words, 0x5555_5555_5555_5555);
}

/// Exchanges the bits above those of `low`, by `STEP`, in each word with the bits of `low` in the word `STEP` behind it.
#[inline(always)]
fn swap_bits<const STEP: usize>(words: &mut [u64], low: u64) {
    for words in words.chunks_exact_mut(2 * STEP) {
        let (one, other) = words.split_at_mut(STEP);
        for (one, other) in one.iter_mut().zip(other) {
            let differ = (*one >> STEP ^ *other) & low;
            *one ^= differ << STEP;
            *other ^= differ;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::stream::LINE;
    use super::*;

    #[test]
    fn rows_have_the_bits_of_each_column_on_every_instruction_set() {
        const UNTOUCHED: u8 = 0xa5;
        let counts = (1..=LINE).filter(|count| !cfg!(miri) || [1, 8, 9, 20, 33, 64].contains(count));
        for columns in counts {
            let mut words = [0; BLOCK_ROWS];
            let mut state = 7_u64;
            for word in words.iter_mut().take(columns) {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                *word = state ^ state >> 29;
            }
            for (isa, stride) in Isa::available().iter().flat_map(|isa| [(*isa, columns), (*isa, columns + 70)]) {
                let mut memory = vec![UNTOUCHED; (BLOCK_ROWS - 1) * stride + LINE + 1];
                // SAFETY: room for 64 rows and a line from the start of the last one; the processor has the set.
                unsafe { write_bit_rows(isa, &words, columns, memory.as_mut_ptr(), stride) };
                for row in 0..BLOCK_ROWS {
                    let expected = words[..columns].iter().map(|word| u8::from(word >> row & 1 == 1));
                    let found = &memory[row * stride..];
                    assert!(found[..columns].iter().copied().eq(expected), "{isa:?} {columns} {row}");
                    let behind = found.get(LINE..stride).unwrap_or(&[]);
                    assert!(behind.iter().all(|byte| *byte == UNTOUCHED), "{isa:?} {columns} {row}");
                }
                assert_eq!(memory.last(), Some(&UNTOUCHED));
                #[cfg(target_arch = "x86_64")]
                if isa == Isa::Avx512 && stride == columns {
                    assert!(memory[BLOCK_ROWS * columns..].iter().all(|byte| *byte == UNTOUCHED), "{columns}");
                }
            }
        }
    }
}
