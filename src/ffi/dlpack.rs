//! `dlpack.h`, version 1.3 (<https://github.com/dmlc/dlpack/blob/main/include/dlpack/dlpack.h>).

use std::ffi::{c_char, c_int, c_void};

use super::assert_layout;

/// `DLPACK_MAJOR_VERSION` of the structs in this file. A different major version is a different ABI.
pub const DLPACK_MAJOR_VERSION: u32 = 1;
/// `DLPACK_MINOR_VERSION` of the structs in this file.
pub const DLPACK_MINOR_VERSION: u32 = 3;

/// `DLPACK_FLAG_BITMASK_READ_ONLY`: the consumer must not write.
pub const DLPACK_FLAG_BITMASK_READ_ONLY: u64 = 1 << 0;
/// `DLPACK_FLAG_BITMASK_IS_COPIED`: the producer made a copy; the consumer is its sole owner until the deleter.
pub const DLPACK_FLAG_BITMASK_IS_COPIED: u64 = 1 << 1;
/// `DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED`: sub-byte elements are padded to a byte each.
pub const DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED: u64 = 1 << 2;

/// `DLPackVersion`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLPackVersion {
    /// A different major version is a different ABI.
    pub major: u32,
    /// A newer minor version only adds features that older consumers may ignore.
    pub minor: u32,
}

/// `DLDeviceType`. Arrow's `ArrowDeviceType` has the same values.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DLDeviceType(pub i32);

impl DLDeviceType {
    /// `kDLCPU`: host memory.
    pub const CPU: Self = Self(1);
    /// `kDLCUDA`: CUDA device memory.
    pub const CUDA: Self = Self(2);
    /// `kDLCUDAHost`: pinned host memory from `cudaMallocHost`.
    pub const CUDA_HOST: Self = Self(3);
    /// `kDLOpenCL`.
    pub const OPENCL: Self = Self(4);
    /// `kDLVulkan`.
    pub const VULKAN: Self = Self(7);
    /// `kDLMetal`.
    pub const METAL: Self = Self(8);
    /// `kDLVPI`.
    pub const VPI: Self = Self(9);
    /// `kDLROCM`.
    pub const ROCM: Self = Self(10);
    /// `kDLROCMHost`.
    pub const ROCM_HOST: Self = Self(11);
    /// `kDLExtDev`: reserved for extensions.
    pub const EXT_DEV: Self = Self(12);
    /// `kDLCUDAManaged`: managed memory from `cudaMallocManaged`.
    pub const CUDA_MANAGED: Self = Self(13);
    /// `kDLOneAPI`: unified shared memory of a SYCL device.
    pub const ONEAPI: Self = Self(14);
    /// `kDLWebGPU`.
    pub const WEBGPU: Self = Self(15);
    /// `kDLHexagon`.
    pub const HEXAGON: Self = Self(16);
    /// `kDLMAIA`.
    pub const MAIA: Self = Self(17);
    /// `kDLTrn`.
    pub const TRN: Self = Self(18);
}

/// `DLDevice`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DLDevice {
    /// The kind of memory.
    pub device_type: DLDeviceType,
    /// The ordinal; 0 for CPU, pinned and managed memory.
    pub device_id: i32,
}

/// `DLDataTypeCode`, stored in 8 bits.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DLDataTypeCode(pub u8);

impl DLDataTypeCode {
    /// `kDLInt`.
    pub const INT: Self = Self(0);
    /// `kDLUInt`.
    pub const UINT: Self = Self(1);
    /// `kDLFloat`: IEEE 754.
    pub const FLOAT: Self = Self(2);
    /// `kDLOpaqueHandle`.
    pub const OPAQUE_HANDLE: Self = Self(3);
    /// `kDLBfloat`.
    pub const BFLOAT: Self = Self(4);
    /// `kDLComplex`: two IEEE floats; `bits` counts both.
    pub const COMPLEX: Self = Self(5);
    /// `kDLBool`: one byte per element.
    pub const BOOL: Self = Self(6);
    /// `kDLFloat8_e3m4`.
    pub const FLOAT8_E3M4: Self = Self(7);
    /// `kDLFloat8_e4m3`.
    pub const FLOAT8_E4M3: Self = Self(8);
    /// `kDLFloat8_e4m3b11fnuz`.
    pub const FLOAT8_E4M3B11FNUZ: Self = Self(9);
    /// `kDLFloat8_e4m3fn`.
    pub const FLOAT8_E4M3FN: Self = Self(10);
    /// `kDLFloat8_e4m3fnuz`.
    pub const FLOAT8_E4M3FNUZ: Self = Self(11);
    /// `kDLFloat8_e5m2`.
    pub const FLOAT8_E5M2: Self = Self(12);
    /// `kDLFloat8_e5m2fnuz`.
    pub const FLOAT8_E5M2FNUZ: Self = Self(13);
    /// `kDLFloat8_e8m0fnu`.
    pub const FLOAT8_E8M0FNU: Self = Self(14);
    /// `kDLFloat6_e2m3fn`.
    pub const FLOAT6_E2M3FN: Self = Self(15);
    /// `kDLFloat6_e3m2fn`.
    pub const FLOAT6_E3M2FN: Self = Self(16);
    /// `kDLFloat4_e2m1fn`.
    pub const FLOAT4_E2M1FN: Self = Self(17);
}

/// `DLDataType`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DLDataType {
    /// The kind of number.
    pub code: DLDataTypeCode,
    /// Bits of one lane.
    pub bits: u8,
    /// Vector lanes; 1 for scalars.
    pub lanes: u16,
}

