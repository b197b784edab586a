//! Are values that arrow-rs casts in a way of its own what a request means: items of lists of one, text of bools, values of codes?

#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod support;

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int32Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, Decimal32Array, Decimal128Array, DictionaryArray, FixedSizeListArray, Float64Array, Int8Array,
    Int32Array, Int64Array, ListArray, RunArray, StringArray, StructArray, TimestampSecondArray, make_array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_cast::display::array_value_to_string;
use arrow_dlpack::{ErrorKind, Result, check_request, request_field};
use arrow_schema::{DataType, Field, FieldRef, TimeUnit};
use support::arrow::{extension, field, list, shared};

/// The array as a field `x` of this type.
fn request(array: &dyn Array, own: &FieldRef, requested: DataType) -> Result<ArrayRef> {
    let given = request_field(&shared(array, own), &field("x", requested.clone()))?.to_arrow()?;
    assert_eq!(given.data_type(), &requested);
    Ok(given)
}

fn own(array: &dyn Array) -> FieldRef {
    field("x", array.data_type().clone())
}

/// The bools of an array as the text that each row has.
fn text(array: &ArrayRef) -> Vec<Option<&str>> {
    array.as_string::<i32>().iter().collect()
}

#[test]
fn a_null_becomes_a_null_list_of_one() {
    let numbers = Int64Array::from(vec![Some(7), None, Some(9)]);
    let codes =
        DictionaryArray::<Int8Type>::new(Int8Array::from(vec![Some(0), Some(1), None]), Arc::new(numbers.clone()));
    let sources: [(&dyn Array, &[bool]); 2] = [(&numbers, &[true, false, true]), (&codes, &[true, false, false])];
    for (source, valid) in sources {
        for item in [DataType::Int64, DataType::Int32, DataType::Utf8] {
            // Also of items that may not be null: a null row has none.
            for nullable in [true, false] {
                let item = Arc::new(Field::new("item", item.clone(), nullable));
                let lists = request(source, &own(source), DataType::FixedSizeList(item.clone(), 1)).unwrap();
                let found: Vec<_> = (0..3).map(|row| lists.is_valid(row)).collect();
                assert_eq!(found, valid, "{item:?}");
                assert_eq!(lists.as_fixed_size_list().value_length(), 1);
            }
            let lists = request(&source.slice(2, 1), &own(source), list(item, 1)).unwrap();
            assert_eq!(lists.is_valid(0), valid[2], "of a slice");
        }
    }
    let lists = request(&numbers, &own(&numbers), list(DataType::Int32, 1)).unwrap();
    assert_eq!(
        lists.as_fixed_size_list().values().as_primitive::<Int32Type>().iter().flatten().collect::<Vec<_>>(),
        [7, 9]
    );
}

#[test]
fn a_value_that_no_list_of_one_holds_is_an_error_of_its_row() {
    let numbers = Int64Array::from(vec![Some(7), None, Some(300)]);
    let error = request(&numbers, &own(&numbers), list(DataType::Int8, 1)).unwrap_err();
    assert_eq!((error.kind(), error.row(), error.column()), (ErrorKind::Cast, Some(2), Some("x")), "{error}");
}

#[test]
fn items_of_lists_become_no_lists_of_one() {
    let lists = |item: DataType| DataType::List(field("item", item));
    for (from, to) in [
        (lists(DataType::Int64), lists(list(DataType::Int64, 1))),
        (list(DataType::Int64, 2), list(list(DataType::Int64, 1), 2)),
        (lists(lists(DataType::Int64)), lists(lists(list(DataType::Int64, 1)))),
        (
            DataType::Struct([field("l", lists(DataType::Int64))].into()),
            DataType::Struct([field("l", lists(list(DataType::Int64, 1)))].into()),
        ),
        (
            lists(DataType::Struct([field("n", DataType::Int64)].into())),
            lists(DataType::Struct([field("n", list(DataType::Int64, 1))].into())),
        ),
    ] {
        let error = check_request(&field("x", from), &field("x", to)).unwrap_err();
        assert!(error.reason().ends_with("no cast exists"), "{error}");
    }
    // Lists stay lists, of whatever length.
    check_request(&field("x", list(DataType::Int64, 1)), &field("x", list(DataType::Int32, 1))).unwrap();
    check_request(&field("x", lists(DataType::Int64)), &field("x", list(DataType::Int64, 1))).unwrap();
}

