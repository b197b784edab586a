//! Takes the values that no row shows out of an array: items beside a slice or under a null, and values that no code stands for. arrow-rs
//! casts them too, and fails for them.

use arrow_array::cast::AsArray;
use arrow_array::types::ArrowDictionaryKeyType;
use arrow_array::{Array, ArrayRef, OffsetSizeTrait, PrimitiveArray, UnionArray, downcast_integer_array, make_array};
use arrow_buffer::{ArrowNativeType, BooleanBuffer, Buffer, NullBuffer};
use arrow_data::ArrayData;
use arrow_data::transform::MutableArrayData;
use arrow_schema::{ArrowError, DataType, FieldRef};

use super::budget::require_nulls;
use super::forbidden::{shown_items, shown_of_union, shown_runs, shown_values};
use super::range_bytes::range_bytes;
use crate::alloc::fallible;
use crate::arrow::{DeviceArray, Hidden, has_type};
use crate::error::{Error, Result, catch_panic};

/// Returns an array of the same type and rows, whose lists begin at the first item, and whose slots that no row shows have a value that
/// another slot has, or are null.
///
/// # Errors
/// If an allocation fails.
pub(super) fn shown(array: &ArrayRef) -> Result<ArrayRef> {
    of_slots(array, None, true)
}

/// Returns an array of runs in host memory that has the same rows, except that rows which are hidden have a value of another row.
///
/// # Errors
/// If the array breaks the Arrow format, or an allocation fails.
pub(crate) fn without_hidden(array: &DeviceArray, hidden: &Hidden) -> Result<DeviceArray> {
    let read = array.to_arrow_unlogged()?;
    require_nulls(&read.to_data())?;
    let bits = Buffer::from_vec(hidden.shown()?);
    let is_whole = bits.len() >= read.len().div_ceil(8);
    let seen = is_whole.then(|| NullBuffer::new(BooleanBuffer::new(bits, 0, read.len())));
    let made = catch_panic(|| of_slots(&read, seen.as_ref(), true))?;
    DeviceArray::from_arrow(made.as_ref(), array.field().clone())
}

/// Returns whether lists, at any level, do not begin at the first item.
pub(super) fn begins_later(data: &ArrayData) -> bool {
    let begins_later_here = match data.data_type() {
        DataType::List(_) | DataType::Map(_, _) => first_offset::<i32>(data) > 0,
        DataType::LargeList(_) => first_offset::<i64>(data) > 0,
        _ => false,
    };
    begins_later_here || data.child_data().iter().any(begins_later)
}

fn first_offset<T: ArrowNativeType>(data: &ArrayData) -> usize {
    let offsets: &[T] = data.buffers().first().map_or(&[], |offsets| offsets.typed_data());
    offsets.get(data.offset()).map_or(0, |offset| offset.as_usize())
}

/// Returns whether a type has fixed-size lists at any level.
pub(super) fn has_fixed_lists(data_type: &DataType) -> bool {
    has_type(data_type, &|data_type| matches!(data_type, DataType::FixedSizeList(_, _)))
}

/// As [`shown`], of the slots that are not null in `seen`; `is_nullable` of their field.
#[allow(clippy::disallowed_methods, reason = "the caller has asked for the memory: require_cast")]
fn of_slots(array: &ArrayRef, seen: Option<&NullBuffer>, is_nullable: bool) -> Result<ArrayRef> {
    let rows = NullBuffer::union(seen, array.nulls());
    let data = match array.data_type() {
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns().iter().zip(fields);
            let columns = columns.map(|(column, field)| of_slots(column, rows.as_ref(), field.is_nullable()));
            with_children(array.to_data(), columns)?
        }
        DataType::List(item) => with_items(array, array.as_list::<i32>().offsets(), seen, item)?,
        DataType::LargeList(item) => with_items(array, array.as_list::<i64>().offsets(), seen, item)?,
        DataType::Map(entries, _) => with_items(array, array.as_map().offsets(), seen, entries)?,
        DataType::FixedSizeList(item, _) | DataType::ListView(item) | DataType::LargeListView(item) => {
            with_children(array.to_data(), [items(array, seen, item)])?
        }
        DataType::Dictionary(_, _) => coded(array, seen, rows.as_ref().filter(|_| is_nullable))?,
        DataType::RunEndEncoded(_, field) => {
            let (values, shown) = shown_runs(array, seen).ok_or_else(|| Error::internal("runs of no values"))?;
            // Runs have no bitmap: a null of their values is one of the rows.
            let values = of_slots(&values, Some(&shown), is_nullable && field.is_nullable())?;
            let data = array.to_data();
            let ends = data.child_data().first().cloned().map(make_array);
            return with_children(data, ends.into_iter().chain([values]).map(Ok)).map(make_array);
        }
        DataType::Union(fields, _) => {
            let union = array.as_any().downcast_ref::<UnionArray>();
            let union = union.ok_or_else(|| Error::internal("a union that is none"))?;
            let children = fields.iter().map(|(id, field)| {
                let child = union.child(id);
                of_slots(child, Some(&shown_of_union(union, id, seen)), field.is_nullable())
            });
            return with_children(array.to_data(), children).map(make_array);
        }
        DataType::Null => return Ok(array.clone()),
        _ => {
            return seen
                .map_or(Ok(array.clone()), |seen| replaced(&array.to_data(), seen, is_nullable).map(make_array));
        }
    };
    let hides = seen.is_some_and(|seen| seen.null_count() > 0) && is_nullable;
    let data = if hides { build(data.into_builder().nulls(rows).build())? } else { data };
    Ok(make_array(data))
}

