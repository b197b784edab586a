//! Exports iterators as C streams: errors, panics and overlapping calls become error codes and messages.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::{CStream, Callbacks, DeviceArrayStream, exported};
use crate::arrow::export::{export_device_array, export_schema};
use crate::arrow::exported::Exported;
use crate::callback;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Remedy, Result};
use crate::ffi::arrow_device::{ArrowArrayStream, ArrowDeviceArrayStream, ArrowSchema};
use crate::ffi::dlpack::DLDeviceType;

/// Exports a stream of host arrays. Releasing the C struct drops the iterator.
///
/// # Errors
/// If the stream's arrays are not on the CPU.
pub fn export_stream(stream: DeviceArrayStream) -> Result<Exported<ArrowArrayStream>> {
    if stream.device_type != DLDeviceType::CPU {
        let device = Device::new(stream.device_type, 0);
        return Err(Error::new(ErrorKind::Device, format!("the stream's arrays are on {device}"))
            .remedy_is(Remedy::from("use the device stream").or(device.host_remedy())));
    }
    // SAFETY: just made as the C stream interface describes it, and nobody else's.
    Ok(unsafe { Exported::<ArrowArrayStream>::new(export(stream)) })
}

/// Exports a stream of arrays on any device. Releasing the C struct drops the iterator.
#[must_use]
pub fn export_device_stream(stream: DeviceArrayStream) -> Exported<ArrowDeviceArrayStream> {
    // SAFETY: just made as the C device stream interface describes it, and nobody else's.
    unsafe { Exported::<ArrowDeviceArrayStream>::new(export(stream)) }
}

fn export<S: CStream>(stream: DeviceArrayStream) -> S {
    let callbacks = Callbacks {
        get_schema: Some(get_schema),
        get_next: Some(get_next),
        get_last_error: Some(get_last_error),
        release: Some(release),
    };
    let device_type = stream.device_type;
    S::new(device_type, callbacks, std::ptr::without_provenance_mut(exported::insert(stream)))
}

/// Reads a stream's key from the struct. The key is not an address, and nothing is read through it.
///
/// # Safety
/// `stream` points to a struct that [`export`] made, released perhaps.
unsafe fn key<S: CStream>(stream: *mut S) -> usize {
    // SAFETY: `stream` points to a struct (a clause of `# Safety`), whose `private_data` nobody changes, `release` included.
    unsafe { S::private_data(stream) }.addr()
}

/// # Safety
/// The C stream interface: a stream of ours, and a struct to fill.
unsafe extern "C" fn get_schema<S: CStream>(stream: *mut S, out: *mut ArrowSchema) -> c_int {
    // SAFETY: a stream of ours (a clause of `# Safety`).
    let key = unsafe { key(stream) };
    exported::call(key, |exported| {
        let schema = export_schema(exported.field())?.into_raw();
        // SAFETY: `out` is a struct to fill (a clause of `# Safety`).
        unsafe { out.write(schema) };
        Ok(())
    })
}

/// # Safety
/// The C stream interface: a stream of ours, and a struct to fill.
unsafe extern "C" fn get_next<S: CStream>(stream: *mut S, out: *mut S::Array) -> c_int {
    // SAFETY: a stream of ours (a clause of `# Safety`).
    let key = unsafe { key(stream) };
    exported::call(key, |exported| {
        let next = exported.read(|stream| stream.next().transpose()?.as_ref().map(export_device_array).transpose())?;
        let next = next.map(Exported::into_raw);
        // SAFETY: `out` is a struct to fill (a clause of `# Safety`).
        unsafe { out.write(next.map_or_else(S::end, S::from_device_array)) };
        Ok(())
    })
}

/// # Safety
/// The C stream interface: a stream of ours.
unsafe extern "C" fn get_last_error<S: CStream>(stream: *mut S) -> *const c_char {
    // SAFETY: a stream of ours (a clause of `# Safety`).
    exported::last_error(unsafe { key(stream) })
}

/// Returns the error behind the message of a stream's last failed call, if this library exports the stream. The message
/// alone crosses the C interface, and not the error's source.
pub(super) fn failure_of<S: CStream>(stream: &mut S, message: &CStr) -> Option<Error> {
    let asks = stream.callbacks().get_last_error?;
    // Another copy of the function makes this false, and the error has its message alone.
    if !std::ptr::fn_addr_eq(asks, get_last_error::<S> as unsafe extern "C" fn(*mut S) -> *const c_char) {
        return None;
    }
    // SAFETY: a struct that is borrowed here. Its callback is ours, and so is what it holds: a key, which is not an address.
    exported::failure(unsafe { key(stream) }, message)
}

/// # Safety
/// The C stream interface: NULL, or a stream of ours, whose `release` may be NULL by now.
unsafe extern "C" fn release<S: CStream>(stream: *mut S) {
    if stream.is_null() {
        return;
    }
    // SAFETY: not NULL, so a struct of ours (a clause of `# Safety`).
    let release: *mut *mut c_void = unsafe { S::release_of(stream) }.cast();
    // SAFETY: an aligned member of a live struct; a function pointer that may be NULL has the layout of a pointer.
    let release = unsafe { AtomicPtr::from_ptr(release) };
    // A struct that was moved from still has its key, but nothing to release.
    if release.swap(null_mut(), Ordering::AcqRel).is_null() {
        return;
    }
    // SAFETY: a struct of ours (a clause of `# Safety`).
    let key = unsafe { key(stream) };
    // Nobody can be told of a panic in the iterator's drop.
    callback::run(|| exported::remove(key), |_| ());
}
