//! [`DeviceBuffer`]: our memory on a device, and copies to and from it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::allocator::{Allocator, AllocatorError, MemorySource, allocate_from};
use super::context::{CudaDevice, Current};
use super::driver::{Called, DevicePointer, Status, StreamHandle, is_forked};
use super::event::Event;
use super::pinned::PinnedBlock;
use super::pool::pool_of;
use super::stream::Stream;
use super::unpooled::{ALIGNMENT, UnpooledBlock};
use crate::device::Device;
use crate::error::{Error, ErrorKind};
use crate::ffi::dlpack::DLDeviceType;

/// Why there is no memory.
#[derive(Debug)]
pub(crate) enum NoMemory {
    /// There is not enough memory, with an allocator's message.
    Exhausted(Option<String>),
    Failed(Error),
}

impl From<Status> for NoMemory {
    fn from(status: Status) -> Self {
        if status.is_out_of_memory() { Self::Exhausted(None) } else { Self::Failed(status.into()) }
    }
}

impl From<AllocatorError> for NoMemory {
    fn from(error: AllocatorError) -> Self {
        let text = error.to_string();
        let failed = |kind| Error::new(kind, format!("the allocator failed: {text}"));
        match error {
            AllocatorError::OutOfMemory(why) => Self::Exhausted(Some(why)),
            AllocatorError::Failed(_) | AllocatorError::NotHere => Self::Failed(failed(ErrorKind::Device)),
            AllocatorError::Interrupted(by) => Self::Failed(failed(ErrorKind::Interrupted).caused_by(by)),
        }
    }
}

/// Returns a block when an event is complete. `bytes` of it are our own.
pub(crate) type Retire = fn(event: Event, bytes: usize, give_back: Box<dyn FnOnce() + Send>);

/// Our memory on a device. Once it is shared, its dropper must ensure that nothing uses it any more.
#[derive(Debug)]
pub(crate) struct DeviceBuffer {
    device: &'static CudaDevice,
    start: DevicePointer,
    /// The stream of its free until it is shared: the stream of the allocation, which nothing else has waited for.
    stream: Stream,
    is_shared: bool,
    bytes: usize,
    /// `None` for memory of the pool.
    block: Option<UnorderedBlock>,
    /// What becomes of the block of a failed conversion.
    retire: Retire,
}

/// Memory without a stream order: it is returned when this is dropped.
#[derive(Debug)]
enum UnorderedBlock {
    #[allow(dead_code, reason = "only to be dropped")]
    Unpooled(UnpooledBlock),
    #[allow(dead_code, reason = "only to be dropped")]
    Foreign(ForeignBlock),
}

impl DeviceBuffer {
    /// Allocates memory for later work of `stream`, aligned to 256 bytes. `bytes` is not 0. If a stream is returned,
    /// ours must wait for its present work, which may still use the memory. Memory that is dropped before it is shared, by a
    /// conversion that failed, is returned in the order of `stream`; `retire` does that where memory has no such order.
    ///
    /// # Errors
    /// If memory is out, or an allocator returns invalid memory.
    pub(crate) fn new(
        source: &MemorySource,
        current: &Current,
        bytes: usize,
        stream: Stream,
        retire: Retire,
    ) -> Result<(Self, Option<Stream>), NoMemory> {
        let device = current.device();
        let made = |start, block| Self { device, start, stream, is_shared: false, bytes, block, retire };
        let allocator = match source {
            MemorySource::Allocator(allocator) => allocator,
            MemorySource::Pool => {
                if let Some(pool) = pool_of(device)? {
                    let mut start = 0;
                    // SAFETY: `start` is a local that the driver sets.
                    unsafe { device.driver.memory_alloc_from_pool(&raw mut start, bytes, pool, stream.handle()) }?;
                    return Ok((made(start, None), None));
                }
                let block = UnpooledBlock::take(current, bytes)?;
                return Ok((made(block.start(), Some(UnorderedBlock::Unpooled(block))), None));
            }
            MemorySource::Unpooled => {
                let block = UnpooledBlock::take(current, bytes)?;
                return Ok((made(block.start(), Some(UnorderedBlock::Unpooled(block))), None));
            }
        };
        let Some((block, behind)) = ForeignBlock::new(allocator, current, bytes, stream)? else {
            return Self::new(&MemorySource::Pool, current, bytes, stream, retire);
        };
        let start = DevicePointer::try_from(block.address).unwrap_or(DevicePointer::MAX);
        Ok((made(start, Some(UnorderedBlock::Foreign(block))), behind))
    }

