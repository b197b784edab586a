//! [`Neon`]: vectors of NEON, which every AArch64 processor has. It has no store past the cache: its processors notice whole
//! lines that are written, and do not read them first.

use std::arch::aarch64::{
    uint8x16_t, vandq_u8, vbslq_u8, vcombine_u8, vdup_n_u8, vdupq_n_u8, vgetq_lane_u64, vld1_u8, vld1q_u8, vpaddq_u8,
    vreinterpretq_u8_u16, vreinterpretq_u8_u32, vreinterpretq_u8_u64, vreinterpretq_u16_u8, vreinterpretq_u32_u8,
    vreinterpretq_u64_u8, vst1q_u8, vtstq_u8, vzip1q_u8, vzip1q_u16, vzip1q_u32, vzip1q_u64, vzip2q_u8, vzip2q_u16,
    vzip2q_u32, vzip2q_u64,
};

use super::vector::{LINE, Vector, WIDTH};

/// Lanes are numbered the other way round in memory where the highest byte comes first.
const _: () = assert!(cfg!(target_endian = "little"), "the kernels for NEON are for the little-endian AArch64");

/// The bit of each byte, in a byte of bits that stands eight times.
const BITS: [u8; WIDTH] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];

/// A register of NEON.
#[derive(Clone, Copy)]
pub(in crate::convert) struct Neon(uint8x16_t);

impl Vector for Neon {
    const STREAMS: bool = false;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: `from` has 16 bytes; the intrinsic reads any alignment.
        Self(unsafe { vld1q_u8(from) })
    }

    #[inline(always)]
    unsafe fn load_half(from: *const u8) -> Self {
        // SAFETY: `from` has 8 bytes; the intrinsic reads any alignment.
        let half = unsafe { vld1_u8(from) };
        // SAFETY: every AArch64 processor has NEON, the only condition: it joins two registers.
        Self(unsafe { vcombine_u8(half, half) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: `to` has room for 16 bytes; the intrinsic writes any alignment.
        unsafe { vst1q_u8(to, self.0) };
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: `to` has room for 16 bytes.
        unsafe { self.store(to) };
    }

    #[inline(always)]
    fn zip<const SIZE: usize>(self, other: Self) -> [Self; 2] {
        // SAFETY: every AArch64 processor has NEON, the only condition of this: it reads and writes registers alone.
        unsafe { zip::<SIZE>(self, other) }
    }

    #[inline(always)]
    fn spread(bits: u16) -> Self {
        // SAFETY: every AArch64 processor has NEON, the only condition of this: it reads a constant.
        unsafe { spread(bits) }
    }

    #[inline(always)]
    fn mask(bits: u16) -> Self {
        // SAFETY: every AArch64 processor has NEON, the only condition of this: it reads a constant.
        unsafe { mask(bits) }
    }

    #[inline(always)]
    unsafe fn select(mask: Self, set: Self, clear: Self) -> Self {
        // SAFETY: every AArch64 processor has NEON, the only condition: it reads and writes registers alone.
        Self(unsafe { vbslq_u8(mask.0, set.0, clear.0) })
    }

    #[inline(always)]
    fn nonzero(line: &[u8; LINE]) -> u64 {
        // SAFETY: every AArch64 processor has NEON, the only condition of this: a reference bounds what it reads.
        unsafe { nonzero(line) }
    }
}

/// As [`Vector::zip`].
#[inline]
#[target_feature(enable = "neon")]
fn zip<const SIZE: usize>(Neon(a): Neon, Neon(b): Neon) -> [Neon; 2] {
    match SIZE {
        1 => [Neon(vzip1q_u8(a, b)), Neon(vzip2q_u8(a, b))],
        2 => {
            let (a, b) = (vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b));
            [vzip1q_u16(a, b), vzip2q_u16(a, b)].map(|zipped| Neon(vreinterpretq_u8_u16(zipped)))
        }
        4 => {
            let (a, b) = (vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b));
            [vzip1q_u32(a, b), vzip2q_u32(a, b)].map(|zipped| Neon(vreinterpretq_u8_u32(zipped)))
        }
        _ => {
            let (a, b) = (vreinterpretq_u64_u8(a), vreinterpretq_u64_u8(b));
            [vzip1q_u64(a, b), vzip2q_u64(a, b)].map(|zipped| Neon(vreinterpretq_u8_u64(zipped)))
        }
    }
}

/// The bits of [`BITS`].
#[inline]
#[target_feature(enable = "neon")]
fn each_bit() -> uint8x16_t {
    // SAFETY: the array has 16 bytes; any alignment is read.
    unsafe { vld1q_u8(BITS.as_ptr()) }
}

/// As [`Vector::spread`].
#[inline]
#[target_feature(enable = "neon")]
fn spread(bits: u16) -> Neon {
    Neon(vandq_u8(mask(bits).0, vdupq_n_u8(1)))
}

/// As [`Vector::mask`].
#[inline]
#[target_feature(enable = "neon")]
fn mask(bits: u16) -> Neon {
    let [low, high] = bits.to_le_bytes();
    Neon(vtstq_u8(vcombine_u8(vdup_n_u8(low), vdup_n_u8(high)), each_bit()))
}

/// As [`Vector::nonzero`].
#[inline]
#[target_feature(enable = "neon")]
fn nonzero(line: &[u8; LINE]) -> u64 {
    let (bit, zero) = (each_bit(), vdupq_n_u8(0));
    let mut parts = [zero; LINE / WIDTH];
    for (bits, part) in parts.iter_mut().zip(line.as_chunks::<WIDTH>().0) {
        // SAFETY: 16 bytes, of any alignment.
        let bytes = unsafe { vld1q_u8(part.as_ptr()) };
        *bits = vandq_u8(vtstq_u8(bytes, bytes), bit);
    }
    // Each sum joins the bits of two adjacent bytes, which no two of a byte of bits share.
    let [a, b, c, d] = parts;
    let quarters = vpaddq_u8(vpaddq_u8(a, b), vpaddq_u8(c, d));
    vgetq_lane_u64::<0>(vreinterpretq_u64_u8(vpaddq_u8(quarters, quarters)))
}
