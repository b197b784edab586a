//! Gives rows of several arrays one dictionary, of the values that they have: arrow-rs would join all values of all dictionaries, for
//! which narrow codes have no numbers.

use std::collections::HashMap;
use std::ops::Range;

use arrow_buffer::{ArrowNativeType, Buffer};
use arrow_data::ArrayData;
use arrow_schema::{DataType, UnionMode};

use super::codes::Codes;
use super::own_slots::{
    Join, with_fixed_items, with_own_fields, with_own_items, with_own_runs, with_shown_items, with_used_slots,
};
use super::repeat::RowMap;
use crate::alloc::fallible;
use crate::categories::{Key, Slots, Visit, visit};
use crate::error::{Error, Result};

/// Rows of one of several arrays of one type.
pub(super) struct RowsOfArray {
    /// Which of the arrays.
    array: usize,
    /// The rows alone.
    pub(super) data: ArrayData,
}

/// Returns these rows of each array, by its index, with one dictionary in place of those that differ; `None` if none do. `join` makes the
/// values of that dictionary.
///
/// # Errors
/// If the codes cannot count the values that the rows have: names the column of a struct. If an array breaks the Arrow
/// format, or an allocation fails.
pub(super) fn with_one_dictionary(
    arrays: &[&ArrayData],
    rows: &[(usize, Range<usize>)],
    join: Join<'_>,
) -> Result<Option<Vec<RowsOfArray>>> {
    let Some((first, others)) = arrays.split_first() else { return Ok(None) };
    if !others.iter().any(|other| differ(first, other)) {
        return Ok(None);
    }
    let mut pieces = fallible::with_room(rows.len())?;
    for (array, rows) in rows {
        let data = arrays.get(*array).ok_or_else(|| Error::internal("rows of no array"))?;
        let data = with_own_fields(data.slice(rows.start, rows.len()))?;
        pieces.push(RowsOfArray { array: *array, data });
    }
    let names: &[_] = if let DataType::Struct(columns) = first.data_type() { columns } else { &[] };
    let name = |column: usize| names.get(column).map_or("", |field| field.name());
    unified(pieces, join, &name).map(Some)
}

/// Whether two arrays of one type have dictionaries that are not one: as themselves, or in arrays of any other type.
fn differ(one: &ArrayData, other: &ArrayData) -> bool {
    let mut children = one.child_data().iter().zip(other.child_data());
    match one.data_type() {
        DataType::Dictionary(_, _) => !children.all(|(values, others)| values.ptr_eq(others)),
        DataType::Struct(_)
        | DataType::List(_)
        | DataType::LargeList(_)
        | DataType::Map(_, _)
        | DataType::ListView(_)
        | DataType::LargeListView(_)
        | DataType::Union(_, _)
        | DataType::RunEndEncoded(_, _)
        | DataType::FixedSizeList(_, _) => children.any(|(child, other)| differ(child, other)),
        _ => false,
    }
}

