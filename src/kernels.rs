//! Conversions on the device: columns become tensors of ours by kernels, on this thread's stream. The host waits only to know
//! whether every value fits, where values are cast.
#![allow(unsafe_code, reason = "starts kernels on memory of the device")]

use std::ops::Range;
use std::sync::Arc;

use arrow_schema::FieldRef;

use crate::arrow::{BitmapLevel, Leaf};
use crate::cuda::{Bits, Column, ColumnType, Current, DeviceBuffer, Level, MatrixLayout, Packing, PinnedBlock, Stream};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::ffi::dlpack::DLDeviceType;
use crate::order::{self, Order, Wait};
use crate::spec::{Dims, Element, Nulls, Spec};
use crate::tensor::{Parts, Tensor};
use crate::transfer::{OwnBuffer, allocate, device_address, fetch, host_address, number_by, require_free, written};

/// What a kernel reads of one chunk of a column.
#[derive(Debug)]
pub(crate) struct Source {
    values: Range<usize>,
    first_bit: usize,
    dtype: ColumnType,
    levels: Vec<BitmapLevel>,
    elements: usize,
    fill: Option<[u8; 16]>,
    /// Whether a bool is written for each element, true where that is valid, and no value is read.
    is_validity: bool,
}

impl Source {
    /// The elements of a chunk; `None` where no kernel is for them: decimals, casts of other dtypes, columns of nothing but nulls.
    pub(crate) fn new(spec: &Spec, leaf: &Leaf<'_>) -> Option<Self> {
        let element = spec.element();
        let (dtype, first_bit) = match element {
            Element::Bits => (ColumnType::Bits, leaf.offset % 8),
            Element::Bool8 => (ColumnType::Bool, 0),
            Element::Decimal { .. } => return None,
            _ if spec.is_cast() => (ColumnType::of(element.dtype())?, 0),
            _ => (ColumnType::Same, 0),
        };
        if dtype != ColumnType::Same {
            ColumnType::of(spec.dtype())?;
        }
        let values = if element == Element::Bits {
            let start = leaf.values.addr().saturating_add(leaf.offset / 8);
            start..start.saturating_add((first_bit + leaf.elements).div_ceil(8))
        } else {
            let start = leaf.start(element).addr();
            start..start.saturating_add(leaf.elements.saturating_mul(element.stored_bytes()))
        };
        let fill = match spec.nulls() {
            Nulls::Filled(pattern) => {
                let mut fill = [0; 16];
                fill.iter_mut().zip(pattern.bytes()).for_each(|(byte, from)| *byte = *from);
                Some(fill)
            }
            // As in a copy of host memory.
            Nulls::Kept => Some([0; 16]),
            Nulls::Refused => None,
        };
        Some(Self {
            values,
            first_bit,
            dtype,
            levels: leaf.levels()?,
            elements: leaf.elements,
            fill,
            is_validity: false,
        })
    }

    /// Which elements of a chunk are valid; `None` where the bitmaps do not say all of it.
    pub(crate) fn validity(leaf: &Leaf<'_>) -> Option<Self> {
        Some(Self {
            values: 0..0,
            first_bit: 0,
            dtype: ColumnType::Bool,
            levels: leaf.levels()?,
            elements: leaf.elements,
            fill: Some([0; 16]),
            is_validity: true,
        })
    }

    /// Whether a value may not fit the output: bools fit everything.
    fn may_misfit(&self) -> bool {
        !matches!(self.dtype, ColumnType::Same | ColumnType::Bits | ColumnType::Bool)
    }

    /// Writes a lone column of bools, in whole vectors.
    fn write_bools(&self, current: &Current, validity: Option<Bits>, out: u64, stream: Stream) -> Result<()> {
        let (values, count) = (bits(self.values.start, self.first_bit), self.elements as u64);
        if self.is_validity {
            // SAFETY: the output has room for the chunk.
            unsafe { current.set_memory(out, 1, self.elements, stream) }?;
        } else if self.dtype == ColumnType::Bits {
            // SAFETY: `pack` has checked the values, and the output has room for the chunk.
            unsafe { current.unpack_bits(values, count, out, stream) }?;
        } else {
            // SAFETY: as above.
            unsafe { current.normalise_bools(values.bitmap, count, out, stream) }?;
        }
        match (validity, self.fill) {
            // SAFETY: as above; a bitmap has a bit for each element.
            (Some(validity), Some(fill)) => unsafe { current.fill_nulls((out, 1), validity, count, fill, stream) },
            _ => Ok(()),
        }
    }

