//! The only code that moves host bytes: casts, unpacks, fills, gathers, packs.
//!
//! Sources may be misaligned, so kernels read elements without alignment. Results are our own allocations.
#![allow(unsafe_code, reason = "reads foreign buffers whose bounds were checked, and writes fresh memory")]

mod backend;
mod bitmap;
mod budget;
mod cast;
mod chunk;
mod codes;
mod collect;
mod column;
mod columns_from_rows;
mod constant_lists;
mod contiguous;
mod copy_array;
mod decimal;
mod decode;
mod distinct;
mod element_dictionary;
mod encode;
mod exact_cast;
mod extend;
mod fast_view;
mod first_error;
mod forbidden;
mod gather;
mod hidden_nulls;
mod host_pass;
mod join_rows;
mod lane;
mod matrix;
mod misfit;
mod one_dictionary;
mod output;
mod own_slots;
mod pack;
mod pad;
mod range_bytes;
mod repeat;
mod request;
mod request_types;
mod requested_decimals;
mod requested_values;
mod rounds;
mod row_block;
#[cfg(feature = "python")]
mod serialize;
mod shown;
mod shown_text;
mod small_matrix;
#[cfg(target_arch = "x86_64")]
mod text_register;
mod threads;
mod unpack;
mod validity_bits;
mod wide;

pub(crate) use backend::{Backend, ColumnTask, MatrixTask};
pub(crate) use bitmap::{pack_bools, pack_bools_into};
pub(crate) use cast::misfit_error;
pub(crate) use chunk::{ColumnChunk, MatrixColumns};
pub(crate) use collect::{
    beyond_int32, bytes_of_views, bytes_view, collect_bools, collect_ints, device_ints_view, lengths_view,
    offsets_view, zero,
};
pub(crate) use column::{layout, run, what};
pub(crate) use columns_from_rows::split_rows;
pub use copy_array::copy_array;
pub(crate) use copy_array::copy_array_for;
pub(crate) use decode::{decode, decode_apart, dense};
pub(crate) use distinct::each_value;
pub(crate) use element_dictionary::{element_dictionary, has_no_element_codes, with_element_dictionary};
pub(crate) use encode::vocabulary;
pub(crate) use extend::{append_column, append_matrix, append_validity, grown_column, grown_matrix, grown_validity};
pub(crate) use fast_view::plain_view;
pub(crate) use first_error::{
    check_column, check_matrix, check_matrix_nulls, check_nulls, check_nulls_of_passing_rows, code_error, no_run_error,
    null_remedy, refused_null, remedy_of_passing_rows, run_end_error,
};
pub(crate) use gather::compact;
pub(crate) use host_pass::HostPass;
pub(crate) use join_rows::{bytes_of_rows, join_data};
pub(crate) use matrix::{empty_matrix, matrix_stride, view_matrix};
pub(crate) use output::row_stride;
pub(crate) use pad::{ListItems, Padder, null_item};
pub use request::{check_request, request_field};
pub(crate) use request::{check_request_on, depends_on_values, fixed_bytes};
pub(crate) use rounds::{LOOK_UP, in_rounds, look_for_signals};
pub(crate) use row_block::{FETCH_AHEAD, RowBlock, RowLayout, RowsPlace, prefetch_element};
#[cfg(feature = "python")]
pub(crate) use serialize::{ArrayParts, PICKLED, PickledBytes, put_together, take_apart};
pub(crate) use shown::without_hidden;
pub(crate) use small_matrix::{is_small, pack_small, write_small};
pub(crate) use threads::{check_environment, for_each_part, threads};
pub(crate) use validity_bits::with_bits;
