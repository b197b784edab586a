//! Prefetches source lines, and writes result lines by non-temporal stores.
//! Dispatch table: `avx2.rs` and `avx512.rs` use its constants.

use super::Baseline;
use super::isa::Isa;
pub(in crate::convert) use super::vector::LINE;
use super::vector::{Vector, WIDTH};

/// Results of this size and more are written by non-temporal stores, because they would not stay in the cache.
pub(in crate::convert) const NON_TEMPORAL_FROM: usize = 4 << 20;

/// Prefetches a cache line. Any address is allowed.
#[inline(always)]
pub(in crate::convert) fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint, which reads nothing that the program sees; every x86-64 processor has it.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a hint, which reads nothing that the program sees, and for which any address will do.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", not(miri)))))]
    let _ = address;
}

/// As [`prefetch`], into the second-level cache, for lines that are not read at once.
#[inline(always)]
pub(in crate::convert) fn prefetch_to_second(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: a hint, which reads nothing that the program sees; every x86-64 processor has it.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(address.cast()) };
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a hint, which reads nothing that the program sees, and for which any address will do.
    unsafe {
        std::arch::asm!("prfm pldl2keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", not(miri)))))]
    let _ = address;
}

/// Bytes of a huge page; few of them for Miri, so that small tests have several.
pub(super) const HUGE_PAGE: usize = if cfg!(miri) { 1 << 12 } else { 2 << 20 };

/// New memory that is written from its start on, whose pages the system still has to clear. If the first write to a huge
/// page is to its end, Linux clears the page upwards, in half the time that downwards takes.
pub(super) struct Pages {
    made: *mut u8,
    end: *mut u8,
}

impl Pages {
    pub(super) fn new(start: *mut u8, bytes: usize) -> Self {
        Self { made: start, end: start.wrapping_add(bytes) }
    }

    /// Faults in the pages up to this address.
    ///
    /// # Safety
    /// All of the memory is writable, and its contents from the address of the last call on are not needed.
    #[inline]
    pub(super) unsafe fn make(&mut self, until: *mut u8) {
        while self.made < until {
            self.made = self.made.wrapping_add(HUGE_PAGE - self.made.addr() % HUGE_PAGE);
            if self.made <= self.end {
                // SAFETY: `made` has moved up by at least a byte and is not beyond `end`, so the byte before it is in
                // the memory, which may be written; the caller does not need what is there.
                unsafe { self.made.wrapping_sub(1).write_volatile(0) };
            }
        }
    }
}

/// Orders earlier non-temporal stores before later stores.
pub(in crate::convert) fn fence() {
    // SAFETY: every x86-64 processor has it. Miri has no such instruction, and makes no writes past the cache.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

/// The cache lines that hold 64 elements of a column.
#[derive(Clone, Copy, Debug)]
pub(in crate::convert) struct LinePrefetch {
    /// In the first line.
    start: *const u8,
    lines: usize,
}

impl LinePrefetch {
    pub(in crate::convert) fn new(start: *const u8, lines: usize) -> Self {
        Self { start, lines }
    }

    /// Advances to the next 64 elements, and copies lines by non-temporal stores meanwhile.
    ///
    /// # Safety
    /// As [`copy_lines`].
    #[inline(always)]
    pub(super) unsafe fn fetch_and_copy(&mut self, isa: Isa, from: *const u8, to: *mut u8, lines: usize) {
        self.start = self.start.wrapping_add(self.lines * LINE);
        for line in lines..self.lines {
            prefetch_to_second(self.start.wrapping_add(line * LINE));
        }
        // 64 bits lie in a line that was prefetched before.
        let ahead = if self.lines == 0 { from } else { self.start };
        // SAFETY: both have `lines` lines apart from each other, `to` starts on one, and the processor has `isa`, as
        // promised. Any address may be `ahead`, as it is only prefetched.
        unsafe { copy_lines(isa, from, to, lines, ahead) };
    }
}

/// Copies bytes, whole cache lines by non-temporal stores. The caller calls [`fence`].
///
/// # Safety
/// Both have so many bytes, apart from each other. The processor has `isa`.
pub(in crate::convert) unsafe fn copy_past_the_cache(isa: Isa, source: *const u8, out: *mut u8, bytes: usize) {
    let head = (out.addr().wrapping_neg() % LINE).min(bytes);
    let lines = (bytes - head) / LINE;
    let (from, to) = (source.wrapping_add(head), out.wrapping_add(head));
    // SAFETY: `head <= bytes`: both have these bytes, apart from each other.
    unsafe { out.copy_from_nonoverlapping(source, head) };
    // SAFETY: `head + lines * LINE <= bytes`: both have these lines, apart from each other; `head` leads `to` to
    // a line; the processor has `isa`.
    unsafe { copy_lines(isa, from, to, lines, from) };
    let done = lines * LINE;
    // SAFETY: the `bytes - head - done` bytes behind the lines are the rest of both.
    unsafe { to.wrapping_add(done).copy_from_nonoverlapping(from.wrapping_add(done), bytes - head - done) };
}

/// Copies cache lines by non-temporal stores if the processor has them, and prefetches as many lines from `ahead` on.
///
/// # Safety
/// Both have so many lines, apart from each other; `to` starts on one. The processor has `isa`.
#[inline(always)]
pub(super) unsafe fn copy_lines(isa: Isa, from: *const u8, to: *mut u8, lines: usize, ahead: *const u8) {
    match isa {
        // SAFETY: the processor has AVX-512, as `isa` is promised; both have these lines, and `to` starts on one.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe { super::avx512::copy_lines(from, to, lines, ahead) },
        // SAFETY: the processor has AVX2, as `isa` is promised; both have these lines, and `to` starts on one.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { super::avx2::copy_lines(from, to, lines, ahead) },
        // SAFETY: both have these lines, and `to` starts on one.
        Isa::Portable if Baseline::STREAMS => unsafe { copy_vectors::<Baseline>(from, to, lines, ahead) },
        // SAFETY: both have `lines * LINE` bytes, apart from each other.
        _ => unsafe { to.copy_from_nonoverlapping(from, lines * LINE) },
    }
}

/// As [`copy_lines`], by non-temporal stores.
///
/// # Safety
/// As [`copy_lines`].
unsafe fn copy_vectors<V: Vector>(from: *const u8, to: *mut u8, lines: usize, ahead: *const u8) {
    for line in 0..lines {
        prefetch_to_second(ahead.wrapping_add(line * LINE));
        for at in (line * LINE..(line + 1) * LINE).step_by(WIDTH) {
            // SAFETY: `from` has `lines * LINE` bytes, and `at + WIDTH` is at most that.
            let bytes = unsafe { V::load(from.wrapping_add(at)) };
            // SAFETY: `to` has as many, from the start of a line on, so that `at`, a multiple of 16, is aligned to 16.
            unsafe { bytes.stream(to.wrapping_add(at)) };
        }
    }
}
