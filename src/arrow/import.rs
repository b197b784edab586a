//! [`DeviceArray`]: the safe owner of an imported `ArrowDeviceArray`.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use arrow_array::Array;
use arrow_data::ffi::FFI_ArrowArray;
use arrow_schema::{DataType, Field, FieldRef};

use super::bitmaps::{BitmapBytes, ValidityBits};
use super::check::{check, check_addresses, counts_in, same_layout};
use super::foreign::{buffer, child};
use super::imported::{Imported, ReleaseGuard, release_directly};
use super::mask::Mask;
use super::validate::require_bitmaps;
use super::view::{ArrayView, Leaf, LeafDictionary};
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::ffi::arrow_device::{ArrowArray, ArrowDeviceArray};
use crate::stream_order::{Readiness, is_check_asked};

/// Arrow data with its field, on any device. Clones and columns share the memory.
#[derive(Clone)]
pub struct DeviceArray {
    owner: Arc<Imported>,
    field: FieldRef,
    device: Device,
    /// The struct of which this is a range: the owner's, or a descendant of it.
    node: NonNull<ArrowArray>,
    offset: usize,
    length: usize,
    inherited: Vec<ValidityBits>,
    /// Whether exports wait on the host, and carry no event.
    on_host: bool,
    /// The number of null slots, if they were counted after the import.
    counted: Option<usize>,
}

// SAFETY: `node` and the bitmaps point into what `owner` keeps alive, immutable by Arrow's specification; `owner` is Send and Sync.
unsafe impl Send for DeviceArray {}
// SAFETY: shared references only read what `owner` keeps alive, immutable by Arrow's specification; `owner` is Sync.
unsafe impl Sync for DeviceArray {}

impl DeviceArray {
    /// Moves the array out of `source`, which then counts as released, and checks it against its field. Its release
    /// callback runs on the thread that drops the last share of its memory.
    ///
    /// # Errors
    /// If `source` was released already, or breaks the C data interface. The moved array is still released.
    ///
    /// # Safety
    /// `source` points to a struct as the C device interface describes it: pointer arrays have the lengths that the
    /// struct gives, buffers the sizes that type and length ask for, and they stay so until its release.
    pub unsafe fn import_device(source: *mut ArrowDeviceArray, field: FieldRef) -> Result<Self> {
        // SAFETY: the caller promises the same of `source`.
        unsafe { Self::import_device_guarded(source, field, release_directly) }
    }

    /// Like [`DeviceArray::import_device`], for a struct of the C data interface, in host memory.
    ///
    /// # Errors
    /// As [`DeviceArray::import_device`].
    ///
    /// # Safety
    /// As [`DeviceArray::import_device`].
    pub unsafe fn import(source: *mut ArrowArray, field: FieldRef) -> Result<Self> {
        // SAFETY: the caller promises the same of `source`.
        unsafe { Self::import_guarded(source, field, release_directly) }
    }

    /// Like [`DeviceArray::import_device`], with a guard of the release callback.
    ///
    /// # Errors
    /// As [`DeviceArray::import_device`].
    ///
    /// # Safety
    /// As [`DeviceArray::import_device`].
    pub(crate) unsafe fn import_device_guarded(
        source: *mut ArrowDeviceArray,
        field: FieldRef,
        guard: ReleaseGuard,
    ) -> Result<Self> {
        // SAFETY: `source` points to a struct, which is initialised.
        let array = unsafe { source.read() };
        if array.array.release.is_none() {
            return Err(Error::invalid("the ArrowDeviceArray was released or consumed already"));
        }
        // SAFETY: `source` points to a struct, which is ours to change: the move of the C data interface is a bitwise
        // copy, then the source counts as released.
        unsafe { (*source).array.release = None };
        let mut imported = Imported { array, guard, readiness: None, in_order: true };
        let device = Device::from_arrow(imported.array.device_type, imported.array.device_id)?;
        // SAFETY: the member is NULL or points to an event of the device, which lives until the array is released.
        imported.readiness = unsafe { Readiness::imported(device, imported.array.sync_event) }?;
        Self::own(imported, field)
    }

