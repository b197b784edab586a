//! Does what the other tests show for chosen cases hold for any? Random tensors, columns and requests against a reference
//! that goes scalar by scalar.

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
use arrow_array::{Array, ArrayRef, Int64Array};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_dlpack::{
    Conversion, CopyLog, CopyMode, DType, ErrorKind, NullPolicy, Scalar, Tensor, request_field, to_arrow,
};
use arrow_schema::{DataType, Field, FieldRef, TimeUnit};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use support::Random;
use support::arrow::{field, list, random_array, shared};
use support::cast::{Value, reference};
use support::column::{DTYPES, TYPES, assert_column};
use support::dlpack::tensor_of;
use support::reference::{elements, read};

/// A layout of a tensor, with the dtype of its elements.
fn layouts() -> impl Strategy<Value = (DType, Vec<(i64, i64)>, usize)> {
    (select(&DTYPES[..]), vec((0..5_i64, -7..8_i64), 0..5), 0..4_usize)
}

/// Dense layouts with their dimensions in any order in memory.
fn dense_layouts() -> impl Strategy<Value = (DType, Vec<(i64, i64)>, usize)> {
    let dimensions = vec(1..5_i64, 1..5).prop_flat_map(|shape| {
        let order: Vec<usize> = (1..shape.len()).collect();
        (Just(shape), Just(order).prop_shuffle())
    });
    (select(&DTYPES[..]), dimensions, 0..4_usize).prop_map(|(dtype, (shape, order), first)| {
        let mut axes: Vec<(i64, i64)> = shape.iter().map(|extent| (*extent, 1)).collect();
        let mut stride = 1;
        for axis in order.into_iter().chain([0]) {
            axes[axis].1 = stride;
            stride *= axes[axis].0;
        }
        (dtype, axes, first)
    })
}

/// To Arrow and back under a copy mode, against the elements; false if no copy was allowed and one was needed.
fn assert_tensor_round_trip(tensor: &Tensor, expected: &[Vec<u8>], copy: CopyMode) -> bool {
    let log = CopyLog::new();
    let array = match log.track(|| to_arrow(tensor, None, copy)) {
        Ok(array) => array,
        Err(error) => {
            assert_eq!((error.kind(), copy), (ErrorKind::Copy, CopyMode::Never), "{error}");
            assert!(error.reason().contains("a copy") && error.remedy().is_some(), "{error}");
            return false;
        }
    };
    let back = Conversion::default().copy(CopyMode::Never).to_tensor(&array).unwrap();
    assert_eq!(back.dtype(), tensor.dtype());
    assert_eq!(back.shape(), if tensor.ndim() == 0 { &[1] } else { tensor.shape() });
    assert_eq!(read(&back), expected);
    let moved = back.as_ptr() != tensor.as_ptr();
    assert!(copy != CopyMode::Always || moved || tensor.is_empty());
    assert_eq!(log.bytes(), if moved { tensor.nbytes() } else { 0 });
    !moved
}

proptest! {
    #[test]
    fn any_layout_is_gathered_element_by_element((dtype, axes, first) in layouts(), seed: u64) {
        let (tensor, expected) = tensor_of(dtype, &axes, first, seed);
        prop_assert_eq!(read(&tensor), expected.clone());
        let free = assert_tensor_round_trip(&tensor, &expected, CopyMode::IfNeeded);
        prop_assert_eq!(assert_tensor_round_trip(&tensor, &expected, CopyMode::Never), free);
        assert_tensor_round_trip(&tensor, &expected, CopyMode::Always);
    }

    #[test]
    fn dense_rows_in_any_order_are_views((dtype, axes, first) in dense_layouts(), seed: u64) {
        let (tensor, expected) = tensor_of(dtype, &axes, first, seed);
        prop_assert!(assert_tensor_round_trip(&tensor, &expected, CopyMode::Never));
        assert_tensor_round_trip(&tensor, &expected, CopyMode::Always);
    }
}

