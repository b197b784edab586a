//! Are our `repr(C)` structs and codes those of the headers? Peers' bindings of the same headers say so, and each side
//! reads what the other wrote.

#![allow(unsafe_code, reason = "reads the same C structs through two sets of bindings")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper that fails is a test that fails"
)]

mod support;

use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::Arc;

use arrow_array::ffi_stream::{ArrowArrayStreamReader, FFI_ArrowArrayStream};
use arrow_array::{Array, Int32Array, RecordBatch, RecordBatchIterator, RecordBatchReader, make_array};
use arrow_data::ffi::FFI_ArrowArray;
use arrow_dlpack::arrow::{DeviceArrayStream, export_device_array, export_schema, export_stream, read_schema};
use arrow_dlpack::dlpack::{export_legacy, export_versioned, import_versioned};
use arrow_dlpack::ffi::{arrow_device as ours_arrow, dlpack as ours};
use arrow_dlpack::{Conversion, DType, DeviceArray};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{DataType, Field};
use dlpack_ffi as peer;
use support::arrow::{field, list, shared};

macro_rules! same_struct {
    ($($name:ident { $($member:ident),+ })+) => { $(
        assert_eq!(size_of::<ours::$name>(), size_of::<peer::$name>(), stringify!($name));
        assert_eq!(align_of::<ours::$name>(), align_of::<peer::$name>(), stringify!($name));
        $(assert_eq!(
            offset_of!(ours::$name, $member),
            offset_of!(peer::$name, $member),
            concat!(stringify!($name), ".", stringify!($member))
        );)+
    )+ };
}

macro_rules! same_codes {
    ($ours:ident, $peer:ident: $($own:ident = $other:ident),+ $(,)?) => {
        $(assert_eq!(
            u32::try_from(ours::$ours::$own.0).unwrap(),
            peer::$peer::$other.0,
            stringify!($own)
        );)+
    };
}

#[test]
fn dlpack_structs_have_the_peers_size_alignment_and_offsets() {
    same_struct! {
        DLPackVersion { major, minor }
        DLDevice { device_type, device_id }
        DLDataType { code, bits, lanes }
        DLTensor { data, device, ndim, dtype, shape, strides, byte_offset }
        DLManagedTensor { dl_tensor, manager_ctx, deleter }
        DLManagedTensorVersioned { version, manager_ctx, deleter, flags, dl_tensor }
        DLPackExchangeAPIHeader { version, prev_api }
        DLPackExchangeAPI {
            header, managed_tensor_allocator, managed_tensor_from_py_object_no_sync,
            managed_tensor_to_py_object_no_sync, dltensor_from_py_object_no_sync, current_work_stream
        }
    }
}

#[test]
fn dlpack_versions_and_flags_are_the_peers() {
    assert_eq!(ours::DLPACK_MAJOR_VERSION, peer::DLPACK_MAJOR_VERSION);
    assert_eq!(ours::DLPACK_MINOR_VERSION, peer::DLPACK_MINOR_VERSION);
    for (own, other) in [
        (ours::DLPACK_FLAG_BITMASK_READ_ONLY, peer::DLPACK_FLAG_BITMASK_READ_ONLY),
        (ours::DLPACK_FLAG_BITMASK_IS_COPIED, peer::DLPACK_FLAG_BITMASK_IS_COPIED),
        (ours::DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED, peer::DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED),
    ] {
        assert_eq!(own, u64::from(other));
    }
}

#[test]
fn dlpack_codes_are_the_peers() {
    same_codes!(DLDataTypeCode, DLDataTypeCode:
        INT = kDLInt, UINT = kDLUInt, FLOAT = kDLFloat, OPAQUE_HANDLE = kDLOpaqueHandle, BFLOAT = kDLBfloat,
        COMPLEX = kDLComplex, BOOL = kDLBool, FLOAT8_E3M4 = kDLFloat8_e3m4, FLOAT8_E4M3 = kDLFloat8_e4m3,
        FLOAT8_E4M3B11FNUZ = kDLFloat8_e4m3b11fnuz, FLOAT8_E4M3FN = kDLFloat8_e4m3fn,
        FLOAT8_E4M3FNUZ = kDLFloat8_e4m3fnuz, FLOAT8_E5M2 = kDLFloat8_e5m2, FLOAT8_E5M2FNUZ = kDLFloat8_e5m2fnuz,
        FLOAT8_E8M0FNU = kDLFloat8_e8m0fnu, FLOAT6_E2M3FN = kDLFloat6_e2m3fn, FLOAT6_E3M2FN = kDLFloat6_e3m2fn,
        FLOAT4_E2M1FN = kDLFloat4_e2m1fn,
    );
    same_codes!(DLDeviceType, DLDeviceType:
        CPU = kDLCPU, CUDA = kDLCUDA, CUDA_HOST = kDLCUDAHost, OPENCL = kDLOpenCL, VULKAN = kDLVulkan,
        METAL = kDLMetal, VPI = kDLVPI, ROCM = kDLROCM, ROCM_HOST = kDLROCMHost, EXT_DEV = kDLExtDev,
        CUDA_MANAGED = kDLCUDAManaged, ONEAPI = kDLOneAPI, WEBGPU = kDLWebGPU, HEXAGON = kDLHexagon,
        MAIA = kDLMAIA, TRN = kDLTrn,
    );
}

