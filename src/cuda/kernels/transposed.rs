//! Launches the kernel that copies rows to columns, and tells which copies it makes.

use std::ffi::c_void;

use super::VECTOR;
use super::axes::{StridedAxis, merged_axes};
use crate::cuda::context::Current;
use crate::cuda::driver::DevicePointer;
use crate::cuda::module::Kernel;
use crate::cuda::stream::Stream;
use crate::error::Result;

/// Rows and columns of the square that a thread copies: `LANES` in kernel_types.cuh.
const SQUARE: u32 = 4;
/// Bytes of a word.
const WORD: u64 = 4;
/// The logarithm of the threads of a block.
const BLOCK_BITS: u32 = 8;
/// The logarithm of the squares beside each other that a block has if there are so many. Their warps read lines of 128 bytes, and write runs of
/// 64 bytes.
const ACROSS_BITS: u32 = 3;
/// The most rows or columns, and the most blocks, all of which the kernel counts in 32 bits.
const MOST: u64 = 1 << 31;

/// A matrix of 4-byte words whose columns become contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transposed {
    /// A multiple of `SQUARE`.
    rows: u32,
    columns: u32,
    /// Bytes from one row to the next in the source.
    step: i64,
    /// Bytes from one column to the next in the output.
    out_step: i64,
}

impl Transposed {
    /// Returns the part of a copy that the kernel makes, and the axes of the rows that are left, with their number before them; `None` if
    /// the kernel does not make this copy.
    pub(super) fn of(
        axes: &[StridedAxis],
        itemsize: u64,
        (from, out): (DevicePointer, DevicePointer),
    ) -> Option<(Self, u64, [StridedAxis; 2])> {
        if itemsize != WORD {
            return None;
        }
        let merged = merged_axes(axes, itemsize, WORD);
        let &[down, across] = merged.as_slice() else { return None };
        let are_lines = across.step == WORD.cast_signed() && down.out_step == WORD.cast_signed();
        let is_aligned = (from | down.step.unsigned_abs()).is_multiple_of(WORD)
            && (out | across.out_step.unsigned_abs()).is_multiple_of(VECTOR);
        let left = down.extent % u64::from(SQUARE);
        let rows = down.extent - left;
        if !are_lines || !is_aligned || rows == 0 || rows.max(across.extent) > MOST {
            return None;
        }
        let [rows, columns] = [rows, across.extent].map(u32::try_from);
        let matrix = Self { rows: rows.ok()?, columns: columns.ok()?, step: down.step, out_step: across.out_step };
        if matrix.blocks().1 >> BLOCK_BITS > MOST {
            return None;
        }
        Some((matrix, u64::from(matrix.rows), [StridedAxis { extent: left, ..down }, across]))
    }

    /// Returns the logarithm of the squares beside each other that a block has, and the threads of all blocks.
    fn blocks(self) -> (u32, u64) {
        let [across, down] = [self.columns, self.rows].map(|lines| lines.div_ceil(SQUARE));
        let log2 = |squares: u32| squares.next_power_of_two().trailing_zeros();
        // A matrix of few rows has more of its columns in a block, so that no thread is idle.
        let bits = log2(across).min(ACROSS_BITS).max(BLOCK_BITS.saturating_sub(log2(down)));
        let blocks = u64::from(across.div_ceil(1 << bits)) * u64::from(down.div_ceil(1 << (BLOCK_BITS - bits)));
        (bits, blocks << BLOCK_BITS)
    }
}

