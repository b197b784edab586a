//! Does the steps of plans in one pass over host memory.

use std::num::NonZero;

use super::backend::{Backend, ColumnTask, MatrixTask};
use super::chunk::ColumnChunk;
use super::column::{new_column, validity};
use super::matrix::{pack_matrix, write_matrix};
use super::output::write_column;
use super::validity_bits::with_bits;
use crate::error::Result;
use crate::spec::Spec;
use crate::tensor::{Output, Tensor};

/// Passes over host memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostPass;

impl Backend for HostPass {
    fn check_view(&self, _: &Spec, _: &ColumnChunk<'_>) -> Result<()> {
        Ok(())
    }

    fn are_bools(&self, chunk: &ColumnChunk<'_>) -> Result<bool> {
        Ok(chunk.are_bools())
    }

    fn column(&self, task: ColumnTask<'_>) -> Result<Tensor> {
        new_column(task)
    }

    fn write_column(&self, task: ColumnTask<'_>, out: &mut Output<'_>, threads: Option<NonZero<usize>>) -> Result<()> {
        write_column(task.spec, task.chunks, out, threads.map(NonZero::get))
    }

    fn matrix(&self, task: MatrixTask<'_>) -> Result<Tensor> {
        pack_matrix(task)
    }

    fn write_matrix(&self, task: MatrixTask<'_>, out: &mut Output<'_>) -> Result<()> {
        write_matrix(task, out)
    }

    fn validity(&self, task: ColumnTask<'_>) -> Result<Tensor> {
        validity(task)
    }

    fn matrix_validity(&self, task: MatrixTask<'_>) -> Result<Tensor> {
        with_bits(task.chunks, |chunks| pack_matrix(MatrixTask { chunks, ..task }))
    }
}