#[test]
fn bools_that_are_bytes_are_text_as_those_that_are_bits() {
    let bytes = Int8Array::from(vec![Some(1), Some(0), None, Some(2)]);
    let bool8 = extension(&own(&bytes), "arrow.bool8", "");
    let texts = [Some("true"), Some("false"), None, Some("true")];
    assert_eq!(text(&request(&bytes, &bool8, DataType::Utf8).unwrap()), texts);
    assert_eq!(text(&request(&bytes.slice(0, 3), &bool8, DataType::Utf8).unwrap()), texts[..3]);
    let codes = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
    let codes = request(&bytes, &bool8, codes).unwrap();
    let codes = codes.as_dictionary::<Int8Type>().downcast_dict::<StringArray>().unwrap();
    assert_eq!(codes.into_iter().collect::<Vec<_>>(), texts);
    // Also as items of lists, of which no row may show some.
    let item = Arc::new(bool8.as_ref().clone().with_name("item"));
    let lengths = OffsetBuffer::from_lengths([1, 0, 2, 1]);
    let nulls = NullBuffer::from(vec![true, true, true, false]);
    let lists = ListArray::new(item.clone(), lengths, Arc::new(bytes.clone()), Some(nulls));
    let lists = lists.slice(1, 3);
    let made = request(&lists, &own(&lists), DataType::List(field("item", DataType::Utf8))).unwrap();
    let made = made.as_list::<i32>();
    assert_eq!((made.value(0).len(), text(&made.value(1)), made.is_valid(2)), (0, texts[1..3].to_vec(), false));
    let pairs = FixedSizeListArray::new(item, 2, Arc::new(bytes.clone()), None);
    let made = request(&pairs.slice(1, 1), &own(&pairs), list(DataType::Utf8, 2)).unwrap();
    assert_eq!(text(&made.as_fixed_size_list().value(0)), texts[2..]);
    // Numbers stay numbers, and bytes that are no bools, too.
    let numbers = request(&bytes, &bool8, DataType::Int64).unwrap();
    assert_eq!(numbers.as_primitive::<Int64Type>().iter().collect::<Vec<_>>(), [Some(1), Some(0), None, Some(2)]);
    assert_eq!(text(&request(&bytes, &own(&bytes), DataType::Utf8).unwrap()), [Some("1"), Some("0"), None, Some("2")]);
}