/// The pieces with one dictionary wherever they have several. `name` is of each child, for errors.
fn unified<'n>(pieces: Vec<RowsOfArray>, join: Join<'_>, name: &dyn Fn(usize) -> &'n str) -> Result<Vec<RowsOfArray>> {
    let Some((first, others)) = pieces.split_first() else { return Ok(pieces) };
    if !others.iter().any(|other| differ(&first.data, &other.data)) {
        return Ok(pieces);
    }
    let data_type = first.data.data_type().clone();
    let mut pieces = match &data_type {
        DataType::Dictionary(code, _) => return recoded(pieces, code, join),
        DataType::List(_) | DataType::Map(_, _) => each(pieces, with_own_items::<i32>)?,
        DataType::LargeList(_) => each(pieces, with_own_items::<i64>)?,
        DataType::ListView(_) => each(pieces, |lists| with_shown_items::<i32>(lists, join))?,
        DataType::LargeListView(_) => each(pieces, |lists| with_shown_items::<i64>(lists, join))?,
        DataType::FixedSizeList(_, size) => {
            let size = usize::try_from(*size).map_err(|_| Error::invalid("a list of negative size"))?;
            each(pieces, |lists| with_fixed_items(lists, size))?
        }
        DataType::Union(fields, UnionMode::Dense) => each(pieces, |union| with_used_slots(union, fields, join))?,
        DataType::RunEndEncoded(ends, _) => match ends.data_type() {
            DataType::Int16 => each(pieces, with_own_runs::<i16>)?,
            DataType::Int32 => each(pieces, with_own_runs::<i32>)?,
            _ => each(pieces, with_own_runs::<i64>)?,
        },
        // The rows of structs and sparse unions are sliced with them.
        _ => pieces,
    };
    let count = pieces.first().map_or(0, |piece| piece.data.child_data().len());
    for index in 0..count {
        let below = pieces.iter().filter_map(|RowsOfArray { array, data }| {
            data.child_data().get(index).map(|data| Ok(RowsOfArray { array: *array, data: data.clone() }))
        });
        let below =
            unified(fallible::collected(below)?, join, &|_| "").map_err(|error| error.in_column(name(index)))?;
        for (piece, below) in pieces.iter_mut().zip(below) {
            let mut children = fallible::copied(piece.data.child_data())?;
            if let Some(child) = children.get_mut(index) {
                *child = below.data;
            }
            // SAFETY: a child of the same type and length, with the same values.
            piece.data = unsafe { piece.data.clone().into_builder().child_data(children).build_unchecked() };
        }
    }
    Ok(pieces)
}

fn each(pieces: Vec<RowsOfArray>, change: impl Fn(&ArrayData) -> Result<ArrayData>) -> Result<Vec<RowsOfArray>> {
    fallible::collected(
        pieces.into_iter().map(|RowsOfArray { array, data }| Ok(RowsOfArray { array, data: change(&data)? })),
    )
}

/// The values that pieces have, in the order of their first rows.
#[derive(Default)]
struct UsedValues {
    /// The number of each slot of an array's dictionary that was seen.
    by_slot: HashMap<(usize, usize), usize>,
    /// The numbers of strings, binary values and integers.
    by_bytes: HashMap<Box<[u8]>, usize>,
    null: Option<usize>,
    /// A piece whose dictionary has the value, and its slot there.
    places: Vec<(usize, usize)>,
}

impl UsedValues {
    /// Returns the number of a slot of the dictionary of a piece of this array.
    fn number(&mut self, (index, array): (usize, usize), values: &ArrayData, slot: usize) -> Result<usize> {
        if let Some(number) = self.by_slot.get(&(array, slot)) {
            return Ok(*number);
        }
        if slot >= values.len() {
            return Err(Error::invalid("a dictionary code leads out of the values"));
        }
        let new = self.places.len();
        let known = if values.is_null(slot) {
            *self.null.get_or_insert(new)
        } else {
            // UsedValues of other types are told apart by their slots alone.
            visit(values, NumberOfValue { slot, new, known: &mut self.by_bytes }).unwrap_or(Ok(new))?
        };
        if known == new {
            fallible::push(&mut self.places, (index, slot))?;
        }
        *fallible::entry(&mut self.by_slot, (array, slot))? = known;
        Ok(known)
    }
}

/// Looks up the number of a slot's value, which is `new` where it has none yet.
struct NumberOfValue<'a> {
    slot: usize,
    new: usize,
    known: &'a mut HashMap<Box<[u8]>, usize>,
}

impl Visit for NumberOfValue<'_> {
    type Out = Result<usize>;

    fn visit<'a>(self, slots: impl Slots<'a>) -> Result<usize> {
        let key = slots.key(self.slot).ok_or_else(|| Error::invalid("offsets or views lead out of the values"))?;
        let integer;
        let bytes = match key {
            Key::Bytes(bytes) => bytes,
            Key::Int(value) => {
                integer = value.to_le_bytes();
                &integer[..]
            }
        };
        if let Some(number) = self.known.get(bytes) {
            return Ok(*number);
        }
        *fallible::entry(self.known, fallible::copied(bytes)?.into_boxed_slice())? = self.new;
        Ok(self.new)
    }
}

