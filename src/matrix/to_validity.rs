//! [`PlannedValidity`]: which elements of a column, or of a matrix, are valid, with the plan that tells it as bools.

use smallvec::SmallVec;

use super::chunk::{MatrixChunk, all_columns};
use super::planned::decode_chunks;
use crate::arrow::{DeviceArray, Leaf};
use crate::column::{ColumnRef, DecodedColumn, SharedReads, decode_column, read_chunks, readiness_of};
use crate::convert::{ColumnChunk, ColumnTask, MatrixColumns, MatrixTask, what};
use crate::device::Device;
use crate::error::{Counted, Error, Remedy, Result};
use crate::kernels::{looks_up_validity, reads_lists_on, validity_placement};
use crate::plan::{Action, MatrixData, Placement, Plan, needs_copy};
use crate::spec::{CopyMode, MatrixOptions, MatrixSpec, Options, Spec};
use crate::stream_order::Readiness;
use crate::tensor::Tensor;

/// A validity that is about to be made: what will be done is decided, and bitmaps of host memory were read. It is a copy: a bool for each
/// element, true where it is valid. A null list makes all its elements null, and a null row those of each column.
pub(crate) struct PlannedValidity<'a> {
    plan: Plan,
    elements: ValiditySource<'a>,
    readiness: Option<&'a Readiness>,
}

/// The elements that a validity is of.
enum ValiditySource<'a> {
    Column(&'a Spec, SmallVec<[ColumnChunk<'a>; 1]>),
    Matrix(&'a MatrixSpec, Vec<MatrixColumns<'a>>, &'a MatrixOptions),
}

impl<'a> PlannedValidity<'a> {
    /// Plans chunks of [`decode_validity`].
    ///
    /// # Errors
    /// When no copy is allowed, no kernel makes one on the device of the chunks, or the result is larger than memory can be; when an array
    /// breaks the Arrow format.
    pub(super) fn of_column(spec: &'a Spec, columns: &[ColumnRef<'a>], copy: CopyMode) -> Result<Self> {
        let plan = plan_column(spec, columns, copy)?;
        Ok(Self {
            plan,
            elements: ValiditySource::Column(spec, read_chunks(spec, columns)?),
            readiness: readiness_of(columns),
        })
    }

    /// Plans chunks of [`decode_matrix_validity`].
    ///
    /// # Errors
    /// As [`PlannedValidity::of_column`].
    pub(super) fn of_matrix(
        spec: &'a MatrixSpec,
        arrays: &'a [MatrixChunk],
        options: &'a MatrixOptions,
    ) -> Result<Self> {
        let (chunks, _) = all_columns(spec, arrays)?;
        let shared = arrays.iter().map(|chunk| chunk.shared_bytes(spec)).fold(0, usize::saturating_add);
        let plan = plan_matrix(spec, arrays.iter().map(MatrixChunk::array), options, shared)?;
        let readiness = DeviceArray::readiness_of(arrays.iter().map(MatrixChunk::array));
        Ok(Self { plan, elements: ValiditySource::Matrix(spec, chunks, options), readiness })
    }

    /// What will be done.
    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The tensor, of the shape of the values: row-major, unless the options of a matrix ask for column-major.
    ///
    /// # Errors
    /// When an allocation fails, or a driver fails.
    pub(super) fn run(&self) -> Result<Tensor> {
        let Self { plan, elements, readiness } = self;
        let made = SharedReads::default().with_backend(*readiness, |backend| match elements {
            ValiditySource::Column(spec, chunks) => {
                let made = backend.validity(ColumnTask { spec, plan, chunks });
                made.map_err(|error| error.in_column(spec.field().name()))
            }
            ValiditySource::Matrix(spec, chunks, options) => {
                let MatrixOptions { memory_order, threads, .. } = **options;
                backend.matrix_validity(MatrixTask { spec, plan, chunks, memory_order, threads })
            }
        })?;
        match elements {
            ValiditySource::Column(spec, _) => record_column_validity(spec, plan),
            ValiditySource::Matrix(spec, _, _) => record_validity(spec, plan),
        }
        Ok(made)
    }
}

