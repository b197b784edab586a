//! Pads ragged rows on their device: one kernel measures the rows, one writes the index of each padded element, and the kernels for
//! columns gather the elements by these indices.

use std::ops::Range;
use std::sync::Arc;

use super::decoded::{Decoder, PaddedItems};
use super::source::{bits, has_kernel, kernel_level};
use super::{Check, KernelSource, Shape, Written, device_of, enter, pack};
use crate::arrow::{BitRange, BitmapLevel};
use crate::cuda::{ColumnType, Current, DeviceBuffer, KernelRows, PinnedBlock, PlacedElements, Stream};
use crate::error::{Error, ErrorKind, Result};
use crate::spec::{Pattern, Side, Spec};
use crate::stream_order::{self, Readiness, Wait, allocate, allocate_scratch};
use crate::transfer::{OwnBuffer, device_address, host_address, numbers_by, written};

/// The ragged rows of a chunk in device memory.
#[derive(Clone, Debug)]
pub(crate) struct PaddedRows {
    pub(crate) count: usize,
    /// The addresses of the offsets, and of the sizes of list views.
    pub(crate) offsets: Range<usize>,
    pub(crate) lengths: Option<Range<usize>>,
    /// Whether offsets and sizes have 64 bits.
    pub(crate) is_wide: bool,
    /// Which rows are valid; `None` if all are.
    pub(crate) validity: Option<BitRange>,
    /// The number of items; `None` if it has to be read from the offsets.
    pub(crate) items: Option<usize>,
}

/// What [`measure`] finds in the rows of a chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// The largest length of a valid row.
    pub(crate) longest: usize,
    /// The first item of the first row, if that was asked for; 0 for list views, whose rows come in any order.
    pub(crate) start: usize,
    /// The largest end of a row, as a number of items.
    pub(crate) end: usize,
    /// The first row whose offsets are out of bounds or decrease.
    pub(crate) outside: Option<usize>,
    /// The first valid row with more items than the limit.
    pub(crate) longer: Option<usize>,
    /// The first null row.
    pub(crate) null: Option<usize>,
    /// The first null row with items.
    pub(crate) filled_null: Option<usize>,
}

/// How rows are padded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Padding<'a> {
    pub(crate) spec: &'a Spec,
    /// Items per padded row.
    pub(crate) length: usize,
    /// The padding value.
    pub(crate) value: Pattern,
    /// The side that is padded.
    pub(crate) side: Side,
    /// The side that is truncated.
    pub(crate) truncate: Side,
}

/// Padded rows.
#[derive(Debug)]
pub(crate) struct Padded {
    /// The elements, with the check of those that are cast, or may be refused nulls.
    pub(crate) values: Written,
    /// A bool for each item, true where it is valid.
    pub(crate) mask: Written,
    /// The check of the items of a chunk that were decoded, by the number of the chunk. Its first element is the first item that a row shows.
    pub(crate) decoded: Vec<(usize, Check)>,
}

/// Returns whether kernels pad the items of a spec. They are decoded only from plain values of a dictionary or of runs, of at most 8 bytes.
pub(crate) fn has_padding_kernel(spec: &Spec) -> bool {
    has_kernel(spec) && (spec.decoded().is_none() || spec.element().stored_bytes() <= 8)
}

impl PaddedRows {
    fn kernel_rows(&self) -> Result<KernelRows> {
        let lengths = self.lengths.as_ref().map(|lengths| device_address(lengths.start)).transpose()?;
        let validity = self.validity.map(|range| bits(range.start, range.first_bit));
        KernelRows::new((device_address(self.offsets.start)?, lengths), self.is_wide, validity)
    }

    /// Returns the rows as if none were null: a null row has a start too.
    fn first_row(&self) -> Result<KernelRows> {
        Self { validity: None, ..self.clone() }.kernel_rows()
    }

    fn check(&self, readiness: &Readiness, current: &Current) -> Result<()> {
        readiness.check_part_in(current, &self.offsets)?;
        self.lengths.as_ref().map_or(Ok(()), |lengths| readiness.check_part_in(current, lengths))?;
        self.validity.map_or(Ok(()), |validity| readiness.check_part_in(current, &validity.bytes()))
    }
}

