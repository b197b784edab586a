//! The kernels of kernels.cu, started on a stream. Sizes are checked here; that the memory is there is the caller's word.

use std::ffi::c_void;

use super::context::Current;
use super::driver::DevicePointer;
use super::module::Kernel;
use super::stream::Stream;
use crate::dtype::DType;
use crate::error::{Error, Result};

/// Bytes of a tile in shared memory: `TILE_BYTES` in kernels.cu.
const TILE_BYTES: u64 = 16_896;
/// What a store writes at once.
const VECTOR: u64 = 16;
/// Threads of a block, which write a tile together.
const THREADS: u64 = 256;

/// What the elements of a column are: `DType` in kernels.cu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs, reason = "named as the dtypes")]
pub(crate) enum ColumnType {
    /// A bit each.
    Bits = 0,
    /// A byte each, any but 0 being true.
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
    /// As many bytes as an element of the output has, which stay as they are.
    Same = 14,
}

impl ColumnType {
    /// Elements of a dtype that casts start from or lead to; `None` of others.
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
}

/// Bits in memory of the device, lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bits {
    /// The address of a byte.
    pub(crate) bitmap: DevicePointer,
    /// The number of the first bit, counted from there.
    pub(crate) first: u64,
}

impl Bits {
    /// The byte that has the first bit, and the bit's number in it.
    fn split(self) -> Result<(DevicePointer, u32)> {
        let byte = self.bitmap.checked_add(self.first / 8).ok_or_else(too_large)?;
        Ok((byte, u32::from((self.first % 8).to_le_bytes()[0])))
    }
}

/// A column as kernels find it in memory of the device: `Column` in kernels.cu.
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
    /// Elements at an address, of any alignment; `first` counts bits, and is 0 of anything else.
    ///
    /// # Errors
    /// When an address is beyond 64 bits.
    pub(crate) fn new(dtype: ColumnType, values: Bits, validity: Option<Bits>, fill: Option<[u8; 16]>) -> Result<Self> {
        let (values, value_bit) = values.split()?;
        let (validity, validity_bit) = validity.map_or(Ok((0, 0)), Bits::split)?;
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

    pub(crate) const BYTES: usize = size_of::<Self>();

    /// The bytes that the kernels read.
    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let words = [self.value_bit, self.validity_bit, self.dtype, self.is_filled];
        let fields = [&self.values.to_ne_bytes()[..], &self.validity.to_ne_bytes(), &self.fill];
        let fields = fields.into_iter().flatten().copied().chain(words.into_iter().flat_map(u32::to_ne_bytes));
        bytes.iter_mut().zip(fields).for_each(|(byte, field)| *byte = field);
        bytes
    }
}

/// A level of nesting as kernels find it: an element is valid where its bits are set. `Level` in kernels.cu.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Level {
    pub(crate) bits: Bits,
    /// How many elements share the same bits; not 0.
    pub(crate) repeat: u64,
    /// How many bits these are.
    pub(crate) group: u64,
}

impl Level {
    pub(crate) const BYTES: usize = 32;

    /// The bytes that the kernels read.
    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let fields = [self.bits.bitmap, self.bits.first, self.repeat.max(1), self.group];
        bytes.iter_mut().zip(fields.into_iter().flat_map(u64::to_ne_bytes)).for_each(|(byte, field)| *byte = field);
        bytes
    }
}

/// How the elements of several columns lie in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MatrixLayout {
    /// A row after the other, so many elements from one to the next.
    RowMajor { stride: u64 },
    /// A column after the other, so many elements from one to the next.
    ColumnMajor { stride: u64 },
}

