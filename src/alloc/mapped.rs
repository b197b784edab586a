//! Large blocks mapped from the system instead of the global allocator: `mremap` grows them without a copy, and unused
//! pages are returned.

use super::HostBuffer;
#[cfg(all(target_os = "linux", not(miri)))]
use super::block::HUGE_PAGE;
#[cfg(all(target_os = "linux", not(miri)))]
use super::page::page_size;
use crate::error::Result;

/// Moves the first `written` bytes of a block into a larger one, of `roomy` bytes, or of `needed` if that many cannot
/// be allocated. Returns `false`, and changes nothing, if pages cannot move, or blocks of huge pages do not consist of pages.
///
/// # Errors
/// If the allocation fails. Nothing changes then.
#[cfg(all(target_os = "linux", not(miri)))]
pub(super) fn grow(memory: &mut HostBuffer, written: usize, roomy: usize, needed: usize) -> Result<bool> {
    // ThreadSanitizer does not see what mremap moves: whoever is given those addresses next would race with who had them.
    if cfg!(thread_sanitizer) || !consists_of_pages(HUGE_PAGE, page_size()) {
        return Ok(false);
    }
    linux::grow(memory, written, roomy).or_else(|_| linux::grow(memory, written, needed)).map(|()| true)
}

/// Returns whether the bytes are whole pages of this size: the system maps and unmaps no parts of them.
#[cfg(any(test, all(target_os = "linux", not(miri))))]
fn consists_of_pages(bytes: usize, page: usize) -> bool {
    bytes.is_multiple_of(page)
}

#[cfg(any(not(target_os = "linux"), miri))]
pub(super) fn grow(_memory: &mut HostBuffer, _written: usize, _roomy: usize, _needed: usize) -> Result<bool> {
    Ok(false)
}

/// Truncates a non-empty block to its first `len` bytes, and returns whole pages behind them to the system, if the
/// block is mapped.
pub(super) fn truncate(memory: &mut HostBuffer, len: usize) {
    memory.len = memory.len.min(len.max(1));
    #[cfg(all(target_os = "linux", not(miri)))]
    linux::give_back_rest(memory);
}

#[cfg(all(target_os = "linux", not(miri)))]
mod linux {
    use std::alloc::Layout;
    use std::ptr::{NonNull, null_mut};

    use super::super::block::{Block, HUGE_PAGE, unmap};
    use super::super::block_cache::KEPT;
    use super::super::counted::count;
    use super::super::fallible::out_of_memory;
    #[cfg(test)]
    use super::super::page::injected;
    use super::super::{HostBuffer, advise_huge_pages};
    use crate::error::Result;

    pub(super) fn grow(memory: &mut HostBuffer, written: usize, len: usize) -> Result<()> {
        let refused = || out_of_memory(len);
        let size = len.checked_next_multiple_of(HUGE_PAGE).ok_or_else(refused)?;
        let layout = Layout::from_size_align(size, HUGE_PAGE).map_err(|_| refused())?;
        if memory.is_mapped {
            memory.start = remap(memory.start, memory.layout.size(), size).ok_or_else(refused)?;
            count(memory.layout.size(), size);
            (memory.len, memory.layout) = (size, layout);
            return Ok(());
        }
        // Pages of the cached block need not be made again.
        let mut larger = match KEPT.take_mapped() {
            Some(Block { start, layout, .. }) => HostBuffer { start, len: layout.size(), layout, is_mapped: true },
            None => HostBuffer { start: map(size).ok_or_else(refused)?, len: size, layout, is_mapped: true },
        };
        if larger.len < size {
            larger.start = remap(larger.start, larger.len, size).ok_or_else(refused)?;
            count(larger.len, size);
            (larger.len, larger.layout) = (size, layout);
        }
        let written = memory.as_uninit_mut().get(..written).unwrap_or(&[]);
        if let Some(to) = larger.as_uninit_mut().get_mut(..written.len()) {
            to.copy_from_slice(written);
        }
        *memory = larger;
        Ok(())
    }

    /// Returns the huge pages behind the block's last byte to the system.
    pub(super) fn give_back_rest(memory: &mut HostBuffer) {
        let kept = memory.len.next_multiple_of(HUGE_PAGE);
        let Some(rest) = memory.layout.size().checked_sub(kept).filter(|rest| memory.is_mapped && *rest > 0) else {
            return;
        };
        let (Some(start), Ok(layout)) =
            (NonNull::new(memory.start.as_ptr().wrapping_add(kept)), Layout::from_size_align(kept, HUGE_PAGE))
        else {
            return;
        };
        memory.layout = layout;
        count(rest, 0);
        // SAFETY: the end of a mapping of ours, which the layout does not count any more.
        unsafe { unmap(start, rest) };
    }

    /// Maps fresh pages, on a huge page boundary if possible.
    fn map(size: usize) -> Option<NonNull<u8>> {
        let anywhere = pages(size)?;
        let start = if anywhere.addr().get().is_multiple_of(HUGE_PAGE) {
            anywhere
        } else {
            // SAFETY: the pages that were just mapped.
            unsafe { unmap(anywhere, size) };
            aligned(size).or_else(|| pages(size))?
        };
        advise_huge_pages(start, size);
        count(0, size);
        Some(start)
    }

