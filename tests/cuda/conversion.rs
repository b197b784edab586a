//! Does a `Conversion` bring its results where they are asked for, by the steps that its report and the copy log name?

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int32Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, DictionaryArray, Float32Array, Int8Array, Int32Array, Int64Array, ListArray,
    RecordBatch, RunArray, StringArray,
};
use arrow_dlpack::transfer::{Transfer, array_to_device, tensor_to_device};
use arrow_dlpack::{
    ArrowConversion, Chunks, ColumnOptions, Conversion, Converted, CopyLog, CopyMode, DType, Device, DeviceArray,
    DeviceArrayStream, Error, ErrorKind, Group, NullPolicy, Output, Pad, Ragged, Scalar, Selection, Tensor, to_tensor,
};
use arrow_schema::DataType;

use crate::support::arrow::{field, shared};
use crate::support::cuda;
use crate::support::plan::assert_planned;

fn device(name: &str) -> Device {
    name.parse().unwrap()
}

fn there(array: &DeviceArray, name: &str) -> DeviceArray {
    array_to_device(array, &Transfer::to(device(name), "a test")).unwrap()
}

fn batch() -> DeviceArray {
    let a: ArrayRef = Arc::new(Float32Array::from(vec![0.5, 1.5, 2.5]));
    let b: ArrayRef = Arc::new(Int64Array::from(vec![7, 8, 9]));
    DeviceArray::from_record_batch(&RecordBatch::try_from_iter([("a", a), ("b", b)]).unwrap()).unwrap()
}

fn on_host(tensor: &Tensor) -> Vec<u8> {
    let host = Conversion::default().device(Device::CPU);
    let array = arrow_dlpack::to_arrow(tensor, None, CopyMode::Never).unwrap();
    let tensor = host.to_tensor(&array).unwrap();
    assert!(tensor.device().is_cpu());
    tensor.as_bytes().unwrap().to_vec()
}

