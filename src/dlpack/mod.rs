//! DLPack managed tensors, legacy and versioned: import and export.
//!
//! Import takes ownership first and validates second, so that a refused tensor is released all the same.
#![allow(unsafe_code, reason = "reads, owns and frees the C structs of other libraries")]

mod export;
mod import;

pub use export::{export_legacy, export_versioned};
pub use import::{import_legacy, import_versioned};
