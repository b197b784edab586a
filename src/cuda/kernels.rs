//! Launches the kernels of kernels.cu and its headers on a stream. Checks sizes; the caller vouches for the memory.

use std::ffi::c_void;

use super::context::Current;
use super::driver::DevicePointer;
use super::module::Kernel;
use super::stream::Stream;
use crate::dtype::DType;
use crate::error::{Error, Result};

/// The words of a launch's parameter: `TABLE_WORDS` in kernel_types.cuh.
const TABLE_WORDS: usize = 480;
/// The vectors that a thread of unpack_bits writes in one step: `ROUNDS` in kernel_types.cuh.
const ROUNDS: u64 = 2;
/// The elements of a column that a thread casts, and those of a row that a thread of place_rows writes: `LANES` in kernel_types.cuh.
const LANES: u64 = 4;
/// What a store writes at once.
const VECTOR: u64 = 16;

/// Set beside the dtype of a column whose elements codes stand for: `GATHERED` in kernel_types.cuh.
const GATHERED: u32 = 32;
/// Set beside the dtype of a column of codes that are null where their values are: `CODES` in kernel_types.cuh.
const CODES: u32 = 64;
/// Set beside [`GATHERED`] if a code without a value stands for padding: `PADDED` in kernel_types.cuh.
const PADDED: u32 = 128;
/// Where the scale of decimals is beside their dtype: `SCALE_SHIFT` in kernel_types.cuh.
const SCALE_SHIFT: u32 = 8;

/// The elements of a column: `DType` in kernel_types.cuh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs, reason = "named as the dtypes")]
pub(crate) enum ColumnType {
    /// A bit each.
    Bits = 0,
    /// One byte each, true unless it is 0.
    Bool = 1,
    Int8 = 2,
    Int16 = 3,
    Int32 = 4,
    Int64 = 5,
    UInt8 = 6,
    UInt16 = 7,
    UInt32 = 8,
    UInt64 = 9,
    Float16 = 10,
    BFloat16 = 11,
    Float32 = 12,
    Float64 = 13,
    /// As many bytes as an element of the output, copied unchanged.
    Same = 14,
    /// Integers with a scale, of 4 bytes.
    Decimal32 = 15,
    Decimal64 = 16,
    Decimal128 = 17,
}

impl ColumnType {
    /// Returns the elements of a dtype that casts support; `None` for others.
    pub(crate) const fn of(dtype: DType) -> Option<Self> {
        Some(match dtype {
            DType::Bool => Self::Bool,
            DType::Int8 => Self::Int8,
            DType::Int16 => Self::Int16,
            DType::Int32 => Self::Int32,
            DType::Int64 => Self::Int64,
            DType::UInt8 => Self::UInt8,
            DType::UInt16 => Self::UInt16,
            DType::UInt32 => Self::UInt32,
            DType::UInt64 => Self::UInt64,
            DType::Float16 => Self::Float16,
            DType::BFloat16 => Self::BFloat16,
            DType::Float32 => Self::Float32,
            DType::Float64 => Self::Float64,
            _ => return None,
        })
    }

    /// Returns integers with a scale, of this number of bytes; `None` for numbers that kernels do not cast.
    pub(crate) const fn scaled(bytes: usize) -> Option<Self> {
        match bytes {
            4 => Some(Self::Decimal32),
            8 => Some(Self::Decimal64),
            16 => Some(Self::Decimal128),
            _ => None,
        }
    }
}

/// Bits in device memory, lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceBits {
    /// The address of a byte.
    pub(crate) bitmap: DevicePointer,
    /// The position of the first bit, counted from there.
    pub(crate) first: u64,
}

impl DeviceBits {
    /// Returns the byte with the first bit, and its position in the byte.
    fn split(self) -> Result<(DevicePointer, u32)> {
        let byte = self.bitmap.checked_add(self.first / 8).ok_or_else(too_large)?;
        Ok((byte, u32::from((self.first % 8).to_le_bytes()[0])))
    }
}

