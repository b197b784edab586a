//! The Arrow C data, stream and device interfaces
//! (<https://arrow.apache.org/docs/format/CDataInterface.html>,
//! <https://arrow.apache.org/docs/format/CDeviceDataInterface.html>).

use std::ffi::{c_char, c_int, c_void};

use super::assert_layout;

/// `ARROW_FLAG_DICTIONARY_ORDERED`.
pub const ARROW_FLAG_DICTIONARY_ORDERED: i64 = 1;
/// `ARROW_FLAG_NULLABLE`.
pub const ARROW_FLAG_NULLABLE: i64 = 2;
/// `ARROW_FLAG_MAP_KEYS_SORTED`.
pub const ARROW_FLAG_MAP_KEYS_SORTED: i64 = 4;

/// `struct ArrowSchema`.
#[repr(C)]
#[derive(Debug)]
pub struct ArrowSchema {
    /// The type, as a NUL-terminated format string. Never NULL.
    pub format: *const c_char,
    /// The field's name, NUL-terminated, or NULL.
    pub name: *const c_char,
    /// Key-value pairs with their lengths, or NULL.
    pub metadata: *const c_char,
    /// `ARROW_FLAG_*`.
    pub flags: i64,
    /// Length of `children`.
    pub n_children: i64,
    /// The child types.
    pub children: *mut *mut ArrowSchema,
    /// The type of the values of a dictionary, or NULL.
    pub dictionary: *mut ArrowSchema,
    /// The release callback; NULL after the struct was released or moved.
    pub release: Option<unsafe extern "C" fn(*mut ArrowSchema)>,
    /// Opaque data of the producer.
    pub private_data: *mut c_void,
}

impl ArrowSchema {
    /// Returns a released schema, for a callback to fill.
    #[must_use]
    pub const fn empty() -> Self {
        Self {
            format: std::ptr::null(),
            name: std::ptr::null(),
            metadata: std::ptr::null(),
            flags: 0,
            n_children: 0,
            children: std::ptr::null_mut(),
            dictionary: std::ptr::null_mut(),
            release: None,
            private_data: std::ptr::null_mut(),
        }
    }
}

/// `struct ArrowArray`.
#[repr(C)]
#[derive(Debug)]
pub struct ArrowArray {
    /// Number of slots, without `offset`.
    pub length: i64,
    /// Number of null slots; -1 if unknown.
    pub null_count: i64,
    /// Number of slots in the buffers before the first slot of the array.
    pub offset: i64,
    /// Length of `buffers`.
    pub n_buffers: i64,
    /// Length of `children`.
    pub n_children: i64,
    /// The buffers, first the validity bitmap if the type has one.
    pub buffers: *mut *const c_void,
    /// The child arrays.
    pub children: *mut *mut ArrowArray,
    /// The values of a dictionary, or NULL.
    pub dictionary: *mut ArrowArray,
    /// The release callback; NULL after the struct was released or moved.
    pub release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    /// Opaque data of the producer.
    pub private_data: *mut c_void,
}

impl ArrowArray {
    /// Returns a released array, which marks the end of a stream, for a callback to fill.
    #[must_use]
    pub const fn empty() -> Self {
        Self {
            length: 0,
            null_count: 0,
            offset: 0,
            n_buffers: 0,
            n_children: 0,
            buffers: std::ptr::null_mut(),
            children: std::ptr::null_mut(),
            dictionary: std::ptr::null_mut(),
            release: None,
            private_data: std::ptr::null_mut(),
        }
    }
}

/// `struct ArrowArrayStream`: batches in host memory.
#[repr(C)]
#[derive(Debug)]
pub struct ArrowArrayStream {
    /// Writes the schema of every array of the stream. Returns 0 or an errno value.
    pub get_schema: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowSchema) -> c_int>,
    /// Writes the next array, or a released one at the end. Returns 0 or an errno value.
    pub get_next: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowArray) -> c_int>,
    /// The message of the last error, or NULL; valid until the next call.
    pub get_last_error: Option<unsafe extern "C" fn(*mut ArrowArrayStream) -> *const c_char>,
    /// The release callback; NULL after the struct was released or moved.
    pub release: Option<unsafe extern "C" fn(*mut ArrowArrayStream)>,
    /// Opaque data of the producer.
    pub private_data: *mut c_void,
}

