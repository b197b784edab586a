//! Does a requested schema give exactly the same values under the requested type, or an error that says why not?

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper that fails is a test that fails"
)]

mod support;

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int32Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, DictionaryArray, FixedSizeListArray, Float32Array, Float64Array, Int8Array,
    Int32Array, Int64Array, ListArray, NullArray, RecordBatch, StringArray, StructArray, TimestampMillisecondArray,
    TimestampNanosecondArray, UInt8Array, UInt64Array,
};
use arrow_dlpack::{CopyLog, DeviceArray, ErrorKind, Result, check_request, request_field};
use arrow_schema::{DataType, Field, FieldRef, TimeUnit};
use support::arrow::{extension, field, list, shared};

fn required(name: &str, data_type: DataType) -> FieldRef {
    Arc::new(Field::new(name, data_type, false))
}

/// The array `x` under a requested field; checks that the log tells whether values were cast.
fn request(array: &dyn Array, requested: &FieldRef) -> Result<ArrayRef> {
    let own = field("x", array.data_type().clone());
    let log = CopyLog::new();
    let given = log.track(|| request_field(&shared(array, &own), requested))?;
    assert_eq!(given.field(), requested);
    let arrow = given.to_arrow()?;
    assert_eq!(arrow.data_type(), requested.data_type());
    assert!(log.bytes() == 0 || array.data_type() != requested.data_type());
    Ok(arrow)
}

fn int32() -> Int32Array {
    Int32Array::from(vec![Some(1), None, Some(i32::MAX), Some(i32::MIN)])
}

#[test]
fn the_same_field_or_another_name_shares_the_memory() {
    let array = int32();
    let metadata = extension(&field("y", DataType::Int32), "some.extension", "");
    for requested in [field("x", DataType::Int32), field("y", DataType::Int32), metadata] {
        let given = request(&array, &requested).unwrap();
        assert_eq!(given.to_data(), array.to_data());
        assert_eq!(given.as_primitive::<Int32Type>().values().as_ptr(), array.values().as_ptr());
    }
}

#[test]
fn names_of_list_items_mean_nothing() {
    let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1)]), None]);
    let fixed = FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), Some(2)]), None], 2);
    let element = |nullable| Arc::new(Field::new("element", DataType::Int32, nullable));
    for (array, requested) in [
        (&lists as &dyn Array, DataType::List(element(true))),
        (&lists, DataType::List(element(false))),
        (&fixed, DataType::FixedSizeList(element(true), 2)),
    ] {
        let given = request(array, &field("x", requested)).unwrap();
        assert_eq!((given.len(), given.null_count()), (2, 1));
    }
}

#[test]
fn values_that_survive_are_cast() {
    let wide = request(&int32(), &field("x", DataType::Int64)).unwrap();
    let expected = Int64Array::from(vec![Some(1), None, Some(i64::from(i32::MAX)), Some(i64::from(i32::MIN))]);
    assert_eq!(wide.as_primitive::<Int64Type>(), &expected);

    let exact = Float64Array::from(vec![Some(0.5), None, Some(f64::from(f32::MAX)), Some(f64::INFINITY), Some(-0.0)]);
    let narrow = request(&exact, &field("x", DataType::Float32)).unwrap();
    let expected = Float32Array::from(vec![Some(0.5), None, Some(f32::MAX), Some(f32::INFINITY), Some(-0.0)]);
    assert_eq!(narrow.to_data(), expected.to_data());

    let whole = Float64Array::from(vec![1.0, -3.0]);
    assert_eq!(request(&whole, &field("x", DataType::Int8)).unwrap().to_data(), Int8Array::from(vec![1, -3]).to_data());
    let bools = BooleanArray::from(vec![Some(true), None, Some(false)]);
    let bytes = Int8Array::from(vec![Some(1), None, Some(0)]);
    assert_eq!(request(&bools, &field("x", DataType::Int8)).unwrap().to_data(), bytes.to_data());
    assert_eq!(request(&bytes, &field("x", DataType::Boolean)).unwrap().to_data(), bools.to_data());
    let text = StringArray::from(vec!["ab", "c"]);
    assert_eq!(request(&text, &field("x", DataType::LargeUtf8)).unwrap().as_string::<i64>().value(1), "c");
    let times = TimestampNanosecondArray::from(vec![2_000, 4_000]);
    let micros = DataType::Timestamp(TimeUnit::Microsecond, None);
    assert_eq!(request(&times, &field("x", micros)).unwrap().len(), 2);
}