/// Measures the rows of each chunk, of which each may have `most` items; also where the first row starts if `has_start`. The host waits once.
///
/// # Errors
/// As [`pack`].
pub(crate) fn measure(
    readiness: &Readiness,
    chunks: &[PaddedRows],
    (most, has_start): (Option<usize>, bool),
) -> Result<Vec<Measured>> {
    if chunks.is_empty() {
        return Ok(Vec::new());
    }
    let current = stream_order::enter(readiness.device())?;
    chunks.iter().try_for_each(|chunk| chunk.check(readiness, &current))?;
    let most = most.map_or(u64::MAX, |most| most as u64);
    // One host read takes as many chunks as a page-locked block has room for.
    let sets = if has_start { 2 } else { 1 };
    let parts = chunks.chunks(PinnedBlock::BYTES / size_of::<u64>() / KernelRows::NUMBERS / sets);
    let part = |part| measure_part(readiness, &current, part, (most, sets));
    let measured = parts.map(part).collect::<Result<Vec<_>>>()?;
    Ok(measured.into_iter().flatten().collect())
}

/// As [`measure`], for chunks that were checked, and whose numbers fit in a page-locked block: a set for all rows of each, and where there
/// are two sets, one for its first row.
fn measure_part(
    readiness: &Readiness,
    current: &Current,
    chunks: &[PaddedRows],
    (most, sets): (u64, usize),
) -> Result<Vec<Measured>> {
    const NUMBERS: usize = KernelRows::NUMBERS;
    let count = chunks.len().checked_mul(sets * NUMBERS).ok_or_else(too_large)?;
    let launch = |found: u64, stream: Stream| {
        chunks.iter().enumerate().try_for_each(|(number, chunk)| {
            let found = |set: usize| Some(found + ((number * sets + set) * NUMBERS * size_of::<u64>()) as u64);
            let (rows, items) = (chunk.kernel_rows()?, chunk.items.map_or(i64::MAX as u64, |items| items as u64));
            // SAFETY: `measure` has checked the addresses of the rows, whose memory is freed behind the kernel in stream order; `found` has
            // room for the numbers of every chunk.
            unsafe { current.measure_rows(&rows, chunk.count as u64, (items, most), (found(0), None), stream) }?;
            if sets > 1 {
                let (first, count) = (chunk.first_row()?, chunk.count.min(1) as u64);
                // SAFETY: `measure` has checked the addresses of all rows, the first one's included, whose memory is freed behind the
                // kernel in stream order; `found` has room for two sets of numbers for every chunk.
                unsafe { current.measure_rows(&first, count, (items, u64::MAX), (found(1), None), stream) }?;
            }
            Ok(())
        })
    };
    let numbers = numbers_by(readiness, current, [0, count], launch)?;
    let (numbers, _) = numbers.as_chunks::<NUMBERS>();
    let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let row = |number: u64| (number != u64::MAX).then(|| size(number));
    // The end of the first row, less its length.
    let start = |[longest, _, _, _, end, _]: &[u64; NUMBERS]| size(!end).saturating_sub(size(!longest));
    let measured = |(chunk, sets): (&PaddedRows, &[[u64; NUMBERS]])| {
        let ([longest, outside, longer, null, end, filled_null], rest) = sets.split_first()?;
        Some(Measured {
            longest: size(!longest),
            start: rest.first().filter(|_| chunk.lengths.is_none()).map_or(0, start),
            end: size(!end),
            outside: row(*outside),
            longer: row(*longer),
            null: row(*null),
            filled_null: row(*filled_null),
        })
    };
    Ok(chunks.iter().zip(numbers.chunks(sets)).filter_map(measured).collect())
}

/// Returns the number of items that each row keeps, at most `most`, as an int64 per row of all chunks.
///
/// # Errors
/// As [`pack`].
pub(crate) fn kept_lengths(readiness: &Readiness, chunks: &[PaddedRows], most: usize) -> Result<Written> {
    let stream = stream_order::current_stream();
    let current = enter(readiness, &[], stream)?;
    chunks.iter().try_for_each(|chunk| chunk.check(readiness, &current))?;
    let count = chunks.iter().try_fold(0_usize, |count, chunk| count.checked_add(chunk.count)).ok_or_else(too_large)?;
    let buffer = allocate(&current, count.checked_mul(size_of::<i64>()).ok_or_else(too_large)?.max(1), stream)?;
    readiness.wait_in(&current, stream, Wait::KernelSource)?;
    let mut out = buffer.start();
    let started = chunks.iter().try_for_each(|chunk| {
        let (rows, items) = (chunk.kernel_rows()?, chunk.items.map_or(i64::MAX as u64, |items| items as u64));
        let limits = (items, most as u64);
        // SAFETY: `check` has checked the addresses of the rows, whose memory is freed behind the kernel in stream order; the output has
        // room for a number per row of all chunks.
        unsafe { current.measure_rows(&rows, chunk.count as u64, limits, (None, Some(out)), stream) }?;
        out += (chunk.count * size_of::<i64>()) as u64;
        Ok(())
    });
    // Recorded after an error as well: kernels that were launched read the rows.
    let used = readiness.used_by(&current, stream);
    started.and(used)?;
    made(&current, buffer, stream)
}

