//! Do record batches, readers and errors of arrow-rs return as they were, with metadata and causes?

#![allow(unsafe_code, reason = "imports its own C stream")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper that fails is a test that fails"
)]

#[path = "support/mod.rs"]
mod support;

use std::collections::HashMap;
use std::error::Error as _;
use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, Int32Array, RecordBatch, RecordBatchIterator, RecordBatchOptions, RecordBatchReader, StringArray,
    StructArray,
};
use arrow_buffer::NullBuffer;
use arrow_dlpack::arrow::export_stream;
use arrow_dlpack::ffi::dlpack::DLDeviceType;
use arrow_dlpack::loader::{Batches, LoadOptions, Place, Sharding};
use arrow_dlpack::{Conversion, DeviceArray, DeviceArrayStream, Error, ErrorKind, Group, NullPolicy, Pad, Scalar};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use support::{Count, CountsDrop};

/// A schema with metadata of its own and of a column.
fn schema() -> SchemaRef {
    let of = |key: &str| HashMap::from([(key.to_owned(), "1".to_owned())]);
    let fields = vec![
        Field::new("a", DataType::Int32, true).with_metadata(of("column")),
        Field::new("b", DataType::Utf8, false),
    ];
    Arc::new(Schema::new_with_metadata(fields, of("table")))
}

fn batch() -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int32Array::from(vec![Some(1), None, Some(3)])),
        Arc::new(StringArray::from(vec!["x", "y", "z"])),
    ];
    RecordBatch::try_new(schema(), columns).unwrap()
}

/// A reader that counts its release.
struct Reader {
    items: Vec<Result<RecordBatch, ArrowError>>,
    _dropped: CountsDrop,
}

impl Iterator for Reader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.items.pop()
    }
}

impl RecordBatchReader for Reader {
    fn schema(&self) -> SchemaRef {
        schema()
    }
}

/// A reader of these, the last one first.
fn reader(items: Vec<Result<RecordBatch, ArrowError>>) -> (Reader, Count) {
    let count = Count::default();
    (Reader { items, _dropped: CountsDrop(count.clone()) }, count)
}

/// The cause of an error, after as many links of the chain as it takes to find one.
fn io_cause(error: &Error) -> Option<&std::io::Error> {
    let mut cause = error.source()?;
    loop {
        if let Some(found) = cause.downcast_ref() {
            return Some(found);
        }
        cause = cause.source()?;
    }
}

#[test]
fn a_batch_returns_with_its_metadata_over_the_same_memory() {
    let array = DeviceArray::try_from(batch()).unwrap();
    let back = RecordBatch::try_from(&array).unwrap();
    assert_eq!(back, batch());
    assert_eq!(back.schema(), schema());
    let start = |batch: &RecordBatch| batch.column(0).to_data().buffers()[0].as_ptr();
    let of_batch = batch();
    let shared = RecordBatch::try_from(DeviceArray::try_from(&of_batch).unwrap()).unwrap();
    assert_eq!(start(&shared), start(&of_batch));
    let rows = array.slice(1, 2).unwrap().to_record_batch().unwrap();
    assert_eq!(rows, batch().slice(1, 2));
    assert_eq!(array.slice(3, 0).unwrap().to_record_batch().unwrap(), batch().slice(3, 0));
    for (offset, length) in [(0, 4), (4, 0), (2, 2), (usize::MAX, 2)] {
        assert_eq!(array.slice(offset, length).unwrap_err().kind(), ErrorKind::Argument);
    }
}