    /// Like [`DeviceArray::import`], with a guard of the release callback. Public for this crate's tests alone.
    ///
    /// # Errors
    /// As [`DeviceArray::import`].
    ///
    /// # Safety
    /// As [`DeviceArray::import`].
    #[doc(hidden)]
    pub unsafe fn import_guarded(source: *mut ArrowArray, field: FieldRef, guard: ReleaseGuard) -> Result<Self> {
        // SAFETY: `source` points to a struct, which is initialised.
        let array = unsafe { source.read() };
        if array.release.is_none() {
            return Err(Error::invalid("the ArrowArray was released or consumed already"));
        }
        // SAFETY: `source` points to a struct, which is ours to change: the move of the C data interface is a bitwise
        // copy, then the source counts as released.
        unsafe { (*source).release = None };
        Self::own(Imported { array: host(array), guard, readiness: None, in_order: false }, field)
    }

    fn own(imported: Imported, field: FieldRef) -> Result<Self> {
        // From here on the owner releases the struct, whatever the checks find.
        let owner = Arc::new(imported);
        if let Some(readiness) = &owner.readiness {
            readiness.owned_by(owner.clone());
        }
        let array = &owner.array;
        let device = Device::from_arrow(array.device_type, array.device_id)?;
        if device.is_cpu() && !array.sync_event.is_null() {
            return Err(Error::invalid("ArrowDeviceArray.sync_event must be NULL on the CPU"));
        }
        // SAFETY: the invariant `imported`; nobody changes the struct, which `owner` has.
        unsafe { check(&field, &array.array) }?;
        if device.is_cpu() && is_check_asked() {
            check_addresses(field.data_type(), &array.array).map_err(|error| error.in_column(field.name()))?;
        }
        let invalid = |_| Error::invalid("ArrowArray.offset or .length is negative");
        let offset = usize::try_from(array.array.offset).map_err(invalid)?;
        let length = usize::try_from(array.array.length).map_err(invalid)?;
        let node = NonNull::from(&array.array);
        let inherited = Vec::new();
        Ok(Self { owner, field, device, node, offset, length, inherited, on_host: false, counted: None })
    }

    /// Shares an arrow-rs array, under a field of its type.
    ///
    /// # Errors
    /// If the field's type is not the array's, the array is nested deeper than 64 levels, or memory for its bitmaps cannot
    /// be allocated.
    pub fn from_arrow(array: &dyn Array, field: FieldRef) -> Result<Self> {
        if field.data_type() != array.data_type() {
            let reason = format!("a field of type {} for an array of {}", field.data_type(), array.data_type());
            return Err(Error::argument(reason).in_column(field.name()));
        }
        let data = array.to_data();
        require_bitmaps(&data).map_err(|error| error.in_column(field.name()))?;
        let exported = FFI_ArrowArray::new(&data);
        Self::own(
            Imported {
                array: host(from_arrow_rs(exported)),
                guard: release_directly,
                readiness: None,
                in_order: false,
            },
            field,
        )
    }

