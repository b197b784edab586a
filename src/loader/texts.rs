//! Texts of values, by which rows and dictionaries are hashed. Dates, times, timestamps and durations are written as their ticks,
//! because arrow-cast has no text for many of them: it knows no time zones but those of IANA, and no dates beyond those of chrono.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, make_array};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_data::ArrayData;
#[cfg(feature = "python")]
use arrow_schema::TimeUnit;
use arrow_schema::{DataType, FieldRef, UnionFields};

use super::row_hashes::{NO_VALUE, fold, fold_bytes};
use crate::alloc::fallible;
use crate::error::{Error, ErrorKind, Result};

/// Returns what writes the values of an array, which [`with_ticks`] has made.
///
/// # Errors
/// If arrow-cast writes no values of this type.
pub(super) fn texts(array: &dyn Array) -> Result<ArrayFormatter<'_>> {
    ArrayFormatter::try_new(array, &FormatOptions::default()).map_err(|error| Error::unsupported(error.to_string()))
}

/// Returns a hash that goes on with the text of a value, or with [`NO_VALUE`] if it has none.
///
/// # Errors
/// If the allocation of the text fails.
pub(super) fn fold_text(hash: u64, texts: &ArrayFormatter<'_>, row: usize) -> Result<u64> {
    let value = texts.value(row);
    let text = fallible::written(|text| value.write(text).map_err(|error| Error::unsupported(error.to_string())));
    match text {
        Ok(text) => Ok(fold_bytes(hash, text.as_bytes())),
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(fold(hash, NO_VALUE)),
        Err(error) => Err(error),
    }
}

/// Returns the array with integers in place of dates, times, timestamps and durations, over the same memory.
///
/// # Errors
/// If the array breaks the rules of its type.
pub(super) fn with_ticks(array: &ArrayRef) -> Result<ArrayRef> {
    if !has_ticks(array.data_type()) {
        return Ok(array.clone());
    }
    relabelled(array.to_data()).map(make_array)
}

/// Returns whether values of this type are hashed as ticks, or have such values.
pub(super) fn has_ticks(data_type: &DataType) -> bool {
    let mut has_any = false;
    ticks_type(data_type, &mut |_| has_any = true);
    has_any
}

/// Returns a hash that goes on with the types in this one whose values are hashed as ticks, but for their time zones. Ticks of other
/// units are other numbers.
#[cfg(feature = "python")]
pub(super) fn fold_tick_types(hash: u64, data_type: &DataType) -> u64 {
    let mut types = String::new();
    ticks_type(data_type, &mut |found| types.push_str(tick_type_text(found)));
    if types.is_empty() { hash } else { fold_bytes(hash, types.as_bytes()) }
}

/// Returns the text of a type whose values are hashed as ticks, without a time zone. It is written out here: states last longer than the
/// names that arrow-rs gives its types.
#[cfg(feature = "python")]
fn tick_type_text(data_type: &DataType) -> &'static str {
    match data_type {
        DataType::Date32 => "Date32",
        DataType::Date64 => "Date64",
        DataType::Time32(TimeUnit::Second) => "Time32(s)",
        DataType::Time32(_) => "Time32(ms)",
        DataType::Time64(TimeUnit::Microsecond) => "Time64(\u{b5}s)",
        DataType::Time64(_) => "Time64(ns)",
        DataType::Timestamp(TimeUnit::Second, _) => "Timestamp(s)",
        DataType::Timestamp(TimeUnit::Millisecond, _) => "Timestamp(ms)",
        DataType::Timestamp(TimeUnit::Microsecond, _) => "Timestamp(\u{b5}s)",
        DataType::Timestamp(TimeUnit::Nanosecond, _) => "Timestamp(ns)",
        DataType::Duration(TimeUnit::Second) => "Duration(s)",
        DataType::Duration(TimeUnit::Millisecond) => "Duration(ms)",
        DataType::Duration(TimeUnit::Microsecond) => "Duration(\u{b5}s)",
        DataType::Duration(TimeUnit::Nanosecond) => "Duration(ns)",
        _ => "",
    }
}

fn relabelled(data: ArrayData) -> Result<ArrayData> {
    let data_type = ticks_type(data.data_type(), &mut |_| ());
    if data_type == *data.data_type() {
        return Ok(data);
    }
    let children = data.child_data().iter().cloned().map(relabelled).collect::<Result<_>>()?;
    let relabelled = data.into_builder().data_type(data_type).child_data(children).build();
    relabelled.map_err(|error| Error::invalid(error.to_string()))
}

/// Returns the type with integers of the same width in place of types with ticks, each of which `found` is called with.
fn ticks_type(data_type: &DataType, found: &mut dyn FnMut(&DataType)) -> DataType {
    let mut item = |field: &FieldRef| {
        let of_item = ticks_type(field.data_type(), found);
        if of_item == *field.data_type() {
            field.clone()
        } else {
            Arc::new(field.as_ref().clone().with_data_type(of_item))
        }
    };
    match data_type {
        DataType::List(field) => DataType::List(item(field)),
        DataType::LargeList(field) => DataType::LargeList(item(field)),
        DataType::ListView(field) => DataType::ListView(item(field)),
        DataType::LargeListView(field) => DataType::LargeListView(item(field)),
        DataType::FixedSizeList(field, size) => DataType::FixedSizeList(item(field), *size),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(item).collect()),
        DataType::Map(field, sorted) => DataType::Map(item(field), *sorted),
        DataType::Union(fields, mode) => {
            let (ids, fields): (Vec<i8>, Vec<FieldRef>) = fields.iter().map(|(id, field)| (id, item(field))).unzip();
            // The same ids are unique and not negative.
            UnionFields::try_new(ids, fields)
                .map_or_else(|_| data_type.clone(), |fields| DataType::Union(fields, *mode))
        }
        DataType::Dictionary(codes, values) => DataType::Dictionary(codes.clone(), Box::new(ticks_type(values, found))),
        DataType::RunEndEncoded(ends, values) => DataType::RunEndEncoded(ends.clone(), item(values)),
        DataType::Date32 | DataType::Time32(_) => {
            found(data_type);
            DataType::Int32
        }
        DataType::Date64 | DataType::Time64(_) | DataType::Timestamp(_, _) | DataType::Duration(_) => {
            found(data_type);
            DataType::Int64
        }
        other => other.clone(),
    }
}
