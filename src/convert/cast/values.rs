//! Casts single values: refuses a value out of range, and rounds to floats.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "each cast is paired with the check that decides whether its result is used"
)]

use half::{bf16, f16};

use crate::spec::odd_single;

/// A byte as a bool: true unless it is 0.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub(in crate::convert) struct Truth(pub(in crate::convert) u8);

/// Casts to another type: the value there, and whether it is the same, up to rounding in a float.
pub(in crate::convert) trait CastTo<D>: Copy {
    /// Like [`Self::cast_to`], but faster: it may report a fitting value as a misfit, and never the opposite.
    #[inline(always)]
    fn cast_quickly(self) -> (D, bool) {
        self.cast_to()
    }

    fn cast_to(self) -> (D, bool);
}

/// A type that casts start from.
pub(super) trait CastSource:
    CastTo<Truth>
    + CastTo<i8>
    + CastTo<i16>
    + CastTo<i32>
    + CastTo<i64>
    + CastTo<u8>
    + CastTo<u16>
    + CastTo<u32>
    + CastTo<u64>
    + CastTo<f16>
    + CastTo<bf16>
    + CastTo<f32>
    + CastTo<f64>
    + CastTo<OddSingle>
{
    fn text(self) -> String;
}

macro_rules! source {
    ($format:literal => $($type:ty),+) => { $(impl CastSource for $type {
        fn text(self) -> String {
            format!($format, self)
        }
    })+ };
}
source!("{}" => i8, i16, i32, i64, u8, u16, u32, u64);
// With an exponent where there are many zeros.
source!("{:?}" => f16, bf16, f32, f64);

impl CastSource for Truth {
    fn text(self) -> String {
        (self.0 != 0).to_string()
    }
}

macro_rules! from_integer {
    ($source:ty) => {
        from_integer!(@integer $source => i8, i16, i32, i64, u8, u16, u32, u64);
        impl CastTo<Truth> for $source {
            #[inline(always)]
            fn cast_to(self) -> (Truth, bool) {
                (Truth(u8::from(self != 0)), self == 0 || self == 1)
            }
        }
        impl CastTo<f32> for $source {
            #[inline(always)]
            fn cast_to(self) -> (f32, bool) {
                (self as f32, true)
            }
        }
        impl CastTo<f64> for $source {
            #[inline(always)]
            fn cast_to(self) -> (f64, bool) {
                (self as f64, true)
            }
        }
        impl CastTo<OddSingle> for $source {
            #[inline(always)]
            fn cast_to(self) -> (OddSingle, bool) {
                from_integer!(@double $source, self).cast_to()
            }
        }
        impl CastTo<f16> for $source {
            #[inline(always)]
            fn cast_to(self) -> (f16, bool) {
                from_integer!(@double $source, self).cast_to()
            }
        }
        impl CastTo<bf16> for $source {
            #[inline(always)]
            fn cast_to(self) -> (bf16, bool) {
                from_integer!(@double $source, self).cast_to()
            }
        }
    };
    // A double that rounds to 16 bits as the integer would: see `odd_single`.
    (@double $source:ty, $value:expr) => {{
        let near = $value as f64;
        let back = near as $source;
        let farther = (near > 0.0) == (back > $value);
        if back == $value { near } else { f64::from_bits((near.to_bits() - u64::from(farther)) | 1) }
    }};
    (@integer $source:ty => $($target:ty),+) => { $(impl CastTo<$target> for $source {
        #[inline(always)]
        fn cast_to(self) -> ($target, bool) {
            let value = self as $target;
            // The same bits can be another number when exactly one of the types is signed.
            #[allow(unused_comparisons, reason = "one of the types may be unsigned")]
            let same_sign = (self < 0) == (value < 0);
            (value, value as $source == self && same_sign)
        }
    })+ };
}
from_integer!(i8);
from_integer!(i16);
from_integer!(i32);
from_integer!(i64);
from_integer!(u8);
from_integer!(u16);
from_integer!(u32);
from_integer!(u64);

macro_rules! from_float {
    ($source:ty) => {
        from_float!(@integer $source => i8, i16, i32, i64, u8, u16, u32, u64);
        impl CastTo<Truth> for $source {
            #[inline(always)]
            fn cast_to(self) -> (Truth, bool) {
                (Truth(u8::from(self != 0.0)), self == 0.0 || self == 1.0)
            }
        }
    };
    (@integer $source:ty => $($target:ty),+) => { $(impl CastTo<$target> for $source {
        #[inline(always)]
        fn cast_to(self) -> ($target, bool) {
            // Powers of two, so exact in every float: the first value above the range, and the lowest in it.
            const ABOVE: $source = (<$target>::MAX / 2 + 1) as $source * 2.0;
            const LOWEST: $source = <$target>::MIN as $source;
            (self as $target, (LOWEST..ABOVE).contains(&self) && self.trunc() == self)
        }
    })+ };
}
from_float!(f32);
from_float!(f64);

/// A single that rounds to 16 bits as the original value would.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct OddSingle(f32);

impl CastTo<OddSingle> for f64 {
    #[inline(always)]
    fn cast_to(self) -> (OddSingle, bool) {
        (OddSingle(odd_single(self)), true)
    }
}

impl CastTo<OddSingle> for f32 {
    #[inline(always)]
    fn cast_to(self) -> (OddSingle, bool) {
        (OddSingle(self), true)
    }
}

