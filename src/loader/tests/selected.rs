//! Tests what is selected for a batch, and the copies that are logged for it.

use arrow_array::types::Int32Type;
use arrow_array::{Array, ListArray, StructArray};
use arrow_schema::Fields;

use super::shards::of_column;
use super::*;
use crate::copy_log::CopyLog;

#[test]
fn a_field_of_a_struct_is_a_column_by_its_path() {
    let fields: Fields = ["a", "b"].map(|name| Field::new(name, DataType::Int64, false)).into_iter().collect();
    let columns = [vec![1, 2, 3], vec![4, 5, 6]].map(|values| Arc::new(Int64Array::from(values)) as ArrayRef);
    let structs = StructArray::new(fields.clone(), columns.into(), None);
    let array = of_column(Field::new("s", structs.data_type().clone(), false), Arc::new(structs));
    let options = LoadOptions::new(split(2));
    let found = |conversion: Conversion| {
        let stream = stream_of(vec![array.clone()]);
        all(Batches::new(stream, &conversion, &options, &Place::start(0)).unwrap()).concat()
    };
    assert_eq!(found(Conversion::default().columns(["s.b"])), [4, 5, 6]);
    let named = Selection::Named(vec![("x".to_owned(), Group::column("s.a"))]);
    assert_eq!(found(Conversion::default().select(named)), [1, 2, 3]);
}

#[test]
fn each_tensor_of_a_batch_is_logged_as_a_copy() {
    let ids: ArrayRef =
        Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1)]), Some(vec![])]));
    let row: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let array = RecordBatch::try_from_iter([("row", row.clone()), ("a", row), ("ids", ids)]).unwrap();
    let groups = [
        ("x", Group::matrix(["a", "row"]).dtype(DType::Float32)),
        ("y", Group::column("row").validity("valid")),
        ("p", Group::padded("ids", Pad::new(Scalar::Int(0)))),
    ];
    let groups = groups.map(|(name, group)| (name.to_owned(), group));
    let conversion = Conversion::default().select(Selection::Named(groups.into()));
    for prefetch in [0, 2] {
        let options = LoadOptions { prefetch, ..LoadOptions::new(split(2)) };
        let stream = stream_of(vec![DeviceArray::from_record_batch(&array).unwrap()]);
        let mut found = Batches::new(stream, &conversion, &options, &Place::start(0)).unwrap();
        let log = CopyLog::new();
        let batch = log.track(|| found.next()).unwrap().unwrap();
        let copies: Vec<_> = log.entries().into_iter().map(|copy| (copy.what, copy.why, copy.bytes)).collect();
        let packed = copies.iter().filter(|(_, why, _)| why.starts_with("packed into a batch"));
        let packed: Vec<_> = packed.map(|(what, why, bytes)| (what.as_str(), why.as_str(), *bytes)).collect();
        let expected = [
            ("2 columns: 2 rows of float32", "packed into a batch, cast from int64 to float32", 16),
            ("column \"row\": 2 rows of Int64", "packed into a batch", 16),
            ("column \"row\": 2 rows of Int64", "packed into a batch, bits unpacked to bytes", 2),
        ];
        assert_eq!((packed, batch.tensors.len()), (expected.to_vec(), 3));
        let padded = copies.iter().filter(|(what, why, _)| what.contains("2 rows") && why.contains("padded"));
        assert_eq!(padded.count(), 1, "{copies:?}");
    }
}