#[test]
fn bools_that_are_bytes_become_bits_whatever_their_bytes() {
    let bytes = Int8Array::from(vec![Some(0), Some(2), None, Some(3), Some(-128), Some(1)]);
    let bool8 = extension(&own(&bytes), "arrow.bool8", "");
    let bits = [Some(false), Some(true), None, Some(true), Some(true), Some(true)];
    let found = |made: &ArrayRef| made.as_boolean().iter().collect::<Vec<_>>();
    assert_eq!(found(&request(&bytes, &bool8, DataType::Boolean).unwrap()), bits);
    assert_eq!(found(&request(&bytes.slice(1, 3), &bool8, DataType::Boolean).unwrap()), bits[1..4]);
    // Also as items of lists, as columns of structs, and as values of runs.
    let item = Arc::new(bool8.as_ref().clone().with_name("item"));
    let lists = ListArray::new(item.clone(), OffsetBuffer::from_lengths([1, 0, 5]), Arc::new(bytes.clone()), None);
    let lists = lists.slice(1, 2);
    let made = request(&lists, &own(&lists), DataType::List(field("item", DataType::Boolean))).unwrap();
    assert_eq!(found(&made.as_list::<i32>().value(1)), bits[1..]);
    let pairs = FixedSizeListArray::new(item.clone(), 2, Arc::new(bytes.clone()), None);
    let made = request(&pairs.slice(1, 1), &own(&pairs), list(DataType::Boolean, 2)).unwrap();
    assert_eq!(found(&made.as_fixed_size_list().value(0)), bits[2..4]);
    let nulls = NullBuffer::from(vec![true, false, true, true, true, true]);
    let structs = StructArray::new([bool8].into(), vec![Arc::new(bytes.clone())], Some(nulls));
    let made = request(&structs, &own(&structs), DataType::Struct([field("x", DataType::Boolean)].into())).unwrap();
    assert_eq!(found(made.as_struct().column(0))[3..], bits[3..]);
    let runs = RunArray::<Int32Type>::try_new(&Int32Array::from(vec![2, 4, 5, 6, 7, 8]), &bytes).unwrap();
    let values = Arc::new(item.as_ref().clone().with_name("values"));
    let ends = Arc::new(Field::new("run_ends", DataType::Int32, false));
    let of_runs = field("x", DataType::RunEndEncoded(ends, values));
    let runs = make_array(runs.to_data().into_builder().data_type(of_runs.data_type().clone()).build().unwrap());
    let made = request(&runs.slice(1, 5), &of_runs, DataType::Boolean).unwrap();
    assert_eq!(found(&made), [bits[0], bits[1], bits[1], bits[2], bits[3]]);
    let made = request(&runs.slice(1, 2), &of_runs, DataType::Utf8).unwrap();
    assert_eq!(text(&made), [Some("false"), Some("true")]);
    // Numbers are no bools: a byte that is neither 0 nor 1 does not survive.
    let error = request(&bytes, &own(&bytes), DataType::Boolean).unwrap_err();
    assert_eq!((error.kind(), error.row()), (ErrorKind::Cast, Some(1)), "{error}");
}

#[test]
fn codes_of_times_become_what_they_stand_for() {
    let times = TimestampSecondArray::from(vec![Some(0), Some(86_400), None]);
    let codes = Int32Array::from(vec![Some(1), None, Some(0), Some(2)]);
    let array = DictionaryArray::<Int32Type>::new(codes, Arc::new(times));
    let found = request(&array, &own(&array), DataType::Utf8).unwrap();
    assert_eq!(text(&found), [Some("1970-01-02T00:00:00"), None, Some("1970-01-01T00:00:00"), None]);
    let found = request(&array, &own(&array), DataType::Timestamp(TimeUnit::Millisecond, None)).unwrap();
    let found = found.as_primitive::<arrow_array::types::TimestampMillisecondType>().iter().collect::<Vec<_>>();
    assert_eq!(found, [Some(86_400_000), None, Some(0), None]);
    // A value that does not survive is an error of its row.
    let odd =
        DictionaryArray::<Int32Type>::new(Int32Array::from(vec![0, 0, 1]), Arc::new(Int64Array::from(vec![1, 300])));
    let error = request(&odd, &own(&odd), DataType::Int8).unwrap_err();
    assert_eq!((error.kind(), error.row()), (ErrorKind::Cast, Some(2)), "{error}");
}

