//! The types that polars reads, and what others have to become first.

use std::sync::Arc;

use arrow_schema::extension::{EXTENSION_TYPE_METADATA_KEY, EXTENSION_TYPE_NAME_KEY};
use arrow_schema::{DataType as ArrowType, Field, FieldRef, TimeUnit};
use polars_arrow::datatypes::{ArrowDataType, Field as PolarsField, IntegerType, TimeUnit as PolarsTimeUnit};
use polars_core::prelude::PlSmallStr;

use crate::arrow::has_type;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::spec::{FixedShapeTensor, is_utf8};

const BOOL8: &str = "arrow.bool8";
/// The largest precision of polars' decimals.
const DIGITS: u8 = 38;

/// Returns the field as polars reads it: the same, or one of another type that the values have to be cast to. Names of extension
/// types are left out, because polars knows none of them.
///
/// # Errors
/// If polars has no type for the values.
pub(super) fn readable(field: &Field) -> Result<FieldRef> {
    let refused = |reason: String, remedy: &'static str| Err(Error::unsupported(reason).remedy_is(remedy));
    let own = field.data_type();
    let extension = field.extension_type_name();
    let data_type = match own {
        ArrowType::Int8 if extension == Some(BOOL8) => ArrowType::Boolean,
        ArrowType::Utf8 | ArrowType::LargeUtf8 => ArrowType::Utf8View,
        ArrowType::FixedSizeBinary(_) if extension.and_then(DType::of_extension).is_some() => {
            let name = extension.unwrap_or_default();
            return refused(format!("{name}: polars has no such numbers"), "convert them to float32 first");
        }
        // arrow-rs has no cast to views; polars makes them.
        ArrowType::FixedSizeBinary(_) => ArrowType::Binary,
        ArrowType::Binary | ArrowType::LargeBinary => ArrowType::BinaryView,
        ArrowType::Timestamp(TimeUnit::Second, zone) => ArrowType::Timestamp(TimeUnit::Millisecond, zone.clone()),
        ArrowType::Duration(TimeUnit::Second) => ArrowType::Duration(TimeUnit::Millisecond),
        ArrowType::Time32(_) | ArrowType::Time64(_) => ArrowType::Time64(TimeUnit::Nanosecond),
        ArrowType::Decimal32(precision, scale)
        | ArrowType::Decimal64(precision, scale)
        | ArrowType::Decimal128(precision, scale)
        | ArrowType::Decimal256(precision, scale) => ArrowType::Decimal128((*precision).min(DIGITS), *scale),
        ArrowType::List(items)
        | ArrowType::LargeList(items)
        | ArrowType::ListView(items)
        | ArrowType::LargeListView(items) => ArrowType::LargeList(readable(items)?),
        ArrowType::FixedSizeList(items, width) => {
            if FixedShapeTensor::of(field)?.is_some_and(|tensor| !tensor.is_row_major()) {
                return refused(
                    "a tensor whose dimensions are permuted: polars has them in one order alone".to_owned(),
                    "convert it to a Tensor, and that to a Series",
                );
            }
            ArrowType::FixedSizeList(readable(items)?, *width)
        }
        ArrowType::Struct(columns) => {
            let columns = columns.iter().map(|column| readable(column).map_err(|error| error.in_column(column.name())));
            ArrowType::Struct(columns.collect::<Result<_>>()?)
        }
        // Categories, unless the values are no text.
        ArrowType::Dictionary(_, values) if is_utf8(values) => own.clone(),
        ArrowType::Dictionary(_, values) => readable_type(values)?,
        ArrowType::RunEndEncoded(_, values) => readable(values)?.data_type().clone(),
        ArrowType::Interval(_) | ArrowType::Union(_, _) | ArrowType::Map(_, _) => {
            return refused(format!("polars has no type for {own}"), "leave the column out");
        }
        _ => own.clone(),
    };
    let mut metadata = field.metadata().clone();
    metadata.remove(EXTENSION_TYPE_NAME_KEY);
    metadata.remove(EXTENSION_TYPE_METADATA_KEY);
    Ok(Arc::new(Field::new(field.name(), data_type, field.is_nullable()).with_metadata(metadata)))
}

fn readable_type(data_type: &ArrowType) -> Result<ArrowType> {
    Ok(readable(&Field::new("", data_type.clone(), true))?.data_type().clone())
}

/// Whether values of this type, or inside them, are codes, which polars maps to its own categories.
pub(super) fn has_codes(data_type: &ArrowType) -> bool {
    has_type(data_type, &|data_type| matches!(data_type, ArrowType::Dictionary(_, _)))
}

