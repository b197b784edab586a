//! Small matrices of plain columns, which go another way than others.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float32Array, Int32Array, RecordBatch, TimestampSecondArray, UInt64Array};
use arrow_dlpack::{Chunks, Conversion, CopyLog, CopyMode, DType, DeviceArray, ErrorKind};

use crate::cases::memory_of;
use crate::matrix_of;
use crate::of_one_buffer;
use crate::support::dlpack::{Memory, output};
use crate::support::reference::read;

fn value(row: usize, column: usize) -> usize {
    row * 100 + column * 7 + 3
}

/// A batch of so many columns of each kind.
fn batches(rows: usize, columns: usize) -> [RecordBatch; 4] {
    let of = |column: &dyn Fn(usize) -> ArrayRef| {
        RecordBatch::try_from_iter((0..columns).map(|index| (format!("c{index}"), column(index)))).unwrap()
    };
    let values = |column: usize| (0..rows).map(move |row| value(row, column));
    [
        of(&|column| Arc::new(Float32Array::from_iter_values(values(column).map(|value| value as f32)))),
        of(&|column| Arc::new(Int32Array::from_iter_values(values(column).map(|value| value as i32)))),
        of(&|column| Arc::new(UInt64Array::from_iter_values(values(column).map(|value| value as u64)))),
        of(&|column| Arc::new(TimestampSecondArray::from_iter_values(values(column).map(|value| value as i64)))),
    ]
}

fn imported(batch: &RecordBatch) -> DeviceArray {
    DeviceArray::from_record_batch(batch).unwrap()
}

#[test]
fn they_are_what_the_long_way_makes_of_the_same_rows() {
    let shapes = [(17, 4), (18, 8), (100, 11), (128, 16), (333, 40), (1024, 16), (4096, 8)];
    for (rows, columns) in shapes.into_iter().take(if cfg!(miri) { 2 } else { 7 }) {
        for batch in batches(rows + 5, columns) {
            // A chunk more is another way.
            let (whole, parts) = (batch.slice(3, rows), [batch.slice(3, 7), batch.slice(10, rows - 7)]);
            let whole = imported(&whole);
            let parts = parts.each_ref().map(imported);
            let names = (0..columns).rev().step_by(2).map(|index| format!("c{index}"));
            for options in [Conversion::default(), Conversion::default().columns(names).writable(true)] {
                let long = options.to_tensor(Chunks::new(whole.field(), &parts)).unwrap();
                let log = CopyLog::new();
                let short = log.track(|| matrix_of(&whole, &options)).unwrap();
                assert_eq!(
                    (short.dtype(), short.shape(), short.strides()),
                    (long.dtype(), long.shape(), long.strides())
                );
                assert_eq!(read(&short), read(&long), "{rows} {columns}");
                assert!(short.is_copied() && short.is_writable());
                let entries = log.entries();
                assert_eq!((entries.len(), log.bytes()), (1, short.nbytes()));
                let count = short.shape()[1];
                assert_eq!(entries[0].what, format!("matrix of {rows} rows and {count} columns of {}", short.dtype()));
                assert_eq!(entries[0].why, "packed row-major");
            }
            let never = Conversion::default().copy(CopyMode::Never);
            assert_eq!(matrix_of(&whole, &never).unwrap_err().kind(), ErrorKind::Copy);
        }
    }
}

#[test]
fn they_are_written_to_rows_any_distance_apart() {
    for (rows, columns) in [(17, 4), (40, 8), (129, 9), (300, 16)].into_iter().take(if cfg!(miri) { 1 } else { 4 }) {
        for batch in batches(rows, columns) {
            let batch = imported(&batch);
            let expected = matrix_of(&batch, &Conversion::default()).unwrap();
            let (extents, count) = ([rows as i64, columns as i64], columns as i64);
            for stride in [count, count + 1, count + 8, 3 * count] {
                let memory = memory_of(expected.dtype(), &extents, &[stride, 1]);
                let mut out = output(&memory).unwrap();
                let options = Conversion::default();
                let chunks = std::slice::from_ref(&batch);
                let log = CopyLog::new();
                let write = || options.write(Chunks::new(batch.field(), chunks), &mut out);
                log.track(write).unwrap();
                drop(out);
                assert_eq!(read(&memory), read(&expected), "{rows} {columns} {stride}");
                assert_eq!(log.bytes(), expected.nbytes());
            }
        }
    }
}

#[test]
fn outputs_that_do_not_fit_are_refused() {
    let batch = imported(&batches(32, 8)[0]);
    let chunks = std::slice::from_ref(&batch);
    for (dtype, shape, strides, fits) in [
        (DType::Float32, [32, 8], [8, 1], true),
        (DType::Float32, [32, 8], [1, 32], true),
        (DType::Float64, [32, 8], [8, 1], false),
        (DType::Int32, [32, 8], [8, 1], false),
        (DType::Float32, [31, 8], [8, 1], false),
        (DType::Float32, [33, 8], [8, 1], false),
        (DType::Float32, [32, 7], [8, 1], false),
        (DType::Float32, [32, 9], [9, 1], false),
        (DType::Float32, [32, 8], [16, 2], false),
    ] {
        let memory = memory_of(dtype, &shape, &strides);
        let mut out = output(&memory).unwrap();
        let options = Conversion::default().dtype(DType::Float32);
        let written = options.write(Chunks::new(batch.field(), chunks), &mut out);
        assert_eq!(written.is_ok(), fits, "{dtype} {shape:?} {strides:?}");
        if let Err(error) = written {
            assert!(error.kind() == ErrorKind::Argument && error.remedy().is_some(), "{error}");
        }
    }
}

#[test]
fn an_output_over_the_data_is_refused() {
    // Columns of 32 doubles that lie one after the other. What is told is the first one that `out` reaches into.
    let batch = of_one_buffer(32, 8, 32);
    let view = |column| Conversion::default().to_tensor(&batch.column(column).unwrap()).unwrap();
    for (column, inside) in [(0, -2040_isize), (3, 0), (6, 8), (7, 31 * 8)] {
        let memory = Memory::new(&[0; 2048], DType::Float64, &[32, 8], &[8, 1], 0);
        let address = view(column).as_ptr().wrapping_offset(inside);
        let (memory, _) = memory.import_edited(|managed| managed.dl_tensor.data = address.cast());
        let memory = memory.unwrap();
        let mut out = output(&memory).unwrap();
        let (options, chunks) = (Conversion::default(), std::slice::from_ref(&batch));
        let error = options.write(Chunks::new(batch.field(), chunks), &mut out).unwrap_err();
        assert_eq!((error.kind(), error.column()), (ErrorKind::Argument, Some(format!("c{column}").as_str())));
        assert_eq!(read(&view(column))[0], ((column * 32) as f64).to_ne_bytes());
    }
}

#[test]
fn nulls_are_refused_all_the_same() {
    let batch = &batches(64, 8)[0];
    let mut columns = batch.columns().to_vec();
    columns[5] = Arc::new(Float32Array::from_iter((0..64).map(|row| (row != 33).then_some(1.0))));
    let named = columns.into_iter().enumerate().map(|(index, column)| (format!("c{index}"), column, true));
    let batch = imported(&RecordBatch::try_from_iter_with_nullable(named).unwrap());
    let error = matrix_of(&batch, &Conversion::default()).unwrap_err();
    assert_eq!((error.kind(), error.column(), error.row()), (ErrorKind::Null, Some("c5"), Some(33)));
}
