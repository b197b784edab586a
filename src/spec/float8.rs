//! The values of the 8-bit float formats, as `ml_dtypes` defines them.

use crate::dtype::DType;

/// What the encodings beside the finite numbers are.
#[derive(Clone, Copy, PartialEq)]
enum Special {
    /// The highest exponent holds infinities and NaN, as in IEEE 754.
    Ieee,
    /// All bits but the sign set are NaN; there are no infinities ("fn").
    AllOnes,
    /// Negative zero is the only NaN; there are no infinities ("fnuz").
    NegativeZero,
}

/// The value of an encoding; `None` where the dtype is no 8-bit float.
pub(super) fn value(dtype: DType, encoding: u8) -> Option<f64> {
    let (mantissa_bits, bias, special) = match dtype {
        DType::Float8E3M4 => (4, 3, Special::Ieee),
        DType::Float8E4M3 => (3, 7, Special::Ieee),
        DType::Float8E5M2 => (2, 15, Special::Ieee),
        DType::Float8E4M3Fn => (3, 7, Special::AllOnes),
        DType::Float8E4M3Fnuz => (3, 8, Special::NegativeZero),
        DType::Float8E4M3B11Fnuz => (3, 11, Special::NegativeZero),
        DType::Float8E5M2Fnuz => (2, 16, Special::NegativeZero),
        DType::Float8E8M0Fnu if encoding == u8::MAX => return Some(f64::NAN),
        DType::Float8E8M0Fnu => return Some(2_f64.powi(i32::from(encoding) - 127)),
        _ => return None,
    };
    let sign = if encoding & 0x80 == 0 { 1.0 } else { -1.0 };
    let exponent = i32::from((encoding & 0x7f) >> mantissa_bits);
    let highest = (1 << (7 - mantissa_bits)) - 1;
    let mantissa = f64::from(encoding & !(u8::MAX << mantissa_bits));
    let is_nan = match special {
        Special::Ieee if exponent == highest && mantissa == 0.0 => return Some(sign * f64::INFINITY),
        Special::Ieee => exponent == highest,
        Special::AllOnes => encoding & 0x7f == 0x7f,
        Special::NegativeZero => encoding == 0x80,
    };
    if is_nan {
        return Some(f64::NAN);
    }
    let one = f64::from(1_u8 << mantissa_bits);
    // Subnormal numbers have the lowest exponent, and no leading one.
    let (significand, exponent) = if exponent == 0 { (mantissa, 1) } else { (one + mantissa, exponent) };
    Some(sign * significand / one * 2_f64.powi(exponent - bias))
}

/// The encoding of a value that the dtype holds exactly; of NaN, any.
pub(super) fn encode(dtype: DType, wanted: f64) -> Option<u8> {
    (0..=u8::MAX).find(|encoding| {
        value(dtype, *encoding).is_some_and(|value| value == wanted || (value.is_nan() && wanted.is_nan()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_each_format_are_those_of_ml_dtypes() {
        for (dtype, largest, smallest, infinite) in [
            (DType::Float8E3M4, 15.5, 2_f64.powi(-6), true),
            (DType::Float8E4M3, 240.0, 2_f64.powi(-9), true),
            (DType::Float8E4M3Fn, 448.0, 2_f64.powi(-9), false),
            (DType::Float8E4M3Fnuz, 240.0, 2_f64.powi(-10), false),
            (DType::Float8E4M3B11Fnuz, 30.0, 2_f64.powi(-13), false),
            (DType::Float8E5M2, 57344.0, 2_f64.powi(-16), true),
            (DType::Float8E5M2Fnuz, 57344.0, 2_f64.powi(-17), false),
            (DType::Float8E8M0Fnu, 2_f64.powi(127), 2_f64.powi(-127), false),
        ] {
            let values: Vec<f64> = (0..=u8::MAX).filter_map(|encoding| value(dtype, encoding)).collect();
            let finite = values.iter().copied().filter(|value| value.is_finite());
            assert_eq!(finite.clone().fold(0.0, f64::max), largest, "{dtype}");
            assert_eq!(finite.filter(|value| *value > 0.0).fold(f64::MAX, f64::min), smallest, "{dtype}");
            assert_eq!(values.iter().any(|value| value.is_infinite()), infinite, "{dtype}");
            assert!(values.iter().any(|value| value.is_nan()), "{dtype}");
        }
        assert_eq!(value(DType::Float32, 0), None);
    }

    #[test]
    fn only_exact_values_are_encoded() {
        assert_eq!(encode(DType::Float8E4M3Fn, 1.0), Some(0x38));
        assert_eq!(encode(DType::Float8E5M2, -2.0), Some(0xc0));
        assert_eq!(encode(DType::Float8E4M3Fnuz, f64::NAN), Some(0x80));
        assert_eq!(encode(DType::Float8E8M0Fnu, 1.0), Some(127));
        assert_eq!(encode(DType::Float8E8M0Fnu, 0.0), None);
        assert_eq!(encode(DType::Float8E4M3Fn, 1.1), None);
        assert_eq!(encode(DType::Float8E4M3Fn, f64::INFINITY), None);
    }
}
