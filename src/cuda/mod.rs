//! The CUDA driver: its functions, devices and primary contexts, streams, events, memory. Loaded at run time, when something
//! on CUDA is first asked for; without a driver each of these is an error, and nothing else changes.
//!
//! What waits for what is not decided here: that is [`crate::order`].
#![allow(unsafe_code, reason = "calls the driver")]

mod context;
mod driver;
mod event;
#[cfg(feature = "python")]
mod kept;
mod memory;
mod pointer;
mod stream;

pub(crate) use context::{CudaDevice, Current, is_cuda, is_host_visible};
pub(crate) use driver::{Called, EventHandle, Status, driver, is_forked, is_started};
pub(crate) use event::Event;
#[cfg(feature = "python")]
pub(crate) use kept::{FUNCTIONS, kept};
pub(crate) use memory::{DeviceBuffer, PinnedBlock};
pub(crate) use pointer::Pointer;
pub(crate) use stream::PooledStream;
pub use stream::Stream;