#[test]
fn values_that_do_not_survive_are_refused_with_their_row() {
    let ones = |last: f64| Float64Array::from(vec![1.0, 1.0, 1.0, last, 1.0, last]);
    let cases: [(Box<dyn Array>, DataType, usize); 12] = [
        // The way back fails.
        (Box::new(Int64Array::from(vec![0, i64::MAX])), DataType::Float64, 1),
        (Box::new(ones(0.1)), DataType::Float32, 3),
        (Box::new(ones(1e300)), DataType::Float32, 3),
        (Box::new(ones(1.5)), DataType::Int32, 3),
        (Box::new(ones(-0.0)), DataType::Int32, 3),
        (Box::new(ones(f64::NAN)), DataType::Int32, 3),
        (Box::new(Int64Array::from(vec![0, 0, (1 << 53) + 1])), DataType::Float64, 2),
        (Box::new(Int32Array::from(vec![0, 2])), DataType::Boolean, 1),
        (Box::new(Int32Array::from(vec![0, 300])), DataType::Int8, 1),
        (Box::new(UInt64Array::from(vec![0, u64::MAX])), DataType::Int64, 1),
        (Box::new(Int64Array::from(vec![0, -1])), DataType::UInt64, 1),
        (
            Box::new(TimestampNanosecondArray::from(vec![1_000, 1_001])),
            DataType::Timestamp(TimeUnit::Microsecond, None),
            1,
        ),
    ];
    for (array, data_type, row) in cases {
        let requested = field("y", data_type.clone());
        let error = request(array.as_ref(), &requested).expect_err(&format!("{} as {data_type}", array.data_type()));
        assert_eq!((error.kind(), error.column()), (ErrorKind::Cast, Some("y")), "{error}");
        assert_eq!(error.row(), Some(row), "{error}");
        assert!(error.remedy().is_some(), "{error}");
    }
}

#[test]
fn bytes_become_bits_where_each_is_0_or_1() {
    let bools: Vec<Option<bool>> = (0..700_usize).map(|row| (row % 13 != 5).then_some(row * 7 % 11 < 4)).collect();
    let expected = BooleanArray::from(bools.clone());
    let nulls = expected.nulls().cloned();
    // What lies under a null is no value.
    let byte = |value: &Option<bool>| value.map_or(77, u8::from);
    let unsigned = UInt8Array::new(bools.iter().map(byte).collect(), nulls.clone());
    let signed = Int8Array::new(bools.iter().map(|value| i8::from(*value == Some(true))).collect(), nulls);
    let dense = UInt8Array::from_iter_values(bools.iter().map(|value| u8::from(*value == Some(true))));
    let all = BooleanArray::from_iter(bools.iter().map(|value| Some(*value == Some(true))));
    let bits = field("x", DataType::Boolean);
    for (start, length) in [(0, 700), (0, 0), (3, 1), (5, 64), (64, 128), (1, 699), (63, 200)] {
        for (bytes, expected) in [(&unsigned as &dyn Array, &expected), (&signed, &expected), (&dense, &all)] {
            let given = request(bytes.slice(start, length).as_ref(), &bits).unwrap();
            assert_eq!(given.to_data(), expected.slice(start, length).to_data(), "{start} {length}");
        }
    }
    for row in [0, 63, 64, 699] {
        let mut bytes = vec![1_u8; 700];
        bytes[row] = 2;
        let error = request(&UInt8Array::from(bytes), &bits).unwrap_err();
        assert_eq!((error.kind(), error.row()), (ErrorKind::Cast, Some(row)), "{error}");
    }
}

