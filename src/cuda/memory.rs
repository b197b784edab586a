//! [`DeviceBuffer`]: our memory on a device, and copies to and from it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::allocator::{Allocator, AllocatorError, MemorySource, allocate_from};
use super::context::{CudaDevice, Current};
use super::driver::{Called, DevicePointer, Status, is_forked};
use super::event::Event;
use super::pinned::PinnedBlock;
use super::pool::Pool;
use super::stream::Stream;
use super::unpooled::{ALIGNMENT, PlainBlock};
use crate::device::Device;
use crate::error::{Error, ErrorKind};
use crate::ffi::dlpack::DLDeviceType;

/// Why there is no memory.
#[derive(Debug)]
pub(crate) enum NoMemory {
    /// There is not enough; what an allocator says of it.
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

/// Memory of ours on a device. Who drops it has seen to it that nothing uses it any more, once it is shared.
#[derive(Debug)]
pub(crate) struct DeviceBuffer {
    device: &'static CudaDevice,
    start: DevicePointer,
    /// Where it is freed until it is shared: nothing has waited for its allocation, which this stream has.
    stream: Stream,
    is_shared: bool,
    bytes: usize,
    /// `None` for memory of the pool.
    block: Option<Block>,
}

/// Memory that knows no order: it goes back when this is dropped.
#[derive(Debug)]
enum Block {
    #[allow(dead_code, reason = "only to be dropped")]
    Plain(PlainBlock),
    #[allow(dead_code, reason = "only to be dropped")]
    Foreign(ForeignBlock),
}

impl DeviceBuffer {
    /// Memory that what `stream` is given from now on may use; aligned to 256 bytes. `bytes` is not 0. Where a stream is
    /// returned, ours has to wait for what that has now: its work may use the memory still.
    ///
    /// # Errors
    /// When there is none, or what an allocator gave is not what it has to be.
    pub(crate) fn new(
        source: &MemorySource,
        current: &Current,
        bytes: usize,
        stream: Stream,
    ) -> Result<(Self, Option<Stream>), NoMemory> {
        let device = current.device();
        let made = |start, block| Self { device, start, stream, is_shared: false, bytes, block };
        let allocator = match source {
            MemorySource::Allocator(allocator) => allocator,
            MemorySource::Pool => {
                if let Some(pool) = Pool::of(device)? {
                    let mut start = 0;
                    // SAFETY: `start` is a local that the driver sets.
                    unsafe { device.driver.memory_alloc_from_pool(&raw mut start, bytes, pool, stream.handle()) }?;
                    return Ok((made(start, None), None));
                }
                let block = PlainBlock::take(current, bytes)?;
                return Ok((made(block.start(), Some(Block::Plain(block))), None));
            }
            MemorySource::Plain => {
                let block = PlainBlock::take(current, bytes)?;
                return Ok((made(block.start(), Some(Block::Plain(block))), None));
            }
        };
        let Some((block, behind)) = ForeignBlock::new(allocator, current, bytes, stream)? else {
            return Self::new(&MemorySource::Pool, current, bytes, stream);
        };
        let start = DevicePointer::try_from(block.address).unwrap_or(DevicePointer::MAX);
        Ok((made(start, Some(Block::Foreign(block))), behind))
    }

    /// The same memory, to be dropped when all work with it is done, whatever has become of the stream that it was made on.
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

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        let block = self.block.take();
        if is_forked() {
            std::mem::forget(block);
            return;
        }
        match block {
            // What no work can use goes back at once.
            Some(block) if self.is_shared => drop(block),
            Some(block) => abandon(self.device, self.stream, block),
            None => {
                // Once more, as nothing else would free it.
                let current = self.device.enter_unchecked().or_else(|_| self.device.enter_unchecked());
                let Ok(current) = current else { return };
                let stream = if self.is_shared { current.free_stream() } else { self.stream };
                // Where the driver refuses, the memory is lost, and nothing else.
                // SAFETY: memory of ours, which nobody frees again.
                let _ = unsafe { current.driver().memory_free_async(self.start, stream.handle()) };
            }
        }
    }
}

/// A block that a conversion let go of when it failed, and the work that it had started by then.
struct Abandoned {
    event: Event,
    #[allow(dead_code, reason = "only to be dropped")]
    block: Block,
}

static ABANDONED: Mutex<Vec<Abandoned>> = Mutex::new(Vec::new());
/// The number of blocks, to be looked at without the lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Lets a block go back when the work is done that a stream has now. Where that cannot be known the block is lost.
fn abandon(device: &'static CudaDevice, stream: Stream, block: Block) {
    let record = || device.enter_unchecked().and_then(|current| Event::record(&current, stream));
    // Once more, as nothing else would give it back.
    let Ok(event) = record().or_else(|_| record()) else {
        std::mem::forget(block);
        return;
    };
    let mut all = ABANDONED.lock().unwrap_or_else(PoisonError::into_inner);
    all.push(Abandoned { event, block });
    // Under the lock: who releases beside this would take the block off the count before it was counted.
    COUNT.fetch_add(1, Ordering::AcqRel);
    drop(all);
    release_abandoned();
}

/// Gives back the memory of conversions that failed, where the work is done that they had started. Never waits.
pub(crate) fn release_abandoned() {
    if COUNT.load(Ordering::Acquire) == 0 || is_forked() {
        return;
    }
    let is_done = |abandoned: &mut Abandoned| abandoned.event.is_complete() == Ok(true);
    let mut all = ABANDONED.lock().unwrap_or_else(PoisonError::into_inner);
    let done: Vec<Abandoned> = all.extract_if(.., is_done).collect();
    drop(all);
    COUNT.fetch_sub(done.len(), Ordering::AcqRel);
    // Without the lock: an allocator may come back here.
    drop(done);
}

/// Memory of another library's allocator. Who drops it has seen to it that nothing uses it any more.
#[derive(Debug)]
struct ForeignBlock {
    allocator: Arc<dyn Allocator>,
    device: &'static CudaDevice,
    address: usize,
    bytes: usize,
}

impl ForeignBlock {
    /// `None` where the allocator has none of this device.
    fn new(
        allocator: &Arc<dyn Allocator>,
        current: &Current,
        bytes: usize,
        stream: Stream,
    ) -> Result<Option<(Self, Option<Stream>)>, NoMemory> {
        let device = current.device();
        let ordinal = device.ordinal();
        let allocated = {
            // What the allocator itself makes is not its own.
            let _pool = allocate_from(MemorySource::Pool);
            match allocator.allocate(ordinal, bytes, stream) {
                Err(AllocatorError::NotHere) => return Ok(None),
                allocated => allocated?,
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
        // It goes back if it is refused.
        let block = Self { allocator: Arc::clone(allocator), device, address, bytes };
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
    /// Bytes of other allocators that are in use.
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
        // SAFETY: the contract.
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
        // SAFETY: the contract.
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
        // SAFETY: the contract.
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
        // SAFETY: the contract.
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
        // SAFETY: the contract; both contexts are retained.
        unsafe { self.driver().copy_to_peer(target, to, source, from, bytes, stream.handle()) }
    }

    /// Sets bytes of device memory, in the order of `stream`.
    ///
    /// # Safety
    /// The memory has so many bytes until that is done.
    pub(crate) unsafe fn set_memory(&self, target: DevicePointer, byte: u8, bytes: usize, stream: Stream) -> Called {
        // SAFETY: the contract.
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
        // SAFETY: the contract.
        unsafe { self.driver().copy_on_device(target, source, bytes, stream.handle()) }
    }
}
