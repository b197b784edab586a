//! Devices and their primary contexts: retained at first use, and kept until the process ends.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, OnceLock, PoisonError};

use smallvec::SmallVec;

use super::driver::{Called, ContextHandle, Driver, EventHandle, PoolHandle, Status, StreamHandle, driver, no_device};
use super::idle_blocks::IdleBlocks;
use super::module::Kernels;
use super::pool_access::grant;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::ffi::dlpack::DLDeviceType;

/// No machine has more.
const MAX_DEVICES: usize = 64;
/// `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT`.
const MULTIPROCESSORS: c_int = 16;
/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `_MINOR`.
const CAPABILITY: [c_int; 2] = [75, 76];
/// `CU_STREAM_CAPTURE_MODE_RELAXED`: work of this thread invalidates no capture.
const RELAXED: c_int = 2;

/// A device in use, with its primary context and our idle streams and events.
pub(crate) struct CudaDevice {
    pub(super) driver: &'static Driver,
    ordinal: i32,
    /// `CUdevice`.
    device: c_int,
    context: ContextHandle,
    /// Those that are idle, or will be; the least recently used first.
    pub(super) streams: Mutex<VecDeque<StreamHandle>>,
    pub(super) events: Mutex<Vec<EventHandle>>,
    /// Streams of others that were found to be of the context, the oldest first.
    pub(super) known_streams: Mutex<VecDeque<StreamHandle>>,
    /// `None` for a device without pools.
    pub(super) pool: OnceLock<Option<PoolHandle>>,
    pub(super) unpooled: IdleBlocks,
    pub(super) free_stream: OnceLock<StreamHandle>,
    /// Bytes from other allocators.
    pub(super) foreign: AtomicUsize,
    kernels: OnceLock<Kernels>,
    /// Held while the kernels are loaded, so that they are loaded once.
    loading: Mutex<()>,
}

impl fmt::Debug for CudaDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudaDevice({})", self.ordinal)
    }
}

static DEVICES: [DeviceSlot; MAX_DEVICES] =
    [const { DeviceSlot { device: OnceLock::new(), starting: Mutex::new(()) } }; MAX_DEVICES];

/// A device, if it is in use.
struct DeviceSlot {
    device: OnceLock<CudaDevice>,
    /// Held while the device is started, so that its context is retained once.
    starting: Mutex<()>,
}

