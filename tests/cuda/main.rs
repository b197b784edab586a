//! Stream order by the crate's own functions, on the simulated driver or on a real one. Each test is a process: `make
//! test-cuda` runs them.

#![allow(unsafe_code, reason = "makes, reads and releases C structs as other libraries do")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails says so")]
#![allow(clippy::indexing_slicing, clippy::missing_panics_doc, reason = "a test that fails says so")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "the numbers of a test are small"
)]

#[path = "../support/mod.rs"]
mod support;

mod conversion;
mod cudarc;
mod kernels;
mod memory;
mod order;
mod outputs;
mod transfers;
