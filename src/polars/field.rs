//! The Arrow field of a polars dtype, and the type of Arrow that polars reads without a copy.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::extension::{EXTENSION_TYPE_METADATA_KEY, EXTENSION_TYPE_NAME_KEY};
use arrow_schema::{DataType as ArrowType, Field, FieldRef, TimeUnit as ArrowTimeUnit};
use polars_arrow::datatypes::ArrowDataType;
use polars_core::prelude::{CategoricalPhysical, CompatLevel, DataType, TimeUnit};

use crate::error::{Error, Result};

/// Returns the field of a column of this dtype, over the memory that polars holds it in: strings are views, and categories are codes
/// with a dictionary. Polars' own metadata of categories is kept, so that a `Series` that is made of the field has the dtype again.
///
/// # Errors
/// If Arrow has no such type. Names the column.
pub(super) fn field_of(name: &str, dtype: &DataType) -> Result<FieldRef> {
    field(name, dtype).map_err(|error| error.in_column(name))
}

fn field(name: &str, dtype: &DataType) -> Result<FieldRef> {
    let mut metadata: HashMap<String, String> = HashMap::new();
    for (key, value) in dtype.to_arrow_field_metadata().into_iter().flatten() {
        metadata.insert(key.to_string(), value.to_string());
    }
    let data_type = arrow_type(dtype, &mut metadata)?;
    Ok(Arc::new(Field::new(name, data_type, true).with_metadata(metadata)))
}

fn arrow_type(dtype: &DataType, metadata: &mut HashMap<String, String>) -> Result<ArrowType> {
    Ok(match dtype {
        DataType::Boolean => ArrowType::Boolean,
        DataType::Int8 => ArrowType::Int8,
        DataType::Int16 => ArrowType::Int16,
        DataType::Int32 => ArrowType::Int32,
        DataType::Int64 => ArrowType::Int64,
        DataType::UInt8 => ArrowType::UInt8,
        DataType::UInt16 => ArrowType::UInt16,
        DataType::UInt32 => ArrowType::UInt32,
        DataType::UInt64 => ArrowType::UInt64,
        DataType::Float16 => ArrowType::Float16,
        DataType::Float32 => ArrowType::Float32,
        DataType::Float64 => ArrowType::Float64,
        DataType::Decimal(precision, scale) => match (u8::try_from(*precision), i8::try_from(*scale)) {
            (Ok(precision), Ok(scale)) => ArrowType::Decimal128(precision, scale),
            _ => return Err(Error::invalid(format!("polars' {dtype} has more digits than a decimal"))),
        },
        DataType::String => ArrowType::Utf8View,
        DataType::Binary => ArrowType::BinaryView,
        DataType::BinaryOffset => ArrowType::LargeBinary,
        DataType::Date => ArrowType::Date32,
        DataType::Datetime(unit, zone) => {
            ArrowType::Timestamp(time_unit(*unit), zone.as_ref().map(|zone| zone.as_str().into()))
        }
        DataType::Duration(unit) => ArrowType::Duration(time_unit(*unit)),
        DataType::Time => ArrowType::Time64(ArrowTimeUnit::Nanosecond),
        DataType::Null => ArrowType::Null,
        DataType::List(items) => ArrowType::LargeList(field("item", items)?),
        DataType::Array(items, width) => {
            let width = i32::try_from(*width)
                .map_err(|_| Error::unsupported(format!("rows of {width} items: Arrow counts them in 32 bits")))?;
            ArrowType::FixedSizeList(field("item", items)?, width)
        }
        DataType::Struct(fields) => {
            let fields = fields.iter().map(|column| field_of(column.name(), column.dtype()));
            ArrowType::Struct(fields.collect::<Result<_>>()?)
        }
        DataType::Categorical(categories, _) => codes(categories.physical()),
        DataType::Enum(categories, _) => codes(categories.physical()),
        DataType::Int128 | DataType::UInt128 => {
            return Err(Error::unsupported(format!("polars' {dtype}: Arrow has no integers of 128 bits"))
                .remedy_is("cast it first, to DataType::Int64 or a Decimal"));
        }
        // The dtypes that polars-core has with more of its features.
        _ if dtype.is_object() => {
            return Err(Error::unsupported(format!("polars' {dtype}: Rust objects have no Arrow type"))
                .remedy_is("leave the column out, or make a column of its values first"));
        }
        other => return storage_type(other, metadata),
    })
}

/// The type of the storage of an extension dtype, whose name and metadata are added.
fn storage_type(dtype: &DataType, metadata: &mut HashMap<String, String>) -> Result<ArrowType> {
    let Ok(ArrowDataType::Extension(extension)) = dtype.try_to_arrow(CompatLevel::newest()) else {
        return Err(Error::unsupported(format!("polars' {dtype} has no Arrow type"))
            .remedy_is("cast it first, or leave the column out"));
    };
    metadata.insert(EXTENSION_TYPE_NAME_KEY.to_owned(), extension.name.to_string());
    if let Some(text) = &extension.metadata {
        metadata.insert(EXTENSION_TYPE_METADATA_KEY.to_owned(), text.to_string());
    }
    let storage = dtype.to_storage();
    if has_categories(&storage) {
        let reason = format!("polars' {dtype}: an extension type over categories");
        return Err(Error::unsupported(reason).remedy_is("take its storage first: series.to_storage()"));
    }
    arrow_type(&storage, metadata)
}

fn time_unit(unit: TimeUnit) -> ArrowTimeUnit {
    match unit {
        TimeUnit::Nanoseconds => ArrowTimeUnit::Nanosecond,
        TimeUnit::Microseconds => ArrowTimeUnit::Microsecond,
        TimeUnit::Milliseconds => ArrowTimeUnit::Millisecond,
    }
}

fn codes(stored: CategoricalPhysical) -> ArrowType {
    let code = match stored {
        CategoricalPhysical::U8 => ArrowType::UInt8,
        CategoricalPhysical::U16 => ArrowType::UInt16,
        CategoricalPhysical::U32 => ArrowType::UInt32,
    };
    ArrowType::Dictionary(Box::new(code), Box::new(ArrowType::Utf8View))
}

/// Whether values of this dtype, or values inside them, are codes of categories.
pub(super) fn has_categories(dtype: &DataType) -> bool {
    match dtype {
        DataType::Categorical(_, _) | DataType::Enum(_, _) => true,
        DataType::List(items) | DataType::Array(items, _) => has_categories(items),
        DataType::Struct(fields) => fields.iter().any(|field| has_categories(field.dtype())),
        _ => false,
    }
}

/// The field as polars stores it: codes without their dictionary.
pub(super) fn stored(field: &FieldRef) -> FieldRef {
    let data_type = match field.data_type() {
        ArrowType::Dictionary(code, _) => code.as_ref().clone(),
        ArrowType::LargeList(items) => ArrowType::LargeList(stored(items)),
        ArrowType::FixedSizeList(items, width) => ArrowType::FixedSizeList(stored(items), *width),
        ArrowType::Struct(fields) => ArrowType::Struct(fields.iter().map(stored).collect()),
        other => other.clone(),
    };
    Arc::new(field.as_ref().clone().with_data_type(data_type))
}
