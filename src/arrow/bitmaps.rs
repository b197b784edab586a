//! Where are the bits of a validity bitmap, and which elements do they belong to?

/// A validity bitmap that applies to a run of elements: a bit for each `repeat` of them.
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
    /// How many bits an element has: it is valid where all are set. 1 unless `repeat` is.
    pub(super) group: usize,
    /// How many of the bits are not set, where the array says so; more than 0.
    pub(super) nulls: Option<usize>,
}

impl ValidityBits {
    /// Some of the bits.
    pub(super) fn slice(self, start: usize, length: usize) -> Self {
        let nulls = self.nulls.filter(|_| length == self.length);
        Self { offset: self.offset.saturating_add(start), length, nulls, ..self }
    }

    /// Where the bytes start that have the bits, and how many they are.
    pub(super) fn bytes(&self) -> (*const u8, usize) {
        // Whole bytes inside the offset are skipped.
        (self.start.wrapping_add(self.offset / 8), (self.offset % 8 + self.length).div_ceil(8))
    }
}

/// A bitmap on a device, of one level of a column: see [`ValidityBits`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct BitmapLevel {
    /// The address of the byte that has the first bit.
    pub(crate) start: usize,
    /// How many bytes have the bits.
    pub(crate) bytes: usize,
    /// The number of the first bit in the first byte.
    pub(crate) first_bit: usize,
    /// How many elements share their bits.
    pub(crate) repeat: usize,
    /// How many bits these are.
    pub(crate) group: usize,
}

/// A validity bitmap as it lies in memory.
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

    /// The position of the first slot's bit in the first byte.
    pub(crate) fn first_bit(&self) -> usize {
        self.first_bit
    }
}
