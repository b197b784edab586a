//! Lanes of short elements become lanes of 4 bytes: what stands side by side in a row, side by side.

use super::CHUNK;
use super::isa::{Isa, Kernel};

/// Lanes that make one of 4 bytes, the last ones unused where there are fewer; and room for 64 of its elements.
pub(super) type Zip = ([*const u8; 4], *mut u8);

/// Writes 64 elements of 4 bytes, of 4 lanes of single bytes or 2 lanes of 2 bytes. Each lane has 64, of any alignment,
/// and the processor that runs it has `isa`.
pub(super) fn zipping(isa: Isa, size: usize) -> unsafe fn(Zip) {
    if size == 1 { isa.compiled::<Bytes>() } else { isa.compiled::<Pairs>() }
}

struct Bytes;

impl Kernel for Bytes {
    type Input = Zip;
    type Output = ();

    /// # Safety
    /// As [`zipping`] says, for single bytes.
    #[inline(always)]
    unsafe fn run(([a, b, c, d], out): Zip) {
        // SAFETY: the contract: each lane has 64 elements.
        let element = |lane: *const u8, index: usize| unsafe { lane.wrapping_add(index).read() };
        let mut zipped = [[0_u8; 4]; CHUNK];
        for (index, quad) in zipped.iter_mut().enumerate() {
            *quad = [element(a, index), element(b, index), element(c, index), element(d, index)];
        }
        // SAFETY: the contract: room for 64 elements.
        unsafe { out.cast::<[[u8; 4]; CHUNK]>().write(zipped) };
    }
}

struct Pairs;

impl Kernel for Pairs {
    type Input = Zip;
    type Output = ();

    /// # Safety
    /// As [`zipping`] says, for 2 bytes.
    #[inline(always)]
    unsafe fn run(([a, b, ..], out): Zip) {
        // SAFETY: the contract: each lane has 64 elements.
        let element =
            |lane: *const u8, index: usize| unsafe { lane.cast::<u16>().wrapping_add(index).read_unaligned() };
        let mut zipped = [[0_u16; 2]; CHUNK];
        for (index, pair) in zipped.iter_mut().enumerate() {
            *pair = [element(a, index), element(b, index)];
        }
        // SAFETY: the contract: room for 64 elements.
        unsafe { out.cast::<[[u16; 2]; CHUNK]>().write_unaligned(zipped) };
    }
}
