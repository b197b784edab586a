//! Managed tensors.

use std::ptr::{NonNull, null_mut, without_provenance_mut};

use arrow_dlpack::arrow::ReleaseGuard;
use arrow_dlpack::dlpack::{adopt_versioned, import_legacy, import_versioned};
use arrow_dlpack::ffi::dlpack::{DLDataTypeCode, DLDeviceType, DLManagedTensor, DLManagedTensorVersioned, DLTensor};
use arrow_dlpack::{Conversion, CopyMode, DType, Error, ErrorKind, Tensor, to_arrow};

use crate::generator::tensors::{Description, Flaw, exercise};
use crate::misaligned;
use crate::support::dlpack::{Memory, int32s};

/// Both kinds of managed tensor with the same broken `DLTensor`: an error that has all of `words`, and one release.
fn assert_tensor_refused(shape: &[i64], strides: &[i64], edit: impl Fn(&mut DLTensor), words: &[&str]) {
    let memory = || Memory::new(&[0; 96], DType::Int32, shape, strides, 0);
    let versioned = memory().import_edited(|managed| edit(&mut managed.dl_tensor));
    let legacy = memory().import_legacy(|managed| edit(&mut managed.dl_tensor));
    for (outcome, released) in [versioned, legacy] {
        let error = outcome.expect_err(&format!("{shape:?} {strides:?} {words:?}"));
        assert!(words.iter().all(|word| error.to_string().contains(word)), "{error} lacks one of {words:?}");
        assert_eq!(released.get(), 1, "{error}");
    }
}

#[test]
fn broken_members_of_a_dltensor_are_named() {
    type Edit = fn(&mut DLTensor);
    let edits: [(Edit, &[&str]); 20] = [
        // The offset alone could be, and the elements behind it not.
        (|tensor| tensor.byte_offset = 1 << 56, &["DLTensor.byte_offset", "address space"]),
        (|tensor| tensor.byte_offset = 1 << 62, &["DLTensor.byte_offset", "address space"]),
        (|tensor| tensor.ndim = -1, &["DLTensor.ndim", "-1"]),
        (|tensor| tensor.ndim = i32::MIN, &["DLTensor.ndim"]),
        (|tensor| tensor.ndim = 65, &["DLTensor.ndim", "65"]),
        (|tensor| tensor.ndim = i32::MAX, &["DLTensor.ndim"]),
        (|tensor| tensor.shape = null_mut(), &["DLTensor.shape", "NULL"]),
        (|tensor| tensor.shape = misaligned(tensor.shape), &["DLTensor.shape", "misaligned"]),
        (|tensor| tensor.strides = misaligned(tensor.strides), &["DLTensor.strides", "misaligned"]),
        (|tensor| tensor.data = null_mut(), &["DLTensor.data", "NULL"]),
        (|tensor| tensor.byte_offset = u64::MAX, &["DLTensor.byte_offset"]),
        (|tensor| tensor.byte_offset = 1 << 63, &["address space"]),
        (|tensor| tensor.data = without_provenance_mut(usize::MAX - 8), &["address space"]),
        (|tensor| tensor.dtype.code = DLDataTypeCode(255), &["DLDataType", "code 255"]),
        (|tensor| tensor.dtype.code = DLDataTypeCode::OPAQUE_HANDLE, &["DLDataType", "code 3"]),
        (|tensor| tensor.dtype.bits = 0, &["DLDataType", "bits 0"]),
        (|tensor| tensor.dtype.bits = 31, &["DLDataType", "bits 31"]),
        (|tensor| tensor.dtype.bits = 4, &["DLDataType", "bits 4"]),
        (|tensor| tensor.dtype.lanes = 0, &["DLDataType", "lanes 0"]),
        (|tensor| tensor.dtype.lanes = 4, &["DLDataType", "lanes 4"]),
    ];
    for (edit, words) in edits {
        assert_tensor_refused(&[2, 3], &[3, 1], edit, words);
    }
}

