//! [`Mask`]: which elements of a column are null, from the bitmaps of all levels, in host memory.

use std::borrow::Cow;

use arrow_buffer::bit_chunk_iterator::{BitChunks, UnalignedBitChunk};
use arrow_buffer::bit_util::get_bit;

use super::bitmaps::{BitRange, ValidityBits};
use crate::alloc::fallible;
use crate::error::Result;

/// A bit for each element, set if it is valid. At least one bit is not set.
#[derive(Debug)]
pub(crate) struct Mask<'a> {
    bytes: Cow<'a, [u8]>,
    offset: usize,
    length: usize,
    nulls: usize,
}

impl<'a> Mask<'a> {
    /// Joins all levels over `elements`; `None` if everything is valid.
    ///
    /// # Errors
    /// If a bit per element cannot be allocated.
    ///
    /// # Safety
    /// Each bitmap covers its offset and length, and is host memory that lives for `'a`.
    pub(super) unsafe fn combine(levels: &[ValidityBits], elements: usize) -> Result<Option<Self>> {
        if elements == 0 || levels.is_empty() {
            return Ok(None);
        }
        let levels = levels.iter().filter(|level| level.repeat > 0).map(|level| {
            let (start, bytes) = level.bytes();
            // SAFETY: the bitmap covers its offset and length, which `bytes` counts from `start` on, and is host memory
            // that lives for `'a`.
            let bytes = unsafe { std::slice::from_raw_parts(start, bytes) };
            BitmapSlice::new(level, Cow::Borrowed(bytes))
        });
        Self::of_levels(levels, elements)
    }

    /// Like [`Mask::combine`], for bitmaps on a device: `read` returns the bytes of bits, or `None` if all of them are set.
    ///
    /// # Errors
    /// Those of `read`, and if a bit per element cannot be allocated.
    pub(super) fn combine_read(
        levels: &[ValidityBits],
        elements: usize,
        mut read: impl FnMut(BitRange) -> Result<Option<Vec<u8>>>,
    ) -> Result<Option<Self>> {
        let mut on_host = fallible::with_room(levels.len())?;
        for level in levels.iter().filter(|level| level.repeat > 0 && elements > 0) {
            if let Some(bytes) = read(level.range())? {
                on_host.push(BitmapSlice::new(level, Cow::Owned(bytes)));
            }
        }
        Self::of_levels(on_host.into_iter(), elements)
    }

    fn of_levels(levels: impl Iterator<Item = BitmapSlice<'a>>, elements: usize) -> Result<Option<Self>> {
        let mut levels = levels.filter(|level| level.nulls > 0).map(BitmapSlice::grouped);
        let Some(first) = levels.next() else { return Ok(None) };
        let mut mask = first?.expand(elements)?;
        for level in levels {
            let offset = mask.offset;
            level?.clear_nulls(mask.bytes_mut()?, offset);
            mask.nulls = 0;
        }
        if mask.nulls == 0 {
            mask.nulls = elements - count_ones(&mask.bytes, mask.offset, elements);
        }
        Ok(Some(mask))
    }

