//! Null policies, and the bit patterns that they write.

use super::{float8, round};
use crate::dtype::{DType, Kind};
use crate::error::{Error, ErrorKind, Remedy, Result, from};

/// A fill value, before the dtype is known.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Scalar {
    /// True or false; 1 or 0 in a number.
    Bool(bool),
    /// An integer.
    Int(i128),
    /// A float.
    Float(f64),
    /// A number between two doubles, as the nearest of them. It is no integer.
    Rounded(f64),
}

/// Equal values are written as equal bytes: 0.0 and -0.0 are different ones, and a NaN is equal to itself.
impl PartialEq for Scalar {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Bool(one), Self::Bool(two)) => one == two,
            (Self::Int(one), Self::Int(two)) => one == two,
            (Self::Float(one), Self::Float(two)) | (Self::Rounded(one), Self::Rounded(two)) => {
                one.to_bits() == two.to_bits()
            }
            _ => false,
        }
    }
}

from! {
    [] bool => Scalar, |value| Self::Bool(value);
    [] i8 => Scalar, |value| Self::Int(value.into());
    [] i16 => Scalar, |value| Self::Int(value.into());
    [] i32 => Scalar, |value| Self::Int(value.into());
    [] i64 => Scalar, |value| Self::Int(value.into());
    [] u8 => Scalar, |value| Self::Int(value.into());
    [] u16 => Scalar, |value| Self::Int(value.into());
    [] u32 => Scalar, |value| Self::Int(value.into());
    [] u64 => Scalar, |value| Self::Int(value.into());
    [] f32 => Scalar, |value| Self::Float(value.into());
    [] f64 => Scalar, |value| Self::Float(value);
}

/// What happens to the slots of nulls.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum NullPolicy {
    /// A null is an error that names its row.
    #[default]
    Error,
    /// Nulls become NaN; the result must be a float.
    Nan,
    /// Nulls become this value. Floats round it to the nearest, as they round data; integers and bools must hold it
    /// exactly.
    Fill(Scalar),
    /// Slots of nulls hold the source's bytes in a view, zero in a copy, and the padding in padded rows.
    /// [`Conversion::validity`](crate::Conversion::validity) tells which values are null.
    Keep,
}

/// The bytes of one element of a dtype, in native order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    bytes: [u8; 16],
    len: u8,
}

