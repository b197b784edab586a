//! Names of errors, versions, and the functions by name.

use std::ffi::{CString, c_char, c_void};
use std::mem::MaybeUninit;

use super::{Out, Text, driver};
use crate::call::initialised;
use crate::costs::INITIALISATION;
use crate::error::Error;

/// CUDA 12.0, as the driver writes it.
pub(crate) const VERSION: i32 = 12000;

driver! {
    /// Initialises the driver, in this process.
    fn cuInit(flags: u32) |call| {
        if flags != 0 {
            return Err(Error::INVALID_VALUE);
        }
        if call.settings.devices == 0 {
            return Err(Error::NO_DEVICE);
        }
        if call.process == 0 {
            call.spend(INITIALISATION);
        }
        call.process = initialised();
        call.report_at_exit();
        Ok(())
    }

    /// The newest CUDA that the driver supports.
    fn cuDriverGetVersion(version: Out<i32>) |_call| { version.set(VERSION) }

    /// A function of the driver, by its name.
    fn cuGetProcAddress_v2(name: Text, function: Out<*mut c_void>, version: i32, _flags: u64, found: Out<u32>) |_call| {
        let name = name.get()?;
        let address = ["_v2", ""].iter().find_map(|suffix| lookup(&format!("{name}{suffix}")));
        found.set_if_wanted(if version > VERSION { 2 } else { u32::from(address.is_none()) });
        function.set(address.unwrap_or(std::ptr::null_mut()))?;
        if address.is_some() { Ok(()) } else { Err(Error::NOT_FOUND) }
    }
}

/// A function of this library by its whole name, whatever else the process has loaded.
pub(crate) fn lookup(name: &str) -> Option<*mut c_void> {
    let name = CString::new(name).ok()?;
    let mut here = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: an address of this library, and room for the answer.
    let found = unsafe { libc::dladdr(cuInit as *const c_void, here.as_mut_ptr()) };
    if found == 0 {
        return None;
    }
    // SAFETY: the call above succeeded.
    let file = unsafe { here.assume_init() }.dli_fname;
    // SAFETY: the name of a library that is loaded; this loads nothing.
    let library = unsafe { libc::dlopen(file, libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    if library.is_null() {
        return None;
    }
    // SAFETY: a library that stays loaded, and a name that ends.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}

/// The name of an error.
///
/// # Safety
///
/// `name` leads to room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(error: u32, name: Out<*const c_char>) -> u32 {
    answer("cuGetErrorName", error, name, |texts| texts.0)
}

/// What an error means.
///
/// # Safety
///
/// `text` leads to room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(error: u32, text: Out<*const c_char>) -> u32 {
    answer("cuGetErrorString", error, text, |texts| texts.1)
}

type Texts = (&'static std::ffi::CStr, &'static std::ffi::CStr);

fn answer(name: &'static str, error: u32, out: Out<*const c_char>, part: fn(Texts) -> &'static std::ffi::CStr) -> u32 {
    if crate::call::fails(name) {
        return Error::INVALID_VALUE.0;
    }
    let text = Error::describe(error).map(part);
    let set = out.set(text.map_or(std::ptr::null(), std::ffi::CStr::as_ptr));
    if set.is_ok() && text.is_some() { 0 } else { Error::INVALID_VALUE.0 }
}
