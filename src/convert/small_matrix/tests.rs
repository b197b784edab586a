//! Tests small matrices against their definition, element by element.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, UInt32Array, UInt64Array};

use super::*;
use crate::arrow::DeviceArray;
use crate::dtype::DType;

/// Bytes around the rows stay unchanged.
const UNTOUCHED: u8 = 0xa5;

fn value(row: usize, column: usize) -> usize {
    row * 1000 + column
}

/// A batch of columns whose values tell row and column, some rows of which are cut off, and its dtype.
fn batch(size: usize, columns: usize, rows: usize, cut: usize) -> (DeviceArray, DType) {
    let array = |column: usize| -> ArrayRef {
        let values = (0..rows + cut).map(|row| value(row.saturating_sub(cut), column));
        if size == 4 {
            Arc::new(UInt32Array::from_iter_values(values.map(|value| u32::try_from(value).unwrap())))
        } else {
            Arc::new(UInt64Array::from_iter_values(values.map(|value| value as u64)))
        }
    };
    let batch = RecordBatch::try_from_iter((0..columns).map(|column| (column.to_string(), array(column)))).unwrap();
    let dtype = if size == 4 { DType::UInt32 } else { DType::UInt64 };
    (DeviceArray::from_record_batch(&batch.slice(cut, rows)).unwrap(), dtype)
}

/// Writes all rows `before` bytes into a block, `gap` bytes between them, and compares every byte of the block.
fn check(isa: Isa, size: usize, columns: usize, rows: usize, before: usize, gap: usize) {
    let (array, dtype) = batch(size, columns, rows, rows % 3);
    let plain = array.view().plain_columns(0..columns, dtype).unwrap();
    assert!(are_served(&plain));
    let (width, stride) = (columns * size, columns * size + gap);
    let mut block = vec![UNTOUCHED; before + rows * stride + 64 + HALF];
    let start = block.as_ptr().addr().wrapping_neg() % 64 + before;
    let rows_out = block[start..].as_mut_ptr();
    // SAFETY: so many rows are inside the block.
    let out = unsafe { Rows::from_raw(rows_out, stride, rows, width) };
    // SAFETY: as many rows as columns have, apart from them; the processor has the set.
    unsafe { write(isa, &plain, &out) };
    let mut expected = vec![UNTOUCHED; block.len()];
    for row in 0..rows {
        for column in 0..columns {
            let at = start + row * stride + column * size;
            expected[at..at + size].copy_from_slice(&value(row, column).to_le_bytes()[..size]);
        }
    }
    assert!(block == expected, "{isa:?} {size} {columns} {rows} {before} {gap}");
}

#[test]
fn every_byte_is_where_it_belongs_and_no_other_is_written() {
    // For Miri, whole half lines and a rest of each size, and a rest behind a tile and behind a block.
    let (shapes, counts, places): (&[_], &[_], &[_]) = if cfg!(miri) {
        (&[(4, 8), (4, 9), (8, 5)], &[17, 33], &[0, 20])
    } else {
        (
            &[(4, 8), (4, 9), (4, 15), (4, 16), (4, 24), (4, 33), (8, 4), (8, 5), (8, 8), (8, 16)],
            &[17, 18, 31, 32, 33, 47, 48, 49, 63, 64, 65, 129, 161, 300],
            &[0, 4, 8, 16, 20, 32, 48, 60],
        )
    };
    for isa in Isa::available() {
        for &(size, columns) in shapes {
            for &rows in counts {
                for &before in places {
                    if before % size == 0 {
                        check(*isa, size, columns, rows, before, 0);
                    }
                }
                check(*isa, size, columns, rows, 0, size);
                check(*isa, size, columns, rows, size, 64);
            }
        }
    }
}

#[test]
fn rows_of_any_alignment_are_written() {
    for isa in Isa::available() {
        for before in (0..64).step_by(if cfg!(miri) { 27 } else { 1 }) {
            check(*isa, 4, 16, 50, before, 0);
            check(*isa, 8, 8, 50, before, 0);
        }
    }
}

#[test]
fn what_is_not_served_is_left_to_others() {
    for (size, columns, rows) in [(4, 7, 100), (8, 3, 100), (4, 16, 16), (8, 8, 1)] {
        let (array, dtype) = batch(size, columns, rows, 0);
        let plain = array.view().plain_columns(0..columns, dtype).unwrap();
        assert!(pack_small(&plain).unwrap().is_none(), "{size} {columns} {rows}");
    }
    let column: ArrayRef = Arc::new(UInt32Array::from(vec![0; SMALL_BELOW / 64 / 4]));
    let large = RecordBatch::try_from_iter((0..64).map(|name| (name.to_string(), column.clone()))).unwrap();
    let large = DeviceArray::from_record_batch(&large).unwrap();
    assert!(pack_small(&large.view().plain_columns(0..64, DType::UInt32).unwrap()).unwrap().is_none());
}
