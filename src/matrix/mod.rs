//! Matrices in both directions: the columns of a batch, a table or a stream as one tensor of shape `(rows, columns)`,
//! and back.

mod chunk;
mod groups;
mod prepared;
mod streamed;
mod to_arrow;
mod to_tensor;
mod to_validity;
mod validity;

pub(crate) use chunk::{MatrixChunk, after};
pub(crate) use groups::each_result;
pub(crate) use streamed::{Read, read};
#[cfg(feature = "python")]
pub(crate) use to_arrow::check_matrix;
pub use to_arrow::{ColumnOptions, matrix_to_arrow};
pub(crate) use to_tensor::{MatrixPlan, Worker, by, convert_matrix, plan_matrix, work_here, write_matrix};
pub(crate) use to_validity::{convert_validity, plan_validity, with_bits};