/// Returns the items of lists as [`of_slots`] does.
fn items(array: &ArrayRef, seen: Option<&NullBuffer>, item: &FieldRef) -> Result<ArrayRef> {
    let (items, shown) = shown_items(array, seen).ok_or_else(|| Error::internal("lists of no items"))?;
    of_slots(&items, shown.as_ref(), item.is_nullable())
}

/// Returns lists with the items from their first to their last offset.
fn with_items<T: OffsetSizeTrait>(
    array: &ArrayRef,
    offsets: &[T],
    seen: Option<&NullBuffer>,
    item: &FieldRef,
) -> Result<ArrayData> {
    let first = offsets.first().copied().unwrap_or_default();
    let offsets = fallible::collected(offsets.iter().map(|offset| Ok(*offset - first)))?;
    let items = items(array, seen, item)?;
    let lists = array.to_data().into_builder().buffers(vec![Buffer::from_vec(offsets)]);
    build(lists.child_data(vec![items.to_data()]).build())
}

/// Returns the codes of rows with the values that they stand for alone. `nulls` are those of the rows; `None` keeps the codes' own, where
/// hidden rows may not be null.
fn coded(array: &ArrayRef, seen: Option<&NullBuffer>, nulls: Option<&NullBuffer>) -> Result<ArrayData> {
    let codes = array.as_any_dictionary_opt().ok_or_else(|| Error::internal("codes of no dictionary"))?;
    let is_shown = shown_values(codes, seen);
    let (mut kept, mut places) = (fallible::with_room(1)?, fallible::with_room(is_shown.len())?);
    let mut count = 0_usize;
    for slot in &is_shown {
        places.push(if slot { count } else { 0 });
        count += usize::from(slot);
    }
    kept.extend(is_shown.valid_slices());
    if count == 0 && nulls.is_none() && codes.keys().null_count() < codes.keys().len() {
        // Codes that no row shows, and that are not null, need a value to stand for.
        kept.push((0, 1));
        count = 1;
    }
    let values = codes.values().to_data();
    let values = taken(&values, kept.into_iter().map(|(start, end)| (start, end, 1)), count)?;
    let values = of_slots(&make_array(values), None, true)?;
    let keys = codes.keys();
    let keys: ArrayData = downcast_integer_array!(
        keys => recoded(keys, &places, nulls.or(keys.nulls()))?,
        _ => return Err(Error::internal("codes that are no integers")),
    );
    build(keys.into_builder().data_type(array.data_type().clone()).child_data(vec![values.to_data()]).build())
}

/// Returns codes of the places that values have now. Codes that no row shows become those of the first value.
fn recoded<K: ArrowDictionaryKeyType>(
    keys: &PrimitiveArray<K>,
    places: &[usize],
    nulls: Option<&NullBuffer>,
) -> Result<ArrayData> {
    let place = |code: &K::Native| places.get(code.as_usize()).copied().and_then(K::Native::from_usize);
    let recoded = fallible::collected(keys.values().iter().map(|code| Ok(place(code).unwrap_or_default())))?;
    build(
        keys.to_data().into_builder().offset(0).buffers(vec![Buffer::from_vec(recoded)]).nulls(nulls.cloned()).build(),
    )
}

/// Returns values of no children, where those that are null in `seen` are replaced.
#[allow(clippy::disallowed_methods, reason = "the caller has asked for the memory: require_cast")]
fn replaced(data: &ArrayData, seen: &NullBuffer, is_nullable: bool) -> Result<ArrayData> {
    let hidden = seen.null_count();
    if hidden == 0 {
        return Ok(data.clone());
    }
    let first = seen.valid_indices().next();
    let is_text = data.data_type().primitive_width().is_none() && *data.data_type() != DataType::Boolean;
    match first {
        Some(first) if !(is_text && is_nullable) => {
            fallible::require(range_bytes(data, &(first..first.saturating_add(1))).saturating_mul(hidden))?;
            let mut last = 0;
            let ranges = seen.valid_slices().chain([(data.len(), data.len())]).flat_map(|(start, end)| {
                let gap = start.saturating_sub(std::mem::replace(&mut last, end));
                [(first, first.saturating_add(1), gap), (start, end, 1)]
            });
            taken(data, ranges, data.len())
        }
        // A text may be long, and there may be none.
        _ if is_nullable => {
            let nulls = NullBuffer::union(Some(seen), data.nulls());
            // arrow-rs asks for as many bits as there are before the offset, too: of bools alone, which a slice leaves in place.
            let data = if data.offset() > 0 { taken(data, [(0, data.len(), 1)], data.len())? } else { data.clone() };
            build(data.into_builder().nulls(nulls).build())
        }
        _ => Ok(data.clone()),
    }
}

/// Returns ranges of slots one after the other, each a number of times.
#[allow(clippy::disallowed_methods, reason = "the caller has asked for the memory: require_cast")]
fn taken(data: &ArrayData, ranges: impl IntoIterator<Item = (usize, usize, usize)>, count: usize) -> Result<ArrayData> {
    let mut taken = MutableArrayData::new(vec![data], true, count);
    for (start, end, times) in ranges {
        for _ in 0..times {
            build(taken.try_extend(0, start, end))?;
        }
    }
    Ok(taken.freeze())
}

fn with_children(data: ArrayData, children: impl IntoIterator<Item = Result<ArrayRef>>) -> Result<ArrayData> {
    let children = children.into_iter().map(|child| child.map(|child| child.to_data())).collect::<Result<Vec<_>>>()?;
    build(data.into_builder().child_data(children).build())
}

fn build<T>(made: std::result::Result<T, ArrowError>) -> Result<T> {
    made.map_err(|error| Error::unsupported(error.to_string()))
}