impl CudaDevice {
    /// Returns the device of this ordinal, which is in use from now on.
    ///
    /// # Errors
    /// If there is no driver, or no such device.
    pub(crate) fn get(ordinal: i32) -> Result<&'static Self> {
        let driver = driver()?;
        let slot = usize::try_from(ordinal).ok().and_then(|index| DEVICES.get(index));
        let slot = slot.ok_or_else(|| missing(driver, ordinal))?;
        match slot.device.get() {
            Some(device) => Ok(device),
            None => Self::start(driver, ordinal, slot),
        }
    }

    #[cold]
    fn start(driver: &'static Driver, ordinal: i32, slot: &'static DeviceSlot) -> Result<&'static Self> {
        let _starting = slot.starting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = slot.device.get() {
            return Ok(device);
        }
        let (mut device, mut context) = (0, ContextHandle::NULL);
        // SAFETY: `device` is a local that the driver sets.
        unsafe { driver.device_get(&raw mut device, ordinal) }.map_err(|status| match status.code {
            Status::INVALID_DEVICE => missing(driver, ordinal),
            _ => status.into(),
        })?;
        // SAFETY: `context` is a local that the driver sets.
        unsafe { driver.primary_context_retain(&raw mut context, device) }?;
        let device = slot.device.get_or_init(|| Self {
            driver,
            ordinal,
            device,
            context,
            streams: Mutex::new(VecDeque::new()),
            events: Mutex::new(Vec::new()),
            known_streams: Mutex::new(VecDeque::new()),
            pool: OnceLock::new(),
            unpooled: IdleBlocks::default(),
            free_stream: OnceLock::new(),
            foreign: AtomicUsize::new(0),
            kernels: OnceLock::new(),
            loading: Mutex::new(()),
        });
        grant_access(device);
        Ok(device)
    }

    /// The devices that are in use.
    pub(crate) fn in_use() -> impl Iterator<Item = &'static Self> {
        DEVICES.iter().filter_map(|slot| slot.device.get())
    }

    /// Returns the ordinals of the devices whose primary context some library uses, which may be none that is in use here.
    ///
    /// # Errors
    /// When the driver fails.
    pub(crate) fn active(&self) -> Called<SmallVec<[i32; 2]>> {
        let mut count = 0;
        // SAFETY: `count` is a local that the driver sets.
        unsafe { self.driver.device_get_count(&raw mut count) }?;
        let mut ordinals = SmallVec::new();
        for ordinal in 0..count.min(MAX_DEVICES.try_into().unwrap_or(0)) {
            let (mut device, mut flags, mut is_active) = (0, 0, 0);
            // SAFETY: `device` is a local that the driver sets.
            unsafe { self.driver.device_get(&raw mut device, ordinal) }?;
            // SAFETY: both are locals that the driver sets.
            unsafe { self.driver.primary_context_get_state(device, &raw mut flags, &raw mut is_active) }?;
            if is_active != 0 {
                ordinals.push(ordinal);
            }
        }
        Ok(ordinals)
    }

    /// Returns whether this device can reach the memory of another; false if the driver does not say.
    fn reaches(&self, other: &Self) -> bool {
        let mut can = 0;
        // SAFETY: `can` is a local that the driver sets.
        let asked = unsafe { self.driver.device_can_access_peer(&raw mut can, self.device, other.device) };
        asked.is_ok() && can != 0
    }

    /// Returns whether the kernels are loaded.
    pub(crate) fn has_kernels(&self) -> bool {
        self.kernels.get().is_some()
    }

    /// Returns the functions of the module, which the first call loads: from a cubin, or from PTX, which a driver
    /// compiles for a second or two. The load may wait for the device.
    ///
    /// # Errors
    /// If the driver refuses the module, or a function is missing in it.
    pub(crate) fn kernels(&'static self) -> Result<&'static Kernels> {
        if let Some(kernels) = self.kernels.get() {
            return Ok(kernels);
        }
        let _loading = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernels) = self.kernels.get() {
            return Ok(kernels);
        }
        let current = self.enter_unchecked()?;
        let multiprocessors = u64::try_from(self.attribute(MULTIPROCESSORS)?).unwrap_or(1).max(1);
        let [major, minor] = CAPABILITY.map(|attribute| self.attribute(attribute));
        let [major, minor] = [major?, minor?].map(|number| u32::try_from(number).unwrap_or(0));
        // A failed load may succeed the next time.
        let loaded = Kernels::load(current.driver(), (major, minor), multiprocessors)?;
        Ok(self.kernels.get_or_init(|| loaded))
    }

    /// Returns the image that the kernels were loaded from, if they were.
    #[cfg(feature = "python")]
    pub(super) fn image(&self) -> Option<&'static str> {
        self.kernels.get().map(|kernels| if kernels.is_cubin() { "cubin" } else { "PTX" })
    }

    /// Whether our stream for frees exists.
    #[cfg(feature = "python")]
    pub(super) fn has_free_stream(&self) -> bool {
        self.free_stream.get().is_some_and(|stream| *stream != StreamHandle::LEGACY)
    }

    pub(crate) fn ordinal(&self) -> i32 {
        self.ordinal
    }

    pub(super) fn context(&self) -> ContextHandle {
        self.context
    }

    /// Returns the number of multiprocessors of the device.
    pub(super) fn multiprocessors(&'static self) -> Result<u64> {
        Ok(self.kernels()?.multiprocessors())
    }

    /// Returns an attribute of the device, `CUdevice_attribute`.
    pub(crate) fn attribute(&self, attribute: c_int) -> Called<c_int> {
        let mut value = 0;
        // SAFETY: `value` is a local that the driver sets.
        unsafe { self.driver.device_get_attribute(&raw mut value, attribute, self.device) }?;
        Ok(value)
    }

    /// Makes the device's primary context current in this thread, until the guard is dropped.
    ///
    /// # Errors
    /// If the driver refuses, or this process was forked.
    pub(crate) fn enter(&'static self) -> Result<Current> {
        driver()?;
        Ok(self.enter_unchecked()?)
    }

    /// Like [`CudaDevice::enter`], for a process that is known not to be forked.
    pub(crate) fn enter_unchecked(&'static self) -> Called<Current> {
        // First, because a driver may refuse to exchange the mode of a thread without a context.
        let is_pushed = self.make_current()?;
        let mut mode = RELAXED;
        // SAFETY: `mode` is a local that the driver swaps with its own.
        match unsafe { self.driver.exchange_capture_mode(&raw mut mode) } {
            Ok(()) => Ok(Current { device: self, mode, is_pushed, not_send: std::marker::PhantomData }),
            Err(status) => {
                // The error may be that of earlier work, and the mode exchanged all the same.
                if mode != RELAXED {
                    restore_mode(self.driver, mode);
                }
                if is_pushed {
                    self.pop();
                }
                Err(status)
            }
        }
    }

    /// Makes the device's primary context current in this thread, and returns whether it was pushed: a thread that works on the
    /// device already, as those of other libraries do, is spared the two calls.
    fn make_current(&self) -> Called<bool> {
        if self.is_current()? {
            return Ok(false);
        }
        // SAFETY: a retained primary context.
        if let Err(status) = unsafe { self.driver.context_push(self.context) } {
            // The error may be that of earlier work, and the context pushed all the same.
            if !status.refused_the_call() && self.is_current() == Ok(true) {
                self.pop();
            }
            return Err(status);
        }
        Ok(true)
    }

    /// Returns whether the device's primary context is current in this thread.
    fn is_current(&self) -> Called<bool> {
        let mut context = ContextHandle::NULL;
        // SAFETY: `context` is a local that the driver sets.
        unsafe { self.driver.context_get_current(&raw mut context) }?;
        Ok(context == self.context)
    }

    /// Makes the context current that was so before the one of this device was pushed, which is not the same.
    fn pop(&self) {
        let mut context = ContextHandle::NULL;
        // SAFETY: `context` is a local that the driver sets; the context was pushed by this thread.
        let mut pop = || unsafe { self.driver.context_pop(&raw mut context) };
        // Once more only if the context is still current: the error may be that of earlier work, and a second pop would take another
        // library's context. If the driver is shutting down, nothing is left to restore.
        if pop().is_err() && self.is_current() == Ok(true) {
            let _ = pop();
        }
    }
}

