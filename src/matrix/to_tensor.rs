//! The columns of structs as one tensor.

use arrow_schema::FieldRef;

use super::chunk::{MatrixChunk, after};
use crate::arrow::DeviceArray;
use crate::convert::pack_matrix;
use crate::dtype::DType;
use crate::error::Result;
use crate::spec::{MatrixSpec, Options, Order};
use crate::tensor::Tensor;

/// What is asked of a matrix as a whole.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct MatrixOptions {
    /// The columns by name, in their order; `None` is all, in the schema's order.
    pub columns: Option<Vec<String>>,
    /// The dtype of every column, by a checked cast; `None` is what the columns promote to.
    pub dtype: Option<DType>,
    /// In which order the elements lie.
    pub order: Order,
    /// Threads to pack with; `None` is `ARROW_DLPACK_THREADS`, or as many as there are processors.
    pub threads: Option<usize>,
}

/// Converts columns of a batch, or of the chunks of a table, into a matrix of shape `(rows, columns)`: one pass from the
/// chunks into fresh memory, which casts, fills nulls and unpacks bits on the way.
///
/// # Errors
/// As [`MatrixSpec::new`]; for a null that is refused, and a value that a cast cannot take; when the data is not in host
/// memory, or memory cannot be had. Names column and row.
///
/// ```
/// use std::sync::Arc;
/// use arrow_array::{ArrayRef, Float32Array, Int8Array, RecordBatch};
/// use arrow_dlpack::{DeviceArray, MatrixOptions, Options, matrix_to_tensor};
///
/// let x: ArrayRef = Arc::new(Float32Array::from(vec![0.5, 1.5]));
/// let y: ArrayRef = Arc::new(Int8Array::from(vec![1, 2]));
/// let batch = DeviceArray::from_record_batch(&RecordBatch::try_from_iter([("x", x), ("y", y)]).unwrap())?;
/// let matrix = matrix_to_tensor(batch.field(), &[batch.clone()], &MatrixOptions::default(), |_| Options::default())?;
/// assert_eq!(matrix.shape(), [2, 2]);
/// assert_eq!(matrix.as_slice::<f32>()?, [0.5, 1.0, 1.5, 2.0]);
/// # Ok::<(), arrow_dlpack::Error>(())
/// ```
pub fn matrix_to_tensor(
    field: &FieldRef,
    chunks: &[DeviceArray],
    matrix: &MatrixOptions,
    options: impl Fn(&str) -> Options,
) -> Result<Tensor> {
    let spec = MatrixSpec::new(field, matrix.columns.as_deref(), options, matrix.dtype)?;
    let chunks = chunks.iter().map(|chunk| MatrixChunk::new(&spec, chunk)).collect::<Result<Vec<_>>>()?;
    let mut row = 0;
    let mut columns = Vec::with_capacity(chunks.len());
    for chunk in &chunks {
        columns.push(chunk.columns(&spec, &(0..chunk.rows())).map_err(|error| after(error, row))?);
        row += chunk.rows();
    }
    pack_matrix(&spec, &columns, matrix.threads.unwrap_or(1))
}
