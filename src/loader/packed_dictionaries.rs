//! Which dictionaries do the codes of a packed group have? Those of the first arrays that have values in them: arrays with other ones
//! are refused, but for arrays of nulls alone, whose dictionary is empty.

use std::sync::{Arc, OnceLock};

use arrow_array::ArrayRef;

use super::dictionary::{Dictionary, REMEMBERED_FROM, other_dictionary};
use crate::alloc::fallible;
use crate::arrow::DeviceArray;
use crate::column::{has_no_codes, remedy_of_different};
use crate::convert::ColumnChunk;
use crate::error::{Remedy, Result};
use crate::spec::Spec;

/// The dictionaries of a group's columns of codes, for one lane.
pub(super) struct PackedDictionaries {
    /// Those of the first arrays, of any lane.
    first: Arc<Vec<OnceLock<Dictionary>>>,
    /// Which columns of this lane's last array have values in their dictionary.
    has_values: Vec<bool>,
    /// The last one that matched, of each column with a long dictionary, whose memory need not be compared again.
    matched: Vec<Option<DeviceArray>>,
}

impl PackedDictionaries {
    /// Returns those of so many columns, before any was read.
    ///
    /// # Errors
    /// When an allocation fails.
    pub(super) fn new(columns: usize) -> Result<Self> {
        let first = fallible::collected((0..columns).map(|_| Ok(OnceLock::new())))?;
        Ok(Self { first: Arc::new(first), has_values: Vec::new(), matched: Vec::new() })
    }

    /// Returns the same ones for another lane.
    pub(super) fn another(&self) -> Self {
        Self { first: self.first.clone(), has_values: Vec::new(), matched: Vec::new() }
    }

    /// Returns the dictionary of each column; `None` before an array had values in it.
    pub(super) fn known(&self) -> impl Iterator<Item = Option<&Dictionary>> {
        self.first.iter().map(OnceLock::get)
    }

    /// Returns the values of the dictionaries of this lane's last array; `None` where it has none.
    pub(super) fn of_array(&self) -> impl Iterator<Item = Option<&ArrayRef>> {
        let has_values = self.has_values.iter().copied().chain(std::iter::repeat(false));
        let known = self.known().zip(has_values);
        known.map(|(known, has_values)| known.filter(|_| has_values).map(|known| &known.values))
    }

    /// Refuses codes of another dictionary than the first one, because they would mean something else. `columns` are those of codes. All rows
    /// of columns with an empty dictionary are there.
    ///
    /// # Errors
    /// If there are such codes, or a dictionary cannot be read.
    pub(super) fn check<'a>(&mut self, columns: impl Iterator<Item = (&'a Spec, &'a ColumnChunk<'a>)>) -> Result<()> {
        let (mut has_values, mut matched) = (Vec::new(), Vec::new());
        for (((spec, column), first), index) in columns.zip(self.first.iter()).zip(0..) {
            let is_empty = column.leaf.has_empty_dictionary() && has_no_codes(column);
            let found = if is_empty { None } else { column.array.dictionary_of(&column.leaf)? };
            fallible::push(&mut has_values, found.is_some())?;
            let before = self.matched.get_mut(index).and_then(Option::take);
            let Some(found) = found else {
                fallible::push(&mut matched, before)?;
                continue;
            };
            if first.get().is_none() {
                // Another lane may have been first: its dictionary is compared below.
                _ = first.set(Dictionary::new(&found)?);
            }
            let Some(first) = first.get() else { continue };
            let is_compared = before.is_some_and(|before| before.is_same_memory(&found));
            if !is_compared && found.to_arrow()?.as_ref() != first.values.as_ref() {
                let remedy = spec.dictionary_values().map_or(Remedy::DictionaryValues, remedy_of_different);
                return Err(other_dictionary(remedy, spec.field().name()));
            }
            fallible::push(&mut matched, (first.values.len() >= REMEMBERED_FROM).then_some(found))?;
        }
        (self.has_values, self.matched) = (has_values, matched);
        Ok(())
    }
}