/// Returns a field that [`readable`] has made, in polars' own words.
///
/// # Errors
/// If it is of a type that [`readable`] does not make.
pub(super) fn polars_field(field: &Field) -> Result<PolarsField> {
    let text = |text: &String| PlSmallStr::from_str(text);
    let metadata = field.metadata().iter().map(|(key, value)| (text(key), text(value))).collect();
    let data_type = polars_type(field.data_type())?;
    Ok(PolarsField::new(text(field.name()), data_type, field.is_nullable()).with_metadata(metadata))
}

fn polars_type(data_type: &ArrowType) -> Result<ArrowDataType> {
    let refused = || Error::internal(format!("{data_type} was to be another type for polars"));
    Ok(match data_type {
        ArrowType::Null => ArrowDataType::Null,
        ArrowType::Boolean => ArrowDataType::Boolean,
        ArrowType::Int8 => ArrowDataType::Int8,
        ArrowType::Int16 => ArrowDataType::Int16,
        ArrowType::Int32 => ArrowDataType::Int32,
        ArrowType::Int64 => ArrowDataType::Int64,
        ArrowType::UInt8 => ArrowDataType::UInt8,
        ArrowType::UInt16 => ArrowDataType::UInt16,
        ArrowType::UInt32 => ArrowDataType::UInt32,
        ArrowType::UInt64 => ArrowDataType::UInt64,
        ArrowType::Float16 => ArrowDataType::Float16,
        ArrowType::Float32 => ArrowDataType::Float32,
        ArrowType::Float64 => ArrowDataType::Float64,
        ArrowType::Utf8 => ArrowDataType::Utf8,
        ArrowType::LargeUtf8 => ArrowDataType::LargeUtf8,
        ArrowType::Utf8View => ArrowDataType::Utf8View,
        ArrowType::Binary => ArrowDataType::Binary,
        ArrowType::BinaryView => ArrowDataType::BinaryView,
        ArrowType::Date32 => ArrowDataType::Date32,
        ArrowType::Date64 => ArrowDataType::Date64,
        ArrowType::Timestamp(unit, zone) => {
            ArrowDataType::Timestamp(polars_unit(*unit), zone.as_ref().map(|zone| PlSmallStr::from_str(zone)))
        }
        ArrowType::Duration(unit) => ArrowDataType::Duration(polars_unit(*unit)),
        ArrowType::Time64(unit) => ArrowDataType::Time64(polars_unit(*unit)),
        ArrowType::Decimal128(precision, scale) => {
            let scale = usize::try_from(*scale).map_err(|_| {
                Error::unsupported(format!("{data_type}: polars has no decimals of a negative scale"))
                    .remedy_is("cast them first")
            })?;
            ArrowDataType::Decimal(usize::from(*precision), scale)
        }
        ArrowType::LargeList(items) => ArrowDataType::LargeList(Box::new(polars_field(items)?)),
        ArrowType::FixedSizeList(items, width) => {
            let width = usize::try_from(*width).map_err(|_| Error::invalid("lists of a negative size"))?;
            ArrowDataType::FixedSizeList(Box::new(polars_field(items)?), width)
        }
        ArrowType::Struct(columns) => {
            ArrowDataType::Struct(columns.iter().map(|column| polars_field(column)).collect::<Result<_>>()?)
        }
        ArrowType::Dictionary(codes, values) => {
            let codes = match codes.as_ref() {
                ArrowType::Int8 => IntegerType::Int8,
                ArrowType::Int16 => IntegerType::Int16,
                ArrowType::Int32 => IntegerType::Int32,
                ArrowType::Int64 => IntegerType::Int64,
                ArrowType::UInt8 => IntegerType::UInt8,
                ArrowType::UInt16 => IntegerType::UInt16,
                ArrowType::UInt32 => IntegerType::UInt32,
                ArrowType::UInt64 => IntegerType::UInt64,
                _ => return Err(refused()),
            };
            ArrowDataType::Dictionary(codes, Box::new(polars_type(values)?), false)
        }
        _ => return Err(refused()),
    })
}

fn polars_unit(unit: TimeUnit) -> PolarsTimeUnit {
    match unit {
        TimeUnit::Second => PolarsTimeUnit::Second,
        TimeUnit::Millisecond => PolarsTimeUnit::Millisecond,
        TimeUnit::Microsecond => PolarsTimeUnit::Microsecond,
        TimeUnit::Nanosecond => PolarsTimeUnit::Nanosecond,
    }
}
