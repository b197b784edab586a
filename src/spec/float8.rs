//! The values of the 8-bit float formats, as `ml_dtypes` defines them.

use std::cmp::Ordering;

use crate::dtype::DType;

/// Which encodings are not finite numbers.
#[derive(Clone, Copy, PartialEq)]
enum Special {
    /// The highest exponent holds infinities and NaN, as in IEEE 754.
    Ieee,
    /// All bits but the sign set are NaN; there are no infinities ("fn").
    AllOnes,
    /// Negative zero is the only NaN; there are no infinities ("fnuz").
    NegativeZero,
}

/// Returns the value of an encoding; `None` if the dtype is not an 8-bit float.
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
        DType::Float8E8M0Fnu => return Some(power_of_two(i32::from(encoding) - 127)),
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
    Some(sign * significand / one * power_of_two(exponent - bias))
}

/// Returns 2 to a power that is an exponent of a normal `f64`, exactly: `f64::powi` promises no precision.
fn power_of_two(exponent: i32) -> f64 {
    let biased = u64::try_from(exponent.saturating_add(1023)).unwrap_or_default();
    f64::from_bits(biased << 52)
}

/// Returns the encoding of the nearest value, as `ml_dtypes` rounds: ties to even, or up among powers of two. `None` if
/// the format has none: some formats lack infinities, zero or negative numbers, and no format holds what rounds past
/// its largest number.
pub(super) fn encode(dtype: DType, wanted: f64) -> Option<u8> {
    let numbers = || (0..=u8::MAX).filter_map(|encoding| Some((encoding, value(dtype, encoding)?)));
    if !wanted.is_finite() {
        let same = |value: f64| value == wanted || (value.is_nan() && wanted.is_nan());
        return numbers().find(|(_, value)| same(*value)).map(|(encoding, _)| encoding);
    }
    let powers = dtype == DType::Float8E8M0Fnu;
    let finite = || numbers().filter(|(_, value)| value.is_finite());
    // A zero keeps the sign of the value. A format with one zero uses it for both.
    let signed = finite().filter(|(_, value)| value.is_sign_negative() == wanted.is_sign_negative());
    let zero = finite().find(|(_, value)| *value == 0.0);
    let near =
        |(encoding, value): (u8, f64)| ((value - wanted).abs(), if powers { u8::MAX - encoding } else { encoding & 1 });
    let closer = |a: &(u8, f64), b: &(u8, f64)| {
        let ((far, last), (other_far, other_last)) = (near(*a), near(*b));
        far.total_cmp(&other_far).then(last.cmp(&other_last))
    };
    let (encoding, found) = signed.chain(zero).min_by(closer)?;
    let largest = finite().map(|(_, value)| value).fold(0.0, f64::max);
    let below = finite().map(|(_, value)| value).filter(|value| *value < largest).fold(0.0, f64::max);
    // The number after the largest, if the format had one, is one step above it.
    let step = if powers { largest } else { largest - below };
    let overflows = match (wanted.abs() - largest).total_cmp(&(step / 2.0)) {
        Ordering::Less => false,
        Ordering::Equal => powers || encoding & 1 == 1,
        Ordering::Greater => true,
    };
    let underflows = zero.is_none() && wanted < found / 2.0;
    (!overflows && !underflows).then_some(encoding)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2 to the power of 127: a shift, as `f64::powi` promises no precision.
    const TWO_TO_127: f64 = (1_u128 << 127) as f64;

    #[test]
    fn the_ends_of_each_format_are_those_of_ml_dtypes() {
        for (dtype, largest, smallest, infinite) in [
            (DType::Float8E3M4, 15.5, 1.0 / 64.0, true),
            (DType::Float8E4M3, 240.0, 1.0 / 512.0, true),
            (DType::Float8E4M3Fn, 448.0, 1.0 / 512.0, false),
            (DType::Float8E4M3Fnuz, 240.0, 1.0 / 1024.0, false),
            (DType::Float8E4M3B11Fnuz, 30.0, 1.0 / 8192.0, false),
            (DType::Float8E5M2, 57344.0, 1.0 / 65_536.0, true),
            (DType::Float8E5M2Fnuz, 57344.0, 1.0 / 131_072.0, false),
            (DType::Float8E8M0Fnu, TWO_TO_127, 1.0 / TWO_TO_127, false),
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
    fn a_value_is_encoded_as_the_nearest() {
        for (dtype, wanted, expected) in [
            (DType::Float8E4M3Fn, 1.0, Some(0x38)),
            (DType::Float8E5M2, -2.0, Some(0xc0)),
            (DType::Float8E4M3Fn, 1.1, Some(0x39)),
            // Ties.
            (DType::Float8E4M3Fn, 1.0625, Some(0x38)),
            (DType::Float8E4M3Fn, 1.1875, Some(0x3a)),
            (DType::Float8E4M3Fn, 464.0, Some(0x7e)),
            (DType::Float8E4M3, 248.0, None),
            (DType::Float8E8M0Fnu, 1.5, Some(128)),
            (DType::Float8E8M0Fnu, 3.0, Some(129)),
            (DType::Float8E4M3Fn, 1.0 / 1024.0, Some(0)),
            // The ends.
            (DType::Float8E4M3Fn, 465.0, None),
            (DType::Float8E4M3, 247.0, Some(0x77)),
            (DType::Float8E5M2, -1e6, None),
            (DType::Float8E8M0Fnu, TWO_TO_127 * 1.4, Some(254)),
            (DType::Float8E8M0Fnu, TWO_TO_127 * 1.5, None),
            (DType::Float8E8M0Fnu, 0.5 / TWO_TO_127, Some(0)),
            (DType::Float8E8M0Fnu, 0.25 / TWO_TO_127, None),
            // Only some formats have these.
            (DType::Float8E8M0Fnu, 1.0, Some(127)),
            (DType::Float8E8M0Fnu, 0.0, None),
            (DType::Float8E8M0Fnu, -1.0, None),
            (DType::Float8E4M3Fn, -0.0, Some(0x80)),
            (DType::Float8E4M3Fnuz, -0.0, Some(0)),
            (DType::Float8E4M3Fnuz, -1e-9, Some(0)),
            (DType::Float8E5M2, -1e-9, Some(0x80)),
            (DType::Float8E4M3Fnuz, f64::NAN, Some(0x80)),
            (DType::Float8E5M2, f64::NEG_INFINITY, Some(0xfc)),
            (DType::Float8E4M3Fn, f64::INFINITY, None),
        ] {
            assert_eq!(encode(dtype, wanted), expected, "{wanted} as {dtype}");
        }
    }

    #[test]
    fn every_number_is_its_own_nearest() {
        for dtype in DType::ALL.iter().copied().filter(|dtype| value(*dtype, 0).is_some()) {
            // Miri takes some of each sign, the ends among them.
            for encoding in (0..=u8::MAX).step_by(if cfg!(miri) { 85 } else { 1 }) {
                let number = value(dtype, encoding).unwrap();
                assert!(number.is_nan() || encode(dtype, number) == Some(encoding), "{encoding:#x} of {dtype}");
            }
        }
    }
}
