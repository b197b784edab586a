//! Checks rows of `arrow.variable_shape_tensor` against their shapes.

use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// Checks that each row that is `shown` has as many elements as its shape says.
///
/// # Errors
/// Names the first row of which that is not true.
pub(super) fn check_rows(shapes: &Tensor, offsets: &Tensor, shown: impl Fn(usize) -> bool) -> Result<()> {
    let ndim = shapes.shape().get(1).map_or(0, |ndim| usize::try_from(*ndim).unwrap_or(0));
    let (shapes, offsets) = (shapes.peek::<i32>()?, offsets.peek::<i32>()?);
    for (row, ends) in offsets.windows(2).enumerate().filter(|(row, _)| shown(*row)) {
        let shape = shapes.get(row * ndim..(row + 1) * ndim).unwrap_or(&[]);
        // An extent of zero ends the product, whatever the others are.
        let elements = match shape {
            shape if shape.iter().any(|extent| *extent < 0) => None,
            shape if shape.contains(&0) => Some(0),
            shape => shape.iter().try_fold(1_i64, |product, extent| product.checked_mul(i64::from(*extent))),
        };
        let length = ends.iter().rev().copied().map(i64::from).reduce(|end, start| end - start);
        if elements.is_none() || elements != length {
            let reason = format!("the shape {shape:?} for a row of {} elements", length.unwrap_or(0));
            return Err(Error::invalid(reason).at_row(row));
        }
    }
    Ok(())
}

/// Checks the extents that the type says are those of every row.
///
/// # Errors
/// Names the first row that has others.
pub(super) fn check_uniform(shapes: &Tensor, uniform: &[Option<i64>], shown: impl Fn(usize) -> bool) -> Result<()> {
    if uniform.is_empty() {
        return Ok(());
    }
    for (row, shape) in shapes.peek::<i32>()?.chunks(uniform.len()).enumerate().filter(|(row, _)| shown(*row)) {
        let fits = shape.iter().zip(uniform).all(|(own, all)| all.is_none_or(|all| all == i64::from(*own)));
        if !fits {
            let reason = format!("the shape {shape:?}, and the type's uniform_shape is {uniform:?}");
            return Err(Error::invalid(reason).at_row(row));
        }
    }
    Ok(())
}
