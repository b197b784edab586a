//! Memory of ours on a device, from a pool of our own, and copies.

use std::ffi::{c_int, c_void};
use std::sync::{Mutex, PoisonError};

use super::context::{CudaDevice, Current};
use super::driver::{Called, DevicePointer, PoolHandle, Status};
use super::pinned::PinnedBlock;
use super::stream::Stream;

/// `CUmemPoolProps`.
#[repr(C)]
struct PoolProperties {
    /// `CU_MEM_ALLOCATION_TYPE_PINNED`.
    allocation_type: c_int,
    /// None: the memory is this process's alone.
    handle_types: c_int,
    /// `CU_MEM_LOCATION_TYPE_DEVICE`.
    location_type: c_int,
    location_id: c_int,
    reserved: [u64; 9],
}

const _: () = assert!(size_of::<PoolProperties>() == 88);

const PINNED: c_int = 1;
const ON_DEVICE: c_int = 1;
/// `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`.
const RELEASE_THRESHOLD: c_int = 4;

/// The pool of a device. Not the default one, whose properties are others' too. It keeps what is given back to it.
#[derive(Debug)]
pub(super) struct Pool(PoolHandle);

impl Pool {
    fn new(device: &CudaDevice) -> Called<Self> {
        let properties = PoolProperties {
            allocation_type: PINNED,
            handle_types: 0,
            location_type: ON_DEVICE,
            location_id: device.ordinal(),
            reserved: [0; 9],
        };
        let mut pool = PoolHandle::NULL;
        // SAFETY: `pool` is a local that the driver sets; the properties are read during the call.
        unsafe { device.driver.pool_create(&raw mut pool, (&raw const properties).cast()) }?;
        let mut keep = u64::MAX;
        // SAFETY: this attribute is 64 bits long.
        unsafe { device.driver.pool_set_attribute(pool, RELEASE_THRESHOLD, (&raw mut keep).cast()) }?;
        Ok(Self(pool))
    }

    fn of(device: &'static CudaDevice) -> Called<&'static Self> {
        static STARTING: Mutex<()> = Mutex::new(());
        let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = device.memory.get() {
            return Ok(pool);
        }
        let pool = Self::new(device)?;
        Ok(device.memory.get_or_init(|| pool))
    }
}

/// Memory of ours on a device. Who drops it has seen to it that nothing uses it any more.
#[derive(Debug)]
pub(crate) struct DeviceBuffer {
    device: &'static CudaDevice,
    start: DevicePointer,
    /// Where it is freed: before it is shared nothing has waited for its allocation, which this stream has.
    stream: Stream,
}

impl DeviceBuffer {
    /// Memory that what `stream` is given from now on may use; aligned to 256 bytes. `bytes` is not 0.
    pub(crate) fn new(current: &Current, bytes: usize, stream: Stream) -> Called<Self> {
        let device = current.device();
        let pool = Pool::of(device)?;
        let allocate = || {
            let mut start = 0;
            // SAFETY: `start` is a local that the driver sets.
            let allocated =
                unsafe { device.driver.memory_alloc_from_pool(&raw mut start, bytes, pool.0, stream.handle()) };
            allocated.map(|()| Self { device, start, stream })
        };
        match allocate() {
            Err(Status { code: Status::OUT_OF_MEMORY, .. }) => {
                // SAFETY: a pool of ours; what is in use stays.
                unsafe { device.driver.pool_trim_to(pool.0, 0) }?;
                allocate()
            }
            allocated => allocated,
        }
    }

    /// The same memory, to be dropped when all work with it is done, whatever has become of the stream that it was made on.
    pub(crate) fn shared(self) -> Self {
        let mut shared = self;
        shared.stream = Stream::LEGACY;
        shared
    }

    pub(crate) fn start(&self) -> DevicePointer {
        self.start
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        // Once more, as nothing else would free it.
        let current = self.device.enter_unchecked().or_else(|_| self.device.enter_unchecked());
        let Ok(current) = current else { return };
        // Where the driver refuses, the memory is lost, and nothing else.
        // SAFETY: memory of ours, which nobody frees again.
        let _ = unsafe { current.driver().memory_free_async(self.start, self.stream.handle()) };
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

    /// Copies page-locked memory of the host to device memory, in the order of `stream`.
    ///
    /// # Safety
    /// Both have so many bytes until the copy is done, and nobody writes the host's before that.
    pub(crate) unsafe fn copy_from_page_locked(
        &self,
        target: DevicePointer,
        source: *const u8,
        bytes: usize,
        stream: Stream,
    ) -> Called {
        // SAFETY: the contract.
        unsafe { self.driver().copy_to_device(target, source.cast(), bytes, stream.handle()) }
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
