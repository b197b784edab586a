//! Record batches: every column as a tensor of its own.

use arrow_schema::FieldRef;

use crate::arrow::DeviceArray;
use crate::column::{ColumnRef, Runner, check_types, convert_chunks, run_here};
use crate::error::Result;
use crate::spec::{Options, Spec, select};
use crate::tensor::Tensor;

/// Converts columns of a batch, or of the chunks of a table, into tensors, in the order of `columns` (all, if `None`).
/// Nulls of a row are nulls in each of its columns.
///
/// # Errors
/// When `field` is no struct, a name does not exist or is not unique, or as [`crate::to_tensor`]; names the column.
///
/// ```
/// use std::sync::Arc;
/// use arrow_array::{ArrayRef, Float32Array, Int64Array, RecordBatch};
/// use arrow_dlpack::{DeviceArray, Options, to_tensors};
///
/// let x: ArrayRef = Arc::new(Float32Array::from(vec![0.5, 1.5]));
/// let y: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
/// let batch = DeviceArray::from_record_batch(&RecordBatch::try_from_iter([("x", x), ("y", y)]).unwrap())?;
/// let tensors = to_tensors(batch.field(), &[batch.clone()], None, |_| Options::default())?;
/// assert_eq!(tensors[1].0, "y");
/// assert_eq!(tensors[1].1.as_slice::<i64>()?, [1, 2]);
/// # Ok::<(), arrow_dlpack::Error>(())
/// ```
pub fn to_tensors(
    field: &FieldRef,
    chunks: &[DeviceArray],
    columns: Option<&[String]>,
    options: impl Fn(&str) -> Options,
) -> Result<Vec<(String, Tensor)>> {
    to_tensors_by(field, chunks, columns, options, &run_here)
}

/// As [`to_tensors`], the last step of each column by `runner`.
pub(crate) fn to_tensors_by(
    field: &FieldRef,
    chunks: &[DeviceArray],
    columns: Option<&[String]>,
    options: impl Fn(&str) -> Options,
    runner: &Runner<'_>,
) -> Result<Vec<(String, Tensor)>> {
    check_types(field, chunks)?;
    let convert = |index: usize, column: &FieldRef| {
        let options = options(column.name());
        let spec = Spec::new(column, &options)?;
        let chunks: Vec<_> = chunks.iter().map(|chunk| ColumnRef::column(chunk, index)).collect();
        Ok((column.name().clone(), convert_chunks(&spec, &chunks, &options, runner)?))
    };
    select(field, columns)?.into_iter().map(|(index, column)| convert(index, column)).collect()
}
