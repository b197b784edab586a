//! What the elements of a tensor are codes of, where no field says it.

use super::{DictionaryOfCodes, Tensor};
use crate::arrow::DeviceArray;

impl Tensor {
    /// Returns the same tensor with the categories of its codes, which may be other numbers too if no field says what they are.
    pub(crate) fn with_categories(self, dictionary: DeviceArray, all_valid: bool) -> Self {
        Self { codes: Some(Box::new(DictionaryOfCodes { dictionary, all_valid })), ..self }
    }
}
