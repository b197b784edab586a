//! Views columns on a device as a matrix, if they lie as one.

use super::packed::explained;
use crate::arrow::DeviceArray;
use crate::column::on_device::{are_bools, mask, needed, needs_copy, only_filled, refuse_known};
use crate::convert::{ColumnChunk, MatrixColumns, check_nulls, empty_matrix, view_matrix};
use crate::error::{Error, Remedy, Result};
use crate::plan::{Action, MatrixData, Plan};
use crate::spec::{Element, MatrixOptions, MatrixSpec, Nulls, ResultKind, ResultSpec};
use crate::stream_order::{self, Readiness};
use crate::tensor::Tensor;
use crate::transfer::{Fetched, fetch};

/// The matrix as a view of the only chunk that has rows.
///
/// # Errors
/// When a copy is needed, for a null that is refused, or when the memory is not what the arrays say. Names the column.
pub(super) fn view(
    spec: &MatrixSpec,
    chunks: &[DeviceArray],
    options: &MatrixOptions,
    readiness: &Readiness,
    fetched: Option<&Fetched>,
) -> Result<Tensor> {
    let chunk = only(spec, chunks, readiness)?;
    let mut columns = unread(spec, chunk)?;
    if columns.rows == 0 || columns.columns.is_empty() {
        return empty_matrix(spec, chunk);
    }
    let own = match fetched {
        Some(_) => None,
        None => Some(fetch(readiness, &needed_of(spec, &columns))?),
    };
    let fetched = own.as_ref().or(fetched);
    for ((_, spec), column) in spec.columns().iter().zip(&mut columns.columns) {
        let nulls = mask(spec, &column.leaf, readiness, fetched);
        column.mask = nulls.map_err(|error| error.in_column(spec.field().name()))?;
        check_nulls(spec, [&*column])?;
    }
    let (plan, stride) = plan_of(spec, &columns, options, readiness)?;
    check_bools(spec, &columns, readiness, fetched)?;
    check_span(spec, &columns, readiness)?;
    let missing = || needs_copy(readiness, &plan.reasons());
    view_matrix(spec, &columns, stride)?.ok_or_else(missing)
}

/// What the host has to know of the columns before it can say that they are a view.
fn needed_of(spec: &MatrixSpec, columns: &MatrixColumns<'_>) -> Vec<std::ops::Range<usize>> {
    let columns = spec.columns().iter().zip(&columns.columns);
    columns.flat_map(|((_, spec), column)| needed(spec, &column.leaf)).collect()
}

/// Reads what groups of columns of a chunk on a device need, together; `None` of host memory.
///
/// # Errors
/// When the memory is not what the array says, or the driver fails.
pub(super) fn fetch_groups(chunks: &[DeviceArray], results: &[ResultSpec]) -> Result<Option<Fetched>> {
    let mut filled = chunks.iter().filter(|chunk| !chunk.is_empty());
    let (Some(chunk), None) = (filled.next(), filled.next()) else { return Ok(None) };
    let Some(readiness) = chunk.readiness() else { return Ok(None) };
    let mut ranges = Vec::new();
    for result in results {
        match &result.kind {
            ResultKind::Matrix(spec) if !spec.is_decoded() => ranges.extend(needed_of(spec, &unread(spec, chunk)?)),
            ResultKind::Column { position: Some(position), spec, .. } if spec.decoded().is_none() => {
                ranges.extend(needed(spec, &chunk.view().struct_field(*position)?.leaf(spec)?));
            }
            // Refused where it is converted.
            ResultKind::Matrix(_) | ResultKind::Validity(_) | ResultKind::Column { .. } => {}
        }
    }
    fetch(readiness, &ranges).map(Some)
}

/// The plan of the view, as far as the arrays tell without their memory.
///
/// # Errors
/// When a copy is needed.
pub(super) fn explain(
    spec: &MatrixSpec,
    chunks: &[DeviceArray],
    options: &MatrixOptions,
    readiness: &Readiness,
) -> Result<(Plan, Vec<Plan>, Option<Error>)> {
    if let Some(explained) = explained(spec, chunks, options, readiness)? {
        return Ok(explained);
    }
    let chunk = only(spec, chunks, readiness)?;
    let columns = unread(spec, chunk)?;
    if columns.rows == 0 {
        let plan = Plan::matrix(spec, MatrixData::default(), 0, options)?;
        let parts = spec.columns().iter().map(|(_, column)| plan.of_matrix_column(column, 0)).collect();
        return Ok((plan, parts, None));
    }
    let (mut refusal, mut parts) = (None, Vec::new());
    for ((_, spec), column) in spec.columns().iter().zip(&columns.columns) {
        match (spec.nulls(), column.leaf.known_nulls()) {
            (Nulls::Refused, nulls) => refusal = refusal.or(refuse_known(spec, nulls).err()),
            (Nulls::Filled(_), nulls) if nulls != Some(0) => {
                return Err(needs_copy(readiness, "nulls filled").in_column(spec.field().name()));
            }
            _ => {}
        }
    }
    let (plan, _) = plan_of(spec, &columns, options, readiness)?;
    parts.extend(spec.columns().iter().map(|(_, column)| plan.of_matrix_column(column, 0)));
    Ok((plan, parts, refusal))
}

