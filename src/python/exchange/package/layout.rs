//! The layout of the package's table, which only grows at its end.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::ffi::arrow_device::{ArrowDeviceArray, ArrowDeviceArrayStream, ArrowSchema};
use crate::ffi::dlpack::DLManagedTensorVersioned;

/// The name of the table's capsule, by which Python finds it, too.
pub(super) const CAPSULE: &CStr = c"arrow_dlpack._native._table";
/// The module that has the capsule, and the attribute.
pub(super) const MODULE: &str = "arrow_dlpack._native";
pub(super) const ATTRIBUTE: &str = "_table";

/// Changes when a member changes its meaning: nothing but the header can be read of another major version.
pub(super) const MAJOR: u32 = 1;
/// Counts up when members are appended.
pub(super) const MINOR: u32 = 0;

/// What every version starts with.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) major: u32,
    pub(super) minor: u32,
    /// Bytes of the table.
    pub(super) size: usize,
}

/// The table of version 1.0. `None` is a member that its maker did not set.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Table {
    pub(super) header: Header,
    pub(super) class: Option<Class>,
    pub(super) tensor_to_object: Option<TensorToObject>,
    pub(super) array_to_object: Option<ArrayToObject>,
    pub(super) stream_to_object: Option<StreamToObject>,
    pub(super) current_stream: Option<CurrentStream>,
    pub(super) enter_stream: Option<EnterStream>,
    pub(super) leave_stream: Option<LeaveStream>,
    pub(super) is_tracking: Option<IsTracking>,
    pub(super) record_copy: Option<RecordCopy>,
    pub(super) memory_source: Option<GetSource>,
}

/// Writes a new reference to a class (0 to 6: `ConversionError`, `CopyError`, `NullError`, `CastError`,
/// `UnsupportedTypeError`, `InternalError`, `ReadOnlyViewWarning`; [`CLASS_TENSOR`]). Attached; 0, or -1 with an exception set.
pub(super) type Class = unsafe extern "C" fn(class: u32, out: *mut *mut c_void) -> c_int;
/// Writes a new `Tensor`. Attached; 0, or -1 with an exception set. Owns the managed tensor from its answer 0 on.
pub(super) type TensorToObject =
    unsafe extern "C" fn(*mut DLManagedTensorVersioned, *const Origin, out: *mut *mut c_void) -> c_int;
/// Writes a new `Array` or `RecordBatch`. Attached; 0, or -1 with an exception set. Moves the array out in any case.
pub(super) type ArrayToObject =
    unsafe extern "C" fn(*mut ArrowDeviceArray, *const ArrowSchema, out: *mut *mut c_void) -> c_int;
/// Writes a new `ArrayStream`. Attached; 0, or -1 with an exception set. Moves the stream out in any case.
pub(super) type StreamToObject = unsafe extern "C" fn(*mut ArrowDeviceArrayStream, out: *mut *mut c_void) -> c_int;
/// Returns the number of the stream that this thread has set; 0 for none.
pub(super) type CurrentStream = unsafe extern "C" fn() -> usize;
/// Sets this thread's stream, a number that is not 0, and returns the number of the scope; 0 for a stream that is refused.
pub(super) type EnterStream = unsafe extern "C" fn(stream: usize) -> u64;
/// Ends a scope of this thread.
pub(super) type LeaveStream = unsafe extern "C" fn(scope: u64);
/// Returns 1 if a log of copies is active on this thread, else 0.
pub(super) type IsTracking = unsafe extern "C" fn() -> c_int;
/// Adds a copy to this thread's logs: what and why, as UTF-8 without a NUL at the end, and the bytes written.
pub(super) type RecordCopy = unsafe extern "C" fn(what: Text, why: Text, bytes: usize);
/// Writes this thread's allocator of device results, a reference that its `release` gives back: 0, or -1 for none.
pub(super) type GetSource = unsafe extern "C" fn(out: *mut LentSource) -> c_int;

/// UTF-8 text that lives during a call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Text {
    pub(super) start: *const c_char,
    pub(super) length: usize,
}

