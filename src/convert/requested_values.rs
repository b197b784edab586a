//! The values of an array as those of another type. What arrow-rs casts to other values than a request means is made here.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, UInt8Type};
use arrow_array::{Array, ArrayRef, BooleanArray, make_array, new_empty_array};
use arrow_buffer::{Buffer, NullBuffer};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_data::{ArrayData, ArrayDataBuilder};
use arrow_schema::{DataType, Field, FieldRef};

use super::bitmap::bits_of_bools;
use super::exact_cast::{cast_shown, check_cast, impossible, no_cast};
use super::forbidden::row_with_item;
use super::requested_decimals::{are_decimals_and_floats, nearest_values};
use super::shown::shown;
use crate::alloc::fallible;
use crate::error::{Error, Result};
use crate::spec::{BOOL8, is_utf8, item_of_lists};

/// Refuses types between which no cast is exact, whatever the values.
///
/// # Errors
/// When there is no cast in both directions, or one that would lose nulls.
pub(super) fn check_exact(from: &DataType, to: &DataType) -> Result<()> {
    check_cast(from, to)?;
    if has_items_as_lists(from, to, false) { Err(no_cast(from, to)) } else { Ok(()) }
}

/// Returns the values of an array of this field as another type, if each one survives. The caller has asked for the memory.
///
/// # Errors
/// When a value does not survive.
#[allow(clippy::disallowed_methods, reason = "the caller has asked for the memory: require_cast")]
pub(super) fn requested_values(original: &ArrayRef, own: &Field, to: &DataType) -> Result<ArrayRef> {
    if let Some(made) = packed(original, to)? {
        return Ok(made);
    }
    if let Some(made) = without_items(original, to)? {
        return Ok(made);
    }
    let from = own.data_type();
    match (from, to) {
        (DataType::Struct(fields), DataType::Struct(wanted)) if is_own_way(own, to) => {
            let structs = original.as_struct();
            let columns = structs.columns().iter().zip(fields.iter().zip(wanted)).map(|(column, (own, wanted))| {
                requested_values(&with_nulls(column, structs.nulls())?, own, wanted.data_type())
            });
            let columns = columns.map(|column| Ok(column?.to_data())).collect::<Result<_>>()?;
            built(array_of(to, structs).nulls(structs.nulls().cloned()).child_data(columns))
        }
        (_, DataType::FixedSizeList(item, 1)) if is_item(from) => {
            let values = requested_values(original, own, item.data_type())?;
            built(array_of(to, original).nulls(original.logical_nulls()).add_child_data(values.to_data()))
        }
        // As `arrow.bool8` says, every byte but 0 is true.
        (_, DataType::Boolean) if is_of_bools(own, to) => decoded(original, to),
        _ if is_of_bools(own, to) => {
            let bits = packed(original, &DataType::Boolean)?;
            cast_shown(&bits.map_or_else(|| decoded(original, &DataType::Boolean), Ok)?, to)
        }
        (DataType::RunEndEncoded(_, values), _) if is_of_bools(values, to) => {
            requested_values(&decoded(original, values.data_type())?, values, to)
        }
        _ if are_decimals_and_floats(values_of(from), to) => match values_of(from) {
            values if values == from => nearest_values(original, to),
            values => nearest_values(&decoded(original, values)?, to),
        },
        (DataType::Dictionary(_, values), _) if is_of_codes(from, to) => cast_shown(&decoded(original, values)?, to),
        _ => match own_items(own, to) {
            Some(items) => with_items(original, items, to),
            None => cast_shown(original, to),
        },
    }
}

/// Lists whose items become those of another type by [`requested_values`], and which become lists of another kind then.
fn with_items(original: &ArrayRef, (item, wanted): (&Field, &FieldRef), to: &DataType) -> Result<ArrayRef> {
    // Every byte is a bool, also of items that no row shows. Other items of those may not survive.
    let lists = if is_of_bools(leaf(item), leaf(wanted).data_type()) { original.clone() } else { shown(original)? };
    let data = lists.to_data();
    let items = data.child_data().first().cloned().map(make_array);
    let items = items.ok_or_else(|| Error::internal("lists without items"))?;
    let items = requested_values(&items, item, wanted.data_type()).map_err(|error| {
        let row = error.row().and_then(|item| row_with_item(lists.as_ref(), item, None));
        row.map_or(error.clone(), |row| error.at_row(row))
    })?;
    let of_items = lists_of(original.data_type(), wanted);
    let lists = built(data.into_builder().data_type(of_items).child_data(vec![items.to_data()]))?;
    if lists.data_type() == to { Ok(lists) } else { cast_shown(&lists, to) }
}

