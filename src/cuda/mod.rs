//! The CUDA driver: its functions, devices and primary contexts, streams, events, memory. Loaded at run time, when something
//! on CUDA is first asked for; without a driver each of these is an error, and nothing else changes.
//!
//! What waits for what is not decided here: that is [`crate::order`].
#![allow(unsafe_code, reason = "calls the driver")]

mod allocator;
mod context;
mod driver;
mod event;
pub(crate) mod hand_over;
#[cfg(feature = "python")]
mod kept;
mod kernels;
mod memory;
mod module;
mod pinned;
mod plain;
mod pointer;
mod pool;
mod stream;

pub use allocator::{Allocated, Allocator, AllocatorError, MemorySource, SourceScope, allocate_from, memory_source};
pub(crate) use context::{CudaDevice, Current, is_cuda, is_host_visible};
pub(crate) use driver::{Called, EventHandle, driver, is_forked, is_started};
pub(crate) use event::Event;
#[cfg(feature = "python")]
pub(crate) use kept::{FUNCTIONS, kept};
pub(crate) use kernels::{Bits, Column, ColumnType, Level, MatrixLayout, Packing};
pub(crate) use memory::{DeviceBuffer, NoMemory, release_abandoned};
pub(crate) use pinned::{PinnedBlock, PinnedBuffer, free_pinned, pinned_use};
pub(crate) use plain::free_plain;
pub(crate) use pointer::Pointer;
pub(crate) use pool::trim_pool;
pub(crate) use stream::PooledStream;
pub use stream::Stream;