fn groups() -> Selection {
    let x = Group::matrix(["b".to_owned(), "a".to_owned()]);
    Selection::Named(vec![("x".to_owned(), x), ("y".to_owned(), Group::column("b".to_owned()))])
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn results_are_where_they_are_asked_for() {
    cuda::use_device(0);
    let source = batch();
    for from in ["cpu", "cuda:0", "cuda_host:0"] {
        let own = there(&source, from);
        for to in ["cpu", "cuda:0", "cuda_host:0"] {
            let to = device(to);
            for selection in [Selection::Whole(None), Selection::Each(None), groups()] {
                let here = Conversion::default().select(selection);
                let conversion = here.clone().device(to);
                assert_planned(&conversion, own.field(), std::slice::from_ref(&own), |tensor| {
                    (tensor.ndim() == 1).then(|| on_host(tensor))
                });
                let report = conversion.explain(&own).unwrap();
                let log = CopyLog::new();
                let tensors = log.track(|| conversion.to_tensors(&own)).unwrap();
                // What was moved before is reported by its type: at most.
                let is_exact = report.transfer.is_none() && report.matrices.is_empty();
                let bytes: usize = report.rows.iter().chain(&report.matrices).map(|row| row.bytes).sum();
                assert!(!is_exact || log.bytes() == bytes, "{from} {to}: {} {bytes}\n{report}", log.bytes());
                let expected = here.to_tensors(&source).unwrap();
                for ((name, tensor), (expected_name, expected)) in tensors.iter().zip(&expected) {
                    assert_eq!((tensor.device(), name), (to, expected_name));
                    if expected.ndim() == 1 {
                        assert_eq!(on_host(tensor), expected.as_bytes().unwrap());
                    }
                }
                let stream = |array: &DeviceArray| {
                    let batches = vec![Ok(array.clone()), Ok(array.clone())];
                    DeviceArrayStream::new(array.field().clone(), array.device().device_type(), batches.into_iter())
                };
                let read = conversion.read_tensors(&mut stream(&own)).unwrap();
                assert!(read.iter().all(|(_, tensor)| tensor.device() == to && tensor.shape()[0] == 6));
            }
            let whole = Conversion::default().device(to);
            assert_eq!(whole.to_tensor(&own).unwrap().device(), to);
            assert_eq!(whole.validity(&own).unwrap().device(), to);
        }
    }
    cuda::expect_no_races();
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn rows_of_different_lengths_go_with_all_their_parts() {
    cuda::use_device(0);
    let keep = Conversion::default().nulls(NullPolicy::Keep);
    // No kernel unpacks the bitmap of rows.
    for (from, to, middle) in [("cpu", "cuda:0", None), ("cuda:0", "cpu", None), ("cuda:0", "cuda_host:0", Some("bb"))]
    {
        let strings = StringArray::from(vec![Some("a"), middle, Some("ccc")]);
        let source = shared(&strings, &field("s", DataType::Utf8));
        let (own, to) = (there(&source, from), device(to));
        let ragged = keep.clone().device(to).ragged(&own).unwrap();
        let values = ragged.values().as_tensor().unwrap();
        assert!(
            [Some(values), Some(ragged.offsets()), ragged.validity()].iter().flatten().all(|part| part.device() == to)
        );
        assert_eq!(ragged.validity().is_some(), middle.is_none());
        assert_eq!(on_host(values), format!("a{}ccc", middle.unwrap_or_default()).as_bytes());
        let pad = Pad::new(Scalar::Int(0)).length(3);
        let (matrix, valid) = keep.clone().device(to).padded(&own, pad).unwrap();
        assert_eq!((matrix.device(), valid.device()), (to, to));
    }
    cuda::expect_no_races();
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn plans_of_rows_and_of_validity_do_what_the_conversion_does() {
    cuda::use_device(0);
    let rows = [Some(vec![Some(1), Some(2)]), Some(vec![]), Some(vec![Some(3)])];
    let lists = ListArray::from_iter_primitive::<Int32Type, _, _>(rows);
    let lists = shared(&lists, &field("s", lists.data_type().clone()));
    let column = Int64Array::from(vec![Some(7), None, Some(9)]);
    let column = shared(&column, &field("x", DataType::Int64));
    for (from, to) in [("cpu", "cuda:0"), ("cuda:0", "cpu"), ("cuda:0", "cuda:0"), ("cuda_host:0", "cuda:0")] {
        for conversion in [Conversion::default(), Conversion::default().dtype(DType::Float32)] {
            let conversion = conversion.device(device(to));
            let own = there(&lists, from);
            let (log, running) = (CopyLog::new(), CopyLog::new());
            let expected = log.track(|| conversion.ragged(&own)).unwrap();
            let plan = conversion.plan_ragged(&own).unwrap();
            let explained = conversion.clone().select(Selection::Each(None)).explain(&own).unwrap();
            assert_eq!(plan.report().to_string(), explained.to_string());
            let made = running.track(|| plan.run()).unwrap();
            assert_eq!(running.entries(), log.entries(), "{from} {to}");
            let parts = |ragged: &Ragged| [ragged.offsets().clone(), ragged.values().as_tensor().unwrap().clone()];
            for (made, expected) in parts(&made).iter().zip(parts(&expected)) {
                assert_eq!(
                    (made.device(), made.dtype(), on_host(made)),
                    (device(to), expected.dtype(), on_host(&expected))
                );
            }
            let own = there(&column, from);
            let (log, running) = (CopyLog::new(), CopyLog::new());
            let expected = log.track(|| conversion.validity(&own)).unwrap();
            let plan = conversion.plan_validity(&own).unwrap();
            let bytes = plan.bytes();
            let made = running.track(|| plan.run()).unwrap();
            assert_eq!((running.entries(), bytes), (log.entries(), log.bytes()), "{from} {to}");
            assert_eq!((made.device(), made.shape(), expected.shape()), (device(to), &[3][..], &[3][..]));
        }
    }
    cuda::expect_no_races();
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn plans_of_groups_of_any_form_do_what_the_conversion_does() {
    cuda::use_device(0);
    let text: ArrayRef = Arc::new(StringArray::from(vec!["to", "be", ""]));
    let y: ArrayRef = Arc::new(Int64Array::from(vec![7, 8, 9]));
    let source = DeviceArray::from_record_batch(&RecordBatch::try_from_iter([("text", text), ("y", y)]).unwrap());
    let source = source.unwrap();
    let groups = |is_padded| {
        let form = if is_padded {
            Group::padded("text", Pad::new(Scalar::Int(0)).length(2)).lengths("n").validity("mask")
        } else {
            Group::column("y")
        };
        let groups = [("r", Group::ragged("text")), ("p", form), ("y", Group::column("y")), ("a", Group::arrow(["y"]))];
        Selection::Named(groups.map(|(name, group)| (name.to_owned(), group)).into())
    };
    for (from, to) in [("cpu", "cuda:0"), ("cuda:0", "cpu"), ("cuda:0", "cuda:0"), ("cuda_host:0", "cuda:0")] {
        let own = there(&source, from);
        for is_padded in [false, true] {
            let conversion = Conversion::default().select(groups(is_padded)).device(device(to));
            let (log, running) = (CopyLog::new(), CopyLog::new());
            let expected = log.track(|| conversion.to_results(&own)).unwrap();
            let explained = conversion.explain(&own).unwrap();
            let plan = conversion.plan(&own).unwrap();
            assert_eq!(plan.report().to_string(), explained.to_string());
            let made = running.track(|| plan.run()).unwrap();
            assert_eq!(running.entries(), log.entries(), "{from} {to}");
            for ((name, made), (expected_name, expected)) in made.iter().zip(&expected) {
                assert_eq!(name, expected_name);
                match (made, expected) {
                    (Converted::Tensor(made), Converted::Tensor(expected)) => {
                        assert_eq!((made.device(), made.shape()), (device(to), expected.shape()));
                    }
                    (Converted::Ragged(made), Converted::Ragged(expected)) => {
                        let [made, expected] = [made, expected].map(|rows| rows.values().as_tensor().unwrap());
                        assert_eq!((made.device(), on_host(made)), (device(to), on_host(expected)));
                    }
                    (Converted::Arrow(made), Converted::Arrow(expected)) => {
                        assert_eq!((made.device(), made.len()), (device(to), expected.len()));
                    }
                    _ => panic!("{name}: another form"),
                }
            }
        }
    }
    cuda::expect_no_races();
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn a_validity_that_no_kernel_tells_is_refused_before_anything_runs() {
    cuda::use_device(0);
    // Codes and runs whose values are codes themselves: these may stand for a null.
    let values: ArrayRef = Arc::new(Float32Array::from(vec![Some(0.5), None]));
    let inner: ArrayRef =
        Arc::new(DictionaryArray::<Int8Type>::try_new(Int8Array::from(vec![0, 1]), values.clone()).unwrap());
    let codes = DictionaryArray::<Int8Type>::try_new(Int8Array::from(vec![0, 1, 0]), inner.clone()).unwrap();
    let runs = RunArray::<Int32Type>::try_new(&Int32Array::from(vec![1, 3]), inner.as_ref()).unwrap();
    for array in [Arc::new(codes) as ArrayRef, Arc::new(runs)] {
        let batch = RecordBatch::try_from_iter_with_nullable([("x", array, true)]).unwrap();
        let batch = there(&DeviceArray::from_record_batch(&batch).unwrap(), "cuda:0");
        let data_type = batch.column(0).unwrap().field().data_type().clone();
        for (data, remedy) in [(batch.column(0).unwrap(), "validity_bits"), (batch.clone(), "bitmap of each column")] {
            let log = CopyLog::new();
            let error = log.track(|| Conversion::default().validity(&data)).unwrap_err();
            assert_eq!((error.kind(), error.column()), (ErrorKind::Device, Some("x")), "{data_type}: {error}");
            assert!(error.remedy().is_some_and(|told| told.contains(remedy)), "{data_type}: {error}");
            assert_eq!(Conversion::default().plan_validity(&data).unwrap_err(), error);
            assert!(log.entries().is_empty());
        }
        for group in [Group::column("x"), Group::matrix(["x"])] {
            let groups = vec![("x".to_owned(), group.nulls(NullPolicy::Keep).validity("valid"))];
            let conversion = Conversion::default().select(Selection::Named(groups));
            let report = conversion.explain(&batch).unwrap();
            let row = report.rows.iter().find(|row| row.column == "valid").unwrap();
            assert_eq!(row.error.as_ref().map(Error::kind), Some(ErrorKind::Device), "{data_type}: {report}");
            assert_eq!((row.how(), row.bytes), ("refused", 0));
        }
    }
    cuda::expect_no_races();
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn lists_of_one_length_are_planned_once_their_offsets_are_read() {
    cuda::use_device(0);
    let rows = |rows: [[i32; 2]; 3]| rows.map(|row| Some(row.map(Some)));
    let embedding = ListArray::from_iter_primitive::<Int32Type, _, _>(rows([[1, 2], [3, 4], [5, 6]]));
    let numbers = Int32Array::from(vec![7, 8, 9]);
    let columns = [("emb", Arc::new(embedding) as ArrayRef), ("n", Arc::new(numbers))];
    let batch = DeviceArray::from_record_batch(&RecordBatch::try_from_iter(columns).unwrap()).unwrap();
    let own = there(&batch, "cuda:0");
    let x = vec![("x".to_owned(), Group::matrix(["emb", "n"])), ("y".to_owned(), Group::column("emb"))];
    let conversion = Conversion::default().length(2).select(Selection::Named(x));
    let report = conversion.explain(&own).unwrap();
    let told = report.rows.iter().filter(|row| row.waits.iter().any(|wait| wait.contains("offsets of lists")));
    assert_eq!(told.map(|row| row.column.as_str()).collect::<Vec<_>>(), ["emb", "y"], "{report}");
    assert!(report.rows.iter().chain(&report.matrices).all(|row| row.error.is_none()), "{report}");
    let (log, running) = (CopyLog::new(), CopyLog::new());
    let expected = log.track(|| conversion.to_tensors(&own)).unwrap();
    let plan = conversion.plan(&own).unwrap();
    let planned = plan.report();
    assert_eq!((planned.matrices[0].how(), planned.bytes()), ("copy", 36), "{planned}");
    // The offsets were read to plan it, and nothing is nullable.
    assert!(planned.rows.iter().chain(&planned.matrices).all(|row| row.waits.is_empty()), "{planned}");
    let made = running.track(|| plan.run()).unwrap();
    assert_eq!((running.entries(), running.bytes()), (log.entries(), 36));
    for ((_, made), (name, expected)) in made.iter().zip(&expected) {
        let made = made.as_tensor().unwrap();
        let of_host = conversion.to_tensors(&batch).unwrap();
        let of_host = &of_host.iter().find(|(own, _)| own == name).unwrap().1;
        let dense = |tensor: &Tensor| on_host(&tensor_to_device(tensor, &Transfer::to(Device::CPU, "a test")).unwrap());
        assert_eq!((made.is_copied(), dense(made)), (name == "x", dense(expected)));
        assert_eq!(dense(made), dense(of_host));
    }
    let error = conversion.length(3).plan(&own).unwrap_err();
    assert_eq!((error.column(), error.row()), (Some("emb"), Some(0)), "{error}");
    cuda::expect_no_races();
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn the_bytes_of_all_chunks_that_move_first_are_told() {
    cuda::use_device(0);
    let column = Int64Array::from(vec![Some(7), None, Some(9), Some(1), Some(2)]);
    let part = |from, rows| there(&shared(&column.slice(from, rows), &field("x", DataType::Int64)), "cuda:0");
    let chunks = [part(0, 2), part(2, 0), part(2, 3)];
    let conversion = Conversion::default().nulls(NullPolicy::Keep).device(Device::CPU);
    let data = || Chunks::new(chunks[0].field(), &chunks);
    let report = conversion.clone().select(Selection::Each(None)).explain(data()).unwrap();
    let log = CopyLog::new();
    let tensor = log.track(|| conversion.to_tensor(data())).unwrap();
    assert_eq!((tensor.shape(), report.rows[0].shape.as_slice()), (&[5][..], &[Some(5)][..]));
    let moved: usize =
        log.entries().iter().filter(|copied| copied.what.contains("on cuda:0")).map(|copied| copied.bytes).sum();
    assert_eq!(report.transfer.as_ref().map(|transfer| transfer.bytes), Some(moved), "{report} {:?}", log.entries());
    let refused = Conversion::default().select(Selection::Each(None)).device(Device::CPU).explain(data()).unwrap();
    assert_eq!(refused.rows[0].error.as_ref().map(Error::kind), Some(ErrorKind::Null));
    cuda::expect_no_races();
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn a_transfer_is_refused_where_no_copy_is_allowed() {
    cuda::use_device(0);
    let source = batch();
    let cuda = there(&source, "cuda:0");
    for (own, to) in [(&source, device("cuda:0")), (&cuda, Device::CPU)] {
        let conversion = Conversion::default().select(Selection::Each(None)).copy(CopyMode::Never).device(to);
        let log = CopyLog::new();
        let error = log.track(|| conversion.to_tensors(own)).unwrap_err();
        assert_eq!((error.kind(), log.entries().len()), (ErrorKind::Copy, 0));
        let report = conversion.explain(own).unwrap();
        for row in &report.rows {
            assert_eq!(row.error.as_ref().map(Error::reason), Some(error.reason()));
        }
        // Before a batch is read.
        let mut batches = [()].into_iter().map(|()| panic!("it was read"));
        let kind = own.device().device_type();
        let mut stream = DeviceArrayStream::new(own.field().clone(), kind, std::iter::from_fn(move || batches.next()));
        assert_eq!(conversion.read_tensors(&mut stream).unwrap_err().kind(), ErrorKind::Copy);
    }
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn memory_that_is_there_is_where_it_is() {
    cuda::use_device(0);
    let cuda = there(&batch(), "cuda:0");
    let mut memory = [0_f64; 6];
    let mut out = Output::from_slice(&mut memory, &[3, 2]).unwrap();
    Conversion::default().device(Device::CPU).write(&cuda, &mut out).unwrap();
    assert_eq!(memory, [0.5, 7.0, 1.5, 8.0, 2.5, 9.0]);
    let mut out = Output::from_slice(&mut memory, &[3, 2]).unwrap();
    let elsewhere = Conversion::default().device(device("cuda:0"));
    let error = elsewhere.write(batch(), &mut out).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Device);
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn tensors_become_arrow_data_where_it_is_asked_for() {
    cuda::use_device(0);
    let names = ["cpu", "cuda:0", "cuda_host:0"];
    let plain: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3]));
    let valid: ArrayRef = Arc::new(BooleanArray::from(vec![true, false, true]));
    let with_null = Int32Array::from(vec![Some(1), None, Some(3)]);
    let lists = ListArray::from_iter_primitive::<Int8Type, _, _>([Some(vec![Some(1)]), Some(vec![Some(2), Some(3)])]);
    let tensor = |array: &dyn Array, name| {
        let array = shared(array, &field("", array.data_type().clone()));
        tensor_to_device(&to_tensor(&array).unwrap(), &Transfer::to(device(name), "a test")).unwrap()
    };
    for (from, to) in names.iter().flat_map(|from| names.iter().map(move |to| (*from, *to))) {
        let target = device(to);
        for copy in [CopyMode::IfNeeded, CopyMode::Always] {
            let options = ColumnOptions::default().copy(copy);
            let conversion = ArrowConversion::default().device(target).options(options.clone());
            let source = tensor(plain.as_ref(), from);
            let (report, log) = (conversion.explain(&source, false).unwrap(), CopyLog::new());
            let array = log.track(|| conversion.convert(&source)).unwrap();
            let bytes: usize = log.entries().iter().map(|copied| copied.bytes).sum();
            assert_eq!((array.device(), bytes), (target, report.bytes()), "{from} to {to}: {copy:?}\n{report}");
            assert_eq!(&there(&array, "cpu").to_arrow().unwrap(), &plain);
            // The validity goes with the values.
            let conversion = conversion.options(options.validity(tensor(valid.as_ref(), from)));
            let array = conversion.convert(&source).unwrap();
            assert_eq!(array.device(), target);
            assert_eq!(there(&array, "cpu").to_arrow().unwrap().as_primitive::<Int32Type>(), &with_null);
            let rows = there(&shared(&lists, &field("", lists.data_type().clone())), from);
            let rows = Conversion::default().ragged(&rows).unwrap();
            let refused = conversion.convert_ragged(&rows).unwrap_err();
            assert_eq!(refused.reason(), "rows of different lengths have a validity of their own");
            let conversion = ArrowConversion::default().device(target).options(ColumnOptions::default().copy(copy));
            let array = conversion.convert_ragged(&rows).unwrap();
            assert_eq!(array.device(), target);
            assert_eq!(there(&array, "cpu").to_arrow().unwrap().as_list::<i32>(), &lists);
            let refused = conversion.names(["x"]).convert_ragged(&rows).unwrap_err();
            assert!(refused.reason().starts_with("names are those of a matrix's columns"));
        }
    }
    cuda::expect_no_races();
}
