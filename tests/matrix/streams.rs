//! Streams that are packed while they are read.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use arrow_array::{Array, ArrayRef, Float64Array, Int32Array, RecordBatch};
use arrow_dlpack::{
    Chunks, Conversion, CopyLog, DType, Device, DeviceArray, DeviceArrayStream, ErrorKind, Group, MemoryOrder,
    NullPolicy, Result, Selection,
};

/// A batch of numbers from `first` on, which are null where `is_null` says.
fn batch(first: i32, rows: i32, is_null: impl Fn(i32) -> bool) -> DeviceArray {
    let a: ArrayRef = Arc::new(Int32Array::from_iter((first..first + rows).map(|row| (!is_null(row)).then_some(row))));
    let b: ArrayRef = Arc::new(Float64Array::from_iter_values((first..first + rows).map(|row| f64::from(row) * 2.0)));
    // One type for all batches, with nulls or without.
    let columns = [("a", a, true), ("b", b, true)];
    DeviceArray::from_record_batch(&RecordBatch::try_from_iter_with_nullable(columns).unwrap()).unwrap()
}

fn stream(batches: impl Iterator<Item = DeviceArray> + Send + 'static) -> DeviceArrayStream {
    let field = batch(0, 0, |_| false).field().clone();
    DeviceArrayStream::new(field, Device::CPU.device_type(), batches.map(Ok))
}

#[test]
fn batches_are_let_go_of_as_they_are_packed() {
    const ROWS: i32 = if cfg!(miri) { 3 } else { 1000 };
    const BATCHES: i32 = if cfg!(miri) { 40 } else { 200 };
    let most = Arc::new(AtomicUsize::new(0));
    let (counted, mut alive) = (most.clone(), Vec::<Weak<dyn Array>>::new());
    let batches = (0..BATCHES).map(move |number| {
        let column: ArrayRef = Arc::new(Int32Array::from_iter_values(number * ROWS..(number + 1) * ROWS));
        alive.push(Arc::downgrade(&column));
        let held = alive.iter().filter(|column| column.strong_count() > 0).count();
        counted.fetch_max(held, Ordering::Relaxed);
        let other: ArrayRef = Arc::new(Float64Array::from(vec![0.5; ROWS as usize]));
        let columns = [("a", column, true), ("b", other, true)];
        DeviceArray::from_record_batch(&RecordBatch::try_from_iter_with_nullable(columns).unwrap()).unwrap()
    });
    let matrix = Conversion::default().read_tensor(&mut stream(batches)).unwrap();
    assert_eq!((matrix.shape(), matrix.dtype()), (&[i64::from(ROWS * BATCHES), 2][..], DType::Float64));
    assert!(matrix.as_slice::<f64>().unwrap().chunks(2).enumerate().all(|(row, pair)| pair == [row as f64, 0.5]));
    // An eighth of the result, and the batch at hand.
    let most = most.load(Ordering::Relaxed);
    assert!((1..=BATCHES as usize / 8 + 2).contains(&most), "{most} batches at once");
}

#[test]
fn of_batches_without_rows_one_is_held() {
    let most = Arc::new(AtomicUsize::new(0));
    let (counted, mut alive) = (most.clone(), Vec::<Weak<dyn Array>>::new());
    let batches = (0..if cfg!(miri) { 10 } else { 100 }).map(move |_| {
        let column: ArrayRef = Arc::new(Int32Array::from(Vec::<i32>::new()));
        alive.push(Arc::downgrade(&column));
        let held = alive.iter().filter(|column| column.strong_count() > 0).count();
        counted.fetch_max(held, Ordering::Relaxed);
        let other: ArrayRef = Arc::new(Float64Array::from(Vec::<f64>::new()));
        let columns = [("a", column, true), ("b", other, true)];
        DeviceArray::from_record_batch(&RecordBatch::try_from_iter_with_nullable(columns).unwrap()).unwrap()
    });
    let matrix = Conversion::default().read_tensor(&mut stream(batches)).unwrap();
    assert_eq!(matrix.shape(), [0, 2]);
    // The one that is held, and the batch at hand.
    assert!(most.load(Ordering::Relaxed) <= 3, "{most:?} batches at once");
}

