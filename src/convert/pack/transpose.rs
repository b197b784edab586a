//! Columns to rows: a block of each column, which stays in the cache, becomes rows that lie one after the other.

use super::isa::Isa;

/// A block of columns and where its rows go.
#[derive(Clone, Copy)]
pub(super) struct Block<'a> {
    /// Where each column's first element of the block is.
    pub(super) columns: &'a [*const u8],
    /// Elements of each column.
    pub(super) rows: usize,
    /// Where the first row goes.
    pub(super) out: *mut u8,
    /// Bytes from one row to the next.
    pub(super) stride: usize,
    /// Whether rows start on cache lines, fill them, and are not read again soon: they are written past the cache.
    pub(super) stream: bool,
}

/// Columns that portable code takes together, so that it writes in runs.
const GROUP: usize = 16;

/// Writes the rows of a block of elements of `size` bytes.
///
/// # Safety
/// Each column has `rows` readable elements, of any alignment; each row has room for one element of each column, `stride`
/// bytes apart; nothing overlaps. The processor has `isa`.
pub(super) unsafe fn transpose(isa: Isa, size: usize, block: Block<'_>) {
    // SAFETY: the contract.
    let (columns, rows) = unsafe { vectorised(isa, size, block) };
    // The columns that no tile covered, and the rows that none did.
    let rest = Block { columns: block.columns.get(columns..).unwrap_or(&[]), ..block };
    let below = Block { columns: block.columns.get(..columns).unwrap_or(&[]), ..block };
    // SAFETY: the contract, for parts of the block.
    unsafe { portable(size, rest, columns, 0) };
    // SAFETY: as above.
    unsafe { portable(size, below, 0, rows) };
}

/// Writes as many columns and rows as full tiles cover, and tells how many those are.
///
/// # Safety
/// As [`transpose`].
unsafe fn vectorised(isa: Isa, size: usize, block: Block<'_>) -> (usize, usize) {
    #[cfg(target_arch = "x86_64")]
    match (isa, size) {
        // SAFETY: the contract: the processor has the instructions.
        (Isa::Avx512, 4) => return unsafe { super::avx512::transpose4(block) },
        // SAFETY: as above.
        (Isa::Avx512, 8) => return unsafe { super::avx512::transpose8(block) },
        // SAFETY: as above.
        (Isa::Avx2, 4) => return unsafe { super::avx2::transpose4(block) },
        // SAFETY: as above.
        (Isa::Avx2, 8) => return unsafe { super::avx2::transpose8(block) },
        _ => {}
    }
    let _ = (isa, size, block);
    (0, 0)
}

/// Writes the columns, the first of which is number `column` of a row, from row `first` on.
///
/// # Safety
/// As [`transpose`], for these columns and rows.
unsafe fn portable(size: usize, block: Block<'_>, column: usize, first: usize) {
    match size {
        // SAFETY: the contract.
        1 => unsafe { portable_of::<1>(block, column, first) },
        // SAFETY: the contract.
        2 => unsafe { portable_of::<2>(block, column, first) },
        // SAFETY: the contract.
        4 => unsafe { portable_of::<4>(block, column, first) },
        // SAFETY: the contract.
        8 => unsafe { portable_of::<8>(block, column, first) },
        // SAFETY: the contract.
        _ => unsafe { portable_of::<16>(block, column, first) },
    }
}

/// # Safety
/// As [`portable`], for elements of `N` bytes.
unsafe fn portable_of<const N: usize>(block: Block<'_>, column: usize, first: usize) {
    for (number, group) in block.columns.chunks(GROUP).enumerate() {
        let start = block.out.wrapping_add((column + number * GROUP) * N);
        for row in first..block.rows {
            let out = start.wrapping_add(row * block.stride).cast::<[u8; N]>();
            for (index, column) in group.iter().enumerate() {
                // SAFETY: the contract: `row` is below the block's rows.
                let element = unsafe { column.cast::<[u8; N]>().wrapping_add(row).read() };
                // SAFETY: the contract: the row has room for this column.
                unsafe { out.wrapping_add(index).write(element) };
            }
        }
    }
}
