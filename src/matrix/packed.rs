//! Packs columns on a device into a new matrix by kernels.

use std::ops::Range;

use smallvec::smallvec;

use super::prepared::record;
use crate::arrow::DeviceArray;
use crate::column::on_device::{are_bools, mask, needs_copy, refuse_known, values};
use crate::column::overlap;
use crate::column::pending_casts::{Casts, verify};
use crate::convert::{ColumnChunk, MatrixColumns, check_matrix_nulls, matrix_stride};
use crate::cuda::{MatrixLayout, is_cuda};
use crate::error::{Error, Result};
use crate::kernels::{self, KernelSource, Shape, Target, TargetLayout};
use crate::plan::{MatrixData, Plan};
use crate::spec::{CopyMode, Element, MatrixOptions, MatrixSpec, MemoryOrder, Nulls, Spec};
use crate::stream_order::{self, Readiness};
use crate::tensor::{Output, Tensor};
use crate::transfer::{Fetched, fetch};

/// The matrix in memory of ours; `None` where it may be a view, or where no kernel is for what has to be done.
///
/// # Errors
/// Where a copy is refused, for a null or a value that is refused, and as [`kernels::pack`]. Names the column and the row.
pub(super) fn packed(
    spec: &MatrixSpec,
    chunks: &[DeviceArray],
    options: &MatrixOptions,
    readiness: &Readiness,
    (fetched, casts): (Option<&Fetched>, Option<&Casts>),
) -> Result<Option<Tensor>> {
    let filled: Vec<&DeviceArray> = chunks.iter().filter(|chunk| !chunk.is_empty()).collect();
    if !has_kernels(spec, readiness, filled.len()) {
        return Ok(None);
    }
    let columns = filled.iter().map(|chunk| columns_of(spec, chunk)).collect::<Result<Vec<_>>>()?;
    let mut lies = ViewLayout::Perhaps;
    let mut plan = plan(spec, &columns, options, lies)?;
    let (mut is_row_major, mut private) = (options.memory_order != MemoryOrder::F, options.clone());
    if !plan.is_copy() {
        let [only] = columns.as_slice() else { return Ok(None) };
        // What only the memory tells is asked last.
        if !is_one_piece(spec, only, readiness)? {
            lies = ViewLayout::No;
        } else if are_all_bools(spec, only, readiness, fetched)? {
            return Ok(None);
        } else {
            // What was to be a view has the order that the view has.
            is_row_major = false;
            private.writable = true;
        }
        plan = self::plan(spec, &columns, &private, lies)?;
    }
    let Some(sources) = sources_of(spec, &columns) else { return Ok(None) };
    if options.copy == CopyMode::Never {
        // The same again, to be refused.
        plan_as_asked(spec, &columns, &private, lies)?;
    }
    refuse_nulls(spec, &filled, columns, fetched)?;
    let joined = DeviceArray::joined_readiness(filled.iter().copied())?.unwrap_or_else(|| readiness.clone());
    let (rows, count) = (plan.rows, spec.columns().len());
    let shape = Shape { rows, columns: count, dtype: spec.dtype(), is_row_major };
    let mut written = kernels::pack(&joined, &sources, shape)?;
    let specs = spec.columns().iter().map(|(_, column)| column);
    match casts {
        Some(casts) => casts.add(specs, written.check.take()),
        None => verify(specs, written.check.take())?,
    }
    record(spec, || plan.clone());
    let signed = |count: usize| i64::try_from(count).map_err(|_| Error::unsupported("a count beyond 64 bits"));
    let (rows, count) = (signed(rows)?, signed(count)?);
    let strides = if is_row_major { smallvec![count, 1] } else { smallvec![1, rows] };
    written.tensor(spec.dtype(), (smallvec![rows, count], strides), None).map(Some)
}

/// The columns in memory of somebody else's on the same device.
///
/// # Errors
/// As [`packed`], and when `out` is on another device, has another dtype or shape, its elements lie neither row by row nor column
/// by column, or it overlaps the columns.
pub(super) fn write(
    spec: &MatrixSpec,
    chunks: &[DeviceArray],
    options: &MatrixOptions,
    readiness: &Readiness,
    out: &Output<'_>,
) -> Result<()> {
    let target_readiness = out.require_device(readiness.device())?;
    let filled: Vec<&DeviceArray> = chunks.iter().filter(|chunk| !chunk.is_empty()).collect();
    let rows = filled.iter().fold(0_usize, |rows, chunk| rows.saturating_add(chunk.len()));
    let (stride, by_column) = matrix_stride(spec, rows, out)?;
    let memory_order = if by_column { MemoryOrder::F } else { MemoryOrder::C };
    let options = MatrixOptions { memory_order, copy: CopyMode::Always, ..options.clone() };
    let columns = filled.iter().map(|chunk| columns_of(spec, chunk)).collect::<Result<Vec<_>>>()?;
    let plan = plan(spec, &columns, &options, ViewLayout::No)?;
    let sources = has_kernels(spec, readiness, filled.len()).then(|| sources_of(spec, &columns)).flatten();
    let Some(sources) = sources else { return Err(needs_copy(readiness, &plan.reasons())) };
    check_overlap(spec, &filled, &out.span())?;
    refuse_nulls(spec, &filled, columns, None)?;
    if plan.elements == 0 {
        return Ok(());
    }
    let joined = DeviceArray::joined_readiness(filled.iter().copied())?.unwrap_or_else(|| readiness.clone());
    let count = spec.columns().len();
    let layout = if by_column {
        MatrixLayout::ColumnMajor { stride: if count < 2 { rows } else { stride } as u64 }
    } else {
        MatrixLayout::RowMajor { stride: if rows < 2 { count } else { stride } as u64 }
    };
    let target = Target { span: out.span(), readiness: target_readiness, layout: TargetLayout::Matrix(layout) };
    let shape = Shape { rows, columns: count, dtype: spec.dtype(), is_row_major: !by_column };
    let check = kernels::pack_into(&joined, &sources, shape, &target)?;
    verify(spec.columns().iter().map(|(_, column)| column), check)?;
    record(spec, || plan.clone());
    Ok(())
}

