//! Copies the tables that kernels read, beside the columns, to the device.

use std::ops::Range;

use super::check::VALUE_BYTES;
use super::shape::Shape;
use super::source::{KernelSource, kernel_level};
use crate::alloc::fallible;
use crate::cuda::{
    Column, ColumnType, Current, DeviceBits, KernelDictionary, KernelLevel, KernelRuns, PinnedBlock, Stream,
};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::ffi::dlpack::DLDeviceType;
use crate::stream_order::{Readiness, Wait};

/// The words that launches take as parameters: those of 80 columns.
const MOST_STORED: usize = 480 * 16;

/// The scratch memory of the kernels: the column structs, and joined bitmaps.
pub(super) struct Tables {
    /// The structs that are uploaded to the start of the scratch memory.
    upload: Vec<Upload>,
    /// Where each chunk's columns start.
    pub(super) chunks: Vec<usize>,
    joined: Vec<Joined>,
    expanded: Vec<Expanded>,
    /// Set bits, which serve validity columns as values; empty if no kernel reads them.
    ones: Range<usize>,
    /// The misfits: a number for each column, followed by 32 bytes for each.
    misfits: usize,
    pub(super) columns: usize,
    pub(super) bytes: usize,
}

/// A struct of the upload. A joined bitmap is in the scratch memory, and so are the values of a validity column.
enum Upload {
    Column {
        source: (ColumnType, DeviceBits, Option<DeviceBits>, Option<[u8; 16]>),
        scale: i8,
        joined: Option<usize>,
        is_validity: bool,
        /// Where the dictionary of its codes is in the scratch memory, and what the codes are for.
        dictionary: Option<(usize, CodeUse)>,
    },
    Level(KernelLevel),
    /// With the place of the codes that a kernel writes for runs.
    Dictionary(KernelDictionary, Option<usize>),
}

/// What becomes of the codes of a column.
#[derive(Clone, Copy)]
enum CodeUse {
    Gathered,
    Kept,
    Padded,
}

/// A bitmap that is joined from several levels.
struct Joined {
    levels: usize,
    count: u32,
    elements: u64,
    out: usize,
}

/// Runs whose numbers are written for each row, as codes.
struct Expanded {
    runs: KernelRuns,
    rows: u64,
    out: usize,
}

impl Expanded {
    /// The codes of these rows in the next free bytes, and the end of those; `None` if they are too many.
    fn new(runs: KernelRuns, rows: usize, bytes: usize) -> Option<(Self, usize)> {
        let size = if runs.code_type() == ColumnType::Int32 { size_of::<i32>() } else { size_of::<i64>() };
        // What else is in the scratch memory has words of 64 bits.
        let end = rows.checked_mul(size)?.checked_next_multiple_of(size_of::<u64>())?.checked_add(bytes)?;
        Some((Self { runs, rows: rows as u64, out: bytes }, end))
    }
}

impl Tables {
    pub(super) fn of(chunks: &[Vec<KernelSource>], shape: Shape) -> Result<Self> {
        let too_large = || Error::unsupported("a table of columns larger than memory can be");
        let sources = || chunks.iter().flatten();
        let columns = chunks.iter().map(Vec::len).max().unwrap_or(0);
        let needs_join = |source: &KernelSource| !source.levels.is_empty() && source.plain_validity().is_none();
        let level_count: usize = sources().filter(|source| needs_join(source)).map(|source| source.levels.len()).sum();
        let column_bytes = sources().count().checked_mul(Column::BYTES).ok_or_else(too_large)?;
        let first_dictionary =
            level_count.checked_mul(KernelLevel::BYTES).and_then(|bytes| bytes.checked_add(column_bytes));
        let first_dictionary = first_dictionary.ok_or_else(too_large)?;
        let dictionary_count = sources().filter(|source| source.dictionary.is_some()).count();
        let misfits = dictionary_count.checked_mul(KernelDictionary::BYTES);
        let misfits = misfits.and_then(|bytes| bytes.checked_add(first_dictionary)).ok_or_else(too_large)?;
        let mut bytes = columns
            .max(1)
            .checked_mul(8 + VALUE_BYTES)
            .and_then(|bytes| bytes.checked_add(misfits))
            .ok_or_else(too_large)?;
        let (mut places, mut joined, mut upload) = (Vec::new(), Vec::new(), Vec::new());
        let (mut levels, mut dictionaries, mut expanded) = (Vec::new(), Vec::new(), Vec::new());
        for chunk in chunks {
            places.push(upload.len() * Column::BYTES);
            for source in chunk {
                let mut out = None;
                if needs_join(source) {
                    let first = column_bytes + levels.len() * KernelLevel::BYTES;
                    levels.extend(source.levels.iter().map(|level| Upload::Level(kernel_level(level))));
                    out = Some(bytes);
                    let count = u32::try_from(source.levels.len()).map_err(|_| too_large())?;
                    joined.push(Joined { levels: first, count, elements: source.elements as u64, out: bytes });
                    let bitmap = source.elements.div_ceil(8).next_multiple_of(8);
                    bytes = bytes.checked_add(bitmap).ok_or_else(too_large)?;
                }
                let (values, fill) = source.elements();
                let is_validity = source.is_validity;
                let mut codes_at = None;
                if let Some(runs) = source.dictionary.as_ref().and_then(|found| found.runs(source.values.start)) {
                    let (codes, end) = Expanded::new(runs, source.elements, bytes).ok_or_else(too_large)?;
                    (codes_at, bytes) = (Some(codes.out), end);
                    expanded.push(codes);
                }
                let dictionary = source.dictionary.as_ref().map(|dictionary| {
                    dictionaries.push(Upload::Dictionary(dictionary.of_elements(source.values.start, 0), codes_at));
                    let codes = match (dictionary.are_codes, dictionary.are_places()) {
                        (true, _) => CodeUse::Kept,
                        (false, true) => CodeUse::Padded,
                        (false, false) => CodeUse::Gathered,
                    };
                    (first_dictionary + (dictionaries.len() - 1) * KernelDictionary::BYTES, codes)
                });
                let scale = source.scale;
                let source = (source.dtype, values, source.plain_validity(), fill);
                upload.push(Upload::Column { source, scale, joined: out, is_validity, dictionary });
            }
        }
        upload.extend(levels);
        upload.extend(dictionaries);
        // A single column is written without any.
        let read = sources().filter(|source| source.is_validity && (columns > 1 || shape.is_row_major));
        let ones = read.map(|source| source.elements.div_ceil(8).next_multiple_of(8)).max().unwrap_or(0);
        let ones = bytes..bytes.checked_add(ones).ok_or_else(too_large)?;
        Ok(Self { upload, chunks: places, joined, expanded, misfits, columns: columns.max(1), bytes: ones.end, ones })
    }