#[test]
fn integers_and_what_counts_in_them_share_their_memory() {
    let days = Int32Array::from(vec![Some(1), None, Some(-3)]);
    let log = CopyLog::new();
    let given = log.track(|| request(&days, &field("x", DataType::Date32))).unwrap();
    assert_eq!(given.to_data().buffers()[0].as_ptr(), days.to_data().buffers()[0].as_ptr());
    assert_eq!((given.data_type(), given.null_count(), log.bytes()), (&DataType::Date32, 1, 0));
    // What no date or time can count is refused, also where a cast gives it.
    const DAY: i64 = 86_400_000;
    let (micros, nanos) = (DataType::Time64(TimeUnit::Microsecond), DataType::Time64(TimeUnit::Nanosecond));
    let wide = |values: [i64; 3]| Arc::new(Int64Array::from(values.to_vec())) as ArrayRef;
    let narrow = |values: [i32; 3]| Arc::new(Int32Array::from(values.to_vec())) as ArrayRef;
    let times = |values: [i64; 3]| Arc::new(TimestampMillisecondArray::from(values.to_vec())) as ArrayRef;
    for (fine, broken, to) in [
        (wide([0, DAY, -DAY]), wide([0, DAY, 1]), DataType::Date64),
        (times([0, DAY, -DAY]), times([0, DAY, DAY + 1]), DataType::Date64),
        (wide([0, 1, DAY * 1000 - 1]), wide([0, 1, DAY * 1000]), micros.clone()),
        (wide([0, 1, DAY]), wide([0, 1, -1]), nanos.clone()),
        (wide([0, 1, DAY * 1_000_000 - 1]), wide([0, 1, DAY * 1_000_000]), nanos),
        (narrow([0, 1, 86_399]), narrow([0, 1, 86_400]), DataType::Time32(TimeUnit::Second)),
        (narrow([0, 1, 86_399_999]), narrow([0, 1, 86_400_000]), DataType::Time32(TimeUnit::Millisecond)),
    ] {
        assert_eq!(request(&fine, &field("y", to.clone())).unwrap().len(), 3);
        assert_eq!(request(&broken.slice(0, 2), &field("y", to.clone())).unwrap().len(), 2);
        let error = request(&broken, &field("y", to.clone())).expect_err(&to.to_string());
        assert_eq!((error.kind(), error.column(), error.row()), (ErrorKind::Cast, Some("y"), Some(2)), "{error}");
        assert!(error.remedy().is_some(), "{error}");
        let lists = FixedSizeListArray::new(field("item", broken.data_type().clone()), 3, broken.clone(), None);
        let error = request(&lists, &field("y", list(to.clone(), 3))).expect_err(&to.to_string());
        assert_eq!((error.kind(), error.row()), (ErrorKind::Cast, Some(0)), "{error}");
        let rows = StructArray::from(vec![(field("a", broken.data_type().clone()), broken)]);
        let error = request(&rows, &field("y", DataType::Struct([field("a", to)].into()))).unwrap_err();
        assert_eq!((error.kind(), error.column(), error.row()), (ErrorKind::Cast, Some("a"), Some(2)), "{error}");
    }
    let null = Int64Array::new(vec![-1, 1].into(), Some(vec![false, true].into()));
    assert_eq!(request(&null, &field("y", micros)).unwrap().null_count(), 1);
    // Of two that both count, the units differ.
    let seconds = DataType::Timestamp(TimeUnit::Second, None);
    let times = TimestampNanosecondArray::from(vec![2_000_000_000]);
    let given = request(&times, &field("x", seconds.clone())).unwrap();
    assert_eq!((given.data_type(), given.to_data().buffers()[0].typed_data::<i64>()), (&seconds, &[2][..]));
}

#[test]
fn nulls_alone_are_nulls_in_any_type() {
    let nothing = NullArray::new(3);
    for data_type in [DataType::Int64, DataType::Utf8, DataType::Float32] {
        let given = request(&nothing, &field("x", data_type.clone())).unwrap();
        assert_eq!((given.data_type(), given.null_count(), given.len()), (&data_type, 3, 3));
    }
    let error = request(&Int32Array::from(vec![1]), &field("x", list(DataType::Utf8, 2))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cast);
    assert!(error.reason().contains("no cast exists") && error.remedy().is_some(), "{error}");
}