/// A column as kernels read it in device memory: `Column` in kernel_types.cuh.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    values: u64,
    validity: u64,
    fill: [u8; 16],
    value_bit: u32,
    validity_bit: u32,
    dtype: u32,
    is_filled: u32,
}

const _: () = assert!(size_of::<Column>() == 48 && align_of::<Column>() == 8);

impl Column {
    /// Elements at an address, of any alignment; `first` counts bits, and is 0 for anything else.
    ///
    /// # Errors
    /// If an address exceeds 64 bits.
    pub(crate) fn new(
        dtype: ColumnType,
        values: DeviceBits,
        validity: Option<DeviceBits>,
        fill: Option<[u8; 16]>,
    ) -> Result<Self> {
        let (values, value_bit) = values.split()?;
        let (validity, validity_bit) = validity.map_or(Ok((0, 0)), DeviceBits::split)?;
        Ok(Self {
            values,
            validity,
            fill: fill.unwrap_or_default(),
            value_bit,
            validity_bit,
            dtype: dtype as u32,
            is_filled: u32::from(fill.is_some()),
        })
    }

    /// The same column as elements that codes of a dictionary stand for: `values` is the address of a [`KernelDictionary`].
    pub(crate) fn gathered(self) -> Self {
        Self { dtype: self.dtype | GATHERED, ..self }
    }

    /// The same column as codes, which are null where their values are: `values` is the address of a [`KernelDictionary`].
    pub(crate) fn coded(self) -> Self {
        Self { dtype: self.dtype | CODES, ..self }
    }

    /// The same column as padded rows: codes without a value stand for padding.
    pub(crate) fn padded(self) -> Self {
        Self { dtype: self.dtype | GATHERED | PADDED, ..self }
    }

    /// The same column as integers that stand for the integer times ten to the power of minus the scale.
    pub(crate) fn scaled(self, scale: i8) -> Self {
        Self { dtype: self.dtype | u32::from(scale.cast_unsigned()) << SCALE_SHIFT, ..self }
    }

    pub(crate) const BYTES: usize = size_of::<Self>();

    /// Returns the words that the kernels read. Devices are little-endian, like all their hosts.
    pub(crate) fn to_words(self) -> [u64; Self::BYTES / 8] {
        let (low, high) = halves(self.fill);
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let (bits, rest) = (pair(self.value_bit, self.validity_bit), pair(self.dtype, self.is_filled));
        [self.values, self.validity, low, high, bits, rest]
    }
}

/// A level of nesting as kernels read it: an element is valid if its bits are set. `Level` in kernel_types.cuh.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelLevel {
    pub(crate) bits: DeviceBits,
    /// How many elements in a row share the same bits: at least 1.
    pub(crate) repeat: u64,
    /// How many bits have to be set for an element to be valid.
    pub(crate) group: u64,
}

impl KernelLevel {
    pub(crate) const BYTES: usize = 32;

    /// Returns the words that the kernels read.
    pub(crate) fn to_words(self) -> [u64; Self::BYTES / 8] {
        [self.bits.bitmap, self.bits.first, self.repeat.max(1), self.group]
    }
}

/// Sixteen bytes as two words.
fn halves(bytes: [u8; 16]) -> (u64, u64) {
    let whole = u128::from_le_bytes(bytes);
    let word = |whole: u128| u64::try_from(whole & u128::from(u64::MAX)).unwrap_or(0);
    (word(whole), word(whole >> 64))
}

fn too_large() -> Error {
    Error::unsupported("the data is larger than the memory of a device can be")
}

/// Pointers to values, as a launch expects them.
macro_rules! parameters {
    ($($value:expr),+ $(,)?) => { [$((&raw const $value).cast_mut().cast::<c_void>()),+] };
}

mod axes;
mod dictionary;
mod frequent;
mod packing;
mod rows;
mod strided;
mod transposed;