/// Whether [`requested_values`] does not leave a request to arrow-rs, but for what it knows of all values.
fn is_own_way(own: &Field, to: &DataType) -> bool {
    match (own.data_type(), to) {
        (DataType::Struct(own), DataType::Struct(wanted)) => {
            own.iter().zip(wanted).any(|(own, wanted)| is_own_way(own, wanted.data_type()))
        }
        (from, to) => {
            let has_own_items = own_items(own, to).is_some();
            let is_nearest = are_decimals_and_floats(values_of(from), to);
            is_of_bools(own, to)
                || matches!(from, DataType::RunEndEncoded(_, values) if is_of_bools(values, to))
                || has_own_items
                || is_nearest
                || is_list_of_one(from, to)
                || is_of_codes(from, to)
                || is_without_items(from, to)
        }
    }
}

/// Whether each value becomes the one item of a list. A null becomes a null list: arrow-rs makes a list of a null of it.
fn is_list_of_one(from: &DataType, to: &DataType) -> bool {
    is_item(from) && matches!(to, DataType::FixedSizeList(_, 1))
}

/// Whether lists, dictionaries or runs, at any level, have items, values or fields of them that [`is_list_of_one`] is true of: nothing here
/// makes these.
fn has_items_as_lists(from: &DataType, to: &DataType, is_below: bool) -> bool {
    if is_below && is_list_of_one(from, to) {
        return true;
    }
    match (from, to, item(from), item(to)) {
        (_, DataType::Dictionary(_, wanted), ..) => has_items_as_lists(values_of(from), wanted, true),
        (_, DataType::RunEndEncoded(_, wanted), ..) => has_items_as_lists(values_of(from), wanted.data_type(), true),
        (_, _, Some(from), Some(to)) => has_items_as_lists(from, to, true),
        (DataType::Struct(from), DataType::Struct(to), ..) => {
            from.iter().zip(to).any(|(from, to)| has_items_as_lists(from.data_type(), to.data_type(), is_below))
        }
        _ => false,
    }
}

/// Whether bools that are bytes become bits, or text: `true` and `false` as those that are bits, where their bytes are 1 and 0.
fn is_of_bools(own: &Field, to: &DataType) -> bool {
    let text = match to {
        DataType::Dictionary(_, values) => values,
        other => other,
    };
    let is_wanted = *to == DataType::Boolean || is_utf8(text);
    own.extension_type_name() == Some(BOOL8) && *own.data_type() == DataType::Int8 && is_wanted
}

/// The items of lists of any kind, and the field that they become in lists; `None` where the lengths of the lists differ by their types.
fn items_of_lists<'a>(own: &'a DataType, to: &'a DataType) -> Option<(&'a Field, &'a FieldRef)> {
    match (own, to) {
        (DataType::FixedSizeList(_, size), DataType::FixedSizeList(_, other)) if size != other => None,
        _ => Some((item_field(own)?, item_field(to)?)),
    }
}

/// The field of the items of lists of any kind. Maps are none.
fn item_field(data_type: &DataType) -> Option<&FieldRef> {
    match data_type {
        DataType::FixedSizeList(item, _) => Some(item),
        other => item_of_lists(other),
    }
}

/// Lists of this type, with other items.
fn lists_of(lists: &DataType, item: &FieldRef) -> DataType {
    let item = item.clone();
    match lists {
        DataType::FixedSizeList(_, size) => DataType::FixedSizeList(item, *size),
        DataType::LargeList(_) => DataType::LargeList(item),
        DataType::ListView(_) => DataType::ListView(item),
        DataType::LargeListView(_) => DataType::LargeListView(item),
        _ => DataType::List(item),
    }
}

/// The same items, if arrow-rs makes something else of them, at any level: bits and text of bools, and decimals of floats and floats of decimals.
fn own_items<'a>(own: &'a Field, to: &'a DataType) -> Option<(&'a Field, &'a FieldRef)> {
    items_of_lists(own.data_type(), to).filter(|(item, wanted)| {
        let wanted = wanted.data_type();
        let is_nearest = are_decimals_and_floats(item.data_type(), wanted);
        is_nearest || is_of_bools(item, wanted) || own_items(item, wanted).is_some()
    })
}

