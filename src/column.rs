//! Converts one column, in both directions: makes a spec and a plan, and runs the plan.

mod chunk_ref;
mod device_lists;
mod dictionaries;
mod host_reads;
mod in_turn;
mod planned;
mod requested;
mod runner;
mod to_arrow;
mod validity;
mod write_into;

use std::sync::Arc;

use arrow_schema::FieldRef;

pub(crate) use chunk_ref::{ColumnRef, columns, columns_of_pieces, readiness_of, refuse_counted, require_host};
pub(crate) use device_lists::{DeviceLists, check_lists_on_device, dense_on_device};
pub(crate) use dictionaries::{are_compared, has_no_codes, remedy_of_different, shared_dictionary};
pub(crate) use host_reads::{add_unknowns, read_nulls, refuse_known_on_device};
pub(crate) use in_turn::in_turn;
pub(crate) use planned::{
    DecodedColumn, PlannedColumn, SharedReads, decode_column, lowest_error, read_chunks, with_planned,
};
#[cfg(feature = "python")]
pub(crate) use requested::check_to_arrow;
pub use requested::to_arrow_as;
pub(crate) use requested::{as_requested, check_requested, form_in, plan_requested, plan_to_arrow_as};
pub(crate) use runner::{Runner, run_here, run_step, run_unless_quick};
pub use to_arrow::to_arrow;
pub(crate) use to_arrow::{
    Bitmap, ColumnNode, column_node, compared_on_host, pack_on_device, placement, plan_to_arrow, require_row_bools,
    require_validity_on, row_validity,
};
#[cfg(feature = "python")]
pub(crate) use to_arrow::{check_row_bools, row_bools};
pub use validity::Bits;
pub(crate) use validity::validity_bits;
pub(crate) use write_into::{check_column_output, check_place, chunks_to_tensor_into, overlap, require_copy};

use crate::arrow::DeviceArray;
use crate::convert;
use crate::error::{Error, Result};
use crate::spec::{Options, Spec};
use crate::tensor::Tensor;

/// Refuses the null or the value in the lowest row that a conversion of chunks in host memory would refuse.
pub(crate) fn check_rows(spec: &Spec, chunks: &[ColumnRef<'_>]) -> Result<()> {
    with_planned(spec, chunks, &Options::default(), |planned| planned.check_values())
}

/// Converts the chunks of a column into one tensor of shape `(rows, *inner)`.
#[inline]
pub(crate) fn convert_chunks(
    spec: &Spec,
    chunks: &[ColumnRef<'_>],
    options: &Options,
    shared: SharedReads<'_>,
    runner: &Runner<'_>,
) -> Result<Tensor> {
    if spec.decoded().is_none() {
        return PlannedColumn::new(spec, chunks, options)?.run(shared, runner);
    }
    // Decoding moves bytes too: as many as these, if nothing refuses it.
    let rows = chunks.iter().fold(0_usize, |rows, chunk| rows.saturating_add(chunk.rows()));
    let bytes = rows.saturating_mul(spec.row_elements()).saturating_mul(spec.element().stored_bytes());
    run_step(runner, bytes, || {
        with_planned(spec, chunks, options, |mut planned| planned.run(shared.of([spec]), &run_here))
    })
}

/// Converts the chunks of a column into one tensor of shape `(rows, *inner)`; no chunks give a tensor of no rows.
///
/// A view of the only chunk where layout and options allow it, else one pass over all of them, by `runner`.
///
/// # Errors
/// When a chunk's field is of another type than `field`, or as [`Conversion::to_tensor`](crate::Conversion::to_tensor).
pub(crate) fn chunks_to_tensor_by(
    field: &FieldRef,
    chunks: &[DeviceArray],
    options: &Options,
    runner: &Runner<'_>,
) -> Result<Tensor> {
    check_types(field, chunks)?;
    convert_column(field, &columns(chunks), options, SharedReads::default(), runner)
}

/// Converts the chunks of a column of this field.
#[inline]
pub(crate) fn convert_column(
    field: &FieldRef,
    chunks: &[ColumnRef<'_>],
    options: &Options,
    shared: SharedReads<'_>,
    runner: &Runner<'_>,
) -> Result<Tensor> {
    if let [ColumnRef { array, column, .. }] = chunks
        && let Some(view) = convert::plain_view(field, array, *column, options)?
    {
        return Ok(view);
    }
    convert_chunks(&Spec::new(field, options)?, chunks, options, shared, runner)
}

/// Refuses chunks of another type than the field's.
pub(crate) fn check_types(field: &FieldRef, chunks: &[DeviceArray]) -> Result<()> {
    let differs =
        |chunk: &&DeviceArray| !Arc::ptr_eq(chunk.field(), field) && chunk.field().data_type() != field.data_type();
    match chunks.iter().find(differs) {
        None => Ok(()),
        Some(chunk) => {
            let (found, expected) = (chunk.field().data_type(), field.data_type());
            Err(Error::invalid(format!("a chunk of type {found} in a column of {expected}"))
                .remedy_is("give all chunks one schema")
                .in_column(field.name()))
        }
    }
}

/// Converts an array into a tensor of shape `(rows, *inner)`.
///
/// # Errors
/// As [`Conversion::to_tensor`](crate::Conversion::to_tensor).
pub(crate) fn to_tensor(array: &DeviceArray, options: &Options) -> Result<Tensor> {
    convert_column(array.field(), &[ColumnRef::whole(array)], options, SharedReads::default(), &run_here)
}

#[cfg(test)]
mod tests;
