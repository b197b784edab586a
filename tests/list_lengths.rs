//! Do lists of one length become what fixed-size lists of the same items become, wherever their items lie?

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a helper that fails is a test that fails")]

mod support;

use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, DictionaryArray, FixedSizeListArray, Int32Array, ListArray, ListViewArray, RecordBatch, RunArray,
    StringArray, types::Int32Type,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_dlpack::ffi::dlpack::DLDeviceType;
use arrow_dlpack::{
    Chunks, Conversion, CopyLog, DType, Device, DeviceArray, DeviceArrayStream, Group, MemoryOrder, NullPolicy, Report,
    Scalar, Selection, Tensor,
};
use arrow_schema::{Field, FieldRef};
use support::arrow::{field, shared};
use support::reference::read_bools;

fn imported(array: &dyn Array) -> DeviceArray {
    shared(array, &field("x", array.data_type().clone()))
}

fn item_of(items: &ArrayRef) -> FieldRef {
    Arc::new(Field::new("item", items.data_type().clone(), true))
}

/// Lists of two items from each of these starts on.
fn apart(items: &ArrayRef, starts: &[i32], nulls: Option<NullBuffer>) -> ListViewArray {
    ListViewArray::new(item_of(items), starts.to_vec().into(), vec![2; starts.len()].into(), items.clone(), nulls)
}

/// Lists of two items that follow each other, but for the null ones, which are empty.
fn empty_nulls(items: &ArrayRef, valid: &[bool]) -> ListArray {
    let lengths = valid.iter().map(|valid| if *valid { 2 } else { 0 });
    ListArray::new(item_of(items), OffsetBuffer::from_lengths(lengths), items.clone(), Some(valid.to_vec().into()))
}

fn fills() -> Conversion {
    Conversion::default().length(2).nulls(NullPolicy::Fill(Scalar::Int(-1)))
}

fn numbers(tensor: &Tensor) -> Vec<i32> {
    assert_eq!(tensor.shape()[1..], [2]);
    tensor.to_vec::<i32>().unwrap()
}

#[test]
fn items_of_runs_are_decoded_wherever_the_lists_lie() {
    let ends = Int32Array::from(vec![1, 3, 7]);
    let runs = RunArray::try_new(&ends, &Int32Array::from(vec![Some(5), None, Some(7)])).unwrap();
    // 5, null, null, 7, 7, 7, 7.
    let items: ArrayRef = Arc::new(runs);
    for (starts, expected) in
        [(&[0, 2, 4][..], &[5, -1, -1, 7, 7, 7][..]), (&[0, 3], &[5, -1, 7, 7]), (&[2, 0], &[-1, 7, 5, -1])]
    {
        assert_eq!(numbers(&fills().to_tensor(&imported(&apart(&items, starts, None))).unwrap()), expected);
    }
    let inner = apart(&items, &[0, 5, 3, 0], None).slice(1, 2);
    assert_eq!(numbers(&fills().to_tensor(&imported(&inner)).unwrap()), [7, 7, 7, 7]);
    assert_eq!(
        numbers(&fills().to_tensor(&imported(&apart(&items, &[2, 3], Some(vec![true, false].into())))).unwrap()),
        [-1, 7, -1, -1]
    );
    let nulls = imported(&empty_nulls(&items, &[true, false, true]));
    assert_eq!(numbers(&fills().to_tensor(&nulls).unwrap()), [5, -1, -1, -1, -1, 7]);
    assert_eq!(read_bools(&fills().validity(&nulls).unwrap()), [true, false, false, false, false, true]);
}

