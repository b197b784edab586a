//! What is known of a tensor's origin where its memory came without that: in a pickle, or from another copy of this crate.

use arrow_schema::FieldRef;

use super::Tensor;
use crate::arrow::DeviceArray;
use crate::error::{Error, Result};
use crate::spec::{TensorField, dictionary_values};

impl Tensor {
    /// Returns the same tensor with the field and the dictionary that its elements came from, and whether a conversion copied them.
    ///
    /// # Errors
    /// If the field or the dictionary is of other elements.
    pub(crate) fn with_origin(
        self,
        field: Option<FieldRef>,
        dictionary: Option<DeviceArray>,
        copied: bool,
    ) -> Result<Self> {
        if let Some(field) = &field {
            let form = TensorField::new(self.dtype, &self.shape, &self.strides, Some(field))?;
            if form.field != *field {
                let (dtype, shape) = (self.dtype, &self.shape);
                return Err(Error::invalid(format!(
                    "the field {field} is not that of {dtype} elements of shape {shape:?}"
                )));
            }
        }
        if let (Some(dictionary), Some(field)) = (&dictionary, &field)
            && dictionary_values(field.data_type()) != Some(dictionary.field().data_type())
        {
            return Err(Error::invalid("a dictionary of another type than the field of its codes says"));
        }
        let tensor = Self { field, copied: copied && self.len > 0, ..self };
        Ok(match dictionary {
            Some(dictionary) => tensor.with_categories(dictionary, false),
            None => tensor,
        })
    }

    /// Returns the field that the elements came from, where they are what it says: what [`Tensor::with_origin`] accepts.
    pub(crate) fn kept_field(&self) -> Option<&FieldRef> {
        let field = self.field.as_ref()?;
        let form = TensorField::new(self.dtype, &self.shape, &self.strides, Some(field)).ok()?;
        Some(field).filter(|field| form.field == **field)
    }
}
