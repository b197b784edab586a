//! Checked casts of decimals: of the value that the stored integer and the scale stand for.

use std::cmp::Ordering;

use arrow_array::types::{Decimal256Type, DecimalType};
use arrow_buffer::i256;
use half::{bf16, f16};

use super::cast::{CastTo, Truth};
use super::misfit::Misfit;
use crate::arrow::Mask;
use crate::dtype::DType;

/// Casts decimals of `bytes` bytes from `source`, the first of which is number `first` of the mask. Null elements in
/// `mask` may misfit. A float result is the nearest one; an integer must be the value itself.
///
/// # Errors
/// The first valid element that does not fit.
///
/// # Safety
/// `source` has so many readable decimals, of any alignment; `to` is castable; `out` has room for them and is aligned.
pub(super) unsafe fn cast_decimals(
    (bytes, scale): (usize, i8),
    to: DType,
    source: *const u8,
    mask: Option<&Mask<'_>>,
    first: usize,
    elements: usize,
    out: *mut u8,
) -> Result<(), Misfit> {
    macro_rules! dispatch {
        ($($dtype:ident => $type:ty),+) => {
            match to {
                // SAFETY: `source` has `elements` decimals of `bytes` bytes; `out` has room for as many of this dtype,
                // aligned for it.
                $(DType::$dtype => unsafe { kernel::<$type>(bytes, scale, source, mask, first, elements, out.cast()) },)+
                // Not castable, so `Spec` has refused it.
                _ => Ok(()),
            }
        };
    }
    dispatch!(
        Bool => Truth, Int8 => i8, Int16 => i16, Int32 => i32, Int64 => i64, UInt8 => u8, UInt16 => u16,
        UInt32 => u32, UInt64 => u64, Float16 => f16, BFloat16 => bf16, Float32 => f32, Float64 => f64
    )
}

/// Returns the value of a decimal of up to 16 bytes with a scale, whose bytes are the first ones; `None` for other sizes.
pub(super) fn decimal_text((bytes, scale): (usize, i8), value: &[u8; 32]) -> Option<String> {
    let unscaled = match bytes {
        4 => i32::from_le_bytes(*value.first_chunk()?).into(),
        8 => i64::from_le_bytes(*value.first_chunk()?).into(),
        16 => i128::from_le_bytes(*value.first_chunk()?),
        _ => return None,
    };
    Some(Decimal { unscaled: Unscaled::Narrow(unscaled), scale }.text())
}

/// # Safety
/// As [`cast_decimals`], for elements of `D`.
unsafe fn kernel<D: FromDecimal>(
    bytes: usize,
    scale: i8,
    source: *const u8,
    mask: Option<&Mask<'_>>,
    first: usize,
    elements: usize,
    out: *mut D,
) -> Result<(), Misfit> {
    for index in 0..elements {
        let at = source.wrapping_add(index.wrapping_mul(bytes));
        let unscaled = match bytes {
            // SAFETY: `index < elements`, so `source` has these 4 bytes, of any alignment.
            4 => i128::from(unsafe { at.cast::<i32>().read_unaligned() }).into(),
            // SAFETY: `index < elements`, so `source` has these 8 bytes, of any alignment.
            8 => i128::from(unsafe { at.cast::<i64>().read_unaligned() }).into(),
            // SAFETY: `index < elements`, so `source` has these 16 bytes, of any alignment.
            16 => unsafe { at.cast::<i128>().read_unaligned() }.into(),
            32 => {
                // SAFETY: `index < elements`, so `source` has these 32 bytes: an i256, little-endian.
                let wide = i256::from_le_bytes(unsafe { at.cast::<[u8; 32]>().read_unaligned() });
                wide.to_i128().map_or(Unscaled::Wide(wide), Unscaled::Narrow)
            }
            _ => return Err(Misfit { index: first + index, value: format!("a decimal of {bytes} bytes") }),
        };
        let decimal = Decimal { unscaled, scale };
        let value = D::from_decimal(&decimal);
        if value.is_none() && mask.is_none_or(|mask| mask.is_valid(first + index)) {
            return Err(Misfit { index: first + index, value: decimal.text() });
        }
        // SAFETY: `out` has room for `elements` values of `D`, aligned, and `index` is below that.
        unsafe { out.wrapping_add(index).write(value.unwrap_or_default()) };
    }
    Ok(())
}