    /// Maps fresh pages that begin on a huge page.
    fn aligned(size: usize) -> Option<NonNull<u8>> {
        let all = pages(size.checked_add(HUGE_PAGE)?)?;
        let before = all.addr().get().next_multiple_of(HUGE_PAGE) - all.addr().get();
        let start = NonNull::new(all.as_ptr().wrapping_add(before))?;
        let end = NonNull::new(start.as_ptr().wrapping_add(size))?;
        if before > 0 {
            // SAFETY: what lies before the aligned pages, of those that were just mapped.
            unsafe { unmap(all, before) };
        }
        // SAFETY: what lies behind the aligned pages, of those that were just mapped.
        unsafe { unmap(end, HUGE_PAGE - before) };
        Some(start)
    }

    fn pages(size: usize) -> Option<NonNull<u8>> {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let map = |size| {
            // SAFETY: asks for fresh pages, wherever the system puts them.
            let start = unsafe { libc::mmap(null_mut(), size, access, kind, -1, 0) };
            if start == libc::MAP_FAILED { None } else { NonNull::new(start.cast()) }
        };
        #[cfg(test)]
        if let Some(page) = injected::page_size() {
            return injected::on_a_page(page, size, map);
        }
        map(size)
    }

    /// Returns the same pages with more behind them, in place or moved. After a move, the old addresses are unmapped.
    fn remap(start: NonNull<u8>, old: usize, new: usize) -> Option<NonNull<u8>> {
        // SAFETY: a mapping of ours of the old size, which nobody has a reference to meanwhile.
        let moved = |flags| unsafe { libc::mremap(start.as_ptr().cast(), old, new, flags) };
        let is_there = |place: *mut libc::c_void| place != libc::MAP_FAILED;
        let in_place = moved(0);
        if is_there(in_place) {
            return Some(start);
        }
        // On a huge page boundary, because only there the huge pages move unchanged.
        if let Some(target) = aligned(new) {
            let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            // SAFETY: the old pages are a mapping of ours, which nobody has a reference to meanwhile; the target is
            // pages of ours that nobody uses, which are replaced.
            let place = unsafe { libc::mremap(start.as_ptr().cast(), old, new, flags, target.as_ptr()) };
            // If the call fails, the target is lost: the system unmaps it before it moves anything, and another thread
            // may have been given its addresses. No page of it was touched.
            if is_there(place) {
                return NonNull::new(place.cast());
            }
        }
        // A limit of the address space may not have room for both.
        let place = moved(libc::MREMAP_MAYMOVE);
        if is_there(place) { NonNull::new(place.cast()) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alloc::GrowingBuffer;
    use crate::alloc::block::HUGE_PAGES_FROM;
    use crate::alloc::page::injected;

    /// Bytes of a huge page where Miri does not make them few.
    const HUGE: usize = 2 << 20;

    /// Appends until the block has grown in place or moved, gives back what is too much, and compares every byte. Each change of a
    /// mapping asserts that it is of whole pages of the size that the thread was given.
    fn grown_and_truncated() -> HostBuffer {
        let mut buffer = GrowingBuffer::new().unwrap();
        let pieces = [100, HUGE_PAGES_FROM, 7, HUGE_PAGES_FROM / 2 + 5, 3 * HUGE_PAGES_FROM + 1];
        for (value, bytes) in (1..).zip(pieces) {
            let spare = buffer.spare(bytes).unwrap();
            // SAFETY: `spare` returned room for so many bytes.
            unsafe { spare.as_mut_ptr().write_bytes(value, bytes) };
            buffer.advance(bytes);
        }
        let buffer = buffer.into_buffer().unwrap();
        assert_eq!(buffer.len(), pieces.iter().sum::<usize>());
        // SAFETY: every byte was written above, and the buffer is this test's alone.
        let mut rest = unsafe { std::slice::from_raw_parts(buffer.as_ptr(), buffer.len()) };
        for (value, bytes) in (1..).zip(pieces) {
            let (piece, others) = rest.split_at(bytes);
            assert!(piece == vec![value; bytes], "{value}");
            rest = others;
        }
        buffer
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri maps nothing")]
    fn large_blocks_grow_and_shrink_by_whole_pages_of_any_size() {
        for page in injected::SIZES {
            injected::with(page, || {
                // Two at once, as the cache may have one block that another test mapped.
                for block in [grown_and_truncated(), grown_and_truncated()] {
                    assert_eq!(block.is_mapped, cfg!(target_os = "linux"), "{page}");
                    assert!(!block.is_mapped || block.layout.size().is_multiple_of(page), "{page}");
                }
            });
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri maps nothing")]
    fn nothing_is_mapped_where_pages_are_larger_than_blocks() {
        for page in [2 * HUGE, 256 * HUGE] {
            injected::with(page, || {
                let mut memory = HostBuffer::uninitialised(HUGE_PAGES_FROM).unwrap();
                let before = (memory.start, memory.len);
                assert!(!grow(&mut memory, 5, 2 * HUGE_PAGES_FROM, 2 * HUGE_PAGES_FROM).unwrap());
                assert_eq!((memory.start, memory.len), before);
                grown_and_truncated();
            });
        }
    }

    #[test]
    fn blocks_are_mapped_if_they_consist_of_the_systems_pages() {
        for page in injected::SIZES.into_iter().chain([HUGE]) {
            assert!(consists_of_pages(HUGE, page), "{page}");
        }
        for page in [2 * HUGE, 256 * HUGE] {
            assert!(!consists_of_pages(HUGE, page), "{page}");
        }
    }
}
