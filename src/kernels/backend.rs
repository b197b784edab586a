//! Does the steps of plans on a device: by kernels where there are some, else by views alone.

use std::num::NonZero;

use arrow_schema::DataType;
use smallvec::smallvec;

use super::pending_casts::{Casts, verify};
use super::source::{KernelSource, is_gathered};
use super::{Check, KernelTarget, Shape, TargetLayout, are_bools, pack, pack_into};
use crate::arrow::{DeviceArray, Leaf};
use crate::convert::{Backend, ColumnChunk, ColumnTask, MatrixColumns, MatrixTask, layout, matrix_stride, row_stride};
use crate::cuda::{MatrixLayout, is_cuda};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ffi::dlpack::DLDeviceType;
use crate::plan::{Action, Placement, Plan, needs_copy};
use crate::spec::{Element, MatrixSpec, MemoryOrder, Spec, signed};
use crate::stream_order::Readiness;
use crate::tensor::{Output, Tensor};
use crate::transfer::{Facts, read_to_host};

/// The device where data is, and what the host has read of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceBackend<'a> {
    /// When the data is written.
    pub(crate) readiness: &'a Readiness,
    /// What was found out for several columns at once.
    pub(crate) facts: Option<&'a Facts>,
    /// Who checks the values of casts; `None`: this, after each.
    pub(crate) casts: Option<&'a Casts>,
}

impl DeviceBackend<'_> {
    /// Refuses the plan if there are no sources, because no kernel does its steps.
    fn require(&self, plan: &Plan, sources: Option<Vec<Vec<KernelSource>>>) -> Result<Vec<Vec<KernelSource>>> {
        sources.ok_or_else(|| plan.refused_on(self.readiness.device()))
    }

    /// When all arrays are written.
    fn joined<'b>(&self, arrays: impl IntoIterator<Item = &'b DeviceArray>) -> Result<Readiness> {
        Ok(DeviceArray::joined_readiness(arrays)?.unwrap_or_else(|| self.readiness.clone()))
    }

    /// Checks the values of casts, now or with others.
    fn verify<'b>(&self, columns: impl IntoIterator<Item = &'b Spec>, check: Option<Check>) -> Result<()> {
        match self.casts {
            Some(casts) => {
                casts.add(columns, check);
                Ok(())
            }
            None => verify(columns, check),
        }
    }

    /// Writes the sources as a matrix.
    fn packed(&self, task: MatrixTask<'_>, sources: Option<Vec<Vec<KernelSource>>>) -> Result<Tensor> {
        let MatrixTask { spec, plan, chunks, memory_order, .. } = task;
        let mut sources = self.require(plan, sources)?;
        sources.retain(|columns| !columns.is_empty());
        let joined = self.joined(arrays(chunks))?;
        let is_row_major = memory_order != MemoryOrder::F;
        let shape = Shape { rows: plan.rows, columns: spec.width(), dtype: spec.dtype(), is_row_major };
        let mut written = pack(&joined, &sources, shape)?;
        self.verify(spec.columns().iter().map(|(_, column)| column), written.check.take())?;
        let (rows, count) = (signed(plan.rows)?, signed(spec.width())?);
        let strides = if is_row_major { smallvec![count, 1] } else { smallvec![1, rows] };
        written.tensor(spec.dtype(), (smallvec![rows, count], strides), None)
    }
}