    /// Whether the column's own bitmap is one that kernels read as it is.
    fn plain_validity(&self) -> Option<Bits> {
        match self.levels.as_slice() {
            [BitmapLevel { start, first_bit, repeat: 1, group: 1, .. }] => Some(bits(*start, *first_bit)),
            _ => None,
        }
    }
}

fn bits(start: usize, first_bit: usize) -> Bits {
    // Addresses of a device that this process reaches have no more than 64 bits.
    Bits { bitmap: device_address(start).unwrap_or(u64::MAX), first: first_bit as u64 }
}

/// Memory of ours that kernels were told to write.
#[derive(Debug)]
pub(crate) struct Written {
    data: *mut u8,
    owner: Arc<OwnBuffer>,
    order: Order,
    /// Of each column the number of its first element that does not fit.
    pub(crate) misfits: Vec<Option<u64>>,
}

/// The error of the first value that does not fit, of a column whose rows have so many elements.
pub(crate) fn misfit(spec: &Spec, element: u64) -> Error {
    let row = usize::try_from(element).unwrap_or(usize::MAX) / spec.row_elements().max(1);
    Error::new(ErrorKind::Cast, format!("a value does not fit {}", spec.dtype()))
        .at_row(row)
        .remedy_is("ask for a dtype that holds it, or change the value first")
        .in_column(spec.field().name())
}

/// Where the elements of a matrix go; a column alone is a matrix of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) dtype: DType,
    pub(crate) is_row_major: bool,
}

impl Written {
    /// The elements as a tensor of these strides, which reach no further than what was written.
    ///
    /// # Errors
    /// When there are not as many strides as dimensions.
    pub(crate) fn tensor(
        self,
        dtype: DType,
        (shape, strides): (Dims, Dims),
        field: Option<FieldRef>,
    ) -> Result<Tensor> {
        let parts = Parts {
            data: self.data,
            device: self.order.device(),
            dtype,
            shape,
            strides,
            owner: self.owner,
            read_only: false,
            copied: true,
            order: Some(self.order),
            field,
        };
        // SAFETY: memory that the owner keeps, written before whoever waits as the order says reads.
        unsafe { Tensor::from_raw_parts(parts) }
    }
}

impl Shape {
    fn bytes(&self) -> Result<usize> {
        let elements = self.rows.checked_mul(self.columns);
        let bytes = elements.and_then(|elements| elements.checked_mul(self.dtype.itemsize()));
        bytes.ok_or_else(|| Error::new(ErrorKind::Memory, "the result is larger than memory can be"))
    }
}

