//! Casts float16 to float32 and back, with the vector instructions that `half` uses.

use half::f16;
use half::slice::HalfFloatSliceExt;

use super::{BLOCK_ROWS, Bytes, Compiled};

/// Halves to singles, which hold all of them.
pub(super) const WIDEN: Compiled = widen;
/// Singles to halves. Finite values must stay finite.
pub(super) const NARROW: Compiled = narrow;

/// # Safety
/// As [`super::Cast::run`].
unsafe fn widen(source: *const u8, _: u64, _: &Bytes, out: *mut u8) -> bool {
    // SAFETY: `source` has 64 halves, of any alignment.
    let halves = unsafe { source.cast::<[f16; BLOCK_ROWS]>().read_unaligned() };
    let mut singles = [0_f32; BLOCK_ROWS];
    halves.convert_to_f32_slice(&mut singles);
    // SAFETY: `out` has room for 64 floats of 4 bytes, aligned for them.
    unsafe { out.cast::<[f32; BLOCK_ROWS]>().write(singles) };
    true
}

/// # Safety
/// As [`super::Cast::run`].
unsafe fn narrow(source: *const u8, _: u64, _: &Bytes, out: *mut u8) -> bool {
    // SAFETY: `source` has 64 floats of 4 bytes, of any alignment.
    let singles = unsafe { source.cast::<[f32; BLOCK_ROWS]>().read_unaligned() };
    let mut halves = [f16::ZERO; BLOCK_ROWS];
    halves.convert_from_f32_slice(&singles);
    // SAFETY: `out` has room for 64 halves, aligned for them.
    unsafe { out.cast::<[f16; BLOCK_ROWS]>().write(halves) };
    let pairs = halves.iter().zip(&singles);
    pairs.fold(true, |fits, (half, single)| fits & (half.is_finite() | !single.is_finite()))
}