    /// Returns the bytes, in the mask's own memory.
    fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        if let Cow::Borrowed(bytes) = self.bytes {
            let mut own = fallible::with_room(bytes.len())?;
            own.extend_from_slice(bytes);
            self.bytes = Cow::Owned(own);
        }
        // Owned at this point, so nothing is cloned.
        Ok(self.bytes.to_mut())
    }

    /// Returns a mask with every element null; `None` if there are no elements.
    ///
    /// # Errors
    /// If a bit per element cannot be allocated.
    pub(super) fn of_nulls(elements: usize) -> Result<Option<Self>> {
        if elements == 0 {
            return Ok(None);
        }
        let bytes = Cow::Owned(fallible::zeroed(elements.div_ceil(8))?);
        Ok(Some(Self { bytes, offset: 0, length: elements, nulls: elements }))
    }

    /// Returns a mask with a bit for each element, set if `is_valid` returns true; `None` if everything is valid.
    ///
    /// # Errors
    /// If a bit per element cannot be allocated.
    pub(super) fn of(elements: usize, is_valid: impl FnMut(usize) -> bool) -> Result<Option<Self>> {
        let (bytes, nulls) = pack_bits((0..elements).map(is_valid))?;
        Ok((nulls > 0).then_some(Self { bytes: Cow::Owned(bytes), offset: 0, length: elements, nulls }))
    }

    /// Returns the number of null elements; never 0.
    pub(crate) fn nulls(&self) -> usize {
        self.nulls
    }

    /// Returns whether an element is valid; elements beyond the mask are not.
    pub(crate) fn is_valid(&self, index: usize) -> bool {
        index < self.length && get_bit(&self.bytes, self.offset + index)
    }

    /// The first null.
    pub(crate) fn first_null(&self) -> usize {
        let mut first = None;
        self.for_each_null_word(|start, word| match first {
            None => {
                first = Some(start + word.trailing_zeros() as usize);
                false
            }
            Some(_) => false,
        });
        first.unwrap_or(0)
    }

    /// Calls `visit` with the index of each null, in ascending order.
    pub(crate) fn for_each_null(&self, mut visit: impl FnMut(usize)) {
        self.for_each_null_word(|start, mut word| {
            while word != 0 {
                visit(start + word.trailing_zeros() as usize);
                word &= word - 1;
            }
            true
        });
    }

    /// Calls `visit` with the first null and the number of each run of them, in ascending order. Runs end after 64 elements.
    fn for_each_null_run(&self, mut visit: impl FnMut(usize, usize)) {
        self.for_each_null_word(|start, mut word| {
            while word != 0 {
                let first = word.trailing_zeros();
                let count = (word >> first).trailing_ones();
                visit(start + first as usize, count as usize);
                word &= u64::MAX.checked_shl(first + count).unwrap_or(0);
            }
            true
        });
    }

    /// Calls `visit` for each block of 64 elements with a null, with nulls as set bits, until it returns false.
    fn for_each_null_word(&self, mut visit: impl FnMut(usize, u64) -> bool) {
        let chunks = BitChunks::new(&self.bytes, self.offset, self.length);
        let tail = !u64::MAX.checked_shl(u32::try_from(chunks.remainder_len()).unwrap_or(64)).unwrap_or(0);
        let words = chunks.iter().map(|word| !word).chain([!chunks.remainder_bits() & tail]);
        for (index, word) in words.enumerate() {
            if word != 0 && !visit(index * 64, word) {
                return;
            }
        }
    }

    /// Returns a copy of the bitmap with the first element's bit at `offset % 8`, and valid bits before it, for an
    /// array whose buffers start at a multiple of 8 slots. Not a box: a move of that would, by the rules of aliasing, end the
    /// pointers to its memory.
    ///
    /// # Errors
    /// When the allocation fails.
    pub(super) fn shifted(&self, offset: usize) -> Result<Vec<u8>> {
        let first = offset % 8;
        let mut bytes = fallible::filled((first + self.length).div_ceil(8), u8::MAX)?;
        self.for_each_null_run(|index, count| clear_bits(&mut bytes, first + index, count));
        Ok(bytes)
    }

    /// Returns the bytes of the bitmap, and the position of the first element's bit in them.
    pub(crate) fn bits(&self) -> (&[u8], usize) {
        (&self.bytes, self.offset)
    }
}

/// One level's bitmap as a slice of host memory.
struct BitmapSlice<'a> {
    bytes: Cow<'a, [u8]>,
    offset: usize,
    length: usize,
    repeat: usize,
    group: usize,
    nulls: usize,
}

impl<'a> BitmapSlice<'a> {
    /// Returns the bits of a level in its `bytes`, which [`ValidityBits::bytes`] locates.
    fn new(bits: &ValidityBits, bytes: Cow<'a, [u8]>) -> Self {
        let offset = bits.offset % 8;
        let nulls = bits.length - count_ones(&bytes, offset, bits.length);
        let (length, repeat, group) = (bits.length, bits.repeat, bits.group);
        Self { bytes, offset, length, repeat, group, nulls }
    }

    /// Returns the same level with one bit for each group of bits, set if all of them are.
    fn grouped(self) -> Result<Self> {
        if self.group <= 1 {
            return Ok(self);
        }
        let all_set = |group: usize| {
            let first = self.offset + group * self.group;
            (first..first + self.group).all(|bit| get_bit(&self.bytes, bit))
        };
        let length = self.length / self.group;
        let (bytes, nulls) = pack_bits((0..length).map(all_set))?;
        Ok(Self { bytes: Cow::Owned(bytes), offset: 0, length, repeat: self.repeat, group: 1, nulls })
    }

    /// Returns this level alone as a mask over the elements.
    fn expand(self, elements: usize) -> Result<Mask<'a>> {
        if self.repeat == 1 {
            return Ok(Mask { bytes: self.bytes, offset: self.offset, length: self.length, nulls: self.nulls });
        }
        let mut bytes = fallible::filled(elements.div_ceil(8), u8::MAX)?;
        self.clear_nulls(&mut bytes, 0);
        Ok(Mask { bytes: Cow::Owned(bytes), offset: 0, length: elements, nulls: self.nulls * self.repeat })
    }

    /// Clears the bits of this level's null elements in a bitmap that starts at `offset`.
    fn clear_nulls(&self, bytes: &mut [u8], offset: usize) {
        let bytes_of_level = Cow::Borrowed(self.bytes.as_ref());
        let nulls = Mask { bytes: bytes_of_level, offset: self.offset, length: self.length, nulls: self.nulls };
        nulls.for_each_null_run(|index, count| clear_bits(bytes, offset + index * self.repeat, count * self.repeat));
    }
}

