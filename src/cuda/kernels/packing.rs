//! Launches the kernels that pack columns into a matrix, and decides how to cut it.

use std::ffi::c_void;

#[cfg(doc)]
use super::KernelDictionary;
use super::{ColumnType, LANES, VECTOR, too_large};
use crate::cuda::context::Current;
use crate::cuda::driver::DevicePointer;
use crate::cuda::module::Kernel;
use crate::cuda::stream::Stream;
use crate::error::{Error, Result};

/// Bytes of a tile in shared memory: `TILE_BYTES` in kernel_types.cuh.
const TILE_BYTES: u64 = 18_432;
/// Threads of a block, which write one tile together.
const THREADS: u64 = 256;

/// How the elements of several columns are laid out in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MatrixLayout {
    /// Row-major, with this number of elements from one row to the next.
    RowMajor { stride: u64 },
    /// Column-major, with this number of elements from one column to the next.
    ColumnMajor { stride: u64 },
}

/// Columns that become a matrix.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packing {
    /// As many [`Column`]s, in device memory, aligned to 16 bytes: their fills may be loaded at once.
    pub(crate) columns: DevicePointer,
    pub(crate) count: u64,
    pub(crate) rows: u64,
    /// The number of the first row, for misfits.
    pub(crate) first_row: u64,
    /// The dtype of the output, if columns are cast or gathered. Of 16 bytes, they are gathered as
    /// padded rows, into column-major order.
    pub(crate) cast_to: Option<ColumnType>,
    /// Whether the casts of all columns are frequent ones: [`ColumnType::is_frequent_as`], [`KernelDictionary::is_frequent_as`].
    pub(crate) is_frequent: bool,
    /// Whether nulls of a column are filled.
    pub(crate) is_filled: bool,
    /// Bytes of an element of the output: 1, 2, 4, 8 or 16.
    pub(crate) itemsize: u64,
    /// The first element, aligned to its size.
    pub(crate) out: DevicePointer,
    pub(crate) layout: MatrixLayout,
    /// For each column, a number that is lowered to the index of its first element that does not fit, if columns are
    /// cast.
    pub(crate) misfits: DevicePointer,
}

impl Packing {
    /// Returns the kernel for the layout and the size of the elements.
    fn kernel(&self) -> Result<Kernel> {
        let Self { itemsize, is_frequent, .. } = *self;
        Ok(match (self.layout, self.cast_to.is_some(), itemsize) {
            (_, true, 1 | 2 | 4 | 8) if !is_frequent => Kernel::CastAny,
            (MatrixLayout::ColumnMajor { .. }, false, 1) => Kernel::PackColumns1,
            (MatrixLayout::ColumnMajor { .. }, false, 2) => Kernel::PackColumns2,
            (MatrixLayout::ColumnMajor { .. }, false, 4) => Kernel::PackColumns4,
            (MatrixLayout::ColumnMajor { .. }, false, 8) => Kernel::PackColumns8,
            (MatrixLayout::ColumnMajor { .. }, false, 16) => Kernel::PackColumns16,
            (MatrixLayout::ColumnMajor { .. }, true, 1 | 2 | 4 | 8) => Kernel::CastColumns,
            (MatrixLayout::ColumnMajor { .. }, true, 16) => Kernel::PadColumns16,
            (MatrixLayout::RowMajor { .. }, false, 1) => Kernel::PackRows1,
            (MatrixLayout::RowMajor { .. }, false, 2) => Kernel::PackRows2,
            (MatrixLayout::RowMajor { .. }, false, 4) => Kernel::PackRows4,
            (MatrixLayout::RowMajor { .. }, false, 8) => Kernel::PackRows8,
            (MatrixLayout::RowMajor { .. }, false, 16) => Kernel::PackRows16,
            (MatrixLayout::RowMajor { .. }, true, 1 | 2 | 4 | 8) => Kernel::CastRows,
            _ => return Err(Error::unsupported(format!("no kernel is for elements of {itemsize} bytes"))),
        })
    }
}

/// How a matrix is cut into tiles: `Tile` in kernel_types.cuh.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tile {
    row_bits: u32,
    columns: u32,
    pitch: u32,
    is_vectors: u32,
    is_filled: u32,
    is_column_major: u32,
}

impl Tile {
    /// Chooses the widest tile: all columns, so that writes are contiguous, if 32 rows of them fit, or 128 where a thread casts
    /// several. Fewer rows if otherwise some multiprocessors would be idle.
    fn new(packing: &Packing, stride: u64, multiprocessors: u64) -> Self {
        let Packing { count, itemsize, rows, out, cast_to, .. } = *packing;
        let tall = if cast_to.is_some() { 32 * LANES } else { 32 };
        let words = TILE_BYTES / itemsize;
        let vector = VECTOR / itemsize;
        let is_vectors = [out, stride.wrapping_mul(itemsize), count.wrapping_mul(itemsize)]
            .iter()
            .all(|bytes| bytes.is_multiple_of(VECTOR));
        // An odd number of vectors, or of elements, so that neighbouring rows are in other banks.
        let pitch = |columns: u64| match is_vectors {
            true => ((columns / vector) | 1) * vector,
            false if columns == stride => columns,
            false => columns | 1,
        };
        let all = count.min(words);
        // Strips of about as many columns each, because a block may have tiles of one strip alone.
        let strip = count.div_ceil(count.div_ceil(128 / itemsize).max(1)).next_multiple_of(vector);
        let columns = if pitch(all) * tall <= words { all } else { strip };
        let pitch = pitch(columns);
        let mut row_bits = (words / pitch).clamp(32, 1024).ilog2();
        let tiles = |row_bits: u32| rows.div_ceil(1 << row_bits).saturating_mul(count.div_ceil(columns));
        while row_bits > 5 && tiles(row_bits) < 2 * multiprocessors {
            row_bits -= 1;
        }
        // All values are below the words of a tile.
        let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let (is_vectors, is_filled) = (u32::from(is_vectors), u32::from(packing.is_filled));
        Self { row_bits, columns: small(columns), pitch: small(pitch), is_vectors, is_filled, is_column_major: 0 }
    }

