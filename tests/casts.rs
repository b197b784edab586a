//! Does a checked cast give the value, correctly rounded in a float, or an error with its row?
//!
//! The reference is exact: integers as `i128`, floats as `f64`, and 16-bit floats found among all of them.

mod support;

use std::cmp::Ordering;
use std::sync::{Arc, OnceLock};

use arrow_array::{Array, ArrayRef, BooleanArray, Float16Array, Float32Array, Float64Array, make_array};
use arrow_buffer::{NullBuffer, ScalarBuffer};
use arrow_dlpack::dtype::Kind;
use arrow_dlpack::{DType, ErrorKind, NullPolicy, Options, Scalar, array_to_tensor, to_tensor};
use half::{bf16, f16};
use support::arrow::{field, list, shared};

/// A number of any dtype, exactly.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Value {
    Int(i128),
    Float(f64),
}
use Value::{Float, Int};

/// The dtypes that Arrow columns of plain numbers and bools have.
const SOURCES: [DType; 12] = [
    DType::Bool,
    DType::Int8,
    DType::Int16,
    DType::Int32,
    DType::Int64,
    DType::UInt8,
    DType::UInt16,
    DType::UInt32,
    DType::UInt64,
    DType::Float16,
    DType::Float32,
    DType::Float64,
];

fn targets() -> Vec<DType> {
    SOURCES.into_iter().chain([DType::BFloat16]).collect()
}

fn range(dtype: DType) -> (i128, i128) {
    let bits = u32::try_from(dtype.itemsize() * 8).unwrap_or(0);
    match dtype.kind() {
        Kind::Bool => (0, 1),
        Kind::UInt => (0, (1 << bits) - 1),
        _ => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
    }
}

/// Values of a dtype at which casts change their mind: the ends of every range, halves, ties, and what is no number.
fn values(dtype: DType) -> Vec<Value> {
    let mut integers: Vec<i128> = vec![-1, 0, 1, 2, 3, 2047, 2049, 65_503, 65_504, 65_519, 65_520];
    for other in SOURCES.into_iter().filter(|dtype| dtype.kind() != Kind::Float) {
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

fn bytes_of_integer(dtype: DType, value: i128) -> Vec<u8> {
    value.to_le_bytes().into_iter().take(dtype.itemsize()).collect()
}

/// What the cast should give; `None` where the value does not fit.
fn reference(value: Value, to: DType) -> Option<Vec<u8>> {
    if to.kind() == Kind::Float {
        return float_reference(value, to);
    }
    let integer = match value {
        Int(value) => value,
        #[expect(clippy::cast_possible_truncation, reason = "whole, and far inside the range of i128")]
        Float(value) if value.abs() < 1e30 && value.fract() == 0.0 => value as i128,
        Float(_) => return None,
    };
    let (low, high) = range(to);
    (low..=high).contains(&integer).then(|| bytes_of_integer(to, integer))
}

fn float_reference(value: Value, to: DType) -> Option<Vec<u8>> {
    // `as` rounds to the nearest value, ties to even, from i128 and f64 alike.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "rounding is what is asked for")]
    let (double, single) = match value {
        Int(value) => (value as f64, value as f32),
        Float(value) => (value, value as f32),
    };
    let infinite = matches!(value, Float(value) if !value.is_finite());
    match to {
        DType::Float64 => Some(double.to_ne_bytes().to_vec()),
        DType::Float32 => (single.is_finite() || infinite).then(|| single.to_ne_bytes().to_vec()),
        _ => {
            let half = if to == DType::Float16 { halves() } else { brains() };
            half.nearest(value).map(|bits| bits.to_ne_bytes().to_vec())
        }
    }
}

/// Every finite value, zero or above, of a 16-bit float; its index is its bit pattern.
struct Halves {
    values: Vec<f64>,
    infinity: u16,
    nan: u16,
}

fn halves() -> &'static Halves {
    static HALVES: OnceLock<Halves> = OnceLock::new();
    HALVES.get_or_init(|| {
        let infinity = f16::INFINITY.to_bits();
        let values = (0..infinity).map(|bits| f16::from_bits(bits).to_f64()).collect();
        Halves { values, infinity, nan: f16::NAN.to_bits() }
    })
}

fn brains() -> &'static Halves {
    static BRAINS: OnceLock<Halves> = OnceLock::new();
    BRAINS.get_or_init(|| {
        let infinity = bf16::INFINITY.to_bits();
        let values = (0..infinity).map(|bits| bf16::from_bits(bits).to_f64()).collect();
        Halves { values, infinity, nan: bf16::NAN.to_bits() }
    })
}

impl Halves {
    /// The bits of the nearest value, ties to even; `None` where a finite value rounds to infinity.
    fn nearest(&self, value: Value) -> Option<u16> {
        let (negative, magnitude) = match value {
            Float(value) if value.is_nan() => return Some(self.nan),
            Float(value) => (value.is_sign_negative(), Float(value.abs())),
            Int(value) => (value < 0, Int(value.abs())),
        };
        let sign = u16::from(negative) << 15;
        if magnitude == Float(f64::INFINITY) {
            return Some(self.infinity | sign);
        }
        let below = self.values.partition_point(|candidate| compare(magnitude, *candidate) != Ordering::Less) - 1;
        let low = self.values.get(below).copied()?;
        // The neighbour above the largest value is where the next one would be.
        let high = self
            .values
            .get(below + 1)
            .copied()
            .unwrap_or_else(|| 2.0 * low - self.values.get(below - 1).copied().unwrap_or(0.0));
        let middle = f64::midpoint(low, high);
        let up = match compare(magnitude, middle) {
            Ordering::Less => false,
            Ordering::Equal => below % 2 == 1,
            Ordering::Greater => true,
        };
        let bits = u16::try_from(below).ok()? + u16::from(up);
        (bits < self.infinity).then_some(bits | sign)
    }
}