impl Text {
    pub(super) fn of(text: &str) -> Self {
        Self { start: text.as_ptr().cast(), length: text.len() }
    }
}

/// Where a tensor came from.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Origin {
    /// The field that the elements came from, or NULL. Read alone.
    pub(super) field: *const ArrowSchema,
    /// The field of the dictionary, or NULL. Read alone.
    pub(super) dictionary_field: *const ArrowSchema,
    /// The dictionary of the elements, or NULL. Moved out.
    pub(super) dictionary: *mut ArrowDeviceArray,
    /// [`ORIGIN_COPIED`].
    pub(super) flags: u64,
}

/// The conversion that made the tensor copied its elements.
pub(super) const ORIGIN_COPIED: u64 = 1;

/// The class `Tensor`; those below are the exceptions, in the order of `errors::class_of`.
pub(super) const CLASS_TENSOR: u32 = 7;

/// An allocator of device results.
#[repr(C)]
#[derive(Debug)]
pub(super) struct LentSource {
    /// [`SOURCE_POOL`], [`SOURCE_UNPOOLED`] or [`SOURCE_ALLOCATOR`]; the members below are of an allocator alone.
    pub(super) kind: u32,
    pub(super) context: *mut c_void,
    pub(super) allocate: Option<Allocate>,
    pub(super) deallocate: Option<Deallocate>,
    /// Gives the reference back, once.
    pub(super) release: Option<ReleaseSource>,
}

pub(super) const SOURCE_POOL: u32 = 0;
pub(super) const SOURCE_UNPOOLED: u32 = 1;
pub(super) const SOURCE_ALLOCATOR: u32 = 2;

/// Allocates memory for a stream, and returns a status of [`ALLOCATED`] and the others; any status but those for which there is
/// no more to say calls `tell` once.
pub(super) type Allocate = unsafe extern "C" fn(
    context: *mut c_void,
    device: i32,
    bytes: usize,
    stream: usize,
    out: *mut Memory,
    tell: Tell,
    told: *mut c_void,
) -> c_int;
/// Gives memory back, once all work with it is done.
pub(super) type Deallocate = unsafe extern "C" fn(context: *mut c_void, device: i32, address: usize, bytes: usize);
pub(super) type ReleaseSource = unsafe extern "C" fn(context: *mut c_void);
/// Tells why no memory was allocated: a text, and a new reference to the exception that ended the call, or NULL.
pub(super) type Tell = unsafe extern "C" fn(told: *mut c_void, why: Text, exception: *mut c_void);

/// Memory of an allocator, and the stream in whose order it may be used.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Memory {
    pub(super) address: usize,
    pub(super) stream: usize,
}

pub(super) const ALLOCATED: c_int = 0;
pub(super) const OUT_OF_MEMORY: c_int = 1;
pub(super) const NOT_HERE: c_int = 2;
pub(super) const INTERRUPTED: c_int = 3;
pub(super) const FAILED: c_int = 4;

// Of 64 and 32 bits: a header of 16 or 12 bytes, and ten functions.
const _: () = assert!(size_of::<Header>() == 8 + size_of::<usize>());
const _: () = assert!(size_of::<Table>() == size_of::<Header>() + 10 * size_of::<usize>());
const _: () = assert!(std::mem::offset_of!(Header, major) == 0 && std::mem::offset_of!(Header, minor) == 4);
const _: () = assert!(std::mem::offset_of!(Header, size) == 8);
const _: () = assert!(std::mem::offset_of!(Table, class) == size_of::<Header>());

impl Text {
    /// A copy of the text; what is not UTF-8 is replaced.
    ///
    /// # Safety
    /// `length` bytes from `start` on can be read, or `length` is 0.
    pub(super) unsafe fn read(self) -> String {
        if self.start.is_null() || self.length == 0 {
            return String::new();
        }
        // SAFETY: so many bytes to read (a clause of `# Safety`), not NULL.
        let bytes = unsafe { std::slice::from_raw_parts(self.start.cast::<u8>(), self.length) };
        String::from_utf8_lossy(bytes).into_owned()
    }
}