    /// Returns the same memory, to be dropped when all work with it is done, whatever has happened to its stream.
    pub(crate) fn shared(self) -> Self {
        let mut shared = self;
        shared.is_shared = true;
        shared
    }

    pub(crate) fn start(&self) -> DevicePointer {
        self.start
    }

    /// How many bytes were asked for.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl DeviceBuffer {
    /// Returns the memory to its pool by one call of the driver, on our stream for frees if there is one: a stream knows its
    /// context, so that none has to be current. False if the driver certainly has not freed it: after any other error it may have.
    fn is_freed_on_our_stream(&self) -> bool {
        let stream = self.device.free_stream.get().filter(|stream| **stream != StreamHandle::LEGACY);
        stream.is_some_and(|stream| {
            // SAFETY: memory of ours, which nobody frees again unless the driver has refused; the stream is never destroyed.
            let freed = unsafe { self.device.driver.memory_free_async(self.start, *stream) };
            !freed.is_err_and(Status::refused_the_call)
        })
    }

    /// Returns the block of a failed conversion when the present work of the stream is done. If that cannot be known, the block
    /// is lost.
    fn abandon(&self, block: UnorderedBlock) {
        let record = || self.device.enter_unchecked().and_then(|current| Event::record(&current, self.stream));
        // Tried once more, because nothing else would return it.
        let Ok(event) = record().or_else(|_| record()) else {
            std::mem::forget(block);
            return;
        };
        // Other allocators count theirs.
        let bytes = if matches!(block, UnorderedBlock::Unpooled(_)) { self.bytes } else { 0 };
        (self.retire)(event, bytes, Box::new(move || drop(block)));
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        let block = self.block.take();
        if is_forked() {
            std::mem::forget(block);
            return;
        }
        match block {
            // Memory that no work can use is returned at once.
            Some(block) if self.is_shared => drop(block),
            Some(block) => self.abandon(block),
            None if self.is_shared && self.is_freed_on_our_stream() => {}
            None => {
                // Tried once more, because nothing else would free it.
                let current = self.device.enter_unchecked().or_else(|_| self.device.enter_unchecked());
                let Ok(current) = current else { return };
                let stream = if self.is_shared { current.free_stream() } else { self.stream };
                // If the driver refuses, only this memory is lost.
                // SAFETY: memory of ours, which nobody frees again.
                let _ = unsafe { current.driver().memory_free_async(self.start, stream.handle()) };
            }
        }
    }
}

/// Memory of another library's allocator. Its dropper must ensure that nothing uses it any more.
#[derive(Debug)]
struct ForeignBlock {
    allocator: Arc<dyn Allocator>,
    device: &'static CudaDevice,
    address: usize,
    bytes: usize,
}

impl ForeignBlock {
    /// `None` if the allocator has no memory of this device.
    fn new(
        allocator: &Arc<dyn Allocator>,
        current: &Current,
        bytes: usize,
        stream: Stream,
    ) -> Result<Option<(Self, Option<Stream>)>, NoMemory> {
        let device = current.device();
        let ordinal = device.ordinal();
        let (allocated, restored) = {
            // Allocations inside the allocator do not come from it.
            let _pool = allocate_from(MemorySource::Pool);
            let allocated = allocator.allocate(ordinal, bytes, stream);
            let restored = current.restore();
            match allocated {
                Err(AllocatorError::NotHere) => return Ok(None),
                allocated => (allocated?, restored),
            }
        };
        let refused = |reason: String| {
            let error = Error::new(ErrorKind::Device, reason);
            Err(NoMemory::Failed(
                error.remedy_is("see that the allocator gives memory of the device, as much as is asked for"),
            ))
        };
        let address = allocated.address;
        if address == 0 {
            return refused(format!(
                "the allocator gave no memory for {bytes} bytes on cuda:{ordinal}, and raised no error"
            ));
        }
        device.foreign.fetch_add(bytes, Ordering::Relaxed);
        // Returned if it is refused.
        let block = Self { allocator: Arc::clone(allocator), device, address, bytes };
        restored.map_err(|status| NoMemory::Failed(status.into()))?;
        if !address.is_multiple_of(ALIGNMENT) {
            return refused(format!("the allocator gave memory at {address:#x}, which is no multiple of {ALIGNMENT}"));
        }
        if let Err(error) = current.check_memory(address, bytes, Device::new(DLDeviceType::CUDA, ordinal)) {
            return refused(format!("the allocator gave memory that cannot be used: {}", error.reason()));
        }
        Ok(Some((block, (allocated.stream != stream).then_some(allocated.stream))))
    }
}