/// `DLTensor`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DLTensor {
    /// The start of the data; the first element is `byte_offset` bytes further. NULL if there are no elements.
    pub data: *mut c_void,
    /// The device of `data`.
    pub device: DLDevice,
    /// Number of dimensions.
    pub ndim: i32,
    /// Type of an element.
    pub dtype: DLDataType,
    /// `ndim` extents; may be NULL when `ndim` is 0.
    pub shape: *mut i64,
    /// `ndim` strides in elements; NULL means row-major before version 1.2.
    pub strides: *mut i64,
    /// Bytes from `data` to the first element.
    pub byte_offset: u64,
}

/// `DLManagedTensor`, the legacy (unversioned) managed tensor. It has no read-only flag.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensor {
    /// The tensor.
    pub dl_tensor: DLTensor,
    /// Opaque data of the producer.
    pub manager_ctx: *mut c_void,
    /// Frees the tensor and this struct; may be NULL. Called from any thread.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensor)>,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensorVersioned {
    /// Must be read first: if the major version differs, only `deleter` may be used.
    pub version: DLPackVersion,
    /// Opaque data of the producer.
    pub manager_ctx: *mut c_void,
    /// Frees the tensor and this struct; may be NULL. Called from any thread.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensorVersioned)>,
    /// `DLPACK_FLAG_BITMASK_*`.
    pub flags: u64,
    /// The tensor.
    pub dl_tensor: DLTensor,
}

/// The error callback of [`DLPackExchangeAPI::managed_tensor_allocator`]: context, kind, message.
pub type DLPackSetError = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char);
/// `DLPackManagedTensorAllocator`: allocates a tensor like the prototype; errors go to the callback alone.
pub type DLPackManagedTensorAllocator = unsafe extern "C" fn(
    *mut DLTensor,
    *mut *mut DLManagedTensorVersioned,
    *mut c_void,
    Option<DLPackSetError>,
) -> c_int;
/// `DLPackManagedTensorFromPyObjectNoSync`: exports a Python object without synchronising.
pub type DLPackManagedTensorFromPyObjectNoSync =
    unsafe extern "C" fn(*mut c_void, *mut *mut DLManagedTensorVersioned) -> c_int;
/// `DLPackManagedTensorToPyObjectNoSync`: makes a Python object of a managed tensor without synchronising.
pub type DLPackManagedTensorToPyObjectNoSync =
    unsafe extern "C" fn(*mut DLManagedTensorVersioned, *mut *mut c_void) -> c_int;
/// `DLPackDLTensorFromPyObjectNoSync`: fills a `DLTensor` that is valid until control returns.
pub type DLPackDLTensorFromPyObjectNoSync = unsafe extern "C" fn(*mut c_void, *mut DLTensor) -> c_int;
/// `DLPackCurrentWorkStream`: the stream that the library works on; NULL for the CPU.
pub type DLPackCurrentWorkStream = unsafe extern "C" fn(DLDeviceType, i32, *mut *mut c_void) -> c_int;

/// `DLPackExchangeAPIHeader`.
#[repr(C)]
#[derive(Debug)]
pub struct DLPackExchangeAPIHeader {
    /// The version of the table that follows.
    pub version: DLPackVersion,
    /// An older table, or NULL.
    pub prev_api: *mut DLPackExchangeAPIHeader,
}

/// `DLPackExchangeAPI`, the table behind `__dlpack_c_exchange_api__`.
#[repr(C)]
#[derive(Debug)]
pub struct DLPackExchangeAPI {
    /// Version and older tables.
    pub header: DLPackExchangeAPIHeader,
    /// Never NULL.
    pub managed_tensor_allocator: Option<DLPackManagedTensorAllocator>,
    /// Never NULL.
    pub managed_tensor_from_py_object_no_sync: Option<DLPackManagedTensorFromPyObjectNoSync>,
    /// Never NULL.
    pub managed_tensor_to_py_object_no_sync: Option<DLPackManagedTensorToPyObjectNoSync>,
    /// The only slot that may be NULL.
    pub dltensor_from_py_object_no_sync: Option<DLPackDLTensorFromPyObjectNoSync>,
    /// Never NULL.
    pub current_work_stream: Option<DLPackCurrentWorkStream>,
}

assert_layout!(DLPackVersion, size = 8, align = 4, major @ 0, minor @ 4);
assert_layout!(DLDevice, size = 8, align = 4, device_type @ 0, device_id @ 4);
assert_layout!(DLDataType, size = 4, align = 2, code @ 0, bits @ 1, lanes @ 2);
assert_layout!(
    DLTensor, size = 48, align = 8,
    data @ 0, device @ 8, ndim @ 16, dtype @ 20, shape @ 24, strides @ 32, byte_offset @ 40
);
assert_layout!(DLManagedTensor, size = 64, align = 8, dl_tensor @ 0, manager_ctx @ 48, deleter @ 56);
assert_layout!(
    DLManagedTensorVersioned, size = 80, align = 8,
    version @ 0, manager_ctx @ 8, deleter @ 16, flags @ 24, dl_tensor @ 32
);
assert_layout!(DLPackExchangeAPIHeader, size = 16, align = 8, version @ 0, prev_api @ 8);
assert_layout!(
    DLPackExchangeAPI, size = 56, align = 8,
    header @ 0, managed_tensor_allocator @ 16, managed_tensor_from_py_object_no_sync @ 24,
    managed_tensor_to_py_object_no_sync @ 32, dltensor_from_py_object_no_sync @ 40, current_work_stream @ 48
);
