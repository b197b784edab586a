//! [`TensorField`]: the Arrow type of a tensor, from its dtype, shape and strides alone.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::extension::EXTENSION_TYPE_NAME_KEY;
use arrow_schema::{DataType, Field, FieldRef};
use smallvec::SmallVec;

use super::strides::{Dims, row_major_strides};
use super::value::{BOOL8, Element, has_codes};
use super::{DecimalMode, DictionaryMode, FixedShapeTensor, Options, Spec};
use crate::dtype::DType;
use crate::error::{Error, Result};

/// The Arrow form of a tensor: one row for each index of the first dimension.
#[derive(Clone, Debug)]
pub(crate) struct TensorField {
    /// The field, with its extension metadata.
    pub field: FieldRef,
    /// Rows of the column.
    pub rows: usize,
    /// Elements of all rows.
    pub elements: usize,
    /// The sizes of the fixed-size lists around an element, outermost first.
    pub lists: Vec<usize>,
    /// How the leaf stores its elements: bits are packed.
    pub element: Element,
    /// The dtype of the tensor.
    pub dtype: DType,
    /// Whether the elements are in Arrow's order already. If not, they are gathered in row-major order.
    pub viewable: bool,
}

impl TensorField {
    /// Returns the Arrow form of a tensor of this dtype, shape and strides (in elements): 0-d becomes a column of
    /// length 1, n-d becomes `arrow.fixed_shape_tensor`. A tensor that came from `field` returns to its type, unless
    /// the order of its elements has changed.
    ///
    /// # Errors
    /// If no Arrow type holds the dtype, or a row has more elements than a fixed-size list can.
    pub(crate) fn new(dtype: DType, shape: &[i64], strides: &[i64], kept: Option<&FieldRef>) -> Result<Self> {
        let overflow = || {
            Error::unsupported("a row of the tensor has more than 2147483647 elements")
                .remedy_is("reshape it into more rows")
        };
        let (rows, row_stride) = (shape.first().copied().unwrap_or(1), strides.first().copied().unwrap_or(1));
        let (shape, strides) = (shape.get(1..).unwrap_or(&[]), strides.get(1..).unwrap_or(&[]));
        let row = shape.iter().try_fold(1_i64, |product, extent| product.checked_mul(*extent)).ok_or_else(overflow)?;
        let empty = rows == 0 || row == 0;
        let rows_are_dense = rows <= 1 || row_stride == row;
        let permutation = if empty { None } else { dense_permutation(shape, strides) };
        let viewable = empty || (rows_are_dense && permutation.is_some());
        let permutation = permutation.filter(|_| viewable).unwrap_or_else(|| (0..shape.len()).collect());
        let rows = usize::try_from(rows).map_err(|_| Error::internal("a negative extent"))?;
        let list = usize::try_from(row).map_err(|_| overflow())?;
        let elements = rows.checked_mul(list).ok_or_else(overflow)?;
        if let Some(spec) = kept.and_then(|field| Spec::new(field, &as_stored(dtype)).ok()) {
            // Strides of no elements say nothing.
            let laid_out = match (empty, viewable) {
                (true, _) => Dims::from_slice(spec.inner_strides()),
                (false, true) => Dims::from_slice(strides),
                (false, false) => row_major_strides(shape)?,
            };
            if spec.lays_out(dtype, shape, &laid_out) {
                let (field, lists, element) = (spec.field().clone(), spec.lists().into(), spec.element());
                return Ok(Self { field, rows, elements, lists, element, dtype, viewable });
            }
        }
        let (leaf, element) = leaf(dtype)?;
        let (mut physical, mut permutation) = (physical_shape(shape, &permutation), permutation);
        // A complex number is a pair, the fastest dimension.
        let parts = if let Element::Pairs(_) = element { 2 } else { 1 };
        if parts == 2 {
            permutation.push(physical.len());
            physical.push(2);
        }
        let list = |size: i64| -> Result<(DataType, Vec<usize>)> {
            let slots = size.checked_mul(parts).ok_or_else(overflow)?;
            let size = i32::try_from(slots).map_err(|_| overflow())?;
            let lists = vec![usize::try_from(slots).map_err(|_| overflow())?];
            Ok((DataType::FixedSizeList(Arc::new(leaf.clone().with_name("item")), size), lists))
        };
        let (field, lists) = match (shape.is_empty(), parts) {
            (true, 1) => (leaf, Vec::new()),
            (true, _) => {
                let (pairs, lists) = list(1)?;
                (Field::new("", pairs, true), lists)
            }
            (false, _) => {
                let (storage, lists) = list(row)?;
                let tensor = FixedShapeTensor::new(&physical, &permutation);
                (tensor.attach(Field::new("", storage, true)), lists)
            }
        };
        Ok(Self { field: Arc::new(field), rows, elements, lists, element, dtype, viewable })
    }
}