    /// Refuses to read device memory as host memory.
    #[inline]
    pub(super) fn require_host(&self) -> Result<()> {
        if self.device.is_cpu() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Device, format!("the array is on {}", self.device))
            .remedy_is(self.device.host_remedy()))
    }

    /// Returns the same memory under another field, whose type must have the same buffers.
    pub(crate) fn relabel(&self, field: FieldRef) -> Result<Self> {
        let (own, wanted) = (self.field.data_type(), field.data_type());
        if !same_layout(own, wanted) && !counts_in(own, wanted) {
            let reason = format!("a field of type {} for an array of {}", field.data_type(), self.field.data_type());
            return Err(Error::argument(reason).in_column(field.name()));
        }
        Ok(Self { field, ..self.clone() })
    }

    /// Returns strings as binary values, over the same memory, because both types have the same buffers; others as they are.
    pub(crate) fn text_as_bytes(&self) -> Self {
        let bytes = match self.field.data_type() {
            DataType::Utf8 => DataType::Binary,
            DataType::LargeUtf8 => DataType::LargeBinary,
            DataType::Utf8View => DataType::BinaryView,
            _ => return self.clone(),
        };
        Self { field: Arc::new(self.field.as_ref().clone().with_data_type(bytes)), ..self.clone() }
    }

    /// Returns a column of an array of structs, over the same memory. Nulls of the struct are nulls of the column, whose
    /// field is nullable if the struct or its own field is.
    ///
    /// # Errors
    /// If this is not an array of structs, or has fewer columns.
    pub fn column(&self, index: usize) -> Result<Self> {
        let view = self.view().struct_field(index)?;
        let field = match self.field.is_nullable() && !view.field.is_nullable() {
            true => Arc::new(view.field.as_ref().clone().with_nullable(true)),
            false => view.field.clone(),
        };
        Ok(Self {
            owner: self.owner.clone(),
            field,
            device: self.device,
            node: NonNull::from(view.array),
            offset: view.offset,
            length: view.length,
            inherited: view.inherited,
            on_host: self.on_host,
            counted: None,
        })
    }

    /// Returns slots of a descendant of this array's struct, which import has checked, over the same memory.
    pub(super) fn descendant(&self, field: FieldRef, array: &ArrowArray, offset: usize, length: usize) -> Self {
        let (owner, node) = (self.owner.clone(), NonNull::from(array));
        let (device, on_host, inherited) = (self.device, self.on_host, Vec::new());
        Self { owner, field, device, node, offset, length, inherited, on_host, counted: None }
    }

    /// Returns `length` rows from row `offset` on, over the same memory.
    ///
    /// # Errors
    /// If there are fewer rows.
    pub fn slice(&self, offset: usize, length: usize) -> Result<Self> {
        match offset.checked_add(length) {
            Some(end) if end <= self.length => Ok(self.clipped(&(offset..end))),
            _ => {
                let reason = format!("{length} rows from row {offset} on, of an array of {} rows", self.length);
                Err(Error::argument(reason).in_column(self.field.name()))
            }
        }
    }

    /// Returns a range of the slots, clipped to their number, over the same memory.
    pub(crate) fn clipped(&self, range: &std::ops::Range<usize>) -> Self {
        let start = range.start.min(self.length);
        let length = range.end.clamp(start, self.length) - start;
        let inherited = self.inherited.iter().map(|bits| bits.slice(start, length));
        let (offset, inherited) = (self.offset + start, inherited.collect());
        Self { offset, length, inherited, counted: None, ..self.clone() }
    }

    /// Returns the dictionary of a leaf of this array; `None` if its elements are not codes.
    ///
    /// # Errors
    /// If counts are negative, which import has ruled out.
    pub(crate) fn dictionary_of(&self, leaf: &Leaf<'_>) -> Result<Option<Self>> {
        let Some(LeafDictionary { array, values, .. }) = leaf.dictionary() else { return Ok(None) };
        let invalid = |_| Error::invalid("ArrowArray.offset or .length is negative");
        Ok(Some(Self {
            owner: self.owner.clone(),
            field: Arc::new(Field::new("", values.clone(), true)),
            device: self.device,
            node: NonNull::from(array),
            offset: usize::try_from(array.offset).map_err(invalid)?,
            length: usize::try_from(array.length).map_err(invalid)?,
            inherited: Vec::new(),
            on_host: self.on_host,
            counted: None,
        }))
    }

    /// Returns the same array with exports that wait on the host until the memory is written, and carry no event, for
    /// consumers that ignore events. Its columns do so too.
    #[must_use]
    pub fn synchronised_on_host(&self) -> Self {
        Self { on_host: true, ..self.clone() }
    }

    /// Whether exports wait on the host.
    pub(super) fn is_synchronised_on_host(&self) -> bool {
        self.on_host
    }

    /// Returns the same array with a counted number of nulls.
    pub(crate) fn with_null_count(&self, nulls: usize) -> Self {
        Self { counted: Some(nulls), ..self.clone() }
    }

    /// Returns the number of nulls that were counted after the import.
    pub(super) fn counted(&self) -> Option<usize> {
        self.counted
    }

    /// Returns the bitmap with the nulls of an array of structs on a device, if the array does not count them.
    /// Consumers of record batches read the null count first.
    pub(crate) fn uncounted_bitmap(&self) -> Option<BitmapBytes> {
        let (DataType::Struct(_), Some(_), None) = (self.field.data_type(), self.readiness(), self.counted) else {
            return None;
        };
        let view = self.view();
        let known = view.validity_levels().iter().all(|level| level.nulls.is_some());
        if known { None } else { view.bitmap().ok().flatten() }
    }

    /// Returns whether no enclosing struct has nulls that are the array's too.
    pub(super) fn is_alone(&self) -> bool {
        self.inherited.is_empty()
    }

    /// Returns the array without the nulls of enclosing structs, and which rows these make null.
    ///
    /// # Errors
    /// If the memory is not the host's, or a bit per row cannot be allocated.
    pub(crate) fn split_inherited(&self) -> Result<(Self, Option<Mask<'_>>)> {
        self.require_host()?;
        // SAFETY: import checked the structs' bitmaps against their offsets and lengths, of which these are ranges; they live
        // as long as the owner, which `self` holds, and are host memory: checked.
        let mask = unsafe { Mask::combine(&self.inherited, self.length) }?;
        Ok((Self { inherited: Vec::new(), ..self.clone() }, mask))
    }

    /// The number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the field: name, type, nullability and metadata.
    #[must_use]
    pub fn field(&self) -> &FieldRef {
        &self.field
    }

    /// Returns the fields of an array of structs; none for other types.
    #[must_use]
    pub fn columns(&self) -> &[FieldRef] {
        match self.field.data_type() {
            DataType::Struct(fields) => fields,
            _ => &[],
        }
    }

    /// The memory's device.
    #[must_use]
    pub fn device(&self) -> Device {
        self.device
    }

    /// The struct that this is a range of.
    #[inline(always)]
    fn array(&self) -> &ArrowArray {
        // SAFETY: `node` points to the owner's struct or to a descendant, which live and do not change while `owner` does.
        unsafe { self.node.as_ref() }
    }

    /// The checked walk.
    pub(crate) fn view(&self) -> ArrayView<'_> {
        ArrayView {
            field: &self.field,
            array: self.array(),
            offset: self.offset,
            length: self.length,
            inherited: self.inherited.clone(),
        }
    }

    /// Returns the address and the number of values of an array of plain numbers of this size, or of such a column of
    /// structs. `None` if they are not in host memory, or a bitmap may have nulls.
    #[inline]
    pub(crate) fn plain_values(&self, column: Option<usize>, itemsize: usize) -> Option<(*const u8, usize)> {
        if !self.inherited.is_empty() || !self.device.is_cpu() {
            return None;
        }
        let own = self.array();
        // The first buffer of plain numbers and of structs is the bitmap.
        let has_bitmap =
            |array: &ArrowArray| array.null_count != 0 && buffer(array, 0).is_none_or(|bits| !bits.is_null());
        let (array, offset) = match column {
            None => (own, self.offset),
            Some(_) if has_bitmap(own) => return None,
            Some(index) => {
                let array = child(own, index).ok()?;
                (array, usize::try_from(array.offset).ok()?.checked_add(self.offset)?)
            }
        };
        if has_bitmap(array) {
            return None;
        }
        Some((buffer(array, 1)?.wrapping_add(offset.checked_mul(itemsize)?), self.length))
    }

    /// What keeps the memory alive.
    pub(crate) fn owner(&self) -> crate::alloc::Owner {
        self.owner.clone()
    }

    /// Returns when the memory is written, and which work uses it; `None` for ordinary host memory.
    #[must_use]
    pub fn readiness(&self) -> Option<&Readiness> {
        self.owner.readiness.as_ref()
    }
}

