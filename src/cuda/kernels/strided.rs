//! Launches the kernel that copies elements from and to any strides, and decides in which order it goes through them.

use std::ffi::c_void;

use super::axes::{StridedAxis, merged_axes};
use super::transposed::Transposed;
use super::{VECTOR, too_large};
use crate::cuda::context::Current;
use crate::cuda::driver::DevicePointer;
use crate::cuda::module::Kernel;
use crate::cuda::stream::Stream;
use crate::error::{Error, Remedy, Result};

/// The most dimensions that the kernel takes: `DIMENSIONS` in kernel_types.cuh.
const DIMENSIONS: usize = 10;
/// The logarithm of a tile's words: `STRIDED_BITS` in kernel_types.cuh.
const TILE_BITS: u32 = 10;
/// The logarithm of the words that make whole transactions of memory.
const LINE_BITS: u32 = 5;
/// Threads of a block, which copy one tile together.
const THREADS: u64 = 256;
/// Bytes of a word that is wide enough to copy rows word by word.
const WORD: u64 = 4;
/// Bytes of the widest word.
const WIDEST: u64 = 8;

/// Words as the kernel copies them: `Strided` in kernel_types.cuh.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Strided {
    extents: [u64; DIMENSIONS],
    steps: [i64; DIMENSIONS],
    out_steps: [i64; DIMENSIONS],
    dimensions: u32,
    bits: u32,
    is_across: u32,
    size: u32,
}

const _: () = assert!(size_of::<Strided>() == 256 && align_of::<Strided>() == 8);

impl Strided {
    /// Chooses words and tiles for elements of `itemsize` bytes; returns the number of tiles, too, which is 0 if there are no elements.
    ///
    /// # Errors
    /// If there are more dimensions that do not merge than the kernel takes, or more tiles than it counts.
    fn new(axes: &[StridedAxis], itemsize: u64, (from, out): (DevicePointer, DevicePointer)) -> Result<(Self, u32)> {
        let steps = axes.iter().flat_map(|axis| [axis.step.unsigned_abs(), axis.out_step.unsigned_abs()]);
        let all = steps.fold(from | out | itemsize | WIDEST, |all, step| all | step);
        // The largest power of two that everything is a multiple of.
        let mut size = 1 << all.trailing_zeros();
        let mut merged = merged_axes(axes, itemsize, size);
        while size < WIDEST && widen(&mut merged, size, from | out) {
            size *= 2;
        }
        // Neighbours in the source are read together, and neighbours in the output written together.
        let nearest = |axes: &[StridedAxis], step: fn(&StridedAxis) -> i64| {
            let distance = |axis: &StridedAxis| step(axis).unsigned_abs().wrapping_sub(1);
            axes.iter().enumerate().min_by_key(|(_, axis)| distance(axis)).map(|(number, _)| number)
        };
        let first = nearest(&merged, |axis| axis.step).map_or(StridedAxis::ONE, |number| merged.remove(number));
        let mut second = nearest(&merged, |axis| axis.out_step);
        let is_small =
            |number: &usize| merged.get(*number).is_some_and(|axis| axis.bits() + first.bits() < TILE_BITS - 2);
        if second.as_ref().is_some_and(is_small) {
            // A tile of two short dimensions would be mostly empty.
            second = merged.iter().enumerate().max_by_key(|(_, axis)| axis.extent).map(|(number, _)| number);
        }
        let second = second.map_or(StridedAxis::ONE, |number| merged.remove(number));
        let is_across = second.extent > 1 && second.out_step.unsigned_abs() < first.out_step.unsigned_abs();
        let bits = if first.bits() + second.bits() <= TILE_BITS || first.bits() <= LINE_BITS {
            first.bits().min(TILE_BITS)
        } else {
            TILE_BITS - second.bits().min(LINE_BITS)
        };
        let lines = [first.extent.div_ceil(1 << bits), second.extent.div_ceil(1 << (TILE_BITS - bits))];
        let others = merged.iter().map(|axis| axis.extent);
        let tiles = lines.into_iter().chain(others).try_fold(1_u64, |tiles, extent| tiles.checked_mul(extent));
        let tiles = tiles.and_then(|tiles| u32::try_from(tiles).ok()).ok_or_else(too_large)?;
        let (mut shape, mut dimensions) = (Self { bits, size: 0, ..Self::EMPTY }, 0);
        for axis in [first, second].into_iter().chain(merged) {
            let slots = (
                shape.extents.get_mut(dimensions),
                shape.steps.get_mut(dimensions),
                shape.out_steps.get_mut(dimensions),
            );
            let (Some(extent), Some(step), Some(out_step)) = slots else {
                let reason = format!("a copy on a device of more than {DIMENSIONS} dimensions that are not contiguous");
                return Err(Error::unsupported(reason).remedy_is(Remedy::CopyToHost));
            };
            (*extent, *step, *out_step) = (axis.extent, axis.step, axis.out_step);
            dimensions += 1;
        }
        let small =
            |number: u64| u32::try_from(number).map_err(|_| Error::internal("elements of more than 32 bits of bytes"));
        shape.dimensions = small(dimensions as u64)?;
        (shape.size, shape.is_across) = (small(size)?, u32::from(is_across));
        Ok((shape, tiles))
    }

