//! What does a buffer of a copy hold: bytes of the array at which addresses, or others?

use std::ops::Range;

use super::foreign::buffer;
use crate::alloc::is_addressable;
use crate::error::{Error, Result};
use crate::ffi::arrow_device::ArrowArray;

/// What a buffer of the copy holds.
#[derive(Debug)]
pub(crate) enum Piece {
    /// The bytes at these addresses, in the memory of the array.
    OfArray(Range<usize>),
    /// The offsets at these addresses, of 32 or 64 bits, from which `first` is subtracted.
    Offsets { range: Range<usize>, wide: bool, first: i64 },
    /// These bytes.
    Made(Vec<u8>),
}

impl Piece {
    /// How many bytes there are.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::OfArray(range) | Self::Offsets { range, .. } => range.len(),
            Self::Made(bytes) => bytes.len(),
        }
    }
}

/// Subtracts the first offset from each of them.
pub(crate) fn rebase(offsets: &mut [u8], wide: bool, first: i64) {
    if wide {
        for offset in offsets.as_chunks_mut().0 {
            *offset = i64::from_ne_bytes(*offset).wrapping_sub(first).to_ne_bytes();
        }
    } else {
        // `first` is one of these offsets, so it fits 32 bits.
        let first = i32::try_from(first).unwrap_or(0);
        for offset in offsets.as_chunks_mut().0 {
            *offset = i32::from_ne_bytes(*offset).wrapping_sub(first).to_ne_bytes();
        }
    }
}

/// Returns the address of a buffer, 0 if there is none. Its provenance is exposed, because the bytes are read by address.
pub(super) fn exposed(array: &ArrowArray, index: usize) -> usize {
    buffer(array, index).map_or(0, <*const u8>::expose_provenance)
}

/// Returns the addresses of `count` slots of `width` bytes, from slot `first` on.
pub(super) fn range(start: usize, first: usize, count: usize, width: usize) -> Result<Range<usize>> {
    let beyond = || Error::invalid("a buffer reaches beyond the address space");
    let (before, bytes) = (first.checked_mul(width).ok_or_else(beyond)?, count.checked_mul(width).ok_or_else(beyond)?);
    let start = start.checked_add(before).ok_or_else(beyond)?;
    if !is_addressable(start, bytes) {
        return Err(beyond());
    }
    Ok(start..start + bytes)
}

/// Like [`range`], as a piece to be copied; `None` if it is empty.
pub(super) fn bytes(start: usize, first: usize, count: usize, width: usize) -> Result<Option<Piece>> {
    if count == 0 || width == 0 {
        return Ok(None);
    }
    if start == 0 {
        return Err(Error::invalid("a buffer is NULL that rows need"));
    }
    Ok(Some(Piece::OfArray(range(start, first, count, width)?)))
}
