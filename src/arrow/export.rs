//! Exports arrays and types as C structs that keep their memory alive.

use std::collections::HashMap;
use std::ptr::null_mut;
use std::sync::Arc;

use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{DataType, Field};

use super::binary_metadata::export_bytes;
use super::check::{children_of, has_validity};
use super::exported::Exported;
use super::import::DeviceArray;
use super::node::ArrayNode;
use crate::alloc::Owner;
use crate::copy_log::{self, Copied};
use crate::error::{Error, ErrorKind, Result};
use crate::ffi::arrow_device::{
    ARROW_FLAG_MAP_KEYS_SORTED, ARROW_FLAG_NULLABLE, ArrowArray, ArrowDeviceArray, ArrowSchema,
};
use crate::stream_order::Wait;

impl ArrayNode {
    /// Returns a node over the buffers of an array that no struct encloses. Its owner keeps the buffers alive.
    ///
    /// # Errors
    /// If counts are negative, which import has ruled out.
    pub(crate) fn of(array: &DeviceArray) -> Result<Self> {
        Self::range(&array.view())
    }
}

/// Exports an array as a C struct that shares its memory. The top of a struct array has offset 0, unless its bitmap
/// would have to be shifted, and a known null count, if counting reads no device.
///
/// # Errors
/// If the array has bitmaps of enclosing structs that cannot be joined, on a device or because its type has no bitmap.
pub fn export_device_array(array: &DeviceArray) -> Result<Exported<ArrowDeviceArray>> {
    let exported = export_joined(array, true, |_| Ok(None))?;
    // SAFETY: just made as the C device interface describes it, and nobody else's.
    Ok(unsafe { Exported::<ArrowDeviceArray>::new(exported) })
}

/// Like [`export_device_array`], as a struct of the C data interface.
///
/// # Errors
/// As [`export_device_array`], and if the memory is not the host's.
pub fn export_array(array: &DeviceArray) -> Result<Exported<ArrowArray>> {
    array.require_host().map_err(|error| error.in_column(array.field().name()))?;
    let exported = export_device_array(array)?.into_raw().array;
    // SAFETY: just made as the C data interface describes it, and handed over by its only owner.
    Ok(unsafe { Exported::<ArrowArray>::new(exported) })
}

/// Like [`export_device_array`]. `is_copy` says whether joining the nulls of all levels counts as a copy, or only
/// serves one. `prepare` changes the exported node; returns the owner of what it refers to besides.
///
/// # Errors
/// As [`export_device_array`], and those of `prepare`.
pub(super) fn export_joined(
    array: &DeviceArray,
    is_copy: bool,
    prepare: impl FnOnce(&mut ArrayNode) -> Result<Option<Owner>>,
) -> Result<ArrowDeviceArray> {
    let mut node = ArrayNode::range(&array.view())?;
    node.null_count = array.counted().or(node.null_count);
    let mut owner = array.owner();
    if let Some(bitmap) = join_nulls(array, &mut node, is_copy)? {
        owner = Arc::new((bitmap, owner));
    }
    // Consumers of record batches take the length of a column from the column.
    let is_part = node.offset > 0 || node.children.iter().any(|child| child.length != node.length);
    if !array.columns().is_empty() && is_part {
        let (no_nulls, whole_bytes) = (node.null_count == Some(0), node.offset.is_multiple_of(8));
        if let Some(validity) = node.buffers.first_mut().filter(|_| no_nulls || whole_bytes) {
            *validity = if no_nulls { std::ptr::null() } else { validity.wrapping_add(node.offset / 8) };
            node.push_down_offset();
        }
    }
    if let Some(prepared) = prepare(&mut node)? {
        owner = Arc::new((prepared, owner));
    }
    let (device_type, device_id) = array.device().to_arrow();
    let mut sync_event = null_mut();
    if let Some(readiness) = array.readiness() {
        readiness.lend(Wait::LentByArrow);
        if array.is_synchronised_on_host() {
            readiness.wait_on_host(Wait::ExportedOnHost)?;
        } else {
            sync_event = readiness.exported_event();
            owner = Arc::new((readiness.clone(), owner));
        }
    }
    Ok(ArrowDeviceArray { array: node.export(&owner)?, device_id, device_type, sync_event, reserved: [0; 3] })
}