#[test]
fn the_peer_reads_our_managed_tensors() {
    let tensor = Conversion::default().to_tensor(&Int32Array::from(vec![5, 6, 7])).unwrap();
    let versioned = export_versioned(&tensor, false).unwrap().into_raw().cast::<peer::DLManagedTensorVersioned>();
    // SAFETY: a live struct, which the test above shows to be the peer's.
    let read = unsafe { versioned.read() };
    assert_eq!((read.version.major, read.version.minor), (1, 3));
    assert_eq!(read.flags, u64::from(peer::DLPACK_FLAG_BITMASK_READ_ONLY));
    assert_peer_reads(&read.dl_tensor);
    // SAFETY: exported above, deleted once.
    unsafe { (read.deleter.unwrap())(versioned.as_ptr()) };

    let legacy = export_legacy(&tensor).unwrap().into_raw().cast::<peer::DLManagedTensor>();
    // SAFETY: exported above, alive until it is deleted below.
    let read = unsafe { legacy.read() };
    assert_peer_reads(&read.dl_tensor);
    // SAFETY: exported above, deleted once.
    unsafe { (read.deleter.unwrap())(legacy.as_ptr()) };
}

fn assert_peer_reads(tensor: &peer::DLTensor) {
    assert_eq!((tensor.device.device_type, tensor.device.device_id), (peer::DLDeviceType::kDLCPU, 0));
    assert_eq!(u32::from(tensor.dtype.code), peer::DLDataTypeCode::kDLInt.0);
    assert_eq!((tensor.dtype.bits, tensor.dtype.lanes, tensor.ndim, tensor.byte_offset), (32, 1, 1, 0));
    // SAFETY: one dimension.
    assert_eq!(unsafe { tensor.shape.read() }, 3);
    // SAFETY: one dimension; our strides are never NULL.
    assert_eq!(unsafe { tensor.strides.read() }, 1);
    // SAFETY: three elements of int32, alive until the deleter runs.
    assert_eq!(unsafe { std::slice::from_raw_parts(tensor.data.cast::<i32>(), 3) }, [5, 6, 7]);
}

#[test]
fn we_read_the_peers_managed_tensors() {
    let (mut data, mut shape, mut strides) = ([1.5_f64, 2.5, 3.5, 4.5], [2_i64, 2], [1_i64, 2]);
    let mut managed = peer::DLManagedTensorVersioned {
        version: peer::DLPackVersion { major: peer::DLPACK_MAJOR_VERSION, minor: peer::DLPACK_MINOR_VERSION },
        manager_ctx: std::ptr::null_mut(),
        deleter: None,
        flags: u64::from(peer::DLPACK_FLAG_BITMASK_IS_COPIED),
        dl_tensor: peer::DLTensor {
            data: data.as_mut_ptr().cast(),
            device: peer::DLDevice { device_type: peer::DLDeviceType::kDLCPU, device_id: 0 },
            ndim: 2,
            dtype: peer::DLDataType {
                code: u8::try_from(peer::DLDataTypeCode::kDLFloat.0).unwrap(),
                bits: 64,
                lanes: 1,
            },
            shape: shape.as_mut_ptr(),
            strides: strides.as_mut_ptr(),
            byte_offset: 0,
        },
    };
    // SAFETY: a valid tensor over locals that outlive it; without a deleter nothing is freed.
    let tensor = unsafe { import_versioned(NonNull::from(&mut managed).cast()) }.unwrap();
    assert_eq!((tensor.dtype(), tensor.shape(), tensor.strides()), (DType::Float64, &[2, 2][..], &[1, 2][..]));
    assert!(tensor.is_copied() && tensor.is_writable());
    assert_eq!(support::reference::read(&tensor), [1.5_f64, 3.5, 2.5, 4.5].map(|value| value.to_ne_bytes().to_vec()));
}

#[test]
fn arrow_structs_have_the_size_and_alignment_of_arrow_rs() {
    assert_eq!(size_of::<ours_arrow::ArrowArray>(), size_of::<FFI_ArrowArray>());
    assert_eq!(align_of::<ours_arrow::ArrowArray>(), align_of::<FFI_ArrowArray>());
    assert_eq!(size_of::<ours_arrow::ArrowSchema>(), size_of::<FFI_ArrowSchema>());
    assert_eq!(align_of::<ours_arrow::ArrowSchema>(), align_of::<FFI_ArrowSchema>());
    assert_eq!(size_of::<ours_arrow::ArrowArrayStream>(), size_of::<FFI_ArrowArrayStream>());
    assert_eq!(align_of::<ours_arrow::ArrowArrayStream>(), align_of::<FFI_ArrowArrayStream>());
}