impl ArrowArrayStream {
    /// Returns a released stream, for a function to fill.
    #[must_use]
    pub const fn empty() -> Self {
        let private_data = std::ptr::null_mut();
        Self { get_schema: None, get_next: None, get_last_error: None, release: None, private_data }
    }
}

/// `struct ArrowDeviceArray`: an array whose buffers live on a device.
#[repr(C)]
#[derive(Debug)]
pub struct ArrowDeviceArray {
    /// The array. Its structs are in host memory, only its buffers on the device.
    pub array: ArrowArray,
    /// The device's ordinal; -1 for the CPU.
    pub device_id: i64,
    /// `ArrowDeviceType`, the values of `DLDeviceType`.
    pub device_type: i32,
    /// A pointer to the event handle that is recorded when the data is ready, or NULL. Owned by `array`.
    pub sync_event: *mut c_void,
    /// Zero in exports; ignored in imports.
    pub reserved: [i64; 3],
}

impl ArrowDeviceArray {
    /// Returns a released array of the CPU, which marks the end of a stream, for a callback to fill.
    #[must_use]
    pub const fn empty() -> Self {
        let array = ArrowArray::empty();
        // `ARROW_DEVICE_CPU` is 1, and the CPU has no ordinal.
        Self { array, device_id: -1, device_type: 1, sync_event: std::ptr::null_mut(), reserved: [0; 3] }
    }
}

/// `struct ArrowDeviceArrayStream`: batches on one type of device.
#[repr(C)]
#[derive(Debug)]
pub struct ArrowDeviceArrayStream {
    /// The device type of every array of the stream.
    pub device_type: i32,
    /// Writes the schema of every array of the stream. Returns 0 or an errno value.
    pub get_schema: Option<unsafe extern "C" fn(*mut ArrowDeviceArrayStream, *mut ArrowSchema) -> c_int>,
    /// Writes the next array, or a released one at the end. Returns 0 or an errno value.
    pub get_next: Option<unsafe extern "C" fn(*mut ArrowDeviceArrayStream, *mut ArrowDeviceArray) -> c_int>,
    /// The message of the last error, or NULL; valid until the next call.
    pub get_last_error: Option<unsafe extern "C" fn(*mut ArrowDeviceArrayStream) -> *const c_char>,
    /// The release callback; NULL after the struct was released or moved.
    pub release: Option<unsafe extern "C" fn(*mut ArrowDeviceArrayStream)>,
    /// Opaque data of the producer.
    pub private_data: *mut c_void,
}

impl ArrowDeviceArrayStream {
    /// Returns a released stream of the CPU, for a function to fill.
    #[must_use]
    pub const fn empty() -> Self {
        let private_data = std::ptr::null_mut();
        // `ARROW_DEVICE_CPU` is 1.
        Self { device_type: 1, get_schema: None, get_next: None, get_last_error: None, release: None, private_data }
    }
}

assert_layout!(
    ArrowSchema, size = 72, align = 8,
    format @ 0, name @ 8, metadata @ 16, flags @ 24, n_children @ 32, children @ 40, dictionary @ 48, release @ 56,
    private_data @ 64
);
assert_layout!(
    ArrowArray, size = 80, align = 8,
    length @ 0, null_count @ 8, offset @ 16, n_buffers @ 24, n_children @ 32, buffers @ 40, children @ 48,
    dictionary @ 56, release @ 64, private_data @ 72
);
assert_layout!(
    ArrowArrayStream, size = 40, align = 8,
    get_schema @ 0, get_next @ 8, get_last_error @ 16, release @ 24, private_data @ 32
);
assert_layout!(
    ArrowDeviceArray, size = 128, align = 8,
    array @ 0, device_id @ 80, device_type @ 88, sync_event @ 96, reserved @ 104
);
assert_layout!(
    ArrowDeviceArrayStream, size = 48, align = 8,
    device_type @ 0, get_schema @ 8, get_next @ 16, get_last_error @ 24, release @ 32, private_data @ 40
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ffi::dlpack::DLDeviceType;

    #[test]
    fn empty_structs_count_as_released() {
        assert!(ArrowSchema::empty().release.is_none() && ArrowArrayStream::empty().release.is_none());
        assert!(ArrowDeviceArrayStream::empty().release.is_none());
        let array = ArrowDeviceArray::empty();
        assert!(array.array.release.is_none());
        assert_eq!(array.device_type, DLDeviceType::CPU.0);
    }
}
