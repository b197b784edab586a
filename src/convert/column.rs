//! Runs the plan of a column: a view, or one pass from the chunks into a new block.

use std::mem::MaybeUninit;

use smallvec::smallvec;

use super::backend::{Backend, ColumnTask};
use super::chunk::ColumnChunk;
use super::first_error::check_nulls;
use super::lane::Lane;
use super::misfit::Misfit;
use super::pack::{Isa, UnalignedBits};
use super::rounds::in_rounds;
use super::unpack::unpack_bits;

use crate::alloc::HostBuffer;
use crate::copy_log::{self, Copied, rows_of};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::plan::Plan;
use crate::spec::{CopyMode, Dims, Element, Spec, signed};
use crate::tensor::{Tensor, TensorParts};

/// Converts a planned column; `backend` does what moves bytes.
///
/// # Errors
/// Only errors that values decide: a refused null, a value that a cast refuses, bytes that are no booleans if no copy
/// is allowed; or a failed allocation, and those of a device. Names the column, and the row over all chunks.
pub(crate) fn run(task: ColumnTask<'_>, copy: CopyMode, backend: &dyn Backend) -> Result<Tensor> {
    convert(task, copy, backend).map_err(|error| error.in_column(task.spec.field().name()))
}

fn convert(task: ColumnTask<'_>, copy: CopyMode, backend: &dyn Backend) -> Result<Tensor> {
    let ColumnTask { spec, plan, chunks } = task;
    check_nulls(spec, chunks)?;
    let viewed = match plan.elements {
        // Nothing of a device is allocated for no elements.
        0 => chunks.first().filter(|chunk| chunk.array.readiness().is_some()),
        _ if plan.may_return_stored_values() => chunks.iter().find(|chunk| chunk.leaf.rows > 0),
        _ => None,
    };
    if let Some(chunk) = viewed {
        backend.check_view(spec, chunk)?;
        if plan.elements == 0 || spec.element() != Element::Bool8 || backend.are_bools(chunk)? {
            return view(spec, plan, chunk);
        }
        if copy == CopyMode::Never {
            return Err(plan.refused());
        }
    }
    let tensor = backend.column(task)?;
    plan.record(|| what(spec, plan.rows));
    Ok(tensor)
}

/// Writes the elements of chunks in host memory to new memory.
///
/// # Errors
/// For a value that a cast refuses; if the allocation fails.
pub(super) fn new_column(task: ColumnTask<'_>) -> Result<Tensor> {
    let buffer = fill_buffer(task)?;
    let spec = task.spec;
    let (shape, strides) = layout(spec, task.plan.rows)?;
    // SAFETY: `fill_buffer` wrote every element in the spec's dtype.
    unsafe { Tensor::from_host_buffer(buffer, spec.dtype(), shape, strides, spec.kept_field().cloned()) }
}

/// The column and its type, for the copy log.
pub(crate) fn what(spec: &Spec, rows: usize) -> String {
    rows_of(spec.field().name(), rows, spec.field().data_type())
}

/// Returns shape and strides of the result: contiguous rows, each with the spec's layout.
pub(crate) fn layout(spec: &Spec, rows: usize) -> Result<(Dims, Dims)> {
    let mut shape: Dims = smallvec![signed(rows)?];
    let mut strides: Dims = smallvec![signed(spec.row_elements())?];
    if !spec.inner_shape().is_empty() {
        shape.extend_from_slice(spec.inner_shape());
        strides.extend_from_slice(spec.inner_strides());
    }
    Ok((shape, strides))
}

/// Returns a view of the chunk's memory.
fn view(spec: &Spec, plan: &Plan, chunk: &ColumnChunk<'_>) -> Result<Tensor> {
    let layout = layout(spec, plan.rows)?;
    let decoded = plan.steps.iter().find(|step| step.action.is_decoding());
    if let Some(step) = decoded {
        copy_log::record(|| Copied { what: what(spec, plan.rows), why: step.action.to_string(), bytes: step.bytes });
    }
    let parts = TensorParts {
        // A tensor without elements cannot be written.
        read_only: decoded.is_none() && plan.elements > 0,
        copied: decoded.is_some(),
        field: spec.kept_field().cloned(),
        ..TensorParts::of_array(chunk.array, chunk.leaf.start(spec.element()), spec.dtype(), layout)
    };
    // SAFETY: import checked that the array has these elements, in memory that `owner` keeps alive and that Arrow
    // declares immutable; what was decoded was written for this tensor alone.
    unsafe { Tensor::from_parts(parts) }
}

