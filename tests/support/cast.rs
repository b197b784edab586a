//! The definition of a checked cast. It is exact: integers as `i128`, floats as `f64`, and 16-bit floats found among all of
//! them.

use std::cmp::Ordering;
use std::sync::OnceLock;

use arrow_dlpack::DType;
use arrow_dlpack::dtype::Kind;
use half::{bf16, f16};

use Value::{Float, Int};

/// A number of any dtype, exactly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value {
    Int(i128),
    Float(f64),
}

impl Value {
    /// The number that an element's bytes are.
    pub(crate) fn of(dtype: DType, bytes: &[u8]) -> Self {
        let mut wide = [0; 16];
        wide[..bytes.len()].copy_from_slice(bytes);
        let unsigned = u128::from_le_bytes(wide);
        match dtype {
            DType::Float16 => Float(f16::from_bits(unsigned as u16).to_f64()),
            DType::BFloat16 => Float(bf16::from_bits(unsigned as u16).to_f64()),
            DType::Float32 => Float(f64::from(f32::from_bits(unsigned as u32))),
            DType::Float64 => Float(f64::from_bits(unsigned as u64)),
            _ if dtype.kind() == Kind::Int => {
                let unused = 128 - 8 * bytes.len();
                Int((unsigned as i128) << unused >> unused)
            }
            _ => Int(unsigned as i128),
        }
    }
}

/// The lowest and the highest integer of a dtype.
pub(crate) fn range(dtype: DType) -> (i128, i128) {
    let bits = u32::try_from(dtype.itemsize() * 8).unwrap_or(0);
    match dtype.kind() {
        Kind::Bool => (0, 1),
        Kind::UInt => (0, (1 << bits) - 1),
        _ => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
    }
}

pub(crate) fn bytes_of_integer(dtype: DType, value: i128) -> Vec<u8> {
    value.to_le_bytes().into_iter().take(dtype.itemsize()).collect()
}

/// What the cast should give; `None` where the value does not fit.
pub(crate) fn reference(value: Value, to: DType) -> Option<Vec<u8>> {
    reference_bytes(value, to).map(|bytes| bytes[..to.itemsize()].to_vec())
}

/// As [`reference`], in the first bytes.
pub(crate) fn reference_bytes(value: Value, to: DType) -> Option<[u8; 16]> {
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
    (low..=high).contains(&integer).then(|| integer.to_le_bytes())
}

fn float_reference(value: Value, to: DType) -> Option<[u8; 16]> {
    // `as` rounds to the nearest value, ties to even, from i128 and f64 alike.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "rounding is what is asked for")]
    let (double, single) = match value {
        Int(value) => (value as f64, value as f32),
        Float(value) => (value, value as f32),
    };
    let infinite = matches!(value, Float(value) if !value.is_finite());
    let bits = match to {
        DType::Float64 => Some(double.to_bits()),
        DType::Float32 => (single.is_finite() || infinite).then(|| u64::from(single.to_bits())),
        _ => {
            let half = if to == DType::Float16 { halves() } else { brains() };
            half.nearest(value).map(u64::from)
        }
    };
    bits.map(|bits| u128::from(bits).to_le_bytes())
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

/// Whether an element is a NaN, of which there are many.
pub(crate) fn is_nan(to: DType, bytes: &[u8]) -> bool {
    match (to, bytes) {
        (DType::Float16, [a, b]) => f16::from_ne_bytes([*a, *b]).is_nan(),
        (DType::BFloat16, [a, b]) => bf16::from_ne_bytes([*a, *b]).is_nan(),
        (DType::Float32, [a, b, c, d]) => f32::from_ne_bytes([*a, *b, *c, *d]).is_nan(),
        (DType::Float64, bytes) => bytes.try_into().is_ok_and(|bytes| f64::from_ne_bytes(bytes).is_nan()),
        _ => false,
    }
}