// `Launch` invariant, as in `kernels.rs`: the list of parameters has the types and the order of the kernel in kernel_strided.cuh.
impl Current {
    /// Copies the rows of a matrix so that its columns are contiguous.
    ///
    /// # Errors
    /// As [`Current::unpack_bits`].
    ///
    /// # Safety
    /// As [`Current::copy_strided`], for the axes that `matrix` was made of.
    pub(super) unsafe fn transpose(
        &self,
        matrix: Transposed,
        (from, out): (DevicePointer, DevicePointer),
        stream: Stream,
    ) -> Result<()> {
        let (bits, threads) = matrix.blocks();
        let Transposed { rows, columns, step, out_step } = matrix;
        let mut parameters = parameters![from, step, rows, columns, out, out_step, bits];
        // SAFETY: `Launch` invariant; both are memory of this device, as promised, and the rows and columns are those of the axes.
        unsafe { self.launch(Kernel::Transpose4, (threads, 1), &mut parameters, stream) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(extent: u64, step: i64, out_step: i64) -> StridedAxis {
        StridedAxis { extent, step, out_step }
    }

    fn of(axes: &[StridedAxis], itemsize: u64, addresses: (u64, u64)) -> Option<(u32, u32, u64)> {
        let (matrix, rows, [left, across]) = Transposed::of(axes, itemsize, addresses)?;
        assert_eq!((u64::from(matrix.rows), u64::from(matrix.columns)), (rows, across.extent));
        assert_eq!([matrix.step, matrix.out_step], [left.step, across.out_step]);
        Some((matrix.rows, matrix.columns, left.extent))
    }

    #[test]
    fn rows_that_become_columns_are_told_from_other_copies() {
        let [rows, columns] = [axis(302, 64, 4), axis(16, 4, 1_216)];
        assert_eq!(of(&[rows, columns], 4, (4, 64)), Some((300, 16, 2)));
        // In the other order, with gaps between the rows, backwards, and as parts that merge.
        assert_eq!(of(&[columns, rows], 4, (4, 64)), Some((300, 16, 2)));
        assert_eq!(of(&[axis(302, 68, 4), columns], 4, (4, 64)), Some((300, 16, 2)));
        assert_eq!(of(&[axis(302, -64, 4), columns], 4, (400, 64)), Some((300, 16, 2)));
        assert_eq!(of(&[axis(151, 128, 8), axis(2, 64, 4), columns], 4, (4, 64)), Some((300, 16, 2)));
        assert_eq!(of(&[axis(4, 64, 4), columns], 4, (0, 0)), Some((4, 16, 0)));
        // Words of another size, no whole square, more dimensions, other directions, addresses that are not aligned.
        assert_eq!(of(&[rows, columns], 2, (4, 64)), None);
        assert_eq!(of(&[axis(302, 128, 8), axis(16, 8, 2_432)], 8, (8, 64)), None);
        assert_eq!(of(&[axis(3, 64, 4), columns], 4, (4, 64)), None);
        assert_eq!(of(&[axis(2, 20_000, 20_000), rows, columns], 4, (4, 64)), None);
        assert_eq!(of(&[axis(302, 64, 8), axis(16, 4, 2_432)], 4, (4, 64)), None);
        assert_eq!(of(&[axis(302, 128, 4), axis(16, 8, 1_216)], 4, (4, 64)), None);
        assert_eq!(of(&[rows, columns], 4, (2, 64)), None);
        assert_eq!(of(&[rows, columns], 4, (4, 72)), None);
        assert_eq!(of(&[axis(302, 66, 4), columns], 4, (4, 64)), None);
        assert_eq!(of(&[rows, axis(16, 4, 1_220)], 4, (4, 64)), None);
        assert_eq!(of(&[axis(MOST + 4, 8, 4), axis(2, 4, 1 << 34)], 4, (4, 64)), None);
        assert_eq!(of(&[axis(MOST, 8, 4), axis(2, 4, 1 << 34)], 4, (4, 64)), Some((1 << 31, 2, 0)));
        // More blocks than the kernel counts.
        assert_eq!(of(&[axis(MOST, 1 << 33, 4), axis(MOST, 4, 1 << 34)], 4, (4, 64)), None);
    }

    #[test]
    fn blocks_reach_every_square() {
        for (rows, columns, bits, blocks) in [
            (4, 1, 8, 1),
            (4, 1_025, 8, 2),
            (64, 1_000_000, 4, 15_625),
            (1_024, 16, 2, 4),
            (1_028, 16, 2, 5),
            (1_000_000, 64, 3, 7_813 * 2),
            (1_000_000, 3, 0, 977),
            (1 << 31, 1 << 31, 3, (1 << 24) * (1 << 26)),
        ] {
            let matrix = Transposed { rows, columns, step: 0, out_step: 0 };
            assert_eq!(matrix.blocks(), (bits, blocks << BLOCK_BITS), "{rows} x {columns}");
            let down = u64::from(rows.div_ceil(SQUARE)).div_ceil(1 << (BLOCK_BITS - bits));
            assert!(down << (BLOCK_BITS - bits) << 2 <= u64::from(u32::MAX));
        }
    }
}
