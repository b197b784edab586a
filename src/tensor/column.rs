//! Views the columns of a tensor.

use arrow_schema::extension::EXTENSION_TYPE_NAME_KEY;
use arrow_schema::{DataType, FieldRef};

use super::Tensor;
use crate::error::{Error, Result};
use crate::spec::Dims;

impl Tensor {
    /// Returns the elements with this index in the second dimension, without that dimension, over the same memory. They
    /// keep the field of an item, if the tensor's field is of lists.
    ///
    /// # Errors
    /// If there is no such column.
    pub(crate) fn column(&self, index: usize) -> Result<Self> {
        let missing = || Error::argument(format!("column {index} of a tensor of shape {:?}", self.shape));
        let (Some(&extent), Some(&stride)) = (self.shape.get(1), self.strides.get(1)) else { return Err(missing()) };
        let extent = usize::try_from(extent).ok().filter(|extent| index < *extent).ok_or_else(missing)?;
        // The tensor's byte span fits the address space, and so does the distance to each element.
        let step = isize::try_from(stride).map_err(|_| missing())?.wrapping_mul(self.dtype.itemsize().cast_signed());
        let data =
            if self.is_empty() { self.data } else { self.data.wrapping_offset(step.wrapping_mul(index.cast_signed())) };
        let without = |dims: &Dims| -> Dims {
            dims.iter().enumerate().filter(|(axis, _)| *axis != 1).map(|(_, extent)| *extent).collect()
        };
        let (shape, strides) = (without(&self.shape), without(&self.strides));
        let field = self.field.as_ref().and_then(|field| field_of_column(field, self.ndim()));
        let codes = if field.is_some() { self.codes.clone() } else { None };
        Ok(Self { data, shape, strides, len: self.len / extent, field, codes, ..self.clone() })
    }
}

/// Returns the field of a column of a tensor with this number of dimensions that came from `field`.
fn field_of_column(field: &FieldRef, dimensions: usize) -> Option<FieldRef> {
    let name = field.metadata().get(EXTENSION_TYPE_NAME_KEY).map(String::as_str);
    // The items of an extension type's storage are elements, not columns.
    let flat = name == Some("arrow.fixed_shape_tensor") && dimensions > 2;
    match field.data_type() {
        DataType::FixedSizeList(item, _) if !flat => Some(item.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_schema::Field;

    use super::*;

    fn lists(item: Field, size: i32) -> Field {
        Field::new("item", DataType::FixedSizeList(Arc::new(item), size), true)
    }

    /// The type of a column of rows of this field, with an extension type of this name.
    fn column_of(shape: &[usize], field: Field, extension: Option<&str>) -> Option<DataType> {
        let metadata = extension.map(|name| (EXTENSION_TYPE_NAME_KEY.to_owned(), name.to_owned()));
        let field = Arc::new(field.with_metadata(metadata.into_iter().collect()));
        let tensor = Tensor::from_vec(vec![0_i32; shape.iter().product()], shape).unwrap();
        let column = Tensor { field: Some(field), ..tensor }.column(0).unwrap();
        column.field.map(|field| field.data_type().clone())
    }

    #[test]
    fn a_column_has_the_field_of_an_item_unless_that_is_an_element() {
        let int = || Field::new("item", DataType::Int32, true);
        let (tensor, other) = (Some("arrow.fixed_shape_tensor"), Some("arrow.other"));
        for (extension, of_pairs) in [(None, true), (other, true), (tensor, false)] {
            assert_eq!(column_of(&[2, 3], lists(int(), 3), extension), Some(DataType::Int32));
            let pairs = lists(int(), 2);
            let expected = of_pairs.then(|| pairs.data_type().clone());
            assert_eq!(column_of(&[2, 3, 2], lists(pairs, 3), extension), expected, "{extension:?}");
        }
        assert_eq!(column_of(&[2, 3], int(), None), None);
    }
}
