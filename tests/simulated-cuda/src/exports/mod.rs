//! The driver's functions, by the names and with the arguments of CUDA 12.0.

#![allow(unreachable_pub, reason = "found by symbol, not by path")]

mod capture;
mod context;
mod copy;
mod device;
mod event;
mod host;
mod memory;
mod module;
mod pool;
mod stream;
mod text;
mod virtual_memory;

use std::ffi::{CStr, c_char, c_void};

pub(crate) use text::lookup;

use crate::error::{Error, Outcome};

/// Declares driver functions: each is counted, may be told to fail, and runs with the driver locked.
macro_rules! driver {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) |$call:ident| $body:block)*) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// As for the driver's: every pointer leads to as many values as the call reads or writes.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> u32 {
            crate::call::enter(stringify!($name), move |$call: &mut crate::call::Call| $body)
        }
    )* };
}
pub(crate) use driver;

/// Where a call puts one of its results.
#[derive(Debug)]
#[repr(transparent)]
pub struct Out<T>(*mut T);

// Derived, these would ask the same of T.
impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for In<T> {}

impl<T: Copy> Out<T> {
    /// Puts the result there.
    fn set(self, value: T) -> Outcome {
        if self.0.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: not null, and the caller of the driver answers for the rest.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Puts the result there if the caller wants it.
    fn set_if_wanted(self, value: T) {
        let _ = self.set(value);
    }

    /// Reads what the caller put there.
    fn get(self) -> Outcome<T> {
        In(self.0.cast_const()).get(0)
    }
}

/// Values that a call reads.
#[derive(Debug)]
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T: Copy> In<T> {
    /// One of the values.
    fn get(self, index: usize) -> Outcome<T> {
        if self.0.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: not null, and the caller of the driver answers for as many values as it said.
        Ok(unsafe { self.0.wrapping_add(index).read_unaligned() })
    }

    /// The first `count` of the values.
    fn list(self, count: usize) -> Outcome<Vec<T>> {
        (0..count).map(|index| self.get(index)).collect()
    }
}

impl In<c_void> {
    /// The same address, as values of a type that another argument names.
    fn as_values<T>(self) -> In<T> {
        In(self.0.cast())
    }
}

impl Out<c_void> {
    /// The same address, as a value of a type that another argument names.
    fn as_value<T>(self) -> Out<T> {
        Out(self.0.cast())
    }
}

/// A C string that a call reads.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Text(*const c_char);

impl Text {
    fn get(self) -> Outcome<String> {
        if self.0.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: not null, and the caller of the driver answers for the end.
        let text = unsafe { CStr::from_ptr(self.0) };
        Ok(text.to_string_lossy().into_owned())
    }
}

/// Puts a text where a caller has room for `room` bytes.
fn put_text(out: *mut c_char, room: i32, text: &str) -> Outcome {
    let room = usize::try_from(room).ok().filter(|room| *room > 0 && !out.is_null()).ok_or(Error::INVALID_VALUE)?;
    let mut bytes = text.as_bytes()[..text.len().min(room - 1)].to_vec();
    bytes.push(0);
    // SAFETY: the caller has room for as many bytes as this.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), out, bytes.len()) };
    Ok(())
}
