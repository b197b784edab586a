//! Are requests compared with types, and nulls found, below maps, runs, unions and dictionaries too?

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails is a test that fails")]

mod support;

use std::sync::Arc;

use arrow_array::builder::{Int64Builder, MapBuilder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int32Type};
use arrow_array::{
    Array, ArrayRef, Date64Array, DictionaryArray, FixedSizeListArray, Int8Array, Int32Array, Int64Array, ListArray,
    RecordBatch, RunArray, StructArray, UnionArray,
};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_dlpack::{DeviceArray, ErrorKind, Result, check_request, request_field};
use arrow_schema::{DataType, Field, FieldRef, TimeUnit, UnionFields, UnionMode};
use support::arrow::{extension, field, list, shared};

fn required(name: &str, data_type: DataType) -> FieldRef {
    Arc::new(Field::new(name, data_type, false))
}

/// The array `x` under a requested field.
fn request(array: &dyn Array, requested: &FieldRef) -> Result<ArrayRef> {
    let own = field("x", array.data_type().clone());
    let given = request_field(&shared(array, &own), requested)?.to_arrow()?;
    assert_eq!(given.data_type(), requested.data_type());
    Ok(given)
}

#[test]
fn names_below_any_type_must_agree() {
    let pair = |names: [&str; 2]| DataType::Struct(names.map(|name| field(name, DataType::Int64)).into());
    let entries = |value| [required("key", DataType::Utf8), field("value", value)];
    let union = |names: [&str; 2]| {
        let fields = names.map(|name| Field::new(name, DataType::Int64, true));
        DataType::Union(UnionFields::try_new([0, 1], fields).unwrap(), UnionMode::Sparse)
    };
    let nest: [fn(DataType) -> DataType; 3] = [
        |inner| DataType::RunEndEncoded(required("run_ends", DataType::Int32), field("values", inner)),
        |inner| DataType::Dictionary(Box::new(DataType::Int8), Box::new(inner)),
        |inner| DataType::FixedSizeList(field("item", inner), 1),
    ];
    let map = |value| DataType::Map(required("entries", DataType::Struct(entries(value).into())), false);
    for (own, other) in [
        (pair(["x", "y"]), pair(["y", "x"])),
        (map(pair(["x", "y"])), map(pair(["y", "x"]))),
        (union(["x", "y"]), union(["y", "x"])),
    ] {
        for nest in nest {
            // Also where one of the types has no runs, codes or lists, which a cast adds or takes away.
            for (own, other) in [(nest(own.clone()), other.clone()), (own.clone(), nest(other.clone()))] {
                let error = check_request(&field("x", own), &field("x", other)).unwrap_err();
                assert!(error.reason().contains("requested_schema has the fields"), "{error}");
            }
            let (own, other) = (nest(own.clone()), nest(other.clone()));
            let error = check_request(&field("x", own), &field("x", other)).unwrap_err();
            assert!(error.reason().contains("requested_schema has the fields"), "{error}");
        }
    }
}

#[test]
fn extension_types_are_compared_below_any_type() {
    let item = |metadata: &str| extension(&field("x", list(DataType::Int8, 6)), "arrow.fixed_shape_tensor", metadata);
    let (own, other) = (item(r#"{"shape":[2,3]}"#), item(r#"{"shape":[2,3],"permutation":[1,0]}"#));
    let runs = |values: &FieldRef| DataType::RunEndEncoded(required("run_ends", DataType::Int32), values.clone());
    let map = |value: &FieldRef| {
        let entries = DataType::Struct([required("key", DataType::Utf8), value.clone()].into());
        DataType::Map(required("entries", entries), false)
    };
    let union =
        |value: &FieldRef| DataType::Union(UnionFields::try_new([0], [value.clone()]).unwrap(), UnionMode::Dense);
    let codes = |value: &FieldRef| {
        DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Struct([value.clone()].into())))
    };
    let types: [&dyn Fn(&FieldRef) -> DataType; 4] = [&runs, &map, &union, &codes];
    for nest in types {
        check_request(&field("y", nest(&own)), &field("y", nest(&own))).unwrap();
        let error = check_request(&field("y", nest(&own)), &field("y", nest(&other))).unwrap_err();
        assert!(error.reason().contains("another shape or permutation"), "{error}");
    }
    for (own, other) in [(field("y", runs(&own)), other.clone()), (own.clone(), field("y", runs(&other)))] {
        assert!(check_request(&own, &other).is_err(), "a cast of runs");
    }
}

