//! Matrices: the columns of a batch, a table or a stream as one tensor of shape `(rows, columns)`.

mod chunk;
mod prepared;
mod to_tensor;

pub(crate) use chunk::{MatrixChunk, after};
pub(crate) use to_tensor::{convert_matrix, plan_matrix, write_matrix};
pub use to_tensor::{matrix_to_tensor, matrix_to_tensor_into};