/// A stored integer.
enum Unscaled {
    Narrow(i128),
    /// One that 128 bits do not hold.
    Wide(i256),
}

impl From<i128> for Unscaled {
    fn from(value: i128) -> Self {
        Self::Narrow(value)
    }
}

/// The powers of ten that a double holds exactly.
pub(super) const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];

/// A number that is not negative: an integer times two to the power of `exponent`.
struct Fraction {
    /// Of at least 55 bits, unless it is exact. The last bit is set where there is a rest below it.
    odd: u64,
    exponent: i32,
}

impl Fraction {
    /// Returns `integer` and a rest below it, if `has_rest`, divided by two to the power of `shift`, which is at most 128.
    fn of(integer: u128, shift: u32, has_rest: bool) -> Self {
        /// One bit less than there are, for the rest.
        const KEPT: u32 = u64::BITS - 1;
        let dropped = (u128::BITS - KEPT).saturating_sub(integer.leading_zeros());
        let kept = integer >> dropped;
        let has_rest = has_rest || kept << dropped != integer;
        #[expect(clippy::cast_possible_truncation, reason = "63 bits at most are kept")]
        let odd = (kept as u64) << 1 | u64::from(has_rest);
        Self { odd, exponent: dropped.cast_signed() - shift.cast_signed() - 1 }
    }

    /// The nearest double: the conversion of the integer rounds, and the power of two only changes the exponent.
    fn nearest(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "this rounds to the nearest")]
        let nearest = self.odd as f64;
        nearest * power_of_two(self.exponent)
    }

    /// The double below, with its last bit set unless it is exact.
    fn odd(&self) -> f64 {
        let dropped = (u64::BITS - f64::MANTISSA_DIGITS).saturating_sub(self.odd.leading_zeros());
        let (kept, rest) = (self.odd >> dropped, self.odd & ((1 << dropped) - 1));
        #[expect(clippy::cast_precision_loss, reason = "53 bits at most are kept")]
        let odd = (kept | u64::from(rest != 0)) as f64;
        odd * power_of_two(self.exponent + dropped.cast_signed())
    }
}

/// A stored integer and its scale: the value is the integer times ten to the power of minus the scale.
pub(super) struct Decimal {
    unscaled: Unscaled,
    scale: i8,
}

impl Decimal {
    pub(super) fn new(unscaled: i256, scale: i8) -> Self {
        Self { unscaled: unscaled.to_i128().map_or(Unscaled::Wide(unscaled), Unscaled::Narrow), scale }
    }

    /// Returns the value, if it is an integer of 128 bits.
    fn integer(&self) -> Option<i128> {
        let power = u32::from(self.scale.unsigned_abs());
        match (&self.unscaled, self.scale) {
            (Unscaled::Narrow(value), 0) => Some(*value),
            (Unscaled::Narrow(0), _) => Some(0),
            (Unscaled::Narrow(value), ..0) => value.checked_mul(10_i128.checked_pow(power)?),
            (Unscaled::Narrow(value), _) => {
                let factor = 10_i128.checked_pow(power)?;
                (value % factor == 0).then_some(value / factor)
            }
            (Unscaled::Wide(value), 1..) => {
                let factor = i256::from_i128(10).checked_pow(power)?;
                let exact = value.checked_rem(factor)? == i256::ZERO;
                if exact { value.checked_div(factor)?.to_i128() } else { None }
            }
            (Unscaled::Wide(_), _) => None,
        }
    }

    /// Returns the magnitude as an odd binary fraction; `None` if only the digits tell.
    fn fraction(&self) -> Option<Fraction> {
        /// The largest scale whose power of ten has at most 74 bits.
        const LARGEST: u8 = 22;
        let Unscaled::Narrow(value) = self.unscaled else { return None };
        let scale = Some(self.scale.unsigned_abs()).filter(|scale| *scale <= LARGEST)?;
        let (value, power) = (value.unsigned_abs(), 10_u128.checked_pow(scale.into())?);
        if self.scale <= 0 {
            return Some(Fraction::of(value.checked_mul(power)?, 0, false));
        }
        let highest_bit = |number: u128| (u128::BITS - 1).saturating_sub(number.leading_zeros());
        // The highest bit of the numerator is 62 bits above the divisor's, or 54 at least, so the quotient has at least 54 bits.
        let highest = (62 + highest_bit(power)).min(u128::BITS - 1);
        let shift = highest.saturating_sub(highest_bit(value));
        let numerator = value << shift;
        Some(Fraction::of(numerator / power, shift, numerator % power != 0))
    }