    /// Returns the bitmap of the column whose struct is at this place.
    pub(super) fn validity(&self, place: usize, scratch: u64) -> Option<DeviceBits> {
        match self.upload.get(place / Column::BYTES)? {
            Upload::Column { joined: Some(at), .. } => Some(DeviceBits { bitmap: scratch + *at as u64, first: 0 }),
            Upload::Column { source: (_, _, validity, _), .. } => *validity,
            Upload::Level(_) | Upload::Dictionary(..) => None,
        }
    }

    /// Returns the bytes of the misfits' numbers, and of numbers and values together, from the start of the scratch
    /// memory.
    pub(super) fn misfits(&self) -> (Range<usize>, Range<usize>) {
        let numbers = self.misfits..self.misfits + self.columns * 8;
        (numbers.clone(), numbers.start..numbers.end + self.columns * VALUE_BYTES)
    }

    /// Writes the structs to the start of the scratch memory: as parameters of launches, or through staging buffers if
    /// they are many.
    pub(super) fn store(&self, current: &Current, scratch: u64, stream: Stream) -> Result<()> {
        let mut words = fallible::with_room(self.misfits / 8)?;
        for entry in &self.upload {
            match entry {
                Upload::Column { source, scale, joined, is_validity, dictionary } => {
                    let (dtype, values, validity, fill) = source;
                    let here = |at: usize| DeviceBits { bitmap: scratch + at as u64, first: 0 };
                    // The first value of a dictionary may be any bit of its byte.
                    let values = match dictionary {
                        Some((at, _)) => DeviceBits { first: values.first, ..here(*at) },
                        None if *is_validity => here(self.ones.start),
                        None => *values,
                    };
                    let column = Column::new(*dtype, values, joined.map(here).or(*validity), *fill)?.scaled(*scale);
                    let column = match dictionary {
                        None => column,
                        Some((_, CodeUse::Kept)) => column.coded(),
                        Some((_, CodeUse::Gathered)) => column.gathered(),
                        Some((_, CodeUse::Padded)) => column.padded(),
                    };
                    words.extend(column.to_words());
                }
                Upload::Level(level) => words.extend(level.to_words()),
                Upload::Dictionary(dictionary, codes_at) => {
                    let codes = codes_at.map_or(dictionary.codes, |at| scratch + at as u64);
                    words.extend(KernelDictionary { codes, ..*dictionary }.to_words()?);
                }
            }
        }
        if words.len() <= MOST_STORED {
            // SAFETY: the scratch memory has room for all structs.
            return unsafe { current.store_table(&words, scratch, stream) };
        }
        for (number, part) in words.chunks(PinnedBlock::BYTES / 8).enumerate() {
            let block = PinnedBlock::take(current)?;
            // SAFETY: a block of ours that nothing else uses, aligned to a page, with room for the part.
            unsafe { block.start().cast::<u64>().copy_from_nonoverlapping(part.as_ptr(), part.len()) };
            let target = scratch + (number * PinnedBlock::BYTES) as u64;
            // SAFETY: the scratch memory has room for all structs; the block is given back behind the copy.
            let copied = unsafe { current.copy_from_pinned(target, &block, part.len() * 8, stream) };
            let uses = Readiness::on_device(Device::new(DLDeviceType::CUDA, current.device().ordinal()));
            let used = uses.used_for(current, stream, Wait::TableKept);
            uses.release(move || block.give_back());
            copied?;
            used?;
        }
        Ok(())
    }

    /// Writes the bitmaps and the codes that kernels read from the scratch memory.
    pub(super) fn make_inputs(&self, current: &Current, scratch: u64, stream: Stream) -> Result<()> {
        if !self.ones.is_empty() {
            // SAFETY: `ones` is a range of the scratch memory, which was allocated in the order of `stream`.
            unsafe { current.set_memory(scratch + self.ones.start as u64, u8::MAX, self.ones.len(), stream) }?;
        }
        for Joined { levels, count, elements, out } in &self.joined {
            let levels = (scratch + *levels as u64, *count);
            // SAFETY: the levels were uploaded, and their bitmaps checked; the scratch memory has room for the joined one.
            unsafe { current.join_validity(levels, *elements, scratch + *out as u64, stream) }?;
        }
        for Expanded { runs, rows, out } in &self.expanded {
            // SAFETY: the run ends were checked; the scratch memory has room for the codes, which `Expanded::new` has aligned.
            unsafe { current.expand_runs(runs, *rows, scratch + *out as u64, stream) }?;
        }
        Ok(())
    }
}
