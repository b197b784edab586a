//! A simulated CUDA driver: `libcuda.so.1` on host memory, for tests.
//!
//! It queues work as a driver may, and keeps a vector clock for every stream and every host thread. Two accesses of the same bytes
//! that no wait has ordered are reported, whether or not they went wrong in this run. The README beside this crate has the switches
//! and what it cannot show.
//!
//! One question is answered per file: `clock` what came before what, `time` how late it is, `stream` what is queued, `race` who touched what,
//! `pages` and `fault` what the host touched, and so on. `exports` holds the driver's functions, `questions` the ones that only this
//! driver has, and [`api`] the same for Rust tests.

#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "a C library: its callers hand it raw pointers")]
#![allow(non_snake_case, reason = "the driver's functions keep the driver's names")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a broken invariant of the simulator has to stop the test that met it"
)]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "addresses and sizes are 64 bits wide on every platform that has this driver"
)]

pub mod api;
mod block;
mod call;
mod capture;
mod clock;
mod context;
mod copy;
mod costs;
mod engine;
mod error;
mod event;
mod execute;
mod exports;
mod fault;
mod hold;
mod host;
mod inject;
mod ipc;
mod kernel;
mod memory;
mod pages;
mod pointer;
mod pool;
mod questions;
mod race;
mod report;
mod settings;
mod state;
mod stream;
mod threads;
mod time;
mod timing;
mod virtual_memory;

pub use kernel::{KernelContext, KernelFunction};
