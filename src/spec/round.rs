//! Rounds to the nearest float of fewer bits, ties to even, once.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "rounding is what these functions are for; where a result must be exact, it is compared with its source"
)]

use half::{bf16, f16};

/// Returns a single that rounds to 16 bits as the double would. An inexact single is truncated and its last bit set, so
/// that the second rounding takes it for no tie. `half` rounds doubles twice, or loses their low bits.
#[inline(always)]
pub(crate) fn odd_single(value: f64) -> f32 {
    let near = value as f32;
    let back = f64::from(near);
    if back == value || value.is_nan() {
        return near;
    }
    f32::from_bits((near.to_bits() - u32::from(back.abs() > value.abs())) | 1)
}

/// Returns a double that rounds to fewer bits as the integer would, like [`odd_single`].
pub(super) fn odd_double(value: i128) -> f64 {
    let near = nearest_double(value);
    if exact_integer(near) == Some(value) {
        return near;
    }
    let farther = near.abs() as u128 > value.unsigned_abs();
    f64::from_bits((near.to_bits() - u64::from(farther)) | 1)
}

pub(super) fn nearest_double(value: i128) -> f64 {
    value as f64
}

pub(super) fn single(value: f64) -> f32 {
    if value.is_nan() { single_nan(value) } else { value as f32 }
}

pub(super) fn half(value: f64) -> f16 {
    f16::from_f32(if value.is_nan() { single_nan(value) } else { odd_single(value) })
}

pub(super) fn brain(value: f64) -> bf16 {
    bf16::from_f32(if value.is_nan() { single_nan(value) } else { odd_single(value) })
}

/// Returns the quiet NaN with the sign and the first bits of this one: of a cast, the language leaves both open.
fn single_nan(value: f64) -> f32 {
    let bits = value.to_bits();
    let (sign, payload) = ((bits >> 32) as u32 & 1 << 31, (bits >> 29) as u32 & 0x003f_ffff);
    f32::from_bits(sign | 0x7fc0_0000 | payload)
}

/// Returns the integer that a float equals, if an `i128` holds it.
pub(super) fn exact_integer(value: f64) -> Option<i128> {
    const LIMIT: f64 = 170_141_183_460_469_231_731_687_303_715_884_105_728.0; // 2^127
    (value.fract() == 0.0 && (-LIMIT..LIMIT).contains(&value)).then_some(value as i128)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_odd_double_is_the_integers_odd_neighbour() {
        for value in [0, 1, -1, 1 << 53, -(1 << 90), i128::MIN] {
            assert_eq!(exact_integer(odd_double(value)), Some(value));
        }
        for value in [(1 << 53) + 1, -(1 << 53) - 1, (1 << 54) + 3, i128::MAX, i128::MIN + 1, (1 << 100) - 1] {
            let odd = odd_double(value);
            assert_eq!(odd.to_bits() & 1, 1, "{value}");
            let [below, above] = [odd.to_bits() - 1, odd.to_bits() + 1].map(|bits| f64::from_bits(bits).abs() as u128);
            assert!((below..=above).contains(&value.unsigned_abs()), "{value}");
        }
    }
}
