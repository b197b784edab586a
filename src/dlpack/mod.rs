//! DLPack managed tensors, legacy and versioned: import and export.
//!
//! Import takes ownership first and validates second, so a refused tensor is still released.
#![allow(unsafe_code, reason = "reads, owns and frees the C structs of other libraries")]

mod allocate;
mod export;
mod import;

pub use allocate::allocate_like;
pub use export::{Offer, borrowed, export_legacy, export_versioned};
pub use import::{adopt_versioned, import_legacy, import_versioned};
