//! Launches the kernels for ragged rows: one measures them, one writes the index of each padded element, one moves where offsets begin.

use std::ffi::c_void;

use super::{DeviceBits, LANES};
use crate::cuda::context::Current;
use crate::cuda::driver::DevicePointer;
use crate::cuda::module::Kernel;
use crate::cuda::stream::Stream;
use crate::error::Result;

/// Set if offsets have 64 bits: `WIDE_OFFSETS` in kernel_types.cuh.
const WIDE_OFFSETS: u32 = 1;
/// Set if padding comes before the items: `PAD_FRONT` in kernel_types.cuh.
const PAD_FRONT: u32 = 2;
/// Set if rows are truncated at the front: `CUT_FRONT` in kernel_types.cuh.
const CUT_FRONT: u32 = 4;

/// Ragged rows as kernels read them, with the rules of their padding: `Rows` in kernel_types.cuh.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelRows {
    offsets: DevicePointer,
    lengths: DevicePointer,
    validity: DevicePointer,
    validity_bit: u32,
    flags: u32,
    length: u64,
    per_item: u64,
}

const _: () = assert!(size_of::<KernelRows>() == 48 && align_of::<KernelRows>() == 8);

impl KernelRows {
    /// The number of results of [`Current::measure_rows`].
    pub(crate) const NUMBERS: usize = 6;

    /// Returns rows of these offsets and sizes, of any alignment, without padding.
    ///
    /// # Errors
    /// If an address exceeds 64 bits.
    pub(crate) fn new(
        (offsets, lengths): (DevicePointer, Option<DevicePointer>),
        is_wide: bool,
        validity: Option<DeviceBits>,
    ) -> Result<Self> {
        let (validity, validity_bit) = validity.map_or(Ok((0, 0)), DeviceBits::split)?;
        let flags = if is_wide { WIDE_OFFSETS } else { 0 };
        Ok(Self { offsets, lengths: lengths.unwrap_or(0), validity, validity_bit, flags, length: 0, per_item: 1 })
    }

    /// Returns the same rows, padded to `length` items of `per_item` elements.
    pub(crate) fn padded(self, length: u64, per_item: u64, (pads_front, cuts_front): (bool, bool)) -> Self {
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let flags = self.flags | flag(pads_front, PAD_FRONT) | flag(cuts_front, CUT_FRONT);
        Self { flags, length, per_item, ..self }
    }
}

/// What [`Current::place_rows`] writes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PlacedElements {
    /// The number of elements of all items.
    pub(crate) limit: u64,
    /// Which of them are valid; `None` if all are.
    pub(crate) validity: Option<DeviceBits>,
    /// The output of 32-bit codes, if asked for; `limit` is less than the largest of these.
    pub(crate) narrow: Option<DevicePointer>,
    /// The output of 64-bit codes, if asked for.
    pub(crate) wide: Option<DevicePointer>,
    /// The output of bools, if asked for.
    pub(crate) mask: Option<DevicePointer>,
}

// `Launch` invariant, as in `kernels.rs`: each list of parameters has the types and the order of its kernel in kernel_ragged.cuh.
impl Current {
    /// Lowers the six 64-bit numbers from `found` on to what it finds in the rows, and writes to `kept` how many items each row keeps, at
    /// most `most`. The numbers are the complement of the largest length, the first row whose offsets are out of bounds of `items`, the
    /// first row with more items than `most`, the first null row, the complement of the largest end, and the first null row with items.
    ///
    /// # Errors
    /// As [`Current::unpack_bits`].
    ///
    /// # Safety
    /// The offsets, lengths and bits of `count` rows, the numbers and as many 64-bit integers, which are aligned, are memory of this
    /// device until the kernel is done.
    pub(crate) unsafe fn measure_rows(
        &self,
        rows: &KernelRows,
        count: u64,
        (items, most): (u64, u64),
        (found, kept): (Option<DevicePointer>, Option<DevicePointer>),
        stream: Stream,
    ) -> Result<()> {
        let (found, kept) = (found.unwrap_or(0), kept.unwrap_or(0));
        let mut parameters = parameters![*rows, count, items, most, found, kept];
        // SAFETY: `Launch` invariant; what the rows name, the numbers and the integers are memory of this device, as promised.
        unsafe { self.launch(Kernel::MeasureRows, (count, 1), &mut parameters, stream) }
    }

    /// Writes for each of `count` elements of padded rows its index among the elements of all items, and whether it exists and is valid.
    ///
    /// # Errors
    /// As [`Current::unpack_bits`].
    ///
    /// # Safety
    /// The offsets, lengths and bits of the rows, a bit for each element of the items, and `count` of what is written, aligned, are
    /// memory of this device until the kernel is done.
    pub(crate) unsafe fn place_rows(
        &self,
        rows: &KernelRows,
        count: u64,
        places: &PlacedElements,
        stream: Stream,
    ) -> Result<()> {
        let PlacedElements { limit, validity, narrow, wide, mask } = *places;
        let (validity, first_bit) = validity.map_or((0, 0), |bits| (bits.bitmap, bits.first));
        let (narrow, wide, mask) = (narrow.unwrap_or(0), wide.unwrap_or(0), mask.unwrap_or(0));
        let width = rows.length.saturating_mul(rows.per_item);
        let pieces = count.checked_div(width).unwrap_or(0).saturating_mul(width.div_ceil(LANES));
        let mut parameters = parameters![*rows, count, limit, validity, first_bit, narrow, wide, mask];
        // SAFETY: `Launch` invariant; what the rows name, the bits and the output are memory of this device, as promised.
        unsafe { self.launch(Kernel::PlaceRows, (pieces, 1), &mut parameters, stream) }
    }

    /// Writes `count` integers of 64 bits if they are `wide`, else of 32, from `from` on, with `shift` added to each, wrapping.
    ///
    /// # Errors
    /// As [`Current::unpack_bits`].
    ///
    /// # Safety
    /// The integers and the output, which are aligned and do not overlap, are memory of this device until the kernel is done.
    pub(crate) unsafe fn shift_offsets(
        &self,
        from: DevicePointer,
        (count, is_wide): (u64, bool),
        shift: u64,
        out: DevicePointer,
        stream: Stream,
    ) -> Result<()> {
        let wide = u32::from(is_wide);
        let mut parameters = parameters![from, count, wide, shift, out];
        // SAFETY: `Launch` invariant; the integers and the output are memory of this device, as promised.
        unsafe { self.launch(Kernel::ShiftOffsets, (count, 1), &mut parameters, stream) }
    }
}