#[test]
fn slices_of_a_column_have_the_nulls_of_the_structs_around_it() {
    const ROWS: usize = 30;
    let ints: ArrayRef = Arc::new(Int32Array::from_iter((0..30).map(|row| (row % 5 != 1).then_some(row))));
    let valid: Vec<bool> = (0..ROWS).map(|row| row % 3 != 2).collect();
    let inner = Arc::new(Field::new("a", DataType::Int32, true));
    let structs = StructArray::new(vec![inner].into(), vec![ints], Some(NullBuffer::from(valid)));
    let field = Arc::new(Field::new("s", structs.data_type().clone(), true));
    let column = DeviceArray::from_arrow(&structs, field).unwrap().column(0).unwrap();
    let shown = format!("{column:?}");
    assert!(shown.contains("\"a\"") && shown.contains("length: 30"), "{shown}");
    let value = |row: usize| (row % 3 != 2 && row % 5 != 1).then(|| i32::try_from(row).unwrap());
    for (start, length) in (0..=ROWS).flat_map(|start| [(start, ROWS - start), (start, (ROWS - start) / 2)]) {
        let rows = column.slice(start, length).unwrap();
        let expected: ArrayRef = Arc::new(Int32Array::from_iter((start..start + length).map(value)));
        assert_eq!(&rows.to_arrow().unwrap(), &expected, "{start} {length}");
        let kept = Conversion::default().validity(&rows).unwrap();
        let bools = support::reference::read_bools(&kept).into_iter();
        assert!(bools.eq((start..start + length).map(|row| value(row).is_some())), "{start} {length}");
    }
}

#[test]
fn a_batch_without_columns_keeps_its_rows() {
    let rows = RecordBatchOptions::new().with_row_count(Some(5));
    let batch = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &rows).unwrap();
    let back = DeviceArray::try_from(&batch).unwrap().to_record_batch().unwrap();
    assert_eq!((back.num_rows(), back.num_columns()), (5, 0));
}

#[test]
fn arrays_that_are_no_batches_are_refused() {
    let ints: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
    let field = |name: &str, data_type: &DataType, nullable| Arc::new(Field::new(name, data_type.clone(), nullable));
    let array = DeviceArray::from_arrow(&ints, field("x", &DataType::Int32, true)).unwrap();
    let error = array.to_record_batch().unwrap_err();
    assert_eq!((error.kind(), error.column()), (ErrorKind::Argument, Some("x")));
    let inner = field("a", &DataType::Int32, true);
    let structs = StructArray::new(vec![inner].into(), vec![ints.clone()], Some(NullBuffer::from(vec![true, false])));
    let array = DeviceArray::from_arrow(&structs, field("s", structs.data_type(), true)).unwrap();
    let error = array.to_record_batch().unwrap_err();
    assert_eq!((error.kind(), error.row(), error.column()), (ErrorKind::Null, Some(1), Some("s")));
    assert_eq!(array.slice(0, 1).unwrap().to_record_batch().unwrap().num_rows(), 1);
    let stream =
        DeviceArrayStream::new(array.column(0).unwrap().field().clone(), DLDeviceType::CPU, std::iter::empty());
    assert!(stream.into_reader().is_err());
    let stream = DeviceArrayStream::new(array.field().clone(), DLDeviceType::CUDA, std::iter::empty());
    assert_eq!(stream.into_reader().map(drop).unwrap_err().kind(), ErrorKind::Device);
}

#[test]
fn a_reader_becomes_a_stream_and_returns() {
    let (source, released) = reader(vec![Ok(batch().slice(2, 1)), Ok(batch())]);
    let mut back = DeviceArrayStream::from_reader(source).into_reader().unwrap();
    assert_eq!(back.schema(), schema());
    assert_eq!(back.next().unwrap().unwrap(), batch());
    assert_eq!(released.get(), 0);
    assert_eq!(back.next().unwrap().unwrap(), batch().slice(2, 1));
    assert!(back.next().is_none());
    drop(back);
    assert_eq!(released.get(), 1);
    let iterator = RecordBatchIterator::new([Ok(batch())], schema());
    let tensor = Conversion::default().columns(["a"]).read_tensor(&mut DeviceArrayStream::from_reader(iterator));
    assert_eq!(tensor.unwrap_err().kind(), ErrorKind::Null);
}

