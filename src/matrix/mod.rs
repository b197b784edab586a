//! Matrices: the columns of a batch, a table or a stream as one tensor of shape `(rows, columns)`.

mod chunk;
mod to_tensor;

#[allow(unused_imports, reason = "for what writes ranges of rows: the loader")]
pub(crate) use chunk::{MatrixChunk, after, write_rows};
pub use to_tensor::{MatrixOptions, matrix_to_tensor};
