//! Shapes and strides: where the elements of a row-major tensor are.

use smallvec::SmallVec;

use crate::error::{Error, Result};

/// A shape, or strides in elements; up to two dimensions need no allocation.
pub(crate) type Dims = SmallVec<[i64; 2]>;

/// Returns a count as the protocols have it: in 64 bits, signed.
///
/// # Errors
/// When it is larger.
pub(crate) fn signed(count: usize) -> Result<i64> {
    i64::try_from(count).map_err(|_| Error::unsupported("a count beyond 64 bits"))
}

/// Returns the strides, in elements, of a row-major tensor of this shape. Dimensions of extent 0 count as 1.
///
/// # Errors
/// When they overflow.
pub(crate) fn row_major_strides(shape: &[i64]) -> Result<Dims> {
    let mut strides = Dims::from_elem(1, shape.len());
    let mut product = 1_i64;
    for (stride, extent) in strides.iter_mut().zip(shape).rev() {
        *stride = product;
        product = product
            .checked_mul((*extent).max(1))
            .ok_or_else(|| Error::invalid(format!("the shape {shape:?} has more elements than 64 bits can count")))?;
    }
    Ok(strides)
}