impl TensorField {
    /// Returns whether the elements are codes of a dictionary.
    #[must_use]
    pub(crate) fn has_codes(&self) -> bool {
        has_codes(self.field.data_type())
    }
}

/// Returns the options under which a column's own type converts to tensors of its stored elements.
fn as_stored(dtype: DType) -> Options {
    let options = Options::default().decimal(DecimalMode::Unscaled).dictionary(DictionaryMode::Codes);
    // Complex numbers are stored as pairs of floats, and stay pairs unless a complex dtype is requested.
    if dtype.component().is_some() { options.dtype(dtype) } else { options }
}

fn leaf(dtype: DType) -> Result<(Field, Element)> {
    if dtype == DType::Bool {
        return Ok((extension(DataType::Int8, BOOL8.to_owned()), Element::Bool8));
    }
    if let (Some(name), Ok(width)) = (dtype.extension_name(), i32::try_from(dtype.itemsize())) {
        return Ok((extension(DataType::FixedSizeBinary(width), name), Element::Values(dtype)));
    }
    let stored = dtype.component().unwrap_or(dtype);
    let data_type = stored.to_arrow().ok_or_else(|| Error::unsupported(format!("no Arrow type holds {dtype}")))?;
    let element = if stored == dtype { Element::Values(dtype) } else { Element::Pairs(stored) };
    Ok((Field::new("", data_type, true), element))
}

fn extension(storage: DataType, name: String) -> Field {
    Field::new("", storage, true).with_metadata(HashMap::from([(EXTENSION_TYPE_NAME_KEY.to_owned(), name)]))
}

/// Returns the order of dimensions, slowest first, in which the elements of one row are dense in memory, as the
/// permutation of `arrow.fixed_shape_tensor`: logical dimension `i` is physical dimension `permutation[i]`.
fn dense_permutation(shape: &[i64], strides: &[i64]) -> Option<Vec<usize>> {
    let mut order: SmallVec<[usize; 4]> = (0..shape.len()).collect();
    // A dimension of extent 1 may have any position. It keeps its own, because it gets the stride of its slower
    // neighbour.
    let key = |axis: &usize| -> i64 {
        let mut axis = *axis;
        loop {
            match (shape.get(axis), strides.get(axis)) {
                (Some(1), _) => axis += 1,
                (Some(_), Some(stride)) => return *stride,
                _ => return 0,
            }
        }
    };
    order.sort_by_key(|axis| std::cmp::Reverse(key(axis)));
    let mut expected = 1_i64;
    for axis in order.iter().rev() {
        let (extent, stride) = (*shape.get(*axis)?, *strides.get(*axis)?);
        if extent != 1 && stride != expected {
            return None;
        }
        expected = expected.checked_mul(extent)?;
    }
    let mut permutation: Vec<usize> = (0..order.len()).collect();
    for (physical, logical) in order.iter().enumerate() {
        *permutation.get_mut(*logical)? = physical;
    }
    Some(permutation)
}