/// Counts the set bits among `length` bits of `bytes` from bit `offset` on.
pub(crate) fn count_bits(bytes: &[u8], offset: usize, length: usize) -> usize {
    count_ones(bytes, offset, length)
}

fn count_ones(bytes: &[u8], offset: usize, length: usize) -> usize {
    let chunk = UnalignedBitChunk::new(bytes, offset, length);
    let ends = [chunk.prefix(), chunk.suffix()].into_iter().flatten();
    ends.fold(ones_of(chunk.chunks()), |ones, end| ones + end.count_ones() as usize)
}

/// Counts the set bits of words.
fn ones_of(words: &[u64]) -> usize {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if is_x86_feature_detected!("popcnt") {
        // SAFETY: the processor has the instruction, as was just asked.
        return unsafe { ones_by_instruction(words) };
    }
    words.iter().map(|word| word.count_ones() as usize).sum()
}

/// As [`ones_of`]: the target alone has no instruction for it.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "popcnt")]
fn ones_by_instruction(words: &[u64]) -> usize {
    words.iter().map(|word| word.count_ones() as usize).sum()
}

/// Clears `count` bits from bit `start` on.
pub(super) fn clear_bits(bytes: &mut [u8], start: usize, count: usize) {
    let end = start + count;
    let (first, last) = (start / 8, end / 8);
    let keep_low = !(u8::MAX << (start % 8));
    let keep_high = u8::MAX << (end % 8);
    if first == last {
        if let Some(byte) = bytes.get_mut(first) {
            *byte &= keep_low | keep_high;
        }
        return;
    }
    if let Some((head, whole)) = bytes.get_mut(first..last).and_then(<[u8]>::split_first_mut) {
        *head &= keep_low;
        whole.fill(0);
    }
    if let Some(byte) = bytes.get_mut(last) {
        *byte &= keep_high;
    }
}