#[test]
fn a_batch_of_another_schema_is_an_error_or_takes_the_readers_names() {
    let renamed = |data_type: DataType, column: ArrayRef| {
        let fields = vec![Field::new("other", data_type, true), Field::new("b", DataType::Utf8, true)];
        RecordBatch::try_new(Arc::new(Schema::new(fields)), vec![column, batch().column(1).clone()]).unwrap()
    };
    let same = renamed(DataType::Int32, batch().column(0).clone());
    let (source, _) = reader(vec![Ok(same)]);
    let mut back = DeviceArrayStream::from_reader(source).into_reader().unwrap();
    assert_eq!(back.next().unwrap().unwrap(), batch());
    let wider: ArrayRef = Arc::new(arrow_array::Int64Array::from(vec![1, 2, 3]));
    let (source, _) = reader(vec![Ok(renamed(DataType::Int64, wider))]);
    let mut stream = DeviceArrayStream::from_reader(source);
    assert_eq!(stream.next().unwrap().unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn the_cause_of_a_readers_error_survives_streams() {
    let failed = || Err(ArrowError::ExternalError(Box::new(std::io::Error::other("no network"))));
    let (source, released) = reader(vec![failed()]);
    let error = DeviceArrayStream::from_reader(source).next().unwrap().unwrap_err();
    assert_eq!((error.kind(), error.reason()), (ErrorKind::Producer, "no network"));
    assert_eq!(io_cause(&error).unwrap().to_string(), "no network");
    assert_eq!(released.get(), 1);

    // As a reader: arrow-rs' error holds ours, which has the cause.
    let (source, _) = reader(vec![failed()]);
    let mut back = DeviceArrayStream::from_reader(source).into_reader().unwrap();
    let error = Error::from(back.next().unwrap().unwrap_err());
    assert_eq!(io_cause(&error).unwrap().to_string(), "no network");

    // Through a C stream whose both ends are in this library.
    let (source, released) = reader(vec![failed()]);
    let mut exported = export_stream(DeviceArrayStream::from_reader(source)).unwrap();
    // SAFETY: our own export.
    let mut stream = unsafe { DeviceArrayStream::import(exported.as_mut_ptr()) }.unwrap();
    let error = stream.next().unwrap().unwrap_err();
    assert!(error.reason().ends_with("failed with code 5: no network"), "{error}");
    // The library knows its own stream by the address of a function, of which Miri makes another each time that it is taken.
    if cfg!(not(miri)) {
        assert_eq!(io_cause(&error).unwrap().to_string(), "no network");
    }
    drop(stream);
    assert_eq!(released.get(), 1);
}

#[test]
fn batches_may_differ_in_nullability() {
    let schema = |is_nullable| Arc::new(Schema::new(vec![Field::new("a", DataType::Int32, is_nullable)]));
    let batch = |is_nullable, rows: Vec<Option<i32>>| {
        RecordBatch::try_new(schema(is_nullable), vec![Arc::new(Int32Array::from(rows))]).unwrap()
    };
    let (with, without) = (batch(true, vec![Some(1), None]), batch(false, vec![Some(3)]));
    let conversion = Conversion::default().nulls(NullPolicy::Fill(7.into()));
    let options = LoadOptions::new(Sharding::new(3, false, 0, 1).unwrap());
    for (first, second, expected) in [(&with, &without, [1, 7, 3]), (&without, &with, [3, 1, 7])] {
        let batches = [first.clone(), second.clone()];
        // All are at hand: the column is nullable if it is in any of them.
        assert_eq!(conversion.to_tensor(&batches).unwrap().to_vec::<i32>().unwrap(), expected);
        let stream = || {
            let items = batches.clone().map(Ok);
            DeviceArrayStream::from_reader(RecordBatchIterator::new(items, first.schema()))
        };
        let read = conversion.read_tensor(&mut stream());
        let loaded = Batches::new(stream(), &conversion, &options, &Place::start(0)).unwrap().next().unwrap();
        let loaded = loaded.map(|batch| batch.tensors[0].to_vec::<i32>().unwrap());
        if first.schema().field(0).is_nullable() {
            assert_eq!(
                (read.unwrap().to_vec::<i32>().unwrap(), loaded.unwrap()),
                (expected.to_vec(), expected.to_vec())
            );
        } else {
            // The reader's schema told that there are no nulls.
            assert_eq!(
                (read.unwrap_err().kind(), loaded.unwrap_err().kind()),
                (ErrorKind::Invalid, ErrorKind::Invalid)
            );
        }
    }
}

#[test]
fn a_stream_refuses_batches_of_columns_in_another_order() {
    let batch = |names: [&str; 2], values: [i32; 2]| {
        let columns = values.map(|value| -> ArrayRef { Arc::new(Int32Array::from(vec![value])) });
        RecordBatch::try_from_iter(names.into_iter().zip(columns)).unwrap()
    };
    let (first, second) = (batch(["a", "b"], [1, 2]), batch(["b", "a"], [3, 4]));
    let stream = || {
        let items = [first.clone(), second.clone()].map(Ok);
        DeviceArrayStream::from_reader(RecordBatchIterator::new(items, first.schema()))
    };
    let error = stream().nth(1).unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.reason().contains(r#"the columns ["b", "a"], and the stream ["a", "b"]"#), "{error}");
    let mut reader = stream().into_reader().unwrap();
    assert_eq!(reader.next().unwrap().unwrap(), first);
    assert!(reader.next().unwrap().is_err());
}

#[test]
fn a_loader_refuses_a_batch_of_columns_in_another_order() {
    let text = |text: &str| -> ArrayRef { Arc::new(StringArray::from(vec![text])) };
    let first = RecordBatch::try_from_iter([("a", text("a")), ("b", text("b"))]).unwrap();
    let second = RecordBatch::try_from_iter([("b", text("b")), ("a", text("a"))]).unwrap();
    for group in [Group::arrow(["a"]), Group::ragged("a"), Group::padded("a", Pad::new(Scalar::Int(0)))] {
        let reader = RecordBatchIterator::new([Ok(first.clone()), Ok(second.clone())], first.schema());
        let conversion = Conversion::default().groups([("x", group)]);
        let options = LoadOptions::new(Sharding::new(2, false, 0, 1).unwrap());
        let stream = DeviceArrayStream::from_reader(reader);
        let mut batches = Batches::new(stream, &conversion, &options, &Place::start(0)).unwrap();
        let error = batches.next().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert_eq!(error.remedy().as_deref(), Some("give all arrays of a stream one schema"));
    }
}

#[test]
fn items_of_a_batch_that_may_be_null_are_not_said_to_be_none() {
    let batch = |is_nullable, values: Vec<Option<i32>>| {
        let item = Arc::new(Field::new("item", DataType::Int32, is_nullable));
        let offsets = arrow_buffer::OffsetBuffer::from_lengths([values.len()]);
        let lists = arrow_array::ListArray::new(item, offsets, Arc::new(Int32Array::from(values)), None);
        RecordBatch::try_from_iter([("a", Arc::new(lists) as ArrayRef)]).unwrap()
    };
    let (without, with) = (batch(false, vec![Some(1)]), batch(true, vec![Some(2), None]));
    for (first, second) in [(&without, &with), (&with, &without)] {
        let items = [first.clone(), second.clone()].map(Ok);
        let mut stream = DeviceArrayStream::from_reader(RecordBatchIterator::new(items, first.schema()));
        let found = stream.nth(1).unwrap().unwrap();
        // Under the stream's own field only if that says no less of the nulls.
        assert_eq!(found.columns()[0].data_type(), with.schema().field(0).data_type());
    }
}

#[test]
fn structs_of_the_same_fields_in_another_order_are_no_arrays_of_a_stream() {
    let nested = |names: [&str; 2]| {
        let ints = |values: [i32; 2]| Arc::new(Int32Array::from(values.to_vec())) as ArrayRef;
        let fields = names.map(|name| Field::new(name, DataType::Int32, false));
        let inner = StructArray::new(fields.to_vec().into(), vec![ints([1, 2]), ints([3, 4])], None);
        RecordBatch::try_from_iter([("s", Arc::new(inner) as ArrayRef)]).unwrap()
    };
    let (first, second) = (nested(["a", "b"]), nested(["b", "a"]));
    let items = [first.clone(), second].map(Ok);
    let mut stream = DeviceArrayStream::from_reader(RecordBatchIterator::new(items, first.schema()));
    assert!(stream.next().unwrap().is_ok());
    assert!(stream.next().unwrap().is_err());
    // Other names alone are names.
    let items = [first.clone(), nested(["x", "y"])].map(Ok);
    let mut stream = DeviceArrayStream::from_reader(RecordBatchIterator::new(items, first.schema()));
    assert!(stream.all(|array| array.is_ok()));
}
