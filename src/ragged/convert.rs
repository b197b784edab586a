//! Converts lists and strings to values and offsets.

use arrow_schema::FieldRef;

use super::Ragged;
use super::elements::{leaf_spec, parts};
use super::part::RunParts;
use super::walk::walk;
use crate::arrow::DeviceArray;
use crate::error::Result;
use crate::spec::Options;

/// Converts the chunks of a column of lists, strings or `arrow.variable_shape_tensor` into values and offsets, under the options of the
/// elements.
///
/// # Errors
/// As [`Conversion::ragged`](crate::Conversion::ragged); when a chunk's field is of another type than `field`.
pub(crate) fn chunks_to_ragged(field: &FieldRef, chunks: &[DeviceArray], options: &Options) -> Result<Ragged> {
    let convert = || {
        // What no data could make possible fails before any is looked at.
        leaf_spec(field, options)?;
        walk(field, &parts(field, chunks)?, options, &RunParts).map(Ragged::from)
    };
    convert().map_err(|error| error.in_column(field.name()))
}
