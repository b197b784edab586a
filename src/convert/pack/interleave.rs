//! Interleaves lanes of 1 or 2 bytes into lanes of 4 bytes.

use super::isa::{BLOCK_ROWS, Bytes, Compiled, Isa, VectorKernel};

/// The addresses of the lanes that make one: 4 of single bytes, or 2 of 2 bytes.
pub(super) type Lanes = [*const u8; 4];

/// Writes 64 elements of 4 bytes. The source is the address of [`Lanes`], each of which has 64 elements.
pub(super) fn interleave_kernel(isa: Isa, size: usize) -> Compiled {
    if size == 1 { isa.compiled::<Quads>() } else { isa.compiled::<Pairs>() }
}

struct Quads;

impl VectorKernel for Quads {
    /// # Safety
    /// `source` is the address of [`Lanes`], each of which has 64 bytes; `out` has room for 64 times 4 bytes.
    #[inline(always)]
    unsafe fn run(source: *const u8, _: u64, _: &Bytes, out: *mut u8) -> bool {
        // SAFETY: `source` is the address of `Lanes`.
        let [a, b, c, d] = unsafe { source.cast::<Lanes>().read() };
        // SAFETY: each lane has 64 bytes, and `index < 64`.
        let element = |lane: *const u8, index: usize| unsafe { lane.wrapping_add(index).read() };
        for index in 0..BLOCK_ROWS {
            let quad = [element(a, index), element(b, index), element(c, index), element(d, index)];
            // SAFETY: `out` has room for 64 elements, and `index < 64`; bytes need no alignment.
            unsafe { out.cast::<[u8; 4]>().wrapping_add(index).write(quad) };
        }
        true
    }
}

struct Pairs;

impl VectorKernel for Pairs {
    /// # Safety
    /// `source` is the address of [`Lanes`], the first two of which have 64 elements of 2 bytes, of any alignment;
    /// `out` has room for 64 times 4 bytes, aligned for 2.
    #[inline(always)]
    unsafe fn run(source: *const u8, _: u64, _: &Bytes, out: *mut u8) -> bool {
        // SAFETY: `source` is the address of `Lanes`.
        let [a, b, ..] = unsafe { source.cast::<Lanes>().read() };
        // SAFETY: each lane has 64 elements of any alignment, and `index < 64`.
        let element =
            |lane: *const u8, index: usize| unsafe { lane.cast::<u16>().wrapping_add(index).read_unaligned() };
        for index in 0..BLOCK_ROWS {
            let pair = [element(a, index), element(b, index)];
            // SAFETY: `out` has room for 64 pairs, aligned for their halves, and `index < 64`.
            unsafe { out.cast::<[u16; 2]>().wrapping_add(index).write(pair) };
        }
        true
    }
}
