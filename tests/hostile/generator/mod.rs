//! Makes valid structures of the Arrow C interfaces and of DLPack, makes one or two things in them wrong, and does with
//! them everything that a user can. The tests and the fuzz targets start here.
//!
//! What nobody can tell from a right struct is never made: a dangling pointer, or a buffer shorter than the struct says
//! (the C data interface has no sizes). Where a fault makes a struct claim more, it gets more.

#![allow(unsafe_code, reason = "makes, reads and releases C structs as other libraries do")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper that fails is a test that fails")]
#![allow(clippy::indexing_slicing, reason = "a helper that fails is a test that fails")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "wrong numbers are what is wanted"
)]

pub(crate) mod base;
pub(crate) mod build;
pub(crate) mod exercise;
pub(crate) mod kind;
mod matrices;
pub(crate) mod node;
pub(crate) mod rows;
pub(crate) mod streams;
pub(crate) mod tensors;
pub(crate) mod wrong;

/// One in how many cases a test takes, from all over them: each, but for Miri, which needs a second or so for one.
pub(crate) const fn one_in(cases: usize) -> usize {
    if cfg!(miri) { cases } else { 1 }
}
