//! [`Device`]: where memory is, and the one translation between Arrow's and DLPack's device ids.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, ErrorKind, Remedy, Result};
use crate::ffi::dlpack::{DLDevice, DLDeviceType};

/// A device type and an ordinal. The CPU has ordinal 0, also if the id came from Arrow.
///
/// ```
/// use arrow_dlpack::Device;
/// use arrow_dlpack::ffi::dlpack::DLDeviceType;
///
/// assert_eq!("cuda:1".parse::<Device>()?, Device::new(DLDeviceType::CUDA, 1));
/// assert_eq!(Device::CPU.to_string(), "cpu");
/// # Ok::<(), arrow_dlpack::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Device {
    device_type: DLDeviceType,
    id: i32,
}

/// Each device type with its name in strings such as `"cuda:1"`.
const NAMES: [(&str, DLDeviceType); 16] = [
    ("cpu", DLDeviceType::CPU),
    ("cuda", DLDeviceType::CUDA),
    ("cuda_host", DLDeviceType::CUDA_HOST),
    ("opencl", DLDeviceType::OPENCL),
    ("vulkan", DLDeviceType::VULKAN),
    ("metal", DLDeviceType::METAL),
    ("vpi", DLDeviceType::VPI),
    ("rocm", DLDeviceType::ROCM),
    ("rocm_host", DLDeviceType::ROCM_HOST),
    ("ext_dev", DLDeviceType::EXT_DEV),
    ("cuda_managed", DLDeviceType::CUDA_MANAGED),
    ("oneapi", DLDeviceType::ONEAPI),
    ("webgpu", DLDeviceType::WEBGPU),
    ("hexagon", DLDeviceType::HEXAGON),
    ("maia", DLDeviceType::MAIA),
    ("trn", DLDeviceType::TRN),
];

/// Types of memory that belong to no single device.
const HOSTED: [DLDeviceType; 3] = [DLDeviceType::CUDA_HOST, DLDeviceType::ROCM_HOST, DLDeviceType::CUDA_MANAGED];

impl Device {
    /// Returns the remedy for an operation that needs the data in host memory.
    pub(crate) fn host_remedy(self) -> Remedy {
        const KNOWN: [DLDeviceType; 3] = [DLDeviceType::CUDA, DLDeviceType::CUDA_HOST, DLDeviceType::CUDA_MANAGED];
        if KNOWN.contains(&self.device_type) {
            Remedy::CopyToHost
        } else {
            "copy it to the CPU with the library that made it".into()
        }
    }

    /// Host memory.
    pub const CPU: Self = Self { device_type: DLDeviceType::CPU, id: 0 };

    /// Returns the device of this type and ordinal. Every id of the CPU is the same device.
    #[must_use]
    pub const fn new(device_type: DLDeviceType, id: i32) -> Self {
        if device_type.0 == DLDeviceType::CPU.0 { Self::CPU } else { Self { device_type, id } }
    }

    /// Translates Arrow's `(device_type, device_id)`. The CPU's id may be -1 or 0.
    ///
    /// # Errors
    /// If the id does not fit DLPack's 32 bits.
    pub fn from_arrow(device_type: i32, device_id: i64) -> Result<Self> {
        let id = i32::try_from(device_id)
            .map_err(|_| Error::new(ErrorKind::Device, format!("device_id {device_id} is beyond 32 bits")))?;
        let device_type = DLDeviceType(device_type);
        // Some producers pass -1 for memory that belongs to no single device.
        let id = if id == -1 && HOSTED.contains(&device_type) { 0 } else { id };
        Ok(Self::new(device_type, id))
    }

    /// Translates to Arrow's `(device_type, device_id)`, whose id is -1 for the CPU.
    #[must_use]
    pub fn to_arrow(self) -> (i32, i64) {
        (self.device_type.0, if self.is_cpu() { -1 } else { i64::from(self.id) })
    }