/// Columns that become a matrix.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packing {
    /// As many [`Column`]s, in memory of the device.
    pub(crate) columns: DevicePointer,
    pub(crate) count: u64,
    pub(crate) rows: u64,
    /// The number of the first row, for misfits.
    pub(crate) first_row: u64,
    /// The dtype of the output, where columns are cast: then its bytes are no more than 8.
    pub(crate) cast_to: Option<ColumnType>,
    /// Bytes of an element of the output: 1, 2, 4, 8 or 16.
    pub(crate) itemsize: u64,
    /// The first element, aligned to its size.
    pub(crate) out: DevicePointer,
    pub(crate) layout: MatrixLayout,
    /// For each column a number that is lowered to that of its first element which does not fit, where columns are cast.
    pub(crate) misfits: DevicePointer,
}

/// How a matrix is cut: `Tile` in kernels.cu.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tile {
    rows: u32,
    columns: u32,
    pitch: u32,
    is_vectors: u32,
}

impl Tile {
    /// The widest tile: all columns, so that what is written is one piece, where 32 rows of them fit. Fewer rows where otherwise
    /// some multiprocessors would have none.
    fn new(packing: &Packing, stride: u64, multiprocessors: u64) -> Self {
        let Packing { count, itemsize, rows, out, .. } = *packing;
        let words = TILE_BYTES / itemsize;
        let vector = VECTOR / itemsize;
        let is_vectors = [out, stride.wrapping_mul(itemsize), count.wrapping_mul(itemsize)]
            .iter()
            .all(|bytes| bytes.is_multiple_of(VECTOR));
        // An odd number of vectors, or of elements: neighbouring rows are in other banks.
        let pitch = |columns: u64| match is_vectors {
            true => ((columns / vector) | 1) * vector,
            false if columns == stride => columns,
            false => columns | 1,
        };
        let all = count.min(words);
        let columns = if pitch(all) * 32 <= words { all } else { 128 / itemsize };
        let pitch = pitch(columns);
        let mut height = 1 << (words / pitch).clamp(32, 1024).ilog2();
        let tiles = |height: u64| rows.div_ceil(height).saturating_mul(count.div_ceil(columns));
        while height > 32 && tiles(height) < 2 * multiprocessors {
            height /= 2;
        }
        // All are below the words of a tile.
        let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        Self { rows: small(height), columns: small(columns), pitch: small(pitch), is_vectors: u32::from(is_vectors) }
    }

    fn count(self, rows: u64, columns: u64) -> u64 {
        rows.div_ceil(u64::from(self.rows)).saturating_mul(columns.div_ceil(u64::from(self.columns)))
    }
}

fn too_large() -> Error {
    Error::unsupported("the data is larger than the memory of a device can be")
}

/// The kernel for elements of so many bytes.
fn sized(kernels: [Option<Kernel>; 5], bytes: u64) -> Result<Kernel> {
    let [one, two, four, eight, sixteen] = kernels;
    let kernel = match bytes {
        1 => one,
        2 => two,
        4 => four,
        8 => eight,
        16 => sixteen,
        _ => None,
    };
    kernel.ok_or_else(|| Error::unsupported(format!("no kernel is for elements of {bytes} bytes")))
}

macro_rules! sized {
    ($bytes:expr => $one:ident, $two:ident, $four:ident, $eight:ident $(, $sixteen:ident)?) => {{
        #[allow(unused_mut, unused_assignments, reason = "casts have no elements of 16 bytes")]
        let mut sixteen = None;
        $(sixteen = Some(Kernel::$sixteen);)?
        let first = [Kernel::$one, Kernel::$two, Kernel::$four, Kernel::$eight].map(Some);
        let [one, two, four, eight] = first;
        sized([one, two, four, eight, sixteen], $bytes)
    }};
}

/// Pointers to values, as a launch takes them.
macro_rules! parameters {
    ($($value:expr),+ $(,)?) => { [$((&raw const $value).cast_mut().cast::<c_void>()),+] };
}

