//! Reads the validity bitmaps of a matrix's columns as columns of bits, which are packed as any other.

use super::chunk::{ColumnChunk, MatrixColumns};
use crate::alloc::fallible;
use crate::arrow::{Leaf, Mask};
use crate::error::Result;

/// Calls `work` with the bitmaps of chunks' columns as columns.
pub(crate) fn with_bits<R>(
    columns: &[MatrixColumns<'_>],
    work: impl FnOnce(&[MatrixColumns<'_>]) -> Result<R>,
) -> Result<R> {
    let without_nulls = |chunk: &&MatrixColumns<'_>| chunk.columns.iter().any(|column| column.mask.is_none());
    let bytes = columns.iter().filter(without_nulls).map(|chunk| most_elements(chunk).div_ceil(8)).max().unwrap_or(0);
    let all_valid = fallible::filled(bytes, u8::MAX)?;
    let bits = columns.iter().map(|chunk| bits_of(chunk, &all_valid)).collect::<Result<Vec<_>>>()?;
    work(&bits)
}

/// The elements of the column that has most.
fn most_elements(chunk: &MatrixColumns<'_>) -> usize {
    chunk.columns.iter().map(|column| column.leaf.elements).max().unwrap_or(0)
}

/// The bitmaps of a chunk's columns as columns.
fn bits_of<'a>(chunk: &'a MatrixColumns<'a>, all_valid: &'a [u8]) -> Result<MatrixColumns<'a>> {
    let column = |column: &'a ColumnChunk<'a>| {
        let (bytes, offset) = column.mask.as_ref().map_or((all_valid, 0), Mask::bits);
        let leaf = Leaf::of_bits(bytes, offset, column.leaf.elements)?.in_rows(chunk.rows);
        Ok(ColumnChunk { leaf, mask: None, array: column.array })
    };
    let columns = chunk.columns.iter().map(column).collect::<Result<Vec<_>>>()?;
    Ok(MatrixColumns { rows: chunk.rows, columns, is_plain: false })
}
