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

pub(crate) use isa::Isa;
pub(crate) use rows::Rows;
pub(crate) use select::{Set, select};
use stream::copy_past_the_cache;
use transpose::{Block, transpose};

use super::cast::Misfit;
use super::column::{ColumnChunk, write_range};
use crate::alloc::HostBuffer;
use crate::error::Result;
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

/// Writes rows `first..` of the columns, as many as `out` has.
///
/// # Errors
/// The inner error is the first value that does not fit, of the first block that has one. The outer one is memory that
/// cannot be had.
///
/// # Safety
/// Columns have scalar elements, all of one dtype, and that many rows; each row of `out` has room for one element of each,
/// and is aligned for the dtype. The processor has `isa`.
pub(crate) unsafe fn pack_rows(
    isa: Isa,
    columns: &[PackedColumn<'_>],
    first: usize,
    out: Rows<'_>,
) -> Result<std::result::Result<(), PackMisfit>> {
    let Some(one) = columns.first() else { return Ok(Ok(())) };
    let size = one.spec.dtype().itemsize();
    let stride = out.stride();
    let bytes = out.count().saturating_mul(stride);
    let is_dense = stride == columns.len().saturating_mul(size);
    let large = bytes >= LARGE && isa == Isa::Avx512;
    // Whole tiles on whole cache lines go where they belong at once; other rows by way of a block in the cache.
    let tiles = is_dense && (stride.is_multiple_of(64) || (size == 4 && stride == 16));
    let direct = large && matches!(size, 4 | 8) && tiles && out.start().addr().is_multiple_of(64);
    let wait = large && is_dense && !direct;
    let views = columns.iter().all(|column| column.is_view());
    let block = if wait {
        (WAITING / stride.max(1)).clamp(64, 1024) / 64 * 64
    } else if views {
        4096 / size
    } else {
        2048 / size
    };
    let mut scratch = HostBuffer::uninitialised(if views { 0 } else { GROUP * block * size })?;
    let waiting = HostBuffer::uninitialised(if wait { block * stride } else { 0 })?;
    let mut starts = [std::ptr::null(); GROUP];
    let mut misfit = None;
    for begin in (0..out.count()).step_by(block) {
        let row = first + begin;
        let count = block.min(out.count() - begin);
        let rows = out.start().wrapping_add(begin * stride);
        let target = if wait { waiting.as_ptr() } else { rows };
        for (group_number, group) in columns.chunks(GROUP).enumerate() {
            let scratch = scratch.as_uninit_mut();
            for (index, (column, start)) in group.iter().zip(&mut starts).enumerate() {
                let room = scratch.get_mut(index * block * size..).and_then(|room| room.get_mut(..count * size));
                // SAFETY: the contract: the chunk has `count` rows from `row` on; scratch is aligned to 64 bytes, and each
                // column's part of it to its element.
                match unsafe { column.block(isa, row, count, room.unwrap_or(&mut [])) } {
                    Ok(found) => *start = found,
                    Err(found) => {
                        misfit.get_or_insert(PackMisfit { column: group_number * GROUP + index, misfit: found });
                        *start = std::ptr::null();
                    }
                }
            }
            if misfit.is_some() {
                return Ok(misfit.map_or(Ok(()), Err));
            }
            let columns = starts.get(..group.len()).unwrap_or(&[]);
            let out = target.wrapping_add(group_number * GROUP * size);
            // SAFETY: each start has `count` elements; the rows of this block have room for these columns from `out` on.
            unsafe { transpose(isa, size, Block { columns, rows: count, out, stride, stream: direct }) };
        }
        if wait {
            // SAFETY: the contract: these rows, which lie together, are writable bytes of `out`, borrowed by it alone.
            let rows = unsafe { std::slice::from_raw_parts_mut(rows.cast::<MaybeUninit<u8>>(), count * stride) };
            // SAFETY: the block's rows were just written there, as many as `rows` has room for.
            unsafe { copy_past_the_cache(isa, target, rows) };
        }
    }
    Ok(Ok(()))
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
