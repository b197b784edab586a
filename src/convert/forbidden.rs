//! Finds what a requested field forbids in an array, at all levels: nulls, and counts that are no time of a day and no date. Looks at
//! the slots that rows show: not at items outside of a slice or under a null, nor at values that no code stands for.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date64Type, Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType,
};
use arrow_array::{
    AnyDictionaryArray, Array, ArrayRef, ArrowPrimitiveType, OffsetSizeTrait, UnionArray, downcast_integer_array,
    downcast_run_array,
};
use arrow_buffer::bit_chunk_iterator::BitChunks;
use arrow_buffer::{ArrowNativeType, BooleanBufferBuilder, NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field, FieldRef, TimeUnit, UnionFields};

use crate::alloc::fallible;
use crate::arrow::{has_type, list_item};

/// What is found.
#[derive(Debug, Default)]
pub(super) struct Fault {
    /// The name of the field that it is in; empty if no field below the column has it.
    pub(super) column: String,
    /// The row, where it can be told.
    pub(super) row: Option<usize>,
    /// The column that this field is part of, if it is none itself: an item, or a field of a struct.
    pub(super) inside: Option<String>,
}

impl Fault {
    fn at(row: usize) -> Self {
        Self { row: Some(row), ..Self::default() }
    }

    fn with_row(self, row: Option<usize>) -> Self {
        Self { row, ..self }
    }

    /// Returns the fault in the lowest row; of several the first, as of those whose row nobody can tell.
    fn lowest(faults: impl IntoIterator<Item = Self>) -> Option<Self> {
        faults.into_iter().min_by_key(|fault| fault.row.unwrap_or(usize::MAX))
    }

    /// Says which column it is inside of.
    pub(super) fn place(&self) -> String {
        self.inside.as_ref().map_or_else(String::new, |column| format!(", inside of column {column:?}"))
    }
}

/// What is looked for.
#[derive(Clone, Copy)]
enum Rule<'a> {
    /// Nulls of a field that is not nullable.
    Nulls,
    /// Values of a date or a time that it cannot have, which were values of this type before the request.
    Limits(&'a DataType),
}

impl Rule<'_> {
    /// Returns the rule for one field of a struct or a union.
    fn field(self, index: usize) -> Self {
        let own = match self {
            Self::Limits(DataType::Struct(own)) => own.get(index),
            Self::Limits(DataType::Union(own, _)) => own.iter().nth(index).map(|(_, field)| field),
            _ => None,
        };
        own.map_or(self, |own| Self::Limits(own.data_type()))
    }

    /// Returns the rule for the items of a list.
    fn items(self) -> Self {
        match self {
            Self::Limits(own) => Self::Limits(items(own).map_or(own, |item| item.data_type())),
            Self::Nulls => self,
        }
    }
}

/// Returns whether nulls are allowed wherever a field can have them.
pub(super) fn allows_nulls(field: &Field) -> bool {
    field.is_nullable() && allows_nulls_below(field.data_type())
}

fn allows_nulls_below(data_type: &DataType) -> bool {
    match data_type {
        DataType::Struct(fields) => fields.iter().all(|field| allows_nulls(field)),
        DataType::Union(fields, _) => fields.iter().all(|(_, field)| allows_nulls(field)),
        // Entries and keys are never null, in any map.
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) => fields.iter().enumerate().all(|(index, field)| match index {
                0 => allows_nulls_below(field.data_type()),
                _ => allows_nulls(field),
            }),
            other => allows_nulls_below(other),
        },
        DataType::RunEndEncoded(_, values) => allows_nulls(values),
        DataType::Dictionary(_, values) => allows_nulls_below(values),
        other => items(other).is_none_or(|item| allows_nulls(item)),
    }
}

/// Returns the items of a list type, and the entries of a map.
pub(super) fn items(data_type: &DataType) -> Option<&FieldRef> {
    match data_type {
        DataType::Map(entries, _) => Some(entries),
        other => list_item(other),
    }
}

/// Returns the first null that a field forbids.
pub(super) fn first_null(field: &Field, array: &dyn Array) -> Option<Fault> {
    walk(field, array, None, Rule::Nulls)
}

/// Returns whether a type allows not all counts: dates in milliseconds are whole days, and times are those of one day.
pub(super) fn has_limits(data_type: &DataType) -> bool {
    let is_limited =
        |data_type: &DataType| matches!(data_type, DataType::Date64 | DataType::Time32(_) | DataType::Time64(_));
    has_type(data_type, &is_limited)
}

/// Returns the first value of an array that its type does not allow, and that was one of another type: the column had the type `own`.
pub(super) fn first_outside(own: &DataType, field: &Field, array: &dyn Array) -> Option<Fault> {
    walk(field, array, None, Rule::Limits(own))
}