#[test]
fn shapes_and_strides_that_cannot_be_are_refused() {
    let (max, min) = (i64::MAX, i64::MIN);
    let layouts: [(&[i64], &[i64]); 14] = [
        (&[2], &[1 << 60]),
        (&[-1], &[1]),
        (&[min], &[1]),
        (&[3, -2], &[1, 1]),
        (&[0, -2], &[1, 1]),
        (&[-2, 0], &[1, 1]),
        (&[max], &[1]),
        (&[max, 2], &[0, 0]),
        (&[1 << 32, 1 << 32], &[0, 0]),
        (&[max, max, 0], &[0, 0, 0]),
        (&[2], &[max]),
        (&[2], &[min]),
        (&[3, 3], &[max / 2, max / 2]),
        (&[1 << 60], &[-1]),
    ];
    for (shape, strides) in layouts {
        assert_tensor_refused(shape, strides, |_| (), &["shape"]);
    }
    assert_tensor_refused(&[max, 2], &[0, 0], |tensor| tensor.strides = null_mut(), &["shape"]);
    assert_tensor_refused(&[-1, 2], &[0, 0], |tensor| tensor.strides = null_mut(), &["shape"]);
}

#[test]
fn a_misaligned_managed_tensor_is_refused_unread() {
    // No memory is at this address.
    let versioned = NonNull::new(without_provenance_mut::<DLManagedTensorVersioned>(4097)).unwrap();
    let legacy = NonNull::new(without_provenance_mut::<DLManagedTensor>(4097)).unwrap();
    let direct: ReleaseGuard = |release| release();
    // SAFETY: misaligned on purpose, which import has to find.
    let imported = unsafe { import_versioned(versioned) };
    // SAFETY: misaligned on purpose, which import has to find.
    let adopted = unsafe { adopt_versioned(versioned, direct, Ok::<Tensor, Error>) };
    // SAFETY: misaligned on purpose, which import has to find.
    let of_legacy = unsafe { import_legacy(legacy) };
    for outcome in [imported, adopted, of_legacy] {
        let error = outcome.unwrap_err();
        assert!(error.kind() == ErrorKind::Invalid && error.reason().contains("misaligned"), "{error}");
    }
}

#[test]
fn tensors_have_at_most_64_dimensions() {
    let (tensor, _) = Memory::new(&[7, 0, 0, 0], DType::Int32, &[1; 64], &[1; 64], 0).import();
    assert_eq!(tensor.unwrap().shape(), [1; 64]);
    assert_tensor_refused(&[1; 65], &[1; 65], |_| (), &["DLTensor.ndim", "65"]);
}

#[test]
fn of_another_major_version_nothing_but_the_deleter_is_touched() {
    for major in [0, 2, u32::MAX] {
        let (outcome, released) = Memory::four().import_edited(|managed| {
            managed.version.major = major;
            managed.dl_tensor.ndim = i32::MAX;
            managed.dl_tensor.shape = without_provenance_mut(8);
            managed.flags = u64::MAX;
        });
        let error = outcome.unwrap_err();
        assert!(error.reason().contains(&format!("version {major}.3")), "{error}");
        assert_eq!(released.get(), 1);
    }
}

#[test]
fn newer_minor_versions_and_unknown_flags_are_read() {
    let (tensor, _) = Memory::four().import_edited(|managed| {
        managed.version.minor = 999;
        managed.flags = 1 << 63 | 1 << 17;
    });
    let tensor = tensor.unwrap();
    assert!(tensor.is_writable() && !tensor.is_copied());
    assert_eq!(int32s(&tensor), [1, 2, 3, 4]);
}

#[test]
fn odd_but_legal_tensors_are_read() {
    // NULL strides are row-major.
    let (tensor, _) = Memory::new(&[0; 24], DType::Int32, &[2, 3], &[9, 9], 0)
        .import_edited(|managed| managed.dl_tensor.strides = null_mut());
    assert_eq!(tensor.unwrap().strides(), [3, 1]);
    // Without dimensions nobody looks at the shape.
    for shape in [null_mut(), NonNull::dangling().as_ptr()] {
        let (tensor, _) = Memory::new(&[7, 0, 0, 0], DType::Int32, &[], &[], 0).import_edited(|managed| {
            managed.dl_tensor.shape = shape;
            managed.dl_tensor.strides = null_mut();
        });
        assert_eq!(int32s(&tensor.unwrap()), [7]);
    }
    // Without elements neither data nor strides mean anything.
    let (tensor, _) = Memory::new(&[], DType::Int32, &[3, 0], &[i64::MIN, i64::MAX], 0).import_edited(|managed| {
        managed.dl_tensor.data = null_mut();
    });
    let tensor = tensor.unwrap();
    assert_eq!((tensor.shape(), tensor.strides(), tensor.as_ptr().is_null()), (&[3, 0][..], &[1, 1][..], true));
    // The CPU is one device, whatever its id.
    let (tensor, _) = Memory::four().import_edited(|managed| managed.dl_tensor.device.device_id = 7);
    assert_eq!(int32s(&tensor.unwrap()), [1, 2, 3, 4]);
}