/// Returns a new block with every element of all chunks in the spec's dtype, nulls filled.
fn fill_buffer(ColumnTask { spec, plan, chunks }: ColumnTask<'_>) -> Result<HostBuffer> {
    let itemsize = spec.dtype().itemsize();
    // The plan has checked the product.
    let mut buffer = HostBuffer::uninitialised(plan.elements.saturating_mul(itemsize))?;
    let mut rest = buffer.as_uninit_mut();
    let mut row = 0;
    for chunk in chunks {
        let (out, after) = rest
            .split_at_mut_checked(chunk.leaf.elements.saturating_mul(itemsize))
            .ok_or_else(|| Error::internal("the plan was made of other chunks"))?;
        in_rounds(chunk.leaf.elements, itemsize, |elements| {
            let (start, end) = (elements.start.saturating_mul(itemsize), elements.end.saturating_mul(itemsize));
            let out = out.get_mut(start..end).unwrap_or(&mut []);
            // SAFETY: the chunk has these elements, for which `out` has room; it starts at one of an aligned block.
            let written = unsafe { write_range(Isa::detect(), spec, chunk, elements.start, out) };
            written.map_err(|misfit| misfit.error(spec, row))
        })?;
        rest = after;
        row += chunk.leaf.rows;
    }
    Ok(buffer)
}

/// Writes the elements of a chunk from `first` on in the spec's dtype, as many as `out` has room for, nulls filled.
///
/// # Errors
/// The first valid element that does not fit.
///
/// # Safety
/// The chunk has that many elements; `out` is aligned for the dtype. The processor has `isa`.
pub(super) unsafe fn write_range(
    isa: Isa,
    spec: &Spec,
    chunk: &ColumnChunk<'_>,
    first: usize,
    out: &mut [MaybeUninit<u8>],
) -> std::result::Result<(), Misfit> {
    // SAFETY: the chunk has as many elements from `first` on as `out` has room for, `out` is aligned for the dtype, and
    // the processor has `isa`, as promised; `out` is borrowed exclusively, so it lies apart from the chunk.
    unsafe { Lane::new(isa, spec, chunk)?.write(first, out) }
}

/// Returns a bool for each element of the chunks, true if it is valid, in the shape of the values.
///
/// # Errors
/// When an allocation fails.
pub(super) fn validity(ColumnTask { spec, plan, chunks }: ColumnTask<'_>) -> Result<Tensor> {
    let mut buffer = HostBuffer::uninitialised(plan.elements)?;
    let mut rest = buffer.as_uninit_mut();
    for chunk in chunks {
        let (out, after) = rest
            .split_at_mut_checked(chunk.leaf.elements)
            .ok_or_else(|| Error::internal("the plan was made of other chunks"))?;
        write_validity(chunk, out);
        rest = after;
    }
    let (shape, strides) = layout(spec, plan.rows)?;
    // SAFETY: the chunks have the plan's elements in all, and each was written as 0 or 1.
    unsafe { Tensor::from_host_buffer(buffer, DType::Bool, shape, strides, None) }
}

/// Writes a byte for each element of a chunk in host memory, as many as `out` has room for: 1 if the element is valid, else 0.
pub(super) fn write_validity(chunk: &ColumnChunk<'_>, out: &mut [MaybeUninit<u8>]) {
    match &chunk.mask {
        Some(mask) => {
            let (bytes, offset) = mask.bits();
            // SAFETY: the processor has what was detected.
            unsafe { unpack_bits(Isa::detect(), UnalignedBits::new(bytes, offset), out) };
        }
        None => {
            out.fill(MaybeUninit::new(1));
        }
    }
}
