//! Offers pages of memory that is kept to the system, which takes them back when memory is short.
//!
//! Each system has its own words: Linux `MADV_FREE`; macOS `MADV_FREE_REUSABLE`, so that such pages do not count as the process's, and
//! `MADV_FREE_REUSE` when they are used again; Windows `MEM_RESET`. Elsewhere nothing is offered.

use std::ptr::NonNull;

/// Lets the system take whole pages back until they are written again: their contents may be lost. Returns whether the system understood.
///
/// # Safety
/// The range is whole pages of ordinary memory that this process has, and nobody uses it.
pub(super) unsafe fn offer(start: NonNull<u8>, len: usize) -> bool {
    // SAFETY: the caller says that these are whole pages which nobody uses, and that is all that the systems ask for.
    len > 0 && unsafe { system::offer(start, len) }
}

/// Tells the system that pages are in use again, if they were offered. Without it they are as usable, and do not count as the process's.
///
/// # Safety
/// The range is whole pages of ordinary memory that this process has, and nobody else uses it.
pub(super) unsafe fn reuse(start: NonNull<u8>, len: usize) {
    // SAFETY: the caller says that these are whole pages of its own. No system changes what they hold.
    unsafe { system::reuse(start, len) };
}

#[cfg(all(target_os = "linux", not(miri)))]
mod system {
    use std::ptr::NonNull;

    pub(super) unsafe fn offer(start: NonNull<u8>, len: usize) -> bool {
        // SAFETY: pages that nobody uses: that their contents may be lost changes nothing for anyone.
        unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_FREE) == 0 }
    }

    pub(super) unsafe fn reuse(_start: NonNull<u8>, _len: usize) {}
}

#[cfg(all(target_vendor = "apple", not(miri)))]
mod system {
    use std::ptr::NonNull;

    pub(super) unsafe fn offer(start: NonNull<u8>, len: usize) -> bool {
        let advise = |advice| {
            // SAFETY: pages that nobody uses: that their contents may be lost changes nothing for anyone.
            unsafe { libc::madvise(start.as_ptr().cast(), len, advice) == 0 }
        };
        // The first is refused for memory that is shared with another task.
        advise(libc::MADV_FREE_REUSABLE) || advise(libc::MADV_FREE)
    }

    pub(super) unsafe fn reuse(start: NonNull<u8>, len: usize) {
        // SAFETY: the pages are the caller's, and this changes how the system counts them, not what they hold.
        unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_FREE_REUSE) };
    }
}

#[cfg(all(windows, not(miri)))]
mod system {
    use std::ffi::c_void;
    use std::ptr::NonNull;

    const MEM_RESET: u32 = 0x0008_0000;
    const PAGE_READWRITE: u32 = 0x04;

    #[link(name = "kernel32")]
    unsafe extern "system" {
        fn VirtualAlloc(address: *mut c_void, size: usize, kind: u32, protection: u32) -> *mut c_void;
    }

    pub(super) unsafe fn offer(start: NonNull<u8>, len: usize) -> bool {
        // SAFETY: committed pages that nobody uses: the system need not save their contents, and they stay committed.
        unsafe { !VirtualAlloc(start.as_ptr().cast(), len, MEM_RESET, PAGE_READWRITE).is_null() }
    }

    pub(super) unsafe fn reuse(_start: NonNull<u8>, _len: usize) {}
}

/// Miri has no pages: there, blocks are kept as they are.
#[cfg(any(miri, not(any(target_os = "linux", target_vendor = "apple", windows))))]
mod system {
    use std::ptr::NonNull;

    pub(super) unsafe fn offer(_start: NonNull<u8>, _len: usize) -> bool {
        cfg!(miri)
    }

    pub(super) unsafe fn reuse(_start: NonNull<u8>, _len: usize) {}
}