impl Pattern {
    /// The bytes, as many as the dtype's itemsize.
    #[must_use]
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or(&self.bytes)
    }

    /// The bytes, and zeros behind them.
    #[must_use]
    pub(crate) fn padded(&self) -> [u8; 16] {
        self.bytes
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
    pub(crate) fn nan(dtype: DType) -> Result<Self> {
        Self::encode(Scalar::Float(f64::NAN), dtype).ok_or_else(|| {
            Error::new(ErrorKind::Null, format!("nulls as NaN need a float result, and this one is {dtype}"))
                .remedy_is(Remedy::FloatOrFill)
        })
    }

    /// Returns the value in this dtype: exact in integers and bools, rounded to the nearest in floats.
    ///
    /// # Errors
    /// If an integer or a bool cannot represent the value, or it is beyond the range of a float.
    pub(crate) fn of(value: Scalar, dtype: DType) -> Result<Self> {
        Self::encode(value, dtype).ok_or_else(|| {
            let value = match value {
                Scalar::Bool(value) => value.to_string(),
                Scalar::Int(value) => value.to_string(),
                // With an exponent where there are many zeros.
                Scalar::Float(value) | Scalar::Rounded(value) => format!("{value:?}"),
            };
            let (reason, remedy) = match dtype.kind() {
                Kind::Float | Kind::Complex => {
                    ("is beyond the range of", "pass a value that the dtype can hold, or another dtype".into())
                }
                _ => ("cannot be represented exactly in", Remedy::ExactFill),
            };
            Error::new(ErrorKind::Null, format!("the fill value {value} {reason} {dtype}")).remedy_is(remedy)
        })
    }

    fn encode(value: Scalar, dtype: DType) -> Option<Self> {
        let integer = match value {
            Scalar::Bool(value) => Some(i128::from(value)),
            Scalar::Int(value) => Some(value),
            Scalar::Float(value) => round::exact_integer(value),
            Scalar::Rounded(_) => None,
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

    /// `None` if the value is finite and the nearest float is not, or if the format has no such value.
    fn float(value: Scalar, dtype: DType) -> Option<Self> {
        // `odd` rounds to fewer bits as the value itself would round.
        let (nearest, odd) = match value {
            Scalar::Bool(value) => (f64::from(u8::from(value)), f64::from(u8::from(value))),
            Scalar::Int(value) => (round::nearest_double(value), round::odd_double(value)),
            Scalar::Float(value) | Scalar::Rounded(value) => (value, value),
        };
        let stays = |is_finite: bool| (is_finite || !odd.is_finite()).then_some(());
        match dtype {
            DType::Float64 => Self::new(nearest.to_ne_bytes()),
            DType::Float32 => {
                let narrow = round::single(odd);
                stays(narrow.is_finite())?;
                Self::new(narrow.to_ne_bytes())
            }
            DType::Float16 => {
                let narrow = round::half(odd);
                stays(narrow.is_finite())?;
                Self::new(narrow.to_ne_bytes())
            }
            DType::BFloat16 => {
                let narrow = round::brain(odd);
                stays(narrow.is_finite())?;
                Self::new(narrow.to_ne_bytes())
            }
            _ => Self::new([float8::encode(dtype, odd)?]),
        }
    }
}

/// What happens to the slots of nulls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Nulls {
    /// Nulls are an error.
    Refused,
    /// Slots of nulls hold this value, in the result's dtype.
    Filled(Pattern),
    /// Slots of nulls hold the source's bytes in a view, zero in a copy, and the padding in padded rows.
    Kept,
}

impl Nulls {
    /// Returns what a policy does to nulls in elements of this dtype.
    ///
    /// # Errors
    /// When the dtype has no such value.
    pub(super) fn of(policy: NullPolicy, dtype: DType) -> Result<Self> {
        Ok(match policy {
            NullPolicy::Error => Self::Refused,
            NullPolicy::Keep => Self::Kept,
            NullPolicy::Nan => Self::Filled(Pattern::nan(dtype)?),
            NullPolicy::Fill(value) => Self::Filled(Pattern::of(value, dtype)?),
        })
    }

    /// Returns what a copy has in the slots of nulls, and zeros behind it; `None` if nulls are refused.
    #[must_use]
    pub(crate) fn written(self) -> Option<[u8; 16]> {
        match self {
            Self::Filled(pattern) => Some(pattern.padded()),
            Self::Kept => Some([0; 16]),
            Self::Refused => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_hold_a_fill_exactly_and_floats_in_their_range() {
        for (value, dtype, expected) in [
            (Scalar::Int(-1), DType::Int8, true),
            (Scalar::Int(128), DType::Int8, false),
            (Scalar::Int(-1), DType::UInt64, false),
            (Scalar::Int(u64::MAX.into()), DType::UInt64, true),
            (Scalar::Int((1 << 53) + 1), DType::Float64, true),
            (Scalar::Int(1 << 53), DType::Float64, true),
            (Scalar::Int(1 << 70), DType::Float64, true),
            (Scalar::Int((1 << 70) + 1), DType::Float64, true),
            (Scalar::Int(i128::MAX), DType::Float64, true),
            (Scalar::Int(i128::MIN), DType::Float32, true),
            (Scalar::Int(i128::MAX), DType::Float16, false),
            (Scalar::Int(1 << 70), DType::UInt64, false),
            (Scalar::Float(1e20), DType::Int64, false),
            (Scalar::Float(0.5), DType::Int32, false),
            (Scalar::Float(2.0), DType::Int32, true),
            (Scalar::Float(f64::NAN), DType::Int32, false),
            (Scalar::Float(18_446_744_073_709_551_616.0), DType::UInt64, false),
            (Scalar::Float(0.1), DType::Float32, true),
            (Scalar::Float(0.5), DType::Float16, true),
            (Scalar::Float(f64::INFINITY), DType::BFloat16, true),
            (Scalar::Float(1e300), DType::Float32, false),
            (Scalar::Float(65_519.999), DType::Float16, true),
            (Scalar::Float(65_520.0), DType::Float16, false),
            (Scalar::Float(f64::from(f32::MAX)), DType::BFloat16, false),
            (Scalar::Float(-f64::MAX), DType::Float32, false),
            (Scalar::Float(f64::NEG_INFINITY), DType::Float16, true),
            (Scalar::Float(f64::NAN), DType::Float16, true),
            (Scalar::Float(5e-324), DType::Float32, true),
            (Scalar::Rounded(3.0), DType::Int32, false),
            (Scalar::Rounded(1.0), DType::Bool, false),
            (Scalar::Rounded(3.0), DType::Float32, true),
            (Scalar::Bool(true), DType::Bool, true),
            (Scalar::Int(2), DType::Bool, false),
            (Scalar::Bool(true), DType::Float32, true),
            (Scalar::Float(0.5), DType::Complex64, true),
            (Scalar::Float(0.1), DType::Complex64, true),
            (Scalar::Float(1e300), DType::Complex64, false),
            (Scalar::Float(f64::NAN), DType::Complex128, true),
            (Scalar::Int(1), DType::Float8E4M3Fn, true),
            (Scalar::Float(0.1), DType::Float8E5M2, true),
            (Scalar::Float(1e6), DType::Float8E5M2, false),
            (Scalar::Float(f64::INFINITY), DType::Float8E4M3Fn, false),
            (Scalar::Int(0), DType::Float8E8M0Fnu, false),
        ] {
            assert_eq!(Pattern::of(value, dtype).is_ok(), expected, "{value:?} as {dtype}");
        }
    }

    #[test]
    fn literals_and_numbers_of_each_width_are_scalars() {
        assert_eq!([Scalar::from(0), Scalar::from(0.5)], [Scalar::Int(0), Scalar::Float(0.5)]);
        let integers: [Scalar; 6] = [7_i8.into(), 7_i16.into(), 7_i32.into(), 7_u8.into(), 7_u16.into(), 7_u32.into()];
        assert_eq!(integers, [Scalar::Int(7); 6]);
        assert_eq!(Scalar::from(0.5_f32), Scalar::Float(0.5));
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

    #[test]
    fn a_nan_has_the_same_bytes_each_time() {
        // A NaN of another sign, with first bits of its own.
        let own = f64::from_bits(0xfff8_c000_0000_0001);
        for (dtype, nan, narrow) in [
            (DType::Float64, 0x7ff8_0000_0000_0000_u64, 0xfff8_c000_0000_0001_u64),
            (DType::Float32, 0x7fc0_0000, 0xffc6_0000),
            (DType::Float16, 0x7e00, 0xfe30),
            (DType::BFloat16, 0x7fc0, 0xffc6),
            (DType::Complex64, 0x7fc0_0000, 0xffc6_0000),
        ] {
            // Often, as Miri draws the sign of a NaN that a cast makes.
            for _ in 0..8 {
                assert_eq!(u64_of(Pattern::nan(dtype).unwrap()), nan, "{dtype}");
                assert_eq!(u64_of(Pattern::of(Scalar::Float(own), dtype).unwrap()), narrow, "{dtype}");
            }
        }
    }

    /// The first bytes of an element, as an integer.
    fn u64_of(pattern: Pattern) -> u64 {
        let mut bytes = [0; 8];
        for (to, from) in bytes.iter_mut().zip(pattern.bytes()) {
            *to = *from;
        }
        u64::from_le_bytes(bytes)
    }

    #[test]
    fn a_fill_is_rounded_once_as_data_is() {
        let bytes = |value, dtype| Pattern::of(value, dtype).unwrap().bytes().to_vec();
        assert_eq!(bytes(Scalar::Float(0.1), DType::Float32), 0.1_f32.to_ne_bytes());
        // Just above the middle of two neighbours: rounding first to a double, or to a single, would make it the
        // middle.
        let above = 1.0 + 1.0 / 2048.0 + 1.0 / (1_u64 << 40) as f64;
        assert_eq!(bytes(Scalar::Float(above), DType::Float16), 0x3c01_u16.to_ne_bytes());
        let above = 1.0 + 1.0 / 256.0 + 1.0 / (1_u64 << 40) as f64;
        assert_eq!(bytes(Scalar::Float(above), DType::BFloat16), 0x3f81_u16.to_ne_bytes());
        // The nearest double; of two, the even one.
        for (value, nearest) in
            [((1 << 53) + 1, 1_i64 << 53), ((1 << 53) + 3, (1 << 53) + 4), (-(1 << 54) - 3, -(1 << 54) - 4)]
        {
            assert_eq!(bytes(Scalar::Int(value), DType::Float64), (nearest as f64).to_ne_bytes(), "{value}");
        }
        for (middle, dtype, up) in [
            ((1 << 70) + (1 << 46), DType::Float32, f32::from_bits(0x6280_0001).to_ne_bytes().to_vec()),
            ((1 << 70) + (1 << 62), DType::BFloat16, 0x6281_u16.to_ne_bytes().to_vec()),
        ] {
            assert_eq!(bytes(Scalar::Int(middle + 1), dtype), up, "{dtype}");
            assert_ne!(bytes(Scalar::Int(middle), dtype), up, "{dtype}");
        }
    }
}
