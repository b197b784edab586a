//! Locates the bits of validity bitmaps, and the elements that they belong to.

use std::ops::Range;

use crate::alloc::Owner;
use crate::error::Result;
use crate::stream_order::Readiness;

/// A validity bitmap over some elements, with a bit for each `repeat` of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValidityBits {
    /// The bitmap.
    pub(super) start: *const u8,
    /// The first bit.
    pub(super) offset: usize,
    /// How many bits.
    pub(super) length: usize,
    /// How many elements share a bit.
    pub(super) repeat: usize,
    /// The number of bits per element, which is valid if all are set. 1 unless `repeat` is 1.
    pub(super) group: usize,
    /// The number of unset bits, if the array counts them; more than 0.
    pub(super) nulls: Option<usize>,
}

impl ValidityBits {
    /// Some of the bits.
    pub(super) fn slice(self, start: usize, length: usize) -> Self {
        let nulls = self.nulls.filter(|_| length == self.length);
        Self { offset: self.offset.saturating_add(start), length, nulls, ..self }
    }

    /// Returns the address of the bytes that hold the bits, and their number.
    pub(super) fn bytes(&self) -> (*const u8, usize) {
        // Whole bytes of the offset are skipped.
        (self.start.wrapping_add(self.offset / 8), (self.offset % 8 + self.length).div_ceil(8))
    }

    /// Returns where a device finds them.
    pub(super) fn level(&self) -> BitmapLevel {
        let (start, bytes) = self.bytes();
        let (repeat, group) = (self.repeat, self.group);
        BitmapLevel { start: start.addr(), bytes, first_bit: self.offset % 8, repeat, group }
    }

    /// Returns the address of the bits.
    pub(super) fn range(&self) -> BitRange {
        BitRange { start: self.bytes().0.addr(), first_bit: self.offset % 8, count: self.length }
    }
}

/// The address of bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BitRange {
    /// The address of the byte with the first bit.
    pub(crate) start: usize,
    /// The position of the first bit in that byte, less than 8.
    pub(crate) first_bit: usize,
    /// How many bits.
    pub(crate) count: usize,
}

impl BitRange {
    /// Returns the addresses of the bytes that hold the bits.
    pub(crate) fn bytes(&self) -> Range<usize> {
        self.start..self.start.saturating_add(self.first_bit.saturating_add(self.count).div_ceil(8))
    }
}

/// One level's bitmap on a device: see [`ValidityBits`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct BitmapLevel {
    /// The address of the byte with the first bit.
    pub(crate) start: usize,
    /// How many bytes have the bits.
    pub(crate) bytes: usize,
    /// The position of the first bit in the first byte.
    pub(crate) first_bit: usize,
    /// The number of elements that share their bits.
    pub(crate) repeat: usize,
    /// How many bits these are.
    pub(crate) group: usize,
}

/// A validity bitmap in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BitmapBytes {
    pub(super) start: *const u8,
    pub(super) bytes: usize,
    pub(super) first_bit: usize,
}

impl BitmapBytes {
    /// Where its bytes start.
    pub(crate) fn start(&self) -> *const u8 {
        self.start
    }

    /// How many bytes have the bits.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// The addresses of these bytes.
    pub(crate) fn range(&self) -> Range<usize> {
        let start = self.start.addr();
        start..start.saturating_add(self.bytes)
    }

    /// The position of the first slot's bit in the first byte.
    pub(crate) fn first_bit(&self) -> usize {
        self.first_bit
    }
}

/// Bitmaps in memory of a device that kernels have made; each starts at the first bit of a byte.
#[derive(Clone)]
pub(crate) struct DeviceBitmaps {
    /// The address of the first one.
    pub(crate) start: usize,
    /// Bytes from one to the next.
    pub(crate) pitch: usize,
    pub(crate) owner: Owner,
    /// When they are written.
    pub(crate) readiness: Readiness,
}

impl DeviceBitmaps {
    /// Returns the first byte of a column's bits.
    pub(crate) fn column(&self, index: usize) -> *const u8 {
        std::ptr::without_provenance(self.start.wrapping_add(index.wrapping_mul(self.pitch)))
    }
}

/// Joins the bitmaps of so many elements into one for each column, on their device; `None` if nothing can.
pub(crate) type JoinBits = fn(&Readiness, &[Vec<BitmapLevel>], usize) -> Result<Option<DeviceBitmaps>>;