#[test]
fn misaligned_elements_are_never_lent_as_a_slice() {
    let bytes: Vec<u8> = (0..17).collect();
    let (tensor, _) =
        Memory::new(&bytes, DType::Int32, &[4], &[1], 0).import_edited(|managed| managed.dl_tensor.byte_offset = 1);
    let tensor = tensor.unwrap();
    assert!(!tensor.is_aligned() && tensor.as_slice::<i32>().is_err() && tensor.as_bytes().is_err());
    // SAFETY: nobody writes to the memory.
    assert!(unsafe { tensor.lent_slice::<i32>() }.is_err());
    // SAFETY: nobody writes to the memory.
    assert!(unsafe { tensor.lent_bytes() }.is_err());
    let array = to_arrow(&tensor, None, CopyMode::IfNeeded).unwrap();
    assert_eq!(Conversion::default().to_tensor(&array).unwrap().as_bytes().unwrap(), &bytes[1..]);
}

#[test]
fn elements_on_a_device_are_not_touched() {
    for (device_type, id) in [(DLDeviceType::CUDA, 0), (DLDeviceType(99), -3), (DLDeviceType(i32::MIN), i32::MAX)] {
        let (tensor, released) = Memory::four().import_edited(|managed| {
            managed.dl_tensor.device.device_type = device_type;
            managed.dl_tensor.device.device_id = id;
            managed.dl_tensor.data = without_provenance_mut(0x1000);
        });
        let tensor: Tensor = tensor.unwrap();
        assert_eq!((tensor.device().device_type(), tensor.device().id()), (device_type, id));
        assert_eq!(tensor.as_slice::<i32>().unwrap_err().kind(), ErrorKind::Device);
        for copy in [CopyMode::Never, CopyMode::IfNeeded] {
            let array = to_arrow(&tensor, None, copy).unwrap();
            assert_eq!((array.device(), array.len()), (tensor.device(), 4));
            assert_eq!(array.to_arrow().unwrap_err().kind(), ErrorKind::Device);
        }
        assert_eq!(to_arrow(&tensor, None, CopyMode::Always).unwrap_err().kind(), ErrorKind::Device);
        drop(tensor);
        assert_eq!(released.get(), 1);
    }
}

#[test]
fn a_broadcast_beyond_all_memory_is_refused_when_it_is_copied() {
    let (tensor, released) = Memory::new(&[1, 0, 0, 0], DType::Int32, &[i64::MAX], &[0], 0).import();
    let tensor = tensor.unwrap();
    assert_eq!(to_arrow(&tensor, None, CopyMode::IfNeeded).unwrap_err().kind(), ErrorKind::Memory);
    assert_eq!(to_arrow(&tensor, None, CopyMode::Never).unwrap_err().kind(), ErrorKind::Copy);
    drop(tensor);
    assert_eq!(released.get(), 1);
}

#[test]
fn elements_ahead_of_a_wide_offset_take_no_memory_behind_it() {
    let (shape, strides, widest) = ([1 << 40, 4], [-4, -1], (1_u64 << 56) - 4);
    for (byte_offset, is_read) in [(widest - 1, true), (widest, false)] {
        let memory = || Memory::new(&[0; 96], DType::Int32, &shape, &strides, 0);
        let read = memory().import_edited(|managed| managed.dl_tensor.byte_offset = byte_offset).0;
        assert_eq!(read.is_ok(), is_read, "{read:?}");
        let wide = Description::new((0, 32), &shape, Some(&strides));
        let exercised = exercise(&wide, &[Flaw::ByteOffset(byte_offset)]);
        assert_eq!(exercised.is_err(), is_read, "what is read nobody can tell");
    }
}
