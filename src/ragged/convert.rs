//! Converts lists and strings to values and offsets.

use arrow_schema::FieldRef;

use super::Ragged;
use super::elements::{leaf_spec, parts};
use super::part::Run;
use super::walk::walk;
use crate::arrow::DeviceArray;
use crate::error::Result;
use crate::spec::Options;

/// Converts an array of lists, strings or `arrow.variable_shape_tensor` into values and offsets: views where layout and
/// options allow it.
///
/// `options` apply to the elements. Nulls of rows are an error, are told by [`Ragged::validity`] when they are kept, and
/// are empty rows when null elements are filled.
///
/// # Errors
/// With the column's name, the reason and a remedy, as [`crate::to_tensor`]; when offsets lead out of the elements.
///
/// ```
/// use std::sync::Arc;
/// use arrow_array::{ListArray, types::Float32Type};
/// use arrow_dlpack::{DeviceArray, Options, to_ragged};
/// use arrow_schema::{DataType, Field};
///
/// let rows = [vec![Some(1.0), Some(2.0)], vec![], vec![Some(3.0)]].map(Some);
/// let lists = ListArray::from_iter_primitive::<Float32Type, _, _>(rows);
/// let field = Arc::new(Field::new("x", arrow_array::Array::data_type(&lists).clone(), true));
/// let ragged = to_ragged(&DeviceArray::from_arrow(&lists, field)?, &Options::default())?;
/// assert_eq!(ragged.values().as_tensor().unwrap().as_slice::<f32>()?, [1.0, 2.0, 3.0]);
/// assert_eq!(ragged.offsets().as_slice::<i32>()?, [0, 2, 2, 3]);
/// # Ok::<(), arrow_dlpack::Error>(())
/// ```
pub fn to_ragged(array: &DeviceArray, options: &Options) -> Result<Ragged> {
    chunks_to_ragged(array.field(), std::slice::from_ref(array), options)
}

/// As [`to_ragged`], for the chunks of a column, whose values and offsets are joined by a copy.
///
/// # Errors
/// When a chunk's field is of another type than `field`, or as [`to_ragged`].
pub fn chunks_to_ragged(field: &FieldRef, chunks: &[DeviceArray], options: &Options) -> Result<Ragged> {
    let convert = || {
        // What no data could make possible fails before any is looked at.
        leaf_spec(field, options)?;
        walk(field, &parts(field, chunks)?, options, &Run).map(Ragged::from)
    };
    convert().map_err(|error| error.in_column(field.name()))
}
