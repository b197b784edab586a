//! [`LoadOptions`]: how a stream becomes batches.

use std::num::NonZero;

use super::kept_memory::KeptMemory;
use super::sharding::Sharding;
use crate::device::Device;

/// How a stream becomes batches. Clones share the memory that an iteration leaves for the next one, until the last of them is dropped.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LoadOptions {
    /// Which rows are in which batch, and which batches are this rank's.
    pub sharding: Sharding,
    /// The shuffle; `None` keeps the source's order.
    pub shuffle: Option<Shuffle>,
    /// The seed of the order of the shards, together with the epoch; `None` keeps the order in which they are told.
    pub shuffle_shards: Option<u64>,
    /// The number of batches that are prefetched on a thread; 0 makes each batch on request.
    pub prefetch: usize,
    /// The number of threads that read lanes, if there are several lanes and batches are prefetched; 0 is 1.
    pub readers: usize,
    /// Where the batches are made: the CPU, a CUDA device, or its page-locked memory.
    pub device: Device,
    /// The blocks of earlier iterations.
    pub(crate) memory: KeptMemory,
}

impl LoadOptions {
    /// Returns options for batches in the source's order, two of them prefetched.
    #[must_use]
    pub fn new(sharding: Sharding) -> Self {
        let memory = KeptMemory::default();
        Self { sharding, shuffle: None, shuffle_shards: None, prefetch: 2, readers: 1, device: Device::CPU, memory }
    }
}

/// A shuffle by a buffer of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shuffle {
    /// Rows of the buffer, which lanes share in equal parts. With as many rows as the source, every order is equally likely.
    pub buffer: NonZero<usize>,
    /// Determines the order, together with the epoch.
    pub seed: u64,
    /// The most bytes that the rows in the buffer may hold, of all lanes of an iteration, counted as docs/loader.md defines it. More
    /// are an error of the batch that needs them; they do not change the order. `None` sets no limit.
    pub bytes: Option<NonZero<usize>>,
}

impl Shuffle {
    /// Returns a shuffle by a buffer of so many rows, of any number of bytes.
    #[must_use]
    pub fn new(buffer: NonZero<usize>, seed: u64) -> Self {
        Self { buffer, seed, bytes: None }
    }
}
