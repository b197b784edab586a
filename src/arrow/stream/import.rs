//! Imports C streams as iterators: owns each array as it comes, and releases the stream once, at its end at the latest.

use std::ffi::{CStr, c_int};
use std::sync::Arc;

use arrow_schema::FieldRef;

use super::export::failure_of;
use super::{CStream, DeviceArray, DeviceArrayStream};
use crate::arrow::field_cache::read_field;
use crate::arrow::imported::{ReleaseGuard, release_directly};
use crate::error::{Error, ErrorKind, Result};
use crate::ffi::arrow_device::{ArrowArrayStream, ArrowDeviceArrayStream, ArrowSchema};
use crate::stream_order::run_handlers;

impl DeviceArrayStream {
    /// Moves a C stream out of `source`, which then counts as released, and asks for its schema.
    ///
    /// # Errors
    /// If `source` was released already or lacks a callback, or its producer reports an error. The moved stream is
    /// still released.
    ///
    /// # Safety
    /// `source` points to a struct as the C stream interface describes it, and so are the structs that it produces.
    pub unsafe fn import(source: *mut ArrowArrayStream) -> Result<Self> {
        // SAFETY: the caller promises the same of `source` and of its products.
        unsafe { Self::import_guarded(source, release_directly) }
    }

    /// Like [`DeviceArrayStream::import`], for the C device stream interface.
    ///
    /// # Errors
    /// As [`DeviceArrayStream::import`].
    ///
    /// # Safety
    /// As [`DeviceArrayStream::import`].
    pub unsafe fn import_device(source: *mut ArrowDeviceArrayStream) -> Result<Self> {
        // SAFETY: the caller promises the same of `source` and of its products.
        unsafe { Self::import_guarded(source, release_directly) }
    }

    /// Like [`DeviceArrayStream::import`], with a guard of the release callbacks.
    ///
    /// # Errors
    /// As [`DeviceArrayStream::import`].
    ///
    /// # Safety
    /// As [`DeviceArrayStream::import`].
    unsafe fn import_guarded<S: CStream>(source: *mut S, guard: ReleaseGuard) -> Result<Self> {
        // SAFETY: the caller promises the same of `source` and of its products.
        unsafe { Self::moved_out(source, guard) }?()
    }

    /// Moves a C stream out of `source`, and returns what asks for its schema: the producer may take long, or need a lock of the caller.
    ///
    /// # Errors
    /// If `source` was released already.
    ///
    /// # Safety
    /// As [`DeviceArrayStream::import`].
    pub(crate) unsafe fn moved_out<S: CStream>(
        source: *mut S,
        guard: ReleaseGuard,
    ) -> Result<impl FnOnce() -> Result<Self> + Send> {
        // SAFETY: `source` points to a struct, which is initialised.
        let stream = Box::new(unsafe { source.read() });
        if stream.callbacks().release.is_none() {
            return Err(Error::invalid("the ArrowArrayStream was released or consumed already"));
        }
        // SAFETY: `source` points to a struct, which is ours to change: the move of the C stream interface is a bitwise
        // copy, then the source counts as released.
        unsafe { (*source).set_released() };
        let mut imported = ImportedStream { stream, guard };
        Ok(move || {
            let field = imported.schema()?;
            let device_type = imported.stream.device_type();
            let arrays = StreamArrays { imported: Some(imported), field: field.clone() };
            Ok(Self::new(field, device_type, arrays))
        })
    }
}

/// A C stream that is released exactly once.
struct ImportedStream<S: CStream> {
    // Boxed, because callbacks receive its address, which must not change between calls.
    stream: Box<S>,
    guard: ReleaseGuard,
}

// SAFETY: the C stream interface lets a stream move between threads as long as calls do not overlap, which `&mut` ensures.
unsafe impl<S: CStream> Send for ImportedStream<S> {}

impl<S: CStream> Drop for ImportedStream<S> {
    fn drop(&mut self) {
        let stream: *mut S = &raw mut *self.stream;
        let mut release = self.stream.callbacks().release;
        if release.is_none() {
            return;
        }
        (self.guard)(&mut || {
            // The callback is called once, however often the guard calls.
            let Some(release) = release.take() else { return };
            // SAFETY: the struct was moved to us; `drop` runs once, and so does this.
            unsafe { release(stream) };
        });
    }
}

impl<S: CStream> ImportedStream<S> {
    fn schema(&mut self) -> Result<FieldRef> {
        let get_schema =
            self.stream.callbacks().get_schema.ok_or_else(|| Error::invalid("ArrowArrayStream.get_schema is NULL"))?;
        let mut schema = OwnedSchema { schema: ArrowSchema::empty(), guard: self.guard };
        // SAFETY: a live stream, and a released struct to fill.
        let code = unsafe { get_schema(&raw mut *self.stream, &raw mut schema.schema) };
        self.check(code, "get_schema")?;
        // SAFETY: a schema that a producer filled, which is as the C data interface describes it, as `import` was
        // promised, or still the released one.
        unsafe { read_field(&schema.schema) }
    }

