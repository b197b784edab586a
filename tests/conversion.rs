//! Does a `Conversion` give the same whatever data it is handed as, and refuse what no data makes possible before it reads?

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper that fails is a test that fails"
)]

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::{
    Array, ArrayRef, BooleanArray, FixedSizeListArray, Float32Array, Int16Array, Int64Array, RecordBatch, StringArray,
};
use arrow_dlpack::ffi::dlpack::DLDeviceType;
use arrow_dlpack::{
    Chunks, Conversion, CopyLog, CopyMode, DType, Device, DeviceArray, DeviceArrayStream, ErrorKind, Group,
    MemoryOrder, NullPolicy, Output, Pad, PandasIndex, PerColumn, Scalar, Selection, Tensor,
};
use arrow_schema::{DataType, Field};

fn batch(from: i16) -> DeviceArray {
    let a: ArrayRef = Arc::new(Int16Array::from(vec![Some(from), None, Some(from + 2)]));
    let b: ArrayRef = Arc::new(Float32Array::from(vec![0.5, 1.5, 2.5]));
    let c: ArrayRef = Arc::new(Int64Array::from(vec![7, 8, 9]));
    let columns = [("a", a, true), ("b", b, false), ("c", c, false)];
    DeviceArray::from_record_batch(&RecordBatch::try_from_iter_with_nullable(columns).unwrap()).unwrap()
}

/// What a tensor is and holds: dtype, shape, strides, bytes.
type Contents = (DType, Vec<i64>, Vec<i64>, Vec<u8>);

fn of(tensor: &Tensor) -> Contents {
    let bytes = tensor.strides().iter().all(|stride| *stride > 0).then(|| tensor.as_bytes().map(<[u8]>::to_vec));
    let strides = tensor.strides().to_vec();
    (tensor.dtype(), tensor.shape().to_vec(), strides, bytes.and_then(Result::ok).unwrap_or_default())
}

fn named(tensors: &[(String, Tensor)]) -> Vec<(&str, Contents)> {
    tensors.iter().map(|(name, tensor)| (name.as_str(), of(tensor))).collect()
}

/// A stream of batches that counts how many were read.
fn stream(batches: Vec<DeviceArray>, read: &Arc<AtomicUsize>) -> DeviceArrayStream {
    let (field, read) = (batches[0].field().clone(), read.clone());
    let batches = batches.into_iter().map(move |batch| {
        read.fetch_add(1, Ordering::Relaxed);
        Ok(batch)
    });
    DeviceArrayStream::new(field, Device::CPU.device_type(), batches)
}

fn groups() -> Vec<(String, Group)> {
    let columns = vec!["c".to_owned(), "a".to_owned()];
    vec![("x".to_owned(), Group::matrix(columns)), ("y".to_owned(), Group::column("b".to_owned()))]
}

