//! Exports arrays and types as C structs that keep their memory alive.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;

use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{DataType, Field};

use super::check::{Buffer, buffers_of, children_of, has_validity};
use super::import::DeviceArray;
use super::view::{ArrayView, buffer, child};
use crate::alloc::{Owner, fallible};
use crate::callback;
use crate::copy_log::{self, Copied};
use crate::error::{Error, ErrorKind, Result};
use crate::ffi::arrow_device::{ARROW_FLAG_MAP_KEYS_SORTED, ArrowArray, ArrowDeviceArray, ArrowSchema};
use crate::stream_order::Wait;

/// What an exported `ArrowArray` says; its pointers lead into memory that the owner keeps alive.
#[derive(Debug, Default)]
pub(crate) struct ArrayNode {
    pub(crate) length: usize,
    /// `None` where it was not counted.
    pub(crate) null_count: Option<usize>,
    pub(crate) offset: usize,
    pub(crate) buffers: Vec<*const u8>,
    pub(crate) children: Vec<ArrayNode>,
    pub(crate) dictionary: Option<Box<ArrayNode>>,
}

/// What an exported struct owns. Children can be moved out of their parent, so that each has an owner of its own.
struct PrivateData {
    buffers: Box<[*const c_void]>,
    children: Box<[*mut ArrowArray]>,
    dictionary: *mut ArrowArray,
    _owner: Owner,
}

impl ArrayNode {
    /// The C struct, which holds a share of `owner` until it is released.
    ///
    /// # Errors
    /// When a count is beyond 64 bits signed. Nothing leaks then.
    pub(crate) fn export(self, owner: &Owner) -> Result<ArrowArray> {
        let count = |count: usize| i64::try_from(count).map_err(|_| Error::unsupported("a count beyond 64 bits"));
        let (length, offset) = (count(self.length)?, count(self.offset)?);
        let null_count = self.null_count.map_or(Ok(-1), count)?;
        let (n_buffers, n_children) = (count(self.buffers.len())?, count(self.children.len())?);
        // From here on a failure drops the guard, which releases what exists so far.
        let mut parts = Children(fallible::with_room(self.children.len() + 1)?);
        for node in self.children.into_iter().chain(self.dictionary.map(|node| *node)) {
            parts.0.push(node.export(owner)?);
        }
        let mut pointers: Vec<*mut ArrowArray> =
            std::mem::take(&mut parts.0).into_iter().map(|array| Box::into_raw(Box::new(array))).collect();
        let has_dictionary = i64::try_from(pointers.len()) != Ok(n_children);
        let dictionary = if has_dictionary { pointers.pop().unwrap_or(null_mut()) } else { null_mut() };
        let buffers = self.buffers.iter().map(|start| start.cast()).collect();
        let private_data = PrivateData { buffers, children: pointers.into(), dictionary, _owner: owner.clone() };
        let private_data = Box::leak(Box::new(private_data));
        Ok(ArrowArray {
            length,
            null_count,
            offset,
            n_buffers,
            n_children,
            buffers: private_data.buffers.as_mut_ptr(),
            children: private_data.children.as_mut_ptr(),
            dictionary: private_data.dictionary,
            release: Some(release_array),
            private_data: std::ptr::from_mut(private_data).cast(),
        })
    }

    /// A node over the same buffers as an imported array, all of it.
    pub(super) fn whole(array: &ArrowArray) -> Result<Self> {
        let unsigned = |value: i64| usize::try_from(value).map_err(|_| Error::invalid("a negative count"));
        let buffers = (0..unsigned(array.n_buffers)?).filter_map(|index| buffer(array, index)).collect();
        let children = (0..unsigned(array.n_children)?).map(|index| Self::whole(child(array, index)?));
        // SAFETY: import checked the dictionary: NULL or a live array, owned by its parent.
        let dictionary = unsafe { array.dictionary.as_ref() }.map(Self::whole).transpose()?.map(Box::new);
        Ok(Self {
            length: unsigned(array.length)?,
            null_count: usize::try_from(array.null_count).ok(),
            offset: unsigned(array.offset)?,
            buffers,
            children: children.collect::<Result<_>>()?,
            dictionary,
        })
    }

    /// A node over the same buffers as an array that no struct encloses; its owner keeps them alive.
    ///
    /// # Errors
    /// When counts are negative, which those of checked arrays are not.
    pub(crate) fn of(array: &DeviceArray) -> Result<Self> {
        Self::range(&array.view())
    }

    /// A node over a range of an imported array.
    pub(super) fn range(view: &ArrayView<'_>) -> Result<Self> {
        let mut node = Self::whole(view.array)?;
        if (node.offset, node.length) != (view.offset, view.length) {
            node.null_count = node.null_count.filter(|count| *count == 0);
        }
        (node.offset, node.length) = (view.offset, view.length);
        Ok(node)
    }

