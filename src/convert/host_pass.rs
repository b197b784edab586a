//! Does the steps of plans in one pass over host memory.

use std::num::NonZero;

use super::backend::Backend;
use super::chunk::{ColumnChunk, MatrixColumns};
use super::column::{new_column, validity};
use super::matrix::{pack_matrix, write_matrix};
use super::output::write_column;
use super::validity_bits::with_bits;
use crate::error::Result;
use crate::plan::Plan;
use crate::spec::{MatrixSpec, MemoryOrder, Spec};
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

    fn column(&self, spec: &Spec, plan: &Plan, chunks: &[ColumnChunk<'_>]) -> Result<Tensor> {
        new_column(spec, plan, chunks)
    }

    fn write_column(
        &self,
        spec: &Spec,
        _: &Plan,
        chunks: &[ColumnChunk<'_>],
        out: &mut Output<'_>,
        threads: Option<NonZero<usize>>,
    ) -> Result<()> {
        write_column(spec, chunks, out, threads.map(NonZero::get))
    }

    fn matrix(
        &self,
        spec: &MatrixSpec,
        _: &Plan,
        chunks: &[MatrixColumns<'_>],
        memory_order: MemoryOrder,
        threads: Option<NonZero<usize>>,
    ) -> Result<Tensor> {
        pack_matrix(spec, chunks, memory_order, threads.map(NonZero::get))
    }

    fn write_matrix(
        &self,
        spec: &MatrixSpec,
        _: &Plan,
        chunks: &[MatrixColumns<'_>],
        out: &mut Output<'_>,
        threads: Option<NonZero<usize>>,
    ) -> Result<()> {
        write_matrix(spec, chunks, out, threads.map(NonZero::get))
    }

    fn validity(&self, spec: &Spec, plan: &Plan, chunks: &[ColumnChunk<'_>]) -> Result<Tensor> {
        validity(spec, plan, chunks)
    }

    fn matrix_validity(
        &self,
        spec: &MatrixSpec,
        _: &Plan,
        chunks: &[MatrixColumns<'_>],
        memory_order: MemoryOrder,
        threads: Option<NonZero<usize>>,
    ) -> Result<Tensor> {
        with_bits(chunks, |bits| pack_matrix(spec, bits, memory_order, threads.map(NonZero::get)))
    }
}
