//! The shapes of rows: which of them a matrix or a padded group takes, and how many elements it has then.

use arrow_schema::Field;

use super::{Element, FixedShapeTensor, Spec};
use crate::error::{Error, ErrorKind, Remedy, Result};

/// Returns the elements of a row of all columns.
pub(super) fn width(columns: &[(usize, Spec)]) -> Result<usize> {
    let sum = columns.iter().try_fold(0_usize, |sum, (_, column)| sum.checked_add(column.row_elements()));
    sum.ok_or_else(|| Error::new(ErrorKind::Memory, "a row of the matrix is larger than memory can be"))
}

/// Refuses columns whose rows are bytes of something else, or do not lie in row-major order, so that it would be unclear which element
/// comes first.
pub(super) fn require_numbers(spec: &Spec) -> Result<()> {
    if matches!(spec.element(), Element::Bytes(_)) {
        let (shape, column) = (spec.inner_shape(), format!("{:?}", spec.field().name()));
        return Err(Error::unsupported(format!("its rows are bytes, of shape {shape:?}, and a matrix takes numbers"))
            .remedy_is(Remedy::ColumnAlone { column })
            .in_column(spec.field().name()));
    }
    // Rows without elements have no order.
    if spec.inner_shape().contains(&0) {
        return Ok(());
    }
    let mut expected = 1_i64;
    for (extent, stride) in spec.inner_shape().iter().zip(spec.inner_strides()).rev() {
        if *extent > 1 && *stride != expected {
            return Err(permuted(spec.field(), spec.inner_shape(), spec.inner_strides(), "matrix"));
        }
        expected = expected.saturating_mul((*extent).max(1));
    }
    Ok(())
}

/// Refuses tensors in each row that do not lie in row-major order, whose elements a padded group makes one row of.
pub(crate) fn require_row_major(field: &Field) -> Result<()> {
    let tensor = FixedShapeTensor::of(field).map_err(|error| error.in_column(field.name()))?;
    match tensor.filter(|tensor| !tensor.is_row_major()) {
        Some(tensor) => Err(permuted(field, &tensor.logical_shape()?, &tensor.logical_strides()?, "padded group")),
        None => Ok(()),
    }
}

fn permuted(field: &Field, shape: &[i64], strides: &[i64], taker: &str) -> Error {
    let reason =
        format!("its rows of shape {shape:?} are permuted, to strides {strides:?}, and a {taker} takes them row-major");
    let column = format!("{:?}", field.name());
    Error::unsupported(reason).remedy_is(Remedy::ColumnAlone { column }).in_column(field.name())
}