/// Returns the part of a type whose values become those of `requested`: a cast takes values out of dictionaries, runs and lists, and
/// puts values into them.
fn counterpart<'a>(own: &'a DataType, requested: &DataType) -> &'a DataType {
    match (own, requested) {
        _ if own == requested => own,
        (DataType::Dictionary(_, values), _) => counterpart(values, requested),
        (DataType::RunEndEncoded(_, values), _) => counterpart(values.data_type(), requested),
        (_, DataType::Dictionary(_, _) | DataType::RunEndEncoded(_, _)) => own,
        _ => match list_item(own) {
            Some(item) if items(requested).is_none() => counterpart(item.data_type(), requested),
            _ => own,
        },
    }
}

/// Returns the first value that is not excused and that an array's type does not allow.
fn first_beyond(array: &dyn Array, excused: Option<&NullBuffer>) -> Option<usize> {
    const DAY: i64 = 24 * 60 * 60;
    let of_day = |per_second: i64| move |value: i64| (0..DAY * per_second).contains(&value);
    match array.data_type() {
        DataType::Date64 => first_misfit::<Date64Type>(array, excused, |value| value % (DAY * 1000) == 0),
        DataType::Time32(TimeUnit::Second) => first_misfit::<Time32SecondType>(array, excused, of_day(1)),
        DataType::Time32(_) => first_misfit::<Time32MillisecondType>(array, excused, of_day(1000)),
        DataType::Time64(TimeUnit::Microsecond) => {
            first_misfit::<Time64MicrosecondType>(array, excused, of_day(1_000_000))
        }
        DataType::Time64(_) => first_misfit::<Time64NanosecondType>(array, excused, of_day(1_000_000_000)),
        _ => None,
    }
}

fn first_misfit<T>(array: &dyn Array, excused: Option<&NullBuffer>, fits: impl Fn(i64) -> bool) -> Option<usize>
where
    T: ArrowPrimitiveType<Native: Into<i64>>,
{
    let values = array.as_primitive_opt::<T>()?.values();
    let is_shown = |row| array.is_valid(row) && is_seen(excused, row);
    values.iter().enumerate().find(|(row, value)| !fits((**value).into()) && is_shown(*row)).map(|(row, _)| row)
}

#[allow(clippy::disallowed_methods, reason = "the caller has asked for the memory: require_nulls")]
fn nulls_of(array: &dyn Array) -> Option<NullBuffer> {
    array.logical_nulls()
}

/// Looks at a field, and then at the fields below it. Slots that are null in `excused` lie in a null of an enclosing type, or belong to
/// another field of a union, so that nobody sees them.
fn walk(field: &Field, array: &dyn Array, excused: Option<&NullBuffer>, rule: Rule<'_>) -> Option<Fault> {
    let null = match rule {
        Rule::Nulls => first_null_row(field, array, excused),
        Rule::Limits(_) => None,
    };
    let found = Fault::lowest(null.into_iter().chain(look(field.data_type(), array, excused, rule)));
    let name = field.name();
    found.map(|found| match &found.column {
        own if own.is_empty() => Fault { column: name.clone(), ..found },
        // The outermost field that has a name is the column.
        own if own != name && !name.is_empty() => Fault { inside: Some(name.clone()), ..found },
        _ => found,
    })
}

/// Returns the first row in which a field is null, and forbids it.
fn first_null_row(field: &Field, array: &dyn Array, excused: Option<&NullBuffer>) -> Option<Fault> {
    if field.is_nullable() {
        return None;
    }
    nulls_of(array)
        .and_then(|nulls| first_forbidden(&nulls, excused))
        .map(|row| Fault { column: field.name().clone(), ..Fault::at(row) })
}

/// Looks at values of a type, and at the fields below it. The name of what is found is empty if no field below has it.
fn look(data_type: &DataType, array: &dyn Array, excused: Option<&NullBuffer>, rule: Rule<'_>) -> Option<Fault> {
    match rule {
        Rule::Nulls if allows_nulls_below(data_type) => None,
        Rule::Nulls => below(data_type, array, excused, rule),
        Rule::Limits(own) => {
            let own = counterpart(own, data_type);
            if own == data_type || !has_limits(data_type) {
                return None;
            }
            let beyond = first_beyond(array, excused).map(Fault::at);
            beyond.or_else(|| below(data_type, array, excused, Rule::Limits(own)))
        }
    }
}