    /// Gives a node of this type, whose slots can be null, another bitmap, which starts at bit `offset % 8`: the other buffers
    /// and the children start as many whole bytes of bits later.
    ///
    /// # Errors
    /// When a position overflows, which those of checked arrays do not.
    pub(super) fn set_validity(&mut self, data_type: &DataType, bitmap: *const u8, nulls: usize) -> Result<()> {
        let overflow = || Error::invalid("the array's positions overflow");
        let slots = self.offset - self.offset % 8;
        for (start, kind) in self.buffers.iter_mut().zip(buffers_of(data_type)) {
            let bytes = match kind {
                Buffer::Validity | Buffer::Data => Some(0),
                Buffer::Bits => Some(slots / 8),
                Buffer::Width(width) | Buffer::Offsets(width) => slots.checked_mul(width),
            };
            if !start.is_null() {
                *start = start.wrapping_add(bytes.ok_or_else(overflow)?);
            }
        }
        let shared = match data_type {
            DataType::Struct(_) => Some(slots),
            DataType::FixedSizeList(_, size) => usize::try_from(*size).ok().and_then(|size| slots.checked_mul(size)),
            _ => Some(0),
        };
        let shared = shared.filter(|shared| self.children.iter().all(|child| child.length >= *shared));
        let shared = shared.ok_or_else(overflow)?;
        for child in self.children.iter_mut().filter(|_| shared > 0) {
            child.offset = child.offset.checked_add(shared).ok_or_else(overflow)?;
            child.length -= shared;
            child.null_count = child.null_count.filter(|count| *count == 0);
        }
        if let Some(validity) = self.buffers.first_mut() {
            *validity = bitmap;
        }
        self.offset -= slots;
        self.null_count = Some(nulls);
        Ok(())
    }

    /// Moves a struct's offset into its children: record batch consumers ask for offset 0 at the top.
    fn push_down_offset(&mut self) {
        for node in &mut self.children {
            node.offset += self.offset;
            if node.length != self.length {
                node.null_count = node.null_count.filter(|count| *count == 0);
            }
            node.length = self.length;
        }
        self.offset = 0;
    }
}

/// Structs that are released if the export fails half-way.
struct Children(Vec<ArrowArray>);

impl Drop for Children {
    fn drop(&mut self) {
        for array in &mut self.0 {
            // SAFETY: our own exports, not yet handed out.
            unsafe { release_array(array) };
        }
    }
}

/// # Safety
/// `array` is NULL or a struct that [`ArrayNode::export`] made, moved perhaps, not yet released.
unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    // A panic of an owner's drop has nobody to be told to.
    callback::run(
        || {
            // SAFETY: NULL, or a struct of ours that nobody else uses now (contract).
            unsafe { free_array(array) }
        },
        |_| (),
    );
}

/// # Safety
/// As [`release_array`].
unsafe fn free_array(array: *mut ArrowArray) {
    // SAFETY: NULL, or a struct that nobody else uses now (contract).
    let Some(array) = (unsafe { array.as_mut() }) else { return };
    if array.release.take().is_none() {
        return;
    }
    // SAFETY: `private_data` is the box that `export` leaked; taking `release` made this its only use.
    let private_data = unsafe { Box::from_raw(array.private_data.cast::<PrivateData>()) };
    array.private_data = null_mut();
    let dictionary = std::iter::once(private_data.dictionary).filter(|dictionary| !dictionary.is_null());
    for part in private_data.children.iter().copied().chain(dictionary) {
        // SAFETY: each is a box that `export` leaked; a consumer that moved the struct out left its `release` NULL.
        let mut part = unsafe { Box::from_raw(part) };
        if let Some(release) = part.release {
            // SAFETY: not released yet, and owned by its parent.
            unsafe { release(&raw mut *part) };
        }
    }
}

/// The C struct of an array, sharing its memory. The top of a struct array has offset 0 unless its bitmap would have to be
/// shifted, and a known null count where that can be had without reading a device.
///
/// # Errors
/// When the array has bitmaps of enclosing structs on a device, where they cannot be joined, or a type without a bitmap
/// to join them with.
pub fn export_device_array(array: &DeviceArray) -> Result<ArrowDeviceArray> {
    export_joined(array, true, |_| Ok(()))
}

