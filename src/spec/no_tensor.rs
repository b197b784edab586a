//! The errors of types without a tensor form: what to do depends on the column, and on the options that it was tried with.

use arrow_schema::{DataType, Field};

use super::list_lengths::{is_list, item_of_lists};
use crate::error::{Error, Remedy};

/// Returns whether values of this type are strings.
pub(crate) fn is_utf8(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// Returns whether values of this type are strings or binary values of any length.
pub(crate) fn is_text(data_type: &DataType) -> bool {
    is_utf8(data_type) || matches!(data_type, DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
}

/// Returns whether values of this type are lists of structs, at any depth.
pub(crate) fn is_of_structs(data_type: &DataType) -> bool {
    item_of_lists(data_type)
        .is_some_and(|item| matches!(item.data_type(), DataType::Struct(_)) || is_of_structs(item.data_type()))
}

/// Returns whether the items of lists differ in length themselves, so that rows of one length are no tensor either.
fn has_rows_as_items(data_type: &DataType) -> bool {
    item_of_lists(data_type).is_some_and(|item| is_list(item.data_type()) || is_text(item.data_type()))
}

/// Returns the error of a type without a tensor form.
pub(super) fn unsupported(data_type: &DataType) -> Error {
    let error = Error::unsupported(format!("Arrow type {data_type} has no tensor form"));
    match data_type {
        _ if is_of_structs(data_type) => error.remedy_is(Remedy::FieldsOfLists),
        _ if is_list(data_type) => error.remedy_is(Remedy::RaggedOrLength),
        _ if is_text(data_type) => error.remedy_is(Remedy::RaggedOrCategories),
        DataType::Struct(_) => error.remedy_is("extract its fields first"),
        DataType::Interval(_) => error.remedy_is(
            "leave it out, or make it numbers in the query that returns it, such as epoch(column) of DuckDB",
        ),
        DataType::Map(_, _) | DataType::Union(_, _) => error.remedy_is("extract the children that hold numbers first"),
        _ => error.remedy_is("cast the column to a number type first"),
    }
}

/// Returns the remedy for a column whose values have no tensor form, where the column rules out that of [`unsupported`].
pub(super) fn remedy_of_column(field: &Field) -> Option<Remedy> {
    match field.data_type() {
        DataType::RunEndEncoded(_, _) | DataType::FixedSizeList(_, _) => match leaf(field.data_type()) {
            (text, true) if is_text(text) => Some(Remedy::Categories),
            (text, false) if is_text(text) => Some(Remedy::CategoriesOfRuns),
            (list, true) if is_list(list) => Some(FIXED_AS_LISTS.into()),
            (list, false) if is_list(list) => Some(Remedy::DecodeRuns),
            _ => None,
        },
        lists if has_rows_as_items(lists) => Some(Remedy::RaggedOrFixedItems),
        DataType::Struct(_) if !field.name().is_empty() => {
            let (mut path, mut level) = (field.name().clone(), field.data_type());
            while let DataType::Struct(fields) = level {
                let first = fields.first()?;
                path = format!("{path}.{}", first.name());
                level = first.data_type();
            }
            Some(Remedy::Fields { path: format!("{path:?}") })
        }
        _ => None,
    }
}

/// Returns the remedy for items of ragged or padded rows that have no tensor form, which take no categories.
pub(crate) fn remedy_of_items(item: &Field) -> Option<Remedy> {
    match (leaf(item.data_type()), item.data_type()) {
        ((text, _), _) if !is_text(text) => None,
        ((_, true), _) => Some(FIXED_AS_LISTS.into()),
        (_, DataType::RunEndEncoded(_, _)) => Some(Remedy::DecodeRuns),
        (_, DataType::Dictionary(_, _)) => Some("cast the items to the dictionary's value type first".into()),
        _ => None,
    }
}

/// Returns the remedy for fixed-size lists that have neither a tensor form nor a ragged one.
pub(crate) fn remedy_of_fixed_lists(data_type: &DataType) -> Option<Remedy> {
    match leaf(data_type) {
        (_, false) => None,
        (rows, _) if is_list(rows) || is_text(rows) => Some(FIXED_AS_LISTS.into()),
        (DataType::Struct(_), _) => Some(Remedy::FieldsOfFixedLists),
        (DataType::Map(_, _) | DataType::Union(_, _), _) => Some("extract the children that hold numbers first".into()),
        (DataType::Null, _) => Some("cast the items to a number type first".into()),
        (DataType::Interval(_), _) => Some("leave it out".into()),
        _ => None,
    }
}

const FIXED_AS_LISTS: &str = "cast the fixed-size lists to lists first: lists of lists are ragged rows";

/// Returns the type of the values under fixed-size lists, runs and dictionaries, and whether there are fixed-size lists.
fn leaf(data_type: &DataType) -> (&DataType, bool) {
    match data_type {
        DataType::FixedSizeList(item, _) => (leaf(item.data_type()).0, true),
        DataType::RunEndEncoded(_, values) => leaf(values.data_type()),
        DataType::Dictionary(_, values) => leaf(values),
        other => (other, false),
    }
}
