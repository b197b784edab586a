//! Does a checked cast give the value, correctly rounded in a float, or an error with its row?

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper that fails is a test that fails"
)]

mod support;

use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BooleanArray, Date32Array, Date64Array, DurationMillisecondArray, DurationSecondArray,
    Float16Array, Float32Array, Float64Array, Int64Array, Time32MillisecondArray, Time32SecondArray,
    Time64MicrosecondArray, Time64NanosecondArray, TimestampMicrosecondArray, TimestampMillisecondArray,
    TimestampNanosecondArray, make_array,
};
use arrow_buffer::{NullBuffer, ScalarBuffer};
use arrow_dlpack::dtype::Kind;
use arrow_dlpack::{Chunks, Conversion, CopyMode, DType, ErrorKind, NullPolicy, PerColumn, Scalar};
use arrow_schema::{DataType, TimeUnit};
use half::f16;
use support::arrow::{field, list, shared};
use support::cast::Value::{self, Float, Int};
use support::cast::{bytes_of_integer, is_nan, range, reference};
use support::column::DTYPES;

fn targets() -> Vec<DType> {
    DTYPES.into_iter().chain([DType::BFloat16]).collect()
}

/// Values of a dtype at which casts change their mind: the ends of every range, halves, ties, and what is no number.
fn values(dtype: DType) -> Vec<Value> {
    let mut integers: Vec<i128> = vec![-1, 0, 1, 2, 3, 2047, 2049, 65_503, 65_504, 65_519, 65_520];
    for other in DTYPES.into_iter().filter(|dtype| dtype.kind() != Kind::Float) {
        let (low, high) = range(other);
        integers.extend([low - 1, low, low + 1, high - 1, high, high + 1]);
    }
    for exponent in [8, 11, 24, 53, 62] {
        // Ties of each float's precision, and their neighbours.
        let power = 1_i128 << exponent;
        integers.extend([
            power - 1,
            power + 1,
            power + (power >> 8),
            power + (power >> 8) + 1,
            power + (power >> 11) + 1,
        ]);
    }
    let mut all: Vec<Value> = match dtype.kind() {
        Kind::Float => {
            #[expect(clippy::cast_precision_loss, reason = "any float near the integer will do")]
            let mut floats: Vec<f64> = integers.iter().map(|value| *value as f64).collect();
            floats.extend([
                0.5, -0.5, 1.5, 254.5, -0.0, 0.1, -1e-9, 1e-320, 5e-324, 6e-8, 2.98e-8, 2.981e-8, 1e-40, 1e-45,
            ]);
            floats.extend([
                1.0 + 2_f64.powi(-11),
                1.0 + 2_f64.powi(-11) + 2_f64.powi(-40),
                1.0 + 2_f64.powi(-8) + 2_f64.powi(-45),
            ]);
            floats.extend([65_519.999_999_9, 65_520.000_000_1, 3.394e38, 3.395_5e38, 3.402_823_669e38, 1e39, f64::MAX]);
            floats.extend([f64::from(f32::MAX), f64::MIN_POSITIVE, f64::from(f32::MIN_POSITIVE), f64::NAN]);
            floats.extend([f64::INFINITY, f64::NEG_INFINITY]);
            floats.iter().map(|value| Float(rounded_to(dtype, *value))).collect()
        }
        _ => {
            let (low, high) = range(dtype);
            integers.into_iter().filter(|value| (low..=high).contains(value)).map(Int).collect()
        }
    };
    all.dedup();
    all
}

#[expect(clippy::cast_possible_truncation, reason = "the values of a narrow source")]
fn rounded_to(dtype: DType, value: f64) -> f64 {
    match dtype {
        DType::Float16 => f16::from_f64(value).to_f64(),
        DType::Float32 => f64::from(value as f32),
        _ => value,
    }
}

