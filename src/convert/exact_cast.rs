//! Casts arrays exactly: each value survives the way there and back, or the lowest row that does not is an error.

use std::ops::Range;

use arrow_array::timezone::Tz;
use arrow_array::{Array, ArrayRef, make_array};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType};

use super::rounds::{LOOK_UP, in_rounds, look_for_signals};
use super::shown::{begins_later, has_fixed_lists, shown};
use crate::error::{Error, ErrorKind, Result, catch_panic};

/// What to do where a cast is missing.
const CONVERT_FIRST: &str = "request the type that the data has, or convert it first";

/// Refuses types without a cast in both directions: without a way back no value could be shown to survive.
pub(super) fn check_cast(from: &DataType, to: &DataType) -> Result<()> {
    // Nulls alone are nulls in any type.
    let way_back = *from == DataType::Null || arrow_cast::can_cast_types(to, from);
    if arrow_cast::can_cast_types(from, to) && way_back {
        return Ok(());
    }
    Err(no_cast(from, to))
}

pub(super) fn no_cast(from: &DataType, to: &DataType) -> Error {
    refused(from, to, "no cast exists").remedy_is(CONVERT_FIRST)
}

/// The values that rows show as another type, if each one survives the way there and back.
pub(super) fn cast_shown(original: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    if is_flat(original.data_type()) {
        return cast_there_and_back(original, to, |array| Ok(array.clone()));
    }
    // arrow-rs takes the items of fixed-size lists from the first one on.
    if begins_later(&original.to_data()) && has_fixed_lists(to) {
        return cast_there_and_back(original, to, shown);
    }
    // Slices that look for a row begin later, too.
    let as_it_is = |rows: &ArrayRef| {
        if has_fixed_lists(to) && begins_later(&rows.to_data()) { shown(rows) } else { Ok(rows.clone()) }
    };
    // Most values that no row shows can be cast, and dictionaries keep them.
    catch_panic(|| cast_there_and_back(original, to, as_it_is)).or_else(|error| match error.kind() {
        ErrorKind::Cast | ErrorKind::Unsupported => match cast_there_and_back(original, to, shown) {
            Err(of_shown) if of_shown.kind() == ErrorKind::Unsupported => Err(error),
            made => made,
        },
        _ => Err(error),
    })
}

/// What is wrong with a value that the cast back does not give.
const OTHER: &str = "a value does not survive the round trip";

const HOLDS_EVERY_VALUE: &str = "request a type that holds every value";

/// The error of a value that the cast back does not give.
pub(super) fn lost(from: &DataType, to: &DataType) -> Error {
    refused(from, to, OTHER).remedy_is(HOLDS_EVERY_VALUE)
}

/// The error of a row that a cast refuses, or `lost` in the first row before it in which the cast back gives another value.
fn lowest(
    error: Error,
    original: &ArrayRef,
    there_and_back: impl Fn(&ArrayRef) -> Option<ArrayRef>,
    lost: impl Fn() -> Error,
) -> Error {
    let differs = |start, length| {
        let rows = original.slice(start, length);
        there_and_back(&rows).is_some_and(|back| matches!(first_difference(&rows, &back), Ok(Some(_))))
    };
    let before = error.row().unwrap_or_default();
    let row = first_row(before, |start, length| !differs(start, length));
    if before > 0 && differs(row, 1) { lost().at_row(row) } else { error }
}

/// The values as another type, if each one survives the way there and back. `prepare` gives what is cast in place of some rows.
#[allow(clippy::disallowed_methods, reason = "the caller has asked for the memory: require_cast")]
fn cast_there_and_back(
    original: &ArrayRef,
    to: &DataType,
    prepare: impl Fn(&ArrayRef) -> Result<ArrayRef>,
) -> Result<ArrayRef> {
    let from = original.data_type();
    let lost = |reason: String| refused(from, to, &reason).remedy_is(HOLDS_EVERY_VALUE);
    let impossible = |error: ArrowError| impossible(from, to, &error);
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let casts = |rows: &ArrayRef, to| prepare(rows).is_ok_and(|rows| cast_with_options(&rows, to, &options).is_ok());
    let original = &prepare(original)?;
    let there_and_back = |rows: &ArrayRef| {
        let there = cast_with_options(&prepare(rows).ok()?, to, &options).ok()?;
        cast_with_options(&there, from, &options).ok()
    };
    let lowest = |error| lowest(error, original, there_and_back, || lost(OTHER.to_owned()));
    let converted = cast_with_options(original, to, &options).map_err(|error| {
        let fits = |start, length| casts(&original.slice(start, length), to);
        if !fits(0, 0) {
            return impossible(error);
        }
        lowest(lost(error.to_string()).at_row(first_row(original.len(), fits)))
    })?;
    if converted.data_type() != to {
        let reason = format!("the cast gives {}", converted.data_type());
        return Err(refused(from, to, &reason).remedy_is(CONVERT_FIRST));
    }
    let mut differs = None;
    let mut compare = |rows: Range<usize>| {
        if differs.is_none() {
            let (own, converted) = (original.slice(rows.start, rows.len()), converted.slice(rows.start, rows.len()));
            let back = cast_with_options(&converted, from, &options).map_err(|error| {
                let fits = |start, length| casts(&converted.slice(start, length), from);
                if !fits(0, 0) {
                    return impossible(error);
                }
                let row = rows.start + first_row(converted.len(), fits);
                lowest(lost(format!("{OTHER}: {error}")).at_row(row))
            })?;
            differs = first_difference(&own, &back).map_err(impossible)?.map(|row| rows.start + row);
        }
        Ok(())
    };
    let of_rows = match from {
        DataType::Dictionary(_, values) => values,
        other => other,
    };
    match original.len() {
        _ if *from == DataType::Null => {}
        rows if is_flat(to) && is_flat(of_rows) => in_rounds(rows, LOOK_UP, compare)?,
        rows => {
            look_for_signals(rows.saturating_mul(LOOK_UP))?;
            compare(0..rows)?;
        }
    }
    if let Some(row) = differs {
        return Err(lost(OTHER.to_owned()).at_row(row));
    }
    Ok(converted)
}