/// A type that has a tensor form, up to three lists deep.
fn types() -> impl Strategy<Value = DataType> {
    let mut scalars = TYPES.to_vec();
    // Bits twice: they are the ones that are never views.
    scalars.insert(12, DataType::Boolean);
    let sizes = prop_oneof![3 => Just(vec![]), 2 => vec(0..4_i32, 1..4)];
    (select(scalars), sizes).prop_map(|(scalar, sizes)| sizes.into_iter().fold(scalar, list))
}

fn options() -> impl Strategy<Value = Conversion> {
    let dtype = prop_oneof![2 => Just(None), 1 => select(&DTYPES[..]).prop_map(Some), 1 => Just(Some(DType::BFloat16))];
    let nulls = select(vec![
        NullPolicy::Error,
        NullPolicy::Nan,
        NullPolicy::Fill(Scalar::Int(1)),
        NullPolicy::Fill(Scalar::Bool(false)),
        NullPolicy::Keep,
    ]);
    let copy = select(vec![CopyMode::IfNeeded, CopyMode::IfNeeded, CopyMode::Never, CopyMode::Always]);
    (dtype, nulls, copy, any::<bool>()).prop_map(|(dtype, nulls, copy, writable)| {
        let options = Conversion::default().nulls(nulls).copy(copy).writable(writable && copy != CopyMode::Never);
        dtype.map_or(options.clone(), |dtype| options.dtype(dtype))
    })
}

/// One to four chunks, each a slice at an offset of its own; in some of them one slot in so many is null.
fn chunks() -> impl Strategy<Value = Vec<(usize, usize, usize)>> {
    vec((0..20_usize, 0..20_usize, select(vec![0_usize, 0, 0, 3, 40])), 1..5)
}

proptest! {
    #[test]
    fn any_column_of_any_chunks_is_converted_element_by_element(
        data_type in types(), chunks in chunks(), options in options(), seed: u64,
    ) {
        assert_column(&data_type, &chunks, &options, seed);
    }

    #[test]
    fn any_single_chunk_is_converted_element_by_element(
        data_type in types(), offset in 0..70_usize, length in 0..150_usize, nulls in 0..6_usize, options in options(), seed: u64,
    ) {
        assert_column(&data_type, &[(offset, length, nulls)], &options, seed);
    }

    #[test]
    fn a_column_keeps_its_field_on_the_way_back(data_type in types(), length in 0..30_usize, offset in 0..9_usize, seed: u64) {
        let own = field("x", data_type.clone());
        let array = random_array(&data_type, length + offset, 0, &mut Random(seed)).slice(offset, length);
        for copy in [CopyMode::IfNeeded, CopyMode::Always] {
            let tensor = Conversion::default().copy(copy).to_tensor(&shared(&array, &own)).unwrap();
            let back = to_arrow(&tensor, None, copy).unwrap();
            prop_assert_eq!(back.field(), &own);
            prop_assert_eq!(back.to_arrow().unwrap().to_data(), array.to_data());
        }
    }
}

/// Numbers of random magnitude, so that many of them fit a narrow type.
fn numbers() -> impl Strategy<Value = Vec<Option<i64>>> {
    let number = (0..64_u32, any::<i64>()).prop_map(|(shift, value)| value >> shift);
    let small = select(vec![0_i64, 1, -1, 127, 128, 255, 256, 65_504, 1 << 24, (1 << 24) + 1, 1 << 53, (1 << 53) + 1]);
    let fitting = prop_oneof![2 => -100..100_i64, 1 => small.boxed(), 1 => number.boxed()];
    vec(prop_oneof![1 => Just(None), 9 => fitting.prop_map(Some)], 0..12)
}

fn plain_types() -> impl Strategy<Value = DataType> {
    let numeric = DTYPES.into_iter().filter_map(DType::to_arrow);
    let others = [
        DataType::Boolean,
        DataType::Date64,
        DataType::Timestamp(TimeUnit::Second, None),
        DataType::Timestamp(TimeUnit::Millisecond, None),
        DataType::Utf8,
        DataType::Dictionary(Box::new(DataType::Int16), Box::new(DataType::Int64)),
    ];
    select(numeric.chain(others).collect::<Vec<_>>())
}

