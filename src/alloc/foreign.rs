//! Host memory from another allocator, such as page-locked memory.

use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use super::{HostBuffer, Owner};

/// A block of host memory that its owner frees.
pub(crate) struct ForeignBuffer {
    start: NonNull<u8>,
    len: usize,
    _owner: Owner,
}

// SAFETY: the block is this value's alone by `# Safety` of `new`, and a shared reference only gives its address.
unsafe impl Send for ForeignBuffer {}
// SAFETY: a shared reference only gives the block's address and size.
unsafe impl Sync for ForeignBuffer {}

impl ForeignBuffer {
    /// # Safety
    /// `start` is the address of `len` bytes, aligned to [`super::ALIGNMENT`], that stay as long as `owner` lives and that
    /// nobody else uses meanwhile.
    pub(crate) unsafe fn new(start: NonNull<u8>, len: usize, owner: Owner) -> Self {
        Self { start, len, _owner: owner }
    }
}

impl fmt::Debug for ForeignBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForeignBuffer").field("start", &self.start).field("len", &self.len).finish_non_exhaustive()
    }
}

/// A block of host memory from any allocator.
#[derive(Debug)]
pub(crate) enum AnyBuffer {
    /// Ordinary memory.
    Own(HostBuffer),
    /// Another allocator's.
    Foreign(ForeignBuffer),
}

impl AnyBuffer {
    /// Returns the address of the first byte, never NULL.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        match self {
            Self::Own(buffer) => buffer.as_ptr(),
            Self::Foreign(buffer) => buffer.start.as_ptr(),
        }
    }

    /// Size in bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Own(buffer) => buffer.len(),
            Self::Foreign(buffer) => buffer.len,
        }
    }

    /// Lets the system take the pages of large ordinary memory until they are written again. The contents may be lost.
    pub(crate) fn offer_pages(&mut self) {
        if let Self::Own(buffer) = self {
            buffer.offer_pages();
        }
    }

    /// Tells the system that pages which were offered are in use again.
    pub(crate) fn reuse_pages(&mut self) {
        if let Self::Own(buffer) = self {
            buffer.reuse_pages();
        }
    }

    /// The bytes, to be written.
    pub(crate) fn as_uninit_mut(&mut self) -> &mut [MaybeUninit<u8>] {
        match self {
            Self::Own(buffer) => buffer.as_uninit_mut(),
            // SAFETY: `new` was promised `len` aligned bytes that stay while the owner lives and are nobody else's;
            // they are borrowed exclusively, and MaybeUninit needs no initialisation.
            Self::Foreign(buffer) => unsafe {
                std::slice::from_raw_parts_mut(buffer.start.as_ptr().cast(), buffer.len)
            },
        }
    }
}