    fn next(&mut self, field: &FieldRef) -> Result<Option<DeviceArray>> {
        let get_next =
            self.stream.callbacks().get_next.ok_or_else(|| Error::invalid("ArrowArrayStream.get_next is NULL"))?;
        let mut array = S::end();
        // SAFETY: a live stream, and a released struct to fill.
        let code = unsafe { get_next(&raw mut *self.stream, &raw mut array) };
        self.check(code, "get_next")?;
        let Some(mut array) = S::into_device_array(array) else { return Ok(None) };
        // SAFETY: an array that a producer filled, which is as the C device interface describes it, as `import` was
        // promised.
        unsafe { DeviceArray::import_device_guarded(&raw mut array, field.clone(), self.guard) }.map(Some)
    }

    /// Turns a callback's error code into an error with the producer's own message.
    fn check(&mut self, code: c_int, callback: &str) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        let message = match self.stream.callbacks().get_last_error {
            // SAFETY: a live stream whose last call failed.
            Some(get_last_error) => unsafe { get_last_error(&raw mut *self.stream) },
            None => std::ptr::null(),
        };
        let (message, cause) = if message.is_null() {
            ("no message".into(), None)
        } else {
            // SAFETY: not NULL, so NUL-terminated and valid until the next call.
            let message = unsafe { CStr::from_ptr(message) };
            (message.to_string_lossy(), failure_of(&mut *self.stream, message))
        };
        let kind = if reports_interrupt(&message) { ErrorKind::Interrupted } else { ErrorKind::Producer };
        let reason = format!("the stream's {callback} failed with code {code}: {message}");
        // A producer that a signal ended need not say so: the signal's handler raises the interrupt.
        run_handlers().map_err(|error| error.with_code(code))?;
        let error = Error::new(kind, reason).with_code(code);
        Err(match cause {
            Some(cause) => error.caused_by(Arc::new(cause)),
            None => error,
        })
    }
}

/// Returns whether a producer's message says that `KeyboardInterrupt` ended the stream's Python code. The C interface
/// passes Ctrl-C only as text. A mention in an exception of another type does not count.
fn reports_interrupt(message: &str) -> bool {
    const TYPE: &str = "KeyboardInterrupt";
    let is_type = |text: &str| text.strip_prefix(TYPE).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'));
    if let Some((_, traceback)) = message.rsplit_once("Traceback (most recent call last):") {
        // Lines of frames are indented; the first other line is the exception that was raised last.
        let raised = traceback.lines().find(|line| !line.is_empty() && !line.starts_with([' ', '\t']));
        return raised.is_some_and(is_type);
    }
    // Without a traceback, forwarders put their own prefix before the message: "External error: KeyboardInterrupt: ".
    message.match_indices(TYPE).any(|(start, _)| {
        let (before, text) = message.split_at(start);
        let is_passed_on = before.is_empty() || before.ends_with(" error: ") || before.ends_with(" exception: ");
        is_passed_on && is_type(text.lines().next().unwrap_or(text))
    })
}

/// Iterates over the arrays of a stream. After the end or an error, the stream is released, and the iterator is empty.
struct StreamArrays<S: CStream> {
    imported: Option<ImportedStream<S>>,
    field: FieldRef,
}

impl<S: CStream> Iterator for StreamArrays<S> {
    type Item = Result<DeviceArray>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.imported.as_mut()?.next(&self.field).transpose();
        if !matches!(next, Some(Ok(_))) {
            self.imported = None;
        }
        next
    }
}

/// A schema that is released after it was read.
struct OwnedSchema {
    schema: ArrowSchema,
    guard: ReleaseGuard,
}

impl Drop for OwnedSchema {
    fn drop(&mut self) {
        let mut release = self.schema.release;
        if release.is_none() {
            return;
        }
        let schema = &raw mut self.schema;
        (self.guard)(&mut || {
            // The callback is called once, however often the guard calls.
            let Some(release) = release.take() else { return };
            // SAFETY: filled for us, so ours to release, and `take` made this the only call.
            unsafe { release(schema) };
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What pyarrow says of an exception.
    fn of_pyarrow(text: &str, raised: &str) -> String {
        let frames = "File \"rows.py\", line 5, in rows\n    raise KeyboardInterrupt";
        format!(
            "Unknown error: {text}. Detail: Python exception: Traceback (most recent call last):\n  {frames}\n{raised}\n"
        )
    }

    #[test]
    fn a_keyboard_interrupt_is_known_by_the_last_exception() {
        for message in [
            of_pyarrow("", "KeyboardInterrupt"),
            of_pyarrow("two\nlines", "KeyboardInterrupt: two\nlines"),
            format!("Invalid: the stream's get_next failed with code 22: {}", of_pyarrow("", "KeyboardInterrupt")),
            of_pyarrow("", "ValueError: no") + &of_pyarrow("", "KeyboardInterrupt"),
            "External error: KeyboardInterrupt: ".to_owned(),
            "Unknown error: . Detail: Python exception: KeyboardInterrupt".to_owned(),
            "KeyboardInterrupt".to_owned(),
        ] {
            assert!(reports_interrupt(&message), "{message}");
        }
        for message in [
            String::new(),
            of_pyarrow("KeyboardInterrupt", "ValueError: KeyboardInterrupt"),
            of_pyarrow("", "KeyboardInterrupt") + &of_pyarrow("", "ValueError: no"),
            of_pyarrow("", "KeyboardInterrupts"),
            "External error: ValueError: KeyboardInterrupt: ".to_owned(),
            "no KeyboardInterrupt".to_owned(),
            "KeyboardInterrupted".to_owned(),
        ] {
            assert!(!reports_interrupt(&message), "{message}");
        }
    }
}
