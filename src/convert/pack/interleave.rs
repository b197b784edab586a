//! Interleaves lanes of 1 or 2 bytes into lanes of 4 bytes.

use super::isa::{BLOCK_ROWS, Bytes, Compiled, Isa, Kernel};

/// The addresses of the lanes that make one: 4 of single bytes, or 2 of 2 bytes.
pub(super) type Lanes = [*const u8; 4];

/// Writes 64 elements of 4 bytes. The source is the address of [`Lanes`], each of which has 64 elements.
pub(super) fn zipping(isa: Isa, size: usize) -> Compiled {
    if size == 1 { isa.compiled::<Quads>() } else { isa.compiled::<Pairs>() }
}

struct Quads;

impl Kernel for Quads {
    /// # Safety
    /// As [`zipping`] says, for single bytes.
    #[inline(always)]
    unsafe fn run(source: *const u8, _: u64, _: &Bytes, out: *mut u8) -> bool {
        // SAFETY: the contract: four addresses.
        let [a, b, c, d] = unsafe { source.cast::<Lanes>().read() };
        // SAFETY: the contract: each lane has 64 elements.
        let element = |lane: *const u8, index: usize| unsafe { lane.wrapping_add(index).read() };
        for index in 0..BLOCK_ROWS {
            let quad = [element(a, index), element(b, index), element(c, index), element(d, index)];
            // SAFETY: the contract: room for 64 elements.
            unsafe { out.cast::<[u8; 4]>().wrapping_add(index).write(quad) };
        }
        true
    }
}

struct Pairs;

impl Kernel for Pairs {
    /// # Safety
    /// As [`zipping`] says, for 2 bytes.
    #[inline(always)]
    unsafe fn run(source: *const u8, _: u64, _: &Bytes, out: *mut u8) -> bool {
        // SAFETY: the contract: four addresses.
        let [a, b, ..] = unsafe { source.cast::<Lanes>().read() };
        // SAFETY: the contract: each lane has 64 elements.
        let element =
            |lane: *const u8, index: usize| unsafe { lane.cast::<u16>().wrapping_add(index).read_unaligned() };
        for index in 0..BLOCK_ROWS {
            let pair = [element(a, index), element(b, index)];
            // SAFETY: the contract: room for 64 elements, aligned for them.
            unsafe { out.cast::<[u16; 2]>().wrapping_add(index).write(pair) };
        }
        true
    }
}
