//! Iterators as C streams: errors and panics become codes and messages, never unwinding into the consumer.

use std::any::Any;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{CStream, Callbacks, DeviceArrayStream};
use crate::arrow::export::{export_device_array, export_schema};
use crate::callback;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::ffi::arrow_device::{ArrowArrayStream, ArrowDeviceArrayStream, ArrowSchema};
use crate::ffi::dlpack::DLDeviceType;

// The errno values that the stream interface asks for.
const EIO: c_int = 5;
const ENOMEM: c_int = 12;
const EINVAL: c_int = 22;

/// Exports a stream of host arrays. Releasing the C struct drops the iterator.
///
/// # Errors
/// When the stream's arrays are not on the CPU.
pub fn export_stream(stream: DeviceArrayStream) -> Result<ArrowArrayStream> {
    if stream.device_type != DLDeviceType::CPU {
        let device = Device::new(stream.device_type, 0);
        return Err(Error::new(ErrorKind::Device, format!("the stream's arrays are on {device}"))
            .remedy_is(format!("use the device stream, or {}", device.host_remedy())));
    }
    Ok(export(stream))
}

/// Exports a stream of arrays on any device. Releasing the C struct drops the iterator.
#[must_use]
pub fn export_device_stream(stream: DeviceArrayStream) -> ArrowDeviceArrayStream {
    export(stream)
}

fn export<S: CStream>(stream: DeviceArrayStream) -> S {
    let callbacks = Callbacks {
        get_schema: Some(get_schema),
        get_next: Some(get_next),
        get_last_error: Some(get_last_error),
        release: Some(release),
    };
    let device_type = stream.device_type;
    S::new(device_type, callbacks, Box::into_raw(Box::new(Exported { stream, last_error: None })).cast())
}

/// What an exported stream owns.
struct Exported {
    stream: DeviceArrayStream,
    last_error: Option<CString>,
}

impl Exported {
    /// # Safety
    /// `stream` is a struct that [`export`] made, not yet released, and no other call on it runs.
    unsafe fn of<'a, S: CStream>(stream: *mut S) -> &'a mut Self {
        // SAFETY: the contract.
        let private_data = unsafe { (*stream).private_data() };
        // SAFETY: `private_data` is the box of an `Exported`, which nobody else refers to.
        unsafe { &mut *private_data.cast() }
    }

    /// Runs a callback's work; an error or a panic becomes a code and a message.
    fn run(&mut self, work: impl FnOnce(&mut DeviceArrayStream) -> Result<()>) -> c_int {
        let stream = &mut self.stream;
        let outcome = catch_unwind(AssertUnwindSafe(|| callback::run(|| work(stream))))
            .unwrap_or_else(|panic| Err(Error::new(ErrorKind::Producer, panic_message(&*panic))));
        let Err(error) = outcome else { return 0 };
        self.last_error = CString::new(error.to_string().replace('\0', " ")).ok();
        // A consumer makes its error's type of the code: that of the first producer is passed on.
        error.code().unwrap_or(match error.kind() {
            ErrorKind::Memory => ENOMEM,
            ErrorKind::Producer | ErrorKind::Device => EIO,
            _ => EINVAL,
        })
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the stream's iterator panicked: {}", text.unwrap_or("no message"))
}

/// # Safety
/// The C stream interface: a live stream of ours, and a struct to fill.
unsafe extern "C" fn get_schema<S: CStream>(stream: *mut S, out: *mut ArrowSchema) -> c_int {
    // SAFETY: the contract; calls on a stream do not overlap.
    let exported = unsafe { Exported::of(stream) };
    exported.run(|stream| {
        let schema = export_schema(&stream.field)?;
        // SAFETY: the contract.
        unsafe { out.write(schema) };
        Ok(())
    })
}

/// # Safety
/// The C stream interface: a live stream of ours, and a struct to fill.
unsafe extern "C" fn get_next<S: CStream>(stream: *mut S, out: *mut S::Array) -> c_int {
    // SAFETY: the contract; calls on a stream do not overlap.
    let exported = unsafe { Exported::of(stream) };
    exported.run(|stream| {
        let next = stream.next().transpose()?.as_ref().map(export_device_array).transpose()?;
        // SAFETY: the contract.
        unsafe { out.write(next.map_or_else(S::end, S::from_device_array)) };
        Ok(())
    })
}

/// # Safety
/// The C stream interface: a live stream of ours.
unsafe extern "C" fn get_last_error<S: CStream>(stream: *mut S) -> *const c_char {
    // SAFETY: the contract; calls on a stream do not overlap.
    let exported = unsafe { Exported::of(stream) };
    exported.last_error.as_ref().map_or(std::ptr::null(), |message| message.as_ptr())
}

/// # Safety
/// The C stream interface: a stream of ours, or one whose `release` is NULL by now.
unsafe extern "C" fn release<S: CStream>(stream: *mut S) {
    // SAFETY: the contract.
    let Some(stream) = (unsafe { stream.as_mut() }) else { return };
    if stream.callbacks().release.is_none() {
        return;
    }
    stream.set_released(None);
    // SAFETY: the box of an `Exported`; a released stream is not used again.
    let exported = unsafe { Box::from_raw(stream.private_data().cast::<Exported>()) };
    // A panic of the iterator's drop must not unwind into the consumer; there is nobody to tell.
    let _ = catch_unwind(AssertUnwindSafe(|| callback::run(|| drop(exported))));
}