// SAFETY of each launch: the parameters are of the types, and in the order, of the kernel in kernels.cu; the rest is the contract.
impl Current {
    /// Writes a byte, 0 or 1, for each of `count` bits.
    ///
    /// # Errors
    /// When the kernels could not be loaded, or the driver refuses.
    ///
    /// # Safety
    /// The bits and as many bytes from `out` on are memory of this device until the kernel is done.
    pub(crate) unsafe fn unpack_bits(&self, bits: Bits, count: u64, out: DevicePointer, stream: Stream) -> Result<()> {
        let work = groups(count)?;
        let mut parameters = parameters![bits.bitmap, bits.first, count, out];
        // SAFETY: as above.
        unsafe { self.launch(Kernel::UnpackBits, (work, 1), &mut parameters, stream) }
    }

    /// Writes a bit for each of `count` bytes, set where it is not 0; what is left of the last byte is 0.
    ///
    /// # Errors
    /// As [`Current::unpack_bits`].
    ///
    /// # Safety
    /// The bytes, and one from `out` on for each eight of them, are memory of this device until the kernel is done.
    #[allow(dead_code, reason = "for bools of a device as Arrow's bits: `to_arrow` takes bools of the host alone")]
    pub(crate) unsafe fn pack_bits(
        &self,
        bytes: DevicePointer,
        count: u64,
        out: DevicePointer,
        stream: Stream,
    ) -> Result<()> {
        let mut parameters = parameters![bytes, count, out];
        // SAFETY: as above.
        unsafe { self.launch(Kernel::PackBits, (count, 1), &mut parameters, stream) }
    }

    /// Adds to the 64-bit number at `nulls` how many of `count` bits are not set.
    ///
    /// # Errors
    /// As [`Current::unpack_bits`].
    ///
    /// # Safety
    /// The bits and the number, which is aligned, are memory of this device until the kernel is done.
    pub(crate) unsafe fn count_nulls(
        &self,
        bits: Bits,
        count: u64,
        nulls: DevicePointer,
        stream: Stream,
    ) -> Result<()> {
        let work = groups(count / 8)?;
        let mut parameters = parameters![bits.bitmap, bits.first, count, nulls];
        // SAFETY: as above.
        unsafe { self.launch(Kernel::CountNulls, (if count == 0 { 0 } else { work }, 1), &mut parameters, stream) }
    }

    /// Writes a bitmap of `elements` bits, set where every one of `count` levels has a bit set for the element.
    ///
    /// # Errors
    /// As [`Current::unpack_bits`].
    ///
    /// # Safety
    /// At `levels` are as many [`Level`]s as bytes, aligned to 8; these, their bits and the bitmap are memory of this device
    /// until the kernel is done.
    pub(crate) unsafe fn join_validity(
        &self,
        (levels, count): (DevicePointer, u32),
        elements: u64,
        out: DevicePointer,
        stream: Stream,
    ) -> Result<()> {
        let mut parameters = parameters![levels, count, elements, out];
        // SAFETY: as above.
        unsafe { self.launch(Kernel::JoinValidity, (elements.div_ceil(8), 1), &mut parameters, stream) }
    }

    /// Writes the first `itemsize` bytes of `fill` to each of `count` elements whose bit is not set.
    ///
    /// # Errors
    /// As [`Current::unpack_bits`], and for elements of another size than 1, 2, 4, 8 or 16 bytes.
    ///
    /// # Safety
    /// The bits and the elements, which are aligned to their size, are memory of this device until the kernel is done.
    pub(crate) unsafe fn fill_nulls(
        &self,
        (values, itemsize): (DevicePointer, u64),
        validity: Bits,
        count: u64,
        fill: [u8; 16],
        stream: Stream,
    ) -> Result<()> {
        let kernel = sized!(itemsize => FillNulls1, FillNulls2, FillNulls4, FillNulls8, FillNulls16)?;
        let (halves, _) = fill.as_chunks::<8>();
        let [low, high] = [halves.first(), halves.last()].map(|half| half.map_or(0, |half| u64::from_le_bytes(*half)));
        let mut parameters = parameters![values, validity.bitmap, validity.first, count, low, high];
        // SAFETY: as above.
        unsafe { self.launch(kernel, (count, 1), &mut parameters, stream) }
    }

