//! Columns become the rows of a matrix in one pass: cast, filled and unpacked block by block, each input byte read once,
//! each output byte written once.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod isa;
mod rows;
mod select;
mod stream;
mod transpose;

use std::mem::MaybeUninit;
use std::ops::Range;

pub(crate) use isa::Isa;
pub(crate) use rows::Rows;
pub(crate) use select::{Set, select};
use stream::copy_past_the_cache;
use transpose::{Block, transpose};

use super::cast::Misfit;
use super::column::{ColumnChunk, write_range};
use super::threads::for_each_part;
use crate::alloc::HostBuffer;
use crate::error::{Error, Result};
use crate::spec::{Element, Nulls, Spec};

/// Columns that are prepared together: as many as a tile has.
const GROUP: usize = 16;
/// From this size on, rows are written past the cache: nobody finds them there again.
const LARGE: usize = 4 << 20;
/// Bytes of the rows that wait in the second-level cache to be written.
const WAITING: usize = 1 << 18;

/// A column of a matrix, over one chunk.
#[derive(Clone, Copy)]
pub(crate) struct PackedColumn<'a> {
    pub(crate) spec: &'a Spec,
    pub(crate) chunk: &'a ColumnChunk<'a>,
}

/// What does not fit: the column's number, and the position in the chunk.
pub(crate) struct PackMisfit {
    pub(crate) column: usize,
    pub(crate) misfit: Misfit,
}

/// Some rows of the matrix, as parts on several threads share them.
#[derive(Clone, Copy, Debug)]
struct Target {
    start: *mut u8,
    stride: usize,
    count: usize,
}

// SAFETY: an address and two sizes; whoever writes there has to say why that is sound.
unsafe impl Send for Target {}
// SAFETY: as for `Send`.
unsafe impl Sync for Target {}

impl Target {
    fn part(&self, rows: Range<usize>) -> Self {
        let start = self.start.wrapping_add(rows.start.wrapping_mul(self.stride));
        Self { start, count: rows.len(), ..*self }
    }
}

