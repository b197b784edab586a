//! Copies that leave the cache alone.

use std::mem::MaybeUninit;

use super::isa::Isa;

/// Copies as many bytes as `out` has room for, whole cache lines past the cache.
///
/// # Safety
/// `source` has as many readable bytes, apart from `out`. The processor has `isa`.
pub(super) unsafe fn copy_past_the_cache(isa: Isa, source: *const u8, out: &mut [MaybeUninit<u8>]) {
    let start = out.as_mut_ptr().cast::<u8>();
    let head = start.align_offset(64).min(out.len());
    let lines = out.len().saturating_sub(head) / 64;
    // SAFETY: the contract, for the bytes before the first whole line.
    unsafe { start.copy_from_nonoverlapping(source, head) };
    match isa {
        // SAFETY: the contract: `lines` whole lines from an aligned address on; the processor has the instructions.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe { super::avx512::copy_lines(source.wrapping_add(head), start.wrapping_add(head), lines) },
        // SAFETY: the contract.
        _ => unsafe {
            start.wrapping_add(head).copy_from_nonoverlapping(source.wrapping_add(head), lines * 64);
        },
    }
    let done = head + lines * 64;
    let rest = out.len().saturating_sub(done);
    // SAFETY: the contract, for the bytes after the last whole line.
    unsafe { start.wrapping_add(done).copy_from_nonoverlapping(source.wrapping_add(done), rest) };
}