fn physical_shape(shape: &[i64], permutation: &[usize]) -> Vec<i64> {
    let mut physical: Vec<(usize, i64)> = permutation.iter().copied().zip(shape.iter().copied()).collect();
    physical.sort_by_key(|(axis, _)| *axis);
    physical.into_iter().map(|(_, extent)| extent).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(shape: &[i64], strides: &[i64]) -> (bool, String) {
        let form = TensorField::new(DType::Float32, shape, strides, None).unwrap();
        (form.viewable, form.field.extension_type_metadata().unwrap_or("").to_owned())
    }

    #[test]
    fn one_dimension_is_a_plain_column() {
        for (shape, strides, viewable) in [
            (&[][..], &[][..], true),
            (&[5], &[1], true),
            (&[5], &[2], false),
            (&[5], &[-1], false),
            (&[1], &[7], true),
            (&[0], &[9], true),
        ] {
            assert_eq!(plan(shape, strides), (viewable, String::new()), "{shape:?} {strides:?}");
        }
    }

    #[test]
    fn inner_dimensions_may_be_permuted_and_rows_must_be_dense() {
        assert_eq!(plan(&[4, 2, 3], &[6, 3, 1]), (true, r#"{"shape":[2,3]}"#.into()));
        assert_eq!(plan(&[4, 2, 3], &[6, 1, 2]), (true, r#"{"permutation":[1,0],"shape":[3,2]}"#.into()));
        assert_eq!(plan(&[4, 2, 3], &[1, 4, 8]), (false, r#"{"shape":[2,3]}"#.into()));
        assert_eq!(plan(&[4, 3], &[0, 1]), (false, r#"{"shape":[3]}"#.into()));
        assert_eq!(plan(&[4, 3], &[-3, 1]), (false, r#"{"shape":[3]}"#.into()));
        assert_eq!(plan(&[1, 3], &[99, 1]), (true, r#"{"shape":[3]}"#.into()));
        assert_eq!(plan(&[4, 1, 3], &[3, 99, 1]), (true, r#"{"shape":[1,3]}"#.into()));
        assert_eq!(plan(&[4, 0, 3], &[0, 7, 1]), (true, r#"{"shape":[0,3]}"#.into()));
    }

    #[test]
    fn a_permutation_of_three_axes_reads_back_as_the_same_strides() {
        let form = TensorField::new(DType::Int16, &[2, 3, 4, 5], &[60, 5, 15, 1], None).unwrap();
        assert!(form.viewable);
        let spec = Spec::new(&form.field, &Options::default()).unwrap();
        assert_eq!((spec.inner_shape(), spec.inner_strides()), (&[3_i64, 4, 5][..], &[5_i64, 15, 1][..]));
        let form = TensorField::new(DType::Int16, &[2, 3, 4, 5], &[60, 1, 15, 3], None).unwrap();
        let spec = Spec::new(&form.field, &Options::default()).unwrap();
        assert_eq!((spec.inner_shape(), spec.inner_strides()), (&[3_i64, 4, 5][..], &[1_i64, 15, 3][..]));
    }

    #[test]
    fn every_dtype_has_an_arrow_form_that_reads_back_as_it() {
        for dtype in DType::ALL {
            for (shape, strides) in [(&[4][..], &[1][..]), (&[4, 2, 3], &[6, 1, 2]), (&[4, 2], &[2, 1]), (&[0], &[1])] {
                let form = TensorField::new(*dtype, shape, strides, None).unwrap();
                assert!(form.viewable);
                let spec = Spec::new(&form.field, &as_stored(*dtype)).unwrap();
                assert_eq!((spec.dtype(), spec.is_cast(), spec.element()), (*dtype, false, form.element));
                assert_eq!((spec.lists(), spec.inner_shape()), (&form.lists[..], &shape[1..]), "{dtype}");
                assert_eq!(spec.inner_strides(), &strides[1..], "{dtype} {shape:?}");
            }
        }
    }

    #[test]
    fn what_arrow_cannot_hold_is_refused() {
        assert!(TensorField::new(DType::Int8, &[1, 1 << 31], &[1 << 31, 1], None).is_err());
        assert!(TensorField::new(DType::Complex64, &[1, 1 << 30], &[1 << 30, 1], None).is_err());
    }
}
