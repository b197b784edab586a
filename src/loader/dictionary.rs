//! The dictionary of the first array, with which those of later arrays are compared, and the hash of several.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, new_empty_array};
use arrow_schema::{DataType, Field};

use super::dictionary_hashes::DictionaryHashes;
use super::row_hashes::{Samples, fold_count};
use super::texts::{fold_text, texts, with_ticks};
use crate::alloc::fallible;
use crate::arrow::DeviceArray;
use crate::convert;
use crate::error::{Error, Remedy, Result};
use crate::spec::Spec;

/// Values from which on a dictionary that was compared is kept, with its whole array, to be recognised by its memory.
pub(super) const REMEMBERED_FROM: usize = 256;

/// Of how many columns any may have had no dictionary, so that a state can be told from one of other dictionaries.
const MOST_LEFT_OUT: usize = 6;

/// The dictionary of codes.
pub(super) struct Dictionary {
    pub(super) array: DeviceArray,
    pub(super) values: ArrayRef,
}

impl Dictionary {
    /// Copied, so that it does not keep its whole array alive.
    pub(super) fn new(dictionary: &DeviceArray) -> Result<Self> {
        let array = convert::copy_array_for(dictionary, "dictionary kept apart")?;
        let values = array.to_arrow()?;
        Ok(Self { array, values })
    }
}

/// Returns the error of codes of another dictionary than the first array's, which would mean something else.
pub(super) fn other_dictionary(remedy: impl Into<Remedy>, column: &str) -> Error {
    let reason = "the arrays have different dictionaries, so their codes mean different things";
    Error::unsupported(reason).remedy_is(remedy).in_column(column)
}

/// Returns the dictionary of a column of codes before an array had values in it.
///
/// # Errors
/// If it cannot be imported.
pub(super) fn no_values(spec: &Spec) -> Result<DeviceArray> {
    let values = spec.dictionary_values().unwrap_or(&DataType::Null);
    DeviceArray::from_arrow(&new_empty_array(values), Arc::new(Field::new("", values.clone(), true)))
}

/// Returns the hashes of these dictionaries; `None` before an array had values in one.
///
/// # Errors
/// As [`fold_dictionaries`].
pub(super) fn hashes_of(known: &[Option<&ArrayRef>]) -> Result<DictionaryHashes> {
    let own = |values: &Option<&ArrayRef>| values.map(|values| fold_dictionaries(0, [Some(values)])).transpose();
    let each = fallible::collected(known.iter().map(own))?;
    let is_whole = !known.is_empty() && known.iter().all(Option::is_some);
    let all = if is_whole { Some(fold_dictionaries(0, known.iter().copied())?) } else { None };
    Ok(DictionaryHashes { all, each })
}

/// Returns a hash that goes on with these dictionaries, as docs/loader.md defines it. `None` has no values.
///
/// # Errors
/// If arrow-cast writes no values of a dictionary's type, or an allocation fails.
pub(super) fn fold_dictionaries<'a>(hash: u64, all: impl IntoIterator<Item = Option<&'a ArrayRef>>) -> Result<u64> {
    all.into_iter().try_fold(hash, |hash, values| {
        let Some(values) = values else { return Ok(fold_count(hash, 0)) };
        let values = with_ticks(values)?;
        let texts = texts(values.as_ref())?;
        let (mut hash, mut samples) = (fold_count(hash, values.len()), Samples::new());
        while samples.row() < values.len() {
            hash = fold_text(hash, &texts, samples.row())?;
            samples.advance();
        }
        Ok(hash)
    })
}

/// Returns whether this is the hash of these dictionaries, of which any may have had no values.
///
/// # Errors
/// As [`fold_dictionaries`].
pub(super) fn was_of_fewer(hash: u64, all: &[Option<&ArrayRef>]) -> Result<bool> {
    for had in 0..1_u32 << all.len().min(MOST_LEFT_OUT) {
        let has = |column: u32| had.checked_shr(column).is_none_or(|had| had & 1 == 1);
        let some = all.iter().zip(0..).map(|(values, column)| values.filter(|_| has(column)));
        if fold_dictionaries(0, some)? == hash {
            return Ok(true);
        }
    }
    Ok(false)
}
