//! The errors of types without a tensor form: what to do depends on the column, and on the options that it was tried with.

use arrow_schema::{DataType, Field};

use super::list_lengths::is_list;
use super::options::Options;
use crate::error::{Error, Remedy};

/// Returns whether values of this type are strings or binary values of any length.
pub(crate) fn is_text(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Utf8View
            | DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
    )
}

/// Returns the error of a type without a tensor form.
pub(super) fn unsupported(data_type: &DataType) -> Error {
    let error = Error::unsupported(format!("Arrow type {data_type} has no tensor form"));
    match data_type {
        _ if is_list(data_type) => error.remedy_is(Remedy::RaggedOrLength),
        _ if is_text(data_type) => error.remedy_is(Remedy::RaggedOrCategories),
        DataType::Struct(_) => error.remedy_is("extract its fields first"),
        DataType::Interval(_) => error.remedy_is("cast the column to a duration first"),
        DataType::Map(_, _) | DataType::Union(_, _) => error.remedy_is("extract the children that hold numbers first"),
        _ => error.remedy_is("cast the column to a number type first"),
    }
}

/// Returns the remedy for a column whose values have no tensor form, where the column or the options rule out that of [`unsupported`].
pub(super) fn remedy_of_column(field: &Field, options: &Options) -> Option<Remedy> {
    match field.data_type() {
        DataType::RunEndEncoded(_, values) if is_text(values.data_type()) => Some(Remedy::CategoriesOfRuns),
        DataType::RunEndEncoded(_, values) if is_list(values.data_type()) => Some(Remedy::DecodeRuns),
        DataType::FixedSizeList(item, _) if is_text(leaf(item)) => Some(Remedy::Categories),
        DataType::List(item) | DataType::LargeList(item) | DataType::ListView(item) | DataType::LargeListView(item)
            if options.length.is_some() && is_list(item.data_type()) =>
        {
            Some(Remedy::RaggedOrFixedItems)
        }
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

/// Returns the type of the values under fixed-size lists.
fn leaf(item: &Field) -> &DataType {
    match item.data_type() {
        DataType::FixedSizeList(item, _) => leaf(item),
        other => other,
    }
}