    /// The nearest double.
    fn double(&self) -> f64 {
        if let (Unscaled::Narrow(value), Some(power)) =
            (&self.unscaled, POWERS.get(usize::from(self.scale.unsigned_abs())))
            && value.unsigned_abs() <= 1 << f64::MANTISSA_DIGITS
        {
            // Both are exact, so the result is rounded once.
            #[expect(clippy::cast_precision_loss, reason = "a double holds integers of 53 bits")]
            let value = *value as f64;
            return if self.scale < 0 { value * power } else { value / power };
        }
        self.fraction().map_or_else(|| self.parsed(), |fraction| self.signed(fraction.nearest()))
    }

    /// Returns a double that rounds to a shorter float as the value would: truncated if it is inexact, with its last
    /// bit set.
    fn odd_double(&self) -> Option<f64> {
        self.fraction().map(|fraction| self.signed(fraction.odd()))
    }

    fn signed(&self, magnitude: f64) -> f64 {
        match self.unscaled {
            Unscaled::Narrow(..0) => -magnitude,
            _ => magnitude,
        }
    }

    /// Like [`Self::odd_double`], from the digits.
    fn parsed_odd(&self) -> f64 {
        /// Zeros at the end of a double that lies in the middle between two floats of 16 bits.
        const ZEROS: u32 = 40;
        /// Below half of every float of 16 bits but zero.
        const SMALLEST: f64 = 1e-42;
        let nearest: f64 = self.parsed();
        let bits = nearest.to_bits();
        if bits.trailing_zeros() < ZEROS || nearest.abs() < SMALLEST {
            // On the same side of every middle as the value.
            return nearest;
        }
        match compare_digits(&self.text(), &format!("{nearest:.200}")) {
            Ordering::Equal => nearest,
            Ordering::Less => f64::from_bits((bits - 1) | 1),
            Ordering::Greater => f64::from_bits(bits | 1),
        }
    }

    /// The nearest float, by its digits.
    fn parsed<F: std::str::FromStr + Default>(&self) -> F {
        let exponent = -i16::from(self.scale);
        let digits = match &self.unscaled {
            Unscaled::Narrow(value) => format!("{value}e{exponent}"),
            Unscaled::Wide(value) => format!("{value}e{exponent}"),
        };
        // Digits with an exponent are a float.
        digits.parse().unwrap_or_default()
    }

    fn text(&self) -> String {
        let value = match self.unscaled {
            Unscaled::Narrow(value) => i256::from_i128(value),
            Unscaled::Wide(value) => value,
        };
        // More digits than any value has, or the rest would be left out.
        Decimal256Type::format_decimal(value, 78, self.scale)
    }
}

/// Two to the power of `exponent`, whose magnitude is below 1,022.
fn power_of_two(exponent: i32) -> f64 {
    const BIAS: i32 = 1023;
    f64::from_bits(u64::from((BIAS + exponent).unsigned_abs()) << (f64::MANTISSA_DIGITS - 1))
}

/// Compares the magnitudes of two numbers in plain digits.
fn compare_digits(one: &str, other: &str) -> Ordering {
    let parts = |text: &str| {
        let (integer, fraction) =
            text.trim_start_matches('-').split_once('.').unwrap_or((text.trim_start_matches('-'), ""));
        (integer.trim_start_matches('0').to_owned(), fraction.trim_end_matches('0').to_owned())
    };
    let ((integer, fraction), (other_integer, other_fraction)) = (parts(one), parts(other));
    (integer.len(), integer, fraction).cmp(&(other_integer.len(), other_integer, other_fraction))
}

