//! The metadata of `arrow.fixed_shape_tensor`
//! (<https://arrow.apache.org/docs/format/CanonicalExtensions.html#fixed-shape-tensor>).

use arrow_schema::extension::{EXTENSION_TYPE_METADATA_KEY, EXTENSION_TYPE_NAME_KEY};
use arrow_schema::{DataType, Field};
use serde_json::{Map, Value};

use super::Dims;
use crate::error::{Error, Result};

const NAME: &str = "arrow.fixed_shape_tensor";

/// The shape of every value of a column: the physical `shape`, row-major, and the order of the logical dimensions:
/// logical dimension `i` is physical dimension `permutation[i]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FixedShapeTensor {
    shape: Vec<i64>,
    permutation: Vec<usize>,
}

impl FixedShapeTensor {
    /// The type of values with this physical shape; `permutation` must be one of `0..shape.len()`.
    pub(crate) fn new(shape: &[i64], permutation: &[usize]) -> Self {
        Self { shape: shape.into(), permutation: permutation.into() }
    }

    /// Reads a field's metadata; `None` if the field is not of this extension type.
    ///
    /// # Errors
    /// When the metadata is not what the specification asks for, or does not fit the list size.
    pub(crate) fn of(field: &Field) -> Result<Option<Self>> {
        if field.extension_type_name() != Some(NAME) {
            return Ok(None);
        }
        let text = field.extension_type_metadata().unwrap_or("");
        let tensor = Self::parse(text).ok_or_else(|| {
            Error::invalid(format!("{NAME}: the metadata {text:?} is not what its specification asks"))
        })?;
        let size = tensor.shape.iter().try_fold(1_i64, |product, extent| product.checked_mul(*extent));
        match field.data_type() {
            DataType::FixedSizeList(_, list) if size == Some(i64::from(*list)) => Ok(Some(tensor)),
            other => Err(Error::invalid(format!("{NAME}: the shape {:?} does not fit {other}", tensor.shape))),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let metadata: Map<String, Value> = serde_json::from_str(text).ok()?;
        let shape: Vec<i64> = metadata
            .get("shape")?
            .as_array()?
            .iter()
            .map(|extent| extent.as_i64().filter(|extent| *extent >= 0))
            .collect::<Option<_>>()?;
        let permutation = match permutation(&metadata, shape.len())? {
            natural if natural.is_empty() => (0..shape.len()).collect(),
            other => other,
        };
        Some(Self { shape, permutation })
    }

    /// Makes a field of this extension type; its type must be a fixed-size list of the shape's product.
    pub(crate) fn attach(&self, field: Field) -> Field {
        let mut metadata = Map::new();
        metadata.insert("shape".into(), self.shape.clone().into());
        if !self.permutation.iter().copied().eq(0..self.shape.len()) {
            metadata.insert("permutation".into(), self.permutation.clone().into());
        }
        let mut entries = field.metadata().clone();
        entries.insert(EXTENSION_TYPE_NAME_KEY.to_owned(), NAME.to_owned());
        entries.insert(EXTENSION_TYPE_METADATA_KEY.to_owned(), Value::Object(metadata).to_string());
        field.with_metadata(entries)
    }

    /// The shape in logical order.
    ///
    /// # Errors
    /// Never: every value of this type has a valid permutation, but checking costs less than proving it.
    pub(crate) fn logical_shape(&self) -> Result<Dims> {
        self.permuted(&self.shape)
    }

    /// The strides in logical order, in children of the list.
    ///
    /// # Errors
    /// When they overflow.
    pub(crate) fn logical_strides(&self) -> Result<Dims> {
        self.permuted(&super::row_major_strides(&self.shape)?)
    }

    /// Returns whether both types put every element of a value at the same place.
    ///
    /// # Errors
    /// When strides overflow.
    pub(crate) fn orders_as(&self, other: &Self) -> Result<bool> {
        let (shape, strides, others) = (self.logical_shape()?, self.logical_strides()?, other.logical_strides()?);
        // Strides of a dimension with one element or none are never used.
        let same_stride = |((extent, stride), other): ((&i64, &i64), &i64)| *extent <= 1 || stride == other;
        Ok(shape == other.logical_shape()?
            && (shape.contains(&0) || shape.iter().zip(&strides).zip(&others).all(same_stride)))
    }

    /// Returns whether the logical order of the elements is their order in memory.
    pub(crate) fn is_row_major(&self) -> bool {
        let moved = self.permutation.iter().filter(|axis| self.shape.get(**axis).is_some_and(|extent| *extent != 1));
        self.shape.contains(&0) || moved.is_sorted()
    }

    fn permuted(&self, physical: &[i64]) -> Result<Dims> {
        self.permutation
            .iter()
            .map(|axis| physical.get(*axis).copied())
            .collect::<Option<Dims>>()
            .ok_or_else(|| Error::invalid(format!("{NAME}: the permutation names a dimension that does not exist")))
    }
}

/// Returns the order of the logical dimensions that the metadata of a tensor type gives: logical dimension `i` is physical dimension
/// `permutation[i]`. Empty where that is the order of the physical ones, `None` where it is malformed.
pub(super) fn permutation(metadata: &Map<String, Value>, ndim: usize) -> Option<Vec<usize>> {
    let given = match metadata.get("permutation") {
        None | Some(Value::Null) => return Some(Vec::new()),
        Some(value) => value.as_array()?,
    };
    let axis = |axis: &Value| usize::try_from(axis.as_u64()?).ok();
    let permutation = given.iter().map(axis).collect::<Option<Vec<usize>>>()?;
    let mut sorted = permutation.clone();
    sorted.sort_unstable();
    let is_natural = sorted == permutation;
    let permutation = if is_natural { Vec::new() } else { permutation };
    sorted.into_iter().eq(0..ndim).then_some(permutation)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn field(metadata: &str, size: i32) -> Field {
        let list = DataType::FixedSizeList(Arc::new(Field::new("item", DataType::Int8, true)), size);
        Field::new("x", list, true).with_metadata(
            [(EXTENSION_TYPE_NAME_KEY, NAME), (EXTENSION_TYPE_METADATA_KEY, metadata)]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
        )
    }

    #[test]
    fn the_specifications_examples_are_read() {
        let tensor = FixedShapeTensor::of(&field(r#"{"shape":[2,5]}"#, 10)).unwrap().unwrap();
        assert_eq!(tensor, FixedShapeTensor::new(&[2, 5], &[0, 1]));
        let text = r#"{"shape":[1,2,5],"permutation":[2,0,1],"dim_names":["H","W","C"]}"#;
        let tensor = FixedShapeTensor::of(&field(text, 10)).unwrap().unwrap();
        assert_eq!(tensor.logical_shape().unwrap().as_slice(), [5, 1, 2]);
        assert_eq!(tensor.logical_strides().unwrap().as_slice(), [1, 10, 5]);
    }

    #[test]
    fn tensors_of_other_shapes_order_their_elements_otherwise() {
        let tensor = |shape: &[i64], permutation: &[usize]| FixedShapeTensor::new(shape, permutation);
        let orders = |a: &FixedShapeTensor, b: &FixedShapeTensor| a.orders_as(b).unwrap();
        assert!(orders(&tensor(&[2, 3], &[0, 1]), &tensor(&[2, 3], &[0, 1])));
        assert!(!orders(&tensor(&[2, 3], &[0, 1]), &tensor(&[2, 3], &[1, 0])));
        // A dimension of one element may have any position, unless the shapes differ.
        assert!(orders(&tensor(&[1, 6], &[0, 1]), &tensor(&[6, 1], &[1, 0])));
        for (one, other) in
            [(&[1, 6][..], &[6, 1][..]), (&[6, 1], &[1, 6]), (&[6], &[5]), (&[1, 6], &[6]), (&[0, 2], &[0, 3])]
        {
            let natural = |shape: &[i64]| tensor(shape, &(0..shape.len()).collect::<Vec<_>>());
            assert!(!orders(&natural(one), &natural(other)), "{one:?} {other:?}");
        }
    }

    #[test]
    fn tensors_without_elements_are_in_any_order() {
        let moved = FixedShapeTensor::new(&[0, 2, 3], &[2, 1, 0]);
        let natural = FixedShapeTensor::new(&[3, 2, 0], &[0, 1, 2]);
        assert_eq!(moved.logical_shape().unwrap(), natural.logical_shape().unwrap());
        assert!(moved.orders_as(&natural).unwrap() && natural.orders_as(&moved).unwrap());
        assert!(moved.is_row_major());
        assert!(!FixedShapeTensor::new(&[3, 2], &[1, 0]).is_row_major());
    }

    #[test]
    fn what_is_written_is_read_back() {
        for permutation in [[0, 1], [1, 0]] {
            let tensor = FixedShapeTensor::new(&[2, 3], &permutation);
            let list = DataType::FixedSizeList(Arc::new(Field::new("item", DataType::Int8, true)), 6);
            let field = tensor.attach(Field::new("x", list, true));
            assert_eq!(FixedShapeTensor::of(&field).unwrap(), Some(tensor));
        }
    }

    #[test]
    fn malformed_metadata_is_refused() {
        for text in [
            "",
            "[]",
            "{}",
            r#"{"shape":[2,-5]}"#,
            r#"{"shape":[3,5]}"#,
            r#"{"shape":"2"}"#,
            r#"{"shape":[2.5,4]}"#,
            r#"{"shape":[2,5],"permutation":[0]}"#,
            r#"{"shape":[2,5],"permutation":[0,0]}"#,
            r#"{"shape":[2,5],"permutation":[0,2]}"#,
            r#"{"shape":[9223372036854775807,5]}"#,
        ] {
            assert!(FixedShapeTensor::of(&field(text, 10)).is_err(), "{text}");
        }
    }
}