#[test]
fn the_result_and_its_log_are_those_of_all_batches_together() {
    let rows = [0, 5, 0, 64, 1, 700, 0];
    let nulls = |row: i32| row % 11 == 3;
    let batches = || {
        let mut first = 0;
        rows.map(|rows| {
            first += rows;
            batch(first - rows, rows, nulls)
        })
    };
    let groups = [
        ("x".to_owned(), Group::matrix(["b".to_owned(), "a".to_owned()])),
        ("y".to_owned(), Group::column("a".to_owned())),
    ];
    for order in [MemoryOrder::C, MemoryOrder::A, MemoryOrder::F] {
        for nulls in [NullPolicy::Nan, NullPolicy::Keep] {
            let matrix = Conversion::default().memory_order(order).nulls(nulls).dtype(DType::Float32);
            let grouped = matrix.clone().select(Selection::Named(groups.to_vec()));
            let (together, streamed) = (CopyLog::new(), CopyLog::new());
            let chunks = batches();
            let field = chunks[0].field();
            let (one, all) = together.track(|| {
                let one = matrix.to_tensor(Chunks::new(field, &chunks)).unwrap();
                (one, grouped.to_tensors(Chunks::new(field, &chunks)).unwrap())
            });
            let (read, read_all) = streamed.track(|| {
                let read = matrix.read_tensor(&mut stream(batches().into_iter())).unwrap();
                let mut all = stream(batches().into_iter());
                (read, grouped.read_tensors(&mut all).unwrap())
            });
            let pairs = all.iter().zip(&read_all).map(|(one, other)| (&one.1, &other.1)).chain([(&one, &read)]);
            for (one, other) in pairs {
                assert_eq!((one.shape(), one.strides(), one.dtype()), (other.shape(), other.strides(), other.dtype()));
                assert_eq!(one.as_bytes().is_ok(), other.as_bytes().is_ok());
                if let (Ok(one), Ok(other)) = (one.as_bytes(), other.as_bytes()) {
                    assert!(one == other, "{order:?} {nulls:?}");
                }
            }
            let told = |log: &CopyLog| log.entries().iter().map(|entry| format!("{entry:?}")).collect::<Vec<_>>();
            assert_eq!(told(&together), told(&streamed));
        }
    }
}

#[test]
fn a_single_array_with_rows_stays_where_it_is() {
    let only = batch(0, 5, |_| false);
    let empty = || batch(0, 0, |_| false);
    let options = Conversion::default().columns(["a"]);
    let read = options.read_tensor(&mut stream([empty(), only.clone(), empty()].into_iter())).unwrap();
    let view = options.to_tensor(&only).unwrap();
    assert!(!read.is_copied() && read.as_ptr() == view.as_ptr());
    let two = options.read_tensor(&mut stream([only.clone(), empty(), only].into_iter())).unwrap();
    assert_eq!(two.as_slice::<i32>().unwrap(), [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]);
    assert_eq!(options.read_tensor(&mut stream(std::iter::empty())).unwrap().shape(), [0, 1]);
}

#[test]
fn columns_that_are_no_structs_are_joined() {
    let column = |first: i32| {
        let array = Int32Array::from_iter_values(first..first + 3);
        DeviceArray::from_arrow(&array, crate::support::arrow::field("n", arrow_schema::DataType::Int32)).unwrap()
    };
    let arrays = [column(0), column(3)].map(Ok);
    let mut stream = DeviceArrayStream::new(column(0).field().clone(), Device::CPU.device_type(), arrays.into_iter());
    let tensor = Conversion::default().read_tensor(&mut stream).unwrap();
    assert_eq!(tensor.as_slice::<i32>().unwrap(), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn an_error_names_the_lowest_row_and_leaves_the_rest() {
    // 2 * 70 does not fit int8; row 60 is null.
    let batches = |null: i32| (0..10).map(move |number| batch(number * 20, 20, move |row| row == null));
    let matrix = Conversion::default().dtype(DType::Int8);
    for (null, expected) in [
        (60, (ErrorKind::Null, "a", 60)),
        (64, (ErrorKind::Null, "a", 64)),
        (65, (ErrorKind::Cast, "b", 64)),
        (1000, (ErrorKind::Cast, "b", 64)),
    ] {
        let mut stream = stream(batches(null));
        let chunks: Vec<_> = batches(null).collect();
        let found = [
            matrix.read_tensor(&mut stream).unwrap_err(),
            matrix.to_tensor(Chunks::new(chunks[0].field(), &chunks)).unwrap_err(),
        ];
        for error in &found {
            assert_eq!((error.kind(), error.column().unwrap(), error.row().unwrap()), expected);
        }
        assert_eq!(found[0], found[1]);
        let rest: Vec<_> = stream.collect::<Result<_>>().unwrap();
        assert_eq!(rest.len(), 6, "what comes after the batch of row 64, or 60");
    }
}
