//! Finds what a requested field forbids in an array, at all levels: nulls.

use arrow_array::cast::AsArray;
use arrow_array::{Array, UnionArray, make_array};
use arrow_buffer::bit_chunk_iterator::BitChunks;
use arrow_buffer::{BooleanBufferBuilder, NullBuffer};
use arrow_schema::{DataType, Field, FieldRef, UnionFields};

/// What is found: the field's name, and the row where it can be told.
type Fault = (String, Option<usize>);

/// Looks at the slots of one field; returns the first slot that it forbids. Slots that are null in the last argument lie in a null
/// of an enclosing type, or belong to another field of a union, so that nobody sees them.
type Look<'a> = &'a dyn Fn(&Field, &dyn Array, Option<&NullBuffer>) -> Option<usize>;

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
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::Map(item, _) => Some(item),
        _ => None,
    }
}

/// Returns the first null that a field forbids.
pub(super) fn first_null(field: &Field, array: &dyn Array) -> Option<Fault> {
    let strict = |field: &Field, array: &dyn Array, excused: Option<&NullBuffer>| {
        let nulls = if field.is_nullable() { None } else { nulls_of(array) };
        nulls.and_then(|nulls| first_forbidden(&nulls, excused))
    };
    walk(field, array, None, &strict)
}

#[allow(clippy::disallowed_methods, reason = "the caller has asked for the memory: require_nulls")]
fn nulls_of(array: &dyn Array) -> Option<NullBuffer> {
    array.logical_nulls()
}

/// Looks at a field, and then at the fields below it.
fn walk(field: &Field, array: &dyn Array, excused: Option<&NullBuffer>, look: Look<'_>) -> Option<Fault> {
    match look(field, array, excused) {
        Some(row) => Some((field.name().clone(), Some(row))),
        None => below(field.data_type(), array, excused, look),
    }
}

/// Looks at the fields below a type. The array may be of a type that is cast to this one.
fn below(data_type: &DataType, array: &dyn Array, excused: Option<&NullBuffer>, look: Look<'_>) -> Option<Fault> {
    let without_row = |found: Option<Fault>| found.map(|(column, _)| (column, None));
    match (data_type, array.data_type()) {
        (own, DataType::Dictionary(_, _)) => {
            let own = if let DataType::Dictionary(_, values) = own { values } else { own };
            without_row(below(own, array.as_any_dictionary_opt()?.values(), None, look))
        }
        (DataType::Dictionary(_, values), _) => below(values, array, excused, look),
        (own, DataType::RunEndEncoded(_, _)) => {
            let values = array.to_data().child_data().get(1).map(|values| make_array(values.clone()))?;
            let DataType::RunEndEncoded(_, field) = own else {
                return without_row(below(own, values.as_ref(), None, look));
            };
            // Runs outside of a slice have values too, so that the rows are looked at.
            match look(field, array, excused) {
                Some(row) => Some((field.name().clone(), Some(row))),
                None => without_row(below(field.data_type(), values.as_ref(), None, look)),
            }
        }
        (DataType::RunEndEncoded(_, values), _) => walk(values, array, excused, look),
        (DataType::Struct(fields), DataType::Struct(_)) => {
            let excused = NullBuffer::union(excused, array.nulls());
            let columns = fields.iter().zip(array.as_struct().columns());
            columns.into_iter().find_map(|(field, column)| walk(field, column.as_ref(), excused.as_ref(), look))
        }
        (DataType::FixedSizeList(item, _), DataType::FixedSizeList(_, size)) => {
            let size = usize::try_from(*size).ok()?;
            let excused = NullBuffer::union(excused, array.nulls()).map(|excused| excused.expand(size));
            let values = array.as_fixed_size_list().values();
            let (column, row) = walk(item, values.as_ref(), excused.as_ref(), look)?;
            Some((column, row.and_then(|row| row.checked_div(size))))
        }
        (DataType::Union(fields, _), DataType::Union(own, _)) => below_union(fields, own, array, excused, look),
        // Other lists share their items with other slices: all of them count, and their rows are not told.
        (own, _) => {
            let values = array.to_data().child_data().first().map(|values| make_array(values.clone()))?;
            without_row(walk(items(own)?, values.as_ref(), None, look))
        }
    }
}

/// Looks at the fields of a union, at the slots that rows show.
fn below_union(
    fields: &UnionFields,
    own: &UnionFields,
    array: &dyn Array,
    excused: Option<&NullBuffer>,
    look: Look<'_>,
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
        let (column, slot) = walk(field, child.as_ref(), Some(&NullBuffer::new(shown.finish())), look)?;
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
