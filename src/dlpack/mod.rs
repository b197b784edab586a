//! DLPack managed tensors, legacy and versioned: import and export.
//!
//! Import takes ownership first and validates second, so a refused tensor is still released.
#![allow(unsafe_code, reason = "reads, owns and frees the C structs of other libraries")]

mod allocate;
mod export;
mod import;

#[cfg(feature = "python")]
pub(crate) use export::borrowed;
pub use export::{ManagedTensor, export_legacy, export_versioned};
#[cfg(feature = "python")]
pub(crate) use import::import_legacy_guarded;
pub use import::{import_legacy, import_versioned};
/// For the tests of this crate, and no part of its interface.
#[doc(hidden)]
pub use {
    allocate::allocate_like,
    export::Offer,
    import::{adopt_versioned, import_versioned_guarded},
};