#[test]
fn columns_of_structs_are_made_in_the_same_ways() {
    let bytes = Int8Array::from(vec![Some(1), Some(9), Some(0), None]);
    let numbers = Int64Array::from(vec![Some(1), Some(1 << 40), None, Some(3)]);
    let bool8 = extension(&field("b", DataType::Int8), "arrow.bool8", "");
    let fields = [bool8, field("n", DataType::Int64)];
    let columns: Vec<ArrayRef> = vec![Arc::new(bytes), Arc::new(numbers)];
    // What is under a null struct is seen by nobody: it need not fit.
    let nulls = NullBuffer::from(vec![true, false, true, true]);
    let structs = StructArray::new(fields.into(), columns, Some(nulls));
    let wanted = [field("b", DataType::Utf8), field("n", list(DataType::Int32, 1))];
    let made = request(&structs, &own(&structs), DataType::Struct(wanted.into())).unwrap();
    let made = made.as_struct();
    assert_eq!((0..4).map(|row| made.is_valid(row)).collect::<Vec<_>>(), [true, false, true, true]);
    let texts: Vec<_> = made.column(0).as_string::<i32>().iter().collect();
    assert_eq!((texts[0], texts[2], texts[3]), (Some("true"), Some("false"), None));
    assert_eq!([0, 2, 3].map(|row| made.column(1).is_valid(row)), [true, false, true]);
    let slice = structs.slice(2, 2);
    let wanted = [field("b", DataType::Utf8), field("n", list(DataType::Int32, 1))];
    let made = request(&slice, &own(&structs), DataType::Struct(wanted.into())).unwrap();
    assert_eq!(made.as_struct().column(0).as_string::<i32>().iter().collect::<Vec<_>>(), [Some("false"), None]);
    // An error names the column.
    let wanted = [field("b", DataType::Utf8), field("n", list(DataType::Int8, 1))];
    let shown = StructArray::new(structs.fields().clone(), structs.columns().to_vec(), None);
    let error = request(&shown, &own(&shown), DataType::Struct(wanted.into())).unwrap_err();
    assert_eq!((error.kind(), error.row(), error.column()), (ErrorKind::Cast, Some(1), Some("n")), "{error}");
}

#[test]
fn values_of_runs_and_of_dictionaries_become_no_lists_of_one() {
    let numbers = Int32Array::from(vec![Some(1), None]);
    let runs = RunArray::<Int32Type>::try_new(&Int32Array::from(vec![1, 2]), &numbers).unwrap();
    let codes = DictionaryArray::<Int8Type>::new(Int8Array::from(vec![0, 1]), Arc::new(numbers.clone()));
    let lists = list(DataType::Int32, 1);
    let values = Arc::new(Field::new("values", lists.clone(), true));
    let as_runs = DataType::RunEndEncoded(Arc::new(Field::new("run_ends", DataType::Int32, false)), values);
    let as_codes = DataType::Dictionary(Box::new(DataType::Int32), Box::new(lists.clone()));
    for source in [&numbers as &dyn Array, &runs, &codes] {
        for to in [&as_runs, &as_codes] {
            let error = check_request(&own(source), &field("x", to.clone())).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Cast, "{} as {to}", source.data_type());
        }
        let made = request(source, &own(source), lists.clone()).unwrap();
        assert_eq!((made.is_valid(0), made.is_valid(1)), (true, false), "{}", source.data_type());
    }
}

/// Each as text.
fn shown(array: &ArrayRef) -> Vec<String> {
    (0..array.len()).map(|row| array_value_to_string(array, row).unwrap()).collect()
}

#[test]
fn floats_become_the_nearest_decimals_and_no_digits_of_their_own() {
    let floats = Float64Array::from(vec![Some(32.0), Some(3.0), None, Some(-0.5), Some(0.1), Some(1e22)]);
    let made = request(&floats, &own(&floats), DataType::Decimal256(76, 40)).unwrap();
    let zeros = |digits: &str| format!("{digits:0<width$}", width = digits.find('.').unwrap() + 41);
    let expected = ["32.", "3.", "", "-0.5", "0.1000000000000000055511151231257827021182", "10000000000000000000000."];
    for (found, expected) in shown(&made).iter().zip(expected) {
        assert_eq!(*found, if expected.is_empty() { String::new() } else { zeros(expected) });
    }
    assert!(made.is_null(2));
    let made = request(&floats.slice(3, 2), &own(&floats), DataType::Decimal32(3, 1)).unwrap();
    assert_eq!(shown(&made), ["-0.5", "0.1"]);
    for (value, to) in [
        (0.15, DataType::Decimal128(10, 1)),
        (f64::NAN, DataType::Decimal128(10, 1)),
        (f64::INFINITY, DataType::Decimal256(76, 0)),
        (1e300, DataType::Decimal256(76, 0)),
        (1000.0, DataType::Decimal32(3, 0)),
        (1499.9, DataType::Decimal32(3, -3)),
        (-0.0, DataType::Decimal32(3, 1)),
    ] {
        let floats = Float64Array::from(vec![1000.0, value]);
        let wide = Float64Array::from(vec![value]);
        let error = request(&wide, &own(&wide), to.clone()).unwrap_err();
        assert_eq!((error.kind(), error.row()), (ErrorKind::Cast, Some(0)), "{value} as {to}");
        if to == DataType::Decimal128(10, 1) {
            assert_eq!(request(&floats, &own(&floats), to).unwrap_err().row(), Some(1));
        }
    }
}

