//! The Arrow C data, stream and device interfaces: import, a checked walk, and export.
//!
//! Import takes ownership first and validates second, so a refused struct is still released. The walk over validated
//! structs does not touch the buffers, so the same code serves every device.
#![allow(unsafe_code, reason = "reads, owns and releases the C structs of other libraries")]

mod binary_metadata;
mod bitmaps;
mod by_itself;
mod check;
mod chunks;
mod codes;
mod codes_beyond;
mod decompose;
mod dense_lists;
mod device_lists;
mod export;
mod exported;
mod fast_view;
mod field_cache;
#[cfg(feature = "python")]
mod field_serialize;
mod foreign;
mod import;
mod imported;
mod lists;
mod mask;
mod narrowed;
mod node;
mod null_slots;
mod offsets;
mod paths;
mod piece;
mod project;
mod record_batch;
mod same_memory;
mod same_schema;
mod schema;
mod spans;
mod stream;
mod strict_children;
#[cfg(test)]
mod tests;
mod to_arrow;
mod validate;
mod validated;
mod view;

pub(crate) use bitmaps::{BitRange, BitmapBytes, BitmapLevel, DeviceBitmaps};
#[cfg(feature = "python")]
pub(crate) use check::child_types;
pub(crate) use check::{counts_in, has_type, same_layout};
pub use chunks::Chunks;
pub(crate) use chunks::empty_on;
pub(crate) use decompose::{Decomposed, Wanted, read_host};
pub(crate) use dense_lists::{ListPlaces, list_size, wrong_length};
pub(crate) use device_lists::ListInts;
pub(crate) use export::shared_buffer;
pub use export::{export_array, export_device_array, export_schema};
pub use exported::Exported;
pub(crate) use fast_view::{PlainColumns, Starts};
#[cfg(feature = "python")]
pub(crate) use field_cache::forget_fields;
pub use field_cache::read_field;
#[cfg(feature = "python")]
pub(crate) use field_serialize::FieldParts;
#[cfg(feature = "python")]
pub(crate) use foreign::MAX_DEPTH;
pub use import::DeviceArray;
pub(crate) use import::{array_ready_at, host_array};
/// For the tests of this crate, and no part of its interface.
#[doc(hidden)]
pub use imported::ReleaseGuard;
pub(crate) use imported::release_directly;
pub(crate) use lists::{Hidden, Ints, ListChunk, ViewChunk};
pub(crate) use mask::{Mask, count_bits};
pub(crate) use node::ArrayNode;
pub(crate) use piece::{Piece, rebase};
#[cfg(feature = "pyo3-arrow")]
pub(crate) use record_batch::{field_of, schema_of};
pub(crate) use same_schema::{Counterparts, counterparts, difference, list_item};
pub use schema::read_schema;
#[cfg(feature = "python")]
pub(crate) use stream::forget_messages;
pub use stream::{DeviceArrayStream, export_device_stream, export_stream};
#[cfg(feature = "async")]
pub use stream::{Sender, channel};
#[cfg(feature = "python")]
pub(crate) use validate::validate;
pub(crate) use validated::Validated;
pub(crate) use view::{DictionaryValues, Leaf};
