//! [`Vector`]: 16 bytes in a register. Kernels are written with it once, for SSE2, NEON, and Rust alone.

/// Bytes of a cache line.
pub(in crate::convert) const LINE: usize = 64;

/// Bytes of a vector.
pub(in crate::convert) const WIDTH: usize = 16;

/// Sixteen bytes in a register, of an instruction set that every processor of the target has.
#[cfg_attr(
    any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))),
    allow(dead_code, reason = "only vectors in registers choose by masks")
)]
pub(in crate::convert) trait Vector: Copy {
    /// Whether [`Self::stream`] writes past the cache.
    const STREAMS: bool;

    /// Reads a vector.
    ///
    /// # Safety
    /// `from` has 16 readable bytes, of any alignment.
    unsafe fn load(from: *const u8) -> Self;

    /// Reads the first half of a vector. The second half is arbitrary.
    ///
    /// # Safety
    /// `from` has 8 readable bytes, of any alignment.
    unsafe fn load_half(from: *const u8) -> Self;

    /// Writes a vector.
    ///
    /// # Safety
    /// `to` has room for 16 bytes, at any alignment.
    unsafe fn store(self, to: *mut u8);

    /// Writes a vector by a non-temporal store, where the instruction set has one.
    ///
    /// # Safety
    /// `to` has room for 16 bytes, and is aligned to 16. Nobody reads them before [`super::fence`].
    unsafe fn stream(self, to: *mut u8);

    /// Returns the elements of both vectors in turn: those of the first halves, then those of the second ones. Elements
    /// have `SIZE` bytes: 1, 2, 4 or 8.
    fn zip<const SIZE: usize>(self, other: Self) -> [Self; 2];

    /// Returns a byte for each bit, lowest first: 0 or 1.
    fn spread(bits: u16) -> Self;

    /// Returns a byte for each bit, lowest first: all bits of it are as that one.
    fn mask(bits: u16) -> Self;

    /// Returns the bytes of `set` where all bits of the mask's byte are set, those of `clear` where none is.
    ///
    /// # Safety
    /// `mask` is made by [`Self::mask`], and perhaps by [`Self::zip`] of such.
    unsafe fn select(mask: Self, set: Self, clear: Self) -> Self;

    /// Returns a bit for each byte of a line, lowest first: set where the byte is not 0.
    fn nonzero(line: &[u8; LINE]) -> u64;
}

/// Transposes elements of `SIZE` bytes between vectors: the rows of `COUNT` columns become columns of `16 / SIZE` rows. Each
/// line is some rows one after the other, as many as its 16 bytes hold, and lines are in the order of their rows.
#[inline(always)]
pub(in crate::convert) fn transposed<V: Vector, const SIZE: usize, const COUNT: usize>(
    lines: [V; COUNT],
) -> [V; COUNT] {
    // Each step doubles the adjacent rows of a column. Unrolled by hand, because a loop would keep the lines in memory.
    let lines = if SIZE < 16 { woven::<V, SIZE, COUNT>(lines) } else { lines };
    let lines = if SIZE < 8 { woven::<V, SIZE, COUNT>(lines) } else { lines };
    let lines = if SIZE < 4 { woven::<V, SIZE, COUNT>(lines) } else { lines };
    if SIZE < 2 { woven::<V, SIZE, COUNT>(lines) } else { lines }
}

/// Returns masks of 16 elements of `SIZE` bytes, one for each bit, lowest first: the first `SIZE` vectors.
#[cfg_attr(
    any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))),
    allow(dead_code, reason = "only vectors in registers choose by masks")
)]
#[inline(always)]
pub(super) fn masks<V: Vector, const SIZE: usize>(bits: u16) -> [V; WIDTH] {
    let mut masks = [V::mask(bits); WIDTH];
    for step in [1, 2, 4, 8] {
        if step < SIZE {
            let narrow = masks;
            for (pair, mask) in masks.as_chunks_mut::<2>().0.iter_mut().zip(narrow) {
                *pair = match step {
                    1 => mask.zip::<1>(mask),
                    2 => mask.zip::<2>(mask),
                    4 => mask.zip::<4>(mask),
                    _ => mask.zip::<8>(mask),
                };
            }
        }
    }
    masks
}

/// Returns the first half of the lines and the second, element by element in turn.
#[inline(always)]
fn woven<V: Vector, const SIZE: usize, const COUNT: usize>(lines: [V; COUNT]) -> [V; COUNT] {
    let mut woven = lines;
    let (front, back) = lines.split_at(COUNT / 2);
    for ((a, b), pair) in front.iter().zip(back).zip(woven.as_chunks_mut::<2>().0) {
        *pair = a.zip::<SIZE>(*b);
    }
    woven
}

