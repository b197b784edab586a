//! What makes the results of plans: one pass over host memory (`host_pass.rs`), or kernels (`src/kernels/backend.rs`).

use std::num::NonZero;

use super::chunk::{ColumnChunk, MatrixColumns};
use crate::error::Result;
use crate::plan::Plan;
use crate::spec::{MatrixSpec, MemoryOrder, Spec};
use crate::tensor::{Output, Tensor};

/// A planned column: its plan, and the chunks that the plan was made from.
#[derive(Clone, Copy)]
pub(crate) struct ColumnTask<'a> {
    pub(crate) spec: &'a Spec,
    pub(crate) plan: &'a Plan,
    pub(crate) chunks: &'a [ColumnChunk<'a>],
}

/// A planned matrix: its plan, and the chunks that the plan was made from.
#[derive(Clone, Copy)]
pub(crate) struct MatrixTask<'a> {
    pub(crate) spec: &'a MatrixSpec,
    pub(crate) plan: &'a Plan,
    pub(crate) chunks: &'a [MatrixColumns<'a>],
    /// The memory order of a new matrix: column-major for F, else row-major.
    pub(crate) memory_order: MemoryOrder,
    /// Threads of the host.
    pub(crate) threads: Option<NonZero<usize>>,
}

/// Does the steps of a plan, where the data is. The nulls that a task's spec refuses were looked for already.
pub(crate) trait Backend: Sync {
    /// Refuses memory of which no view may be handed out.
    fn check_view(&self, spec: &Spec, chunk: &ColumnChunk<'_>) -> Result<()>;

    /// Returns whether the bytes of an `arrow.bool8` chunk are all 0 or 1, as a tensor's bools must be.
    fn are_bools(&self, chunk: &ColumnChunk<'_>) -> Result<bool>;

    /// Writes the elements of all chunks to new memory.
    fn column(&self, task: ColumnTask<'_>) -> Result<Tensor>;

    /// Writes the elements of all chunks to the caller's memory, on the host with this many threads.
    fn write_column(&self, task: ColumnTask<'_>, out: &mut Output<'_>, threads: Option<NonZero<usize>>) -> Result<()>;

    /// Writes the rows of all chunks to new memory.
    fn matrix(&self, task: MatrixTask<'_>) -> Result<Tensor>;

    /// Writes the rows of all chunks to the caller's memory, in its memory order.
    fn write_matrix(&self, task: MatrixTask<'_>, out: &mut Output<'_>) -> Result<()>;

    /// Writes a bool for each element of all chunks to new memory, true where it is valid.
    fn validity(&self, task: ColumnTask<'_>) -> Result<Tensor>;

    /// As [`Backend::validity`], for the columns of a matrix.
    fn matrix_validity(&self, task: MatrixTask<'_>) -> Result<Tensor>;
}
