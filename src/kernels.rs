//! Converts columns on their device by kernels, on this thread's stream, into new tensors or the memory of an `Output`.
//! The host waits only for casts and codes, to learn whether every value fits and every code has one.
#![allow(unsafe_code, reason = "starts kernels on memory of the device")]

mod backend;
mod bitmaps;
mod blocks;
mod check;
mod decoded;
mod gather;
mod offsets;
mod padded;
mod pending_casts;
mod shape;
mod source;
mod tables;

use std::ops::Range;
use std::sync::Arc;

use arrow_schema::FieldRef;

pub(crate) use backend::{
    DeviceBackend, column_placement, gathers_on, is_read_on, looks_up_validity, looks_up_values, matrix_placement,
    reads_lists_on, refuse_decoding, tells_validity, validity_placement,
};
pub(crate) use bitmaps::{join_bits, pack_bits};
use blocks::write_chunks;
pub(crate) use check::Check;
pub(crate) use decoded::{PaddedItems, decodes_items};
pub(crate) use gather::{moved, split_columns};
pub(crate) use offsets::{ShiftedOffsets, shift_offsets};
pub(crate) use padded::{Measured, Padded, PaddedRows, Padding, has_padding_kernel, kept_lengths, measure, pad};
pub(crate) use pending_casts::Casts;
pub(crate) use shape::Shape;
use source::DictionarySource;
pub(crate) use source::{KernelSource, has_kernel, is_gathered};
use tables::Tables;

use crate::cuda::{Current, MatrixLayout, Stream};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::Result;
use crate::ffi::dlpack::DLDeviceType;
use crate::spec::Dims;
use crate::stream_order::{self, Readiness, Wait, allocate, allocate_scratch};
use crate::tensor::{Tensor, TensorParts};
use crate::transfer::{OwnBuffer, device_address, host_address, numbers_by, require_free, written};

/// What the first byte of each column is aligned to where kernels make several.
const LINE: usize = 64;

/// Our memory that launched kernels write.
#[derive(Debug)]
pub(crate) struct Written {
    data: *mut u8,
    owner: Arc<OwnBuffer>,
    readiness: Readiness,
    /// The check whether every value fits; `None` if all do.
    pub(crate) check: Option<Check>,
}

/// The caller's memory that kernels write.
#[derive(Clone, Debug)]
pub(crate) struct KernelTarget<'a> {
    /// The bytes from the first element to the end of the last.
    pub(crate) span: Range<usize>,
    pub(crate) readiness: &'a Readiness,
    pub(crate) layout: TargetLayout,
}

/// How elements are laid out in the caller's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TargetLayout {
    /// As those of a matrix.
    Matrix(MatrixLayout),
    /// As rows of a column, each of this many elements, any distance apart.
    Rows { width: u64, stride: u64 },
}

impl Written {
    /// Returns the elements as a tensor of these strides, which stay inside the written memory.
    ///
    /// # Errors
    /// If the numbers of strides and dimensions differ.
    pub(crate) fn tensor(self, dtype: DType, layout: (Dims, Dims), field: Option<FieldRef>) -> Result<Tensor> {
        let (device, readiness) = (self.readiness.device(), Some(self.readiness));
        let parts = TensorParts::of_host(self.data, dtype, layout, self.owner);
        let parts = TensorParts { device, read_only: false, copied: true, readiness, field, ..parts };
        // SAFETY: memory that the owner keeps, written before whoever waits as the order says reads.
        unsafe { Tensor::from_parts(parts) }
    }
}

/// Writes a matrix of the chunks, one below the other. Each chunk has a source for every column.
///
/// # Errors
/// If the stream is another device's or under capture, the memory contradicts the arrays, or the driver fails or is out
/// of memory.
pub(crate) fn pack(readiness: &Readiness, chunks: &[Vec<KernelSource>], shape: Shape) -> Result<Written> {
    let (bytes, stream) = (shape.bytes()?, stream_order::current_stream());
    let current = enter(readiness, chunks, stream)?;
    let buffer = allocate(&current, bytes.max(1), stream)?;
    let start = buffer.start();
    let check = run(&current, readiness, chunks, shape, (start, shape.dense()), stream)?;
    let made = written(device_of(&current), &current, stream, Wait::KernelWritten)?;
    let data = std::ptr::without_provenance_mut(host_address(start)?);
    Ok(Written { data, owner: Arc::new(OwnBuffer::new(buffer, made.clone())), readiness: made, check })
}

