//! Which dictionary do the codes of rows that differ in length have? That of the first array that has values in it: arrays with another
//! one are refused, but for an empty one of nulls alone, and rows of several are joined under it, by which their codes stay as they are.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arrow_array::{Array, ArrayRef, make_array};
use arrow_data::ArrayData;
use arrow_schema::Field;

use super::dictionary::{Dictionary, REMEMBERED_FROM, other_dictionary};
use crate::arrow::DeviceArray;
use crate::conversion::VariedGroup;
use crate::convert::{element_dictionary, has_no_element_codes, with_element_dictionary};
use crate::dtype::DType;
use crate::error::{Remedy, Result, catch_panic};

/// The dictionary of the first array, for each group, as one lane has it.
pub(super) struct KeptDictionaries {
    groups: Arc<Vec<KeptDictionary>>,
    /// Whether this lane's last array has values in its dictionary, by group.
    has_values: Vec<AtomicBool>,
}

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
        let groups: Arc<Vec<KeptDictionary>> = Arc::new(groups.iter().map(of).collect::<Result<_>>()?);
        Ok(Self { groups, has_values: Vec::new() }.another())
    }

    /// Returns the same ones for another lane.
    pub(super) fn another(&self) -> Self {
        Self { groups: self.groups.clone(), has_values: self.groups.iter().map(|_| AtomicBool::new(false)).collect() }
    }

    /// Whether elements of a group become codes.
    pub(super) fn has_codes(&self, group: usize) -> bool {
        self.groups.get(group).is_some_and(|group| group.is_of_codes)
    }

    /// Returns the values of the dictionary of each group with codes; `None` before an array had any.
    pub(super) fn known(&self) -> impl Iterator<Item = Option<&ArrayRef>> {
        let groups = self.groups.iter().filter(|group| group.is_of_codes);
        groups.map(|group| group.first.get().map(|first| &first.values))
    }

    /// Returns the values of the dictionaries of this lane's last array; `None` where it has none.
    pub(super) fn of_array(&self) -> impl Iterator<Item = Option<&ArrayRef>> {
        let groups = self.groups.iter().zip(&self.has_values).filter(|(group, _)| group.is_of_codes);
        groups.map(|(group, has_values)| {
            let first = group.first.get().filter(|_| has_values.load(Ordering::Relaxed));
            first.map(|first| &first.values)
        })
    }

    /// Notes whether a group of the array that this lane reads has values in its dictionary.
    pub(super) fn note(&self, group: usize, has_values: bool) {
        self.has_values.get(group).into_iter().for_each(|noted| noted.store(has_values, Ordering::Relaxed));
    }

    /// Returns an array of a group, of nulls alone, under the dictionary of the group's first array; `None` if there is none yet.
    ///
    /// # Errors
    /// If an allocation fails.
    pub(super) fn under_known(&self, number: usize, data: &ArrayData) -> Result<Option<ArrayData>> {
        let first = self.groups.get(number).and_then(|known| known.first.get());
        first.map(|first| with_element_dictionary(data.clone(), &first.values.to_data())).transpose()
    }

    /// Returns an array of a group under the dictionary of the group's first array, which is this one if there is none yet. An array of
    /// nulls alone, whose dictionary is empty, stays as it is before the first one.
    ///
    /// # Errors
    /// If it has other values: names the column.
    pub(super) fn under_first(&self, number: usize, group: &VariedGroup, data: ArrayData) -> Result<ArrayData> {
        let Some(known) = self.groups.get(number).filter(|known| known.is_of_codes) else { return Ok(data) };
        let Some(own) = element_dictionary(&data) else { return Ok(data) };
        if has_no_element_codes(&data) {
            return Ok(self.under_known(number, &data)?.unwrap_or(data));
        }
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