/// Packs a bit for each bool, lowest first; returns also how many are false.
///
/// # Errors
/// If the bits cannot be allocated.
pub(super) fn pack_bits(bools: impl ExactSizeIterator<Item = bool>) -> Result<(Vec<u8>, usize)> {
    let mut bytes = fallible::zeroed(bools.len().div_ceil(8))?;
    let mut nulls = 0;
    for (index, valid) in bools.enumerate() {
        if let Some(byte) = bytes.get_mut(index / 8) {
            *byte |= u8::from(valid) << (index % 8);
        }
        nulls += usize::from(!valid);
    }
    Ok((bytes, nulls))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(bytes: &[u8], offset: usize, length: usize, repeat: usize) -> ValidityBits {
        ValidityBits { start: bytes.as_ptr(), offset, length, repeat, group: 1, nulls: None }
    }

    fn combine(levels: &[ValidityBits], elements: usize) -> Option<Mask<'_>> {
        // SAFETY: each test's bitmaps are long enough and live until its end.
        unsafe { Mask::combine(levels, elements) }.unwrap()
    }

    #[test]
    fn levels_are_joined_element_by_element() {
        // Every combination of small offsets and lengths, against the definition.
        let bytes = [0b1011_0110, 0b0101_1101, 0b1110_0111, 0b0011_1010, 0b1101_0101, 0xff, 0xff, 0x7f, 0xfe, 0xaa];
        let at = |index: usize| bytes[index / 8] >> (index % 8) & 1 == 1;
        let step = if cfg!(miri) { 4 } else { 1 };
        for offset in (0..9).step_by(step) {
            for rows in (0..9).step_by(step) {
                for repeat in 1..5 {
                    let elements = rows * repeat;
                    let levels = [bits(&bytes, offset, rows, repeat), bits(&bytes, offset + 3, elements, 1)];
                    let valid = |index: usize| at(offset + index / repeat) && at(offset + 3 + index);
                    let expected: Vec<usize> = (0..elements).filter(|index| !valid(*index)).collect();
                    let mut found = Vec::new();
                    if let Some(mask) = combine(&levels, elements) {
                        mask.for_each_null(|index| found.push(index));
                        assert_eq!(mask.nulls(), expected.len());
                        assert_eq!(mask.first_null(), expected[0]);
                        assert!((0..elements).all(|index| mask.is_valid(index) == valid(index)));
                    }
                    assert_eq!(found, expected, "offset {offset}, rows {rows}, repeat {repeat}");
                }
            }
        }
    }

    #[test]
    fn a_pair_is_valid_where_both_parts_are() {
        // From bit 2 on, the pairs are 01, 11, 11, 10.
        let bytes = [0b1111_1011, 0b01];
        let rows = [0b0000_1101];
        let levels = [ValidityBits { group: 2, ..bits(&bytes, 2, 8, 1) }, bits(&rows, 0, 4, 1)];
        let valid = |mask: &Mask<'_>| (0..4).map(|index| mask.is_valid(index)).collect::<Vec<_>>();
        let alone = combine(&levels[..1], 4).unwrap();
        assert_eq!((valid(&alone), alone.nulls()), (vec![false, true, true, false], 2));
        let mask = combine(&levels, 4).unwrap();
        assert_eq!((valid(&mask), mask.nulls()), (vec![false, false, true, false], 3));
    }

    #[test]
    fn long_runs_of_nulls_are_cleared() {
        let bytes = [0b0000_0101];
        let levels = [bits(&bytes, 0, 4, 100)];
        let mask = combine(&levels, 400).unwrap();
        assert_eq!((mask.nulls(), mask.first_null()), (200, 100));
        assert!(mask.is_valid(99) && !mask.is_valid(100) && mask.is_valid(200) && !mask.is_valid(399));
        assert!(!mask.is_valid(400));
    }

    #[test]
    fn runs_of_nulls_that_fill_words_are_cleared() {
        let mut bytes = [0; 30];
        (bytes[9], bytes[18], bytes[26]) = (0xff, 0b0001_0001, 0x80);
        let at = |index: usize| bytes[index / 8] >> (index % 8) & 1 == 1;
        let ones = [0xff; 75];
        for (offset, repeat) in [(0, 1), (3, 1), (0, 3), (5, 3)] {
            let elements = 200 * repeat;
            let valid = |index: usize| at(offset + index / repeat);
            let of_rows = || bits(&bytes, offset, 200, repeat);
            let levels = [bits(&ones, 0, elements, 1), of_rows()];
            for levels in [&levels[..], &[of_rows(), of_rows()]] {
                let mask = combine(levels, elements).unwrap();
                assert!((0..elements).all(|index| mask.is_valid(index) == valid(index)), "{offset}, {repeat}");
                let shifted = mask.shifted(13).unwrap();
                assert!(
                    (0..elements).all(|index| (shifted[(5 + index) / 8] >> ((5 + index) % 8) & 1 == 1) == valid(index))
                );
            }
        }
    }

    #[test]
    fn bitmaps_without_nulls_in_range_are_no_mask() {
        let bytes = [0b1111_0000];
        assert!(combine(&[bits(&bytes, 4, 4, 1)], 4).is_none());
        assert!(combine(&[bits(&bytes, 0, 0, 3)], 0).is_none());
        assert!(combine(&[], 4).is_none());
    }

    #[test]
    fn bools_are_packed_lowest_bit_first() {
        assert_eq!(
            pack_bits([true, false, true, true, false, false, false, false, true].into_iter()).unwrap(),
            (vec![0b1101, 1], 5)
        );
    }

    #[test]
    fn a_bitmap_far_from_the_start_takes_the_memory_of_its_own_bits() {
        let bytes = [0b1110_1101];
        let levels = [bits(&bytes, 0, 8, 1)];
        let mask = combine(&levels, 8).unwrap();
        for offset in [0, 3, 8, 80_000_003, 1 << 62] {
            let shifted = mask.shifted(offset).unwrap();
            assert_eq!(shifted.len(), (offset % 8 + 8).div_ceil(8), "{offset}");
            let valid = (0..8).map(|bit| get_bit(&shifted, offset % 8 + bit)).collect::<Vec<_>>();
            assert_eq!(valid, (0..8).map(|bit| bit != 1 && bit != 4).collect::<Vec<_>>(), "{offset}");
        }
    }

    #[test]
    fn masks_that_memory_cannot_hold_are_errors() {
        use crate::error::ErrorKind;

        let huge = 1 << 62;
        assert_eq!(Mask::of_nulls(huge).unwrap_err().kind(), ErrorKind::Memory);
        assert_eq!(Mask::of(huge, |_| true).unwrap_err().kind(), ErrorKind::Memory);
        let bytes = [0b01];
        // SAFETY: the bitmap has two bits, and lives until the end of the test.
        let expanded = unsafe { Mask::combine(&[bits(&bytes, 0, 2, huge / 2)], huge) };
        assert_eq!(expanded.unwrap_err().kind(), ErrorKind::Memory);
    }
}
