//! Counts the bytes of host memory in use, for tests that look for leaks: those of the global allocator, and mapped pages.

#[cfg(feature = "python")]
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Stays false in processes that never ask: there an allocation costs one more load.
static IS_COUNTING: AtomicBool = AtomicBool::new(false);
/// Wraps below 0 where blocks are freed that are older than the count.
static IN_USE: AtomicUsize = AtomicUsize::new(0);

/// Returns the bytes in use that were allocated since the first call, less older ones that were freed.
#[cfg(feature = "python")]
pub(super) fn bytes_in_use() -> isize {
    IS_COUNTING.store(true, Ordering::Relaxed);
    IN_USE.load(Ordering::Relaxed).cast_signed()
}

/// Counts a block of `to` bytes in place of one of `from`.
#[inline(always)]
pub(super) fn count(from: usize, to: usize) {
    if IS_COUNTING.load(Ordering::Relaxed) {
        IN_USE.fetch_add(to.wrapping_sub(from), Ordering::Relaxed);
    }
}

/// The system's allocator for the `#[global_allocator]` of an extension module that registers the Python classes. It counts
/// the bytes in use once a test has asked for them (`_native._host_memory()`); before that it costs one load per call.
#[cfg(feature = "python")]
#[derive(Clone, Copy, Debug, Default)]
pub struct CountingAllocator;

// SAFETY: `GlobalAlloc` asks for blocks that fit their layout, are live until they are freed, and are freed by the allocator
// that made them, without unwinding. Each call is the system allocator's of the same name with the same arguments, so it
// discharges all three; to count changes two atomics, which neither allocates nor unwinds.
#[cfg(feature = "python")]
unsafe impl GlobalAlloc for CountingAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the size is not 0: promised to this function in the same words.
        let start = unsafe { System.alloc(layout) };
        count(0, if start.is_null() { 0 } else { layout.size() });
        start
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the size is not 0: promised to this function in the same words.
        let start = unsafe { System.alloc_zeroed(layout) };
        count(0, if start.is_null() { 0 } else { layout.size() });
        start
    }

    #[inline]
    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        count(layout.size(), 0);
        // SAFETY: the block came from this allocator with this layout, promised in the same words; this allocator's blocks
        // are the system's.
        unsafe { System.dealloc(start, layout) };
    }

    #[inline]
    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the block came from this allocator with this layout, and the new size is neither 0 nor, once aligned,
        // beyond `isize::MAX`: promised in the same words; this allocator's blocks are the system's.
        let moved = unsafe { System.realloc(start, layout, size) };
        count(layout.size(), if moved.is_null() { layout.size() } else { size });
        moved
    }
}

#[cfg(all(test, feature = "python"))]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_counted_until_they_are_freed() {
        // No other test counts: mapped pages of tests beside this one are whole huge pages.
        let before = bytes_in_use();
        let since = || (bytes_in_use() - before).rem_euclid(1 << 12);
        let layout = |size| Layout::from_size_align(size, 8).unwrap();
        // SAFETY: the size is not 0.
        let one = unsafe { CountingAllocator.alloc(layout(100)) };
        // SAFETY: the size is not 0.
        let two = unsafe { CountingAllocator.alloc_zeroed(layout(50)) };
        assert_eq!(since(), 150);
        // SAFETY: the block of 100 bytes from above, with its layout; 300 is neither 0 nor too large.
        let one = unsafe { CountingAllocator.realloc(one, layout(100), 300) };
        assert_eq!(since(), 350);
        // SAFETY: the block as it is now, with its layout.
        unsafe { CountingAllocator.dealloc(one, layout(300)) };
        // SAFETY: the other block from above, with its layout.
        unsafe { CountingAllocator.dealloc(two, layout(50)) };
        assert_eq!(since(), 0);
    }
}
