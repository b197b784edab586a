//! Keeps the last large block that was freed for the next result of its size, because fresh pages cost as much as
//! filling them.
//!
//! One block a process, 256 MiB at most. The system may take its pages when memory is short (`pages.rs`). `take` and
//! `keep` exchange one pointer: no lock can be left behind by a fork, and a child process has its own copy.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::block::{Block, HUGE_PAGE, HUGE_PAGES_FROM};

/// Larger blocks are freed at once.
const MOST: usize = 256 << 20;

/// The block that this process caches.
pub(super) static KEPT: CacheSlot = CacheSlot::new();

/// Room for one block.
#[derive(Debug)]
pub(super) struct CacheSlot(AtomicPtr<Block>);

impl CacheSlot {
    const fn new() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    /// Takes the cached block, if it has at least `len` bytes and not many more.
    pub(super) fn take(&self, len: usize) -> Option<Block> {
        if !(HUGE_PAGES_FROM..=MOST).contains(&len) {
            return None;
        }
        let block = self.exchange(None)?;
        if (len..=len + len / 4).contains(&block.layout.size()) {
            block.reuse_pages();
            return Some(block);
        }
        self.put(block);
        None
    }

    /// Takes the cached block of any size, if it is mapped: it can grow, and return what is too much.
    #[cfg(all(target_os = "linux", not(miri)))]
    pub(super) fn take_mapped(&self) -> Option<Block> {
        let block = self.exchange(None)?;
        if block.is_mapped {
            block.reuse_pages();
            return Some(block);
        }
        self.put(block);
        None
    }

    /// Caches a block for [`CacheSlot::take`] in place of the cached one, or frees it.
    ///
    /// # Safety
    /// As [`Block::free`].
    pub(super) unsafe fn keep(&self, block: Block) {
        let size = block.layout.size();
        if (HUGE_PAGES_FROM..=MOST).contains(&size) && block.layout.align() == HUGE_PAGE && block.offer_pages() {
            self.put(block);
        } else {
            // SAFETY: where `start` is from, and that nobody uses it, is promised in the same words.
            unsafe { block.free() };
        }
    }

    /// Frees the cached block. Returns whether there was one.
    pub(super) fn clear(&self) -> bool {
        let Some(block) = self.exchange(None) else { return false };
        // SAFETY: what `keep` was promised of each block: where `start` is from. The exchange took it out, so nobody
        // else uses it.
        unsafe { block.free() };
        true
    }

    /// Puts a block into the slot: one that was cached before, or a new one.
    fn put(&self, block: Block) {
        if let Some(other) = self.exchange(Some(block)) {
            // SAFETY: what `keep` was promised of each block: where `start` is from. The exchange took it out, so
            // nobody else uses it.
            unsafe { other.free() };
        }
    }

    fn exchange(&self, block: Option<Block>) -> Option<Block> {
        let new = block.map_or(null_mut(), |block| Box::into_raw(Box::new(block)));
        let old = self.0.swap(new, Ordering::AcqRel);
        // SAFETY: a box that an earlier exchange put there, and that this one alone took out.
        (!old.is_null()).then(|| *unsafe { Box::from_raw(old) })
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::Layout;
    use std::ptr::NonNull;

    use super::*;

    impl Drop for CacheSlot {
        fn drop(&mut self) {
            self.clear();
        }
    }

    fn block(size: usize) -> Block {
        let layout = Layout::from_size_align(size, HUGE_PAGE).unwrap();
        // SAFETY: the size is not 0.
        Block { start: NonNull::new(unsafe { std::alloc::alloc(layout) }).unwrap(), layout, is_mapped: false }
    }

    /// Caches a block, and returns its address.
    fn kept(slot: &CacheSlot, size: usize) -> usize {
        let block = block(size);
        let address = block.start.addr().get();
        // SAFETY: just made, and nobody else's.
        unsafe { slot.keep(block) };
        address
    }

    /// Takes a block, and frees it.
    fn taken(slot: &CacheSlot, len: usize) -> Option<usize> {
        let block = slot.take(len)?;
        assert!(block.layout.size() >= len);
        let address = block.start.addr().get();
        // SAFETY: just taken out, and nobody else's.
        unsafe { block.free() };
        Some(address)
    }

    #[test]
    fn the_last_block_is_taken_once_by_a_result_of_its_size() {
        let slot = CacheSlot::new();
        assert_eq!(taken(&slot, HUGE_PAGES_FROM), None);
        kept(&slot, HUGE_PAGES_FROM);
        let last = kept(&slot, HUGE_PAGES_FROM + 1000);
        assert_eq!((taken(&slot, HUGE_PAGES_FROM + 1001), taken(&slot, HUGE_PAGES_FROM - 1)), (None, None));
        assert_eq!((taken(&slot, HUGE_PAGES_FROM), taken(&slot, HUGE_PAGES_FROM)), (Some(last), None));
    }

    #[test]
    fn little_is_not_kept_nor_very_much_and_no_result_takes_what_is_far_too_large() {
        let slot = CacheSlot::new();
        for size in [HUGE_PAGES_FROM - 1, MOST + 1] {
            kept(&slot, size);
            assert!(!slot.clear(), "{size}");
        }
        let address = kept(&slot, 2 * HUGE_PAGES_FROM);
        assert_eq!(taken(&slot, HUGE_PAGES_FROM), None);
        assert_eq!(taken(&slot, 2 * HUGE_PAGES_FROM - HUGE_PAGES_FROM / 4), Some(address));
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn a_block_that_is_not_mapped_is_not_taken_to_grow() {
        let slot = CacheSlot::new();
        let address = kept(&slot, HUGE_PAGES_FROM);
        assert!(slot.take_mapped().is_none());
        assert_eq!(taken(&slot, HUGE_PAGES_FROM), Some(address), "it stays in the cache");
    }

    #[test]
    fn threads_never_get_the_same_block() {
        let slot = CacheSlot::new();
        std::thread::scope(|scope| {
            for byte in 0..4_u8 {
                let slot = &slot;
                scope.spawn(move || {
                    for _ in 0..if cfg!(miri) { 4 } else { 200 } {
                        let mine = slot.take(HUGE_PAGES_FROM).unwrap_or_else(|| block(HUGE_PAGES_FROM));
                        // SAFETY: the block has `HUGE_PAGES_FROM` bytes, and is this thread's alone.
                        let bytes = unsafe { std::slice::from_raw_parts_mut(mine.start.as_ptr(), 64) };
                        bytes.fill(byte);
                        std::thread::yield_now();
                        assert!(bytes.iter().all(|found| *found == byte));
                        // SAFETY: as `take` or `block` gave it, and nobody else's.
                        unsafe { slot.keep(mine) };
                    }
                });
            }
        });
    }
}