/// Why rows were not written.
enum Refusal {
    Misfit(PackMisfit),
    Error(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// Writes the columns' rows from `first` on, as many as `out` has, on so many threads.
///
/// # Errors
/// The inner error is the value that does not fit in the lowest row, of the first such column. The outer one is memory that
/// cannot be had.
///
/// # Safety
/// Columns have scalar elements, all of one dtype, and that many rows. Each row of `out` has room for one element of each
/// column, is aligned for it, and lies apart from the other rows, the columns, and whatever others use. The processor has
/// `isa`.
pub(crate) unsafe fn pack_rows(
    isa: Isa,
    threads: usize,
    columns: &[PackedColumn<'_>],
    first: usize,
    out: Rows<'_>,
) -> Result<std::result::Result<(), PackMisfit>> {
    let out = Target { start: out.start(), stride: out.stride(), count: out.count() };
    let Some(one) = columns.first() else { return Ok(Ok(())) };
    let size = one.spec.dtype().itemsize();
    let layout = Layout::new(isa, columns, size, out);
    let packed = for_each_part(threads, out.count, layout.block, |rows| {
        let first = first + rows.start;
        // SAFETY: the contract, for some of the rows; no other part has them.
        unsafe { pack_part(isa, columns, first, out.part(rows), layout) }
    });
    match packed {
        Ok(()) => Ok(Ok(())),
        Err(Refusal::Misfit(misfit)) => Ok(Err(misfit)),
        Err(Refusal::Error(error)) => Err(error),
    }
}

/// How rows are written.
#[derive(Clone, Copy)]
struct Layout {
    /// Bytes of an element.
    size: usize,
    /// Rows that are prepared together.
    block: usize,
    /// Whether whole lines go past the cache from where they are put together.
    stream: bool,
    /// Whether rows wait in the second-level cache, and go past it from there.
    wait: bool,
    /// Whether every column's elements are the matrix's as they lie.
    views: bool,
}

impl Layout {
    fn new(isa: Isa, columns: &[PackedColumn<'_>], size: usize, out: Target) -> Self {
        let width = columns.len().saturating_mul(size);
        let large = out.count.saturating_mul(width) >= LARGE && isa == Isa::Avx512;
        // Whole tiles on whole cache lines go where they belong at once; other rows by way of a block in the cache.
        let lines = out.start.addr().is_multiple_of(64) && out.stride.is_multiple_of(64) && width.is_multiple_of(64);
        let quads = out.start.addr().is_multiple_of(64) && size == 4 && width == 16 && out.stride == 16;
        let stream = large && matches!(size, 4 | 8) && (lines || quads);
        let wait = large && !stream && out.stride == width;
        let views = columns.iter().all(PackedColumn::is_view);
        let block = if wait {
            (WAITING / width.max(1)).clamp(64, 1024) / 64 * 64
        } else if views {
            4096 / size
        } else {
            2048 / size
        };
        Self { size, block, stream, wait, views }
    }
}

/// Writes rows on this thread.
///
/// # Safety
/// As [`pack_rows`].
unsafe fn pack_part(
    isa: Isa,
    columns: &[PackedColumn<'_>],
    first: usize,
    out: Target,
    layout: Layout,
) -> std::result::Result<(), Refusal> {
    let Layout { size, block, stream, wait, views } = layout;
    let mut scratch = HostBuffer::uninitialised(if views { 0 } else { GROUP * block * size })?;
    let mut waiting = HostBuffer::uninitialised(if wait { block * out.stride } else { 0 })?;
    let mut starts = [std::ptr::null(); GROUP];
    for row in (0..out.count).step_by(block) {
        let out = out.part(row..out.count.min(row + block));
        let row = first + row;
        let mut misfit: Option<PackMisfit> = None;
        let target = if wait { waiting.as_ptr() } else { out.start };
        for (group_number, group) in columns.chunks(GROUP).enumerate() {
            let scratch = scratch.as_uninit_mut();
            for (index, (column, start)) in group.iter().zip(&mut starts).enumerate() {
                let room = scratch.get_mut(index * block * size..).and_then(|room| room.get_mut(..out.count * size));
                // SAFETY: the contract: the chunk has `count` rows from `row` on; scratch is aligned to 64 bytes, and each
                // column's part of it to its element.
                match unsafe { column.block(isa, row, out.count, room.unwrap_or(&mut [])) } {
                    Ok(found) => *start = found,
                    Err(found) if misfit.as_ref().is_none_or(|first| found.index < first.misfit.index) => {
                        misfit = Some(PackMisfit { column: group_number * GROUP + index, misfit: found });
                    }
                    Err(_) => {}
                }
            }
            if misfit.is_some() {
                // What is written does not matter any more; another column may misfit in a lower row.
                continue;
            }
            let columns = starts.get(..group.len()).unwrap_or(&[]);
            let target = target.wrapping_add(group_number * GROUP * size);
            let block = Block { columns, rows: out.count, out: target, stride: out.stride, stream };
            // SAFETY: each start has `count` elements; the rows of this block have room for these columns from `target` on.
            unsafe { transpose(isa, size, block) };
        }
        if let Some(misfit) = misfit {
            return Err(Refusal::Misfit(misfit));
        }
        if wait {
            let bytes = out.count * out.stride;
            // SAFETY: the contract: the rows lie one after the other, and nobody else uses them.
            let out = unsafe { std::slice::from_raw_parts_mut(out.start.cast(), bytes) };
            // SAFETY: the block's rows were just written there, as many as `out` has room for.
            unsafe { copy_past_the_cache(isa, target, out) };
        }
    }
    Ok(())
}

impl PackedColumn<'_> {
    /// Whether the elements are the matrix's as they lie.
    fn is_view(&self) -> bool {
        let as_it_is = matches!(self.spec.element(), Element::Values(_) | Element::Pairs(_)) && !self.spec.is_cast();
        as_it_is && (self.chunk.mask.is_none() || self.spec.nulls() == Nulls::Refused)
    }

    /// Where `count` elements from `row` on are in the matrix's dtype: in the chunk, or in `scratch`.
    ///
    /// # Safety
    /// As [`pack_rows`]; `scratch` has room for them, and is aligned, unless the column is a view.
    unsafe fn block(
        &self,
        isa: Isa,
        row: usize,
        count: usize,
        scratch: &mut [MaybeUninit<u8>],
    ) -> std::result::Result<*const u8, Misfit> {
        let (spec, chunk) = (self.spec, self.chunk);
        let size = spec.dtype().itemsize();
        if self.is_view() {
            return Ok(chunk.leaf.start(spec.element()).wrapping_add(row * size));
        }
        // SAFETY: the contract.
        unsafe { write_range(isa, spec, chunk, row, scratch) }?;
        Ok(scratch.as_ptr().cast())
    }
}
