//! Finds what a requested field forbids in an array, at all levels: nulls, and counts that are no time of a day and no date.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date64Type, Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType,
};
use arrow_array::{Array, ArrowPrimitiveType, UnionArray, make_array};
use arrow_buffer::bit_chunk_iterator::BitChunks;
use arrow_buffer::{BooleanBufferBuilder, NullBuffer};
use arrow_schema::{DataType, Field, FieldRef, TimeUnit, UnionFields};

use crate::arrow::list_item;

/// What is found: the field's name, and the row where it can be told.
type Fault = (String, Option<usize>);

/// What is looked for.
#[derive(Clone, Copy)]
enum Rule {
    /// Nulls of a field that is not nullable.
    Nulls,
    /// Values of a date or a time that it cannot have.
    Limits,
}

impl Rule {
    /// Returns the first slot of one field that is forbidden. Slots that are null in `excused` lie in a null of an enclosing type,
    /// or belong to another field of a union, so that nobody sees them.
    fn first(self, field: &Field, array: &dyn Array, excused: Option<&NullBuffer>) -> Option<usize> {
        match self {
            Self::Nulls if field.is_nullable() => None,
            Self::Nulls => nulls_of(array).and_then(|nulls| first_forbidden(&nulls, excused)),
            Self::Limits => first_beyond(array, excused),
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
fn items(data_type: &DataType) -> Option<&FieldRef> {
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
    match data_type {
        DataType::Date64 | DataType::Time32(_) | DataType::Time64(_) => true,
        DataType::Struct(fields) => fields.iter().any(|field| has_limits(field.data_type())),
        DataType::Union(fields, _) => fields.iter().any(|(_, field)| has_limits(field.data_type())),
        DataType::RunEndEncoded(_, values) => has_limits(values.data_type()),
        DataType::Dictionary(_, values) => has_limits(values),
        other => items(other).is_some_and(|item| has_limits(item.data_type())),
    }
}

/// Returns the first value of an array that its type does not allow, in a column whose type was another one, `own`.
pub(super) fn first_outside(own: &DataType, field: &Field, array: &dyn Array) -> Option<Fault> {
    if own == field.data_type() || !has_limits(field.data_type()) {
        return None;
    }
    match (own, field.data_type(), array.data_type()) {
        (DataType::Struct(own), DataType::Struct(fields), DataType::Struct(_)) => {
            let columns = own.iter().zip(fields).zip(array.as_struct().columns());
            let changed = columns.filter(|((own, field), _)| own.data_type() != field.data_type());
            changed
                .into_iter()
                .find_map(|((_, field), column)| walk(field, column.as_ref(), array.nulls(), Rule::Limits))
        }
        _ => walk(field, array, None, Rule::Limits),
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
    let is_seen = |row| array.is_valid(row) && excused.is_none_or(|excused| excused.is_valid(row));
    values.iter().enumerate().find(|(row, value)| !fits((**value).into()) && is_seen(*row)).map(|(row, _)| row)
}

#[allow(clippy::disallowed_methods, reason = "the caller has asked for the memory: require_nulls")]
fn nulls_of(array: &dyn Array) -> Option<NullBuffer> {
    array.logical_nulls()
}

/// Looks at a field, and then at the fields below it.
fn walk(field: &Field, array: &dyn Array, excused: Option<&NullBuffer>, rule: Rule) -> Option<Fault> {
    match rule.first(field, array, excused) {
        Some(row) => Some((field.name().clone(), Some(row))),
        None => below(field.data_type(), array, excused, rule),
    }
}

/// Looks at the fields below a type. The array may be of a type that is cast to this one.
#[allow(clippy::disallowed_methods, reason = "the caller has asked for the memory: require_nulls, require_cast")]
fn below(data_type: &DataType, array: &dyn Array, excused: Option<&NullBuffer>, rule: Rule) -> Option<Fault> {
    let without_row = |found: Option<Fault>| found.map(|(column, _)| (column, None));
    match (data_type, array.data_type()) {
        (own, DataType::Dictionary(_, _)) => {
            let own = if let DataType::Dictionary(_, values) = own { values } else { own };
            let values = array.as_any_dictionary_opt()?.values();
            // A null value is a null of the codes' field, which has been looked at.
            if let Rule::Limits = rule
                && first_beyond(values, None).is_some()
            {
                return Some((String::new(), None));
            }
            without_row(below(own, values, None, rule))
        }
        (DataType::Dictionary(_, values), _) => below(values, array, excused, rule),
        (own, DataType::RunEndEncoded(_, _)) => {
            let values = array.to_data().child_data().get(1).map(|values| make_array(values.clone()))?;
            let DataType::RunEndEncoded(_, field) = own else {
                return without_row(below(own, values.as_ref(), None, rule));
            };
            let found = match rule {
                // Runs outside of a slice have values too, so that the rows are looked at.
                Rule::Nulls => rule.first(field, array, excused).map(Some),
                Rule::Limits => rule.first(field, values.as_ref(), None).map(|_| None),
            };
            match found {
                Some(row) => Some((field.name().clone(), row)),
                None => without_row(below(field.data_type(), values.as_ref(), None, rule)),
            }
        }
        (DataType::RunEndEncoded(_, values), _) => walk(values, array, excused, rule),
        (DataType::Struct(fields), DataType::Struct(_)) => {
            let excused = NullBuffer::union(excused, array.nulls());
            let columns = fields.iter().zip(array.as_struct().columns());
            columns.into_iter().find_map(|(field, column)| walk(field, column.as_ref(), excused.as_ref(), rule))
        }
        (DataType::FixedSizeList(item, _), DataType::FixedSizeList(_, size)) => {
            let size = usize::try_from(*size).ok()?;
            let excused = NullBuffer::union(excused, array.nulls()).map(|excused| excused.expand(size));
            let values = array.as_fixed_size_list().values();
            let (column, row) = walk(item, values.as_ref(), excused.as_ref(), rule)?;
            Some((column, row.and_then(|row| row.checked_div(size))))
        }
        (DataType::Union(fields, _), DataType::Union(own, _)) => below_union(fields, own, array, excused, rule),
        // Other lists share their items with other slices: all of them count, and their rows are not told.
        (own, _) => {
            let values = array.to_data().child_data().first().map(|values| make_array(values.clone()))?;
            without_row(walk(items(own)?, values.as_ref(), None, rule))
        }
    }
}

/// Looks at the fields of a union, at the slots that rows show.
#[allow(clippy::disallowed_methods, reason = "the caller has asked for the memory: require_nulls, require_cast")]
fn below_union(
    fields: &UnionFields,
    own: &UnionFields,
    array: &dyn Array,
    excused: Option<&NullBuffer>,
    rule: Rule,
) -> Option<Fault> {
    let array = array.as_any().downcast_ref::<UnionArray>()?;
    let slot_of = |row: usize| match array.offsets() {
        Some(offsets) => offsets.get(row).and_then(|slot| usize::try_from(*slot).ok()),
        None => Some(row),
    };
    fields.iter().zip(own.iter()).find_map(|((_, field), (id, _))| {
        let rows = || {
            let own = array.type_ids().iter().enumerate().filter(move |(_, row_id)| **row_id == id).map(|(row, _)| row);
            own.filter(|row| excused.is_none_or(|excused| excused.is_valid(*row)))
        };
        let child = array.child(id);
        let mut shown = BooleanBufferBuilder::new(child.len());
        shown.append_n(child.len(), false);
        rows().filter_map(slot_of).filter(|slot| *slot < child.len()).for_each(|slot| shown.set_bit(slot, true));
        let (column, slot) = walk(field, child.as_ref(), Some(&NullBuffer::new(shown.finish())), rule)?;
        Some((column, slot.and_then(|slot| rows().find(|row| slot_of(*row) == Some(slot)))))
    })
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
