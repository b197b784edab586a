//! [`Block`]: memory that nobody uses, and how it is freed.

use std::alloc::{Layout, dealloc};
use std::ptr::NonNull;

use super::page::page_size;
use super::pages;

/// From this size on, an allocation starts on a huge page and asks for huge pages.
pub(super) const HUGE_PAGES_FROM: usize = 2 * HUGE_PAGE;
/// Small under Miri, so that small tests have large blocks.
pub(super) const HUGE_PAGE: usize = if cfg!(miri) { 1 << 12 } else { 2 << 20 };

/// Memory that nobody uses.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) start: NonNull<u8>,
    pub(super) layout: Layout,
    /// Whether the block is mapped from the system, not from the global allocator.
    pub(super) is_mapped: bool,
}

impl Block {
    /// Frees the block through the allocator that made it.
    ///
    /// # Safety
    /// `start` came from the global allocator with this layout, or is so many bytes that were mapped, and nobody uses it.
    pub(super) unsafe fn free(self) {
        if self.is_mapped {
            // SAFETY: `is_mapped` says that the block is mapped pages, and the caller that nobody uses it.
            unsafe { free_mapped(&self) };
        } else {
            // SAFETY: a block that is not mapped came from the global allocator with this layout, and nobody uses it.
            unsafe { dealloc(self.start.as_ptr(), self.layout) };
        }
    }

    /// Lets the system take the pages back until they are written again. Returns whether the system understood.
    pub(super) fn offer_pages(&self) -> bool {
        debug_assert!(are_pages(self.start, self.whole_pages()));
        // SAFETY: memory that nobody uses, from a huge page on, in whole ones: so in whole pages of any smaller size.
        unsafe { pages::offer(self.start, self.whole_pages()) }
    }

    /// Tells the system that the pages are in use again.
    pub(super) fn reuse_pages(&self) {
        // SAFETY: the whole pages of this block, which nobody else uses.
        unsafe { pages::reuse(self.start, self.whole_pages()) };
    }

    /// The bytes of whole huge pages: what follows the block is not ours.
    fn whole_pages(&self) -> usize {
        self.layout.size() / HUGE_PAGE * HUGE_PAGE
    }
}

/// Whether these bytes are whole pages of the system, or whole huge pages, which are what is asked for where a system's own are larger.
pub(super) fn are_pages(start: NonNull<u8>, size: usize) -> bool {
    let page = page_size().min(HUGE_PAGE);
    start.addr().get().is_multiple_of(page) && size.is_multiple_of(page)
}

/// Frees a block that is mapped from the system.
///
/// # Safety
/// The block is so many mapped bytes, and nobody uses it.
#[cfg(all(target_os = "linux", not(miri)))]
unsafe fn free_mapped(block: &Block) {
    super::counted::count(block.layout.size(), 0);
    // SAFETY: the block is `layout.size()` bytes of mapped pages, and nobody uses it.
    unsafe { unmap(block.start, block.layout.size()) };
}

#[cfg(any(not(target_os = "linux"), miri))]
unsafe fn free_mapped(_block: &Block) {}

/// Returns mapped pages to the system.
///
/// # Safety
/// The range is whole pages that this process mapped, and nobody uses it.
#[cfg(all(target_os = "linux", not(miri)))]
pub(super) unsafe fn unmap(start: NonNull<u8>, size: usize) {
    debug_assert!(are_pages(start, size));
    // SAFETY: whole mapped pages that nobody uses, as the caller promises. `munmap` fails only if splitting a mapping would
    // exceed the system's limit of mappings; the pages stay mapped then.
    unsafe { libc::munmap(start.as_ptr().cast(), size) };
}