/// A type that decimals are cast to.
pub(super) trait FromDecimal: Copy + Default {
    /// The value in this type; `None` where it does not fit.
    fn from_decimal(decimal: &Decimal) -> Option<Self>;
}

macro_rules! from_integer {
    ($($type:ty),+) => { $(impl FromDecimal for $type {
        fn from_decimal(decimal: &Decimal) -> Option<Self> {
            Self::try_from(decimal.integer()?).ok()
        }
    })+ };
}
from_integer!(i8, i16, i32, i64, u8, u16, u32, u64);

impl FromDecimal for Truth {
    fn from_decimal(decimal: &Decimal) -> Option<Self> {
        match decimal.integer()? {
            0 => Some(Self(0)),
            1 => Some(Self(1)),
            _ => None,
        }
    }
}

impl FromDecimal for f64 {
    fn from_decimal(decimal: &Decimal) -> Option<Self> {
        Some(decimal.double())
    }
}

impl FromDecimal for f32 {
    fn from_decimal(decimal: &Decimal) -> Option<Self> {
        let value: Self = decimal.odd_double().map_or_else(|| decimal.parsed(), |odd| odd.cast_to().0);
        value.is_finite().then_some(value)
    }
}

macro_rules! from_odd_double {
    ($($type:ty),+) => { $(impl FromDecimal for $type {
        fn from_decimal(decimal: &Decimal) -> Option<Self> {
            let (value, fits) = decimal.odd_double().unwrap_or_else(|| decimal.parsed_odd()).cast_to();
            fits.then_some(value)
        }
    })+ };
}
from_odd_double!(f16, bf16);

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(value: i128, scale: i8) -> Decimal {
        Decimal { unscaled: value.into(), scale }
    }

    #[test]
    fn decimals_of_other_widths_are_refused_and_not_read() {
        let (source, mut out) = ([7_u8; 32], [0.0_f64; 1]);
        for bytes in [4, 8, 16, 32] {
            // SAFETY: a source of 32 bytes, room for one element.
            unsafe { kernel(bytes, 0, source.as_ptr(), None, 0, 1, out.as_mut_ptr()) }.unwrap();
        }
        for bytes in [0, 1, 2, 12, 24, 64] {
            // SAFETY: nothing is read of such widths; there is room for one element.
            let misfit = unsafe { kernel(bytes, 0, source.as_ptr(), None, 5, 1, out.as_mut_ptr()) }.unwrap_err();
            assert_eq!((misfit.index, misfit.value), (5, format!("a decimal of {bytes} bytes")));
        }
    }

    #[test]
    fn integers_are_the_value_itself_or_do_not_fit() {
        for (value, scale, expected) in [
            (150, 2, None),
            (-1500, 2, Some(-15)),
            (7, 0, Some(7)),
            (7, -2, Some(700)),
            (0, 127, Some(0)),
            (1, 127, None),
            (0, -128, Some(0)),
            (1, -128, None),
            (i128::MAX, -1, None),
        ] {
            assert_eq!(decimal(value, scale).integer(), expected, "{value} scale {scale}");
        }
        let wide = i256::from_i128(10).checked_pow(50).unwrap();
        assert_eq!(Decimal { unscaled: Unscaled::Wide(wide), scale: 48 }.integer(), Some(100));
        assert_eq!(Decimal { unscaled: Unscaled::Wide(wide), scale: 51 }.integer(), None);
        assert_eq!(Decimal { unscaled: Unscaled::Wide(wide), scale: 0 }.integer(), None);
        assert_eq!((u8::from_decimal(&decimal(25_600, 2)), u8::from_decimal(&decimal(25_500, 2))), (None, Some(255)));
        assert!(Truth::from_decimal(&decimal(10, 1)).is_some() && Truth::from_decimal(&decimal(20, 1)).is_none());
    }

    #[test]
    fn floats_are_the_nearest_ones() {
        // By the digits, which the standard library rounds once.
        for value in [1_i128, 3, 7, -15, 123_456_789, (1 << 53) - 1, -(1 << 53), (1 << 53) + 1, i128::MAX, i128::MIN] {
            for scale in [-30_i8, -22, -3, 0, 1, 2, 9, 15, 22, 23, 38, 76] {
                let decimal = decimal(value, scale);
                let digits = format!("{value}e{}", -i16::from(scale));
                assert_eq!(f64::from_decimal(&decimal), Some(digits.parse().unwrap()), "{digits}");
                let single: f32 = digits.parse().unwrap();
                assert_eq!(f32::from_decimal(&decimal), single.is_finite().then_some(single), "{digits}");
            }
        }
    }

    /// Values around each power of two and of ten, and in the middle between two floats, by every scale that has a path
    /// of its own.
    #[test]
    fn floats_are_those_of_the_digits() {
        const STEP: usize = if cfg!(miri) { 23 } else { 1 };
        let powers = (0..127).map(|bit| 1_i128 << bit).chain((0..39).filter_map(|power| 10_i128.checked_pow(power)));
        let near = powers.flat_map(|power| [power - 1, power, power + 1, power / 3, power / 7 * 5, -power]);
        let middles = (0..60).flat_map(|bit| {
            let middle = ((1_i128 << 54) + 1) << bit;
            [middle - 1, middle, middle + 1, -middle]
        });
        for value in near.chain(middles).step_by(STEP) {
            for scale in [-22_i8, -3, 0, 1, 9, 18, 19, 20, 21, 22, 23] {
                let (decimal, digits) = (decimal(value, scale), format!("{value}e{}", -i16::from(scale)));
                assert_eq!(f64::from_decimal(&decimal), Some(digits.parse().unwrap()), "{digits}");
                let single: f32 = digits.parse().unwrap();
                assert_eq!(f32::from_decimal(&decimal), single.is_finite().then_some(single), "{digits}");
                if let Some(odd) = decimal.odd_double() {
                    let half = |value: f64| CastTo::<f16>::cast_to(value).0.to_bits();
                    assert_eq!(half(odd), half(decimal.parsed_odd()), "{digits}");
                }
            }
        }
    }

    #[test]
    fn shorter_floats_are_rounded_once() {
        // Just above the middle between two floats: rounded to a double first, it would be the middle.
        let tie = decimal(1_000_000_059_604_645, 15);
        assert_eq!(f32::from_decimal(&tie), Some(1.000_000_1));
        assert_eq!(f16::from_decimal(&decimal(2049, 0)), Some(f16::from_f32(2048.0)));
        assert_eq!(f16::from_decimal(&decimal(2_049_000_000_001, 9)), Some(f16::from_f32(2050.0)));
        assert_eq!(f16::from_decimal(&decimal(65_520, 0)), None);
        // So close to the middle that the nearest double is the middle itself.
        for (value, scale, expected) in [
            (204_900_000_000_000_000_001, 17, Some(2050.0)),
            (-204_900_000_000_000_000_001, 17, Some(-2050.0)),
            (204_899_999_999_999_999_999, 17, Some(2048.0)),
            (204_900_000_000_000_000_000, 17, Some(2048.0)),
            (6_551_999_999_999_999_999_999, 17, Some(65_504.0)),
            (6_552_000_000_000_000_000_001, 17, None),
        ] {
            assert_eq!(f16::from_decimal(&decimal(value, scale)), expected.map(f16::from_f32), "{value}");
        }
        let wide = i256::from_i128(257).checked_mul(i256::from_i128(10).checked_pow(60).unwrap()).unwrap();
        for (more, expected) in [(-1, 256.0), (0, 256.0), (1, 258.0)] {
            let unscaled = Unscaled::Wide(wide.checked_add(i256::from_i128(more)).unwrap());
            assert_eq!(bf16::from_decimal(&Decimal { unscaled, scale: 60 }), Some(bf16::from_f32(expected)));
        }
        assert_eq!(f32::from_decimal(&decimal(1, -39)), None);
        assert_eq!(bf16::from_decimal(&decimal(-25, 2)), Some(bf16::from_f32(-0.25)));
    }

    #[test]
    fn messages_show_the_value() {
        assert_eq!(decimal(-150, 2).text(), "-1.50");
        assert_eq!(decimal(15, -2).text(), "1500");
        let longest = Decimal { unscaled: Unscaled::Wide(i256::MAX), scale: 1 }.text();
        assert!(longest.ends_with("96.7") && longest.len() == 78, "{longest}");
    }
}