/// Refuses an output over memory that the columns are read from.
fn check_overlap(spec: &MatrixSpec, chunks: &[&DeviceArray], out: &Range<usize>) -> Result<()> {
    for chunk in chunks {
        let view = chunk.view();
        if view.validity_overlaps(out) {
            return Err(overlap());
        }
        if let Some((_, column)) = spec.columns().iter().find(|(position, _)| view.column_overlaps(*position, out)) {
            return Err(overlap().in_column(column.field().name()));
        }
    }
    Ok(())
}

/// Whether kernels are for columns of these specs in so many chunks, as far as their types say: nothing that has to be decoded, and
/// codes only where nobody has to know their dictionary.
fn has_kernels(spec: &MatrixSpec, readiness: &Readiness, chunks: usize) -> bool {
    let mut codes = spec.columns().iter().filter(|(_, column)| column.has_codes());
    let of_codes = |column: &Spec| chunks < 2 && !matches!(column.nulls(), Nulls::Filled(_));
    is_cuda(readiness.device()) && !spec.is_decoded() && codes.all(|(_, column)| of_codes(column))
}

/// What kernels read of each column of each chunk; `None` where no kernel is for one.
fn sources_of(spec: &MatrixSpec, chunks: &[MatrixColumns<'_>]) -> Option<Vec<Vec<KernelSource>>> {
    let sources = |chunk: &MatrixColumns<'_>| {
        let columns = spec.columns().iter().zip(&chunk.columns);
        columns.map(|((_, spec), column)| KernelSource::new(spec, &column.leaf)).collect()
    };
    chunks.iter().map(sources).collect()
}

/// A matrix's plan, those of its columns, and the null that is known to be refused.
pub(super) type Explained = (Plan, Vec<Plan>, Option<Error>);

/// The plan of a matrix that kernels would pack, and those of its columns, as far as the arrays tell without their memory;
/// `None` as for [`packed`].
///
/// # Errors
/// Where a copy is refused.
pub(super) fn explained(
    spec: &MatrixSpec,
    chunks: &[DeviceArray],
    options: &MatrixOptions,
    readiness: &Readiness,
) -> Result<Option<Explained>> {
    let filled: Vec<&DeviceArray> = chunks.iter().filter(|chunk| !chunk.is_empty()).collect();
    if !has_kernels(spec, readiness, filled.len()) {
        return Ok(None);
    }
    let columns = filled.iter().map(|chunk| columns_of(spec, chunk)).collect::<Result<Vec<_>>>()?;
    if !plan(spec, &columns, options, ViewLayout::Perhaps)?.is_copy() || sources_of(spec, &columns).is_none() {
        return Ok(None);
    }
    let plan = plan_as_asked(spec, &columns, options, ViewLayout::Perhaps)?;
    let (mut parts, mut refusal) = (Vec::new(), None);
    for (index, (_, column)) in spec.columns().iter().enumerate() {
        let leaves = columns.iter().filter_map(|chunk| chunk.columns.get(index));
        let at_most = leaves.fold(0_usize, |nulls, chunk| {
            let at_most = chunk.leaf.known_nulls().unwrap_or(chunk.leaf.elements);
            nulls.saturating_add(if column.nulls() == Nulls::Refused { 0 } else { at_most })
        });
        for chunk in &columns {
            let known = chunk.columns.get(index).and_then(|chunk| chunk.leaf.known_nulls());
            refusal = refusal.or(refuse_known(column, known).err());
        }
        parts.push(plan.of_matrix_column(column, at_most));
    }
    Ok(Some((plan, parts, refusal)))
}