    /// Cuts each column by itself, as a matrix of one column.
    fn of_columns(packing: &Packing, multiprocessors: u64) -> Self {
        let column = Packing { count: 1, ..*packing };
        Self { is_column_major: 1, ..Self::new(&column, 1, multiprocessors.div_ceil(packing.count.max(1))) }
    }

    fn count(self, rows: u64, columns: u64) -> u64 {
        rows.div_ceil(1 << self.row_bits).saturating_mul(columns.div_ceil(u64::from(self.columns)))
    }
}

// `Launch` invariant, as in `kernels.rs`: each list of parameters has the types and the order of its kernel in kernels.cu.
impl Current {
    /// Writes the elements of columns as a matrix, cast and filled as each column says.
    ///
    /// # Errors
    /// As [`Current::unpack_bits`], and if there are too many columns, no kernel has this element size, rows or columns
    /// of the output would overlap, or the output is misaligned.
    ///
    /// # Safety
    /// The columns, all that they name for this many rows, the output, and the misfits where columns are cast, are memory of
    /// this device until the kernel is done. Without `cast_to`, each column's type is [`ColumnType::Same`], and none is gathered. With it,
    /// columns of 16 bytes are gathered by [`CodeMeaning::Places`](super::CodeMeaning) of their own alignment.
    pub(crate) unsafe fn pack(&self, packing: &Packing, stream: Stream) -> Result<()> {
        let Packing { columns, rows, first_row, itemsize, out, misfits, layout, .. } = *packing;
        let count = u32::try_from(packing.count).map_err(|_| too_large())?;
        let (stride, least, lines) = match layout {
            MatrixLayout::RowMajor { stride } => (stride, packing.count, rows),
            MatrixLayout::ColumnMajor { stride } => (stride, rows, packing.count),
        };
        let bytes = lines.checked_mul(stride).and_then(|elements| elements.checked_mul(itemsize));
        bytes.and_then(|bytes| bytes.checked_add(out)).ok_or_else(too_large)?;
        if stride < least || itemsize == 0 || !out.is_multiple_of(itemsize) || !columns.is_multiple_of(VECTOR) {
            return Err(Error::internal("the output of a kernel overlaps itself, or it or the columns are misaligned"));
        }
        if count == 0 || rows == 0 {
            return Ok(());
        }
        let kernel = packing.kernel()?;
        let to = packing.cast_to.unwrap_or(ColumnType::Same) as u32;
        let size = u32::try_from(itemsize).map_err(|_| Error::internal("elements of more than 32 bits of bytes"))?;
        let multiprocessors = self.device().multiprocessors()?;
        let (tile, tiles, down) = match (layout, kernel) {
            (MatrixLayout::RowMajor { .. }, _) => {
                let tile = Tile::new(packing, stride, multiprocessors);
                (tile, tile.count(rows, packing.count), 1)
            }
            (MatrixLayout::ColumnMajor { .. }, Kernel::CastAny) => {
                let tile = Tile::of_columns(packing, multiprocessors);
                (tile, tile.count(rows, 1), packing.count)
            }
            (MatrixLayout::ColumnMajor { .. }, _) => {
                let of_a_thread = if kernel == Kernel::CastColumns { LANES } else { VECTOR / itemsize };
                let work = (rows.div_ceil(of_a_thread) + 1, packing.count);
                // The driver reads as many as the kernel has: only casts have the last.
                let mut parameters = parameters![columns, count, rows, out, stride, misfits, first_row, to, size];
                // SAFETY: `Launch` invariant; columns, output and misfits are memory of this device, as promised, and
                // the output was checked above.
                return unsafe { self.launch(kernel, work, &mut parameters, stream) };
            }
        };
        let work = tiles.checked_mul(THREADS).ok_or_else(too_large)?;
        let mut parameters = parameters![columns, count, rows, out, stride, tile, misfits, first_row, to, size];
        // SAFETY: `Launch` invariant; columns, output and misfits are memory of this device, as promised, and the output was
        // checked above.
        unsafe { self.launch(kernel, (work, down), &mut parameters, stream) }
    }

    /// Writes the bytes of each column's first misfit to `values`, 32 bytes each, if its row belongs to this packing.
    ///
    /// # Errors
    /// As [`Current::pack`].
    ///
    /// # Safety
    /// As [`Current::pack`], after which this is called on the same stream; `values` is memory of this device as well.
    pub(crate) unsafe fn keep_misfits(&self, packing: &Packing, values: DevicePointer, stream: Stream) -> Result<()> {
        let Packing { columns, rows, first_row, misfits, .. } = *packing;
        let count = u32::try_from(packing.count).map_err(|_| too_large())?;
        let mut parameters = parameters![columns, count, rows, first_row, misfits, values];
        // SAFETY: `Launch` invariant; `columns` and `misfits` are those of `pack`, and `values` is memory of this
        // device, as promised.
        unsafe { self.launch(Kernel::KeepMisfits, (packing.count, 1), &mut parameters, stream) }
    }
}
