//! Do arrays, batches and tensors become series and frames, without a copy where polars has their layout?

use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{
    Array, ArrayRef, BooleanArray, DictionaryArray, FixedSizeBinaryArray, Int8Array, Int64Array, LargeStringArray,
    ListArray, RecordBatch, StringArray, StringViewArray, Time32SecondArray, TimestampMicrosecondArray,
    TimestampSecondArray,
};
use arrow_dlpack::{Conversion, CopyLog, CopyMode, DType, DeviceArray, ErrorKind, MemoryOrder, Tensor, polars};
use arrow_dlpack_polars::{Chunks, Convert, chunks, numbers, to_frame, to_series};
use polars_core::prelude::*;

fn tensor(array: &dyn Array) -> Tensor {
    Conversion::default().tensor(array).unwrap()
}

#[test]
fn numbers_are_the_same_memory() {
    let array = Int64Array::from(vec![Some(1), None, Some(3)]);
    let series = to_series(&array, CopyMode::Never).unwrap();
    let chunk = series.i64().unwrap().downcast_get(0).unwrap();
    assert_eq!((chunk.values().as_ptr(), series.null_count()), (array.values().as_ptr(), 1));
    // So are ticks, in their own dtype.
    let ticks = TimestampMicrosecondArray::from(vec![1, 2]).with_timezone("Europe/Berlin");
    let series = to_series(&ticks, CopyMode::Never).unwrap();
    assert_eq!(series.dtype().to_string(), "datetime[μs, Europe/Berlin]");
    assert_eq!(series.datetime().unwrap().physical().cont_slice().unwrap().as_ptr(), ticks.values().as_ptr());
    let views = StringViewArray::from(vec!["a", "a longer text than twelve bytes"]);
    let series = to_series(&views, CopyMode::Never).unwrap();
    assert_eq!(series.str().unwrap().get(1), Some("a longer text than twelve bytes"));
}

#[test]
fn a_copy_that_is_asked_for_is_made_once() {
    let array = Int64Array::from(vec![Some(1), None, Some(3)]);
    let matrix = Conversion::default().memory_order(MemoryOrder::F).tensor(&numbers(1, 3)).unwrap();
    let log = CopyLog::new();
    let series = log.track(|| to_series(&array, CopyMode::Always)).unwrap();
    assert_ne!(series.i64().unwrap().downcast_get(0).unwrap().values().as_ptr(), array.values().as_ptr());
    assert_eq!((log.entries().len(), series.null_count()), (1, 1), "{:?}", log.entries());
    let log = CopyLog::new();
    let frame = log.track(|| polars::matrix_to_frame(&matrix, &["x"], CopyMode::Always)).unwrap();
    assert_ne!(
        frame.column("x").unwrap().f32().unwrap().cont_slice().unwrap().as_ptr(),
        matrix.as_ptr().cast_const().cast()
    );
    assert_eq!(log.entries().len(), 1, "{:?}", log.entries());
}

#[test]
fn chunks_stay_chunks() {
    let chunks: Vec<DeviceArray> = [vec![1, 2], vec![], vec![3]]
        .map(|values| chunks(&Int64Array::from(values)).unwrap().arrays()[0].clone())
        .into();
    let series = to_series(&chunks, CopyMode::Never).unwrap();
    let lengths: Vec<usize> = series.chunk_lengths().collect();
    assert_eq!((series.len(), lengths), (3, vec![2, 0, 1]));
    let none = to_series(&Chunks { field: chunks[0].field().clone(), arrays: Vec::new() }, CopyMode::Never).unwrap();
    assert_eq!((none.len(), none.dtype()), (0, &DataType::Int64));
}

#[test]
fn other_types_are_cast_and_logged_or_refused() {
    let cases: Vec<(ArrayRef, DataType)> = vec![
        (Arc::new(StringArray::from(vec!["a", "b"])), DataType::String),
        (Arc::new(LargeStringArray::from(vec!["a", "b"])), DataType::String),
        (Arc::new(FixedSizeBinaryArray::try_from_iter([b"ab", b"cd"].into_iter()).unwrap()), DataType::Binary),
        (Arc::new(TimestampSecondArray::from(vec![1, 2])), DataType::Datetime(TimeUnit::Milliseconds, None)),
        (Arc::new(Time32SecondArray::from(vec![1, 2])), DataType::Time),
        (
            Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>([Some([Some(1)]), Some([None])])),
            DataType::List(Box::new(DataType::Int32)),
        ),
        (
            Arc::new(["a", "b"].into_iter().collect::<DictionaryArray<Int32Type>>()),
            DataType::from_categories(Categories::global()),
        ),
    ];
    for (array, expected) in cases {
        let name = array.data_type().to_string();
        let log = CopyLog::new();
        let series = log.track(|| to_series(&array, CopyMode::IfNeeded)).unwrap();
        assert_eq!((series.dtype(), series.len()), (&expected, 2), "{name}");
        assert_eq!(log.entries().len(), 1, "{name}: {:?}", log.entries());
        let error = to_series(&array, CopyMode::Never).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Copy, "{name}: {error}");
    }
}

#[test]
fn a_value_that_does_not_survive_is_an_error() {
    let late = TimestampSecondArray::from(vec![1, i64::MAX]);
    let error = to_series(&late, CopyMode::IfNeeded).unwrap_err();
    assert_eq!((error.kind(), error.row()), (ErrorKind::Cast, Some(1)), "{error}");
}