/// As [`export_device_array`]; `is_copy` says whether nulls of all levels that are joined count as a copy, or only help
/// to make one that does; `prepare` changes what is exported.
///
/// # Errors
/// As [`export_device_array`], and those of `prepare`.
pub(super) fn export_joined(
    array: &DeviceArray,
    is_copy: bool,
    prepare: impl FnOnce(&mut ArrayNode) -> Result<()>,
) -> Result<ArrowDeviceArray> {
    let view = array.view();
    let mut node = ArrayNode::range(&view)?;
    node.null_count = array.counted().or(node.null_count);
    let mut owner = array.owner();
    let mask = || {
        // SAFETY: asked for arrays of the CPU alone (below). What the view inherits is of the owner, which `array` holds.
        unsafe { view.host_mask() }
    };
    if !has_validity(array.field().data_type()) {
        // Slots of the null type are null, whatever encloses them; other types have no place for nulls of a struct.
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
                    what: format!("validity of column {:?}: {} rows", array.field().name(), array.len()),
                    why: "nulls of the enclosing struct joined with the column's".to_owned(),
                    bytes: bitmap.len(),
                });
            }
            node.set_validity(array.field().data_type(), bitmap.as_ptr(), mask.nulls())?;
            owner = Arc::new((bitmap, owner));
        }
    } else if node.null_count.is_none() && node.buffers.first().is_none_or(|bits| bits.is_null()) {
        node.null_count = Some(0);
    } else if array.device().is_cpu() && node.null_count.is_none() {
        node.null_count = Some(mask()?.map_or(0, |mask| mask.nulls()));
    }
    if !array.columns().is_empty() && node.offset > 0 {
        let (no_nulls, whole_bytes) = (node.null_count == Some(0), node.offset.is_multiple_of(8));
        if let Some(validity) = node.buffers.first_mut().filter(|_| no_nulls || whole_bytes) {
            *validity = if no_nulls { std::ptr::null() } else { validity.wrapping_add(node.offset / 8) };
            node.push_down_offset();
        }
    }
    prepare(&mut node)?;
    let (device_type, device_id) = array.device().to_arrow();
    let mut sync_event = null_mut();
    if let Some(readiness) = array.readiness() {
        readiness.lend();
        if array.is_synchronised_on_host() {
            readiness.wait_on_host(Wait::ExportedOnHost)?;
        } else {
            sync_event = readiness.exported_event();
            owner = Arc::new((readiness.clone(), owner));
        }
    }
    Ok(ArrowDeviceArray { array: node.export(&owner)?, device_id, device_type, sync_event, reserved: [0; 3] })
}

/// A buffer of our own that an exported array points into, kept alive with `owner`.
pub(crate) fn shared_buffer(bitmap: Vec<u8>, owner: Owner) -> (*const u8, Owner) {
    let bitmap = bitmap.into_boxed_slice();
    let start = bitmap.as_ptr();
    (start, Arc::new((bitmap, owner)))
}

const _: () = assert!(size_of::<FFI_ArrowSchema>() == size_of::<ArrowSchema>());

/// The C struct of a field; whoever gets it releases it.
///
/// # Errors
/// When the type or a name cannot be written as the C data interface writes it.
pub fn export_schema(field: &Field) -> Result<ArrowSchema> {
    let schema = FFI_ArrowSchema::try_from(field)
        .map_err(|error| Error::unsupported(error.to_string()).in_column(field.name()))?;
    let schema = std::mem::ManuallyDrop::new(schema);
    // SAFETY: both are `struct ArrowSchema` of the C data interface; ManuallyDrop makes this a move.
    let mut schema = unsafe { (&raw const schema).cast::<ArrowSchema>().read() };
    // SAFETY: just made of this field, and nobody else's yet.
    unsafe { mark_sorted_maps(field.data_type(), &mut schema) };
    Ok(schema)
}

/// Sets `ARROW_FLAG_MAP_KEYS_SORTED`, which arrow-rs 59 forgets for fields.
///
/// # Safety
/// A live schema of this type, which nobody else reads meanwhile.
unsafe fn mark_sorted_maps(data_type: &DataType, schema: &mut ArrowSchema) {
    if let DataType::Map(_, true) = data_type {
        schema.flags |= ARROW_FLAG_MAP_KEYS_SORTED;
    }
    for (index, field) in children_of(data_type).iter().enumerate() {
        // SAFETY: the contract: a child for each field.
        let entry = unsafe { schema.children.add(index) };
        // SAFETY: as above.
        let child = unsafe { entry.read() };
        // SAFETY: as above: alive, and borrowed with its parent.
        if let Some(child) = unsafe { child.as_mut() } {
            // SAFETY: as for the parent.
            unsafe { mark_sorted_maps(field.data_type(), child) };
        }
    }
    if let DataType::Dictionary(_, values) = data_type {
        // SAFETY: the contract: NULL or alive, and borrowed with its parent.
        if let Some(dictionary) = unsafe { schema.dictionary.as_mut() } {
            // SAFETY: as for the parent.
            unsafe { mark_sorted_maps(values, dictionary) };
        }
    }
}