/// Writes a matrix of the chunks, each of which has a source for every column, one chunk below the other.
///
/// # Errors
/// When the stream is another device's or being captured, the memory is not what the arrays say, the driver fails or has no
/// memory, or the wait for the misfits is interrupted.
pub(crate) fn pack(order: &Order, chunks: &[Vec<Source>], shape: Shape) -> Result<Written> {
    let (bytes, stream) = (shape.bytes()?, order::current_stream());
    let current = order::enter(order.device())?;
    require_free(&current, stream)?;
    for source in chunks.iter().flatten() {
        current.check_memory(source.values.start, source.values.len(), order.device())?;
        for level in &source.levels {
            current.check_memory(level.start, level.bytes, order.device())?;
        }
    }
    let device = Device::new(DLDeviceType::CUDA, order.device().id());
    let is_cast = chunks.iter().flatten().any(|source| source.dtype != ColumnType::Same);
    let may_misfit = chunks.iter().flatten().any(Source::may_misfit);
    let tables = Tables::of(chunks, shape.columns)?;
    let buffer = allocate(&current, bytes.max(1), stream)?;
    let scratch = order::allocate_scratch(&current, tables.bytes, stream)?;
    let (start, scratch_start) = (buffer.start(), scratch.start());
    order.wait_in(&current, stream, Wait::KernelSource)?;
    let started = tables.upload(&current, &scratch, stream).and_then(|()| {
        let misfits = scratch_start + tables.misfits as u64;
        // SAFETY: a part of the scratch memory.
        unsafe { current.set_memory(misfits, 0xff, shape.columns.max(1) * 8, stream) }?;
        tables.join_bitmaps(&current, scratch_start, stream)?;
        let mut row = 0_u64;
        for (chunk, place) in chunks.iter().zip(&tables.chunks) {
            let rows = chunk.first().map_or(0, |source| source.elements) as u64;
            let itemsize = shape.dtype.itemsize() as u64;
            let (before, layout) = if shape.is_row_major {
                (row * shape.columns as u64, MatrixLayout::RowMajor { stride: shape.columns as u64 })
            } else {
                (row, MatrixLayout::ColumnMajor { stride: shape.rows as u64 })
            };
            let packing = Packing {
                columns: scratch_start + *place as u64,
                count: chunk.len() as u64,
                rows,
                first_row: row,
                cast_to: is_cast.then(|| ColumnType::of(shape.dtype)).flatten(),
                itemsize,
                out: start + before * itemsize,
                layout,
                misfits,
            };
            match chunk.as_slice() {
                [source] if shape.dtype == DType::Bool && source.dtype != ColumnType::Same && !source.may_misfit() => {
                    source.write_bools(&current, tables.validity(*place, scratch_start), packing.out, stream)?;
                }
                // SAFETY: the tables name memory that was checked, and is released behind this; the output has all rows.
                _ => unsafe { current.pack(&packing, stream) }?,
            }
            row += rows;
        }
        Ok(())
    });
    // Also after an error: what was started reads the columns.
    let used = order.used_by(&current, stream);
    started.and(used)?;
    let made = written(device, &current, stream, Wait::KernelWritten)?;
    let buffer = OwnBuffer::new(buffer, made.clone());
    let scratch_order = written(device, &current, stream, Wait::KernelWritten)?;
    let scratch = OwnBuffer::new(scratch, scratch_order.clone());
    let misfits = if may_misfit {
        let first = host_address(scratch_start)? + tables.misfits;
        let range = first..first + shape.columns * 8;
        let read = fetch(&scratch_order, std::slice::from_ref(&range))?;
        let (numbers, _) = read.require(range.start, range.len())?.as_chunks::<8>();
        numbers.iter().map(|number| Some(u64::from_le_bytes(*number)).filter(|number| *number != u64::MAX)).collect()
    } else {
        vec![None; shape.columns]
    };
    drop(scratch);
    let data = std::ptr::without_provenance_mut(host_address(start)?);
    Ok(Written { data, owner: Arc::new(buffer), order: made, misfits })
}

/// Whether bytes in memory of a device are all 0 or 1. The host waits for the answer.
///
/// # Errors
/// As [`pack`].
pub(crate) fn are_bools(order: &Order, range: &Range<usize>) -> Result<bool> {
    let current = order::enter(order.device())?;
    current.check_memory(range.start, range.len(), order.device())?;
    let (count, start) = (range.len() as u64, device_address(range.start)?);
    // SAFETY: the bytes were just checked, and are released behind the kernel.
    let find = |found, stream| unsafe { current.find_no_bool(start, count, found, stream) };
    Ok(number_by(order, &current, 0xff, find)? == u64::MAX)
}

/// What the kernels find in memory of the device beside the columns: what these are, and the bitmaps that had to be joined.
struct Tables {
    /// The structs, as they are uploaded to the start of the scratch memory.
    upload: Vec<Upload>,
    /// Where the columns of each chunk start.
    chunks: Vec<usize>,
    joined: Vec<Joined>,
    misfits: usize,
    bytes: usize,
}

/// A struct of the upload. Where a bitmap is joined, the column's validity is in the scratch memory.
enum Upload {
    Column { source: (ColumnType, Bits, Option<Bits>, Option<[u8; 16]>), joined: Option<usize> },
    Level(Level),
}

/// A bitmap that is made of several levels.
struct Joined {
    levels: usize,
    count: u32,
    elements: u64,
    out: usize,
}

