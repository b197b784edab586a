//! Returns the validity of columns as a matrix of bools.

use std::num::NonZero;

use smallvec::smallvec;

use super::chunk::after;
use super::planned::decode_chunks;
use crate::alloc::fallible;
use crate::arrow::{DeviceArray, Leaf, Mask};
use crate::column::check_types;
use crate::convert::{ColumnChunk, MatrixColumns, check_environment, pack_matrix};
use crate::cuda::is_cuda;
use crate::dtype::DType;
use crate::error::{Error, Remedy, Result};
use crate::kernels::{self, KernelSource, Shape};
use crate::plan::{Action, MatrixData, Placement, Plan, needs_copy};
use crate::spec::{MatrixOptions, MatrixSpec, MemoryOrder};
use crate::stream_order::Readiness;
use crate::tensor::Tensor;

/// A bool tensor of shape `(rows, columns)`, true where the element that a matrix of the spec's columns has there is valid. Nulls of
/// a row are nulls in each of its columns. A copy, row-major unless `matrix` asks for column-major.
pub(crate) fn convert_validity(spec: &MatrixSpec, chunks: &[DeviceArray], matrix: &MatrixOptions) -> Result<Tensor> {
    check_environment()?;
    let plan = plan_validity(spec, chunks, matrix)?;
    let filled: Vec<&DeviceArray> = chunks.iter().filter(|chunk| !chunk.is_empty()).collect();
    let tensor = match DeviceArray::readiness_of(chunks) {
        Some(readiness) => by_kernels(spec, &filled, plan.rows, matrix.memory_order, readiness)?,
        None => on_host(spec, chunks, matrix)?,
    };
    record_validity(spec, &plan);
    Ok(tensor)
}

/// What [`convert_validity`] would do.
///
/// # Errors
/// When no copy is allowed, or the result is larger than memory can be.
pub(crate) fn plan_validity(spec: &MatrixSpec, chunks: &[DeviceArray], matrix: &MatrixOptions) -> Result<Plan> {
    check_types(spec.field(), chunks)?;
    let rows = chunks.iter().fold(0_usize, |rows, chunk| rows.saturating_add(chunk.len()));
    let readiness = DeviceArray::readiness_of(chunks);
    let placement = readiness.map_or(Placement::Host, |readiness| Placement::Kernels(readiness.device()));
    let filled = chunks.iter().filter(|chunk| !chunk.is_empty()).count();
    let data = MatrixData { rows, chunks: filled, placement, ..MatrixData::default() };
    validity_plan(spec, data, matrix)
}

/// The plan for the validity of chunks like these.
///
/// # Errors
/// As [`plan_validity`].
pub(super) fn validity_plan(spec: &MatrixSpec, data: MatrixData, matrix: &MatrixOptions) -> Result<Plan> {
    let mut plan = Plan::matrix(spec, data, matrix)?;
    // Of bits, it counts a byte for each value that is decoded.
    let decoded = spec.columns().iter().filter_map(|(_, column)| DType::of_arrow(column.decoded()?.data_type()));
    let wider = decoded.map(|dtype| plan.rows.saturating_mul(dtype.itemsize().saturating_sub(1)));
    plan.bytes = plan.bytes.saturating_add(wider.fold(0, usize::saturating_add));
    Ok(plan)
}

/// Puts the copy that a plan says on the record.
pub(super) fn record_validity(spec: &MatrixSpec, plan: &Plan) {
    plan.record(|| format!("validity of {} rows and {} columns", plan.rows, spec.columns().len()));
}

/// The bitmaps, which are columns of bits without nulls, packed as those are.
fn on_host(spec: &MatrixSpec, chunks: &[DeviceArray], options: &MatrixOptions) -> Result<Tensor> {
    let chunks = decode_chunks(spec, chunks, options)?;
    let (mut columns, mut row) = (fallible::with_room(chunks.len())?, 0_usize);
    for chunk in &chunks {
        columns.push(chunk.columns(spec, &(0..chunk.rows())).map_err(|error| after(error, row))?);
        row = row.saturating_add(chunk.rows());
    }
    with_bits(&columns, |bits| pack_matrix(spec, bits, options.memory_order, options.threads.map(NonZero::get)))
}

/// Calls `work` with the bitmaps of chunks' columns as columns.
pub(crate) fn with_bits<R>(
    columns: &[MatrixColumns<'_>],
    work: impl FnOnce(&[MatrixColumns<'_>]) -> Result<R>,
) -> Result<R> {
    let without_nulls = |chunk: &&MatrixColumns<'_>| chunk.columns.iter().any(|column| column.mask.is_none());
    let bytes = columns.iter().filter(without_nulls).map(|chunk| chunk.rows.div_ceil(8)).max().unwrap_or(0);
    let all_valid = fallible::filled(bytes, u8::MAX)?;
    let bits = columns.iter().map(|chunk| bits_of(chunk, &all_valid)).collect::<Result<Vec<_>>>()?;
    work(&bits)
}

/// The bitmaps of a chunk's columns as columns.
fn bits_of<'a>(chunk: &'a MatrixColumns<'a>, all_valid: &'a [u8]) -> Result<MatrixColumns<'a>> {
    let column = |column: &'a ColumnChunk<'a>| {
        let (bytes, offset) = column.mask.as_ref().map_or((all_valid, 0), Mask::bits);
        Ok(ColumnChunk { leaf: Leaf::of_bits(bytes, offset, chunk.rows)?, mask: None, array: column.array })
    };
    let columns = chunk.columns.iter().map(column).collect::<Result<Vec<_>>>()?;
    Ok(MatrixColumns { rows: chunk.rows, columns, is_plain: false })
}

/// As [`on_host`], by kernels.
fn by_kernels(
    spec: &MatrixSpec,
    chunks: &[&DeviceArray],
    rows: usize,
    memory_order: MemoryOrder,
    readiness: &Readiness,
) -> Result<Tensor> {
    let mut sources = chunks.iter().map(|chunk| sources_of(spec, chunk, readiness)).collect::<Result<Vec<_>>>()?;
    sources.retain(|columns| !columns.is_empty());
    let joined = DeviceArray::joined_readiness(chunks.iter().copied())?.unwrap_or_else(|| readiness.clone());
    let (columns, is_row_major) = (spec.columns().len(), memory_order != MemoryOrder::F);
    let written = kernels::pack(&joined, &sources, Shape { rows, columns, dtype: DType::Bool, is_row_major })?;
    let signed = |count: usize| i64::try_from(count).map_err(|_| Error::unsupported("a count beyond 64 bits"));
    let (rows, columns) = (signed(rows)?, signed(columns)?);
    let strides = if is_row_major { smallvec![columns, 1] } else { smallvec![1, rows] };
    written.tensor(DType::Bool, (smallvec![rows, columns], strides), None)
}

/// What kernels read of the columns of a chunk.
///
/// # Errors
/// When no kernel is for a column. Names it.
fn sources_of(spec: &MatrixSpec, chunk: &DeviceArray, readiness: &Readiness) -> Result<Vec<KernelSource>> {
    let source = |(position, spec): &(usize, crate::spec::Spec)| {
        let is_told = is_cuda(readiness.device()) && spec.decoded().is_none() && !spec.has_codes();
        let source =
            if is_told { KernelSource::validity(&chunk.view().struct_field(*position)?.leaf(spec)?) } else { None };
        source.ok_or_else(|| {
            needs_copy(readiness.device(), &Action::Unpack.to_string())
                .remedy_is(Remedy::CopyToHostOrBitmaps)
                .in_column(spec.field().name())
        })
    };
    spec.columns().iter().map(source).collect()
}
