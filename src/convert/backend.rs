//! What makes the results of plans: one pass over host memory (`host_pass.rs`), or kernels (`src/kernels/backend.rs`).

use std::num::NonZero;

use super::chunk::{ColumnChunk, MatrixColumns};
use crate::error::Result;
use crate::plan::Plan;
use crate::spec::{MatrixSpec, MemoryOrder, Spec};
use crate::tensor::{Output, Tensor};

/// Does the steps of a plan, where the data is. Every method is given the plan that was made from its chunks, whose refused nulls
/// were looked for already.
pub(crate) trait Backend: Sync {
    /// Refuses memory of which no view may be handed out.
    fn check_view(&self, spec: &Spec, chunk: &ColumnChunk<'_>) -> Result<()>;

    /// Returns whether the bytes of an `arrow.bool8` chunk are all 0 or 1, as a tensor's bools must be.
    fn are_bools(&self, chunk: &ColumnChunk<'_>) -> Result<bool>;

    /// Writes the elements of all chunks to new memory.
    fn column(&self, spec: &Spec, plan: &Plan, chunks: &[ColumnChunk<'_>]) -> Result<Tensor>;

    /// Writes the elements of all chunks to the caller's memory.
    fn write_column(
        &self,
        spec: &Spec,
        plan: &Plan,
        chunks: &[ColumnChunk<'_>],
        out: &mut Output<'_>,
        threads: Option<NonZero<usize>>,
    ) -> Result<()>;

    /// Writes the rows of all chunks to new memory, column-major if `memory_order` is F, else row-major.
    fn matrix(
        &self,
        spec: &MatrixSpec,
        plan: &Plan,
        chunks: &[MatrixColumns<'_>],
        memory_order: MemoryOrder,
        threads: Option<NonZero<usize>>,
    ) -> Result<Tensor>;

    /// Writes the rows of all chunks to the caller's memory.
    fn write_matrix(
        &self,
        spec: &MatrixSpec,
        plan: &Plan,
        chunks: &[MatrixColumns<'_>],
        out: &mut Output<'_>,
        threads: Option<NonZero<usize>>,
    ) -> Result<()>;

    /// Writes a bool for each element of all chunks to new memory, true where it is valid.
    fn validity(&self, spec: &Spec, plan: &Plan, chunks: &[ColumnChunk<'_>]) -> Result<Tensor>;

    /// As [`Backend::validity`], for the columns of a matrix, in the memory order of [`Backend::matrix`].
    fn matrix_validity(
        &self,
        spec: &MatrixSpec,
        plan: &Plan,
        chunks: &[MatrixColumns<'_>],
        memory_order: MemoryOrder,
        threads: Option<NonZero<usize>>,
    ) -> Result<Tensor>;
}