pub(crate) use axes::StridedAxis;
pub(crate) use dictionary::{CodeMeaning, KernelDictionary, KernelRuns};
pub(crate) use packing::{MatrixLayout, Packing};
pub(crate) use rows::{KernelRows, PlacedElements};

// `Launch` invariant: each list of parameters has the types and the order of its kernel in kernels.cu or a header of it. Which memory
// they name is each function's own clause.
impl Current {
    /// Writes a byte, 0 or 1, for each of `count` bits.
    ///
    /// # Errors
    /// If the kernels could not be loaded, or the driver refuses.
    ///
    /// # Safety
    /// The bits and as many bytes from `out` on are memory of this device until the kernel is done.
    pub(crate) unsafe fn unpack_bits(
        &self,
        bits: DeviceBits,
        count: u64,
        out: DevicePointer,
        stream: Stream,
    ) -> Result<()> {
        let work = groups(count)?.div_ceil(ROUNDS);
        let mut parameters = parameters![bits.bitmap, bits.first, count, out];
        // SAFETY: `Launch` invariant; the bits and `count` bytes from `out` on are memory of this device, as promised.
        unsafe { self.launch(Kernel::UnpackBits, (work, 1), &mut parameters, stream) }
    }

    /// Writes a bit for each of `count` bytes, set if it is not 0; the rest of the last byte is 0.
    ///
    /// # Errors
    /// As [`Current::unpack_bits`].
    ///
    /// # Safety
    /// The bytes, and one from `out` on for each eight of them, are memory of this device until the kernel is done.
    pub(crate) unsafe fn pack_bits(
        &self,
        bytes: DevicePointer,
        count: u64,
        out: DevicePointer,
        stream: Stream,
    ) -> Result<()> {
        let work = groups(count)?;
        let mut parameters = parameters![bytes, count, out];
        // SAFETY: `Launch` invariant; the bytes and a byte of bits for each eight are memory of this device, as
        // promised.
        unsafe { self.launch(Kernel::PackBits, (work, 1), &mut parameters, stream) }
    }

    /// Adds the number of unset bits of each bitmap, given with how many bits it has, to its 64-bit number: these are one
    /// after the other from `nulls` on. One launch counts up to 160 bitmaps.
    ///
    /// # Errors
    /// As [`Current::unpack_bits`].
    ///
    /// # Safety
    /// The bits and the numbers, which are aligned, are memory of this device until the kernel is done.
    pub(crate) unsafe fn count_nulls(
        &self,
        bitmaps: &[(DeviceBits, u64)],
        nulls: DevicePointer,
        stream: Stream,
    ) -> Result<()> {
        for (number, part) in bitmaps.chunks(TABLE_WORDS / 3).enumerate() {
            let (mut table, mut work) = ([0; TABLE_WORDS], 0);
            let (entries, _) = table.as_chunks_mut::<3>();
            for (entry, (bits, count)) in entries.iter_mut().zip(part) {
                *entry = [bits.bitmap, bits.first, *count];
                work = work.max(groups(count / 8)?);
            }
            let nulls = nulls + (number * (TABLE_WORDS / 3) * 8) as u64;
            let mut parameters = parameters![table, nulls];
            // SAFETY: `Launch` invariant; the bits and the numbers are memory of this device, as promised, and the grid has as
            // many rows of blocks as the table has entries.
            unsafe { self.launch(Kernel::CountNulls, (work, part.len() as u64), &mut parameters, stream) }?;
        }
        Ok(())
    }

    /// Writes a bitmap of `elements` bits, set if each of `count` levels has a set bit for the element.
    ///
    /// # Errors
    /// As [`Current::unpack_bits`].
    ///
    /// # Safety
    /// At `levels` are as many [`KernelLevel`]s as bytes, aligned to 8; these, their bits and the bitmap are memory of this device
    /// until the kernel is done.
    pub(crate) unsafe fn join_validity(
        &self,
        (levels, count): (DevicePointer, u32),
        elements: u64,
        out: DevicePointer,
        stream: Stream,
    ) -> Result<()> {
        let mut parameters = parameters![levels, count, elements, out];
        // SAFETY: `Launch` invariant; the levels, their bits and the bitmap are memory of this device, as promised.
        unsafe { self.launch(Kernel::JoinValidity, (elements.div_ceil(8), 1), &mut parameters, stream) }
    }