/// Looks at the fields below a type. The array may be of a type that is cast to this one.
#[allow(clippy::disallowed_methods, reason = "the caller has asked for the memory: require_nulls, require_cast")]
fn below(data_type: &DataType, array: &dyn Array, excused: Option<&NullBuffer>, rule: Rule<'_>) -> Option<Fault> {
    let without_row = |found: Option<Fault>| found.map(|found| found.with_row(None));
    match (data_type, array.data_type()) {
        (own, DataType::Dictionary(_, _)) => {
            let own = if let DataType::Dictionary(_, values) = own { values } else { own };
            let codes = array.as_any_dictionary_opt()?;
            // A null value is a null of the codes' field, which has been looked at.
            without_row(look(own, codes.values().as_ref(), Some(&shown_values(codes, excused)), rule))
        }
        (DataType::Dictionary(_, values), _) => look(values, array, excused, rule),
        (own, DataType::RunEndEncoded(_, _)) => {
            let (values, shown) = shown_runs(array, excused)?;
            match (own, rule) {
                // The nulls of rows, so that one of them is told.
                (DataType::RunEndEncoded(_, field), Rule::Nulls) => first_null_row(field, array, excused)
                    .or_else(|| without_row(look(field.data_type(), values.as_ref(), Some(&shown), rule))),
                (DataType::RunEndEncoded(_, field), Rule::Limits(_)) => {
                    without_row(walk(field, values.as_ref(), Some(&shown), rule))
                }
                (own, _) => without_row(look(own, values.as_ref(), Some(&shown), rule)),
            }
        }
        (DataType::RunEndEncoded(_, values), _) => walk(values, array, excused, rule),
        (DataType::Struct(fields), DataType::Struct(_)) => {
            let excused = NullBuffer::union(excused, array.nulls());
            let columns = fields.iter().zip(array.as_struct().columns()).enumerate();
            Fault::lowest(columns.filter_map(|(index, (field, column))| {
                walk(field, column.as_ref(), excused.as_ref(), rule.field(index))
            }))
        }
        (DataType::FixedSizeList(item, _), DataType::FixedSizeList(_, size)) => {
            let size = usize::try_from(*size).ok()?;
            let excused = NullBuffer::union(excused, array.nulls()).map(|excused| excused.expand(size));
            let values = array.as_fixed_size_list().values();
            let found = walk(item, values.as_ref(), excused.as_ref(), rule.items())?;
            let row = found.row.and_then(|row| row.checked_div(size));
            Some(found.with_row(row))
        }
        (DataType::Union(fields, _), DataType::Union(own, _)) => below_union(fields, own, array, excused, rule),
        (own, _) => {
            let item = items(own)?;
            let (values, shown) = shown_items(array, excused)?;
            let found = walk(item, values.as_ref(), shown.as_ref(), rule.items())?;
            let row = found.row.and_then(|slot| row_with_item(array, slot, excused));
            Some(found.with_row(row))
        }
    }
}

/// Returns the items of lists or the entries of maps that a slice has, and which of them belong to a row that is seen; `None` if all do.
#[allow(clippy::disallowed_methods, reason = "the caller has asked for the memory: require_nulls, require_cast")]
pub(super) fn shown_items(array: &dyn Array, excused: Option<&NullBuffer>) -> Option<(ArrayRef, Option<NullBuffer>)> {
    let rows = NullBuffer::union(excused, array.nulls());
    match array.data_type() {
        DataType::List(_) => between(array.as_list::<i32>().offsets(), array.as_list::<i32>().values(), rows),
        DataType::LargeList(_) => between(array.as_list::<i64>().offsets(), array.as_list::<i64>().values(), rows),
        DataType::Map(_, _) => between(array.as_map().offsets(), array.as_map().entries(), rows),
        DataType::FixedSizeList(_, size) => {
            let size = usize::try_from(*size).ok()?;
            Some((array.as_fixed_size_list().values().clone(), rows.map(|rows| rows.expand(size))))
        }
        DataType::ListView(_) => {
            let lists = array.as_list_view::<i32>();
            Some(viewed(lists.offsets(), lists.sizes(), lists.values(), rows))
        }
        DataType::LargeListView(_) => {
            let lists = array.as_list_view::<i64>();
            Some(viewed(lists.offsets(), lists.sizes(), lists.values(), rows))
        }
        _ => None,
    }
}