#[cfg(test)]
mod tests {
    use super::super::Baseline;
    use super::super::plain::Plain;
    use super::*;

    /// What the trait says, in plain Rust.
    fn check<V: Vector>() {
        let bytes: Vec<u8> = (0..64_u8).map(|at| at.wrapping_mul(37) ^ 0x5a).collect();
        let load = |at: usize| {
            assert!(at + WIDTH <= bytes.len());
            // SAFETY: 16 bytes from `at` on, as was just checked.
            unsafe { V::load(bytes[at..].as_ptr()) }
        };
        let stored = |vector: V| {
            let mut to = [0_u8; WIDTH];
            // SAFETY: 16 bytes.
            unsafe { vector.store(to.as_mut_ptr()) };
            to
        };
        fn zipped(size: usize, a: &[u8], b: &[u8]) -> Vec<u8> {
            a.chunks(size).zip(b.chunks(size)).flat_map(|(a, b)| [a, b].concat()).collect()
        }
        for at in 0..48 - WIDTH {
            let (a, b) = (&bytes[at..at + WIDTH], &bytes[at + WIDTH..at + 2 * WIDTH]);
            assert_eq!(stored(load(at)), *a);
            // SAFETY: 8 bytes from `at` on.
            assert_eq!(stored(unsafe { V::load_half(a.as_ptr()) })[..8], a[..8]);
            let halves = [load(at).zip::<1>(load(at + WIDTH)), load(at).zip::<2>(load(at + WIDTH))];
            let halves =
                [halves[0], halves[1], load(at).zip::<4>(load(at + WIDTH)), load(at).zip::<8>(load(at + WIDTH))];
            for (size, [low, high]) in [1, 2, 4, 8].into_iter().zip(halves) {
                assert_eq!([stored(low), stored(high)].concat(), zipped(size, a, b), "{size}");
            }
        }
        for bits in (0..=u16::MAX).step_by(if cfg!(miri) { 0x1357 } else { 1 }) {
            assert_eq!(stored(V::spread(bits)), std::array::from_fn(|at| u8::from(bits >> at & 1 == 1)), "{bits:#x}");
            assert_eq!(stored(V::mask(bits)), std::array::from_fn(|at| if bits >> at & 1 == 1 { 0xff } else { 0 }));
            let chosen: [u8; WIDTH] = std::array::from_fn(|at| bytes[if bits >> at & 1 == 1 { at } else { at + 20 }]);
            // SAFETY: the mask is one of bits.
            let found = unsafe { V::select(V::mask(bits), load(0), load(20)) };
            assert_eq!(stored(found), chosen, "{bits:#x}");
        }
        for set in [0, u64::MAX, 1, 1 << 63, 0x8001_4002_2004_1008, 0x0123_4567_89ab_cdef] {
            for value in [1, 0x80, 0xff] {
                let line: [u8; LINE] = std::array::from_fn(|at| if set >> at & 1 == 1 { value } else { 0 });
                assert_eq!(V::nonzero(&line), set, "{value}");
            }
        }
    }

    #[test]
    fn vectors_of_every_instruction_set_do_what_rust_alone_does() {
        check::<Plain>();
        check::<Baseline>();
        #[cfg(target_arch = "aarch64")]
        check::<super::super::Neon>();
    }

    #[test]
    fn rows_become_columns() {
        fn check<const SIZE: usize, const COUNT: usize>() {
            let rows = WIDTH / SIZE;
            // Byte `at` of an element of this row and column.
            let byte =
                |row: usize, column: usize, at: usize| u8::try_from((row * 16 + column + at * 31) % 251).unwrap();
            let source: Vec<u8> =
                (0..rows * COUNT * SIZE).map(|at| byte(at / SIZE / COUNT, at / SIZE % COUNT, at % SIZE)).collect();
            assert_eq!(source.len(), COUNT * WIDTH);
            // SAFETY: `COUNT` times 16 bytes.
            let lines = std::array::from_fn(|line| unsafe { Baseline::load(source[line * WIDTH..].as_ptr()) });
            for (column, line) in transposed::<Baseline, SIZE, COUNT>(lines).into_iter().enumerate() {
                let mut found = [0_u8; WIDTH];
                // SAFETY: 16 bytes.
                unsafe { line.store(found.as_mut_ptr()) };
                assert_eq!(found, std::array::from_fn(|at| byte(at / SIZE, column, at % SIZE)), "{SIZE} {COUNT}");
            }
        }
        check::<1, 8>();
        check::<1, 16>();
        check::<2, 8>();
        check::<4, 4>();
        check::<8, 2>();
        check::<16, 1>();
    }
}