/// The pieces, whose type is a dictionary, with codes of one dictionary.
fn recoded(pieces: Vec<RowsOfArray>, code: &DataType, join: Join<'_>) -> Result<Vec<RowsOfArray>> {
    let (mut values, mut coded) = (UsedValues::default(), fallible::with_room(pieces.len())?);
    for (index, RowsOfArray { array, data }) in pieces.iter().enumerate() {
        let dictionary = dictionary_of(data)?;
        let mut numbers = fallible::with_room(data.len())?;
        let mut failed = None;
        Codes(data).for_each(&(0..data.len()), |slot, _| {
            let number = slot.map_or(Ok(0), |slot| values.number((index, *array), dictionary, slot));
            numbers.push(number.unwrap_or_else(|error| {
                failed.get_or_insert(error);
                0
            }));
        });
        if let Some(error) = failed {
            return Err(error);
        }
        coded.push(stored(code, &numbers, values.places.len())?);
    }
    let place = |(index, slot): &(usize, usize)| {
        let piece = pieces.get(*index).ok_or_else(|| Error::internal("a value of no piece"))?;
        Ok((dictionary_of(&piece.data)?, *slot..slot.saturating_add(1)))
    };
    let dictionary = match (join(&fallible::collected(values.places.iter().map(place))?)?, pieces.first()) {
        (Some(values), _) => values,
        (None, Some(RowsOfArray { data, .. })) => dictionary_of(data)?.slice(0, 0),
        (None, None) => return Ok(pieces),
    };
    let pieces = pieces.into_iter().zip(coded).map(|(RowsOfArray { array, data }, codes)| {
        let data = data.into_builder().offset(0).buffers(vec![codes]).child_data(vec![dictionary.clone()]);
        // SAFETY: a code of the new dictionary for each slot, 0 under nulls.
        Ok(RowsOfArray { array, data: unsafe { data.build_unchecked() } })
    });
    fallible::collected(pieces)
}

fn dictionary_of(data: &ArrayData) -> Result<&ArrayData> {
    data.child_data().first().ok_or_else(|| Error::invalid("dictionary codes without values"))
}

/// Codes as a type stores them, of so many values.
fn stored(code: &DataType, numbers: &[usize], values: usize) -> Result<Buffer> {
    match code {
        DataType::Int8 => narrowed::<i8>(numbers),
        DataType::Int16 => narrowed::<i16>(numbers),
        DataType::Int32 => narrowed::<i32>(numbers),
        DataType::Int64 => narrowed::<i64>(numbers),
        DataType::UInt8 => narrowed::<u8>(numbers),
        DataType::UInt16 => narrowed::<u16>(numbers),
        DataType::UInt32 => narrowed::<u32>(numbers),
        _ => narrowed::<u64>(numbers),
    }?
    .ok_or_else(|| {
        Error::unsupported(format!(
            "rows of arrays with different dictionaries have {values} values together, more than codes of {code} count"
        ))
        .remedy_is("store the column with wider dictionary codes")
    })
}