impl fmt::Debug for DeviceArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceArray")
            .field("field", &self.field)
            .field("length", &self.length)
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}

/// Wraps a host array in the struct of the device interface.
pub(super) fn host(array: ArrowArray) -> ArrowDeviceArray {
    let (device_type, device_id) = Device::CPU.to_arrow();
    ArrowDeviceArray { array, device_id, device_type, sync_event: std::ptr::null_mut(), reserved: [0; 3] }
}

const _: () = assert!(size_of::<FFI_ArrowArray>() == size_of::<ArrowArray>());

/// Converts arrow-rs' struct to ours, of the same C layout.
fn from_arrow_rs(array: FFI_ArrowArray) -> ArrowArray {
    let array = std::mem::ManuallyDrop::new(array);
    // SAFETY: both are `struct ArrowArray` of the C data interface; ManuallyDrop makes this a move.
    unsafe { (&raw const array).cast::<ArrowArray>().read() }
}

/// Owns an array that we made, in host memory, which keeps the invariant `imported`.
pub(crate) fn host_array(array: ArrowArray, field: FieldRef) -> Result<DeviceArray> {
    DeviceArray::own(Imported { array: host(array), guard: release_directly, readiness: None, in_order: false }, field)
}

/// Owns an array that we made over memory with this readiness, whose owner releases it in that order. It keeps the
/// invariant `imported`. Without a readiness it is ordinary host memory.
pub(crate) fn array_ready_at(array: ArrowArray, field: FieldRef, readiness: Option<Readiness>) -> Result<DeviceArray> {
    let device = readiness.as_ref().map_or(Device::CPU, Readiness::device);
    let (device_type, device_id) = device.to_arrow();
    let array = ArrowDeviceArray { array, device_id, device_type, sync_event: std::ptr::null_mut(), reserved: [0; 3] };
    DeviceArray::own(Imported { array, guard: release_directly, readiness, in_order: false }, field)
}
