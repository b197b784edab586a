//! DLPack's exchange API: tables of C functions on array types, which make and read arrays without a call into Python.
//!
//! Ours is on [`Tensor`](super::Tensor), and other extensions give one to classes of theirs. Tables of other libraries make
//! their arrays, but export none: they check less than `__dlpack__` does (PyTorch's table exports tensors with gradients, and
//! conjugated ones without their conjugation).
//!
//! `package/` is another table, of the installed package, for extensions that link a copy of this crate of their own.
#![allow(unsafe_code, reason = "calls and offers C functions that trade pointers")]

mod consume;
pub(super) mod memory;
mod namespaces;
mod package;
mod produce;
mod read_only;

pub(super) use consume::{Arrays, forget_tables, work_stream};
pub(super) use namespaces::namespace;
pub use package::{PackageObject, into_package};
pub(super) use package::{connect, is_package_tensor, serve};
pub use produce::{TensorClass, exchange_api};
pub(super) use read_only::Access;