/// Where the columns of a chunk are; the nulls of none were looked at.
fn columns_of<'a>(spec: &MatrixSpec, chunk: &'a DeviceArray) -> Result<MatrixColumns<'a>> {
    let view = chunk.view();
    let column = |(position, spec): &(usize, Spec)| {
        Ok(ColumnChunk { leaf: view.struct_field(*position)?.leaf(spec)?, mask: None, array: chunk })
    };
    let columns = spec.columns().iter().map(column).collect::<Result<Vec<_>>>()?;
    Ok(MatrixColumns { rows: chunk.len(), columns, is_plain: false })
}

/// Whether the columns of a chunk may be a matrix as they lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ViewLayout {
    /// Where their addresses say so.
    Perhaps,
    /// Whatever their addresses are.
    No,
}

/// Whether all that a matrix of these columns spans is one piece of the device's memory.
///
/// # Errors
/// When a column is not memory of the device. Names the column.
fn is_one_piece(spec: &MatrixSpec, columns: &MatrixColumns<'_>, readiness: &Readiness) -> Result<bool> {
    let current = stream_order::enter(readiness.device())?;
    let mut span: Option<Range<usize>> = None;
    for ((_, spec), chunk) in spec.columns().iter().zip(&columns.columns) {
        let values = values(spec, &chunk.leaf);
        let checked = current.check_memory(values.start, values.len(), readiness.device());
        checked.map_err(|error| error.in_column(spec.field().name()))?;
        span = Some(span.map_or(values.start, |span| span.start)..values.end);
    }
    let span = span.unwrap_or(0..0);
    // What each column is, they are not together.
    Ok(current.check_memory(span.start, span.len(), readiness.device()).is_ok())
}

/// Whether the bytes of the columns that have to be bools are some. The host waits for the answer.
fn are_all_bools(
    spec: &MatrixSpec,
    columns: &MatrixColumns<'_>,
    readiness: &Readiness,
    fetched: Option<&Fetched>,
) -> Result<bool> {
    for ((_, spec), column) in spec.columns().iter().zip(&columns.columns) {
        if spec.element() == Element::Bool8 && !are_bools(&values(spec, &column.leaf), readiness, fetched)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What is known without a look at the memory. Under [`CopyMode::Never`] as if a copy were allowed.
fn plan(spec: &MatrixSpec, chunks: &[MatrixColumns<'_>], options: &MatrixOptions, lies: ViewLayout) -> Result<Plan> {
    let copy = if options.copy == CopyMode::Never { CopyMode::IfNeeded } else { options.copy };
    plan_as_asked(spec, chunks, &MatrixOptions { copy, ..options.clone() }, lies)
}

/// As [`plan`], as far as options allow it.
fn plan_as_asked(
    spec: &MatrixSpec,
    chunks: &[MatrixColumns<'_>],
    options: &MatrixOptions,
    lies: ViewLayout,
) -> Result<Plan> {
    let rows = chunks.iter().fold(0_usize, |rows, chunk| rows.saturating_add(chunk.rows));
    let filled = |chunk: &MatrixColumns<'_>| {
        let columns = spec.columns().iter().zip(&chunk.columns);
        columns.fold(0_usize, |filled, ((_, spec), column)| match spec.nulls() {
            Nulls::Filled(_) => filled.saturating_add(column.leaf.known_nulls().unwrap_or(column.leaf.elements)),
            _ => filled,
        })
    };
    let filled = chunks.iter().map(filled).fold(0_usize, usize::saturating_add);
    let stride = match chunks {
        [only] if filled == 0 && lies == ViewLayout::Perhaps => only.column_stride(spec),
        _ => None,
    };
    let is_row_major =
        stride.is_some_and(|stride| spec.columns().len() == 1 || (rows == 1 && stride == spec.dtype().itemsize()));
    let data = MatrixData { rows, chunks: chunks.len(), is_row_major, is_column_major: stride.is_some() };
    Plan::matrix(spec, data, filled, options)
}

/// Refuses nulls where a spec does: the bitmaps of a chunk whose nulls are not counted are read together, unless they were.
fn refuse_nulls(
    spec: &MatrixSpec,
    filled: &[&DeviceArray],
    mut chunks: Vec<MatrixColumns<'_>>,
    fetched: Option<&Fetched>,
) -> Result<()> {
    for (array, chunk) in filled.iter().zip(&mut chunks) {
        let Some(readiness) = array.readiness() else { continue };
        let refused = spec.columns().iter().zip(&chunk.columns).filter(|((_, spec), _)| spec.nulls() == Nulls::Refused);
        let ranges: Vec<_> = refused.flat_map(|(_, column)| column.leaf.bitmaps()).collect();
        let own = if fetched.is_none() { Some(fetch(readiness, &ranges)?) } else { None };
        let fetched = fetched.or(own.as_ref());
        for ((_, spec), column) in spec.columns().iter().zip(&mut chunk.columns) {
            if spec.nulls() == Nulls::Refused {
                let nulls = mask(spec, &column.leaf, readiness, fetched);
                column.mask = nulls.map_err(|error| error.in_column(spec.field().name()))?;
            }
        }
    }
    check_matrix_nulls(spec, &chunks)
}