#[test]
fn tensors_are_series_over_their_memory() {
    let array = Int64Array::from(vec![1, 2, 3]);
    let series = polars::tensor_to_series("x", &tensor(&array), CopyMode::Never).unwrap();
    assert_eq!(
        (series.name().as_str(), series.i64().unwrap().cont_slice().unwrap().as_ptr()),
        ("x", array.values().as_ptr())
    );
    // Bools are bits in polars.
    let bools = tensor(&BooleanArray::from(vec![true, false, true]));
    let series = polars::tensor_to_series("x", &bools, CopyMode::IfNeeded).unwrap();
    assert_eq!(series, Series::new("x".into(), [true, false, true]));
    assert_eq!(polars::tensor_to_series("x", &bools, CopyMode::Never).unwrap_err().kind(), ErrorKind::Copy);
}

#[test]
fn rows_of_tensors_are_arrays_of_their_shape() {
    let flat = Int8Array::from_iter_values(0..24);
    for shape in [&[24_usize][..], &[4, 6], &[4, 3, 2], &[2, 3, 2, 2]] {
        let tensor = Tensor::from_vec(flat.values().to_vec(), shape).unwrap();
        let series = polars::tensor_to_series("x", &tensor, CopyMode::Never).unwrap();
        let mut dtype = DataType::Int8;
        for extent in shape[1..].iter().rev() {
            dtype = DataType::Array(Box::new(dtype), *extent);
        }
        assert_eq!((series.len(), series.dtype()), (shape[0], &dtype));
        let back = Conversion::default().copy(CopyMode::Never).tensor(&series).unwrap();
        assert_eq!((back.as_ptr(), back.shape()), (tensor.as_ptr(), tensor.shape()));
    }
}

#[test]
fn rows_in_another_order_are_put_in_order() {
    // A column of column-major images: their dimensions are a permutation in Arrow, which polars does not have.
    let matrix = Conversion::default().memory_order(MemoryOrder::F).tensor(&numbers(2, 3)).unwrap();
    let log = CopyLog::new();
    let series = log.track(|| polars::tensor_to_series("x", &matrix, CopyMode::IfNeeded)).unwrap();
    assert!(!log.entries().is_empty());
    let back = Conversion::default().tensor(&series).unwrap();
    assert_eq!(back.as_slice::<f32>().unwrap(), [0.0, 1000.0, 1.0, 1001.0, 2.0, 1002.0]);
    assert_eq!(polars::tensor_to_series("x", &matrix, CopyMode::Never).unwrap_err().kind(), ErrorKind::Copy);
}

#[test]
fn a_matrix_is_a_frame() {
    let frame = numbers(3, 5);
    let names = ["c0", "c1", "c2"];
    let columns = Conversion::default().memory_order(MemoryOrder::F).tensor(&frame).unwrap();
    let back = polars::matrix_to_frame(&columns, &names, CopyMode::Never).unwrap();
    assert_eq!(back, frame);
    assert_eq!(
        back.column("c0").unwrap().f32().unwrap().cont_slice().unwrap().as_ptr(),
        columns.as_ptr().cast_const().cast()
    );
    let rows = Conversion::default().tensor(&frame).unwrap();
    assert_eq!(polars::matrix_to_frame(&rows, &names, CopyMode::IfNeeded).unwrap(), frame);
    assert_eq!(polars::matrix_to_frame(&rows, &names, CopyMode::Never).unwrap_err().kind(), ErrorKind::Copy);
    assert!(polars::matrix_to_frame(&rows, &names[..2], CopyMode::IfNeeded).is_err());
}

#[test]
fn batches_are_frames_column_by_column() {
    let x: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let y: ArrayRef = Arc::new(StringViewArray::from(vec![Some("a"), None]));
    let batch = RecordBatch::try_from_iter([("x", x.clone()), ("y", y)]).unwrap();
    let chunks = vec![DeviceArray::from_record_batch(&batch).unwrap(); 2];
    let frame = to_frame(&chunks, CopyMode::Never).unwrap();
    assert_eq!(frame, df!("x" => [1_i64, 2, 1, 2], "y" => [Some("a"), None, Some("a"), None]).unwrap());
    assert_eq!(frame.column("x").unwrap().n_chunks(), 2);
    let error = to_frame(&x, CopyMode::Never).unwrap_err();
    assert!(error.to_string().contains("polars::to_series"), "{error}");
    let again = to_frame(&frame, CopyMode::Never).unwrap();
    assert_eq!(again, frame);
}

#[test]
fn rows_of_different_lengths_are_lists() {
    let lists = Series::new("x".into(), [Series::new("".into(), [1.5_f32, 2.5]), Series::new("".into(), [3.5_f32])]);
    let ragged = Conversion::default().rows(&lists).unwrap();
    let back = to_series(&ragged.to_arrow(CopyMode::Never).unwrap(), CopyMode::Never).unwrap();
    assert_eq!(back.with_name("x".into()), lists);
}

#[test]
fn numbers_that_polars_does_not_have_are_refused() {
    let values = Conversion::default().dtype(DType::BFloat16).tensor(&Int8Array::from(vec![1, 2])).unwrap();
    let error = polars::tensor_to_series("x", &values, CopyMode::IfNeeded).unwrap_err();
    assert_eq!((error.kind(), error.column()), (ErrorKind::Unsupported, Some("x")), "{error}");
    assert!(error.to_string().contains("float32"), "{error}");
}