/// The array of these values, some of them null.
fn array(dtype: DType, values: &[Value], nulls: Option<NullBuffer>) -> ArrayRef {
    let integer = |value: &Value| if let Int(value) = value { *value } else { 0 };
    let float = |value: &Value| if let Float(value) = value { *value } else { f64::NAN };
    if dtype == DType::Bool {
        return Arc::new(BooleanArray::new(values.iter().map(|value| integer(value) == 1).collect(), nulls));
    }
    if dtype.kind() == Kind::Float {
        let floats = values.iter().map(float);
        #[expect(clippy::cast_possible_truncation, reason = "the values were rounded to the dtype")]
        return match dtype {
            DType::Float16 => Arc::new(Float16Array::new(floats.map(f16::from_f64).collect(), nulls)),
            DType::Float32 => Arc::new(Float32Array::new(floats.map(|value| value as f32).collect(), nulls)),
            _ => Arc::new(Float64Array::new(floats.collect(), nulls)),
        };
    }
    let bytes: Vec<u8> = values.iter().flat_map(|value| bytes_of_integer(dtype, integer(value))).collect();
    // Through words, so that the buffer is aligned.
    let words: ScalarBuffer<u64> =
        bytes.chunks(8).map(|chunk| chunk.iter().rev().fold(0, |word, byte| (word << 8) | u64::from(*byte))).collect();
    let Some(data_type) = dtype.to_arrow() else { unreachable!("integers are Arrow types") };
    let data = arrow_data::ArrayData::builder(data_type).len(values.len()).nulls(nulls).add_buffer(words.into_inner());
    make_array(data.build().unwrap_or_else(|error| panic!("{error}")))
}

#[test]
fn every_cast_of_every_boundary_value_is_exact_or_rounded_or_refused_with_its_row() {
    // Miri takes other values for each pair of dtypes.
    let shares = if cfg!(miri) { 40 } else { 1 };
    for (number, from) in DTYPES.into_iter().enumerate() {
        for (share, to) in (number..).zip(targets()) {
            for value in values(from).into_iter().skip(share % shares).step_by(shares) {
                // Row 3 of five; the other rows hold zero, which fits everywhere.
                let zero = if from.kind() == Kind::Float { Float(0.0) } else { Int(0) };
                let column = array(from, &[zero, zero, zero, value, zero], None);
                let column = shared(&column, &field("x", column.data_type().clone()));
                let cast = Conversion::default().dtype(to).to_tensor(&column);
                match (cast, reference(value, to)) {
                    (Ok(tensor), Some(expected)) => {
                        assert_eq!(tensor.dtype(), to);
                        let found = &support::reference::read(&tensor)[3];
                        let same = *found == expected || (is_nan(to, found) && is_nan(to, &expected));
                        assert!(same, "{value:?} from {from} to {to}: {found:02x?}, not {expected:02x?}");
                    }
                    (Err(error), None) => {
                        assert_eq!((error.kind(), error.column(), error.row()), (ErrorKind::Cast, Some("x"), Some(3)));
                        assert!(error.reason().ends_with(&format!("does not fit {to}")), "{error}");
                        if let Int(value) = value {
                            assert!(
                                from == DType::Bool || error.reason().contains(&format!("value {value} ")),
                                "{error}"
                            );
                        }
                    }
                    (cast, expected) => panic!("{value:?} from {from} to {to}: {cast:?}, not {expected:02x?}"),
                }
            }
        }
    }
}

#[test]
fn junk_in_null_slots_fails_no_cast() {
    // Miri takes every fifth target, and others for the next dtype.
    let step = if cfg!(miri) { 5 } else { 1 };
    for (number, from) in DTYPES.into_iter().enumerate() {
        for to in targets().into_iter().skip(number % step).step_by(step) {
            let Some(junk) = values(from).into_iter().find(|value| reference(*value, to).is_none()) else { continue };
            let zero = if from.kind() == Kind::Float { Float(0.0) } else { Int(0) };
            let nulls = NullBuffer::from(vec![true, false, true, false]);
            let column = array(from, &[zero, junk, zero, junk], Some(nulls));
            for policy in [NullPolicy::Fill(Scalar::Int(1)), NullPolicy::Keep] {
                let tensor = Conversion::default().dtype(to).nulls(policy).to_tensor(&column).unwrap();
                let fill = if policy == NullPolicy::Keep { Int(0) } else { Int(1) };
                let expected: Vec<_> = [Int(0), fill, Int(0), fill].map(|value| reference(value, to).unwrap()).into();
                assert_eq!(support::reference::read(&tensor), expected, "{from} to {to} under {policy:?}");
            }
            // The same junk in a slot that is valid is found behind one that is not.
            let nulls = NullBuffer::from(vec![true, false, true, true]);
            let column = array(from, &[zero, junk, zero, junk], Some(nulls));
            let error = Conversion::default().dtype(to).nulls(NullPolicy::Keep).to_tensor(&column).unwrap_err();
            assert_eq!((error.kind(), error.row()), (ErrorKind::Cast, Some(3)));
        }
    }
}

