//! Connects an extension that links this crate to the package that is installed: another copy of the crate, which only C structs
//! and function pointers reach (docs/two-copies.md).

mod connect;
mod layout;
mod object;
mod serve;
mod source;

pub(in crate::python) use connect::{connect, is_package_tensor};
pub use object::{PackageObject, into_package};
pub(in crate::python) use serve::serve;