/// The field of the innermost items of lists, or the field itself.
fn leaf(field: &Field) -> &Field {
    item_field(field.data_type()).map_or(field, |item| leaf(item))
}

/// Whether codes of numbers, dates or times become what they stand for, as another type. arrow-rs has no exact way back to all such codes, but
/// one to their values.
fn is_of_codes(from: &DataType, to: &DataType) -> bool {
    matches!(from, DataType::Dictionary(_, values) if values.is_primitive()) && (to.is_primitive() || is_utf8(to))
}

/// The type of the values of a dictionary or of runs, or the type itself.
fn values_of(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Dictionary(_, values) => values,
        DataType::RunEndEncoded(_, values) => values.data_type(),
        other => other,
    }
}

/// Whether values of this type are no lists, and no nulls alone.
fn is_item(data_type: &DataType) -> bool {
    item(data_type).is_none() && *data_type != DataType::Null
}

/// The type of the items of lists of any kind.
fn item(data_type: &DataType) -> Option<&DataType> {
    let item = match data_type {
        DataType::FixedSizeList(item, _) | DataType::Map(item, _) => Some(item),
        other => item_of_lists(other),
    };
    item.map(|item| item.data_type())
}

/// The same values, and the nulls of what encloses them: nobody sees what is under those.
#[allow(clippy::disallowed_methods, reason = "the caller has asked for the memory: require_cast")]
fn with_nulls(values: &ArrayRef, enclosing: Option<&NullBuffer>) -> Result<ArrayRef> {
    let Some(enclosing) = enclosing.filter(|nulls| nulls.null_count() > 0) else { return Ok(values.clone()) };
    if matches!(values.data_type(), DataType::Union(_, _) | DataType::RunEndEncoded(_, _) | DataType::Null) {
        return Ok(values.clone());
    }
    let nulls = NullBuffer::union(values.nulls(), Some(enclosing));
    built(values.to_data().into_builder().nulls(nulls))
}

/// Values as a type that holds each of them.
#[allow(clippy::disallowed_methods, reason = "the caller has asked for the memory: require_cast")]
fn decoded(original: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(original, to, &options).map_err(|error| impossible(original.data_type(), to, &error))
}

/// An array of as many rows.
fn array_of(data_type: &DataType, rows: &dyn Array) -> ArrayDataBuilder {
    ArrayData::builder(data_type.clone()).len(rows.len())
}

fn built(array: ArrayDataBuilder) -> Result<ArrayRef> {
    array.build().map(make_array).map_err(|error| Error::invalid(error.to_string()))
}

/// Bytes that are all 0 or 1 as bits, each of which survives; `None` where the cast has to tell.
fn packed(original: &ArrayRef, to: &DataType) -> Result<Option<ArrayRef>> {
    let bytes = match (original.data_type(), to) {
        (DataType::Int8, DataType::Boolean) => original.as_primitive::<Int8Type>().values().inner(),
        (DataType::UInt8, DataType::Boolean) => original.as_primitive::<UInt8Type>().values().inner(),
        _ => return Ok(None),
    };
    let array = |bits| -> ArrayRef { Arc::new(BooleanArray::new(bits, original.nulls().cloned())) };
    Ok(bits_of_bools(bytes)?.map(array))
}

/// Whether [`without_items`] makes lists of this type.
fn is_without_items(from: &DataType, to: &DataType) -> bool {
    let is_list = matches!(to, DataType::FixedSizeList(_, 0)) || item_of_lists(to).is_some();
    matches!(from, DataType::FixedSizeList(_, 0)) && is_list
}

/// Fixed-size lists of no items as lists of another type; `None` for others. arrow-rs loses their number.
fn without_items(original: &ArrayRef, to: &DataType) -> Result<Option<ArrayRef>> {
    if !is_without_items(original.data_type(), to) {
        return Ok(None);
    }
    let (item, buffers) = match to {
        DataType::FixedSizeList(item, 0) => (item, 0),
        DataType::List(item) | DataType::LargeList(item) => (item, 1),
        DataType::ListView(item) | DataType::LargeListView(item) => (item, 2),
        _ => return Ok(None),
    };
    let rows = original.len();
    let zeros = Buffer::from_vec(fallible::zeroed(rows.saturating_add(1).saturating_mul(size_of::<i64>()))?);
    let lists =
        array_of(to, original).nulls(original.nulls().cloned()).buffers(std::iter::repeat_n(zeros, buffers).collect());
    built(lists.add_child_data(new_empty_array(item.data_type()).to_data())).map(Some)
}