#[test]
fn decimals_become_floats_that_lead_back_to_them() {
    let decimals = Decimal128Array::from(vec![Some(110), None, Some(-5)]).with_precision_and_scale(10, 2).unwrap();
    for to in [DataType::Float16, DataType::Float32, DataType::Float64] {
        let made = request(&decimals, &own(&decimals), to.clone()).unwrap();
        if to != DataType::Float16 {
            assert_eq!(shown(&made), ["1.1", "", "-0.05"], "{to}");
        }
        let back = request(&made, &own(&made), DataType::Decimal128(10, 2)).unwrap();
        assert_eq!(back.as_ref(), &decimals as &dyn Array, "{to}");
    }
    // More digits than a double tells apart.
    let long = 123_456_789_012_345_678_901_234_567_i128;
    let long = Decimal128Array::from(vec![1, long]).with_precision_and_scale(38, 9).unwrap();
    assert_eq!(request(&long, &own(&long), DataType::Float64).unwrap_err().row(), Some(1));
    let short = Decimal32Array::from(vec![17]).with_data_type(DataType::Decimal32(7, -3));
    assert_eq!(shown(&request(&short, &own(&short), DataType::Float32).unwrap()), ["17000.0"]);
}

#[test]
fn items_codes_and_runs_become_the_nearest_values_too() {
    let floats = Float64Array::from(vec![3.0, f64::NAN, 0.25, 7.0]);
    let to = DataType::Decimal128(38, 30);
    let three = format!("3.{}", "0".repeat(30));
    let codes = DictionaryArray::<Int8Type>::new(Int8Array::from(vec![0, 2]), Arc::new(floats.slice(0, 3)));
    let runs = RunArray::<Int32Type>::try_new(&Int32Array::from(vec![2]), &floats.slice(0, 1)).unwrap();
    for source in [&runs as &dyn Array, &codes.slice(0, 1)] {
        assert_eq!(shown(&request(source, &own(source), to.clone()).unwrap())[0], three);
    }
    // A null row has an item that is no number.
    let item = Arc::new(Field::new("item", DataType::Float64, true));
    let nulls = NullBuffer::from(vec![true, false, true]);
    let lists = ListArray::new(item, OffsetBuffer::new(vec![0, 1, 2, 4].into()), Arc::new(floats), Some(nulls));
    let wanted = DataType::List(Arc::new(Field::new("item", to, true)));
    let made = request(&lists, &own(&lists), wanted.clone()).unwrap();
    assert_eq!(shown(&made.as_list::<i32>().value(0)), [three]);
    assert_eq!((made.is_valid(1), made.as_list::<i32>().value(2).len()), (false, 2));
    let item = Arc::new(Field::new("item", DataType::Float64, true));
    let items = Arc::new(Float64Array::from(vec![1.0, 2.0, f64::NAN]));
    let lists = ListArray::new(item, OffsetBuffer::new(vec![0, 1, 3].into()), items, None);
    assert_eq!(request(&lists, &own(&lists), wanted).unwrap_err().row(), Some(1));
    let structs = StructArray::from(vec![(
        Arc::new(Field::new("f", DataType::Float64, true)),
        Arc::new(Float64Array::from(vec![3.0])) as ArrayRef,
    )]);
    let wanted = DataType::Struct(vec![Field::new("f", DataType::Decimal128(38, 30), true)].into());
    let made = request(&structs, &own(&structs), wanted).unwrap();
    assert_eq!(shown(made.as_struct().column(0)), [format!("3.{}", "0".repeat(30))]);
}