/// Returns the first row of lists that is seen and shows an item, by its number among those of [`shown_items`]; `None` for maps.
pub(super) fn row_with_item(array: &dyn Array, item: usize, excused: Option<&NullBuffer>) -> Option<usize> {
    fn of_lists<T: OffsetSizeTrait>(offsets: &OffsetBuffer<T>, row: usize) -> Option<Range<usize>> {
        let first = offsets.first()?.as_usize();
        let at = |row: usize| offsets.get(row)?.as_usize().checked_sub(first);
        Some(at(row)?..at(row + 1)?)
    }
    fn of_views<T: OffsetSizeTrait>(offsets: &[T], sizes: &[T], row: usize) -> Option<Range<usize>> {
        let start = offsets.get(row)?.as_usize();
        Some(start..start.saturating_add(sizes.get(row)?.as_usize()))
    }
    let range = |row: usize| match array.data_type() {
        DataType::List(_) => of_lists(array.as_list::<i32>().offsets(), row),
        DataType::LargeList(_) => of_lists(array.as_list::<i64>().offsets(), row),
        DataType::ListView(_) => {
            let lists = array.as_list_view::<i32>();
            of_views(lists.offsets(), lists.sizes(), row)
        }
        DataType::LargeListView(_) => {
            let lists = array.as_list_view::<i64>();
            of_views(lists.offsets(), lists.sizes(), row)
        }
        DataType::FixedSizeList(_, size) => {
            let size = usize::try_from(*size).ok()?;
            Some(row.checked_mul(size)?..(row + 1).checked_mul(size)?)
        }
        _ => None,
    };
    (0..array.len()).find(|row| {
        let is_shown = array.is_valid(*row) && is_seen(excused, *row);
        is_shown && range(*row).is_some_and(|items| items.contains(&item))
    })
}

/// Returns the items from the first to the last offset.
#[allow(clippy::disallowed_methods, reason = "the caller has asked for the memory: require_nulls, require_cast")]
fn between<T: OffsetSizeTrait>(
    offsets: &OffsetBuffer<T>,
    items: &dyn Array,
    rows: Option<NullBuffer>,
) -> Option<(ArrayRef, Option<NullBuffer>)> {
    let (start, end) = (offsets.first()?.as_usize(), offsets.last()?.as_usize());
    let length = end.checked_sub(start).filter(|_| end <= items.len())?;
    let shown = rows.filter(|rows| rows.null_count() > 0).map(|rows| {
        let mut shown = BooleanBufferBuilder::new(length);
        offsets.lengths().zip(rows.iter()).for_each(|(length, is_shown)| shown.append_n(length, is_shown));
        NullBuffer::new(shown.finish())
    });
    Some((items.slice(start, length), shown))
}

/// Returns the items of list views, which may lie anywhere.
fn viewed<T: OffsetSizeTrait>(
    offsets: &[T],
    sizes: &[T],
    items: &ArrayRef,
    rows: Option<NullBuffer>,
) -> (ArrayRef, Option<NullBuffer>) {
    let seen = offsets.iter().zip(sizes).enumerate().filter(|(row, _)| is_seen(rows.as_ref(), *row));
    let range = |start: usize, size| start..start.saturating_add(size).min(items.len());
    let ranges = seen.map(|(_, (start, size))| range(start.as_usize(), size.as_usize()));
    let shown = match fallible::with_room(offsets.len()) {
        // Rows may lie over each other: each item is shown once.
        Ok(mut sorted) => {
            sorted.extend(ranges);
            sorted.sort_unstable_by_key(|range: &Range<usize>| range.start);
            let mut end = 0;
            let others = sorted.into_iter().map(|range| {
                let start = range.start.max(end);
                end = range.end.max(end);
                start..range.end
            });
            only(items.len(), others.flatten())
        }
        Err(_) => only(items.len(), ranges.flatten()),
    };
    (items.clone(), Some(shown))
}

/// Returns which values of a dictionary stand behind a code of a row that is seen.
pub(super) fn shown_values(codes: &dyn AnyDictionaryArray, excused: Option<&NullBuffer>) -> NullBuffer {
    let (keys, length) = (codes.keys(), codes.values().len());
    let is_shown = |row: &usize| keys.is_valid(*row) && is_seen(excused, *row);
    downcast_integer_array!(
        keys => {
            let shown = keys.values().iter().enumerate().filter(|(row, _)| is_shown(row));
            only(length, shown.map(|(_, code)| code.as_usize()))
        },
        _ => only(length, 0..length),
    )
}

/// Returns the values of runs, and which of them belong to a row that is seen.
pub(super) fn shown_runs(array: &dyn Array, excused: Option<&NullBuffer>) -> Option<(ArrayRef, NullBuffer)> {
    downcast_run_array!(
        array => {
            let ends = array.run_ends();
            let (offset, length) = (ends.offset(), ends.len());
            let is_shown = |rows: Range<usize>| match excused {
                Some(excused) => excused.slice(rows.start, rows.len()).null_count() < rows.len(),
                None => !rows.is_empty(),
            };
            let mut start = 0;
            let shown = ends.values().iter().enumerate().filter_map(|(run, end)| {
                let end = end.as_usize().saturating_sub(offset).min(length);
                is_shown(std::mem::replace(&mut start, end)..end).then_some(run)
            });
            Some((array.values().clone(), only(array.values().len(), shown)))
        },
        _ => None,
    )
}

