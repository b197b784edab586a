//! The exchange API of DLPack: tables of C functions on array types, for making and reading arrays without a call into
//! Python.
//!
//! Ours is on [`Tensor`](super::Tensor). Tables of other libraries make their arrays; they are not asked to export any:
//! what they check is less than what `__dlpack__` does (PyTorch's table exports tensors with gradients, and conjugated ones
//! without their conjugation).
#![allow(unsafe_code, reason = "calls and offers C functions that trade pointers")]

mod consume;
pub(super) mod memory;
mod produce;
mod read_only;

pub(super) use consume::{Arrays, namespace, package};
pub(super) use produce::exchange_api;
pub(super) use read_only::Access;
