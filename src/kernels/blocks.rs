//! Writes the columns of chunks into a matrix: neighbours that have one element a row by one kernel, each other column by itself.

use super::Shape;
use super::check::VALUE_BYTES;
use super::source::KernelSource;
use super::tables::Tables;
use crate::cuda::{Column, ColumnType, Current, MatrixLayout, Packing, Stream, StridedAxis};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::stream_order::allocate_scratch;
use crate::transfer::device_address;

/// Uploads the tables, and launches the kernels that write all chunks, one below the other.
///
/// # Errors
/// If the output is beyond the address space, or the driver fails or is out of memory.
pub(super) fn write_chunks(
    current: &Current,
    chunks: &[Vec<KernelSource>],
    shape: Shape,
    (out, layout): (u64, MatrixLayout),
    (tables, scratch): (&Tables, u64),
    stream: Stream,
) -> Result<()> {
    tables.store(current, scratch, stream)?;
    let (numbers, _) = tables.misfits();
    if chunks.iter().flatten().any(KernelSource::may_misfit) {
        // SAFETY: `misfits()` is a range of the scratch memory, which was allocated in the order of `stream`.
        unsafe { current.set_memory(scratch + numbers.start as u64, 0xff, numbers.len(), stream) }?;
    }
    tables.make_inputs(current, scratch, stream)?;
    let writer = BlockWriter { current, tables, scratch, dtype: shape.dtype, stream };
    let mut row = 0_u64;
    for (chunk, place) in chunks.iter().zip(&tables.chunks) {
        let rows = chunk.iter().find_map(|source| source.elements.checked_div(source.width)).unwrap_or(0) as u64;
        let (mut number, mut column) = (0, 0);
        for sources in chunk.chunk_by(|left, right| left.width == 1 && right.width == 1) {
            let start = writer.address((out, layout), row, column)?;
            let block = ColumnBlock { sources, number, place: place + number * Column::BYTES, row, rows };
            writer.write(&block, (start, layout))?;
            number += sources.len();
            column += sources.iter().map(|source| source.width as u64).sum::<u64>();
        }
        row += rows;
    }
    Ok(())
}

/// Columns of a chunk: neighbours of one element a row, or one column of another width.
struct ColumnBlock<'a> {
    sources: &'a [KernelSource],
    /// The number of the first column.
    number: usize,
    /// Where its struct is in the scratch memory.
    place: usize,
    /// The number of the chunk's first row.
    row: u64,
    rows: u64,
}

/// Launches the kernels that write blocks of one dtype.
struct BlockWriter<'a> {
    current: &'a Current,
    tables: &'a Tables,
    scratch: u64,
    dtype: DType,
    stream: Stream,
}