impl Backend for DeviceBackend<'_> {
    fn check_view(&self, spec: &Spec, chunk: &ColumnChunk<'_>) -> Result<()> {
        let bytes = chunk.leaf.element_bytes(spec.element());
        self.readiness.check_part(&bytes)
    }

    /// The host reads the bytes, or what a kernel finds.
    fn are_bools(&self, chunk: &ColumnChunk<'_>) -> Result<bool> {
        let Some(readiness) = chunk.array.readiness() else { return Err(Error::internal("host memory of a device")) };
        let range = chunk.leaf.element_bytes(Element::Bool8);
        match self.facts.and_then(|facts| facts.are_bools(&range)) {
            Some(are) => Ok(are),
            None if readiness.device().device_type() == DLDeviceType::CUDA => are_bools(readiness, &range),
            None if range.is_empty() => Ok(true),
            None => {
                let read = read_to_host(readiness, std::slice::from_ref(&range))?;
                Ok(read.require(range.start, range.len())?.iter().all(|byte| *byte <= 1))
            }
        }
    }

    fn column(&self, ColumnTask { spec, plan, chunks }: ColumnTask<'_>) -> Result<Tensor> {
        let sources = self.require(plan, column_sources(spec, chunks))?;
        let joined = self.joined(chunks.iter().map(|chunk| chunk.array))?;
        let mut written = pack(&joined, &sources, column_shape(spec, plan))?;
        self.verify([spec], written.check.take())?;
        written.tensor(spec.dtype(), layout(spec, plan.rows)?, spec.kept_field().cloned())
    }

    fn write_column(&self, task: ColumnTask<'_>, out: &mut Output<'_>, _: Option<NonZero<usize>>) -> Result<()> {
        let ColumnTask { spec, plan, chunks } = task;
        let readiness = out.require_device(self.readiness.device())?;
        let stride = row_stride(spec, plan.rows, out)?;
        if plan.elements == 0 {
            return Ok(());
        }
        let sources = self.require(plan, column_sources(spec, chunks))?;
        let joined = self.joined(chunks.iter().map(|chunk| chunk.array))?;
        let (width, stride) = (spec.row_elements() as u64, stride as u64);
        let layout = if width == stride || plan.rows < 2 {
            TargetLayout::Matrix(MatrixLayout::ColumnMajor { stride: plan.elements as u64 })
        } else if width == 1 {
            TargetLayout::Matrix(MatrixLayout::RowMajor { stride })
        } else {
            TargetLayout::Rows { width, stride }
        };
        let target = KernelTarget { span: out.span(), readiness, layout };
        let check = pack_into(&joined, &sources, column_shape(spec, plan), &target)?;
        self.verify([spec], check)
    }

    fn matrix(&self, task: MatrixTask<'_>) -> Result<Tensor> {
        self.packed(task, matrix_sources(task.spec, task.chunks))
    }

    fn write_matrix(&self, task: MatrixTask<'_>, out: &mut Output<'_>) -> Result<()> {
        let MatrixTask { spec, plan, chunks, .. } = task;
        let readiness = out.require_device(self.readiness.device())?;
        let (stride, by_column) = matrix_stride(spec, plan.rows, out)?;
        if plan.elements == 0 {
            return Ok(());
        }
        let sources = self.require(plan, matrix_sources(spec, chunks))?;
        let joined = self.joined(arrays(chunks))?;
        let (rows, columns) = (plan.rows, spec.width());
        let layout = if by_column {
            MatrixLayout::ColumnMajor { stride: if columns < 2 { rows } else { stride } as u64 }
        } else {
            MatrixLayout::RowMajor { stride: if rows < 2 { columns } else { stride } as u64 }
        };
        let target = KernelTarget { span: out.span(), readiness, layout: TargetLayout::Matrix(layout) };
        let shape = Shape { rows, columns, dtype: spec.dtype(), is_row_major: !by_column };
        let check = pack_into(&joined, &sources, shape, &target)?;
        self.verify(spec.columns().iter().map(|(_, column)| column), check)
    }

    fn validity(&self, ColumnTask { spec, plan, chunks }: ColumnTask<'_>) -> Result<Tensor> {
        let filled = chunks.iter().filter(|chunk| chunk.leaf.elements > 0);
        let sources = filled.map(|chunk| Some(vec![validity_source(spec, &chunk.leaf)?])).collect();
        let sources = self.require(plan, sources)?;
        let joined = self.joined(chunks.iter().map(|chunk| chunk.array))?;
        let shape = Shape { rows: plan.elements, columns: 1, dtype: DType::Bool, is_row_major: false };
        let mut written = pack(&joined, &sources, shape)?;
        self.verify([spec], written.check.take())?;
        written.tensor(DType::Bool, layout(spec, plan.rows)?, None)
    }

    fn matrix_validity(&self, task: MatrixTask<'_>) -> Result<Tensor> {
        let sources = |chunk: &MatrixColumns<'_>| {
            let columns = task.spec.columns().iter().zip(&chunk.columns);
            columns.map(|((_, spec), column)| in_rows(spec, validity_source(spec, &column.leaf))).collect()
        };
        let sources = task.chunks.iter().filter(|chunk| chunk.rows > 0).map(sources).collect();
        self.packed(task, sources)
    }
}

/// Returns whether kernels may tell which elements of a spec are valid, by its types: by bitmaps alone, or by that of the values which codes
/// or runs stand for, too.
pub(crate) fn tells_validity(spec: &Spec) -> bool {
    spec.is_told_by_bitmaps() || looks_up_values(spec)
}

/// Returns whether the values of codes or of runs have a bitmap, which kernels look up.
pub(crate) fn looks_up_values(spec: &Spec) -> bool {
    let has_bitmap = |values: &DataType| {
        use DataType::{Dictionary, Null, RunEndEncoded, Union};
        !matches!(values, Null | Dictionary(_, _) | RunEndEncoded(_, _) | Union(_, _))
    };
    spec.gathers() || (spec.decoded().is_none() && spec.dictionary_values().is_some_and(has_bitmap))
}

/// Returns whether the validity of a leaf is looked up, so that the host has to know whether every code and every row of runs has a value.
pub(crate) fn looks_up_validity(spec: &Spec, leaf: &Leaf<'_>) -> bool {
    let has_nulls = || leaf.gathered_values().is_some_and(|values| values.validity.is_some());
    leaf.elements > 0 && looks_up_values(spec) && has_nulls()
}

