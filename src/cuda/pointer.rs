//! Asks the driver about an address.

use std::ffi::{c_int, c_void};
use std::ops::Range;

use super::context::{CudaDevice, Current};
use super::driver::{ContextHandle, DevicePointer, Driver, Status, driver};
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::ffi::dlpack::DLDeviceType;

// `CUpointer_attribute`.
const CONTEXT: c_int = 1;
const MEMORY_TYPE: c_int = 2;
const IS_MANAGED: c_int = 8;
const DEVICE_ORDINAL: c_int = 9;
const RANGE_START: c_int = 11;
const RANGE_SIZE: c_int = 12;

// `CUmemorytype`.
const MEMORY_TYPE_HOST: u32 = 1;
const MEMORY_TYPE_DEVICE: u32 = 2;

/// What the driver knows of an address. It knows nothing of host memory that is not registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pointer {
    /// `None` for host memory that the driver does not know.
    pub(crate) device: Option<Device>,
    context: ContextHandle,
    /// The start and the size of its allocation; zeros where the driver does not tell.
    range: (DevicePointer, usize),
}

impl Pointer {
    /// Asks the driver, whatever context is current.
    ///
    /// # Errors
    /// If there is no driver, or it fails.
    pub(crate) fn of(address: usize) -> Result<Self> {
        Self::ask(driver()?, address).map_err(Error::from)
    }

    fn ask(driver: &Driver, address: usize) -> std::result::Result<Self, Status> {
        let mut context = ContextHandle::NULL;
        let (mut memory_type, mut is_managed, mut ordinal) = (0_u32, 0_u32, -1_i32);
        let (mut start, mut size): (DevicePointer, usize) = (0, 0);
        let mut attributes = [CONTEXT, MEMORY_TYPE, IS_MANAGED, DEVICE_ORDINAL, RANGE_START, RANGE_SIZE];
        let mut values: [*mut c_void; 6] = [
            (&raw mut context).cast(),
            (&raw mut memory_type).cast(),
            (&raw mut is_managed).cast(),
            (&raw mut ordinal).cast(),
            (&raw mut start).cast(),
            (&raw mut size).cast(),
        ];
        let pointer = DevicePointer::try_from(address).unwrap_or(DevicePointer::MAX);
        // SAFETY: six attributes, and for each a local of its type. Any address may be asked about.
        unsafe { driver.pointer_get_attributes(6, attributes.as_mut_ptr(), values.as_mut_ptr(), pointer) }?;
        let device = match (memory_type, is_managed) {
            (_, managed) if managed & 0xff != 0 => Some(DLDeviceType::CUDA_MANAGED),
            (MEMORY_TYPE_HOST, _) => Some(DLDeviceType::CUDA_HOST),
            (MEMORY_TYPE_DEVICE, _) => Some(DLDeviceType::CUDA),
            _ => None,
        };
        Ok(Self { device: device.map(|kind| Device::new(kind, ordinal.max(0))), context, range: (start, size) })
    }

    /// Returns the addresses of the allocation, if the driver knows them: of registered memory, of another process's and of
    /// memory of the system it may write zeros, and yet succeed.
    fn allocation(&self) -> Option<Range<usize>> {
        let (start, bytes) = (usize::try_from(self.range.0).ok()?, self.range.1);
        if start == 0 || bytes == 0 {
            return None;
        }
        Some(start..start.checked_add(bytes)?)
    }
}

impl Current {
    /// Refuses memory that contradicts its producer: another device or kind, another context than the primary one, or
    /// fewer than `bytes`.
    pub(crate) fn check_memory(&self, address: usize, bytes: usize, said: Device) -> Result<()> {
        self.checked_allocation(address, bytes, said).map(drop)
    }

    /// As [`Current::check_memory`]; returns the addresses of the allocation, if the driver knows them.
    pub(crate) fn checked_allocation(
        &self,
        address: usize,
        bytes: usize,
        said: Device,
    ) -> Result<Option<Range<usize>>> {
        if bytes == 0 {
            return Ok(None);
        }
        let pointer = Pointer::ask(self.driver(), address)?;
        let refused = |reason: String| Err(Error::new(ErrorKind::Device, reason));
        let Some(found) = pointer.device else {
            return refused(format!(
                "the address {address:#x} is said to be on {said}, and the CUDA driver does not know it"
            ));
        };
        // Every device reaches managed memory, so it passes for memory of one.
        let relabelled = found.device_type() == DLDeviceType::CUDA_MANAGED && said.device_type() == DLDeviceType::CUDA;
        if found.device_type() != said.device_type() && !relabelled {
            return refused(format!("the address {address:#x} is said to be on {said}, and is on {found}"));
        }
        if said.device_type() == DLDeviceType::CUDA && !relabelled && found.id() != said.id() {
            return refused(format!("the address {address:#x} is said to be on {said}, and is on {found}"));
        }
        // Pool memory has no context. Host-visible memory may be of any: to compare it would start that device.
        let is_of_context = found.device_type() == DLDeviceType::CUDA && !pointer.context.is_null();
        if is_of_context && !self.is_primary(pointer.context, found) {
            return refused(format!(
                "the memory at {address:#x} is of a context that is not the primary one of {found}, which is not supported"
            ));
        }
        let Some(allocation) = pointer.allocation().filter(|allocation| allocation.start <= address) else {
            return Ok(None);
        };
        match allocation.end.saturating_sub(address) {
            room if room >= bytes => Ok(Some(allocation)),
            room => {
                refused(format!("{bytes} bytes from {address:#x} on reach beyond an allocation that ends after {room}"))
            }
        }
    }

    fn is_primary(&self, context: ContextHandle, device: Device) -> bool {
        let own = if device.id() == self.device().ordinal() { Ok(self.device()) } else { CudaDevice::get(device.id()) };
        own.is_ok_and(|own| own.context() == context)
    }
}