#[test]
fn nulls_of_runs_are_nulls_of_their_rows() {
    let values = Int64Array::from(vec![Some(1), None, Some(3)]);
    let runs = RunArray::<Int32Type>::try_new(&Int32Array::from(vec![2, 3, 5]), &values).unwrap();
    let strict = |data_type| {
        field("y", DataType::RunEndEncoded(required("run_ends", DataType::Int32), required("values", data_type)))
    };
    for data_type in [DataType::Int64, DataType::Int32] {
        let error = request(&runs, &strict(data_type.clone())).unwrap_err();
        assert_eq!((error.kind(), error.column(), error.row()), (ErrorKind::Null, Some("values"), Some(2)), "{error}");
        // The null is outside of a slice. Casts of arrow-rs make all values nullable.
        if data_type == DataType::Int64 {
            assert_eq!(request(&runs.slice(3, 2), &strict(data_type)).unwrap().len(), 2);
        }
    }
    let error = request(&runs.slice(1, 3), &strict(DataType::Int64)).unwrap_err();
    assert_eq!(error.row(), Some(1), "{error}");
}

#[test]
fn nulls_of_maps_are_found_in_their_values() {
    let mut maps = MapBuilder::new(None, StringBuilder::new(), Int64Builder::new());
    for value in [Some(1), None] {
        maps.keys().append_value("k");
        maps.values().append_option(value);
        maps.append(true).unwrap();
    }
    let maps = maps.finish();
    let requested = |value: FieldRef| {
        let entries = DataType::Struct([required("key", DataType::Utf8), value].into());
        field("y", DataType::Map(required("entries", entries), false))
    };
    for data_type in [DataType::Int64, DataType::Int32] {
        let error = request(&maps, &requested(required("value", data_type.clone()))).unwrap_err();
        assert_eq!((error.kind(), error.column()), (ErrorKind::Null, Some("value")), "{error}");
        assert_eq!(request(&maps, &requested(field("value", data_type))).unwrap().len(), 2);
    }
}