impl Drop for ForeignBlock {
    fn drop(&mut self) {
        if is_forked() {
            return;
        }
        self.device.foreign.fetch_sub(self.bytes, Ordering::Relaxed);
        let current = self.device.enter_unchecked().or_else(|_| self.device.enter_unchecked());
        // Without its context the memory is lost.
        let Ok(_current) = current else { return };
        let _pool = allocate_from(MemorySource::Pool);
        self.allocator.deallocate(self.device.ordinal(), self.address, self.bytes);
    }
}

impl CudaDevice {
    /// Returns the bytes of other allocators in use.
    pub(crate) fn foreign_use(&self) -> usize {
        self.foreign.load(Ordering::Relaxed)
    }
}

impl Current {
    /// Copies device memory to a page-locked block, `at` bytes after its start, in the order of `stream`.
    ///
    /// # Safety
    /// The device memory has so many bytes until the copy is done, and so has the block from there on; nobody reads them
    /// before that.
    pub(crate) unsafe fn copy_to_pinned(
        &self,
        target: &PinnedBlock,
        at: usize,
        source: DevicePointer,
        bytes: usize,
        stream: Stream,
    ) -> Called {
        let start = target.start().wrapping_add(at);
        // SAFETY: the device memory and the block from `at` on have `bytes` bytes until the copy is done, and nobody
        // reads those before.
        unsafe { self.driver().copy_to_host(start.cast(), source, bytes, stream.handle()) }
    }

    /// Copies a page-locked block to device memory, in the order of `stream`.
    ///
    /// # Safety
    /// The device memory has so many bytes until the copy is done, and the block as many that nobody writes before that.
    pub(crate) unsafe fn copy_from_pinned(
        &self,
        target: DevicePointer,
        source: &PinnedBlock,
        bytes: usize,
        stream: Stream,
    ) -> Called {
        // SAFETY: the device memory has `bytes` bytes until the copy is done, and the block as many that nobody writes
        // before.
        unsafe { self.driver().copy_to_device(target, source.start().cast(), bytes, stream.handle()) }
    }

    /// Copies page-locked host memory to device memory, in the order of `stream`.
    ///
    /// # Safety
    /// Both have so many bytes until the copy is done, and nobody writes the source before that.
    pub(crate) unsafe fn copy_from_host(
        &self,
        target: DevicePointer,
        source: usize,
        bytes: usize,
        stream: Stream,
    ) -> Called {
        let source = std::ptr::with_exposed_provenance(source);
        // SAFETY: both have `bytes` bytes until the copy is done, and nobody writes the source before.
        unsafe { self.driver().copy_to_device(target, source, bytes, stream.handle()) }
    }

    /// Copies device memory to page-locked host memory, in the order of `stream`.
    ///
    /// # Safety
    /// Both have so many bytes until the copy is done, and nobody reads the target before that.
    pub(crate) unsafe fn copy_to_host_memory(
        &self,
        target: *mut u8,
        source: DevicePointer,
        bytes: usize,
        stream: Stream,
    ) -> Called {
        // SAFETY: both have `bytes` bytes until the copy is done, and nobody reads the target before.
        unsafe { self.driver().copy_to_host(target.cast(), source, bytes, stream.handle()) }
    }

    /// Copies memory of another device to this one's, in the order of `stream`.
    ///
    /// # Safety
    /// Both have so many bytes until the copy is done.
    pub(crate) unsafe fn copy_from_peer(
        &self,
        target: DevicePointer,
        source: DevicePointer,
        own: &CudaDevice,
        bytes: usize,
        stream: Stream,
    ) -> Called {
        let (to, from) = (self.device().context(), own.context());
        // SAFETY: both have `bytes` bytes until the copy is done; `CudaDevice` retains both contexts.
        unsafe { self.driver().copy_to_peer(target, to, source, from, bytes, stream.handle()) }
    }

    /// Sets bytes of device memory, in the order of `stream`.
    ///
    /// # Safety
    /// The memory has so many bytes until that is done.
    pub(crate) unsafe fn set_memory(&self, target: DevicePointer, byte: u8, bytes: usize, stream: Stream) -> Called {
        // SAFETY: the memory has `bytes` bytes until they are set.
        unsafe { self.driver().memory_set(target, byte, bytes, stream.handle()) }
    }

    /// Copies memory on the device, in the order of `stream`.
    ///
    /// # Safety
    /// Both have so many bytes until the copy is done.
    pub(crate) unsafe fn copy_on_device(
        &self,
        target: DevicePointer,
        source: DevicePointer,
        bytes: usize,
        stream: Stream,
    ) -> Called {
        // SAFETY: both have `bytes` bytes until the copy is done.
        unsafe { self.driver().copy_on_device(target, source, bytes, stream.handle()) }
    }
}