/// The numbers in a type, those that it cannot hold null; of Date64, whose values are whole days, as days.
fn column_of(numbers: Vec<Option<i64>>, data_type: &DataType) -> Option<ArrayRef> {
    const MILLISECONDS_OF_A_DAY: i64 = 86_400_000;
    let unit = if *data_type == DataType::Date64 { MILLISECONDS_OF_A_DAY } else { 1 };
    let values = numbers.into_iter().map(|number| number?.checked_mul(unit));
    let safe = CastOptions { safe: true, ..CastOptions::default() };
    cast_with_options(&values.collect::<Int64Array>(), data_type, &safe).ok()
}

/// Whether every value is exactly one of the numeric type, by the reference; `None` where a type is not numeric.
fn is_exact(array: &dyn Array, to: &DataType) -> Option<bool> {
    let from =
        DType::of_arrow(array.data_type()).filter(|dtype| dtype.to_arrow().as_ref() == Some(array.data_type()))?;
    let to = DType::of_arrow(to).filter(|dtype| dtype.to_arrow().as_ref() == Some(to))?;
    let exact = |bytes: &Vec<u8>| {
        let value = Value::of(from, bytes);
        let cast = reference(value, to).map(|cast| Value::of(to, &cast));
        match (value, cast) {
            (Value::Float(value), Some(Value::Int(cast))) => value != 0.0 || (cast == 0 && value.is_sign_positive()),
            (value, Some(cast)) => reference(cast, from).is_some_and(|back| Value::of(from, &back) == value),
            (_, None) => false,
        }
    };
    Some(elements(&Field::new("x", array.data_type().clone(), true), array).iter().flatten().all(exact))
}

proptest! {
    #[test]
    fn a_request_is_exact_or_an_error(numbers in numbers(), from in plain_types(), to in plain_types(), required: bool) {
        let Some(array) = column_of(numbers, &from) else { return Ok(()) };
        let own = field("x", from.clone());
        let requested: FieldRef = Arc::new(Field::new("x", to.clone(), !required));
        let exact = is_exact(&array, &to);
        let has_nulls = array.logical_null_count() > 0;
        match request_field(&shared(&array, &own), &requested) {
            Ok(given) => {
                prop_assert!(!(required && has_nulls));
                prop_assert_ne!(exact, Some(false));
                prop_assert_eq!(given.field(), &requested);
                let arrow = given.to_arrow().unwrap();
                prop_assert_eq!(arrow.logical_null_count(), array.logical_null_count());
                let back = request_field(&given, &own).unwrap().to_arrow().unwrap();
                prop_assert_eq!(back.to_data(), array.to_data());
            }
            Err(error) if error.kind() == ErrorKind::Null => prop_assert!(required && has_nulls),
            Err(error) => {
                prop_assert_eq!(error.kind(), ErrorKind::Cast);
                prop_assert!(exact != Some(true), "every value survives, and yet: {error}");
            }
        }
    }

    #[test]
    fn a_requested_batch_is_its_requested_columns(numbers in numbers(), to in plain_types()) {
        let array: ArrayRef = Arc::new(Int64Array::from(numbers));
        let rows = arrow_array::StructArray::from(vec![(field("a", DataType::Int64), array.clone()), (field("b", DataType::Int64), array.clone())]);
        let own = field("", rows.data_type().clone());
        let requested = field("", DataType::Struct([field("a", DataType::Int64), field("b", to.clone())].into()));
        let alone = request_field(&shared(&array, &field("b", DataType::Int64)), &field("b", to));
        match (request_field(&shared(&rows, &own), &requested), alone) {
            (Ok(rows), Ok(alone)) => {
                let rows = rows.to_arrow().unwrap();
                prop_assert_eq!(rows.as_struct().column(0).to_data(), array.to_data());
                prop_assert_eq!(rows.as_struct().column(1).to_data(), alone.to_arrow().unwrap().to_data());
            }
            (Err(rows), Err(alone)) => prop_assert_eq!((rows.kind(), rows.row()), (alone.kind(), alone.row())),
            (rows, alone) => prop_assert!(false, "{rows:?}, and alone {alone:?}"),
        }
    }
}
