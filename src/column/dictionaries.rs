//! Do the codes of all chunks stand for the same values?

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_schema::{DataType, Field};
use smallvec::SmallVec;

use crate::alloc::fallible;
use crate::arrow::{DeviceArray, Mask};
use crate::convert::ColumnChunk;
use crate::error::{Error, Remedy, Result};
use crate::spec::{Spec, is_text};
use crate::transfer::array_to_read;

/// Returns whether a chunk may have any dictionary: it has no elements, or nulls alone and no values, as Parquet files of a null column.
pub(crate) fn has_no_codes(chunk: &ColumnChunk<'_>) -> bool {
    let nulls = || chunk.mask.as_ref().map_or(0, Mask::nulls);
    chunk.leaf.elements == 0 || chunk.leaf.has_empty_dictionary() && nulls() == chunk.leaf.elements
}

/// Returns the chunks whose dictionaries have to be compared, of those with codes; the first chunk if none has any. Skips a chunk whose
/// dictionary shares memory with that of the first chunk, or of the last one kept.
fn different<'b, 'a: 'b>(chunks: impl IntoIterator<Item = &'b ColumnChunk<'a>>) -> SmallVec<[&'b ColumnChunk<'a>; 1]> {
    let mut found: SmallVec<[&'b ColumnChunk<'a>; 1]> = SmallVec::new();
    for chunk in chunks {
        match found.as_mut_slice() {
            [first] if has_no_codes(first) => *first = if has_no_codes(chunk) { *first } else { chunk },
            [first, ..] if has_no_codes(chunk) || first.leaf.shares_dictionary(&chunk.leaf) => {}
            [.., last] if last.leaf.shares_dictionary(&chunk.leaf) => {}
            _ => found.push(chunk),
        }
    }
    found
}

/// Returns the remedy for codes of different dictionaries with values of this type.
pub(crate) fn remedy_of_different(values: &DataType) -> Remedy {
    if is_text(values) { Remedy::CommonCategories } else { Remedy::DictionaryValues }
}

/// Returns whether the dictionaries of codes have to be read to know that they are the same.
pub(crate) fn are_compared<'b, 'a: 'b>(spec: &Spec, chunks: impl IntoIterator<Item = &'b ColumnChunk<'a>>) -> bool {
    spec.has_codes() && different(chunks).len() > 1
}

/// Returns the dictionary that the codes of all chunks are of; `None` where the elements are no codes. Where chunks have dictionaries in memory
/// of their own on a device, the host reads them, and waits.
///
/// # Errors
/// When chunks have different dictionaries: the same code would stand for different values. When the driver or an allocation fails.
pub(crate) fn shared_dictionary<'b, 'a: 'b>(
    spec: &Spec,
    chunks: impl IntoIterator<Item = &'b ColumnChunk<'a>>,
) -> Result<Option<DeviceArray>> {
    let Some(values) = spec.dictionary_values() else { return Ok(None) };
    let different = different(chunks);
    let Some((chunk, others)) = different.split_first() else {
        let empty = arrow_array::new_empty_array(values);
        return DeviceArray::from_arrow(&empty, Arc::new(Field::new("", values.clone(), true))).map(Some);
    };
    let Some(first) = chunk.array.dictionary_of(&chunk.leaf)? else { return Ok(None) };
    if !others.is_empty() {
        let in_column = |error: Error| error.in_column(spec.field().name());
        let refused = || {
            let reason = "the chunks have different dictionaries, so their codes mean different things";
            Err(in_column(Error::unsupported(reason).remedy_is(remedy_of_different(values))))
        };
        let mut dictionaries = fallible::with_room(others.len())?;
        for chunk in others {
            match chunk.array.dictionary_of(&chunk.leaf)? {
                // None of them is read for that.
                Some(dictionary) if dictionary.len() == first.len() => dictionaries.push(dictionary),
                _ => return refused(),
            }
        }
        let values = values_of(&first).map_err(in_column)?;
        for dictionary in &dictionaries {
            if values_of(dictionary).map_err(in_column)?.as_ref() != values.as_ref() {
                return refused();
            }
        }
    }
    Ok(Some(first))
}

/// The values of a dictionary, for the host to compare.
fn values_of(dictionary: &DeviceArray) -> Result<ArrayRef> {
    array_to_read(dictionary)?.to_arrow()
}
