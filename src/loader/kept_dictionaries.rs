//! Which dictionary do the codes of rows that differ in length have? That of the first array: arrays with another one are refused, and
//! rows of several are joined under it, by which their codes stay as they are.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arrow_array::{Array, ArrayRef, make_array};
use arrow_data::ArrayData;
use arrow_schema::Field;

use super::dictionary::{Dictionary, REMEMBERED_FROM, other_dictionary};
use crate::arrow::DeviceArray;
use crate::conversion::VariedGroup;
use crate::convert::{element_dictionary, with_element_dictionary};
use crate::dtype::DType;
use crate::error::{Remedy, Result, catch_panic};

/// The dictionary of the first array, for each group.
pub(super) struct KeptDictionaries(Vec<KeptDictionary>);

struct KeptDictionary {
    /// Whether elements become codes.
    is_of_codes: bool,
    first: OnceLock<Dictionary>,
    /// The last one that matched, if it is long: its memory need not be compared again.
    matched: Mutex<Option<ArrayData>>,
}

impl KeptDictionaries {
    /// # Errors
    /// As [`VariedGroup::has_codes`].
    pub(super) fn new(groups: &[VariedGroup]) -> Result<Self> {
        let of = |group: &VariedGroup| {
            let is_of_codes = group.has_codes()?;
            Ok(KeptDictionary { is_of_codes, first: OnceLock::new(), matched: Mutex::default() })
        };
        groups.iter().map(of).collect::<Result<_>>().map(Self)
    }

    /// Whether elements of a group become codes.
    pub(super) fn has_codes(&self, group: usize) -> bool {
        self.0.get(group).is_some_and(|group| group.is_of_codes)
    }

    /// Returns the dictionaries that are known.
    pub(super) fn known(&self) -> impl Iterator<Item = &ArrayRef> {
        self.0.iter().filter_map(|group| group.first.get()).map(|first| &first.values)
    }

    /// Returns an array of a group under the dictionary of the group's first array, which is this one if there is none yet.
    ///
    /// # Errors
    /// If it has other values: names the column.
    pub(super) fn under_first(&self, number: usize, group: &VariedGroup, data: ArrayData) -> Result<ArrayData> {
        let Some(known) = self.0.get(number).filter(|known| known.is_of_codes) else { return Ok(data) };
        let Some(own) = element_dictionary(&data) else { return Ok(data) };
        let found = catch_panic(|| Ok(make_array(own.clone())))?;
        if known.first.get().is_none() {
            let field = Arc::new(Field::new("", found.data_type().clone(), true));
            let first = Dictionary::new(&DeviceArray::from_arrow(found.as_ref(), field)?)?;
            // Another lane may have been first: its dictionary is compared below.
            _ = known.first.set(first);
        }
        let Some(first) = known.first.get() else { return Ok(data) };
        let mut matched = known.matched.lock().unwrap_or_else(PoisonError::into_inner);
        let is_compared = matched.as_ref().is_some_and(|matched| matched.ptr_eq(own));
        if !is_compared && !catch_panic(|| Ok(found.as_ref() == first.values.as_ref()))? {
            // Categories are for columns that are no lists.
            let remedy = match DType::of_arrow(own.data_type()) {
                Some(_) => Remedy::DictionaryValues,
                None => Remedy::from("give all arrays one dictionary, as Table.unify_dictionaries() of pyarrow does"),
            };
            return Err(other_dictionary(remedy, group.field.name()));
        }
        if own.len() >= REMEMBERED_FROM {
            *matched = Some(own.clone());
        }
        let values = first.values.to_data();
        with_element_dictionary(data, &values)
    }
}
