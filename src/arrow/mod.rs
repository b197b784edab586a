//! The Arrow C data, stream and device interfaces: import, a checked walk, and export.
//!
//! Import takes ownership first and validates second, so a refused struct is still released. The walk over validated structs does not
//! touch the buffers, so the same code serves every device.
#![allow(unsafe_code, reason = "reads, owns and releases the C structs of other libraries")]

mod check;
mod chunks;
mod codes;
mod decompose;
mod device_lists;
mod export;
mod fast_view;
mod field_cache;
#[cfg(feature = "python")]
mod field_serialize;
mod import;
mod lists;
mod mask;
mod offsets;
mod schema;
mod spans;
mod stream;
mod validate;
mod view;

#[cfg(feature = "python")]
pub(crate) use check::child_types;
pub(crate) use check::{counts_in, same_layout};
pub(crate) use chunks::empty_on;
pub(crate) use decompose::{Decomposed, Piece, Wanted, read_host, rebase};
pub(crate) use device_lists::{BitmapBytes, DeviceInts};
pub(crate) use export::{ArrayNode, shared_buffer};
pub use export::{export_device_array, export_schema};
pub(crate) use fast_view::{PlainColumns, Starts};
pub use field_cache::read_field;
#[cfg(feature = "python")]
pub(crate) use field_serialize::FieldParts;
pub use import::{DeviceArray, ReleaseGuard, release_directly};
pub(crate) use import::{array_ready_at, host_array};
pub(crate) use lists::{Hidden, Ints, ListChunk, ViewChunk};
pub(crate) use mask::{Mask, count_bits};
pub use schema::read_schema;
pub use stream::{DeviceArrayStream, export_device_stream, export_stream};
#[cfg(feature = "python")]
pub(crate) use validate::validate;
pub(crate) use view::{BitmapLevel, Leaf};

use crate::error::{Error, Result};

/// Deeper nesting than this is refused: it has no use, and a cycle would have no end.
const MAX_DEPTH: usize = 64;

/// A reference behind a foreign pointer, if it can be one.
///
/// # Safety
/// A pointer that is neither NULL nor misaligned points to an initialised `T` that lives and is not written for `'a`.
#[inline]
unsafe fn foreign<'a, T>(pointer: *const T, what: &str) -> Result<&'a T> {
    if !pointer.is_aligned() {
        return Err(wrong(what, "a misaligned pointer"));
    }
    // SAFETY: aligned, and by this function's contract NULL or valid for `'a`.
    unsafe { pointer.as_ref() }.ok_or_else(|| wrong(what, "NULL"))
}

// Apart, so that what finds nothing wrong is small enough to be inlined.
#[cold]
fn wrong(what: &str, is: &str) -> Error {
    Error::invalid(format!("{what} is {is}"))
}

/// The `index`-th entry of a foreign array of pointers, dereferenced.
///
/// # Safety
/// `pointers`, unless NULL or misaligned, has more than `index` entries, each as [`foreign`] asks.
#[inline]
unsafe fn foreign_entry<'a, T>(pointers: *const *mut T, index: usize, what: &str) -> Result<&'a T> {
    // SAFETY: by this function's contract; the first entry exists as `index` does.
    unsafe { foreign(pointers, what) }?;
    // SAFETY: the array has more than `index` entries.
    let entry = unsafe { pointers.add(index) };
    // SAFETY: `entry` is inside the array, which is initialised and aligned.
    let pointer = unsafe { entry.read() };
    // SAFETY: by this function's contract.
    unsafe { foreign(pointer.cast_const(), what) }
}