/// Like [`pack`], into the caller's memory: waits for the work that writes it, and lets its later readers wait for
/// this.
///
/// # Errors
/// As [`pack`], and if the target is not memory of the same device.
pub(crate) fn pack_into(
    readiness: &Readiness,
    chunks: &[Vec<KernelSource>],
    shape: Shape,
    target: &KernelTarget<'_>,
) -> Result<Option<Check>> {
    let (bytes, stream) = (shape.bytes()?, stream_order::current_stream());
    let current = enter(readiness, chunks, stream)?;
    let span = &target.span;
    current.check_memory(span.start, span.len(), target.readiness.device())?;
    let start = device_address(span.start)?;
    target.readiness.require_own_event()?;
    target.readiness.wait_in(&current, stream, Wait::OutputFree)?;
    target.readiness.wait_for_uses_in(&current, stream, Wait::OutputRead)?;
    let made = match target.layout {
        TargetLayout::Matrix(layout) => run(&current, readiness, chunks, shape, (start, layout), stream),
        TargetLayout::Rows { width, stride } => {
            let dense = allocate_scratch(&current, bytes.max(1), stream)?;
            let from = (dense.start(), shape.dtype.itemsize() as u64);
            run(&current, readiness, chunks, shape, (dense.start(), shape.dense()), stream).and_then(|check| {
                let rows = (shape.rows as u64).checked_div(width).unwrap_or(0);
                // SAFETY: the target was checked, and the rows were just written; both are released behind this.
                unsafe { current.spread_rows(from, (rows, width), (start, stride), stream) }.map(|()| check)
            })
        }
    };
    // Also after an error, because started work writes the memory.
    let used = target.readiness.used_by(&current, stream);
    let again = target.readiness.written_again(&current, stream, Wait::OutputWritten);
    // Whoever asks for the memory next waits for the write before.
    let again = again.or_else(|error| stream_order::settle(&current, stream).and(Err(error)));
    let check = made?;
    used.and(again).map(|()| check)
}

/// Makes the device current, if the stream may be used and the columns are memory of the device.
fn enter(readiness: &Readiness, chunks: &[Vec<KernelSource>], stream: Stream) -> Result<Current> {
    let current = stream_order::enter(readiness.device())?;
    require_free(&current, stream)?;
    stream_order::load_kernels(&current)?;
    for source in chunks.iter().flatten() {
        if source.dictionary.as_ref().is_some_and(DictionarySource::are_places) {
            // `pad` has checked the items, and made the places.
            continue;
        }
        check_source(readiness, &current, source)?;
    }
    Ok(current)
}

/// Refuses a source that is not memory of the device, or has fewer bytes than its array says.
fn check_source(readiness: &Readiness, current: &Current, source: &KernelSource) -> Result<()> {
    readiness.check_part_in(current, &source.values)?;
    if let Some(dictionary) = &source.dictionary {
        readiness.check_part_in(current, &dictionary.values)?;
        dictionary.validity.map_or(Ok(()), |bits| readiness.check_part_in(current, &bits.bytes()))?;
    }
    let levels = source.levels.iter().map(|level| level.start..level.start.saturating_add(level.bytes));
    levels.into_iter().try_for_each(|level| readiness.check_part_in(current, &level))
}

fn device_of(current: &Current) -> Device {
    Device::new(DLDeviceType::CUDA, current.device().ordinal())
}

/// Launches the kernels that write the matrix on `stream`, after the columns are written.
fn run(
    current: &Current,
    readiness: &Readiness,
    chunks: &[Vec<KernelSource>],
    shape: Shape,
    out: (u64, MatrixLayout),
    stream: Stream,
) -> Result<Option<Check>> {
    let tables = Tables::of(chunks, shape)?;
    // When dropped, it is freed behind the work that the stream has by then.
    let scratch = allocate_scratch(current, tables.bytes, stream)?;
    readiness.wait_in(current, stream, Wait::KernelSource)?;
    let started = write_chunks(current, chunks, shape, out, (&tables, scratch.start()), stream);
    // Also after an error, because started work reads the columns.
    let used = readiness.used_by(current, stream);
    started.and(used)?;
    if !chunks.iter().flatten().any(KernelSource::may_misfit) {
        return Ok(None);
    }
    let (_, bytes) = tables.misfits();
    Check::new(current, scratch, &bytes, tables.columns, (device_of(current), stream)).map(Some)
}

/// Returns whether all bytes in device memory are 0 or 1. The host waits for the answer.
///
/// # Errors
/// As [`pack`].
pub(crate) fn are_bools(readiness: &Readiness, range: &Range<usize>) -> Result<bool> {
    let current = stream_order::enter(readiness.device())?;
    current.check_memory(range.start, range.len(), readiness.device())?;
    let (count, start) = (range.len() as u64, device_address(range.start)?);
    // SAFETY: the bytes were just checked, and are released behind the kernel.
    let find = |found, stream| unsafe { current.find_no_bool(start, count, found, stream) };
    Ok(numbers_by(readiness, &current, [0, 1], find)?.into_iter().all(|found| found == u64::MAX))
}
