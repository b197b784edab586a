//! What the elements of a tensor are codes of.

use arrow_schema::Field;

use super::{DictionaryOfCodes, Tensor};
use crate::arrow::DeviceArray;
use crate::error::Result;
use crate::spec::forbids_null_elements;

impl Tensor {
    /// Returns the same tensor with the categories of its codes, which may be other numbers too if no field says what they are.
    pub(crate) fn with_categories(self, dictionary: DeviceArray, all_valid: bool) -> Self {
        Self { codes: Some(Box::new(DictionaryOfCodes { dictionary, all_valid })), ..self }
    }

    /// Returns whether elements may be codes of null values, which a `requested` type forbids. Reads no codes and no bitmaps.
    ///
    /// # Errors
    /// As [`Tensor::arrow_form`].
    pub(crate) fn may_be_refused_nulls(&self, requested: &Field) -> Result<bool> {
        let Some(dictionary) = self.dictionary().filter(|_| forbids_null_elements(requested)) else { return Ok(false) };
        let strict = dictionary.field().as_ref().clone().with_nullable(false);
        Ok(self.arrow_form()?.has_codes() && dictionary.may_have_nulls_of(&strict).is_some())
    }
}
