//! Matrices in both directions: the columns of a batch, a table or a stream as one tensor of shape `(rows, columns)`,
//! and back.

mod chunk;
mod groups;
mod planned;
mod planned_result;
mod streamed;
mod to_arrow;
mod to_tensor;
mod to_validity;
mod validity;

pub(crate) use chunk::MatrixChunk;
pub(crate) use groups::{convert_result, each_result, lowest_of_results};
pub(crate) use planned::PlannedMatrix;
pub(crate) use planned_result::{PlannedResult, ResultChunks, with_planned_result};
pub(crate) use streamed::{Read, read};
#[cfg(feature = "python")]
pub(crate) use to_arrow::check_matrix;
pub(crate) use to_arrow::plan_columns;
pub use to_arrow::{ColumnOptions, matrix_to_arrow};
pub(crate) use to_tensor::{check_matrix_output, convert_matrix, write_matrix};
