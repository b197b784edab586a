//! The only code that moves host bytes: casts, unpacking, filling, gathering.
//!
//! Sources may be misaligned, so they are read element by element without alignment; results are allocations of ours.
#![allow(unsafe_code, reason = "reads foreign buffers whose bounds were checked, and writes fresh memory")]

mod bitmap;
mod budget;
mod cast;
mod collect;
mod column;
mod copy_array;
mod decimal;
mod decode;
mod extend;
mod gather;
mod lane;
mod matrix;
mod output;
mod pack;
mod pad;
#[cfg(feature = "python")]
mod parts;
mod plain;
mod refused;
mod repeat;
mod request;
mod row_block;
mod small;
mod split;
mod threads;
mod unpack;

pub(crate) use bitmap::{pack_bools, pack_bools_into};
pub(crate) use cast::misfit_error;
pub(crate) use collect::{
    bytes_of_views, bytes_view, collect_bools, collect_ints, device_ints_view, lengths_view, offsets_view, zero,
};
pub(crate) use column::{ColumnChunk, layout, run, validity, what};
pub use copy_array::copy_array;
pub(crate) use decode::decode;
pub(crate) use extend::{append_column, append_matrix, grown_column, grown_matrix};
pub(crate) use gather::compact;
pub(crate) use matrix::{MatrixColumns, empty_matrix, matrix_stride, pack_matrix, view_matrix, write_matrix};
pub(crate) use output::{row_stride, write_column};
pub(crate) use pad::Padder;
#[cfg(feature = "python")]
pub(crate) use parts::{ArrayParts, Bytes, PICKLED, put_together, take_apart};
pub(crate) use plain::plain_view;
pub(crate) use refused::{
    check_column, check_matrix, check_matrix_nulls, check_nulls, check_nulls_of_passing_rows, null_remedy,
    remedy_of_passing_rows,
};
pub use request::{check_request, check_request_on, request_field};
pub(crate) use row_block::{Place, RowBlock, RowLayout};
pub(crate) use small::{is_small, pack_small, write_small};
pub(crate) use split::split_rows;
pub(crate) use threads::{check_environment, for_each_part, threads};
