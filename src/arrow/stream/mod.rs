//! [`DeviceArrayStream`]: a stream of arrays, imported from and exported to the C stream interfaces.

#[cfg(feature = "async")]
mod channel;
mod export;
mod exported;
mod import;
mod reader;

use std::ffi::{c_char, c_int, c_void};
use std::fmt;
use std::sync::Arc;

use arrow_schema::FieldRef;
use smallvec::SmallVec;

#[cfg(feature = "async")]
pub use channel::{Sender, channel};
pub use export::{export_device_stream, export_stream};
#[cfg(feature = "python")]
pub(crate) use exported::forget_messages;

use super::bitmaps::JoinBits;
use super::check::same_layout;
use super::import::{DeviceArray, host};
use super::same_schema::{difference, is_reordered};
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::ffi::arrow_device::{ArrowArray, ArrowArrayStream, ArrowDeviceArray, ArrowDeviceArrayStream, ArrowSchema};
use crate::ffi::dlpack::DLDeviceType;
use crate::spec::PathColumns;
use crate::stream_order::Interrupts;

/// A stream of arrays of one field on one type of device. Each array is requested only when it is needed.
pub struct DeviceArrayStream {
    field: FieldRef,
    device_type: DLDeviceType,
    /// The columns that a reader has of each array, instead of all.
    paths: Option<(Arc<PathColumns>, JoinBits)>,
    arrays: Box<dyn Iterator<Item = Result<DeviceArray>> + Send>,
}

impl DeviceArrayStream {
    /// Returns a stream of these arrays. Dropping the stream drops the iterator. An array of another type, or on
    /// another type of device, becomes an error. Its columns may have other names than those of `field`, but not the same ones in another
    /// order. Where `field` may have nulls, the array is under it.
    #[must_use]
    pub fn new(
        field: FieldRef,
        device_type: DLDeviceType,
        arrays: impl Iterator<Item = Result<DeviceArray>> + Send + 'static,
    ) -> Self {
        Self { field, device_type, paths: None, arrays: Box::new(arrays) }
    }

    /// Reads the remaining arrays, and handles signals between them.
    ///
    /// # Errors
    /// The error of the first array that fails, which ends the stream; [`ErrorKind::Interrupted`] if a signal's handler
    /// raises, after which the stream can still be read.
    pub(crate) fn read_to_end(&mut self) -> Result<SmallVec<[DeviceArray; 1]>> {
        let (mut arrays, mut interrupts) = (SmallVec::new(), Interrupts::new());
        for array in self {
            arrays.push(array?);
            interrupts.check()?;
        }
        Ok(arrays)
    }

    /// Refuses an array that contradicts the stream's schema or device.
    fn check(&self, array: DeviceArray) -> Result<DeviceArray> {
        let (device, device_type) = (array.device(), self.device_type);
        if device.device_type() != device_type {
            let of = Device::new(device_type, 0);
            return Err(Error::new(ErrorKind::Device, format!("an array on {device} in a stream of arrays on {of}")));
        }
        let array = array.part_of(&self.field)?;
        let (found, expected) = (array.field().data_type(), self.field.data_type());
        if found == expected || (same_layout(found, expected) && !is_reordered(found, expected)) {
            return Ok(array);
        }
        let (found, expected) = difference(array.field(), &self.field).unwrap_or_default();
        let reason = format!("an array has {found}, and the stream {expected}");
        Err(Error::invalid(reason).remedy_is("give all arrays of a stream one schema"))
    }

    /// The field of every array.
    #[must_use]
    pub fn field(&self) -> &FieldRef {
        self.paths.as_ref().map_or(&self.field, |(paths, _)| paths.field())
    }

    /// Sets the columns that a reader has of each array, as [`DeviceArray::at_paths`] makes them; `None` for all. Returns those that it had
    /// before.
    pub(crate) fn set_paths(
        &mut self,
        paths: Option<(Arc<PathColumns>, JoinBits)>,
    ) -> Option<(Arc<PathColumns>, JoinBits)> {
        std::mem::replace(&mut self.paths, paths)
    }

    /// The type of device of every array.
    #[must_use]
    pub fn device_type(&self) -> DLDeviceType {
        self.device_type
    }
}

impl Iterator for DeviceArrayStream {
    type Item = Result<DeviceArray>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.arrays.next()?;
        let array = next.and_then(|array| self.check(array));
        Some(match &self.paths {
            Some((paths, join)) => array.and_then(|array| array.at_paths(paths, *join)),
            None => array,
        })
    }
}