#[test]
fn a_request_moves_no_element_of_a_tensor_of_variable_shape() {
    let types = DataType::Struct(
        [
            field("data", DataType::List(field("item", DataType::Int64))),
            field("shape", DataType::FixedSizeList(required("item", DataType::Int32), 2)),
        ]
        .into(),
    );
    let plain = field("x", types);
    let of = |metadata: &str| extension(&plain, "arrow.variable_shape_tensor", metadata);
    let (bare, turned) = (of(""), of(r#"{"permutation":[1,0]}"#));
    let uniform = of(r#"{"uniform_shape":[2,null]}"#);
    for (own, requested) in [
        (&plain, &bare),
        (&plain, &turned),
        (&bare, &plain),
        (&bare, &of(r#"{"permutation":[0,1],"uniform_shape":[null,null],"dim_names":["a","b"]}"#)),
        (&turned, &of(r#"{"permutation":[1,0],"dim_names":["a","b"]}"#)),
        (&uniform, &of(r#"{"uniform_shape":[2,null],"dim_names":["a","b"]}"#)),
        // To give up extents is to promise less.
        (&uniform, &bare),
        (&uniform, &plain),
        (&of(r#"{"uniform_shape":[2,3]}"#), &uniform),
    ] {
        check_request(own, requested).unwrap();
    }
    for (own, requested) in [
        (&bare, &turned),
        (&turned, &bare),
        (&turned, &plain),
        (&bare, &uniform),
        (&plain, &uniform),
        (&uniform, &of(r#"{"uniform_shape":[3,null]}"#)),
        (&uniform, &of(r#"{"uniform_shape":[2,3]}"#)),
    ] {
        let error = check_request(own, requested).expect_err(&format!("{own:?} as {requested:?}"));
        assert_eq!((error.kind(), error.column()), (ErrorKind::Cast, Some("x")), "{error}");
        assert!(error.remedy().is_some(), "{error}");
    }
}

#[test]
fn counts_that_are_no_whole_days_are_found_among_the_values_of_codes_and_runs() {
    for (odd, is_given) in [(86_400_000, true), (1, false)] {
        let values: ArrayRef = Arc::new(Int64Array::from(vec![0, odd]));
        let codes = DictionaryArray::<Int8Type>::new(Int8Array::from(vec![0, 1]), values.clone());
        let runs = RunArray::<Int32Type>::try_new(&Int32Array::from(vec![1, 2]), &values).unwrap();
        let ends = required("run_ends", DataType::Int32);
        let requests: [(&dyn Array, DataType); 2] = [
            (&codes, DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Date64))),
            (&runs, DataType::RunEndEncoded(ends, field("values", DataType::Date64))),
        ];
        for (array, data_type) in requests {
            let given = request(array, &field("y", data_type.clone()));
            assert_eq!(given.err().map(|error| error.kind()), (!is_given).then_some(ErrorKind::Cast), "{data_type}");
        }
    }
}

#[test]
fn counts_that_nobody_asked_about_or_sees_may_be_anything() {
    let (dates, counts): (ArrayRef, ArrayRef) =
        (Arc::new(Date64Array::from(vec![1])), Arc::new(Int64Array::from(vec![1])));
    let rows = |nulls: Option<Vec<bool>>| {
        let fields = vec![field("d", DataType::Date64), field("n", DataType::Int64)];
        StructArray::new(fields.into(), vec![dates.clone(), counts.clone()], nulls.map(Into::into))
    };
    let requested =
        |data_type| field("y", DataType::Struct([field("d", DataType::Date64), field("n", data_type)].into()));
    // A date that was no whole day before, and one in a row that is null.
    for data_type in [DataType::Timestamp(TimeUnit::Second, None), DataType::Int32] {
        assert_eq!(request(&rows(None), &requested(data_type)).unwrap().len(), 1);
    }
    assert_eq!(request(&rows(Some(vec![false])), &requested(DataType::Date64)).unwrap().null_count(), 1);
    let error = request(&rows(None), &requested(DataType::Date64)).unwrap_err();
    assert_eq!((error.kind(), error.column()), (ErrorKind::Cast, Some("n")), "{error}");
}

#[test]
fn nulls_of_unions_are_found_at_the_rows_that_show_them() {
    let fields = |b: FieldRef| UnionFields::try_new([0, 1], [field("a", DataType::Int64), b]).unwrap();
    // Sparse slots are rows; the slots of rows 2 and 3 in a dense union are 0 and 2. Other nulls are shown by no row.
    for (offsets, b, row) in [
        (None, vec![None, None, Some(5), None], Some(3)),
        (None, vec![None, None, Some(5), Some(6)], None),
        (Some(vec![0, 1, 0, 2]), vec![Some(5), None, None], Some(3)),
        (Some(vec![0, 1, 0, 2]), vec![Some(5), None, Some(6)], None),
    ] {
        let mode = if offsets.is_some() { UnionMode::Dense } else { UnionMode::Sparse };
        let children: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(vec![None; 4])), Arc::new(Int64Array::from(b))];
        let ids = vec![0_i8, 0, 1, 1].into();
        let offsets = offsets.map(ScalarBuffer::<i32>::from);
        let union = UnionArray::try_new(fields(field("b", DataType::Int64)), ids, offsets, children).unwrap();
        let given = request(&union, &field("y", DataType::Union(fields(required("b", DataType::Int64)), mode)));
        let found = given.err().map(|error| (error.kind(), error.row(), error.column().map(str::to_owned)));
        assert_eq!(found, row.map(|row| (ErrorKind::Null, Some(row), Some("b".to_owned()))), "{mode:?}");
    }
}

#[test]
fn runs_that_a_null_row_hides_stay_values_where_items_are_not_nullable() {
    let codes = DictionaryArray::new(Int32Array::from(vec![0, 1]), Arc::new(Int32Array::from(vec![10, 1000])));
    let runs = RunArray::<Int32Type>::try_new(&Int32Array::from(vec![1, 2]), &codes).unwrap();
    let offsets = OffsetBuffer::new(vec![0, 1, 2].into());
    let nulls = Some(NullBuffer::from(vec![true, false]));
    let list = ListArray::new(required("item", runs.data_type().clone()), offsets, Arc::new(runs), nulls);
    let narrow = request(&list, &field("x", DataType::List(required("item", DataType::Int8)))).unwrap();
    let narrow = narrow.as_list::<i32>();
    assert_eq!(narrow.value(0).as_primitive::<Int8Type>().values(), &[10]);
    assert!(narrow.is_null(1));
}

/// A null row that spans two null items, behind one of two numbers.
fn hidden() -> ListArray {
    let items = Int8Array::from(vec![Some(1), Some(2), None, None]);
    let nulls = NullBuffer::from(vec![true, false]);
    ListArray::new(
        Arc::new(Field::new("item", DataType::Int8, true)),
        OffsetBuffer::new(vec![0, 2, 4].into()),
        Arc::new(items),
        Some(nulls),
    )
}

#[test]
fn nulls_that_no_row_shows_are_none_in_the_result() {
    let lists = hidden();
    let own = Arc::new(Field::new("item", DataType::Int8, true));
    let fixed = FixedSizeListArray::new(own, 2, lists.values().clone(), lists.nulls().cloned());
    let item = |data_type| Arc::new(Field::new("item", data_type, false));
    for source in [&lists as &dyn Array, &fixed, &lists.slice(0, 1)] {
        for item in [item(DataType::Int8), item(DataType::Int16)] {
            for to in
                [DataType::List(item.clone()), DataType::LargeList(item.clone()), DataType::ListView(item.clone())]
            {
                let read = request(source, &field("x", to.clone()));
                let read = read.unwrap_or_else(|error| panic!("{} as {to}: {error}", source.data_type()));
                assert_eq!((read.len(), read.is_valid(0)), (source.len(), true), "{to}");
                assert_eq!(read.is_valid(read.len() - 1), source.is_valid(source.len() - 1), "{to}");
            }
        }
    }
}

#[test]
fn the_error_of_an_item_names_its_column_and_its_row() {
    let items = Int64Array::from(vec![Some(1), Some(2), None, Some(-1)]);
    let offsets = OffsetBuffer::new(vec![0, 2, 2, 4].into());
    let lists: ArrayRef =
        Arc::new(ListArray::new(Arc::new(Field::new("item", DataType::Int64, true)), offsets, Arc::new(items), None));
    let batch = RecordBatch::try_from_iter([("a", lists.slice(0, 1)), ("b", lists.slice(2, 1))]).unwrap();
    let batch = DeviceArray::from_record_batch(&batch).unwrap();
    let of_items = |data_type, nullable| {
        let item = Arc::new(Field::new("item", data_type, nullable));
        let fields = ["a", "b"].map(|name| Field::new(name, DataType::List(item.clone()), true));
        Arc::new(Field::new("", DataType::Struct(fields.to_vec().into()), false))
    };
    let error = request_field(&batch, &of_items(DataType::Int64, false)).unwrap_err();
    assert_eq!((error.kind(), error.column(), error.row()), (ErrorKind::Null, Some("item"), Some(0)));
    assert!(error.reason().ends_with("inside of column \"b\""), "{error}");
    let error = request_field(&batch, &of_items(DataType::Time64(TimeUnit::Nanosecond), true)).unwrap_err();
    assert_eq!((error.kind(), error.column(), error.row()), (ErrorKind::Cast, Some("item"), Some(0)));
    assert!(error.reason().contains("\"b\""), "{error}");
    // Of one array, by its own name, at the row that shows the item.
    let wanted = DataType::List(required("item", DataType::Int64));
    let error = request(&lists, &field("x", wanted.clone())).unwrap_err();
    assert_eq!((error.row(), error.reason().ends_with("inside of column \"x\"")), (Some(2), true), "{error}");
    let error = request(&lists.slice(1, 2), &field("x", wanted)).unwrap_err();
    assert_eq!(error.row(), Some(1), "{error}");
}