/// The chunk that has rows, or the first one.
fn only<'a>(spec: &MatrixSpec, chunks: &'a [DeviceArray], readiness: &Readiness) -> Result<&'a DeviceArray> {
    if spec.is_decoded() {
        return Err(needs_copy(readiness, &Action::Decode.to_string()));
    }
    let filled = only_filled(chunks, DeviceArray::len, readiness)?.unwrap_or(0);
    chunks.get(filled).ok_or_else(|| Error::internal("a matrix of no chunks"))
}

/// The columns, the nulls of which were not looked at.
fn unread<'a>(spec: &MatrixSpec, chunk: &'a DeviceArray) -> Result<MatrixColumns<'a>> {
    let view = chunk.view();
    let column = |(position, spec): &(usize, crate::spec::Spec)| {
        Ok(ColumnChunk { leaf: view.struct_field(*position)?.leaf(spec)?, mask: None, array: chunk })
    };
    let columns = spec.columns().iter().map(column).collect::<Result<Vec<_>>>()?;
    Ok(MatrixColumns { rows: chunk.len(), columns, is_plain: false })
}

/// The plan, and the bytes from one column to the next.
fn plan_of(
    spec: &MatrixSpec,
    columns: &MatrixColumns<'_>,
    options: &MatrixOptions,
    readiness: &Readiness,
) -> Result<(Plan, usize)> {
    let stride = columns.column_stride(spec);
    let is_row_major = stride
        .is_some_and(|stride| spec.columns().len() == 1 || (columns.rows == 1 && stride == spec.dtype().itemsize()));
    let data = MatrixData { rows: columns.rows, chunks: 1, is_row_major, is_column_major: stride.is_some() };
    let plan = Plan::matrix(spec, data, 0, options)?;
    match stride {
        Some(stride) if !plan.is_copy() => Ok((plan, stride)),
        Some(_) => Err(needs_copy(readiness, &plan.reasons()).remedy_is(Remedy::OrderOfView)),
        None => Err(needs_copy(readiness, &plan.reasons())),
    }
}

fn check_bools(
    spec: &MatrixSpec,
    columns: &MatrixColumns<'_>,
    readiness: &Readiness,
    fetched: Option<&Fetched>,
) -> Result<()> {
    for ((_, spec), column) in spec.columns().iter().zip(&columns.columns) {
        if spec.element() == Element::Bool8 {
            let start = column.leaf.start(spec.element()).addr();
            if !are_bools(&(start..start.saturating_add(column.leaf.elements)), readiness, fetched)? {
                return Err(needs_copy(readiness, &Action::Normalise.to_string()).in_column(spec.field().name()));
            }
        }
    }
    Ok(())
}

/// Asks the driver whether all that the matrix spans is one piece of the device's memory: consumers may copy it whole.
fn check_span(spec: &MatrixSpec, columns: &MatrixColumns<'_>, readiness: &Readiness) -> Result<()> {
    let mut span: Option<std::ops::Range<usize>> = None;
    for ((_, spec), chunk) in spec.columns().iter().zip(&columns.columns) {
        let (start, bytes) =
            (chunk.leaf.start(spec.element()).addr(), columns.rows.saturating_mul(spec.element().stored_bytes()));
        stream_order::check_memory(readiness.device(), start, bytes)
            .map_err(|error| error.in_column(spec.field().name()))?;
        span = Some(span.map_or(start, |span| span.start)..start.saturating_add(bytes));
    }
    let span = span.unwrap_or(0..0);
    // What each column is, they are not together.
    stream_order::check_memory(readiness.device(), span.start, span.len())
        .map_err(|_| needs_copy(readiness, "columns of several allocations packed").in_column(spec.field().name()))
}