#[test]
fn each_selection_gives_what_the_columns_are() {
    let chunks = [batch(1), batch(5)];
    let conversion = Conversion::default().nulls(NullPolicy::Fill(Scalar::Int(-1)));
    let column = |index: usize| chunks.each_ref().map(|chunk| chunk.column(index).unwrap());
    let each = conversion.clone().select(Selection::Each(None));
    let columns = each.to_tensors(&chunks).unwrap();
    assert_eq!(columns.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    for (index, (_, tensor)) in columns.iter().enumerate() {
        assert_eq!(of(tensor), of(&conversion.to_tensor(&column(index)).unwrap()));
    }
    assert_eq!(columns[0].1.as_slice::<i16>().unwrap(), [1, -1, 3, 5, -1, 7]);
    assert_eq!(named(&each.read_tensors(&mut stream(chunks.to_vec(), &Arc::default())).unwrap()), named(&columns));
    for memory_order in [MemoryOrder::C, MemoryOrder::F, MemoryOrder::A] {
        let conversion = conversion.clone().memory_order(memory_order).threads(NonZero::new(2));
        let whole = conversion.to_tensor(&chunks).unwrap();
        let read = Arc::default();
        assert_eq!(of(&conversion.read_tensor(&mut stream(chunks.to_vec(), &read)).unwrap()), of(&whole));
        let by_name = conversion.clone().select(Selection::Named(groups()));
        let of_groups = by_name.to_tensors(&chunks).unwrap();
        assert_eq!(of(&of_groups[0].1), of(&conversion.clone().columns(["c", "a"]).to_tensor(&chunks).unwrap()));
        assert_eq!(of(&of_groups[1].1), of(&columns[1].1));
        assert_eq!(named(&by_name.read_tensors(&mut stream(chunks.to_vec(), &read)).unwrap()), named(&of_groups));
        let valid = conversion.validity(&chunks).unwrap();
        assert_eq!((valid.shape(), valid.strides()), (whole.shape(), whole.strides()));
    }
}

#[test]
fn options_of_one_column_leave_the_others_as_they_are() {
    let chunks = [batch(1)];
    let conversion = Conversion::default()
        .select(Selection::Each(None))
        .dtype(PerColumn::named([("c", Some(DType::UInt8))]))
        .nulls(PerColumn::named([("a", NullPolicy::Fill(Scalar::Int(9)))]));
    let tensors = conversion.to_tensors(&chunks).unwrap();
    assert_eq!(
        tensors.iter().map(|(_, tensor)| tensor.dtype()).collect::<Vec<_>>(),
        [DType::Int16, DType::Float32, DType::UInt8]
    );
    assert_eq!(tensors[0].1.as_slice::<i16>().unwrap(), [1, 9, 3]);
    assert!(!tensors[1].1.is_copied());
}

#[test]
fn what_no_data_makes_possible_is_refused_before_a_stream_is_read() {
    let field = batch(1).field().clone();
    let wrong = [
        Conversion::default().columns(["a", "z"]),
        Conversion::default().columns(["a", "a"]),
        Conversion::default().dtype(PerColumn::named([("z", Some(DType::Int8))])),
        Conversion::default().nulls(NullPolicy::Fill(Scalar::Float(0.5))).dtype(DType::Int8),
        Conversion::default().select(Selection::Named(vec![("x".to_owned(), Group::column("z".to_owned()))])),
        Conversion::default().select(Selection::Each(Some(vec!["z".to_owned()]))),
    ];
    for conversion in wrong {
        let error = conversion.check(&field).unwrap_err();
        let read = Arc::default();
        let mut batches = stream(vec![batch(1)], &read);
        let of_stream = match conversion.selection {
            Selection::Whole(_) => conversion.read_tensor(&mut batches).unwrap_err(),
            _ => conversion.read_tensors(&mut batches).unwrap_err(),
        };
        assert_eq!(error.to_string(), of_stream.to_string());
        assert_eq!(read.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn one_result_is_not_taken_of_several() {
    let chunks = [batch(1)];
    for selection in [Selection::Each(None), Selection::Named(groups())] {
        let conversion = Conversion::default().select(selection);
        let mut memory = [0_f32; 9];
        let mut out = Output::from_slice(&mut memory, &[3, 3]).unwrap();
        let read = Arc::default();
        let errors = [
            conversion.to_tensor(&chunks).unwrap_err(),
            conversion.validity(&chunks).unwrap_err(),
            conversion.write(&chunks, &mut out).unwrap_err(),
            conversion.read_tensor(&mut stream(chunks.to_vec(), &read)).unwrap_err(),
        ];
        assert!(errors.iter().all(|error| error.kind() == ErrorKind::Argument));
        assert_eq!(read.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn memory_that_is_there_decides_the_dtype() {
    let chunks = [batch(1)];
    let mut memory = [0_f64; 6];
    let mut out = Output::from_slice(&mut memory, &[3, 2]).unwrap();
    Conversion::default().columns(["b", "c"]).write(&chunks, &mut out).unwrap();
    assert_eq!(memory, [0.5, 7.0, 1.5, 8.0, 2.5, 9.0]);
}

#[test]
fn the_report_is_what_the_conversion_does() {
    let chunks = [batch(1), batch(5)];
    for copy in [CopyMode::IfNeeded, CopyMode::Never] {
        for selection in [Selection::Whole(None), Selection::Each(None), Selection::Named(groups())] {
            let conversion = Conversion::default().select(selection).nulls(NullPolicy::Keep).copy(copy);
            let report = conversion.explain(&chunks).unwrap();
            let log = CopyLog::new();
            let done = log.track(|| conversion.to_tensors(&chunks));
            let refused = report.rows.iter().chain(&report.matrices).any(|row| row.error.is_some());
            assert_eq!(done.is_err(), refused, "{report}");
            assert_eq!(log.bytes(), report.bytes(), "{report}");
        }
    }
}

#[test]
fn the_report_of_what_is_written_is_what_is_done() {
    let chunks = [batch(1), batch(5)];
    let data = || chunks.as_slice();
    for (conversion, shape) in [
        (Conversion::default().columns(["b", "c"]), &[6_usize, 2][..]),
        (Conversion::default().columns(["b", "c"]).copy(CopyMode::Never), &[6, 2]),
        (Conversion::default().columns(["b", "c"]), &[6, 3]),
        (Conversion::default().columns(["b", "c"]).device(Device::new(DLDeviceType::CUDA, 0)), &[6, 2]),
    ] {
        let mut memory = vec![0_f64; shape.iter().product()];
        let mut out = Output::from_slice(&mut memory, shape).unwrap();
        let report = conversion.explain_write(data(), &out).unwrap();
        let (log, matrix) = (CopyLog::new(), &report.matrices[0]);
        match log.track(|| conversion.write(data(), &mut out)) {
            Ok(()) => {
                assert_eq!((log.entries().len(), log.bytes()), (1, report.bytes()));
                assert_eq!(log.entries()[0].why, matrix.steps.join(", "));
            }
            Err(error) => assert_eq!(matrix.error.as_ref(), Some(&error), "{report}"),
        }
    }
    let mut memory = [0_f64; 6];
    let out = Output::from_slice(&mut memory, &[6]).unwrap();
    let several = Conversion::default().select(Selection::Each(None)).explain_write(data(), &out);
    assert!(several.unwrap_err().reason().contains("a result for each name"));
    let several = Conversion::default().select(Selection::Each(None)).explain_validity(data());
    assert!(several.unwrap_err().reason().contains("a result for each name"));
    let column = chunks[1].column(1).unwrap();
    for (copy, rows) in [(CopyMode::Never, 3_usize), (CopyMode::IfNeeded, 4)] {
        let conversion = Conversion::default().copy(copy);
        let mut memory = vec![0_f64; rows];
        let mut out = Output::from_slice(&mut memory, &[rows]).unwrap();
        let report = conversion.explain_write(&column, &out).unwrap();
        let error = conversion.write(&column, &mut out).unwrap_err();
        assert_eq!((report.rows[0].error.as_ref(), error.column()), (Some(&error), Some("b")));
    }
}

#[test]
fn a_report_of_all_columns_names_the_index_that_it_leaves_out() {
    let column: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let batch = RecordBatch::try_from_iter([("a", column.clone()), ("__index_level_0__", column)]).unwrap();
    let batch = DeviceArray::from_record_batch(&batch).unwrap();
    for selection in [Selection::Whole(None), Selection::Each(None)] {
        let conversion = Conversion::default().select(selection).index(PandasIndex::KeepNamed);
        let report = conversion.explain_type(batch.field(), Device::CPU).unwrap();
        assert_eq!((report.rows.len(), report.left_out), (1, vec!["__index_level_0__".to_owned()]));
    }
}

#[test]
fn the_same_rows_are_the_same_data_in_every_form() {
    let columns = [("a", Arc::new(Int16Array::from(vec![1, 2])) as ArrayRef)];
    let rows = RecordBatch::try_from_iter(columns).unwrap();
    let array = DeviceArray::from_record_batch(&rows).unwrap();
    let conversion = Conversion::default().dtype(DType::Float32);
    let chunks = vec![array.clone(), array.clone()];
    let whole = [
        conversion.to_tensor(&rows),
        conversion.to_tensor(&array),
        conversion.to_tensor(array.clone()),
        conversion.to_tensor(&chunks[..1]),
        conversion.to_tensor(Chunks::new(array.field(), &chunks[..1])),
    ];
    for made in whole {
        let made = made.unwrap();
        assert_eq!((made.shape(), made.as_slice::<f32>().unwrap()), (&[2_i64, 1][..], &[1.0, 2.0][..]));
    }
    assert_eq!(conversion.to_tensor(&chunks).unwrap().shape(), [4, 1]);
    let empty: [DeviceArray; 0] = [];
    assert_eq!(conversion.to_tensor(&empty).unwrap_err().kind(), ErrorKind::Argument);
    assert_eq!(conversion.to_tensor(Chunks::new(array.field(), &[])).unwrap().shape(), [0, 1]);
    let column: ArrayRef = Arc::new(Int16Array::from(vec![1, 2]));
    for made in [conversion.to_tensor(&column), conversion.to_tensor(column.as_ref())] {
        assert_eq!(made.unwrap().as_slice::<f32>().unwrap(), [1.0, 2.0]);
    }
}

#[test]
fn no_method_copies_where_that_is_forbidden() {
    let chunks = [batch(1)];
    let never = Conversion::default().copy(CopyMode::Never).nulls(NullPolicy::Keep);
    let bits = BooleanArray::from(vec![true, false]);
    let text = StringArray::from(vec!["a", "bc"]);
    let mut memory = [0_f32; 3];
    let mut out = Output::from_slice(&mut memory, &[3]).unwrap();
    let log = CopyLog::new();
    let kinds = log.track(|| {
        [
            never.to_tensor(&chunks).map(drop),
            never.to_tensor(&bits).map(drop),
            never.clone().select(Selection::Named(groups())).to_tensors(&chunks).map(drop),
            never.clone().dtype(DType::Float64).select(Selection::Each(None)).to_tensors(&chunks).map(drop),
            never.read_tensor(&mut stream(chunks.to_vec(), &Arc::default())).map(drop),
            never.read_tensors(&mut stream(chunks.to_vec(), &Arc::default())).map(drop),
            never.write(&chunks[0].column(1).unwrap(), &mut out),
            never.validity(&chunks).map(drop),
            never.validity(&chunks[0].column(0).unwrap()).map(drop),
            never.clone().nulls(NullPolicy::Error).dtype(DType::Int32).ragged(&text).map(drop),
            never.padded(&text, Pad::new(Scalar::Int(0))).map(drop),
        ]
        .map(|made| {
            let error = made.unwrap_err();
            assert!(error.remedy().is_some(), "{error}");
            error.kind()
        })
    });
    assert_eq!(kinds, [ErrorKind::Copy; 11]);
    let copied = log.entries();
    assert!(copied.is_empty(), "{copied:?}");
    // Nothing is copied of no rows.
    assert_eq!(never.validity(&Int16Array::from(Vec::<i16>::new())).unwrap().shape(), [0]);
    let nulls = chunks[0].column(0).unwrap();
    assert!(never.validity_bits(&nulls).unwrap().is_some());
    assert_eq!(never.copy(CopyMode::Always).validity_bits(&nulls).unwrap_err().kind(), ErrorKind::Argument);
    let error = Conversion::default().length(2).validity_bits(&nulls).unwrap_err();
    assert!(error.reason().contains("none for the elements of lists"), "{error}");
}

#[test]
fn rows_without_bytes_may_be_more_than_memory_has_places() {
    let item = Arc::new(Field::new("item", DataType::Int16, true));
    let values: ArrayRef = Arc::new(Int16Array::from(Vec::<i16>::new()));
    let many = FixedSizeListArray::try_new_with_length(item, 0, values, None, 1 << 59).unwrap();
    let field = Arc::new(Field::new("x", many.data_type().clone(), true));
    let chunk = DeviceArray::from_arrow(&many, field.clone()).unwrap();
    let chunks = vec![chunk; 40];
    for nulls in [NullPolicy::Error, NullPolicy::Keep] {
        let error = Conversion::default().nulls(nulls).to_tensor(&chunks).unwrap_err();
        assert_eq!((error.kind(), error.reason()), (ErrorKind::Memory, "the result is larger than memory can be"));
    }
}
