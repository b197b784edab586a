//! What types alone say against a request: other names of fields, or another extension type.

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef};

use crate::arrow::{Counterparts, counterparts};
use crate::error::{Error, ErrorKind, Result};
use crate::spec::{FixedShapeTensor, VariableShape};

/// Refuses other names of struct and union fields, which are matched by position, at all levels. The items of lists, and the
/// entries, keys and values of maps, may be called anything.
///
/// # Errors
/// Names the struct or union field whose own fields differ.
pub(super) fn check_names(own: &DataType, requested: &DataType) -> Result<()> {
    match counterparts(own, requested) {
        Counterparts::OtherNames(own, requested) => {
            let reason = format!("requested_schema has the fields {requested:?}, and the data has {own:?}");
            Err(Error::new(ErrorKind::Cast, reason).remedy_is("request fields of the data's own names, in their order"))
        }
        Counterparts::Pairs(pairs) => pairs.into_iter().try_for_each(|(own, field)| {
            let checked = check_names(own.data_type(), field.data_type());
            checked.map_err(|error| if has_names(requested) { error.in_column(field.name()) } else { error })
        }),
    }
}

/// Returns whether the names of a type's fields mean something.
fn has_names(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Struct(_) | DataType::Union(_, _))
}

/// Refuses another extension type over the same storage, and tensors whose elements would stand elsewhere, at all levels: the
/// storage is given as it is, and its order means nothing without the type.
///
/// # Errors
/// Names the struct or union field that has the type.
pub(super) fn check_extensions(own: &Field, requested: &Field) -> Result<()> {
    check_extension(own, requested)?;
    let is_run = |field: &Field| matches!(field.data_type(), DataType::RunEndEncoded(_, _));
    if is_run(own) != is_run(requested) {
        // A cast makes runs of the values, or values of the runs.
        return check_extensions(run_values(own), run_values(requested));
    }
    match counterparts(own.data_type(), requested.data_type()) {
        Counterparts::OtherNames(_, _) => Ok(()),
        Counterparts::Pairs(pairs) => pairs.into_iter().try_for_each(|(own, field)| {
            let checked = check_extensions(own, field);
            let is_named = has_names(requested.data_type());
            checked.map_err(|error| if is_named { error.in_column(field.name()) } else { error })
        }),
    }
}

/// Returns the type with runs at all levels as arrow-rs makes them: without the metadata and the names of their fields, and with values
/// that may be null.
pub(super) fn plain_runs(data_type: &DataType) -> DataType {
    let plain = |field: &FieldRef| Arc::new(field.as_ref().clone().with_data_type(plain_runs(field.data_type())));
    match data_type {
        DataType::RunEndEncoded(ends, values) => DataType::RunEndEncoded(
            Arc::new(Field::new("run_ends", ends.data_type().clone(), false)),
            Arc::new(Field::new("values", plain_runs(values.data_type()), true)),
        ),
        DataType::List(item) => DataType::List(plain(item)),
        DataType::LargeList(item) => DataType::LargeList(plain(item)),
        DataType::ListView(item) => DataType::ListView(plain(item)),
        DataType::LargeListView(item) => DataType::LargeListView(plain(item)),
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(plain(item), *size),
        DataType::Map(entries, is_sorted) => DataType::Map(plain(entries), *is_sorted),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(plain).collect()),
        DataType::Dictionary(codes, values) => DataType::Dictionary(codes.clone(), Box::new(plain_runs(values))),
        other => other.clone(),
    }
}

/// Returns the values of runs as a field; other fields as they are.
fn run_values(field: &Field) -> &Field {
    match field.data_type() {
        DataType::RunEndEncoded(_, values) => values,
        _ => field,
    }
}

fn check_extension(own: &Field, requested: &Field) -> Result<()> {
    let refused = |reason: String| Error::new(ErrorKind::Cast, reason).remedy_is("request the type that the data has");
    // Metadata that nobody can read says nothing of an order.
    let tensor = FixedShapeTensor::of(own).unwrap_or(None);
    match (&tensor, FixedShapeTensor::of(requested)?) {
        (Some(tensor), Some(requested)) if !tensor.orders_as(&requested)? => {
            return Err(refused("a tensor of another shape or permutation".to_owned()));
        }
        (Some(tensor), None) if !tensor.is_row_major() => {
            return Err(refused("a tensor's permutation cannot be told without its extension type".to_owned()));
        }
        _ => {}
    }
    let rows = VariableShape::of(own).unwrap_or(None);
    match (&rows, VariableShape::of(requested)?) {
        (Some(rows), Some(requested)) if !rows.orders_as(&requested) => {
            return Err(refused("tensors of another permutation".to_owned()));
        }
        (Some(rows), None) if !rows.is_row_major() => {
            return Err(refused("the permutation of tensors cannot be told without their extension type".to_owned()));
        }
        // Nobody has compared the shapes of the rows with extents that only the request gives.
        (rows, Some(requested)) if !requested.is_uniform_in(rows.as_ref()) => {
            return Err(refused("tensors of another uniform_shape".to_owned()));
        }
        _ => {}
    }
    match (own.extension_type_name(), requested.extension_type_name()) {
        (Some(own), Some(requested)) if own != requested => {
            Err(refused(format!("{own} as {requested}: no conversion exists")))
        }
        _ => Ok(()),
    }
}