#[test]
fn arrow_rs_reads_our_arrays_and_schemas() {
    let array = nested();
    let own = field("rows", array.data_type().clone());
    let mut exported = export_device_array(&shared(&array, &own)).unwrap().into_raw();
    let mut schema = export_schema(&own).unwrap().into_raw();
    // SAFETY: ours is the C struct of the interface; `from_raw` moves it and leaves a released one.
    let imported = unsafe { FFI_ArrowArray::from_raw((&raw mut exported.array).cast()) };
    assert!(exported.array.release.is_none());
    // SAFETY: ours is the C struct of the interface; `from_raw` moves it and leaves a released one.
    let schema = unsafe { FFI_ArrowSchema::from_raw((&raw mut schema).cast()) };
    assert_eq!(Field::try_from(&schema).unwrap(), *own);
    // SAFETY: a valid array of that schema.
    let data = unsafe { arrow_array::ffi::from_ffi(imported, &schema) }.unwrap();
    data.validate_full().unwrap();
    assert_eq!(make_array(data).to_data(), array.to_data());
}

#[test]
fn we_read_the_arrays_and_schemas_of_arrow_rs() {
    let array = nested();
    let own = field("rows", array.data_type().clone());
    let mut exported = FFI_ArrowArray::new(&array.to_data());
    let schema = FFI_ArrowSchema::try_from(own.as_ref()).unwrap();
    // SAFETY: both are `struct ArrowSchema` of the C data interface; borrowed from a local.
    let foreign = unsafe { &*(&raw const schema).cast::<ours_arrow::ArrowSchema>() };
    // SAFETY: a valid schema, alive during the call.
    let read = unsafe { read_schema(foreign) }.unwrap();
    assert_eq!(read, *own);
    // SAFETY: both are `struct ArrowArray` of the C data interface; valid, and moved out of `exported`.
    let imported = unsafe { DeviceArray::import((&raw mut exported).cast(), Arc::new(read)) }.unwrap();
    assert!(exported.is_released());
    assert_eq!(imported.to_arrow().unwrap().to_data(), array.to_data());
}

fn nested() -> arrow_array::ArrayRef {
    let data_type = DataType::Struct([field("a", list(DataType::Int16, 3)), field("b", DataType::Boolean)].into());
    let mut random = support::Random(1);
    let columns = vec![
        support::arrow::random_array(&list(DataType::Int16, 3), 20, 4, &mut random),
        support::arrow::random_array(&DataType::Boolean, 20, 4, &mut random),
    ];
    let DataType::Struct(fields) = data_type else { unreachable!("made above") };
    Arc::new(arrow_array::StructArray::new(fields, columns, None).slice(3, 14))
}

#[test]
fn streams_are_read_both_ways() {
    let batch = RecordBatch::try_from_iter([("x", Arc::new(Int32Array::from(vec![1, 2])) as _)]).unwrap();
    let schema = batch.schema();
    let reader = RecordBatchIterator::new([Ok(batch.clone()), Ok(batch.clone())], schema.clone());
    let mut theirs = FFI_ArrowArrayStream::new(Box::new(reader));
    // SAFETY: both are `struct ArrowArrayStream` of the C stream interface; valid, and moved out of `theirs`.
    let stream = unsafe { DeviceArrayStream::import((&raw mut theirs).cast()) }.unwrap();
    let mut own = export_stream(stream).unwrap().into_raw();
    // SAFETY: both are `struct ArrowArrayStream` of the C stream interface; valid, and moved out of `own`.
    let reader = unsafe { ArrowArrayStreamReader::from_raw((&raw mut own).cast()) }.unwrap();
    assert_eq!(reader.schema(), schema);
    assert_eq!(reader.collect::<Result<Vec<_>, _>>().unwrap(), [batch.clone(), batch]);
}

#[test]
fn a_device_array_is_read_at_its_offsets() {
    let exported =
        export_device_array(&shared(&Int32Array::from(vec![1]), &field("x", DataType::Int32))).unwrap().into_raw();
    let bytes = (&raw const exported).cast::<u8>();
    // SAFETY: byte 80 of the 128 of `struct ArrowDeviceArray` is its device_id, by the header.
    let device_id = unsafe { bytes.wrapping_add(80).cast::<i64>().read() };
    // SAFETY: byte 88 is its device_type.
    let device_type = unsafe { bytes.wrapping_add(88).cast::<i32>().read() };
    // SAFETY: byte 96 is its sync_event.
    let sync_event = unsafe { bytes.wrapping_add(96).cast::<usize>().read() };
    assert_eq!((device_id, device_type, sync_event, exported.reserved), (-1, 1, 0, [0; 3]));
    let mut array = exported.array;
    support::arrow::release(&mut array);
}
