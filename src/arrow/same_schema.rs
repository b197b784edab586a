//! Whether the parts of one source have one schema.

use arrow_schema::extension::{EXTENSION_TYPE_METADATA_KEY, EXTENSION_TYPE_NAME_KEY};
use arrow_schema::{DataType, Field, FieldRef};

use super::check::same_layout;

/// Returns what a part of a source has, and what the first part has instead; `None` if both have the same columns, which may
/// differ in nullability.
pub(crate) fn difference(found: &FieldRef, first: &FieldRef) -> Option<(String, String)> {
    match (found.data_type(), first.data_type()) {
        (DataType::Struct(found), DataType::Struct(first)) => {
            let names = |fields: &[FieldRef]| fields.iter().map(|field| field.name().clone()).collect::<Vec<_>>();
            if names(found) != names(first) {
                return Some((format!("the columns {:?}", names(found)), format!("{:?}", names(first))));
            }
            let (found, first) = found.iter().zip(first).find(|(found, first)| !is_same(found, first))?;
            Some((format!("column {:?} of type {}", found.name(), type_of(found)), type_of(first)))
        }
        _ if is_same(found, first) => None,
        _ => Some((format!("the type {}", type_of(found)), type_of(first))),
    }
}

/// Whether two columns have one type, whatever they are called.
fn is_same(one: &Field, other: &Field) -> bool {
    let extension = |field: &Field| {
        let of = |key| field.metadata().get(key).cloned();
        (of(EXTENSION_TYPE_NAME_KEY), of(EXTENSION_TYPE_METADATA_KEY))
    };
    same_layout(one.data_type(), other.data_type()) && extension(one) == extension(other)
}

fn type_of(field: &Field) -> String {
    match field.extension_type_name() {
        Some(name) => format!("{name} ({})", field.data_type()),
        None => field.data_type().to_string(),
    }
}
