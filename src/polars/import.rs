//! Chunks of polars as arrays of this crate, over the same memory.
#![allow(unsafe_code, reason = "moves the C structs that polars exports into their owner")]

use std::sync::Arc;

use arrow_schema::{DataType as ArrowType, Field, FieldRef};
use polars_arrow::array::{Array, FixedSizeListArray, ListArray, PrimitiveArray, StructArray};
use polars_arrow::types::NativeType;
use polars_core::prelude::{CategoricalMapping, CategoricalPhysical, DataType, Series};

use super::caught::caught;
use super::field::{has_categories, stored};
use crate::alloc::Owner;
use crate::arrow::{ArrayNode, DeviceArray, host_array};
use crate::copy_log::{self, Copied};
use crate::error::{Error, Result};

/// The values of categories as arrays, each made once as long as no category is added: chunks that share an array have equal codes.
#[derive(Debug, Default)]
pub(super) struct Dictionaries(Vec<(Arc<CategoricalMapping>, DeviceArray)>);

impl Dictionaries {
    fn of(&mut self, mapping: &Arc<CategoricalMapping>) -> Result<DeviceArray> {
        let count = mapping.num_cats_upper_bound();
        let known = self.0.iter().find(|(known, values)| Arc::ptr_eq(known, mapping) && values.len() == count);
        if let Some((_, values)) = known {
            return Ok(values.clone());
        }
        let field = Arc::new(Field::new("", ArrowType::Utf8View, true));
        let values = import(caught(|| Ok(mapping.to_arrow(true)))?, field)?;
        self.0.retain(|(known, _)| !Arc::ptr_eq(known, mapping));
        self.0.push((mapping.clone(), values.clone()));
        Ok(values)
    }
}

/// Returns the chunks of a series under its field. Shares their memory, except bitmaps that polars moves to where the C data interface
/// wants them, and the values of categories.
///
/// # Errors
/// If a code is beyond its categories, or polars breaks the C data interface. Names the column.
pub(super) fn chunks_of(
    series: &Series,
    field: &FieldRef,
    dictionaries: &mut Dictionaries,
) -> Result<Vec<DeviceArray>> {
    let chunks = series.chunks().iter();
    let chunks = chunks.map(|chunk| chunk_of(chunk.as_ref(), series.dtype(), field, dictionaries));
    chunks.collect::<Result<_>>().map_err(|error: Error| error.in_column(field.name()))
}

fn chunk_of(
    chunk: &dyn Array,
    dtype: &DataType,
    field: &FieldRef,
    dictionaries: &mut Dictionaries,
) -> Result<DeviceArray> {
    let has_categories = has_categories(dtype);
    let array = import(chunk.to_boxed(), if has_categories { stored(field) } else { field.clone() })?;
    if chunk.null_count() == 0 && !dtype.is_nested() && !has_categories {
        return Ok(array);
    }
    let mut node = ArrayNode::of(&array)?;
    let bytes = moved_bitmaps(chunk, &node);
    if bytes > 0 {
        copy_log::record(|| Copied {
            what: copy_log::validity_of(field.name(), array.len()),
            why: "polars moved it to the position of the values".to_owned(),
            bytes,
        });
    }
    if !has_categories {
        return Ok(array);
    }
    let mut owners = Vec::new();
    attach(chunk, dtype, &mut node, dictionaries, &mut owners)?;
    let owner: Owner = Arc::new((array.owner(), owners));
    host_array(node.export(&owner)?, field.clone())
}

/// Takes over an array that polars exports.
fn import(array: Box<dyn Array>, field: FieldRef) -> Result<DeviceArray> {
    let mut exported = caught(|| Ok(polars_arrow::ffi::export_array_to_c(array)))?;
    // SAFETY: both types are `struct ArrowArray` of the C data interface, `repr(C)`, and polars fills it as that says, with buffers
    // that nobody writes to while it is not released. The import leaves it released, so that its drop does nothing.
    unsafe { DeviceArray::import((&raw mut exported).cast(), field) }
}

/// How many bytes of bitmaps are not where the chunk has them.
fn moved_bitmaps(chunk: &dyn Array, node: &ArrayNode) -> usize {
    let own = chunk.validity().map(|validity| validity.as_slice().0);
    let exported = node.buffers.first().map(|start| start.wrapping_add(node.offset / 8));
    let moved = match (own, exported) {
        (Some(own), Some(exported)) if !exported.is_null() && own.as_ptr() != exported => own.len(),
        _ => 0,
    };
    let inner = children(chunk).zip(&node.children).map(|(chunk, node)| moved_bitmaps(chunk, node));
    inner.fold(moved, usize::saturating_add)
}

/// The arrays of the items of lists, and of the columns of structs.
fn children(chunk: &dyn Array) -> impl Iterator<Item = &dyn Array> {
    let chunk = chunk.as_any();
    let lists = chunk.downcast_ref::<ListArray<i64>>().map(|list| list.values());
    let fixed = chunk.downcast_ref::<FixedSizeListArray>().map(|list| list.values());
    let columns = chunk.downcast_ref::<StructArray>().map_or(&[][..], |columns| columns.values());
    lists.into_iter().chain(fixed).chain(columns).map(AsRef::as_ref)
}

/// Gives each array of codes the dictionary of its categories.
///
/// # Errors
/// If the code of a row is beyond its categories.
fn attach(
    chunk: &dyn Array,
    dtype: &DataType,
    node: &mut ArrayNode,
    dictionaries: &mut Dictionaries,
    owners: &mut Vec<Owner>,
) -> Result<()> {
    let mut attach_to = |dtypes: &mut dyn Iterator<Item = &DataType>| {
        let parts = children(chunk).zip(&mut node.children).zip(dtypes);
        parts.into_iter().try_for_each(|((chunk, node), dtype)| attach(chunk, dtype, node, dictionaries, owners))
    };
    let (stored, mapping) = match dtype {
        DataType::List(items) | DataType::Array(items, _) => return attach_to(&mut std::iter::once(items.as_ref())),
        DataType::Struct(fields) => return attach_to(&mut fields.iter().map(|field| field.dtype())),
        DataType::Categorical(categories, mapping) => (categories.physical(), mapping),
        DataType::Enum(categories, mapping) => (categories.physical(), mapping),
        _ => return Ok(()),
    };
    let values = dictionaries.of(mapping)?;
    match stored {
        CategoricalPhysical::U8 => check_codes::<u8>(chunk, values.len()),
        CategoricalPhysical::U16 => check_codes::<u16>(chunk, values.len()),
        CategoricalPhysical::U32 => check_codes::<u32>(chunk, values.len()),
    }?;
    node.dictionary = Some(Box::new(ArrayNode::of(&values)?));
    owners.push(values.owner());
    Ok(())
}

fn check_codes<T: NativeType + TryInto<usize>>(chunk: &dyn Array, count: usize) -> Result<()> {
    let codes = chunk.as_any().downcast_ref::<PrimitiveArray<T>>();
    let codes = codes.ok_or_else(|| Error::invalid("polars holds categories in codes of another type than it says"))?;
    let is_beyond = |code: &T| (*code).try_into().is_ok_and(|code: usize| code >= count);
    // Null slots may hold any code. Most chunks have none beyond, which is known without their bitmap.
    if !codes.values().iter().fold(false, |beyond, code| beyond | is_beyond(code)) {
        return Ok(());
    }
    match codes.iter().position(|code| code.is_some_and(is_beyond)) {
        None => Ok(()),
        Some(row) => Err(Error::invalid(format!("a code is beyond the {count} categories of the column")).at_row(row)),
    }
}