/// Sets the validity and the number of nulls of a node that leaves its structs: their nulls are its own then. Returns the bitmap, if one
/// is made.
///
/// # Errors
/// When the type has no bitmap for the nulls of its structs, or they are on a device.
fn join_nulls(array: &DeviceArray, node: &mut ArrayNode, is_copy: bool) -> Result<Option<Vec<u8>>> {
    let view = array.view();
    let mask = || {
        // SAFETY: asked for arrays of the CPU alone (below). What the view inherits is of the owner, which `array` holds.
        unsafe { view.host_mask() }
    };
    if !has_validity(array.field().data_type()) {
        // Slots of the null type are null in any struct; other types without a bitmap cannot hold nulls of a struct.
        let all_null = *array.field().data_type() == DataType::Null;
        if !all_null && !view.inherited.is_empty() && (!array.device().is_cpu() || mask()?.is_some()) {
            let reason = format!("{} has no validity, and the enclosing struct has nulls", array.field().data_type());
            return Err(Error::unsupported(reason)
                .remedy_is("export the struct as a whole, or fill its nulls first")
                .in_column(array.field().name()));
        }
        node.null_count = Some(if all_null { node.length } else { 0 });
    } else if !view.inherited.is_empty() {
        if !array.device().is_cpu() {
            return Err(Error::new(ErrorKind::Device, "nulls of an enclosing struct cannot be joined on a device")
                .remedy_is("export the struct as a whole")
                .in_column(array.field().name()));
        }
        node.null_count = Some(0);
        if let Some(mask) = mask()? {
            let bitmap = mask.shifted(node.offset)?;
            if is_copy {
                copy_log::record(|| Copied {
                    what: copy_log::validity_of(array.field().name(), array.len()),
                    why: "nulls of the enclosing struct joined with the column's".to_owned(),
                    bytes: bitmap.len(),
                });
            }
            node.set_validity(array.field().data_type(), bitmap.as_ptr(), mask.nulls())?;
            return Ok(Some(bitmap));
        }
    } else if node.null_count.is_none() && node.buffers.first().is_none_or(|bits| bits.is_null()) {
        node.null_count = Some(0);
    } else if array.device().is_cpu() && node.null_count.is_none() {
        node.null_count = Some(mask()?.map_or(0, |mask| mask.nulls()));
    }
    Ok(None)
}

/// Our own buffer for an exported array, kept alive together with `owner`.
pub(crate) fn shared_buffer(bitmap: Vec<u8>, owner: Owner) -> (*const u8, Owner) {
    let start = bitmap.as_ptr();
    (start, Arc::new((bitmap, owner)))
}

const _: () = assert!(size_of::<FFI_ArrowSchema>() == size_of::<ArrowSchema>());

/// Exports a field as a C struct.
///
/// # Errors
/// If the C data interface cannot express the type or a name.
pub fn export_schema(field: &Field) -> Result<Exported<ArrowSchema>> {
    let schema = FFI_ArrowSchema::try_from(field)
        .map_err(|error| Error::unsupported(error.to_string()).in_column(field.name()))?;
    let schema = std::mem::ManuallyDrop::new(schema);
    // SAFETY: both are `struct ArrowSchema` of the C data interface; ManuallyDrop makes this a move.
    let schema = unsafe { (&raw const schema).cast::<ArrowSchema>().read() };
    // SAFETY: just made as the C data interface describes it, and nobody else's.
    let mut schema = unsafe { Exported::<ArrowSchema>::new(schema) };
    // SAFETY: just made of this field, and nobody else's yet.
    unsafe { complete(field.data_type(), field.metadata(), schema.as_mut()) }
        .map_err(|error| error.in_column(field.name()))?;
    Ok(schema)
}

/// Writes what arrow-rs 59 leaves out of the schema of a field: `ARROW_FLAG_MAP_KEYS_SORTED`, metadata that is not text,
/// and that the values of a dictionary may be null, without which nanoarrow reads nulls as values.
///
/// # Errors
/// As [`export_bytes`].
///
/// # Safety
/// A live schema that arrow-rs made of a field of this type and metadata: `children` has an entry for each child field,
/// each a live schema; `dictionary` is one for a dictionary. Nobody else reads them meanwhile.
unsafe fn complete(data_type: &DataType, metadata: &HashMap<String, String>, schema: &mut ArrowSchema) -> Result<()> {
    if let DataType::Map(_, true) = data_type {
        schema.flags |= ARROW_FLAG_MAP_KEYS_SORTED;
    }
    // SAFETY: a live schema of a field of this metadata, made by arrow-rs, which nobody else reads (`# Safety`).
    unsafe { export_bytes(metadata, schema) }?;
    for (index, field) in children_of(data_type).iter().enumerate() {
        // SAFETY: `children` has an entry for each child field, so `index` is inside.
        let entry = unsafe { schema.children.add(index) };
        // SAFETY: an entry of `children`, a pointer.
        let child = unsafe { entry.read() };
        // SAFETY: NULL or a live child, borrowed with its parent.
        if let Some(child) = unsafe { child.as_mut() } {
            // SAFETY: a live schema of the child's field, which nobody else reads, as its parent.
            unsafe { complete(field.data_type(), field.metadata(), child) }?;
        }
    }
    if let DataType::Dictionary(_, values) = data_type {
        // SAFETY: NULL or a live schema, borrowed with its parent.
        if let Some(dictionary) = unsafe { schema.dictionary.as_mut() } {
            dictionary.flags |= ARROW_FLAG_NULLABLE;
            // SAFETY: a live schema of the values' type, without metadata, which nobody else reads, as its parent.
            unsafe { complete(values, &HashMap::new(), dictionary) }?;
        }
    }
    Ok(())
}
