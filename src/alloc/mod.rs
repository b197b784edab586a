//! Host memory for results: aligned to 64 bytes, which JAX requires, and in huge pages if it is large.
#![allow(unsafe_code, reason = "allocates, advises and frees memory")]

mod block;
mod block_cache;
// Without Python, only mapped pages are counted, and other systems map none.
#[cfg(any(feature = "python", all(target_os = "linux", not(miri))))]
mod counted;
pub(crate) mod fallible;
mod foreign;
mod growing;
mod mapped;
mod page;
mod pages;
mod pool;
mod self_cell;

use std::alloc::{Layout, alloc};
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;

#[cfg(feature = "python")]
pub use counted::CountingAllocator;
pub(crate) use foreign::{AnyBuffer, ForeignBuffer};
pub(crate) use growing::GrowingBuffer;
#[cfg(test)]
pub(crate) use page::injected;
pub(crate) use page::page_size;
pub(crate) use pool::{BlockPool, BlockSource, PooledBuffer};
pub(crate) use self_cell::{Borrower, SelfCell};

use crate::error::Result;
use block::{Block, HUGE_PAGE, HUGE_PAGES_FROM};
use block_cache::KEPT;
use fallible::{is_beyond_memory, out_of_memory};

/// Keeps memory alive until the last clone is dropped, on any thread.
pub type Owner = Arc<dyn Send + Sync>;

/// The alignment of every allocation, in bytes.
pub(crate) const ALIGNMENT: usize = 64;

/// The most bytes of anything, because no processor has user addresses of more bits.
const ADDRESSABLE: u64 = 1 << 56;

/// Returns whether memory of this many bytes can start at this address.
pub(crate) fn is_addressable(start: usize, bytes: usize) -> bool {
    // Memory that starts behind address 0 has at least one byte less.
    let most = ADDRESSABLE - u64::from(start > 0);
    u64::try_from(bytes).is_ok_and(|bytes| bytes <= most)
        && start.checked_add(bytes).is_some_and(|end| isize::try_from(end).is_ok())
}

/// Frees the cached block, and returns the bytes of host memory in use that were allocated since the first call, less older
/// ones that were freed.
#[cfg(feature = "python")]
pub(crate) fn bytes_in_use() -> isize {
    KEPT.clear();
    counted::bytes_in_use()
}

/// An owned, aligned block of host memory. Its bytes are uninitialised until its creator has written them.
#[derive(Debug)]
pub(crate) struct HostBuffer {
    start: NonNull<u8>,
    len: usize,
    /// The allocated bytes, which can be more.
    layout: Layout,
    /// Whether the block is mapped from the system, not from the global allocator.
    is_mapped: bool,
}

// SAFETY: the block is owned by this value alone, and a shared reference only gives its address.
unsafe impl Send for HostBuffer {}
// SAFETY: a shared reference only gives the block's address and size.
unsafe impl Sync for HostBuffer {}

impl HostBuffer {
    /// Allocates `len` uninitialised bytes.
    ///
    /// # Errors
    /// If the allocation fails. Nothing else changes then.
    pub(crate) fn uninitialised(len: usize) -> Result<Self> {
        let refused = || out_of_memory(len);
        let alignment = if len >= HUGE_PAGES_FROM { HUGE_PAGE } else { ALIGNMENT };
        // The system would back an incomplete huge page with small ones, one by one.
        let whole =
            if len >= HUGE_PAGES_FROM { len.checked_next_multiple_of(HUGE_PAGE).ok_or_else(refused)? } else { len };
        let layout = Layout::from_size_align(whole, alignment).map_err(|_| refused())?;
        if len == 0 {
            // Aligned, never dereferenced, never freed.
            let start = NonNull::new(std::ptr::without_provenance_mut(alignment)).ok_or_else(refused)?;
            return Ok(Self { start, len, layout, is_mapped: false });
        }
        if is_beyond_memory(len) {
            return Err(refused());
        }
        if let Some(Block { start, layout, is_mapped }) = KEPT.take(len) {
            return Ok(Self { start, len, layout, is_mapped });
        }
        // SAFETY: the layout's size is not 0.
        let allocate = || NonNull::new(unsafe { alloc(layout) });
        let start = allocate().or_else(|| if KEPT.clear() { allocate() } else { None }).ok_or_else(refused)?;
        advise_huge_pages(start, whole);
        Ok(Self { start, len, layout, is_mapped: false })
    }

