//! The fast path to a view of a plain column, in front of spec and plan.

use arrow_schema::FieldRef;
use smallvec::smallvec;

use crate::arrow::DeviceArray;
use crate::dtype::DType;
use crate::error::Result;
use crate::spec::Options;
use crate::tensor::{Tensor, TensorParts};

/// The view that a column of plain numbers is, one of a batch or an array of its own: what spec and plan, which has no
/// steps then, come to, in a fraction of the time. `None` where something else is asked for, or nulls or anything else
/// have to be looked into.
///
/// # Errors
/// When the values leave the address space.
#[inline]
pub(crate) fn plain_view(
    field: &FieldRef,
    chunk: &DeviceArray,
    column: Option<usize>,
    options: &Options,
) -> Result<Option<Tensor>> {
    let as_they_are = !options.copy.asks_for_own(options.writable) && options.keep_numbers_of(field);
    let Some(dtype) = DType::of_arrow(field.data_type()).filter(|_| as_they_are) else { return Ok(None) };
    let Some((start, rows)) = chunk.plain_values(column, dtype.itemsize()) else { return Ok(None) };
    let Ok(length) = i64::try_from(rows) else { return Ok(None) };
    if rows == 0 || !start.addr().is_multiple_of(dtype.alignment()) {
        return Ok(None);
    }
    let parts = TensorParts::of_host(start.cast_mut(), dtype, (smallvec![length], smallvec![1]), chunk.owner());
    let parts = TensorParts { field: Some(field.clone()), ..parts };
    // SAFETY: import checked that the array has these values, in host memory that `owner` keeps alive and that Arrow
    // declares immutable.
    let view = unsafe { Tensor::from_parts(parts) };
    view.map(Some).map_err(|error| error.in_column(field.name()))
}