    /// Writes `fill` to each of `count` bools whose bit is not set.
    ///
    /// # Errors
    /// As [`Current::unpack_bits`].
    ///
    /// # Safety
    /// The bits and the bools are memory of this device until the kernel is done.
    pub(crate) unsafe fn fill_nulls(
        &self,
        bools: DevicePointer,
        validity: DeviceBits,
        count: u64,
        fill: u8,
        stream: Stream,
    ) -> Result<()> {
        let (work, fill) = (groups(count)?, u32::from(fill));
        let mut parameters = parameters![bools, validity.bitmap, validity.first, count, fill];
        // SAFETY: `Launch` invariant; the bits and the bools are memory of this device, as promised.
        unsafe { self.launch(Kernel::FillNulls, (work, 1), &mut parameters, stream) }
    }

    /// Lowers the 64-bit number at `found` to the index of the first of `count` bytes that is neither 0 nor 1.
    ///
    /// # Errors
    /// As [`Current::unpack_bits`].
    ///
    /// # Safety
    /// The bytes and the number, which is aligned, are memory of this device until the kernel is done.
    pub(crate) unsafe fn find_no_bool(
        &self,
        bytes: DevicePointer,
        count: u64,
        found: DevicePointer,
        stream: Stream,
    ) -> Result<()> {
        let work = groups(count)?;
        let mut parameters = parameters![bytes, count, found];
        // SAFETY: `Launch` invariant; the bytes and the number are memory of this device, as promised.
        unsafe { self.launch(Kernel::FindNoBool, (work, 1), &mut parameters, stream) }
    }

    /// Writes 1 for each of `count` bytes that is not 0, else 0.
    ///
    /// # Errors
    /// As [`Current::unpack_bits`].
    ///
    /// # Safety
    /// Both are so many bytes of this device's memory until the kernel is done; they are the same or apart.
    pub(crate) unsafe fn normalise_bools(
        &self,
        bytes: DevicePointer,
        count: u64,
        out: DevicePointer,
        stream: Stream,
    ) -> Result<()> {
        let work = groups(count)?;
        let mut parameters = parameters![bytes, count, out];
        // SAFETY: `Launch` invariant; both are `count` bytes of this device, the same or apart, as promised.
        unsafe { self.launch(Kernel::NormaliseBools, (work, 1), &mut parameters, stream) }
    }

    /// Writes 64-bit words, which the launch contains: no host memory has to stay.
    ///
    /// # Errors
    /// As [`Current::unpack_bits`].
    ///
    /// # Safety
    /// As many words from `out` on, aligned, are memory of this device until the kernel is done.
    pub(crate) unsafe fn store_table(&self, words: &[u64], out: DevicePointer, stream: Stream) -> Result<()> {
        for (number, part) in words.chunks(TABLE_WORDS).enumerate() {
            let mut table = [0; TABLE_WORDS];
            table.iter_mut().zip(part).for_each(|(word, from)| *word = *from);
            let count =
                u32::try_from(part.len()).map_err(|_| Error::internal("a table of more than 32 bits of words"))?;
            let out = out + (number * TABLE_WORDS * 8) as u64;
            let mut parameters = parameters![table, count, out];
            // SAFETY: `Launch` invariant; from `out` on there is room for these words, of those that were promised.
            unsafe { self.launch(Kernel::StoreTable, (u64::from(count), 1), &mut parameters, stream) }?;
        }
        Ok(())
    }
}

/// The number of groups of 16 bytes, with one more for the bytes before the first boundary.
fn groups(bytes: u64) -> Result<u64> {
    if bytes == 0 {
        return Ok(1);
    }
    bytes.div_ceil(VECTOR).checked_add(1).ok_or_else(too_large)
}