/// Gives this device and the others in use access to each other's pools, where possible.
pub(super) fn grant_access(device: &'static CudaDevice) {
    static GRANTING: Mutex<()> = Mutex::new(());
    // If two devices start at once, the second one sees the first.
    let _granting = GRANTING.lock().unwrap_or_else(PoisonError::into_inner);
    let grant = |of: &CudaDevice, to: &CudaDevice| {
        if let Some(Some(pool)) = of.pool.get()
            && to.reaches(of)
        {
            grant(of.driver, *pool, to.ordinal);
        }
    };
    for other in CudaDevice::in_use().filter(|other| !std::ptr::eq(*other, device)) {
        grant(device, other);
        grant(other, device);
    }
}

fn restore_mode(driver: &Driver, mut mode: c_int) {
    // A driver that is shutting down, or whose context is lost, has no capture mode to restore.
    // SAFETY: a mode that the driver gave.
    let _ = unsafe { driver.exchange_capture_mode(&raw mut mode) };
}

#[cold]
fn missing(driver: &Driver, ordinal: i32) -> Error {
    let mut count = 0;
    // SAFETY: `count` is a local that the driver sets.
    match unsafe { driver.device_get_count(&raw mut count) } {
        Ok(()) if count == 0 => no_device(),
        Ok(()) => Error::new(ErrorKind::Device, format!("there is no device cuda:{ordinal}; there are {count}")),
        Err(status) => status.into(),
    }
}

/// A device whose primary context is current in this thread, and the thread's capture mode relaxed. Both are restored when
/// this is dropped.
#[derive(Debug)]
pub(crate) struct Current {
    device: &'static CudaDevice,
    mode: c_int,
    /// Whether the context was not current before.
    is_pushed: bool,
    /// A context is current on one thread only.
    not_send: std::marker::PhantomData<*mut ()>,
}

impl Current {
    pub(crate) fn device(&self) -> &'static CudaDevice {
        self.device
    }

    pub(super) fn driver(&self) -> &'static Driver {
        self.device.driver
    }

    /// Makes the context current again if foreign code has left another one, as one that chooses a device does.
    ///
    /// # Errors
    /// If the driver refuses.
    pub(crate) fn restore(&self) -> Called {
        if self.device.is_current()? {
            return Ok(());
        }
        // The other one stands in the place of ours, or above it.
        let mut other = ContextHandle::NULL;
        // SAFETY: `other` is a local that the driver sets. The context is of this thread, and no guard of ours has pushed it.
        let _ = unsafe { self.driver().context_pop(&raw mut other) };
        self.device.make_current().map(drop)
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        // While the context is current, without which a driver may refuse.
        restore_mode(self.driver(), self.mode);
        if self.is_pushed {
            self.device.pop();
        }
    }
}

/// Returns whether memory of this device type is reached through the CUDA driver.
pub(crate) fn is_cuda(device: Device) -> bool {
    matches!(device.device_type(), DLDeviceType::CUDA | DLDeviceType::CUDA_HOST | DLDeviceType::CUDA_MANAGED)
}

/// Returns whether the host reads this memory in place, once it is written.
pub(crate) fn is_host_visible(device: Device) -> bool {
    matches!(device.device_type(), DLDeviceType::CUDA_HOST | DLDeviceType::CUDA_MANAGED)
}