impl BlockWriter<'_> {
    fn itemsize(&self) -> u64 {
        self.dtype.itemsize() as u64
    }

    /// Returns the address of an element of the output.
    fn address(&self, (out, layout): (u64, MatrixLayout), row: u64, column: u64) -> Result<u64> {
        let (line, element, stride) = match layout {
            MatrixLayout::RowMajor { stride } => (row, column, stride),
            MatrixLayout::ColumnMajor { stride } => (column, row, stride),
        };
        let elements = line.checked_mul(stride).and_then(|elements| elements.checked_add(element));
        let bytes = elements.and_then(|elements| elements.checked_mul(self.itemsize()));
        bytes.and_then(|bytes| out.checked_add(bytes)).ok_or_else(beyond_memory)
    }

    /// Writes a block from its first element on.
    fn write(&self, block: &ColumnBlock<'_>, (out, layout): (u64, MatrixLayout)) -> Result<()> {
        match block.sources {
            [source] if source.width != 1 => self.write_wide(block, source, (out, layout)),
            _ => self.pack(block, (block.row, block.rows), (out, layout)),
        }
    }

    /// Writes a column whose rows have several elements: where they do not follow each other in the output, with a copy to there.
    fn write_wide(
        &self,
        block: &ColumnBlock<'_>,
        source: &KernelSource,
        (out, layout): (u64, MatrixLayout),
    ) -> Result<()> {
        let Self { current, stream, .. } = *self;
        let (width, elements, itemsize) = (source.width as u64, source.elements as u64, self.itemsize());
        if elements == 0 {
            return Ok(());
        }
        let first = block.row.checked_mul(width).ok_or_else(beyond_memory)?;
        let dense = MatrixLayout::ColumnMajor { stride: elements };
        if layout == (MatrixLayout::RowMajor { stride: width }) {
            return self.pack(block, (first, elements), (out, dense));
        }
        let bytes = |elements: u64| elements.checked_mul(itemsize).and_then(|bytes| i64::try_from(bytes).ok());
        let steps = match layout {
            MatrixLayout::RowMajor { stride } => bytes(stride).zip(bytes(1)),
            MatrixLayout::ColumnMajor { stride } => bytes(1).zip(bytes(stride)),
        };
        let (Some((row, element)), Some(step), Some(next)) = (steps, bytes(width), bytes(1)) else {
            return Err(beyond_memory());
        };
        let axes = [
            StridedAxis { extent: block.rows, step, out_step: row },
            StridedAxis { extent: width, step: next, out_step: element },
        ];
        if source.is_verbatim() {
            let from = device_address(source.values.start)?;
            // SAFETY: `enter` has checked the values, of which each row has `width`, and which are released behind this; the output
            // has a row for each, in which no other block writes these elements.
            return unsafe { current.copy_strided(&axes, itemsize, (from, out), stream) };
        }
        let room = source.elements.checked_mul(self.dtype.itemsize()).ok_or_else(beyond_memory)?;
        // When dropped, it is freed behind the copy.
        let made = allocate_scratch(current, room, stream)?;
        self.pack(block, (first, elements), (made.start(), dense))?;
        // SAFETY: the scratch memory has all elements of the column, which were just written in the order of `stream`; the output as above.
        unsafe { current.copy_strided(&axes, itemsize, (made.start(), out), stream) }
    }

    /// Writes so many elements of each column, and keeps the bytes of the first that do not fit; `first` is the number of the first element.
    fn pack(
        &self,
        block: &ColumnBlock<'_>,
        (first, elements): (u64, u64),
        (out, layout): (u64, MatrixLayout),
    ) -> Result<()> {
        let Self { current, tables, scratch, dtype, stream } = *self;
        let ColumnBlock { sources, number, place, .. } = *block;
        let (numbers, _) = tables.misfits();
        let (to, itemsize) = (ColumnType::of(dtype).unwrap_or(ColumnType::Same), self.itemsize());
        let packing = Packing {
            columns: scratch + place as u64,
            count: sources.len() as u64,
            rows: elements,
            first_row: first,
            cast_to: sources.iter().any(KernelSource::is_cast).then_some(to),
            is_frequent: sources.iter().all(|source| source.is_frequent_as(to, itemsize)),
            is_filled: sources.iter().any(KernelSource::fills),
            itemsize,
            out,
            layout,
            misfits: scratch + (numbers.start + number * size_of::<u64>()) as u64,
        };
        let is_dense = matches!(layout, MatrixLayout::ColumnMajor { .. });
        match sources {
            [source] if is_dense && dtype == DType::Bool && source.is_bools() => {
                source.write_bools(current, tables.validity(place, scratch), out, stream)?;
            }
            // SAFETY: the tables name memory that was checked, and is released behind this; the output has all rows. `is_gathered` leaves
            // elements of 16 bytes to padded rows, whose places are the start of scratch memory.
            _ => unsafe { current.pack(&packing, stream) }?,
        }
        if sources.iter().any(KernelSource::may_misfit) {
            let values = scratch + (numbers.end + number * VALUE_BYTES) as u64;
            // SAFETY: the columns are those of `pack`, checked and released behind this; the values are a part of the scratch memory.
            unsafe { current.keep_misfits(&packing, values, stream) }?;
        }
        Ok(())
    }
}

fn beyond_memory() -> Error {
    Error::internal("an output beyond the address space")
}