/// Compares exactly; `float` is not negative.
fn compare(value: Value, float: f64) -> Ordering {
    match value {
        Float(value) => value.total_cmp(&float),
        // Integers here are below 2^66: so is every float near them, and it is whole from 2^53 on.
        #[expect(clippy::cast_possible_truncation, reason = "exact below 2^127, and saturating above")]
        Int(value) => value.cmp(&(float.floor() as i128)).then(0.0_f64.total_cmp(&float.fract())),
    }
}

fn is_nan(to: DType, bytes: &[u8]) -> bool {
    match (to, bytes) {
        (DType::Float16, [a, b]) => f16::from_ne_bytes([*a, *b]).is_nan(),
        (DType::BFloat16, [a, b]) => bf16::from_ne_bytes([*a, *b]).is_nan(),
        (DType::Float32, [a, b, c, d]) => f32::from_ne_bytes([*a, *b, *c, *d]).is_nan(),
        (DType::Float64, bytes) => bytes.try_into().is_ok_and(|bytes| f64::from_ne_bytes(bytes).is_nan()),
        _ => false,
    }
}

#[test]
fn every_cast_of_every_boundary_value_is_exact_or_rounded_or_refused_with_its_row() {
    for from in SOURCES {
        for to in targets() {
            for value in values(from) {
                // Row 3 of five; the other rows hold zero, which fits everywhere.
                let zero = if from.kind() == Kind::Float { Float(0.0) } else { Int(0) };
                let column = array(from, &[zero, zero, zero, value, zero], None);
                let column = shared(&column, &field("x", column.data_type().clone()));
                let cast = to_tensor(&column, &Options::default().dtype(to));
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
    for from in SOURCES {
        for to in targets() {
            let Some(junk) = values(from).into_iter().find(|value| reference(*value, to).is_none()) else { continue };
            let zero = if from.kind() == Kind::Float { Float(0.0) } else { Int(0) };
            let nulls = NullBuffer::from(vec![true, false, true, false]);
            let column = array(from, &[zero, junk, zero, junk], Some(nulls));
            for policy in [NullPolicy::Fill(Scalar::Int(1)), NullPolicy::Keep] {
                let tensor = array_to_tensor(&column, &Options::default().dtype(to).nulls(policy)).unwrap();
                let fill = if policy == NullPolicy::Keep { Int(0) } else { Int(1) };
                let expected: Vec<_> = [Int(0), fill, Int(0), fill].map(|value| reference(value, to).unwrap()).into();
                assert_eq!(support::reference::read(&tensor), expected, "{from} to {to} under {policy:?}");
            }
            // The same junk in a slot that is valid is found behind one that is not.
            let nulls = NullBuffer::from(vec![true, false, true, true]);
            let column = array(from, &[zero, junk, zero, junk], Some(nulls));
            let error = array_to_tensor(&column, &Options::default().dtype(to).nulls(NullPolicy::Keep)).unwrap_err();
            assert_eq!((error.kind(), error.row()), (ErrorKind::Cast, Some(3)));
        }
    }
}

#[test]
fn the_row_of_a_misfit_counts_over_lists_slices_and_long_columns() {
    let mut values = vec![Int(0); 10_001];
    values.push(Int(300));
    let long = array(DType::Int16, &values, None);
    let options = Options::default().dtype(DType::UInt8);
    assert_eq!(array_to_tensor(&long, &options).unwrap_err().row(), Some(10_001));
    assert_eq!(array_to_tensor(&long.slice(2, 10_000), &options).unwrap_err().row(), Some(9_999));
    assert!(array_to_tensor(&long.slice(0, 10_001), &options).is_ok());

    let lists =
        arrow_data::ArrayData::builder(list(long.data_type().clone(), 3)).len(3334).add_child_data(long.to_data());
    let lists = make_array(lists.build().unwrap());
    let error = array_to_tensor(&lists, &options).unwrap_err();
    assert_eq!((error.kind(), error.row()), (ErrorKind::Cast, Some(3333)));
}

#[test]
fn bools_become_numbers_over_block_and_byte_boundaries() {
    let bools: Vec<bool> = (0..9_000).map(|index| index % 3 == 0 || index % 7 == 2).collect();
    let column = BooleanArray::from(bools.clone());
    for offset in [0, 1, 7, 13] {
        let tensor = array_to_tensor(&column.slice(offset, 8_500), &Options::default().dtype(DType::Float32)).unwrap();
        let expected: Vec<f32> = bools[offset..offset + 8_500].iter().map(|bit| f32::from(u8::from(*bit))).collect();
        assert_eq!(tensor.as_slice::<f32>().unwrap(), expected);
    }
}

#[test]
fn a_cast_column_no_longer_is_what_its_field_says() {
    let column = array(DType::Int16, &[Int(1)], None);
    assert!(array_to_tensor(&column, &Options::default().dtype(DType::Int16)).unwrap().field().is_some());
    assert!(array_to_tensor(&column, &Options::default().dtype(DType::Int32)).unwrap().field().is_none());
}

#[test]
fn dtypes_without_casts_are_refused_by_type() {
    let column = array(DType::Float32, &[Float(1.0)], None);
    for to in [DType::Complex64, DType::Complex128, DType::Float8E4M3, DType::Float8E5M2] {
        let error = array_to_tensor(&column, &Options::default().dtype(to)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{to}");
    }
}
