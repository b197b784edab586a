//! Matrices: a tensor's columns as those of a record batch.

mod to_arrow;
mod validity;

pub use to_arrow::{ColumnOptions, matrix_to_arrow};