/// Pads measured rows with their items.
///
/// # Errors
/// As [`pack`].
pub(crate) fn pad(
    readiness: &Readiness,
    chunks: Vec<(PaddedRows, PaddedItems)>,
    padding: Padding<'_>,
) -> Result<Padded> {
    let stream = stream_order::current_stream();
    let current = enter(readiness, &[], stream)?;
    let rows = chunks.iter().try_fold(0_usize, |rows, (chunk, _)| rows.checked_add(chunk.count));
    let items = rows.and_then(|rows| rows.checked_mul(padding.length)).ok_or_else(too_large)?;
    let per_item = padding.spec.row_elements();
    let elements = items.checked_mul(per_item).ok_or_else(too_large)?;
    let mask = allocate(&current, items.max(1), stream)?;
    readiness.wait_in(&current, stream, Wait::KernelSource)?;
    let mut placer = Placer { current: &current, stream, padding, mask: mask.start(), scratch: Vec::new() };
    let (decoder, mut decoded) = (Decoder { current: &current, readiness, stream }, Vec::new());
    let placed = chunks
        .into_iter()
        .enumerate()
        .filter(|(_, (rows, _))| rows.count > 0 && items > 0)
        .map(|(number, (rows, items))| {
            rows.check(readiness, &current)?;
            let (source, check) = items.decoded(decoder, &mut placer.scratch)?;
            decoded.extend(check.map(|check| (number, check)));
            placer.place(&rows, source).map(|source| vec![source])
        })
        .collect::<Result<Vec<_>>>();
    // Recorded after an error as well: kernels that were launched read the rows.
    let used = readiness.used_by(&current, stream);
    let placed = placed.and_then(|placed| used.map(|()| placed))?;
    let shape = Shape { rows: elements, columns: 1, dtype: padding.spec.dtype(), is_row_major: false };
    let values = pack(readiness, &placed, shape)?;
    // Freed behind the kernels that read it, in stream order.
    drop(placer.scratch);
    Ok(Padded { values, mask: made(&current, mask, stream)?, decoded })
}

/// Launches the kernels that write the indices of padded elements.
struct Placer<'a> {
    current: &'a Current,
    stream: Stream,
    padding: Padding<'a>,
    /// The address of the next chunk's bools.
    mask: u64,
    scratch: Vec<DeviceBuffer>,
}

