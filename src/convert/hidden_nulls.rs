//! Takes nulls that no row shows out of fields that allow none: other readers refuse those bitmaps.

use arrow_array::{Array, ArrayRef, make_array};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType, Field, FieldRef};

use super::forbidden::items;
use crate::error::{Error, Result};

/// Returns the array without the bitmaps of fields that are not nullable in `requested`, a type of the same structure; `None` if it has no
/// such bitmaps. No row may show a null of them. Codes keep theirs: those that no row shows may be none of the dictionary.
///
/// # Errors
/// If the array breaks the Arrow format.
pub(super) fn without_hidden_nulls(array: &ArrayRef, requested: &Field) -> Result<Option<ArrayRef>> {
    let made = of_field(&array.to_data(), requested).transpose();
    made.map(|made| made.map(make_array)).map_err(|error| Error::invalid(error.to_string()))
}

/// The changed array, if anything of it changes.
fn of_field(data: &ArrayData, field: &Field) -> Option<std::result::Result<ArrayData, ArrowError>> {
    let is_coded = matches!(data.data_type(), DataType::Dictionary(_, _));
    let is_stripped = !field.is_nullable() && data.nulls().is_some() && !is_coded;
    let fields = fields_of(data.data_type(), field.data_type());
    let made: Vec<_> = data.child_data().iter().zip(&fields).map(|(child, field)| of_field(child, field)).collect();
    if !is_stripped && made.iter().all(Option::is_none) {
        return None;
    }
    let mut made = made.into_iter();
    let child = |child: &ArrayData| made.next().flatten().unwrap_or_else(|| Ok(child.clone()));
    let children = data.child_data().iter().map(child).collect::<std::result::Result<Vec<_>, _>>();
    let nulls = data.nulls().filter(|_| !is_stripped).cloned();
    Some(children.and_then(|children| data.clone().into_builder().child_data(children).nulls(nulls).build()))
}

/// The requested fields of an array's children; none where they are not those of the request: a cast takes values out of dictionaries, and
/// makes lists of values.
fn fields_of(own: &DataType, requested: &DataType) -> Vec<FieldRef> {
    match (own, requested) {
        (DataType::Struct(_), DataType::Struct(fields)) => fields.iter().cloned().collect(),
        (DataType::RunEndEncoded(_, _), DataType::RunEndEncoded(ends, values)) => vec![ends.clone(), values.clone()],
        (DataType::Union(_, _), DataType::Union(fields, _)) => fields.iter().map(|(_, field)| field.clone()).collect(),
        _ => items(own).and(items(requested)).into_iter().cloned().collect(),
    }
}
