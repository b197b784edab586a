//! The shapes of rows: which of them a matrix takes, and how many elements it has then.

use super::{Element, Spec};
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
            let (shape, strides) = (spec.inner_shape(), spec.inner_strides());
            let column = format!("{:?}", spec.field().name());
            let reason = format!(
                "its rows of shape {shape:?} are permuted, to strides {strides:?}, and a matrix takes them row-major"
            );
            return Err(Error::unsupported(reason)
                .remedy_is(Remedy::ColumnAlone { column })
                .in_column(spec.field().name()));
        }
        expected = expected.saturating_mul((*extent).max(1));
    }
    Ok(())
}
