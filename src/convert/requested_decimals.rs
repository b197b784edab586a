//! Decimals as floats and floats as decimals, for requests: the nearest value of either. arrow-rs multiplies floats by powers of ten, so that
//! 3.0 becomes a decimal with digits of its own behind the 17th.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, DecimalType, Float16Type,
    Float32Type, Float64Type,
};
use arrow_array::{Array, ArrayRef, PrimitiveArray};
use arrow_buffer::i256;
use arrow_schema::DataType;

use super::decimal::{Decimal, FromDecimal, POWERS};
use super::exact_cast::lost;
use super::rounds::{LOOK_UP, in_rounds};
use crate::alloc::fallible;
use crate::error::{Error, Result};

/// Whether values of one type are decimals and of the other floats.
pub(super) fn are_decimals_and_floats(from: &DataType, to: &DataType) -> bool {
    let are = |decimals: &DataType, floats: &DataType| decimals.is_decimal() && floats.is_floating();
    are(from, to) || are(to, from)
}

/// Returns decimals as floats, or floats as decimals, if the nearest value of the other type leads back to each.
///
/// # Errors
/// Names the first row with another value; for other types; if an allocation fails.
pub(super) fn nearest_values(original: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let from = original.data_type();
    if let Some(scale) = scale_of(from) {
        let unscaled = unscaled_of(original)?;
        let decimals = Decimals { unscaled: &*unscaled, scale };
        return match to {
            DataType::Float16 => as_floats::<Float16Type>(original, &decimals, to, 0),
            DataType::Float32 => as_floats::<Float32Type>(original, &decimals, to, 6),
            DataType::Float64 => as_floats::<Float64Type>(original, &decimals, to, 15),
            _ => Err(other_types()),
        };
    }
    match from {
        DataType::Float16 => of_floats::<Float16Type>(original, to),
        DataType::Float32 => of_floats::<Float32Type>(original, to),
        DataType::Float64 => of_floats::<Float64Type>(original, to),
        _ => Err(other_types()),
    }
}

fn other_types() -> Error {
    Error::internal("a cast of no decimals")
}

fn scale_of(data_type: &DataType) -> Option<i8> {
    match data_type {
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => Some(*scale),
        _ => None,
    }
}

/// The stored integers of an array, by their row.
type UnscaledOf<'a> = dyn Fn(usize) -> i256 + 'a;

struct Decimals<'a> {
    unscaled: &'a UnscaledOf<'a>,
    scale: i8,
}

fn unscaled_of(array: &ArrayRef) -> Result<Box<UnscaledOf<'_>>> {
    fn of<T: DecimalType>(array: &ArrayRef, wide: impl Fn(T::Native) -> i256 + 'static) -> Box<UnscaledOf<'_>> {
        let values = array.as_primitive::<T>().values();
        Box::new(move |row| values.get(row).copied().map_or(i256::ZERO, &wide))
    }
    match array.data_type() {
        DataType::Decimal32(..) => Ok(of::<Decimal32Type>(array, |value| i256::from_i128(value.into()))),
        DataType::Decimal64(..) => Ok(of::<Decimal64Type>(array, |value| i256::from_i128(value.into()))),
        DataType::Decimal128(..) => Ok(of::<Decimal128Type>(array, i256::from_i128)),
        DataType::Decimal256(..) => Ok(of::<Decimal256Type>(array, |value| value)),
        _ => Err(other_types()),
    }
}

/// The values of so many rows, which are not null; others are zero. `None` of `value` is one that does not survive.
fn collected<T: Copy + Default>(
    original: &ArrayRef,
    to: &DataType,
    value: impl Fn(usize) -> Option<T>,
) -> Result<Vec<T>> {
    let mut values = fallible::with_room(original.len())?;
    in_rounds(original.len(), LOOK_UP, |rows: Range<usize>| {
        for row in rows {
            let made = if original.is_valid(row) { value(row) } else { Some(T::default()) };
            values.push(made.ok_or_else(|| lost(original.data_type(), to).at_row(row))?);
        }
        Ok(())
    })?;
    Ok(values)
}