/// The chunks of a column with runs, or a dictionary's values, written out, where their validity depends on it; `None` where they are as
/// they are stored.
///
/// # Errors
/// As [`PlannedValidity::of_column`], before anything is decoded.
pub(super) fn decode_validity(spec: &Spec, columns: &[ColumnRef<'_>], copy: CopyMode) -> Result<Option<DecodedColumn>> {
    plan_column(spec, columns, copy)?;
    let decoded = decode_column(spec, columns, &Options::default());
    decoded.map_err(|error| error.in_column(spec.field().name()))
}

/// As [`decode_validity`], for the columns of a matrix.
///
/// # Errors
/// As [`PlannedValidity::of_matrix`], before anything is decoded.
pub(super) fn decode_matrix_validity(
    spec: &MatrixSpec,
    chunks: &[DeviceArray],
    options: &MatrixOptions,
) -> Result<Vec<MatrixChunk>> {
    plan_matrix(spec, chunks, options, 0)?;
    decode_chunks(spec, chunks, options)
}

fn plan_column(spec: &Spec, columns: &[ColumnRef<'_>], copy: CopyMode) -> Result<Plan> {
    let plan = || {
        let rows = columns.iter().fold(0_usize, |rows, column| rows.saturating_add(column.rows()));
        let (mut placement, mut are_looked_up) = (Placement::Host, false);
        if let Some(readiness) = readiness_of(columns) {
            for column in columns {
                let own = placement_of(spec, || column.leaf(spec), readiness)?;
                if let Placement::Views(device) = own.placement {
                    return Err(refuse_unpacking(spec, device));
                }
                (placement, are_looked_up) = (own.placement, are_looked_up || own.is_looked_up);
            }
        }
        Ok(Plan::validity(spec, rows, placement, copy)?.waiting_for_codes(are_looked_up))
    };
    plan().map_err(|error| error.in_column(spec.field().name()))
}

/// What unpacks the validity of a chunk on its device.
struct Unpacking {
    placement: Placement,
    /// Whether values of codes or runs are looked up for it.
    is_looked_up: bool,
}

/// Returns what unpacks the validity of a column on its device. Lists of one length have that of their items once these are found.
fn placement_of<'a>(spec: &Spec, leaf: impl FnOnce() -> Result<Leaf<'a>>, readiness: &Readiness) -> Result<Unpacking> {
    let device = readiness.device();
    let unpacking = |placement, is_looked_up| Ok(Unpacking { placement, is_looked_up });
    match reads_lists_on(spec, device) {
        true if spec.is_told_by_bitmaps() => unpacking(Placement::Kernels(device), false),
        true => unpacking(Placement::Views(device), false),
        false => {
            let leaf = leaf()?;
            unpacking(validity_placement(spec, &leaf, readiness), looks_up_validity(spec, &leaf))
        }
    }
}

/// Refuses the validity of a column that nothing on the device makes.
fn refuse_unpacking(spec: &Spec, device: Device) -> Error {
    let remedy = if spec.has_bitmap() { Remedy::BitmapOnDevice } else { Remedy::NoBitmap };
    needs_copy(device, &Action::Unpack.to_string()).remedy_is(remedy)
}

fn plan_matrix<'a>(
    spec: &MatrixSpec,
    chunks: impl IntoIterator<Item = &'a DeviceArray, IntoIter: Clone>,
    options: &MatrixOptions,
    shared_bytes: usize,
) -> Result<Plan> {
    let chunks = chunks.into_iter();
    let rows = chunks.clone().fold(0_usize, |rows, chunk| rows.saturating_add(chunk.len()));
    let filled = chunks.clone().filter(|chunk| !chunk.is_empty());
    let readiness = DeviceArray::readiness_of(chunks);
    let placement = readiness.map_or(Placement::Host, |readiness| Placement::Kernels(readiness.device()));
    let data = MatrixData { rows, chunks: filled.clone().count(), shared_bytes, placement, ..MatrixData::default() };
    let plan = Plan::matrix(spec, data, options)?;
    let mut are_looked_up = false;
    if let Some(readiness) = readiness {
        for chunk in filled {
            for (position, column) in spec.columns() {
                let leaf = || chunk.view().struct_field(*position)?.leaf(column);
                let own = placement_of(column, leaf, readiness)?;
                are_looked_up |= own.is_looked_up;
                if let Placement::Views(device) = own.placement {
                    return Err(needs_copy(device, &Action::Unpack.to_string())
                        .remedy_is(Remedy::CopyToHostOrBitmaps)
                        .in_column(column.field().name()));
                }
            }
        }
    }
    Ok(plan.waiting_for_codes(are_looked_up))
}

/// Puts the copy that a plan says on the record.
pub(super) fn record_validity(spec: &MatrixSpec, plan: &Plan) {
    plan.record(|| format!("validity of {} and {}", Counted(plan.rows, "row"), Counted(spec.width(), "column")));
}

/// As [`record_validity`], of a column.
pub(super) fn record_column_validity(spec: &Spec, plan: &Plan) {
    plan.record(|| format!("validity of {}", what(spec, plan.rows)));
}
