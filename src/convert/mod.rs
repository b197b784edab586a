//! The only code that moves host bytes: casts, unpacking, filling, gathering.
//!
//! Sources may be misaligned, so they are read element by element without alignment; results are allocations of ours.
#![allow(unsafe_code, reason = "reads foreign buffers whose bounds were checked, and writes fresh memory")]

mod cast;
mod collect;
mod column;
mod copy_array;
mod decimal;
mod decode;
mod gather;
mod lane;
#[doc(hidden)]
#[allow(missing_docs)]
pub mod pack; // BENCH
mod pad;
mod request;
mod threads;
mod unpack;

pub(crate) use collect::{bytes_of_views, collect_bools, collect_ints, lengths_view, offsets_view, zero};
pub(crate) use column::{ColumnChunk, check_nulls, run, validity};
pub use copy_array::copy_array;
pub(crate) use decode::decode;
pub(crate) use gather::compact;
pub(crate) use pack::{Isa, PackMisfit, PackedColumn, Rows, pack_rows};
pub(crate) use pad::Padder;
pub use request::{check_request, request_field};
pub(crate) use threads::{for_each_part, threads};