#[test]
fn junk_in_null_slots_survives_anything() {
    let values = vec![i64::MAX, 1, -1].into();
    let array = Int64Array::new(values, Some(vec![false, true, false].into()));
    let given = request(&array, &field("x", DataType::UInt8)).unwrap();
    assert_eq!(given.to_data(), UInt8Array::from(vec![None, Some(1), None]).to_data());
}

#[test]
fn types_that_cannot_be_had_are_refused() {
    let not_castable = StructArray::from(vec![(field("a", DataType::Int32), Arc::new(int32()) as ArrayRef)]);
    for (array, data_type) in [
        (&int32() as &dyn Array, DataType::Null),
        (&int32(), list(DataType::Int32, 3)),
        (&not_castable, DataType::Int32),
        (&int32(), DataType::Struct([field("a", DataType::Int32)].into())),
    ] {
        let error = request(array, &field("y", data_type.clone())).expect_err(&data_type.to_string());
        assert_eq!((error.kind(), error.column()), (ErrorKind::Cast, Some("y")), "{error}");
    }
    let metadata = extension(&field("y", list(DataType::Int8, 6)), "arrow.fixed_shape_tensor", r#"{"shape":[4]}"#);
    let array = support::arrow::random_array(&list(DataType::Int8, 6), 2, 0, &mut support::Random(1));
    assert_eq!(request(&array, &metadata).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn a_cast_without_a_way_back_is_refused_before_any_data() {
    let (own, requested) = (field("x", DataType::Int32), DataType::List(field("item", DataType::Int32)));
    assert!(arrow_cast::can_cast_types(own.data_type(), &requested), "else there is nothing to refuse");
    let error = check_request(&own, &field("x", requested)).unwrap_err();
    assert_eq!((error.kind(), error.column()), (ErrorKind::Cast, Some("x")), "{error}");
}

#[test]
fn a_null_meets_no_field_that_is_not_nullable() {
    for data_type in [DataType::Int32, DataType::Int64] {
        let error = request(&int32(), &required("y", data_type.clone())).unwrap_err();
        assert_eq!((error.kind(), error.column(), error.row()), (ErrorKind::Null, Some("y"), Some(1)), "{error}");
        assert!(error.remedy().unwrap().contains("nullable"));
        assert!(request(&int32().slice(2, 2), &required("y", data_type)).is_ok());
    }
}

#[test]
fn items_and_fields_that_are_not_nullable_are_checked_where_they_count() {
    let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([
        Some(vec![Some(1), None]),
        Some(vec![Some(2)]),
        None,
        Some(vec![Some(3)]),
    ]);
    let of = |data_type| required("item", data_type);
    for item in [DataType::Int32, DataType::Int64] {
        let requested = field("y", DataType::List(of(item)));
        let error = request(&lists, &requested).unwrap_err();
        assert_eq!((error.kind(), error.column()), (ErrorKind::Null, Some("item")), "{error}");
    }
    // A null list has null items: that breaks no promise of theirs. The rows of others are told.
    let fixed = FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>(
        [Some(vec![Some(1), Some(2)]), None, Some(vec![Some(3), None])],
        2,
    );
    let requested = field("y", DataType::FixedSizeList(of(DataType::Int32), 2));
    assert_eq!(request(&fixed.slice(0, 2), &requested).unwrap().null_count(), 1);
    let error = request(&fixed, &requested).unwrap_err();
    assert_eq!((error.kind(), error.column(), error.row()), (ErrorKind::Null, Some("item"), Some(2)), "{error}");
    // A null row has null fields: that breaks no promise of theirs.
    let rows = StructArray::new(
        vec![field("a", DataType::Int32)].into(),
        vec![Arc::new(Int32Array::from(vec![Some(1), None, Some(3)]))],
        Some(vec![true, false, true].into()),
    );
    let requested = field("y", DataType::Struct([required("a", DataType::Int32)].into()));
    assert_eq!(request(&rows, &requested).unwrap().null_count(), 1);
    let rows = StructArray::new(rows.fields().clone(), rows.columns().to_vec(), None);
    let error = request(&rows, &requested).unwrap_err();
    assert_eq!((error.kind(), error.column(), error.row()), (ErrorKind::Null, Some("a"), Some(1)), "{error}");
}

#[test]
fn dictionaries_become_their_values_and_back() {
    let dictionary: DictionaryArray<Int8Type> = vec![Some("a"), None, Some("b"), Some("a")].into_iter().collect();
    let values = request(&dictionary, &field("x", DataType::Utf8)).unwrap();
    let text = StringArray::from(vec![Some("a"), None, Some("b"), Some("a")]);
    assert_eq!(values.as_string::<i32>(), &text);
    let back = request(&text, &field("x", dictionary.data_type().clone())).unwrap();
    assert_eq!(back.to_data(), dictionary.to_data());
    let error = request(&dictionary, &field("y", DataType::Int32)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cast);
}

#[test]
fn nulls_among_the_values_of_a_dictionary_are_nulls() {
    let codes = Int8Array::from(vec![Some(0), Some(1), None, Some(0)]);
    let dictionary = DictionaryArray::new(codes, Arc::new(StringArray::from(vec![Some("a"), None])));
    let text = StringArray::from(vec![Some("a"), None, None, Some("a")]);
    let wide = DataType::Dictionary(Box::new(DataType::Int64), Box::new(DataType::LargeUtf8));
    assert_eq!(request(&dictionary, &field("x", DataType::Utf8)).unwrap().as_string::<i32>(), &text);
    assert_eq!(request(&dictionary.slice(1, 2), &field("x", DataType::Utf8)).unwrap().null_count(), 2);
    assert_eq!(request(&dictionary, &field("x", wide)).unwrap().logical_null_count(), 2);
    let item = field("item", dictionary.data_type().clone());
    let lists = FixedSizeListArray::new(item, 2, Arc::new(dictionary.clone()), None);
    let given = request(&lists, &field("x", list(DataType::Utf8, 2))).unwrap();
    assert_eq!(given.as_fixed_size_list().values().as_string::<i32>(), &text);
    // A loss is found behind them.
    let numbers = Float64Array::from(vec![Some(1.0), None, Some(0.1)]);
    let lossy = DictionaryArray::new(Int8Array::from(vec![1, 0, 2, 0]), Arc::new(numbers));
    let error = request(&lossy, &field("y", DataType::Float32)).unwrap_err();
    assert_eq!((error.kind(), error.row()), (ErrorKind::Cast, Some(2)), "{error}");
}

#[test]
fn a_request_moves_no_element_of_a_tensor() {
    const NAME: &str = "arrow.fixed_shape_tensor";
    let array = support::arrow::random_array(&list(DataType::Int8, 6), 2, 0, &mut support::Random(1));
    let plain = field("x", array.data_type().clone());
    let of = |metadata: &str| extension(&plain, NAME, metadata);
    let give = |own: &FieldRef, requested: &FieldRef| {
        let checked = check_request(own, requested);
        let given = request_field(&shared(&array, own), requested);
        assert_eq!(checked.is_ok(), given.is_ok(), "{own:?} as {requested:?}");
        given.map(|_| ())
    };
    let in_order = of(r#"{"shape":[2,3]}"#);
    let permuted = of(r#"{"shape":[2,3],"permutation":[1,0]}"#);
    for (own, requested) in [
        (&plain, &in_order),
        (&plain, &permuted),
        (&in_order, &plain),
        (&permuted, &of(r#"{"shape":[2,3],"permutation":[1,0],"dim_names":["a","b"]}"#)),
        (&of(r#"{"shape":[6,1]}"#), &of(r#"{"shape":[1,6],"permutation":[1,0]}"#)),
    ] {
        give(own, requested).unwrap();
    }
    for (own, requested) in [
        (&permuted, &of(r#"{"shape":[3,2]}"#)),
        (&permuted, &in_order),
        (&permuted, &plain),
        (&in_order, &permuted),
        (&in_order, &of(r#"{"shape":[3,2]}"#)),
        (&in_order, &extension(&plain, "another.extension", "")),
    ] {
        let error = give(own, requested).expect_err(&format!("{own:?} as {requested:?}"));
        assert_eq!((error.kind(), error.column()), (ErrorKind::Cast, Some("x")), "{error}");
        assert!(error.remedy().is_some(), "{error}");
    }
    // Also where the tensors are items, and where values are cast.
    let nested = |item: &FieldRef| field("y", DataType::FixedSizeList(item.clone(), 1));
    let outer = FixedSizeListArray::new(permuted.clone(), 1, array.clone(), None);
    assert!(request_field(&shared(&outer, &nested(&permuted)), &nested(&permuted)).is_ok());
    assert!(request_field(&shared(&outer, &nested(&permuted)), &nested(&in_order)).is_err());
    let wide = |metadata: &str| extension(&field("x", list(DataType::Int16, 6)), NAME, metadata);
    assert!(give(&permuted, &wide(r#"{"shape":[2,3],"permutation":[1,0]}"#)).is_ok());
    assert!(give(&permuted, &wide(r#"{"shape":[3,2]}"#)).is_err());
}

fn batch() -> RecordBatch {
    let a: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3]));
    let b: ArrayRef = Arc::new(Float64Array::from(vec![0.5, 1.5, 0.1]));
    RecordBatch::try_from_iter([("a", a), ("b", b)]).unwrap()
}

fn request_batch(batch: &RecordBatch, fields: Vec<FieldRef>) -> Result<DeviceArray> {
    let requested = required("", DataType::Struct(fields.into()));
    request_field(&DeviceArray::from_record_batch(batch).unwrap(), &requested)
}

#[test]
fn batches_are_cast_column_by_column() {
    let given = request_batch(&batch(), vec![field("a", DataType::Int64), field("b", DataType::Float64)]).unwrap();
    let arrow = given.to_arrow().unwrap();
    assert_eq!(arrow.as_struct().column(0).as_primitive::<Int64Type>().values(), &[1, 2, 3]);
    // A sliced batch, too.
    let given = request_batch(&batch().slice(1, 1), vec![field("a", DataType::Int8), field("b", DataType::Float32)]);
    assert_eq!(given.unwrap().to_arrow().unwrap().as_struct().column(0).as_primitive::<Int8Type>().values(), &[2]);
    let error = request_batch(&batch(), vec![field("a", DataType::Int32), field("b", DataType::Float32)]).unwrap_err();
    assert_eq!((error.kind(), error.row()), (ErrorKind::Cast, Some(2)), "{error}");
}

#[test]
fn columns_must_agree_in_number_name_and_order() {
    let (a, b) = (|| field("a", DataType::Int32), || field("b", DataType::Float64));
    for fields in [
        vec![],
        vec![a()],
        vec![b(), a()],
        vec![a(), field("c", DataType::Float64)],
        vec![a(), b(), field("c", DataType::Int8)],
        vec![field("A", DataType::Int64), b()],
    ] {
        let error = request_batch(&batch(), fields.clone()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cast);
        assert!(error.reason().contains("requested_schema has the fields"), "{error}");
    }
    assert!(request_batch(&batch(), vec![a(), b()]).is_ok());
}

#[test]
fn names_inside_lists_of_structs_must_agree_too() {
    let rows =
        StructArray::from(vec![(field("a", DataType::Int32), Arc::new(Int32Array::from(vec![1, 2])) as ArrayRef)]);
    let item = field("item", rows.data_type().clone());
    let lists = FixedSizeListArray::new(item, 2, Arc::new(rows), None);
    let requested = |name: &str| list(DataType::Struct([field(name, DataType::Int32)].into()), 2);
    assert!(request(&lists, &field("x", requested("a"))).is_ok());
    let error = request(&lists, &field("x", requested("b"))).unwrap_err();
    assert!(error.reason().contains("requested_schema has the fields"), "{error}");
}
