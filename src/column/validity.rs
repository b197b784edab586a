//! Returns a column's validity: a bool for each value, or its bitmap as a view.

use arrow_schema::{DataType, FieldRef};

use super::{check_types, columns, with_planned};
use crate::arrow::DeviceArray;
use crate::convert;
use crate::error::{Error, ErrorKind, Remedy, Result};
use crate::kernels::DeviceBackend;
use crate::plan::{Action, Placement, Plan, Step, needs_copy};
use crate::spec::{CopyMode, Options, Spec};
use crate::stream_order;
use crate::tensor::Tensor;

/// A bool tensor of the shape that the values have, true where a value is valid. A null list makes all its elements null.
///
/// # Errors
/// When the field is a struct, copies are not allowed, the memory is neither the host's nor reached through CUDA, or memory cannot be had.
pub(crate) fn validity(field: &FieldRef, chunks: &[DeviceArray], copy: CopyMode) -> Result<Tensor> {
    check_types(field, chunks)?;
    let made = || {
        let spec = Spec::of_validity(field)?;
        plan_validity(&spec, chunks, copy)?;
        if let Some(readiness) = DeviceArray::readiness_of(chunks) {
            let read = columns(chunks).iter().map(|chunk| chunk.chunk(&spec)).collect::<Result<Vec<_>>>()?;
            let made = DeviceBackend { readiness, host_read: None, casts: None }.validity(&spec, &read)?;
            let refused = || needs_copy(readiness.device(), &Action::Unpack.to_string()).remedy_is(Remedy::Bitmap);
            return made.ok_or_else(refused);
        }
        with_planned(&spec, &columns(chunks), &Options::default(), |planned| {
            convert::validity(&spec, planned.plan(), planned.chunks())
        })
    };
    made().map_err(|error: Error| error.in_column(field.name()))
}

/// The plan for the validity of chunks: bits become bools.
///
/// # Errors
/// When no copy is allowed, or the result is larger than memory can be.
pub(crate) fn plan_validity(spec: &Spec, chunks: &[DeviceArray], copy: CopyMode) -> Result<Plan> {
    let rows = chunks.iter().fold(0_usize, |rows, chunk| rows.saturating_add(chunk.len()));
    let elements = rows.checked_mul(spec.row_elements());
    let bytes = elements.ok_or_else(|| Error::new(ErrorKind::Memory, "the validity is larger than memory can be"))?;
    let step = Step { action: Action::Unpack, bytes, at_most: false };
    let steps = if bytes == 0 { Vec::new() } else { vec![step] };
    let readiness = DeviceArray::readiness_of(chunks);
    let placement = readiness.map_or(Placement::Host, |readiness| Placement::Kernels(readiness.device()));
    let plan = Plan { rows, elements: bytes, bytes, steps: steps.into(), placement, ..Plan::default() };
    plan.refuse_steps(copy)?;
    Ok(plan)
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