fn refused(from: &DataType, to: &DataType, reason: &str) -> Error {
    Error::new(ErrorKind::Cast, format!("{from} as {to}: {reason}"))
}

/// The error of types between which there is no cast, whatever the values.
pub(super) fn impossible(from: &DataType, to: &DataType, error: &ArrowError) -> Error {
    let zone = unknown_zone(from).or_else(|| unknown_zone(to));
    let reason = match zone {
        Some(zone) => format!("{zone:?} is no time zone of the IANA database, and no offset as \"+01:00\""),
        None => error.to_string(),
    };
    refused(from, to, &reason).remedy_is(CONVERT_FIRST)
}

/// Returns the time zone of timestamps if it is an unknown one, whose clock a cast cannot read.
fn unknown_zone(data_type: &DataType) -> Option<&str> {
    match data_type {
        DataType::Timestamp(_, Some(zone)) if zone.parse::<Tz>().is_err() => Some(zone),
        _ => None,
    }
}

/// Whether a cast of some rows of this type reads those rows alone: it casts all items of lists, and all values of dictionaries.
fn is_flat(data_type: &DataType) -> bool {
    !data_type.is_nested() && !matches!(data_type, DataType::Dictionary(_, _) | DataType::RunEndEncoded(_, _))
}

/// The first row in which two arrays differ, null against null counting as equal.
fn first_difference(original: &ArrayRef, back: &ArrayRef) -> std::result::Result<Option<usize>, ArrowError> {
    let (own, other) = (original.to_data(), back.to_data());
    if own == other {
        return Ok(None);
    }
    if has_null_values(&own) || has_null_values(&other) {
        let (own, other) = (with_null_codes(own)?, with_null_codes(other)?);
        return Ok(if own == other { None } else { Some(first_other_row(&make_array(own), &make_array(other))) });
    }
    Ok(Some(first_other_row(original, back)))
}

fn first_other_row(original: &ArrayRef, back: &ArrayRef) -> usize {
    first_row(original.len(), |start, length| {
        let end = start.saturating_add(length);
        back.len() >= end && original.slice(start, length).to_data() == back.slice(start, length).to_data()
    })
}

/// Returns whether dictionaries, at any level, have nulls among their values.
fn has_null_values(data: &ArrayData) -> bool {
    let is_dictionary = matches!(data.data_type(), DataType::Dictionary(_, _));
    data.child_data().iter().any(|child| is_dictionary && child.null_count() > 0 || has_null_values(child))
}

/// Returns the same values, where codes of null values are null themselves: a null is a null, and casts tell them no apart.
#[allow(clippy::disallowed_methods, reason = "the caller has asked for the memory: require_cast")]
fn with_null_codes(data: ArrayData) -> std::result::Result<ArrayData, ArrowError> {
    if !has_null_values(&data) {
        return Ok(data);
    }
    let children = data.child_data().iter().cloned().map(with_null_codes);
    let children = children.collect::<std::result::Result<Vec<_>, _>>()?;
    let nulls = match data.data_type() {
        DataType::Dictionary(_, _) => make_array(data.clone()).logical_nulls(),
        _ => data.nulls().cloned(),
    };
    data.into_builder().child_data(children).nulls(nulls).build()
}

/// The first row for which `is_fine` does not hold, given a start and a number of rows, where it does not hold for all: by
/// halving, which serves types of any nesting.
fn first_row(rows: usize, is_fine: impl Fn(usize, usize) -> bool) -> usize {
    let (mut start, mut length) = (0, rows);
    while length > 1 {
        let half = length / 2;
        (start, length) = if is_fine(start, half) { (start + half, length - half) } else { (start, half) };
    }
    start
}
