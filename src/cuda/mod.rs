//! The CUDA driver, loaded at first use: its functions, devices and primary contexts, streams, events, memory. Without
//! a driver every call is an error, and nothing else changes.
//!
//! [`crate::stream_order`] decides what waits for what.
#![allow(unsafe_code, reason = "calls the driver")]

mod allocator;
mod context;
mod driver;
mod event;
mod idle_blocks;
mod images;
mod kernels;
mod launch;
mod memory;
mod module;
mod pinned;
mod pointer;
mod pool;
mod pool_access;
#[cfg(feature = "cuda")]
mod safe_layer;
mod stream;
#[cfg(feature = "python")]
mod test_probes;
pub(crate) mod thread_sync;
mod unpooled;
pub(crate) mod virtual_time;

pub use allocator::{Allocated, Allocator, AllocatorError, MemorySource, SourceScope, allocate_from, memory_source};
#[cfg(feature = "python")]
pub(crate) use allocator::{set_source, sources_elsewhere};
pub(crate) use context::{CudaDevice, Current, is_cuda, is_host_visible};
pub(crate) use driver::{Called, EventHandle, at_exit, driver, is_forked, is_started};
pub(crate) use event::Event;
pub(crate) use kernels::{
    CodeMeaning, Column, ColumnType, DeviceBits, KernelDictionary, KernelLevel, KernelRows, KernelRuns, MatrixLayout,
    Packing, PlacedElements, StridedAxis,
};
pub(crate) use memory::{DeviceBuffer, NoMemory};
pub(crate) use pinned::{PinnedBlock, PinnedBuffer, free_pinned, pinned_use};
pub(crate) use pointer::Pointer;
pub(crate) use pool::trim_pool;
#[cfg(feature = "cuda")]
pub(crate) use safe_layer::require_primary;
pub use stream::Stream;
pub(crate) use stream::{PooledStream, StreamIdentity};
#[cfg(feature = "python")]
pub(crate) use test_probes::{FUNCTIONS, images, kept};
pub(crate) use unpooled::free_unpooled;
