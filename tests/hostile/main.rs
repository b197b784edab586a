//! What happens to structs that break their specification? A clear error that names the member, or the right data; and
//! exactly one release.

#![allow(unsafe_code, reason = "breaks C structs on purpose")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper that fails is a test that fails"
)]

mod arrays;
mod contents;
mod corpus;
mod devices;
mod generated;
mod generator;
mod schemas;
#[path = "../support/mod.rs"]
mod support;
#[path = "../../fuzz/src/targets/mod.rs"]
mod targets;
mod tensors;

use arrow_array::types::Int32Type;
use arrow_array::{ListArray, StringArray};

/// The same address, one byte on.
fn misaligned<T>(pointer: *mut T) -> *mut T {
    pointer.wrapping_byte_add(1)
}

/// Three strings, the second one null.
fn strings() -> StringArray {
    StringArray::from(vec![Some("ab"), None, Some("cde")])
}

/// Three lists, the second one null.
fn lists() -> ListArray {
    ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None]), None, Some(vec![Some(3)])])
}