#[test]
fn the_row_of_a_misfit_counts_over_lists_slices_and_long_columns() {
    // A multiple of three and two more.
    const LAST: usize = if cfg!(miri) { 602 } else { 10_001 };
    let mut values = vec![Int(0); LAST];
    values.push(Int(300));
    let long = array(DType::Int16, &values, None);
    let options = Conversion::default().dtype(DType::UInt8);
    assert_eq!(options.to_tensor(&long).unwrap_err().row(), Some(LAST));
    assert_eq!(options.to_tensor(&long.slice(2, LAST - 1)).unwrap_err().row(), Some(LAST - 2));
    assert!(options.to_tensor(&long.slice(0, LAST)).is_ok());

    let lists = arrow_data::ArrayData::builder(list(long.data_type().clone(), 3))
        .len(LAST / 3 + 1)
        .add_child_data(long.to_data());
    let lists = make_array(lists.build().unwrap());
    let error = options.to_tensor(&lists).unwrap_err();
    assert_eq!((error.kind(), error.row()), (ErrorKind::Cast, Some(LAST / 3)));
}

#[test]
fn the_row_of_a_misfit_counts_over_chunks() {
    let own = field("x", DType::Int16.to_arrow().unwrap());
    let chunk = |values: &[Value]| shared(&array(DType::Int16, values, None), &own);
    let chunks = [chunk(&[Int(1), Int(2)]), chunk(&[]), chunk(&[Int(3), Int(-1), Int(4)])];
    let error = Conversion::default().dtype(DType::UInt8).to_tensor(Chunks::new(&own, &chunks)).unwrap_err();
    assert_eq!((error.kind(), error.row()), (ErrorKind::Cast, Some(3)));
}

#[test]
fn a_null_comes_before_a_value_of_its_row_that_misfits() {
    let nulls = NullBuffer::from(vec![true, true, true, true, false, true]);
    for (misfit, expected) in [(1, (ErrorKind::Cast, Some(0))), (3, (ErrorKind::Null, Some(1)))] {
        let mut values = vec![Int(0); 6];
        values[misfit] = Int(300);
        let items = array(DType::Int16, &values, Some(nulls.clone()));
        let lists =
            arrow_data::ArrayData::builder(list(items.data_type().clone(), 3)).len(2).add_child_data(items.to_data());
        let lists = make_array(lists.build().unwrap());
        let error = Conversion::default().dtype(DType::UInt8).to_tensor(&lists).unwrap_err();
        assert_eq!((error.kind(), error.row()), expected);
    }
}

#[test]
fn bools_become_numbers_over_block_and_byte_boundaries() {
    // Runs of rows are shorter under Miri, too.
    const LENGTH: usize = if cfg!(miri) { 300 } else { 8_500 };
    let bools: Vec<bool> = (0..LENGTH + 500).map(|index| index % 3 == 0 || index % 7 == 2).collect();
    let column = BooleanArray::from(bools.clone());
    for offset in [0, 1, 7, 13] {
        let tensor = Conversion::default().dtype(DType::Float32).to_tensor(&column.slice(offset, LENGTH)).unwrap();
        let expected: Vec<f32> = bools[offset..offset + LENGTH].iter().map(|bit| f32::from(u8::from(*bit))).collect();
        assert_eq!(tensor.as_slice::<f32>().unwrap(), expected);
    }
}

#[test]
fn a_cast_column_no_longer_is_what_its_field_says() {
    let column = array(DType::Int16, &[Int(1)], None);
    assert!(Conversion::default().dtype(DType::Int16).to_tensor(&column).unwrap().field().is_some());
    assert!(Conversion::default().dtype(DType::Int32).to_tensor(&column).unwrap().field().is_none());
}

#[test]
fn dtypes_without_casts_are_refused_by_type() {
    let column = array(DType::Float32, &[Float(1.0)], None);
    for to in [DType::Complex64, DType::Complex128, DType::Float8E4M3, DType::Float8E5M2] {
        let error = Conversion::default().dtype(to).to_tensor(&column).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{to}");
    }
}