/// `digits`: how many of a decimal survive in such a float whatever they are.
fn as_floats<T>(original: &ArrayRef, decimals: &Decimals<'_>, to: &DataType, digits: u32) -> Result<ArrayRef>
where
    T: ArrowPrimitiveType,
    T::Native: FromDecimal + Into<f64>,
{
    // Under larger scales a float32 may be too small to have all of its digits.
    let surviving = 10_i128.checked_pow(digits).filter(|_| decimals.scale.unsigned_abs() <= 22).unwrap_or(0);
    let nearest = |row| {
        let unscaled = (decimals.unscaled)(row);
        let value = T::Native::from_decimal(&Decimal::new(unscaled, decimals.scale))?;
        let is_short = unscaled.to_i128().is_some_and(|unscaled| unscaled.abs() < surviving);
        let survives = is_short || nearest_decimal(value.into(), decimals.scale) == Some(unscaled);
        survives.then_some(value)
    };
    let values = collected(original, to, nearest)?;
    Ok(Arc::new(PrimitiveArray::<T>::new(values.into(), original.nulls().cloned())))
}

fn of_floats<T>(original: &ArrayRef, to: &DataType) -> Result<ArrayRef>
where
    T: ArrowPrimitiveType,
    T::Native: FromDecimal + Into<f64>,
{
    let floats = original.as_primitive::<T>().values();
    let scale = scale_of(to).ok_or_else(other_types)?;
    let nearest = |row: usize| {
        let value: f64 = floats.get(row).copied()?.into();
        let unscaled = nearest_decimal(value, scale)?;
        let back: f64 = T::Native::from_decimal(&Decimal::new(unscaled, scale))?.into();
        (back.to_bits() == value.to_bits()).then_some(unscaled)
    };
    match to {
        DataType::Decimal32(precision, _) => {
            decimals::<Decimal32Type>(original, to, *precision, |row| i32::try_from(nearest(row)?.to_i128()?).ok())
        }
        DataType::Decimal64(precision, _) => {
            decimals::<Decimal64Type>(original, to, *precision, |row| i64::try_from(nearest(row)?.to_i128()?).ok())
        }
        DataType::Decimal128(precision, _) => {
            decimals::<Decimal128Type>(original, to, *precision, |row| nearest(row)?.to_i128())
        }
        DataType::Decimal256(precision, _) => decimals::<Decimal256Type>(original, to, *precision, nearest),
        _ => Err(other_types()),
    }
}

fn decimals<T: DecimalType>(
    original: &ArrayRef,
    to: &DataType,
    precision: u8,
    nearest: impl Fn(usize) -> Option<T::Native>,
) -> Result<ArrayRef> {
    let scale = scale_of(to).unwrap_or_default();
    let fits = |value: &T::Native| T::validate_decimal_precision(*value, precision, scale).is_ok();
    let values = collected(original, to, |row| nearest(row).filter(fits))?;
    let array = PrimitiveArray::<T>::new(values.into(), original.nulls().cloned());
    Ok(Arc::new(array.with_data_type(to.clone())))
}

/// The stored integer of the decimal that is nearest to a number; `None` if it has more than 256 bits, or there is none.
fn nearest_decimal(value: f64, scale: i8) -> Option<i256> {
    /// A double tells decimals of up to 15 digits from each other, so that one that leads back to it is the nearest.
    const TOLD_APART: f64 = 1e15;
    if let Some(power) = POWERS.get(usize::from(scale.unsigned_abs())) {
        let scaled = if scale < 0 { value / power } else { value * power }.round();
        if scaled.abs() < TOLD_APART {
            #[expect(clippy::cast_possible_truncation, reason = "an integer below 10^15")]
            let unscaled = i256::from_i128(scaled as i128);
            let back = f64::from_decimal(&Decimal::new(unscaled, scale))?;
            if back.to_bits() == value.to_bits() {
                return Some(unscaled);
            }
        }
    }
    // The digits of a float that are asked for are those of its exact value, rounded.
    let text = format!("{value:.*}", usize::try_from(scale).unwrap_or(0));
    let unscaled = i256::from_string(&text.replace('.', ""))?;
    if scale >= 0 {
        return Some(unscaled);
    }
    let power = i256::from_i128(10).checked_pow(scale.unsigned_abs().into())?;
    let (quotient, rest) = (unscaled.checked_div(power)?, unscaled.checked_rem(power)?);
    let is_half = rest.wrapping_abs().checked_mul(i256::from_i128(2))? >= power;
    let away = if unscaled < i256::ZERO { -1 } else { 1 };
    quotient.checked_add(i256::from_i128(if is_half { away } else { 0 }))
}
