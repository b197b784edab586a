//! Is everything released exactly once, whichever way it went, and never before its last reader is done?

#![allow(unsafe_code, reason = "imports, moves and releases C structs as other libraries do")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper that fails is a test that fails"
)]

mod arrays;
mod exchange;
mod exports;
mod overlapping;
mod panics;
mod streams;
#[path = "../support/mod.rs"]
mod support;
mod tensors;

use std::sync::Arc;

use arrow_array::{ArrayRef, Int32Array, StructArray};
use arrow_schema::{DataType, FieldRef};
use support::arrow::field;

/// Four numbers, the second one null.
fn column() -> ArrayRef {
    Arc::new(Int32Array::from(vec![Some(1), None, Some(3), Some(4)]))
}

/// A batch of two columns.
fn batch() -> StructArray {
    let columns: Vec<(FieldRef, ArrayRef)> = vec![
        (field("a", DataType::Int32), column()),
        (field("b", DataType::Int32), Arc::new(Int32Array::from(vec![5, 6, 7, 8]))),
    ];
    StructArray::from(columns)
}
