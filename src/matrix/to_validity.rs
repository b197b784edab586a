//! Returns the validity of columns as a matrix of bools.

use super::chunk::{MatrixChunk, after};
use super::planned::decode_chunks;
use crate::alloc::fallible;
use crate::arrow::DeviceArray;
use crate::column::{Shared, check_types};
use crate::convert::{MatrixColumns, check_environment};
use crate::dtype::DType;
use crate::error::{Remedy, Result};
use crate::kernels::validity_placement;
use crate::plan::{Action, MatrixData, Placement, Plan, needs_copy};
use crate::spec::{MatrixOptions, MatrixSpec};
use crate::stream_order::Readiness;
use crate::tensor::Tensor;

/// A bool tensor of shape `(rows, columns)`, true where the element that a matrix of the spec's columns has there is valid. Nulls of
/// a row are nulls in each of its columns. A copy, row-major unless `matrix` asks for column-major.
pub(crate) fn convert_matrix_validity(
    spec: &MatrixSpec,
    chunks: &[DeviceArray],
    matrix: &MatrixOptions,
) -> Result<Tensor> {
    let decoded = decode_matrix_validity(spec, chunks, matrix)?;
    PlannedMatrixValidity::new(spec, &decoded, matrix)?.run()
}

/// The validity of a matrix's columns that is about to be made: what will be done is decided, and bitmaps of host memory were read.
pub(crate) struct PlannedMatrixValidity<'a> {
    spec: &'a MatrixSpec,
    plan: Plan,
    chunks: Vec<MatrixColumns<'a>>,
    options: &'a MatrixOptions,
    readiness: Option<&'a Readiness>,
}

impl<'a> PlannedMatrixValidity<'a> {
    /// Plans chunks of [`decode_matrix_validity`].
    ///
    /// # Errors
    /// As [`plan_matrix_validity`]; when an array breaks the Arrow format.
    pub(crate) fn new(spec: &'a MatrixSpec, arrays: &'a [MatrixChunk], options: &'a MatrixOptions) -> Result<Self> {
        let (mut chunks, mut row) = (fallible::with_room(arrays.len())?, 0_usize);
        for chunk in arrays {
            chunks.push(chunk.columns(spec, &(0..chunk.rows())).map_err(|error| after(error, row))?);
            row = row.saturating_add(chunk.rows());
        }
        let plan = plan_matrix_validity(spec, arrays.iter().map(MatrixChunk::array), options)?;
        let readiness = DeviceArray::readiness_of(arrays.iter().map(MatrixChunk::array));
        Ok(Self { spec, plan, chunks, options, readiness })
    }

    /// What will be done.
    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The tensor, of shape `(rows, columns)`.
    ///
    /// # Errors
    /// When memory cannot be had, or a driver fails.
    pub(crate) fn run(&self) -> Result<Tensor> {
        let Self { spec, plan, chunks, options, readiness } = self;
        let made = Shared::default().with_backend(*readiness, |backend| {
            backend.matrix_validity(spec, plan, chunks, options.memory_order, options.threads)
        })?;
        record_validity(spec, plan);
        Ok(made)
    }
}

/// The chunks of a matrix's validity, decoded where they have to be.
///
/// # Errors
/// As [`plan_matrix_validity`], before anything is decoded.
pub(crate) fn decode_matrix_validity(
    spec: &MatrixSpec,
    chunks: &[DeviceArray],
    matrix: &MatrixOptions,
) -> Result<Vec<MatrixChunk>> {
    check_environment()?;
    check_types(spec.field(), chunks)?;
    plan_matrix_validity(spec, chunks, matrix)?;
    decode_chunks(spec, chunks, matrix)
}

/// The plan for the validity of chunks.
///
/// # Errors
/// When no copy is allowed, no kernel makes one on the device of the chunks, or the result is larger than memory can be.
pub(crate) fn plan_matrix_validity<'a>(
    spec: &MatrixSpec,
    chunks: impl IntoIterator<Item = &'a DeviceArray, IntoIter: Clone>,
    matrix: &MatrixOptions,
) -> Result<Plan> {
    let chunks = chunks.into_iter();
    let rows = chunks.clone().fold(0_usize, |rows, chunk| rows.saturating_add(chunk.len()));
    let filled = chunks.clone().filter(|chunk| !chunk.is_empty());
    let readiness = DeviceArray::readiness_of(chunks);
    let placement = readiness.map_or(Placement::Host, |readiness| Placement::Kernels(readiness.device()));
    let data = MatrixData { rows, chunks: filled.clone().count(), placement, ..MatrixData::default() };
    let plan = validity_plan(spec, data, matrix)?;
    if let Some(readiness) = readiness {
        for chunk in filled {
            for (position, column) in spec.columns() {
                let leaf = chunk.view().struct_field(*position)?.leaf(column)?;
                if let Placement::Views(device) = validity_placement(column, &leaf, readiness) {
                    return Err(needs_copy(device, &Action::Unpack.to_string())
                        .remedy_is(Remedy::CopyToHostOrBitmaps)
                        .in_column(column.field().name()));
                }
            }
        }
    }
    Ok(plan)
}

/// The plan for the validity of chunks like these.
///
/// # Errors
/// As [`plan_matrix_validity`].
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
