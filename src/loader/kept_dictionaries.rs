//! Which dictionary do the codes of rows that differ in length have? That of the first array: arrays with another one are refused, and
//! rows of several are joined under it, by which their codes stay as they are.

use std::sync::OnceLock;

use arrow_array::{ArrayRef, make_array};
use arrow_data::ArrayData;

use crate::conversion::VariedGroup;
use crate::convert::{element_dictionary, with_element_dictionary};
use crate::dtype::DType;
use crate::error::{Error, Remedy, Result, catch_panic};

/// The dictionary of the first array, for each group.
pub(super) struct KeptDictionaries(Vec<KeptDictionary>);

struct KeptDictionary {
    /// Whether elements become codes.
    is_of_codes: bool,
    first: OnceLock<ArrayRef>,
}

impl KeptDictionaries {
    /// # Errors
    /// As [`VariedGroup::has_codes`].
    pub(super) fn new(groups: &[VariedGroup]) -> Result<Self> {
        let of = |group: &VariedGroup| Ok(KeptDictionary { is_of_codes: group.has_codes()?, first: OnceLock::new() });
        groups.iter().map(of).collect::<Result<_>>().map(Self)
    }

    /// Whether elements of a group become codes.
    pub(super) fn has_codes(&self, group: usize) -> bool {
        self.0.get(group).is_some_and(|group| group.is_of_codes)
    }

    /// Returns the dictionaries that are known.
    pub(super) fn known(&self) -> impl Iterator<Item = &ArrayRef> {
        self.0.iter().filter_map(|group| group.first.get())
    }

    /// Returns an array of a group under the dictionary of the group's first array, which is this one if there is none yet.
    ///
    /// # Errors
    /// If it has other values: names the column.
    pub(super) fn under_first(&self, number: usize, group: &VariedGroup, data: ArrayData) -> Result<ArrayData> {
        let Some(known) = self.0.get(number).filter(|known| known.is_of_codes) else { return Ok(data) };
        let Some(own) = element_dictionary(&data) else { return Ok(data) };
        // Another lane may have been first.
        let first = known.first.get_or_init(|| make_array(own.clone()));
        let values = first.to_data();
        if own.ptr_eq(&values) {
            return Ok(data);
        }
        let is_same = catch_panic(|| Ok(make_array(own.clone()).as_ref() == first.as_ref()))?;
        if !is_same {
            let reason = "the arrays have different dictionaries, so their codes mean different things";
            // Categories are for columns that are no lists.
            let remedy = match DType::of_arrow(own.data_type()) {
                Some(_) => Remedy::DictionaryValues,
                None => Remedy::from("give all arrays one dictionary, as Table.unify_dictionaries() of pyarrow does"),
            };
            return Err(Error::unsupported(reason).remedy_is(remedy).in_column(group.field.name()));
        }
        with_element_dictionary(data, &values)
    }
}
