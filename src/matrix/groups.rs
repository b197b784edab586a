//! Converts named groups of columns: packs a list of columns into a matrix, and converts a single column to its tensor.

use arrow_schema::FieldRef;

use super::chunk::MatrixChunk;
use super::planned::check_matrix_rows;
use super::planned_result::{columns_at, with_planned_result};
use super::to_tensor::convert_matrix;
use crate::arrow::{DeviceArray, Validated};
use crate::column::{Runner, SharedReads, add_unknowns, check_rows, check_types, convert_chunks, in_turn};
use crate::error::{Error, Result};
use crate::kernels::gathers_on;
use crate::spec::{MatrixOptions, ResultKind, ResultSpec, Spec};
use crate::tensor::Tensor;
use crate::transfer::{Facts, Unknowns};

/// Converts chunks into one of these results; `runner` runs the last step of columns and of matrices.
///
/// # Errors
/// As [`Conversion::to_tensors`](crate::Conversion::to_tensors).
pub(crate) fn convert_result(
    result: &ResultSpec,
    chunks: &[DeviceArray],
    matrix: &MatrixOptions,
    shared: SharedReads<'_>,
    runner: &Runner<'_>,
) -> Result<Tensor> {
    match &result.kind {
        ResultKind::Validity(_) | ResultKind::ColumnValidity { .. } => {
            with_planned_result(result, chunks, matrix, |mut planned| planned.run(shared, runner))
        }
        ResultKind::Matrix(spec) => convert_matrix(spec, chunks, matrix, shared, runner),
        ResultKind::Column { position, spec, options } => {
            convert_chunks(spec, &columns_at(chunks, *position), options, shared, runner)
        }
    }
}

/// Has `convert` make each of these results of chunks, given its number and what results share, and hands each on to `take`: those of
/// a device once all are made. Names the group in errors, on which `settle` has the last word.
///
/// # Errors
/// Those of `convert` in the lowest row, and those of `take`.
pub(crate) fn each_result<E: From<Error>>(
    field: &FieldRef,
    chunks: &[DeviceArray],
    results: &[ResultSpec],
    matrix: &MatrixOptions,
    mut convert: impl FnMut(usize, &ResultSpec, SharedReads<'_>) -> Result<Tensor>,
    settle: impl Fn(Error) -> Error,
    mut take: impl FnMut(&ResultSpec, Tensor) -> Result<(), E>,
) -> Result<(), E> {
    check_types(field, chunks)?;
    // What the host has to know of data on a device, it reads with one wait.
    let facts = read_results(chunks, results)?;
    let convert = |(number, result): (usize, &ResultSpec), shared: SharedReads<'_>| {
        convert(number, result, shared.of(result.specs())).map_err(|error| result.in_group(error))
    };
    let check = |(_, result): (usize, &ResultSpec), chunks: &[DeviceArray]| check_result(result, chunks, matrix);
    let take = |(_, result): (usize, &ResultSpec), tensor| take(result, tensor);
    in_turn(chunks, results.iter().enumerate(), facts.as_ref(), convert, check, settle, take)
}

/// Refuses the null or the value in the lowest row that a result of chunks in host memory would refuse.
fn check_result(result: &ResultSpec, chunks: &[DeviceArray], matrix: &MatrixOptions) -> Result<()> {
    let checked = match &result.kind {
        ResultKind::Matrix(spec) => check_matrix_rows(spec, chunks, matrix),
        // No value of a bitmap is refused.
        ResultKind::Validity(_) | ResultKind::ColumnValidity { .. } => Ok(()),
        ResultKind::Column { position, spec, .. } => check_rows(spec, &columns_at(chunks, *position)),
    };
    checked.map_err(|error| result.in_group(error))
}

/// The error of a result, or one that another result of these chunks has in a lower row.
pub(crate) fn lowest_of_results<'a>(
    error: Error,
    others: impl IntoIterator<Item = &'a ResultSpec>,
    chunks: &[DeviceArray],
    matrix: &MatrixOptions,
) -> Error {
    if DeviceArray::readiness_of(chunks).is_some() {
        return error;
    }
    others.into_iter().fold(error, |lowest, result| {
        let before = DeviceArray::first_rows(chunks, lowest.row().unwrap_or(0));
        let checked = check_result(result, &before, matrix);
        checked.err().filter(|error| error.is_lower_than(&lowest)).unwrap_or(lowest)
    })
}

/// Finds what the host has to know of groups of columns of a chunk on a device, together; `None` of host memory.
///
/// # Errors
/// When the memory is not what the array says, or the driver fails.
fn read_results(chunks: &[DeviceArray], results: &[ResultSpec]) -> Result<Option<Facts>> {
    let mut filled = chunks.iter().filter(|chunk| !chunk.is_empty());
    let (Some(array), None) = (filled.next(), filled.next()) else { return Ok(None) };
    let Some(readiness) = array.readiness() else { return Ok(None) };
    let is_read = |spec: &Spec| spec.decoded().is_none() || gathers_on(spec, readiness.device());
    let mut unknowns = Unknowns::default();
    for result in results {
        match &result.kind {
            ResultKind::Matrix(spec) if spec.columns().iter().all(|(_, column)| is_read(column)) => {
                let chunk = MatrixChunk::on_any_device(spec, array, &Validated::default())?;
                let columns = chunk.columns(spec, &(0..array.len()))?;
                let each = spec.columns().iter().zip(&columns.columns);
                each.for_each(|((_, spec), column)| add_unknowns(&mut unknowns, spec, &column.leaf));
            }
            ResultKind::Column { position: Some(position), spec, .. } if is_read(spec) => {
                add_unknowns(&mut unknowns, spec, &array.view().struct_field(*position)?.leaf(spec)?);
            }
            // Refused where it is converted.
            ResultKind::Matrix(_) | ResultKind::Column { .. } => {}
            // Kernels read it where it is.
            ResultKind::Validity(_) | ResultKind::ColumnValidity { .. } => {}
        }
    }
    unknowns.find(readiness).map(Some)
}