/// The values of a temporal column as int64, in a unit.
fn in_unit(array: ArrayRef, unit: TimeUnit) -> arrow_dlpack::Result<Vec<i64>> {
    let tensor = Conversion::default().unit(unit).dtype(DType::Int64).to_tensor(&array)?;
    Ok(tensor.as_slice::<i64>()?.to_vec())
}

#[test]
fn times_are_numbers_of_the_unit_that_is_asked_for() {
    use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
    let day = 86_400;
    let cases: [(ArrayRef, TimeUnit, [i64; 2]); 14] = [
        (Arc::new(Time32MillisecondArray::from(vec![2_000, 5_000])), Second, [2, 5]),
        (Arc::new(Time32SecondArray::from(vec![2, 5])), Millisecond, [2_000, 5_000]),
        (Arc::new(Time64NanosecondArray::from(vec![2_000, 5_000])), Microsecond, [2, 5]),
        (Arc::new(Time64MicrosecondArray::from(vec![2, 5])), Nanosecond, [2_000, 5_000]),
        (Arc::new(DurationSecondArray::from(vec![2, -5])), Nanosecond, [2_000_000_000, -5_000_000_000]),
        (Arc::new(DurationMillisecondArray::from(vec![2, -5])), Microsecond, [2_000, -5_000]),
        (Arc::new(TimestampMicrosecondArray::from(vec![2_000, -5_000])), Millisecond, [2, -5]),
        (Arc::new(TimestampNanosecondArray::from(vec![2_000_000, -5_000_000])), Millisecond, [2, -5]),
        (Arc::new(TimestampMillisecondArray::from(vec![2, -5])), Nanosecond, [2_000_000, -5_000_000]),
        (Arc::new(Date64Array::from(vec![86_400_000, -172_800_000])), Second, [day, -2 * day]),
        (Arc::new(Date64Array::from(vec![2, -5])), Microsecond, [2_000, -5_000]),
        (Arc::new(Date32Array::from(vec![1, -2])), Second, [day, -2 * day]),
        (Arc::new(Date32Array::from(vec![1, -2])), Millisecond, [day * 1_000, -2_000 * day]),
        (Arc::new(Time32SecondArray::from(vec![2, 5])), Second, [2, 5]),
    ];
    for (array, unit, expected) in cases {
        let data_type = array.data_type().clone();
        assert_eq!(in_unit(array, unit).unwrap(), expected, "{data_type} in {unit:?}");
    }
    let own: ArrayRef = Arc::new(DurationSecondArray::from(vec![2, -5]));
    let view = Conversion::default().unit(Second).copy(CopyMode::Never).to_tensor(&own).unwrap();
    assert_eq!((view.dtype(), view.as_slice::<i64>().unwrap()), (DType::Int64, &[2, -5][..]));
    for (value, unit) in [(i64::MAX, Nanosecond), (i64::MIN, Millisecond)] {
        let error = in_unit(Arc::new(DurationSecondArray::from(vec![value])), unit).unwrap_err();
        assert_eq!((error.kind(), error.row()), (ErrorKind::Cast, Some(0)));
    }
}

#[test]
fn a_unit_by_name_is_refused_for_a_column_that_is_not_temporal() {
    let field = |data_type| field("x", data_type);
    let second = Conversion::default().unit(PerColumn::named([("x", Some(TimeUnit::Second))]));
    let ints: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let error = second.to_tensor(&shared(&ints, &field(DataType::Int64))).unwrap_err();
    assert_eq!((error.kind(), error.column()), (ErrorKind::Argument, Some("x")), "{error}");
    assert!(error.reason().contains("a unit is for temporal columns"), "{error}");
    // A unit for all columns is one for those that are.
    assert_eq!(in_unit(ints, TimeUnit::Second).unwrap(), [1]);
    let times: ArrayRef = Arc::new(Time32MillisecondArray::from(vec![3_000]));
    let seconds = second.dtype(DType::Int64).to_tensor(&shared(&times, &field(times.data_type().clone()))).unwrap();
    assert_eq!(seconds.as_slice::<i64>().unwrap(), [3]);
}