/// Returns what unpacks the validity of a leaf on a device: kernels, where bitmaps tell all nulls, those of values included.
pub(crate) fn validity_placement(spec: &Spec, leaf: &Leaf<'_>, readiness: &Readiness) -> Placement {
    let device = readiness.device();
    let has_kernels = is_cuda(device) && validity_source(spec, leaf).is_some();
    if has_kernels { Placement::Kernels(device) } else { Placement::Views(device) }
}

/// What kernels read of a leaf's validity; `None` where bitmaps do not tell all nulls.
fn validity_source(spec: &Spec, leaf: &Leaf<'_>) -> Option<KernelSource> {
    let is_decoded = spec.decoded().is_some() && !spec.is_of_lists();
    match leaf.gathered_values().and_then(|values| values.validity) {
        Some(validity) if looks_up_values(spec) => KernelSource::value_validity(leaf, validity),
        _ if (is_decoded || spec.has_codes()) && !looks_up_values(spec) => None,
        _ => KernelSource::validity(leaf),
    }
}

/// Returns what does the steps for columns of a spec in these chunks of a device.
pub(crate) fn column_placement(spec: &Spec, chunks: &[ColumnChunk<'_>], readiness: &Readiness) -> Placement {
    let device = readiness.device();
    let has_kernels = is_cuda(device) && column_sources(spec, chunks).is_some();
    if has_kernels { Placement::Kernels(device) } else { Placement::Views(device) }
}

/// Returns what does the steps for a matrix of these chunks of a device.
pub(crate) fn matrix_placement(spec: &MatrixSpec, chunks: &[MatrixColumns<'_>], readiness: &Readiness) -> Placement {
    let device = readiness.device();
    let has_kernels = is_cuda(device) && matrix_sources(spec, chunks).is_some();
    if has_kernels { Placement::Kernels(device) } else { Placement::Views(device) }
}

/// What kernels read of the chunks of a column; `None` where no kernel is for it.
fn column_sources(spec: &Spec, chunks: &[ColumnChunk<'_>]) -> Option<Vec<Vec<KernelSource>>> {
    if spec.decoded().is_some() && !is_gathered(spec) {
        return None;
    }
    let filled = chunks.iter().filter(|chunk| chunk.leaf.elements > 0);
    filled.map(|chunk| KernelSource::new(spec, &chunk.leaf).map(|source| vec![source])).collect()
}

/// What kernels read of each column of each chunk; `None` where no kernel is for one.
fn matrix_sources(spec: &MatrixSpec, chunks: &[MatrixColumns<'_>]) -> Option<Vec<Vec<KernelSource>>> {
    let is_other =
        |(_, column): &(usize, Spec)| column.decoded().is_some() && !is_gathered(column) && !column.is_of_lists();
    if spec.columns().iter().any(is_other) {
        return None;
    }
    let sources = |chunk: &MatrixColumns<'_>| {
        let columns = spec.columns().iter().zip(&chunk.columns);
        columns.map(|((_, spec), column)| in_rows(spec, KernelSource::new(spec, &column.leaf))).collect()
    };
    chunks.iter().filter(|chunk| chunk.rows > 0).map(sources).collect()
}

/// The source of a column of a matrix.
fn in_rows(spec: &Spec, source: Option<KernelSource>) -> Option<KernelSource> {
    source.map(|source| source.in_rows_of(spec.row_elements()))
}

fn arrays<'a>(chunks: &'a [MatrixColumns<'a>]) -> impl Iterator<Item = &'a DeviceArray> {
    chunks.iter().filter_map(|chunk| chunk.columns.first().map(|column| column.array))
}

fn column_shape(spec: &Spec, plan: &Plan) -> Shape {
    Shape { rows: plan.elements, columns: 1, dtype: spec.dtype(), is_row_major: false }
}

/// Returns whether kernels on this device gather the values of a spec, which is decoded.
pub(crate) fn gathers_on(spec: &Spec, device: Device) -> bool {
    is_cuda(device) && is_gathered(spec)
}

/// Returns whether lists of one length are read where they are on this device: those that follow each other, if their items are not decoded.
pub(crate) fn reads_lists_on(spec: &Spec, device: Device) -> bool {
    is_cuda(device) && spec.is_of_lists()
}

/// Returns whether columns of a spec are read on this device without another one of decoded elements.
pub(crate) fn is_read_on(spec: &Spec, device: Device) -> bool {
    spec.decoded().is_none() || gathers_on(spec, device) || reads_lists_on(spec, device)
}

/// Refuses what has to be decoded, but for values of dictionaries, which kernels gather, and lists that are read where they are.
pub(crate) fn refuse_decoding(spec: &Spec, readiness: &Readiness) -> Error {
    needs_copy(readiness.device(), &Action::decoding(spec).to_string()).in_column(spec.field().name())
}