    /// Translates to DLPack's device, whose id is 0 for the CPU and for pinned and managed memory, which belong to no
    /// single device.
    #[must_use]
    pub fn to_dlpack(self) -> DLDevice {
        let device_id = if HOSTED.contains(&self.device_type) { 0 } else { self.id };
        DLDevice { device_type: self.device_type, device_id }
    }

    /// Returns the device type.
    #[must_use]
    pub fn device_type(self) -> DLDeviceType {
        self.device_type
    }

    /// Returns the ordinal, 0 for the CPU.
    #[must_use]
    pub fn id(self) -> i32 {
        self.id
    }

    /// Returns whether this is ordinary host memory.
    #[must_use]
    pub fn is_cpu(self) -> bool {
        self.device_type == DLDeviceType::CPU
    }
}

impl From<DLDevice> for Device {
    fn from(device: DLDevice) -> Self {
        Self::new(device.device_type, device.device_id)
    }
}

impl fmt::Debug for Device {
    /// Names the device as [`Display`](fmt::Display) does: a report of a tensor is read by people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({self})")
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_cpu() {
            return f.write_str("cpu");
        }
        match NAMES.iter().find(|(_, device_type)| *device_type == self.device_type) {
            Some((name, _)) => write!(f, "{name}:{}", self.id),
            None => write!(f, "device_type {}:{}", self.device_type.0, self.id),
        }
    }
}

impl FromStr for Device {
    type Err = Error;

    /// Parses `"cpu"`, `"cuda"`, `"cuda:1"`, `"cuda_host"` and so on.
    fn from_str(text: &str) -> Result<Self> {
        let (name, id) = text.split_once(':').unwrap_or((text, "0"));
        let unknown =
            || Error::argument(format!("{text:?} is not a device; expected a name such as \"cpu\" or \"cuda:0\""));
        let (_, device_type) = NAMES.iter().find(|(known, _)| *known == name).ok_or_else(unknown)?;
        let id = id.parse::<i32>().ok().filter(|id| *id >= 0).ok_or_else(unknown)?;
        Ok(Self::new(*device_type, id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_is_one_device_under_every_id() {
        for id in [-1, 0, 3] {
            assert_eq!(Device::from_arrow(1, id).unwrap(), Device::CPU);
        }
        assert_eq!(Device::CPU.to_arrow(), (1, -1));
        assert_eq!(Device::CPU.to_dlpack(), DLDevice { device_type: DLDeviceType::CPU, device_id: 0 });
    }

    #[test]
    fn pinned_and_managed_memory_have_an_ordinal_in_arrow_and_none_in_dlpack() {
        for device_type in [DLDeviceType::CUDA_HOST, DLDeviceType::ROCM_HOST, DLDeviceType::CUDA_MANAGED] {
            let device = Device::new(device_type, 1);
            assert_eq!(device.to_arrow(), (device_type.0, 1));
            assert_eq!(device.to_dlpack().device_id, 0);
            assert_eq!(Device::from_arrow(device_type.0, -1).unwrap(), Device::new(device_type, 0));
            assert_eq!(Device::from_arrow(device_type.0, 1).unwrap(), device);
        }
        assert_eq!(Device::from_arrow(DLDeviceType::CUDA.0, -1).unwrap().id(), -1);
    }

    #[test]
    fn strings_round_trip_and_nonsense_is_refused() {
        for text in ["cpu", "cuda:0", "cuda:1", "cuda_host:0", "rocm:3"] {
            assert_eq!(text.parse::<Device>().unwrap().to_string(), text);
            assert_eq!(format!("{:?}", text.parse::<Device>().unwrap()), format!("Device({text})"));
        }
        assert_eq!("cuda".parse::<Device>().unwrap(), Device::new(DLDeviceType::CUDA, 0));
        for text in ["", "gpu", "cuda:", "cuda:-1", "cuda:x", "cuda:99999999999"] {
            assert!(text.parse::<Device>().is_err(), "{text:?}");
        }
    }
}
