//! Returns a column's validity: a bool for each value, or its bitmap as a view.

use arrow_schema::{DataType, FieldRef};

use smallvec::SmallVec;

use super::check_types;
use super::chunk_ref::{ColumnRef, columns, readiness_of};
use super::planned::{Shared, decode_column, read_chunks};
use crate::arrow::DeviceArray;
use crate::convert::{self, ColumnChunk, what};
use crate::error::{Error, ErrorKind, Remedy, Result};
use crate::kernels::validity_placement;
use crate::plan::{Action, Placement, Plan, Step, needs_copy};
use crate::spec::{CopyMode, Options, Spec};
use crate::stream_order::{self, Readiness};
use crate::tensor::Tensor;

/// A bool tensor of the shape that the values have, true where a value is valid. A null list makes all its elements null. `spec` is that
/// of the validity.
///
/// # Errors
/// When copies are not allowed, the memory is neither the host's nor reached through CUDA, or memory cannot be had.
pub(crate) fn convert_validity(spec: &Spec, chunks: &[ColumnRef<'_>], copy: CopyMode) -> Result<Tensor> {
    match decode_validity(spec, chunks, copy)? {
        None => PlannedValidity::new(spec, chunks, copy)?.run(),
        Some(decoded) => PlannedValidity::new(spec, &columns(&decoded), copy)?.run(),
    }
}

/// The validity of a column that is about to be made: what will be done is decided, and bitmaps of host memory were read.
pub(crate) struct PlannedValidity<'a> {
    spec: &'a Spec,
    plan: Plan,
    chunks: SmallVec<[ColumnChunk<'a>; 1]>,
    readiness: Option<&'a Readiness>,
}

impl<'a> PlannedValidity<'a> {
    /// Plans chunks that [`decode_validity`] has decoded where they have to be.
    ///
    /// # Errors
    /// As [`plan_validity`]; when an array breaks the Arrow format.
    pub(crate) fn new(spec: &'a Spec, columns: &[ColumnRef<'a>], copy: CopyMode) -> Result<Self> {
        let plan = plan_validity(spec, columns, copy)?;
        Ok(Self { spec, plan, chunks: read_chunks(spec, columns)?, readiness: readiness_of(columns) })
    }

    /// What will be done.
    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The tensor, of the shape of the values.
    ///
    /// # Errors
    /// When memory cannot be had, or a driver fails.
    pub(crate) fn run(&self) -> Result<Tensor> {
        let Self { spec, plan, chunks, readiness } = self;
        let made = Shared::default().with_backend(*readiness, |backend| backend.validity(spec, plan, chunks));
        let made = made.map_err(|error| error.in_column(spec.field().name()))?;
        plan.record(|| format!("validity of {}", what(spec, plan.rows)));
        Ok(made)
    }
}

/// The chunks of a column with runs, or a dictionary's values, written out, where their validity depends on it; `None` where they are as
/// they are stored.
///
/// # Errors
/// As [`plan_validity`], before anything is decoded.
pub(crate) fn decode_validity(
    spec: &Spec,
    chunks: &[ColumnRef<'_>],
    copy: CopyMode,
) -> Result<Option<Vec<DeviceArray>>> {
    plan_validity(spec, chunks, copy)?;
    let decoded = decode_column(spec, chunks, &Options::default());
    decoded.map_err(|error| error.in_column(spec.field().name()))
}

/// The plan for the validity of chunks: bits become bools.
///
/// # Errors
/// When no copy is allowed, no kernel makes one on the device of the chunks, or the result is larger than memory can be.
pub(crate) fn plan_validity(spec: &Spec, chunks: &[ColumnRef<'_>], copy: CopyMode) -> Result<Plan> {
    let build = || {
        let rows = chunks.iter().fold(0_usize, |rows, chunk| rows.saturating_add(chunk.rows()));
        let elements = rows.checked_mul(spec.row_elements());
        let too_large = || Error::new(ErrorKind::Memory, "the validity is larger than memory can be");
        let bytes = elements.ok_or_else(too_large)?;
        let step = Step { action: Action::Unpack, bytes, at_most: false };
        let steps = if bytes == 0 { Vec::new() } else { vec![step] };
        let mut plan = Plan { rows, elements: bytes, bytes, steps: steps.into(), ..Plan::default() };
        if let Some(readiness) = readiness_of(chunks) {
            for chunk in chunks {
                plan.placement = validity_placement(spec, &chunk.leaf(spec)?, readiness);
                if let Placement::Views(device) = plan.placement {
                    return Err(needs_copy(device, &Action::Unpack.to_string()).remedy_is(Remedy::Bitmap));
                }
            }
        }
        plan.refuse_steps(copy)?;
        Ok(plan)
    };
    build().map_err(|error| error.in_column(spec.field().name()))
}

/// A validity bitmap as it lies in memory.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Bits {
    /// The bytes that hold the bits, lowest bit first: uint8, of one dimension.
    pub bytes: Tensor,
    /// The position of the first row's bit in the first byte, 0 to 7.
    pub offset: usize,
}

/// The validity bitmap of the rows over the same memory, on any device; `None` where the array says that no row is null. Nulls
/// inside a row, and codes that stand for nulls, are not in it.
///
/// # Errors
/// When the type has no bitmap, or is a struct, which has one for each of its columns; when bitmaps of enclosing structs or of several
/// chunks would have to be joined, or the memory is not what the array says.
pub(crate) fn validity_bits(field: &FieldRef, chunks: &[DeviceArray]) -> Result<Option<Bits>> {
    check_types(field, chunks)?;
    let made = || {
        if let DataType::Struct(_) = field.data_type() {
            return Err(Error::unsupported("the rows of several columns have a bitmap for each of them")
                .remedy_is(Remedy::BitmapOfEachColumn));
        }
        let mut filled = chunks.iter().filter(|chunk| !chunk.is_empty());
        let Some(array) = filled.next() else { return Ok(None) };
        if filled.next().is_some() {
            return Err(Error::unsupported("the bitmaps of several chunks are joined by a copy")
                .remedy_is(Remedy::BitmapOfEachChunk));
        }
        let Some(bitmap) = array.view().bitmap()? else { return Ok(None) };
        stream_order::check_memory(array.device(), bitmap.start().addr(), bitmap.len())?;
        Ok(Some(Bits { bytes: convert::bytes_view(array, bitmap)?, offset: bitmap.first_bit() }))
    };
    made().map_err(|error: Error| error.in_column(field.name()))
}
