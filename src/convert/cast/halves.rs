//! float16 to float32 and back, in the vectors that `half` has for them.

use half::f16;
use half::slice::HalfFloatSliceExt;

use super::{Bytes, CHUNK, Compiled};

/// Halves to singles, which hold all of them.
pub(super) const WIDEN: Compiled = widen;
/// Singles to halves. Finite values must stay finite.
pub(super) const NARROW: Compiled = narrow;

/// # Safety
/// As [`super::Cast::run`].
unsafe fn widen(source: *const u8, _: u64, _: &Bytes, out: *mut u8) -> bool {
    // SAFETY: the contract.
    let halves = unsafe { source.cast::<[f16; CHUNK]>().read_unaligned() };
    let mut singles = [0_f32; CHUNK];
    halves.convert_to_f32_slice(&mut singles);
    // SAFETY: the contract.
    unsafe { out.cast::<[f32; CHUNK]>().write(singles) };
    true
}

/// # Safety
/// As [`super::Cast::run`].
unsafe fn narrow(source: *const u8, _: u64, _: &Bytes, out: *mut u8) -> bool {
    // SAFETY: the contract.
    let singles = unsafe { source.cast::<[f32; CHUNK]>().read_unaligned() };
    let mut halves = [f16::ZERO; CHUNK];
    halves.convert_from_f32_slice(&singles);
    // SAFETY: the contract.
    unsafe { out.cast::<[f16; CHUNK]>().write(halves) };
    let pairs = halves.iter().zip(&singles);
    pairs.fold(true, |fits, (half, single)| fits & (half.is_finite() | !single.is_finite()))
}