macro_rules! float_to_float {
    ($($source:ty => $target:ty: $cast:expr;)+) => { $(impl CastTo<$target> for $source {
        #[inline(always)]
        fn cast_to(self) -> ($target, bool) {
            let value: $target = $cast(self);
            // Finite values must stay finite; NaN and infinities stay what they are.
            (value, value.is_finite() || !self.is_finite())
        }
    })+ };
}
impl CastTo<f32> for f64 {
    #[inline(always)]
    fn cast_quickly(self) -> (f32, bool) {
        let value = self as f32;
        (value, value.abs() != f32::INFINITY)
    }

    #[inline(always)]
    fn cast_to(self) -> (f32, bool) {
        let (value, fits) = self.cast_quickly();
        // Finite values must stay finite; NaN and infinities stay what they are.
        (value, fits || self.is_infinite())
    }
}

float_to_float!(
    f64 => f64: |value| value;
    f64 => f16: |value| f16::from_f32(odd_single(value));
    f64 => bf16: |value| bf16::from_f32(odd_single(value));
    f32 => f64: f64::from;
    f32 => f32: |value| value;
    f32 => f16: f16::from_f32;
    f32 => bf16: bf16::from_f32;
);

macro_rules! by_way_of {
    ($source:ty, $way:expr => $($target:ty),+) => { $(impl CastTo<$target> for $source {
        #[inline(always)]
        fn cast_to(self) -> ($target, bool) {
            $way(self).cast_to()
        }
    })+ };
}
by_way_of!(f16, f16::to_f32 => Truth, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64, OddSingle);
by_way_of!(bf16, bf16::to_f32 => Truth, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64, OddSingle);
by_way_of!(Truth, |truth: Truth| u8::from(truth.0 != 0) => Truth, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64, OddSingle);

#[cfg(test)]
mod tests {
    use super::*;

    fn fits<S: CastTo<D>, D>(value: S) -> bool {
        value.cast_to().1
    }

    #[test]
    fn integers_fit_by_value_not_by_bits() {
        assert!(fits::<i64, i8>(-128) && !fits::<i64, i8>(-129) && !fits::<i64, i8>(128));
        assert!(!fits::<i64, u64>(-1) && !fits::<u64, i64>(u64::MAX) && fits::<u64, i64>(i64::MAX as u64));
        assert!(!fits::<i8, u8>(-1) && !fits::<u8, i8>(200) && fits::<u8, i8>(127));
        assert!(fits::<i32, Truth>(1) && fits::<i32, Truth>(0) && !fits::<i32, Truth>(2) && !fits::<i32, Truth>(-1));
    }

    #[test]
    fn floats_fit_integers_only_whole_and_in_range() {
        assert!(fits::<f64, i64>(-9_223_372_036_854_775_808.0) && !fits::<f64, i64>(9_223_372_036_854_775_808.0));
        assert!(fits::<f64, u64>(18_446_744_073_709_549_568.0) && !fits::<f64, u64>(18_446_744_073_709_551_616.0));
        assert!(fits::<f32, i32>(2_147_483_520.0) && !fits::<f32, i32>(2_147_483_648.0));
        assert!(
            !fits::<f64, i32>(1.5) && !fits::<f64, i32>(f64::NAN) && !fits::<f64, u8>(-1.0) && fits::<f64, u8>(-0.0)
        );
        assert!(!fits::<f32, u8>(f32::INFINITY) && fits::<f16, i8>(f16::from_f32(-128.0)));
    }

    fn cast<S: CastTo<D>, D>(value: S) -> D {
        value.cast_to().0
    }

    #[test]
    fn large_integers_round_to_sixteen_bits_once() {
        for power in (8..63).map(|bits| 1_i64 << bits) {
            // The middle between this power and the next number of bfloat16, which has 8 bits.
            let (below, above) = (power as f64, (power + (power >> 7)) as f64);
            let middle = power + (power >> 8);
            for (value, expected) in [(middle - 1, below), (middle, below), (middle + 1, above)] {
                // Where a step is 1, one beside the middle is no number between the two.
                let expected = if middle - 1 < power { continue } else { expected };
                assert_eq!(cast::<i64, bf16>(value).to_f64(), expected, "{value}");
                assert_eq!(cast::<i64, bf16>(-value).to_f64(), -expected, "-{value}");
                assert_eq!(cast::<u64, bf16>(value as u64).to_f64(), expected, "{value}");
            }
        }
        // float16 has 11 bits and ends at 65504: the cast goes through the float32 that rounds to odd.
        for power in (12..63).map(|bits| 1_i64 << bits) {
            let (scale, middle) = ((power as f64).recip() as f32, power + (power >> 11));
            let half = |value: i64| f16::from_f32(cast::<i64, OddSingle>(value).0 * scale).to_f64();
            let above = 1.0 + 1.0 / 1024.0;
            assert_eq!((half(middle - 1), half(middle), half(middle + 1)), (1.0, 1.0, above), "{middle}");
            assert_eq!((half(1 - middle), half(-middle), half(-1 - middle)), (-1.0, -1.0, -above), "-{middle}");
        }
    }

    #[test]
    fn floats_round_but_do_not_overflow() {
        assert!(fits::<f64, f32>(0.1) && !fits::<f64, f32>(1e300) && fits::<f64, f32>(f64::INFINITY));
        assert!(fits::<f64, f32>(f64::NAN) && fits::<f64, f32>(1e-300));
        assert!(fits::<i64, f32>(i64::MAX) && !fits::<i32, f16>(70_000) && fits::<i32, f16>(2049));
        assert!(fits::<f32, bf16>(3.0e38) && !fits::<f32, bf16>(f32::MAX) && !fits::<f32, f16>(65_520.0));
    }
}
