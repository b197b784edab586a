//! Null policies, and the bit patterns that they write.

use half::{bf16, f16};

use super::float8;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};

/// A value to fill nulls with, before the dtype is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// True or false; 1 or 0 in a number.
    Bool(bool),
    /// An integer.
    Int(i128),
    /// A float.
    Float(f64),
}

/// What happens to the slots of nulls.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum NullPolicy {
    /// A null is an error that names its row.
    #[default]
    Error,
    /// Nulls become NaN; the result must be a float.
    Nan,
    /// Nulls become this value, which the result's dtype must represent exactly.
    Fill(Scalar),
    /// The slots hold whatever lies there in a view, zero in a copy. Ask [`crate::validity`], or
    /// [`crate::matrix_validity`], which ones are null.
    Keep,
}

/// The bytes of one element of a dtype, in native order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    bytes: [u8; 16],
    len: u8,
}

impl Pattern {
    /// The bytes, as many as the dtype's itemsize.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or(&self.bytes)
    }

    fn new<const N: usize>(value: [u8; N]) -> Option<Self> {
        let mut bytes = [0; 16];
        bytes.get_mut(..N)?.copy_from_slice(&value);
        Some(Self { bytes, len: u8::try_from(N).ok()? })
    }

    /// The dtype's quiet NaN.
    ///
    /// # Errors
    /// When the dtype has none.
    pub fn nan(dtype: DType) -> Result<Self> {
        Self::encode(Scalar::Float(f64::NAN), dtype).ok_or_else(|| {
            Error::new(ErrorKind::Null, format!("nulls as NaN need a float result, and this one is {dtype}"))
                .remedy_is("pass dtype=\"float64\", or a value to fill nulls with")
        })
    }

    /// The value in this dtype.
    ///
    /// # Errors
    /// When the dtype cannot represent it exactly.
    pub fn of(value: Scalar, dtype: DType) -> Result<Self> {
        Self::encode(value, dtype).ok_or_else(|| {
            let value = match value {
                Scalar::Bool(value) => value.to_string(),
                Scalar::Int(value) => value.to_string(),
                Scalar::Float(value) => value.to_string(),
            };
            Error::new(ErrorKind::Null, format!("the fill value {value} cannot be represented exactly in {dtype}"))
                .remedy_is("pass a fill value that the dtype holds exactly, or another dtype")
        })
    }

    fn encode(value: Scalar, dtype: DType) -> Option<Self> {
        let integer = match value {
            Scalar::Bool(value) => Some(i128::from(value)),
            Scalar::Int(value) => Some(value),
            Scalar::Float(value) => exact_integer(value),
        };
        match dtype {
            DType::Bool => match integer? {
                0 => Self::new([0]),
                1 => Self::new([1]),
                _ => None,
            },
            DType::Int8 => Self::new(i8::try_from(integer?).ok()?.to_ne_bytes()),
            DType::Int16 => Self::new(i16::try_from(integer?).ok()?.to_ne_bytes()),
            DType::Int32 => Self::new(i32::try_from(integer?).ok()?.to_ne_bytes()),
            DType::Int64 => Self::new(i64::try_from(integer?).ok()?.to_ne_bytes()),
            DType::UInt8 => Self::new(u8::try_from(integer?).ok()?.to_ne_bytes()),
            DType::UInt16 => Self::new(u16::try_from(integer?).ok()?.to_ne_bytes()),
            DType::UInt32 => Self::new(u32::try_from(integer?).ok()?.to_ne_bytes()),
            DType::UInt64 => Self::new(u64::try_from(integer?).ok()?.to_ne_bytes()),
            _ => match dtype.component() {
                // A real number: its imaginary part is zero.
                Some(component) => {
                    let mut complex = Self::float(value, component)?;
                    complex.len = u8::try_from(dtype.itemsize()).ok()?;
                    Some(complex)
                }
                None => Self::float(value, dtype),
            },
        }
    }

    fn float(value: Scalar, dtype: DType) -> Option<Self> {
        let double = match value {
            Scalar::Bool(value) => f64::from(u8::from(value)),
            Scalar::Int(value) => exact_double(value)?,
            Scalar::Float(value) => value,
        };
        let same = |narrow: f64| narrow == double || double.is_nan();
        match dtype {
            DType::Float64 => Self::new(double.to_ne_bytes()),
            DType::Float32 => {
                let narrow = narrow(double);
                same(f64::from(narrow)).then(|| Self::new(narrow.to_ne_bytes()))?
            }
            DType::Float16 => {
                let narrow = f16::from_f64(double);
                same(narrow.to_f64()).then(|| Self::new(narrow.to_ne_bytes()))?
            }
            DType::BFloat16 => {
                let narrow = bf16::from_f64(double);
                same(narrow.to_f64()).then(|| Self::new(narrow.to_ne_bytes()))?
            }
            _ => Self::new([float8::encode(dtype, double)?]),
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the caller compares the result with its source")]
fn narrow(value: f64) -> f32 {
    value as f32
}

/// The integer that a float is, if it is one that an `i128` holds.
#[expect(clippy::cast_possible_truncation, reason = "the range is checked, and saturation cannot occur in it")]
fn exact_integer(value: f64) -> Option<i128> {
    const LIMIT: f64 = 170_141_183_460_469_231_731_687_303_715_884_105_728.0; // 2^127
    (value.fract() == 0.0 && (-LIMIT..LIMIT).contains(&value)).then_some(value as i128)
}

/// The double that an integer is, if one is exactly it.
#[expect(clippy::cast_precision_loss, reason = "the result is compared with its source")]
fn exact_double(value: i128) -> Option<f64> {
    let double = value as f64;
    (exact_integer(double) == Some(value)).then_some(double)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(value: Scalar, dtype: DType) -> bool {
        Pattern::of(value, dtype).is_ok()
    }

    #[test]
    fn only_exact_values_are_taken() {
        for (value, dtype, expected) in [
            (Scalar::Int(-1), DType::Int8, true),
            (Scalar::Int(128), DType::Int8, false),
            (Scalar::Int(-1), DType::UInt64, false),
            (Scalar::Int(u64::MAX.into()), DType::UInt64, true),
            (Scalar::Int((1 << 53) + 1), DType::Float64, false),
            (Scalar::Int(1 << 53), DType::Float64, true),
            (Scalar::Int(1 << 70), DType::Float64, true),
            (Scalar::Int((1 << 70) + 1), DType::Float64, false),
            (Scalar::Int(i128::MAX), DType::Float64, false),
            (Scalar::Int(1 << 70), DType::UInt64, false),
            (Scalar::Float(1e20), DType::Int64, false),
            (Scalar::Float(0.5), DType::Int32, false),
            (Scalar::Float(2.0), DType::Int32, true),
            (Scalar::Float(f64::NAN), DType::Int32, false),
            (Scalar::Float(18_446_744_073_709_551_616.0), DType::UInt64, false),
            (Scalar::Float(0.1), DType::Float32, false),
            (Scalar::Float(0.5), DType::Float16, true),
            (Scalar::Float(f64::INFINITY), DType::BFloat16, true),
            (Scalar::Float(1e300), DType::Float32, false),
            (Scalar::Float(65536.0), DType::Float16, false),
            (Scalar::Bool(true), DType::Bool, true),
            (Scalar::Int(2), DType::Bool, false),
            (Scalar::Bool(true), DType::Float32, true),
            (Scalar::Float(0.5), DType::Complex64, true),
            (Scalar::Float(0.1), DType::Complex64, false),
            (Scalar::Float(f64::NAN), DType::Complex128, true),
            (Scalar::Int(1), DType::Float8E4M3Fn, true),
            (Scalar::Float(0.1), DType::Float8E5M2, false),
            (Scalar::Int(0), DType::Float8E8M0Fnu, false),
        ] {
            assert_eq!(exact(value, dtype), expected, "{value:?} as {dtype}");
        }
    }

    #[test]
    fn patterns_are_the_dtypes_bytes() {
        assert_eq!(Pattern::of(Scalar::Int(-2), DType::Int16).unwrap().bytes(), (-2_i16).to_ne_bytes());
        assert_eq!(Pattern::of(Scalar::Float(1.5), DType::Float32).unwrap().bytes(), 1.5_f32.to_ne_bytes());
        for dtype in [DType::Float16, DType::BFloat16, DType::Float32, DType::Float64] {
            assert_eq!(Pattern::nan(dtype).unwrap().bytes().len(), dtype.itemsize());
        }
        assert!(Pattern::nan(DType::Int64).is_err());
        let complex = [1.5_f64.to_ne_bytes(), 0_f64.to_ne_bytes()].concat();
        assert_eq!(Pattern::of(Scalar::Float(1.5), DType::Complex128).unwrap().bytes(), complex);
    }
}
