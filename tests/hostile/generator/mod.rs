//! Makes valid structures of the Arrow C interfaces and of DLPack, makes one or two things in them wrong, and does with
//! them everything that a user can. The tests and the fuzz targets start here.
//!
//! What nobody can tell from a right struct is never made: a dangling pointer, or a buffer shorter than the struct says
//! (the C data interface has no sizes). Where a fault makes a struct claim more, it gets more.

pub(crate) mod base;
pub(crate) mod build;
pub(crate) mod exercise;
pub(crate) mod kind;
pub(crate) mod node;
pub(crate) mod rows;
pub(crate) mod streams;
pub(crate) mod tensors;
pub(crate) mod wrong;