    /// Lowers the 64-bit number at `found` to that of the first of `count` bytes that is neither 0 nor 1.
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
        // SAFETY: as above.
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
        // SAFETY: as above.
        unsafe { self.launch(Kernel::NormaliseBools, (work, 1), &mut parameters, stream) }
    }

    /// Writes the elements of columns as a matrix, cast and filled as each of them says.
    ///
    /// # Errors
    /// As [`Current::unpack_bits`], and when there are too many columns, the elements have another size than the kernels are
    /// for, rows or columns of the output would overlap, or the output is misaligned.
    ///
    /// # Safety
    /// The columns, all that they name for this many rows, the output, and the misfits where columns are cast, are memory of
    /// this device until the kernel is done. Without `cast_to`, each column's type is [`ColumnType::Same`].
    pub(crate) unsafe fn pack(&self, packing: &Packing, stream: Stream) -> Result<()> {
        let Packing { columns, rows, first_row, itemsize, out, misfits, layout, .. } = *packing;
        let count = u32::try_from(packing.count).map_err(|_| too_large())?;
        let to = packing.cast_to.unwrap_or(ColumnType::Same) as u32;
        let (pitch, least, lines) = match layout {
            MatrixLayout::RowMajor { stride } => (stride, packing.count, rows),
            MatrixLayout::ColumnMajor { stride } => (stride, rows, packing.count),
        };
        let bytes = lines.checked_mul(pitch).and_then(|elements| elements.checked_mul(itemsize));
        bytes.and_then(|bytes| bytes.checked_add(out)).ok_or_else(too_large)?;
        if pitch < least || itemsize == 0 || !out.is_multiple_of(itemsize) {
            return Err(Error::invalid("the output of a kernel overlaps itself, or is misaligned"));
        }
        let is_cast = packing.cast_to.is_some();
        match layout {
            MatrixLayout::ColumnMajor { stride: pitch } => {
                let kernel = if is_cast {
                    sized!(itemsize => CastColumns1, CastColumns2, CastColumns4, CastColumns8)?
                } else {
                    sized!(itemsize => PackColumns1, PackColumns2, PackColumns4, PackColumns8, PackColumns16)?
                };
                let length = if is_cast { 1 } else { VECTOR / itemsize };
                let work = if rows == 0 { 0 } else { rows.div_ceil(length) + 1 };
                let mut parameters = parameters![columns, count, to, rows, out, pitch, misfits, first_row];
                // SAFETY: as above.
                unsafe { self.launch(kernel, (work, packing.count), &mut parameters, stream) }
            }
            MatrixLayout::RowMajor { stride: pitch } => {
                let kernel = if is_cast {
                    sized!(itemsize => CastRows1, CastRows2, CastRows4, CastRows8)?
                } else {
                    sized!(itemsize => PackRows1, PackRows2, PackRows4, PackRows8, PackRows16)?
                };
                if count == 0 {
                    return Ok(());
                }
                let tile = Tile::new(packing, pitch, self.device().multiprocessors()?);
                let work = tile.count(rows, packing.count).checked_mul(THREADS).ok_or_else(too_large)?;
                let mut parameters = parameters![columns, count, to, rows, out, pitch, tile, misfits, first_row];
                // SAFETY: as above.
                unsafe { self.launch(kernel, (work, 1), &mut parameters, stream) }
            }
        }
    }
}

/// Groups of 16 bytes, with one more for what is before the first boundary.
fn groups(bytes: u64) -> Result<u64> {
    if bytes == 0 {
        return Ok(1);
    }
    bytes.div_ceil(VECTOR).checked_add(1).ok_or_else(too_large)
}
