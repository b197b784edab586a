//! [`Plain`]: vectors in Rust alone, for processors without kernels of their own, and for Miri.

use std::mem::MaybeUninit;

use super::vector::{LINE, Vector, WIDTH};

/// Sixteen bytes, some of which may be uninitialised.
#[derive(Clone, Copy)]
pub(in crate::convert) struct Plain([MaybeUninit<u8>; WIDTH]);

impl Vector for Plain {
    const STREAMS: bool = false;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: `from` has 16 bytes, and these need no alignment.
        unsafe { from.cast::<Self>().read() }
    }

    #[inline(always)]
    unsafe fn load_half(from: *const u8) -> Self {
        let mut bytes = [MaybeUninit::uninit(); WIDTH];
        let (first, _) = bytes.split_at_mut(WIDTH / 2);
        // SAFETY: `from` has 8 bytes, as many as `first`, which is a local.
        unsafe { first.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(from, WIDTH / 2) };
        Self(bytes)
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: `to` has room for 16 bytes, and these need no alignment.
        unsafe { to.cast::<Self>().write(self) };
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: `to` has room for 16 bytes.
        unsafe { self.store(to) };
    }

    #[inline(always)]
    fn zip<const SIZE: usize>(self, other: Self) -> [Self; 2] {
        let mut zipped = [self; 2];
        let [Self(low), Self(high)] = &mut zipped;
        let pairs = low.chunks_exact_mut(2 * SIZE).chain(high.chunks_exact_mut(2 * SIZE));
        for ((pair, a), b) in pairs.zip(self.0.chunks_exact(SIZE)).zip(other.0.chunks_exact(SIZE)) {
            let (first, second) = pair.split_at_mut(SIZE);
            first.copy_from_slice(a);
            second.copy_from_slice(b);
        }
        zipped
    }

    #[inline(always)]
    fn spread(bits: u16) -> Self {
        let mut bytes = [MaybeUninit::new(0); WIDTH];
        for (eight, packed) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(bits.to_le_bytes()) {
            // Copies of the byte, seven bits apart, put bit n into the lowest bit of byte n, where no other copy has a bit.
            let copies = u64::from(packed & 0x7f).wrapping_mul(0x0002_0408_1020_4081) & 0x0101_0101_0101_0101;
            *eight = (copies | u64::from(packed >> 7) << 56).to_le_bytes().map(MaybeUninit::new);
        }
        Self(bytes)
    }

    #[inline(always)]
    fn mask(bits: u16) -> Self {
        let Self(spread) = Self::spread(bits);
        // SAFETY: `spread` writes every byte.
        Self(spread.map(|byte| MaybeUninit::new(unsafe { byte.assume_init() }.wrapping_neg())))
    }

    #[inline(always)]
    unsafe fn select(mask: Self, set: Self, clear: Self) -> Self {
        let mut chosen = clear;
        for ((chosen, set), mask) in chosen.0.iter_mut().zip(set.0).zip(mask.0) {
            // SAFETY: as promised: `mask` writes every byte, and `zip` copies them.
            if unsafe { mask.assume_init() } != 0 {
                *chosen = set;
            }
        }
        chosen
    }

    #[inline(always)]
    fn nonzero(line: &[u8; LINE]) -> u64 {
        const TOP: u64 = 0x8080_8080_8080_8080;
        let mut bits = 0;
        for eight in line.as_chunks::<8>().0.iter().rev() {
            let word = u64::from_le_bytes(*eight);
            // Sets the top bit of each byte that is not 0, then gathers all eight in the highest byte.
            let top = ((word & !TOP).wrapping_add(!TOP) | word) & TOP;
            bits = bits << 8 | (top >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        }
        bits
    }
}