/// Returns whether a row is not null in `excused`.
fn is_seen(excused: Option<&NullBuffer>, row: usize) -> bool {
    excused.is_none_or(|excused| excused.is_valid(row))
}

/// Returns a bit for each of so many slots, which is set for those that are given.
#[allow(clippy::disallowed_methods, reason = "the caller has asked for the memory: require_nulls, require_cast")]
fn only(length: usize, slots: impl Iterator<Item = usize>) -> NullBuffer {
    let mut shown = BooleanBufferBuilder::new(length);
    shown.append_n(length, false);
    slots.filter(|slot| *slot < length).for_each(|slot| shown.set_bit(slot, true));
    NullBuffer::new(shown.finish())
}

/// Looks at the fields of a union, at the slots that rows show.
fn below_union(
    fields: &UnionFields,
    own: &UnionFields,
    array: &dyn Array,
    excused: Option<&NullBuffer>,
    rule: Rule<'_>,
) -> Option<Fault> {
    let array = array.as_any().downcast_ref::<UnionArray>()?;
    Fault::lowest(fields.iter().zip(own.iter()).enumerate().filter_map(|(index, ((_, field), (id, _)))| {
        let shown = shown_of_union(array, id, excused);
        let found = walk(field, array.child(id).as_ref(), Some(&shown), rule.field(index))?;
        let row = found.row.and_then(|slot| rows_of(array, id, excused).find(|row| slot_of(array, *row) == Some(slot)));
        Some(found.with_row(row))
    }))
}

/// Returns which slots of a field of a union belong to a row that is seen.
pub(super) fn shown_of_union(array: &UnionArray, id: i8, excused: Option<&NullBuffer>) -> NullBuffer {
    only(array.child(id).len(), rows_of(array, id, excused).filter_map(|row| slot_of(array, row)))
}

/// The rows that are seen and have a value of this field of a union.
fn rows_of<'a>(array: &'a UnionArray, id: i8, excused: Option<&'a NullBuffer>) -> impl Iterator<Item = usize> + 'a {
    let own = array.type_ids().iter().enumerate().filter(move |(_, row_id)| **row_id == id).map(|(row, _)| row);
    own.filter(move |row| is_seen(excused, *row))
}

/// The slot of a row of a union in the field that it has.
fn slot_of(array: &UnionArray, row: usize) -> Option<usize> {
    match array.offsets() {
        Some(offsets) => offsets.get(row).and_then(|slot| usize::try_from(*slot).ok()),
        None => Some(row),
    }
}

/// Returns the first null that is not excused, looking at 64 at a time.
fn first_forbidden(nulls: &NullBuffer, excused: Option<&NullBuffer>) -> Option<usize> {
    let valid = nulls.inner().bit_chunks();
    let excusing = excused.map(|excused| excused.inner().bit_chunks());
    let mut seen = excusing.as_ref().map(BitChunks::iter_padded);
    let forbidden = valid.iter_padded().enumerate().find_map(|(word, valid)| {
        // A row that is null in `excused` is not seen.
        let forbidden = !valid & seen.as_mut().map_or(u64::MAX, |seen| seen.next().unwrap_or(0));
        // Lossless: a word has 64 bits.
        (forbidden != 0).then(|| word * 64 + forbidden.trailing_zeros() as usize)
    });
    // Bits behind the last row are zero.
    forbidden.filter(|row| *row < nulls.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_null_that_is_not_excused_is_found_word_by_word() {
        for length in [1, 63, 64, 65, 200] {
            for offset in [0, 3] {
                for (first, second) in [(0, length - 1), (length / 2, length - 1), (length, length)] {
                    let nulls = |at: &[usize]| {
                        let bits = (0..length + offset).map(|bit| bit < offset || !at.contains(&(bit - offset)));
                        bits.collect::<NullBuffer>().slice(offset, length)
                    };
                    let (own, excused) = (nulls(&[first, second]), nulls(&[first]));
                    let expected = [first, second].into_iter().find(|row| *row < length);
                    assert_eq!(first_forbidden(&own, None), expected);
                    let unexcused = Some(second).filter(|row| *row != first && *row < length);
                    assert_eq!(first_forbidden(&own, Some(&excused)), unexcused);
                }
            }
        }
    }
}