    /// Returns the address of the first byte, never NULL.
    #[must_use]
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Size in bytes.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether the size is 0.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Lets the system take the pages of a large block until they are written again. The contents may be lost.
    pub(crate) fn offer_pages(&mut self) {
        if self.layout.align() == HUGE_PAGE {
            // A refusal changes nothing.
            _ = Block { start: self.start, layout: self.layout, is_mapped: self.is_mapped }.offer_pages();
        }
    }

    /// Tells the system that pages which were offered are in use again.
    pub(crate) fn reuse_pages(&mut self) {
        if self.layout.align() == HUGE_PAGE {
            Block { start: self.start, layout: self.layout, is_mapped: self.is_mapped }.reuse_pages();
        }
    }

    /// The bytes, to be written.
    pub(crate) fn as_uninit_mut(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: the block has `len` bytes or more (or is empty and aligned), is borrowed exclusively, and MaybeUninit needs
        // no initialisation.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().cast(), self.len()) }
    }
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        if !self.is_empty() {
            let block = Block { start: self.start, layout: self.layout, is_mapped: self.is_mapped };
            // SAFETY: `start` came from `alloc` with this layout, or is so many mapped bytes, and nothing else frees it or uses it
            // any more.
            unsafe { KEPT.keep(block) };
        }
    }
}

/// From a few megabytes on, first-touch page faults cost more than most conversions; huge pages divide their number by
/// 512.
#[cfg(all(target_os = "linux", not(miri)))]
fn advise_huge_pages(start: NonNull<u8>, len: usize) {
    if len >= HUGE_PAGES_FROM {
        // SAFETY: the range was just allocated by us; MADV_HUGEPAGE changes no contents, and a refusal changes nothing.
        unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_HUGEPAGE) };
    }
}

#[cfg(any(not(target_os = "linux"), miri))]
fn advise_huge_pages(_start: NonNull<u8>, _len: usize) {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn every_size_is_aligned_and_writable() {
        for len in [0, 1, 63, 64, 4096, HUGE_PAGES_FROM - 1, HUGE_PAGES_FROM, HUGE_PAGES_FROM + 5] {
            let mut buffer = HostBuffer::uninitialised(len).unwrap();
            assert_eq!(buffer.as_ptr().addr() % ALIGNMENT, 0);
            assert_eq!((buffer.len(), buffer.is_empty()), (len, len == 0));
            for byte in buffer.as_uninit_mut() {
                byte.write(7);
            }
        }
        let large = HostBuffer::uninitialised(HUGE_PAGES_FROM + 5).unwrap();
        assert_eq!((large.as_ptr().addr() % HUGE_PAGE, large.layout.size() % HUGE_PAGE), (0, 0));
    }

    #[test]
    fn memory_ends_inside_the_address_space() {
        for (start, bytes) in [(0, 0), (0x1000, (1 << 56) - 1), (isize::MAX as usize, 0), (isize::MAX as usize - 8, 8)]
        {
            assert!(is_addressable(start, bytes), "{start} {bytes}");
        }
        for (start, bytes) in
            [(0x1000, 1 << 56), (0, (1 << 56) + 1), (usize::MAX, 0), (usize::MAX, 1), (isize::MAX as usize - 8, 9)]
        {
            assert!(!is_addressable(start, bytes), "{start} {bytes}");
        }
    }

    #[test]
    fn what_cannot_be_had_is_an_error() {
        for len in [usize::MAX, isize::MAX as usize, isize::MAX as usize - HUGE_PAGE] {
            assert_eq!(HostBuffer::uninitialised(len).unwrap_err().kind(), ErrorKind::Memory);
        }
    }
}