/// `None` if a number does not fit.
fn narrowed<T: ArrowNativeType>(numbers: &[usize]) -> Result<Option<Buffer>> {
    let mut codes = fallible::with_room(numbers.len())?;
    for number in numbers {
        let Some(code) = T::from_usize(*number) else { return Ok(None) };
        codes.push(code);
    }
    Ok(Some(Buffer::from_vec(codes)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::builder::{FixedSizeListBuilder, LargeListBuilder, ListBuilder, StringDictionaryBuilder};
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Int8Type, Int32Type};
    use arrow_array::{
        Array, ArrayRef, DictionaryArray, Float64Array, Int8Array, Int64Array, StringArray, StringViewArray,
        StructArray, make_array,
    };
    use arrow_schema::{Field, FieldRef};

    use super::super::join_rows::join_data;
    use super::*;

    /// An array by the values of an own dictionary: 100 of other numbers, whose order is another, one value twice, and a null.
    fn texts(first: usize) -> DictionaryArray<Int8Type> {
        let words = (0..100).map(|word| match word {
            98 => Some(format!("word {first}, too long for a view")),
            99 => None,
            word => Some(format!("word {}, too long for a view", first + word)),
        });
        let codes = (0..120).map(|row| (row % 7 != 3).then(|| i8::try_from(99 - row % 100).unwrap()));
        DictionaryArray::new(Int8Array::from_iter(codes), Arc::new(StringArray::from_iter(words)))
    }

    /// The rows joined, with the field that makes the layout.
    fn joined(arrays: &[ArrayRef], rows: &[(usize, Range<usize>)]) -> Result<ArrayRef> {
        let data: Vec<ArrayData> = arrays.iter().map(|array| array.to_data()).collect();
        let rows: Vec<_> = rows.iter().map(|(array, rows)| (&data[*array], rows.clone())).collect();
        let field: FieldRef = Arc::new(Field::new("c", arrays[0].data_type().clone(), true));
        let joined = join_data(&field, &rows)?.to_arrow_unlogged()?;
        joined.to_data().validate_full().unwrap();
        Ok(joined)
    }

    /// What a row of texts shows, at any depth.
    fn shown(array: &dyn Array, row: usize) -> String {
        if let Some(codes) = array.as_any_dictionary_opt() {
            let slot = array.is_valid(row).then(|| codes.normalized_keys()[row]);
            return slot.map_or("null".into(), |slot| shown(codes.values().as_ref(), slot));
        }
        let list =
            |items: ArrayRef| format!("{:?}", (0..items.len()).map(|item| shown(&items, item)).collect::<Vec<_>>());
        match array.data_type() {
            _ if array.is_null(row) => "null".into(),
            DataType::List(_) => list(array.as_list::<i32>().value(row)),
            DataType::LargeList(_) => list(array.as_list::<i64>().value(row)),
            DataType::FixedSizeList(_, _) => list(array.as_fixed_size_list().value(row)),
            DataType::Struct(_) => list(array.as_struct().column(0).slice(row, 1)),
            DataType::Utf8 => array.as_string::<i32>().value(row).into(),
            DataType::Utf8View => array.as_string_view().value(row).into(),
            _ => format!("{:?}", array.slice(row, 1)),
        }
    }

    const ROWS: [(usize, Range<usize>); 7] =
        [(1, 90..100), (0, 3..3), (2, 0..4), (0, 5..11), (1, 90..93), (2, 30..37), (0, 98..99)];

    fn assert_joined(arrays: &[ArrayRef]) -> ArrayRef {
        let arrays: Vec<ArrayRef> = arrays.iter().map(|array| array.slice(1, array.len() - 2)).collect();
        let made = joined(&arrays, &ROWS).unwrap();
        let expected = ROWS.iter().flat_map(|(array, rows)| rows.clone().map(|row| shown(&arrays[*array], row)));
        let found: Vec<String> = (0..made.len()).map(|row| shown(&made, row)).collect();
        assert_eq!(found, expected.collect::<Vec<_>>(), "{}", made.data_type());
        made
    }

    #[test]
    fn values_of_several_dictionaries_are_there_once() {
        let made = assert_joined(&[0, 50, 0].map(|first| Arc::new(texts(first)) as ArrayRef));
        let values = made.as_dictionary::<Int8Type>().values().as_string::<i32>().clone();
        let mut known: Vec<_> = values.iter().collect();
        let rows: std::collections::HashSet<_> =
            (0..made.len()).filter(|row| made.is_valid(*row)).map(|row| shown(&made, row)).collect();
        known.sort_unstable();
        known.dedup();
        assert_eq!((known.len(), rows.len()), (values.len(), values.len()));
        // Integers are compared as texts are; floats by their slots.
        let codes = |row| Int8Array::from(vec![row; 120]);
        let ints =
            |row| Arc::new(DictionaryArray::new(codes(row), Arc::new(Int64Array::from_iter_values(0..100)))) as _;
        let made = assert_joined(&[ints(7), ints(99), ints(7)]);
        assert_eq!(
            made.as_any_dictionary().values().as_primitive::<arrow_array::types::Int64Type>().values(),
            &[99, 7]
        );
        let floats =
            |row| Arc::new(DictionaryArray::new(codes(row), Arc::new(Float64Array::from_iter_values([0.5; 100])))) as _;
        let made = assert_joined(&[floats(7), floats(99), floats(7)]);
        assert_eq!(made.as_any_dictionary().values().len(), 3);
    }

    #[test]
    fn one_dictionary_stays_as_it_is() {
        let texts = texts(0);
        let made = assert_joined(&[0, 1, 2].map(|_| Arc::new(texts.clone()) as ArrayRef));
        assert!(made.as_any_dictionary().values().to_data().ptr_eq(&texts.values().to_data()));
    }

    #[test]
    fn dictionaries_in_structs_and_lists_are_no_exception() {
        let texts = [0, 50, 200].map(texts);
        let inner = Field::new("item", texts[0].data_type().clone(), true);
        let nulls = arrow_buffer::NullBuffer::from_iter((0..120).map(|row| row % 11 != 5));
        let views = texts.each_ref().map(|texts| {
            let values: StringViewArray = texts.values().as_string::<i32>().iter().collect();
            Arc::new(DictionaryArray::new(texts.keys().clone(), Arc::new(values))) as ArrayRef
        });
        let made = assert_joined(&views);
        // The text of other values is not kept.
        assert!(made.get_buffer_memory_size() < 31 * (16 + 40));
        let structs = texts.each_ref().map(|texts| {
            let column = Arc::new(texts.clone()) as ArrayRef;
            Arc::new(StructArray::new(vec![inner.clone()].into(), vec![column], Some(nulls.clone()))) as ArrayRef
        });
        assert_joined(&structs);
        fn lists<B: arrow_array::builder::ArrayBuilder>(
            texts: &DictionaryArray<Int8Type>,
            mut lists: B,
            append: impl Fn(&mut B, &[Option<&str>], bool),
        ) -> ArrayRef {
            let texts = texts.downcast_dict::<StringArray>().unwrap();
            for row in 0..120_usize {
                let items = [row, row + 1].map(|item| arrow_array::ArrayAccessor::value(&texts, item % 99));
                let items = items.map(|item| (item.len() % 5 != 2).then_some(item));
                append(&mut lists, &items, row % 11 != 5);
            }
            lists.finish()
        }
        let items = StringDictionaryBuilder::<Int8Type>::new;
        assert_joined(&texts.each_ref().map(|texts| {
            lists(texts, ListBuilder::new(items()), |lists, items, valid| {
                items
                    .iter()
                    .take(items[0].map_or(0, str::len) % 3)
                    .for_each(|item| lists.values().append_option(*item));
                lists.append(valid);
            })
        }));
        assert_joined(&texts.each_ref().map(|texts| {
            lists(texts, LargeListBuilder::new(items()), |lists, items, valid| {
                items.iter().for_each(|item| lists.values().append_option(*item));
                lists.append(valid);
            })
        }));
        assert_joined(&texts.each_ref().map(|texts| {
            lists(texts, FixedSizeListBuilder::new(items(), 2), |lists, items, valid| {
                items.iter().for_each(|item| lists.values().append_option(*item));
                lists.append(valid);
            })
        }));
    }

    #[test]
    fn more_values_than_codes_are_an_error_only_if_rows_have_them() {
        let arrays = [0, 50, 200].map(|first| Arc::new(texts(first)) as ArrayRef);
        let error = joined(&arrays, &[(0, 0..120), (1, 0..2), (2, 0..120)]).unwrap_err();
        assert_eq!(error.column(), Some("c"));
        assert!(error.to_string().contains("more than codes of Int8 count"), "{error}");
        assert!(joined(&arrays, &[(0, 0..120), (1, 50..120)]).is_ok());
        let nulls: ArrayRef = Arc::new(DictionaryArray::<Int32Type>::from_iter([None::<&str>, None]));
        let other: ArrayRef = Arc::new(DictionaryArray::<Int32Type>::from_iter([None, Some("a")]));
        let made = joined(&[nulls, other], &[(0, 0..2), (1, 0..1)]).unwrap();
        assert_eq!((made.null_count(), make_array(made.to_data()).len()), (3, 3));
    }
}