impl Tables {
    fn of(chunks: &[Vec<Source>], columns: usize) -> Result<Self> {
        let too_large = || Error::unsupported("a table of columns larger than memory can be");
        let sources = || chunks.iter().flatten();
        let needs_join = |source: &Source| !source.levels.is_empty() && source.plain_validity().is_none();
        let level_count: usize = sources().filter(|source| needs_join(source)).map(|source| source.levels.len()).sum();
        let column_bytes = sources().count().checked_mul(Column::BYTES).ok_or_else(too_large)?;
        let misfits = level_count.checked_mul(Level::BYTES).and_then(|bytes| bytes.checked_add(column_bytes));
        let misfits = misfits.ok_or_else(too_large)?;
        let mut bytes =
            columns.max(1).checked_mul(8).and_then(|bytes| bytes.checked_add(misfits)).ok_or_else(too_large)?;
        let (mut places, mut joined, mut upload, mut levels) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for chunk in chunks {
            places.push(upload.len() * Column::BYTES);
            for source in chunk {
                let mut out = None;
                if needs_join(source) {
                    let first = column_bytes + levels.len() * Level::BYTES;
                    levels.extend(source.levels.iter().map(|level| {
                        let (repeat, group) = (level.repeat as u64, level.group as u64);
                        Upload::Level(Level { bits: bits(level.start, level.first_bit), repeat, group })
                    }));
                    out = Some(bytes);
                    let count = u32::try_from(source.levels.len()).map_err(|_| too_large())?;
                    joined.push(Joined { levels: first, count, elements: source.elements as u64, out: bytes });
                    let bitmap = source.elements.div_ceil(8).next_multiple_of(8);
                    bytes = bytes.checked_add(bitmap).ok_or_else(too_large)?;
                }
                let values = bits(source.values.start, source.first_bit);
                let source = (source.dtype, values, source.plain_validity(), source.fill);
                upload.push(Upload::Column { source, joined: out });
            }
        }
        upload.extend(levels);
        Ok(Self { upload, chunks: places, joined, misfits, bytes })
    }

    /// The bitmap of the column whose struct is at this place.
    fn validity(&self, place: usize, scratch: u64) -> Option<Bits> {
        match self.upload.get(place / Column::BYTES)? {
            Upload::Column { joined: Some(at), .. } => Some(Bits { bitmap: scratch + *at as u64, first: 0 }),
            Upload::Column { source: (_, _, validity, _), .. } => *validity,
            Upload::Level(_) => None,
        }
    }

    /// Copies the structs to the start of the scratch memory, by way of page-locked blocks.
    fn upload(&self, current: &Current, scratch: &DeviceBuffer, stream: Stream) -> Result<()> {
        let mut bytes = Vec::with_capacity(self.misfits);
        for entry in &self.upload {
            match entry {
                Upload::Column { source: (dtype, values, validity, fill), joined } => {
                    let joined = joined.map(|at| Bits { bitmap: scratch.start() + at as u64, first: 0 });
                    bytes.extend(Column::new(*dtype, *values, joined.or(*validity), *fill)?.to_bytes());
                }
                Upload::Level(level) => bytes.extend(level.to_bytes()),
            }
        }
        for (number, part) in bytes.chunks(PinnedBlock::BYTES).enumerate() {
            let block = PinnedBlock::take(current)?;
            // SAFETY: a block of ours that nothing else uses, with room for the part.
            unsafe { block.start().copy_from_nonoverlapping(part.as_ptr(), part.len()) };
            let target = scratch.start() + (number * PinnedBlock::BYTES) as u64;
            // SAFETY: the scratch memory has room for all structs; the block is given back behind the copy.
            let copied = unsafe { current.copy_from_pinned(target, &block, part.len(), stream) };
            let device = Device::new(DLDeviceType::CUDA, current.device().ordinal());
            let uses = Order::on_device(device);
            let used = uses.used_by(current, stream);
            uses.release(move || block.give_back());
            copied?;
            used?;
        }
        Ok(())
    }

    fn join_bitmaps(&self, current: &Current, scratch: u64, stream: Stream) -> Result<()> {
        for Joined { levels, count, elements, out } in &self.joined {
            let levels = (scratch + *levels as u64, *count);
            // SAFETY: the levels were uploaded, and their bitmaps checked; the scratch memory has room for the joined one.
            unsafe { current.join_validity(levels, *elements, scratch + *out as u64, stream) }?;
        }
        Ok(())
    }
}