impl Placer<'_> {
    /// Writes the indices of a chunk with rows, and returns the source that gathers its items by them.
    fn place(&mut self, chunk: &PaddedRows, source: KernelSource) -> Result<KernelSource> {
        let Padding { spec, length, value, side, truncate } = self.padding;
        let (current, stream, per_item) = (self.current, self.stream, spec.row_elements());
        let items = chunk.count.checked_mul(length).ok_or_else(too_large)?;
        let elements = items.checked_mul(per_item).ok_or_else(too_large)?;
        // Items without elements need no memory, so every index of one is in bounds.
        let item_count = source.elements.checked_div(per_item);
        let whole = self.joined(source.levels.clone(), source.elements)?;
        let of_items = match item_count {
            _ if per_item == 1 => whole,
            Some(count) => self.joined(of_items(&source.levels, per_item), count)?,
            None => None,
        };
        // All ones stands for padding.
        let is_narrow = u32::try_from(source.elements).is_ok_and(|count| count < u32::MAX);
        let code_type = if is_narrow { ColumnType::UInt32 } else { ColumnType::UInt64 };
        let bytes = elements.checked_mul(if is_narrow { 4 } else { 8 }).ok_or_else(too_large)?;
        let places = self.allocate(bytes)?;
        let sides = (side == Side::Left, truncate == Side::Left);
        let own_rows = chunk.kernel_rows()?;
        let rows = |per_item: usize| own_rows.padded(length as u64, per_item as u64, sides);
        let device = |range: BitRange| bits(range.start, range.first_bit);
        let own = PlacedElements {
            limit: source.elements as u64,
            validity: whole.map(device),
            narrow: is_narrow.then_some(places),
            wide: (!is_narrow).then_some(places),
            mask: (per_item == 1).then_some(self.mask),
        };
        // SAFETY: `pad` has checked the addresses of rows and bitmaps, whose memory is freed behind the kernel in stream order; the scratch
        // memory has room for an index per element, and the mask for a bool per item of all chunks.
        unsafe { current.place_rows(&rows(per_item), elements as u64, &own, stream) }?;
        if per_item != 1 {
            let (limit, validity) = (item_count.map_or(u64::MAX, |count| count as u64), of_items.map(device));
            let mask = PlacedElements { limit, validity, mask: Some(self.mask), ..PlacedElements::default() };
            // SAFETY: `pad` has checked the addresses of rows and bitmaps, whose memory is freed behind the kernel in stream order; the mask
            // has room for a bool per item of all chunks.
            unsafe { current.place_rows(&rows(1), items as u64, &mask, stream) }?;
        }
        self.mask += items as u64;
        let fill = value.padded();
        let word = fill.first_chunk().copied().unwrap_or_default();
        let start = host_address(places)?;
        let places = (start..start.saturating_add(bytes), code_type);
        Ok(source.filled_with(fill, spec).padded(places, elements, whole, word))
    }

    /// Returns a bitmap with a bit for each of `elements`, set if the element is valid at every level; `None` without levels.
    fn joined(&mut self, levels: Vec<BitmapLevel>, elements: usize) -> Result<Option<BitRange>> {
        match levels.as_slice() {
            [] => return Ok(None),
            &[BitmapLevel { start, first_bit, repeat: 1, group: 1, .. }] => {
                return Ok(Some(BitRange { start, first_bit, count: elements }));
            }
            _ => {}
        }
        let count = u32::try_from(levels.len()).map_err(|_| too_large())?;
        let words: Vec<u64> = levels.iter().flat_map(|level| kernel_level(level).to_words()).collect();
        let table = self.allocate(words.len().checked_mul(8).ok_or_else(too_large)?)?;
        let out = self.allocate(elements.div_ceil(8))?;
        // SAFETY: the scratch memory was allocated in the order of the stream, with room for the words.
        unsafe { self.current.store_table(&words, table, self.stream) }?;
        // SAFETY: the levels were just stored, and `pad` has checked their bits; the scratch memory has room for a bit an element.
        unsafe { self.current.join_validity((table, count), elements as u64, out, self.stream) }?;
        Ok(Some(BitRange { start: host_address(out)?, first_bit: 0, count: elements }))
    }

    /// Allocates scratch memory that is freed with this.
    fn allocate(&mut self, bytes: usize) -> Result<u64> {
        let buffer = allocate_scratch(self.current, bytes.max(1), self.stream)?;
        let start = buffer.start();
        self.scratch.push(buffer);
        Ok(start)
    }
}

/// Returns the levels of items with `per_item` elements each: an item is valid if all of its elements are.
fn of_items(levels: &[BitmapLevel], per_item: usize) -> Vec<BitmapLevel> {
    let of_item = |level: &BitmapLevel| {
        let (repeat, group) = match level.repeat.checked_div(per_item) {
            // One of them divides the other, because levels are nested fixed-size lists.
            Some(repeat) if repeat > 0 => (repeat, level.group),
            _ => (1, per_item.checked_div(level.repeat).unwrap_or(1).saturating_mul(level.group)),
        };
        BitmapLevel { repeat, group, ..*level }
    };
    levels.iter().map(of_item).collect()
}

/// Returns our memory, which launched kernels write.
pub(super) fn made(current: &Current, buffer: DeviceBuffer, stream: Stream) -> Result<Written> {
    let readiness = written(device_of(current), current, stream, Wait::KernelWritten)?;
    let data = std::ptr::without_provenance_mut(host_address(buffer.start())?);
    Ok(Written { data, owner: Arc::new(OwnBuffer::new(buffer, readiness.clone())), readiness, check: None })
}

fn too_large() -> Error {
    Error::new(ErrorKind::Memory, "the padded result is larger than memory can be")
}