#[test]
fn items_of_no_fixed_size_have_a_validity_wherever_the_lists_lie() {
    let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, Some("bc"), Some(""), None, None]));
    let pairs: ArrayRef = Arc::new(FixedSizeListArray::new(item_of(&texts), 2, texts.clone(), None));
    let triple = |valid: &[bool]| Conversion::default().length(2).validity(&imported(&empty_nulls(&pairs, valid)));
    assert_eq!(read_bools(&triple(&[true]).unwrap()), [true, false, true, true]);
    let lists = apart(&texts, &[0, 3], None);
    assert_eq!(read_bools(&fills().validity(&imported(&lists)).unwrap()), [true, false, true, false]);
    let lists = apart(&pairs, &[1, 0], None);
    let valid = fills().validity(&imported(&lists)).unwrap();
    assert_eq!(
        (valid.shape(), read_bools(&valid)),
        (&[2, 2, 2][..], vec![true, true, false, false, true, false, true, true])
    );
}

#[test]
fn a_validity_tells_whether_lists_are_decoded() {
    let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(0..6));
    let names = ["first", "second"];
    let groups = Selection::Named(vec![("x".to_owned(), Group::matrix(names).validity("valid"))]);
    let grouped = fills().select(groups);
    for (starts, decoded, step) in [(&[0, 2, 4], 0, "bits unpacked to bytes"), (&[4, 0, 1], 48, "decoded")] {
        let lists: ArrayRef = Arc::new(apart(&numbers, starts, None));
        let batch = RecordBatch::try_from_iter(names.map(|name| (name, lists.clone()))).unwrap();
        let batch = DeviceArray::from_record_batch(&batch).unwrap();
        // A bool for each of 12 elements, and 4 bytes for each that is decoded.
        let plan = fills().plan_validity(&batch).unwrap();
        let (log, streamed) = (CopyLog::new(), CopyLog::new());
        log.track(|| fills().validity(&batch)).unwrap();
        assert_eq!((plan.bytes(), log.bytes()), (12 + decoded, 12 + decoded));
        let steps = |report: &Report| report.rows.iter().find(|row| row.column == "valid").unwrap().steps.clone();
        let report = grouped.explain(&batch).unwrap();
        assert_eq!(steps(&report)[0], step);
        let batches = std::iter::once(Ok(batch.clone()));
        let mut stream = DeviceArrayStream::new(batch.field().clone(), DLDeviceType::CPU, batches);
        streamed.track(|| grouped.read_tensors(&mut stream)).unwrap();
        let whole = CopyLog::new();
        whole.track(|| grouped.to_tensors(&batch)).unwrap();
        assert_eq!(streamed.bytes(), whole.bytes());
        let of_type = grouped.explain_type(batch.field(), Device::CPU).unwrap();
        assert_eq!(steps(&of_type)[0], "decoded, unless the lists follow each other");
    }
}

#[test]
fn lists_of_a_stream_are_copied_once_if_their_items_follow_each_other() {
    let items: ArrayRef = Arc::new(Int32Array::from(vec![Some(0), Some(1), None, Some(3), Some(4), Some(5), Some(6)]));
    let (dense, other) = (&[1, 3, 5][..], &[4, 0, 1][..]);
    // Each array has 6 elements of 4 bytes. If a list of one array is elsewhere, all of them are decoded.
    for (starts, decoded) in [([dense, dense], 0), ([dense, other], 48), ([other, dense], 48), ([other, other], 48)] {
        let chunks = starts.map(|starts| imported(&apart(&items, starts, None)));
        let elements = starts.iter().flat_map(|starts| starts.iter()).flat_map(|start| [*start, start + 1]);
        let expected: Vec<i32> = elements.map(|at| if at == 2 { -1 } else { at }).collect();
        let field = chunks[0].field().clone();
        let stream = || DeviceArrayStream::new(field.clone(), DLDeviceType::CPU, chunks.clone().into_iter().map(Ok));
        let (log, whole) = (CopyLog::new(), CopyLog::new());
        let read = log.track(|| fills().read_tensor(&mut stream())).unwrap();
        assert_eq!(numbers(&read), expected);
        assert_eq!(log.bytes(), 48 + decoded);
        whole.track(|| fills().to_tensor(Chunks::new(&field, &chunks))).unwrap();
        assert_eq!(log.bytes(), whole.bytes());

        let of = |kind: Group| fills().select(Selection::Named(vec![("x".to_owned(), kind)]));
        let rows = chunks.iter().map(|chunk| {
            let list = chunk.to_arrow().unwrap();
            DeviceArray::from_record_batch(&RecordBatch::try_from_iter([("a", list)]).unwrap()).unwrap()
        });
        let rows: Vec<DeviceArray> = rows.collect();
        let field = rows[0].field().clone();
        let log = CopyLog::new();
        let mut stream = DeviceArrayStream::new(field, DLDeviceType::CPU, rows.into_iter().map(Ok));
        let tensors = log.track(|| of(Group::column("a").validity("valid")).read_tensors(&mut stream)).unwrap();
        assert_eq!(numbers(&tensors[0].1), expected);
        assert_eq!(read_bools(&tensors[1].1), expected.iter().map(|value| *value >= 0).collect::<Vec<_>>());
        // The column, and a bool for each of its 12 elements.
        assert_eq!(log.bytes(), 48 + decoded + 12 + decoded);
    }
}

