//! Where batches are made: in ordinary memory, in page-locked memory, or prefetched to a device.

use std::sync::Arc;
use std::time::Duration;

use super::prefetch::Stop;
use crate::alloc::BlockSource;
use crate::conversion::Converted;
use crate::convert::RowBlock;
use crate::cuda::{MemorySource, PooledStream, allocate_from, memory_source, virtual_time};
use crate::device::Device;
use crate::error::{Error, ErrorKind, Remedy, Result};
use crate::ffi::dlpack::DLDeviceType;
use crate::spec::CopyMode;
use crate::stream_order;
use crate::tensor::Tensor;
use crate::transfer::{self, Destination, Returning, plan_transfer_unasked};

/// How long the thread waits for copies before it takes more page-locked memory than the ring's.
const PAUSE: Duration = Duration::from_micros(50);
const PAUSES: usize = 2000;

/// Where an iteration's batches are made.
#[derive(Debug)]
pub(super) enum BatchTarget {
    Host,
    /// CUDA page-locked or device memory.
    Cuda(OnCuda),
}

#[derive(Debug)]
pub(super) struct OnCuda {
    device: Device,
    /// The stream of the copies; `None` if batches stay in page-locked memory.
    copies: Option<Copies>,
    /// The allocator of device batches, on any thread.
    memory: MemorySource,
    returning: Arc<Returning>,
}

#[derive(Debug)]
struct Copies {
    stream: PooledStream,
    /// The most blocks in flight before the thread waits for some; `None` if the caller's own thread makes batches,
    /// which never waits.
    most: Option<usize>,
}

/// Refuses a device on which no batches can be made.
///
/// # Errors
/// If data of the host is not transferred there.
pub(crate) fn check_device(device: Device) -> Result<()> {
    let refused = |_| Error::new(ErrorKind::Device, format!("a loader makes no batches on {device}"));
    plan_transfer_unasked(Device::CPU, device).map(drop).map_err(|error| refused(error).remedy_is(Remedy::LoaderDevice))
}

impl BatchTarget {
    /// # Errors
    /// If no batches can be made there, there is no driver or no such device, or the driver fails.
    pub(super) fn new(device: Device, blocks: usize, prefetch: usize) -> Result<Self> {
        check_device(device)?;
        if device.is_cpu() {
            return Ok(Self::Host);
        }
        let current = stream_order::enter(device)?;
        let copies = match device.device_type() {
            DLDeviceType::CUDA => {
                let most = (prefetch > 0).then(|| blocks.saturating_mul(prefetch.saturating_add(6)));
                Some(Copies { stream: PooledStream::idle(&current)?, most })
            }
            _ => None,
        };
        Ok(Self::Cuda(OnCuda { device, copies, memory: memory_source(), returning: Arc::default() }))
    }

    /// Returns the allocator of the blocks that batches are packed in; `None` is ordinary memory.
    pub(super) fn source(&self) -> Option<BlockSource> {
        let Self::Cuda(OnCuda { device, .. }) = self else { return None };
        let device = *device;
        Some(Box::new(move |bytes| transfer::page_locked(device, bytes)))
    }

    /// Before a batch is made: returns blocks whose use is over to the ring.
    ///
    /// # Errors
    /// When the driver fails.
    pub(super) fn collect(&self, stop: &Stop) -> Result<()> {
        let Self::Cuda(OnCuda { device, copies, returning, .. }) = self else { return Ok(()) };
        let current = stream_order::enter(*device)?;
        let mut left = returning.collect(&current)?;
        let Some(most) = copies.as_ref().and_then(|copies| copies.most) else { return Ok(()) };
        // Copies that are slower than packing limit it, but not for ever: nothing hangs on the device alone.
        for _ in 0..PAUSES {
            if left < most || stop.is_asked() {
                break;
            }
            virtual_time::sleep(PAUSE);
            left = returning.collect(&current)?;
        }
        Ok(())
    }

    /// Returns the rows of a block as a tensor on the target.
    ///
    /// # Errors
    /// If an allocation or the driver fails, or if the shape exceeds 64 bits.
    pub(super) fn tensor(&self, block: RowBlock) -> Result<Tensor> {
        let Self::Cuda(OnCuda { device, copies, memory, returning }) = self else { return block.into_tensor() };
        // Its rows were packed by this thread.
        virtual_time::copied(block.len());
        match copies {
            None => transfer::in_page_locked(block, *device, returning),
            Some(Copies { stream, .. }) => {
                let _memory = allocate_from(memory.clone());
                let current = stream_order::enter(*device)?;
                transfer::to_device(block, &current, stream.stream(), *device, returning)
            }
        }
    }
}

impl BatchTarget {
    /// Returns a result that was made in ordinary memory on the target; an Arrow batch stays where it is.
    ///
    /// # Errors
    /// If an allocation or the driver fails.
    pub(super) fn varied(&self, made: Converted) -> Result<Converted> {
        let Self::Cuda(OnCuda { device, copies, memory, .. }) = self else { return Ok(made) };
        let _memory = allocate_from(memory.clone());
        let stream = copies.as_ref().map(|copies| copies.stream.stream());
        let there = Destination::new(Some(*device), CopyMode::IfNeeded).on_stream(stream);
        Ok(match made {
            Converted::Tensor(tensor) => there.tensor(tensor)?.into(),
            Converted::Ragged(rows) => {
                let mut sent = there.tensors(rows.parts())?.into_iter();
                rows.with_parts(&mut sent)?.into()
            }
            Converted::Arrow(batch) => Converted::Arrow(batch),
        })
    }
}

/// Returns the copy log's entry for arrays on devices of this type, before their rows are packed.
pub(super) fn read(source: DLDeviceType) -> Option<String> {
    match source {
        DLDeviceType::CPU | DLDeviceType::CUDA_HOST => None,
        _ => Some("copied to the host".to_owned()),
    }
}

/// Returns the copy log's entry for batches made on the target, after the steps in ordinary memory.
pub(super) fn copy_notes(device: Device) -> Option<String> {
    match device.device_type() {
        DLDeviceType::CUDA => Some(format!("copied to {device}")),
        DLDeviceType::CUDA_HOST => Some("in page-locked memory".to_owned()),
        _ => None,
    }
}
