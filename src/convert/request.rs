//! `requested_schema`: an array as another type, exactly, or an error.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, make_array};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, DataType, Field, FieldRef};

use crate::arrow::{DeviceArray, same_layout};
use crate::copy_log::{self, Copied};
use crate::error::{Error, ErrorKind, Result};
use crate::spec::FixedShapeTensor;

/// The array under `requested`, a field of another type, name or nullability. Where only names, metadata or nullability
/// differ, the memory is shared; else the values are cast, and cast back to see that each one survives.
///
/// # Errors
/// When names or the number of fields differ, no cast exists, a value would not survive the round trip, or a null meets
/// a field that is not nullable. Never turns a value into a null.
pub fn request_field(array: &DeviceArray, requested: &FieldRef) -> Result<DeviceArray> {
    let own = array.field();
    if own == requested {
        return Ok(array.clone());
    }
    let in_request = |error: Error| error.in_column(if requested.name().is_empty() { own.name() } else { requested.name() });
    check_names(own.data_type(), requested.data_type()).map_err(in_request)?;
    FixedShapeTensor::of(requested).map_err(in_request)?;
    let result = if same_layout(own.data_type(), requested.data_type()) {
        array.relabel(requested.clone())?
    } else {
        cast(array, requested).map_err(in_request)?
    };
    if allows_nulls(requested) {
        return Ok(result);
    }
    // Only the data can tell whether a field that is not nullable has nulls.
    check_nulls(requested, result.to_arrow()?.as_ref()).map_err(in_request)?;
    Ok(result)
}

/// Refuses a request that no data of this field could meet: other names, or types without a cast.
///
/// # Errors
/// As [`request_field`], before any data is seen.
pub fn check_request(own: &FieldRef, requested: &FieldRef) -> Result<()> {
    check_names(own.data_type(), requested.data_type())?;
    FixedShapeTensor::of(requested)?;
    let (from, to) = (own.data_type(), requested.data_type());
    if same_layout(from, to) || arrow_cast::can_cast_types(from, to) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Cast, format!("{from} as {to}: no cast exists")).in_column(requested.name()))
}

/// Struct fields are matched by position and must agree by name; list items may be called anything.
fn check_names(own: &DataType, requested: &DataType) -> Result<()> {
    if let (DataType::Struct(own), DataType::Struct(requested)) = (own, requested) {
        let names = |fields: &arrow_schema::Fields| fields.iter().map(|field| field.name().clone()).collect::<Vec<_>>();
        if names(own) != names(requested) {
            return Err(Error::new(
                ErrorKind::Cast,
                format!("requested_schema has the fields {:?}, and the data has {:?}", names(requested), names(own)),
            ));
        }
        for (own, requested) in own.iter().zip(requested) {
            check_names(own.data_type(), requested.data_type()).map_err(|error| error.in_column(requested.name()))?;
        }
    }
    Ok(())
}

fn cast(array: &DeviceArray, requested: &FieldRef) -> Result<DeviceArray> {
    let (from, to) = (array.field().data_type(), requested.data_type());
    let refused = |reason: String| Error::new(ErrorKind::Cast, format!("{from} as {to}: {reason}"));
    let of_arrow = |error: ArrowError| refused(error.to_string());
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let original = array.to_arrow()?;
    let converted = cast_with_options(&original, to, &options).map_err(of_arrow)?;
    if converted.data_type() != to {
        return Err(refused(format!("the cast gives {}", converted.data_type())));
    }
    let back = cast_with_options(&converted, from, &options).map_err(of_arrow)?;
    if let Some(row) = first_difference(&original, &back) {
        return Err(refused("a value does not survive the round trip".to_owned())
            .at_row(row)
            .remedy_is("request a type that holds every value"));
    }
    let bytes = converted.get_buffer_memory_size();
    copy_log::record(|| Copied {
        what: format!("column {:?}: {} rows of {from}", array.field().name(), array.len()),
        why: format!("cast to {to}, as requested_schema asks"),
        bytes,
    });
    DeviceArray::from_arrow(converted.as_ref(), requested.clone())
}

/// The first row in which two arrays differ, null against null counting as equal.
fn first_difference(original: &ArrayRef, back: &ArrayRef) -> Option<usize> {
    if original.to_data() == back.to_data() {
        return None;
    }
    // Halve the range until one row is left: it compares types of any nesting.
    let (mut start, mut length) = (0, original.len());
    while length > 1 {
        let half = length / 2;
        let equal = back.len() >= start + half
            && make_array(original.to_data().slice(start, half)).to_data()
                == make_array(back.to_data().slice(start, half)).to_data();
        (start, length) = if equal { (start + half, length - half) } else { (start, half) };
    }
    Some(start)
}

/// Whether nulls are allowed wherever the type can have them.
fn allows_nulls(field: &Field) -> bool {
    field.is_nullable()
        && match field.data_type() {
            DataType::Struct(fields) => fields.iter().all(|field| allows_nulls(field)),
            DataType::List(child)
            | DataType::LargeList(child)
            | DataType::FixedSizeList(child, _)
            | DataType::ListView(child)
            | DataType::LargeListView(child) => allows_nulls(child),
            _ => true,
        }
}

fn check_nulls(field: &Field, array: &dyn Array) -> Result<()> {
    let nulls = array.logical_null_count();
    if !field.is_nullable() && nulls > 0 {
        let first = array.logical_nulls().and_then(|nulls| (0..nulls.len()).find(|row| nulls.is_null(*row)));
        let error = Error::new(ErrorKind::Null, format!("{nulls} nulls, and the requested field is not nullable"));
        return Err(error.at_row(first.unwrap_or(0)).remedy_is("request a nullable field").in_column(field.name()));
    }
    match (field.data_type(), array.as_any().downcast_ref::<arrow_array::StructArray>()) {
        (DataType::Struct(fields), Some(rows)) => fields
            .iter()
            .zip(rows.columns())
            .try_for_each(|(field, column)| check_nulls(field, column.as_ref()).map_err(|e| e.in_column(field.name()))),
        _ => children(array).iter().try_for_each(|(field, child)| check_nulls(field, child.as_ref())),
    }
}

/// The items of a list array, with their field.
fn children(array: &dyn Array) -> Vec<(Arc<Field>, ArrayRef)> {
    match array.data_type() {
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::FixedSizeList(field, _)
        | DataType::ListView(field)
        | DataType::LargeListView(field) => {
            array.to_data().child_data().iter().map(|child| (field.clone(), make_array(child.clone()))).collect()
        }
        _ => Vec::new(),
    }
}

/// The same array in memory that nobody else sees.
///
/// # Errors
/// When the memory is not the host's, or the contents break the Arrow format.
pub(crate) fn copy_array(array: &DeviceArray) -> Result<DeviceArray> {
    let data = array.to_arrow()?.to_data();
    let mut copy = arrow_data::transform::MutableArrayData::new(vec![&data], false, data.len());
    copy.try_extend(0, 0, data.len()).map_err(|error| Error::new(ErrorKind::Memory, error.to_string()))?;
    let copy = make_array(copy.freeze());
    copy_log::record(|| Copied {
        what: format!("column {:?}: {} rows of {}", array.field().name(), array.len(), array.field().data_type()),
        why: "copy=True".to_owned(),
        bytes: copy.get_buffer_memory_size(),
    });
    DeviceArray::from_arrow(copy.as_ref(), array.field().clone())
}