    const EMPTY: Self = Self {
        extents: [0; DIMENSIONS],
        steps: [0; DIMENSIONS],
        out_steps: [0; DIMENSIONS],
        dimensions: 0,
        bits: 0,
        is_across: 0,
        size: 0,
    };
}

/// Makes words of twice as many bytes, if two neighbours always lie next to each other and are aligned for that.
fn widen(axes: &mut [StridedAxis], size: u64, addresses: u64) -> bool {
    let (twice, step) = (2 * size, size.cast_signed());
    let Some((first, others)) = axes.split_first_mut() else { return false };
    let is_even = |number: u64| number.is_multiple_of(twice);
    let fits = first.step == step
        && first.out_step == step
        && first.extent.is_multiple_of(2)
        && is_even(addresses)
        && others.iter().all(|axis| is_even(axis.step.unsigned_abs()) && is_even(axis.out_step.unsigned_abs()));
    if fits {
        *first = StridedAxis { extent: first.extent / 2, step: 2 * step, out_step: 2 * step };
    }
    fits
}

// `Launch` invariant, as in `kernels.rs`: the list of parameters has the types and the order of the kernel in kernel_strided.cuh.
impl Current {
    /// Copies elements of `itemsize` bytes from where they lie to where they go, both of any alignment.
    ///
    /// # Errors
    /// As [`Current::unpack_bits`], and if there are more than 10 dimensions that are not contiguous.
    ///
    /// # Safety
    /// The elements that the axes reach from `from` on, and those from `out` on, are memory of this device until the kernel is done;
    /// the latter do not overlap each other or the former.
    pub(crate) unsafe fn copy_strided(
        &self,
        axes: &[StridedAxis],
        itemsize: u64,
        (from, out): (DevicePointer, DevicePointer),
        stream: Stream,
    ) -> Result<()> {
        if let Some((matrix, rows, left)) = Transposed::of(axes, itemsize, (from, out)) {
            // SAFETY: as promised, for a part of the elements.
            unsafe { self.transpose(matrix, (from, out), stream) }?;
            let [source, target] = [left[0].step, left[0].out_step].map(|step| step.wrapping_mul(rows.cast_signed()));
            let rest = (from.wrapping_add_signed(source), out.wrapping_add_signed(target));
            // SAFETY: as promised, for the others: fewer rows than a square has, for which the kernel above does not run.
            return unsafe { self.copy_strided(&left, itemsize, rest, stream) };
        }
        let (shape, tiles) = Strided::new(axes, itemsize, (from, out))?;
        let mut parameters = parameters![shape, tiles, from, out];
        // SAFETY: `Launch` invariant; both are memory of this device, as promised, and the shape reaches the same bytes as the axes.
        unsafe { self.launch(Kernel::CopyStrided, (u64::from(tiles) * THREADS, 1), &mut parameters, stream) }
    }

    /// Copies contiguous rows of `width` elements of `itemsize` bytes to rows that are `stride` elements apart.
    ///
    /// # Errors
    /// As [`Current::unpack_bits`].
    ///
    /// # Safety
    /// Both are memory of this device until the kernel is done, apart; `stride` is no less than `width`.
    pub(crate) unsafe fn spread_rows(
        &self,
        (from, itemsize): (DevicePointer, u64),
        (rows, width): (u64, u64),
        (out, stride): (DevicePointer, u64),
        stream: Stream,
    ) -> Result<()> {
        let [width, stride] = [width, stride].map(|elements| elements.checked_mul(itemsize));
        let (Some(width), Some(stride)) = (width, stride) else { return Err(too_large()) };
        rows.checked_mul(width).ok_or_else(too_large)?;
        if (from | out | width | stride).is_multiple_of(WORD) {
            let [row, gap] = [width, stride].map(u64::cast_signed);
            let axes = [
                StridedAxis { extent: rows, step: row, out_step: gap },
                StridedAxis { extent: width / WORD, step: WORD.cast_signed(), out_step: WORD.cast_signed() },
            ];
            // SAFETY: as promised; rows that are no less than `width` apart do not overlap.
            return unsafe { self.copy_strided(&axes, WORD, (from, out), stream) };
        }
        // As many vectors of the output as a row may be in.
        let work =
            (width / VECTOR).checked_add(2).and_then(|vectors| vectors.checked_mul(rows)).ok_or_else(too_large)?;
        let mut parameters = parameters![from, rows, width, out, stride];
        // SAFETY: `Launch` invariant; both are memory of this device, and `stride` is no less than `width`, as
        // promised.
        unsafe { self.launch(Kernel::SpreadRows, (work, 1), &mut parameters, stream) }
    }
}

#[cfg(test)]
mod tests;