impl fmt::Debug for DeviceArrayStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceArrayStream")
            .field("field", &self.field)
            .field("device_type", &self.device_type)
            .finish_non_exhaustive()
    }
}

/// `ArrowArrayStream` and `ArrowDeviceArrayStream`: the same callbacks, except for what `get_next` fills.
pub(crate) trait CStream: Sized + 'static {
    /// What `get_next` fills.
    type Array;

    fn new(device_type: DLDeviceType, callbacks: Callbacks<Self>, private_data: *mut c_void) -> Self;
    fn device_type(&self) -> DLDeviceType;
    fn callbacks(&self) -> Callbacks<Self>;
    fn set_released(&mut self);

    /// # Safety
    /// `this` points to a struct, whose `private_data` nobody writes to now.
    unsafe fn private_data(this: *mut Self) -> *mut c_void;
    /// The address of the struct's `release`.
    ///
    /// # Safety
    /// `this` points to a struct.
    unsafe fn release_of(this: *mut Self) -> *mut Option<unsafe extern "C" fn(*mut Self)>;

    /// A released array, which marks the end of a stream.
    fn end() -> Self::Array;
    fn from_device_array(array: ArrowDeviceArray) -> Self::Array;
    /// Converts the array to the struct of the device interface; `None` at the end of the stream.
    fn into_device_array(array: Self::Array) -> Option<ArrowDeviceArray>;
}

/// The callbacks of a C stream. A hostile struct may lack any of them.
pub(crate) struct Callbacks<S: CStream> {
    get_schema: Option<unsafe extern "C" fn(*mut S, *mut ArrowSchema) -> c_int>,
    get_next: Option<unsafe extern "C" fn(*mut S, *mut S::Array) -> c_int>,
    get_last_error: Option<unsafe extern "C" fn(*mut S) -> *const c_char>,
    release: Option<unsafe extern "C" fn(*mut S)>,
}

/// The members that both structs have, under one name.
macro_rules! members {
    () => {
        fn callbacks(&self) -> Callbacks<Self> {
            let Self { get_schema, get_next, get_last_error, release, .. } = *self;
            Callbacks { get_schema, get_next, get_last_error, release }
        }

        fn set_released(&mut self) {
            self.release = None;
        }

        unsafe fn private_data(this: *mut Self) -> *mut c_void {
            // SAFETY: `this` points to a struct, whose member nobody writes to now (a clause of `# Safety`).
            unsafe { (*this).private_data }
        }

        unsafe fn release_of(this: *mut Self) -> *mut Option<unsafe extern "C" fn(*mut Self)> {
            // SAFETY: `this` points to a struct (a clause of `# Safety`), which makes this the address of its member.
            unsafe { &raw mut (*this).release }
        }
    };
}

impl CStream for ArrowArrayStream {
    type Array = ArrowArray;

    fn new(_device_type: DLDeviceType, callbacks: Callbacks<Self>, private_data: *mut c_void) -> Self {
        let Callbacks { get_schema, get_next, get_last_error, release } = callbacks;
        Self { get_schema, get_next, get_last_error, release, private_data }
    }

    fn device_type(&self) -> DLDeviceType {
        DLDeviceType::CPU
    }

    members!();

    fn end() -> ArrowArray {
        ArrowArray::empty()
    }

    fn from_device_array(array: ArrowDeviceArray) -> ArrowArray {
        array.array
    }

    fn into_device_array(array: ArrowArray) -> Option<ArrowDeviceArray> {
        array.release.is_some().then(|| host(array))
    }
}

impl CStream for ArrowDeviceArrayStream {
    type Array = ArrowDeviceArray;

    fn new(device_type: DLDeviceType, callbacks: Callbacks<Self>, private_data: *mut c_void) -> Self {
        let Callbacks { get_schema, get_next, get_last_error, release } = callbacks;
        Self { device_type: device_type.0, get_schema, get_next, get_last_error, release, private_data }
    }

    fn device_type(&self) -> DLDeviceType {
        DLDeviceType(self.device_type)
    }

    members!();

    fn end() -> ArrowDeviceArray {
        ArrowDeviceArray::empty()
    }

    fn from_device_array(array: ArrowDeviceArray) -> ArrowDeviceArray {
        array
    }

    fn into_device_array(array: ArrowDeviceArray) -> Option<ArrowDeviceArray> {
        array.array.release.is_some().then_some(array)
    }
}