#[test]
fn a_list_of_another_length_in_a_stream_is_named_by_its_row_in_the_stream() {
    let items: ArrayRef = Arc::new(Int32Array::from_iter_values(0..8));
    let first = apart(&items, &[0, 2, 4], None);
    let second = ListViewArray::new(item_of(&items), vec![0, 2].into(), vec![2, 3].into(), items.clone(), None);
    let rows = [first, second].map(|lists| {
        let list: ArrayRef = Arc::new(lists);
        DeviceArray::from_record_batch(&RecordBatch::try_from_iter([("a", list)]).unwrap()).unwrap()
    });
    let field = rows[0].field().clone();
    let only_validity = Group::column("a").validity("valid");
    let matrices = [MemoryOrder::C, MemoryOrder::F].map(|order| (Group::matrix(["a"]), order));
    let columns = [Group::column("a"), only_validity].map(|group| (group, MemoryOrder::C));
    for (group, order) in columns.into_iter().chain(matrices) {
        let conversion = fills().select(Selection::Named(vec![("x".to_owned(), group)])).memory_order(order);
        let whole = conversion.to_tensors(Chunks::new(&field, &rows)).unwrap_err().to_string();
        let mut stream = DeviceArrayStream::new(field.clone(), DLDeviceType::CPU, rows.clone().into_iter().map(Ok));
        let streamed = conversion.read_tensors(&mut stream).unwrap_err().to_string();
        assert_eq!(streamed, whole);
        assert!(whole.contains("row 4"), "{whole}");
    }
}

#[test]
fn lists_that_are_all_null_need_no_item() {
    let empty: ArrayRef = Arc::new(DictionaryArray::<Int32Type>::new(
        Int32Array::from(Vec::<i32>::new()),
        Arc::new(Int32Array::from(Vec::<i32>::new())),
    ));
    let filled: ArrayRef =
        Arc::new(DictionaryArray::<Int32Type>::new(vec![0, 0].into(), Arc::new(Int32Array::from(vec![7]))));
    let values = || fills().dtype(DType::Int32);
    let nothing = imported(&empty_nulls(&empty, &[false, false]));
    assert_eq!(numbers(&values().to_tensor(&nothing).unwrap()), [-1; 4]);
    let something = imported(&empty_nulls(&filled, &[true, false]));
    let chunks = [nothing, something];
    let whole = values().to_tensor(Chunks::new(&chunks[0].field().clone(), &chunks)).unwrap();
    assert_eq!(numbers(&whole), [-1, -1, -1, -1, 7, 7, -1, -1]);
}

#[test]
fn a_length_that_no_fixed_size_list_has_is_refused() {
    let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([Some([Some(1), Some(2)])]);
    let error = Conversion::default().length(1 << 31).to_tensor(&lists).unwrap_err();
    assert!(error.to_string().contains("the length 2147483648 is beyond 2^31 - 1"), "{error}");
}
