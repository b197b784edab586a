//! What happens to structs that break their specification? A clear error that names the member, or the right data; and
//! exactly one release.

#![allow(unsafe_code, reason = "breaks C structs on purpose")]

mod support;

use std::ffi::{CString, c_char, c_void};
use std::ptr::{NonNull, null, null_mut, without_provenance_mut};
use std::sync::Arc;

use arrow_array::types::{Int8Type, Int32Type};
use arrow_array::{
    Array, ArrayRef, BinaryViewArray, DictionaryArray, Int8Array, Int32Array, LargeStringArray, ListArray,
    ListViewArray, RunArray, StringArray, StringViewArray, StructArray, UnionArray,
};
use arrow_dlpack::arrow::{read_schema, release_directly};
use arrow_dlpack::ffi::arrow_device::{ArrowArray, ArrowDeviceArray, ArrowSchema};
use arrow_dlpack::ffi::dlpack::{DLDataTypeCode, DLDeviceType, DLTensor};
use arrow_dlpack::{
    CopyMode, DType, DeviceArray, ErrorKind, NullPolicy, Options, Result, Tensor, request_field, to_arrow, to_tensor,
};
use arrow_schema::{DataType, Field, FieldRef, UnionFields};
use support::arrow::{child_of, counted, field, import_edited, list, random_array, release, set_buffer};
use support::dlpack::Memory;
use support::{Count, Random};

// Managed tensors.

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

fn misaligned<T>(pointer: *mut T) -> *mut T {
    pointer.wrapping_byte_add(1)
}

#[test]
fn broken_members_of_a_dltensor_are_named() {
    type Edit = fn(&mut DLTensor);
    let edits: [(Edit, &[&str]); 18] = [
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
    let layouts: [(&[i64], &[i64]); 13] = [
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
    assert_eq!(tensor.as_slice::<i32>().unwrap(), [1, 2, 3, 4]);
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
        assert_eq!(tensor.unwrap().as_slice::<i32>().unwrap(), [7]);
    }
    // Without elements neither data nor strides mean anything.
    let (tensor, _) = Memory::new(&[], DType::Int32, &[3, 0], &[i64::MIN, i64::MAX], 0).import_edited(|managed| {
        managed.dl_tensor.data = null_mut();
    });
    let tensor = tensor.unwrap();
    assert_eq!((tensor.shape(), tensor.strides(), tensor.as_ptr().is_null()), (&[3, 0][..], &[1, 1][..], true));
    // The CPU is one device, whatever its id.
    let (tensor, _) = Memory::four().import_edited(|managed| managed.dl_tensor.device.device_id = 7);
    assert!(tensor.unwrap().as_slice::<i32>().is_ok());
}

#[test]
fn misaligned_elements_are_never_lent_as_a_slice() {
    let bytes: Vec<u8> = (0..17).collect();
    let (tensor, _) =
        Memory::new(&bytes, DType::Int32, &[4], &[1], 0).import_edited(|managed| managed.dl_tensor.byte_offset = 1);
    let tensor = tensor.unwrap();
    assert!(!tensor.is_aligned() && tensor.as_slice::<i32>().is_err() && tensor.as_bytes().is_err());
    let array = to_arrow(&tensor, None, CopyMode::IfNeeded).unwrap();
    assert_eq!(to_tensor(&array, &Options::default()).unwrap().as_bytes().unwrap(), &bytes[1..]);
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
        for copy in [CopyMode::Never, CopyMode::IfNeeded, CopyMode::Always] {
            assert_eq!(to_arrow(&tensor, None, copy).unwrap_err().kind(), ErrorKind::Device);
        }
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

// Arrow arrays.

/// A broken struct: an error that has all of `words`, and one release.
fn assert_array_refused(array: &dyn Array, edit: impl FnOnce(&mut ArrowArray), words: &[&str]) {
    let own = field("x", array.data_type().clone());
    let (outcome, released) = import_edited(array, &own, edit);
    let error = outcome.expect_err(&format!("{} {words:?}", array.data_type()));
    assert!(words.iter().all(|word| error.to_string().contains(word)), "{error} lacks one of {words:?}");
    assert!(error.column().is_some(), "{error}");
    assert_eq!(released.get(), 1, "{error}");
}

fn every_count_is_checked(array: &dyn Array) {
    type Edit = fn(&mut ArrowArray);
    let edits: [(Edit, &[&str]); 15] = [
        (|array| array.length = -1, &["ArrowArray.length", "-1"]),
        (|array| array.length = i64::MIN, &["ArrowArray.length"]),
        (|array| array.offset = -1, &["ArrowArray.offset", "-1"]),
        (|array| array.offset = i64::MAX, &["ArrowArray.offset", "overflows"]),
        (|array| (array.offset, array.length) = (i64::MAX, i64::MAX), &["ArrowArray.offset", "overflows"]),
        (|array| array.null_count = -2, &["ArrowArray.null_count", "-2"]),
        (|array| array.null_count = i64::MIN, &["ArrowArray.null_count"]),
        (|array| array.null_count = array.length + 1, &["ArrowArray.null_count"]),
        (|array| array.n_buffers = -1, &["ArrowArray.n_buffers", "-1"]),
        (|array| array.n_buffers = 0, &["ArrowArray.n_buffers"]),
        (|array| array.n_buffers += 1, &["ArrowArray.n_buffers"]),
        (|array| array.n_children = -1, &["ArrowArray.n_children", "-1"]),
        (|array| array.n_children += 1, &["ArrowArray.n_children"]),
        (|array| array.buffers = null_mut(), &["ArrowArray.buffers", "NULL"]),
        (|array| array.buffers = misaligned(array.buffers), &["ArrowArray.buffers", "misaligned"]),
    ];
    for (edit, words) in edits {
        assert_array_refused(array, edit, words);
    }
}

fn with_nulls(data_type: &DataType) -> ArrayRef {
    random_array(data_type, 9, 3, &mut Random(4))
}

fn strings() -> StringArray {
    StringArray::from(vec![Some("ab"), None, Some("cde")])
}

fn lists() -> ListArray {
    ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None]), None, Some(vec![Some(3)])])
}

fn rows() -> StructArray {
    StructArray::from(vec![(field("a", DataType::Int32), with_nulls(&DataType::Int32))])
}

#[test]
fn every_count_of_an_array_is_checked() {
    for data_type in [DataType::Int32, DataType::Boolean, list(DataType::Int8, 2)] {
        every_count_is_checked(&with_nulls(&data_type));
    }
    every_count_is_checked(&strings());
    every_count_is_checked(&lists());
    every_count_is_checked(&rows());
}

#[test]
fn buffers_end_inside_the_address_space() {
    for array in [&with_nulls(&DataType::Int32) as &dyn Array, &with_nulls(&DataType::Int16), &strings(), &lists()] {
        assert_array_refused(
            array,
            |array| (array.offset, array.length) = (0, i64::MAX),
            &["buffer 1", "address space"],
        );
        assert_array_refused(array, |array| (array.offset, array.null_count) = (i64::MAX - 9, 0), &["buffer 1"]);
    }
}

#[test]
fn buffers_may_be_null_only_where_nothing_is_in_them() {
    for array in [&with_nulls(&DataType::Int32) as &dyn Array, &with_nulls(&DataType::Boolean), &strings(), &lists()] {
        assert_array_refused(array, |array| set_buffer(array, 0, null()), &["buffer 0", "NULL"]);
        assert_array_refused(array, |array| set_buffer(array, 1, null()), &["buffer 1", "NULL"]);
    }
    assert_array_refused(&with_nulls(&list(DataType::Int8, 2)), |array| set_buffer(array, 0, null()), &["buffer 0"]);
    let far = without_provenance_mut::<c_void>(usize::MAX - 3).cast_const();
    assert_array_refused(&with_nulls(&DataType::Int32), |array| set_buffer(array, 1, far), &["buffer 1", "address"]);

    // No nulls need no bitmap; no slots need no buffer at all.
    let array = Int32Array::from(vec![Some(1), None]);
    let (imported, _) = import_edited(&array, &field("x", DataType::Int32), |array| {
        set_buffer(array, 0, null());
        array.null_count = -1;
    });
    assert_eq!(to_tensor(&imported.unwrap(), &Options::default()).unwrap().len(), 2);
    let (imported, _) = import_edited(&array, &field("x", DataType::Int32), |array| {
        set_buffer(array, 0, null());
        set_buffer(array, 1, null());
        (array.length, array.null_count) = (0, 0);
    });
    let imported = imported.unwrap();
    assert!(to_tensor(&imported, &Options::default()).unwrap().is_empty());
    assert_eq!(imported.to_arrow().unwrap().len(), 0);
}

#[test]
fn children_must_be_there_and_long_enough() {
    for array in [&with_nulls(&list(DataType::Int8, 2)) as &dyn Array, &rows()] {
        assert_array_refused(array, |array| array.children = null_mut(), &["ArrowArray.children", "NULL"]);
        assert_array_refused(array, |array| array.children = misaligned(array.children), &["ArrowArray.children"]);
        // SAFETY: the helper's array of children has an entry.
        let no_child = |array: &mut ArrowArray| unsafe { array.children.write(null_mut()) };
        assert_array_refused(array, no_child, &["ArrowArray.children", "NULL"]);
        assert_array_refused(array, |array| child_of(array, 0).length -= 1, &["child has", "slots"]);
        assert_array_refused(array, |array| child_of(array, 0).length = -1, &["ArrowArray.length"]);
        assert_array_refused(array, |array| child_of(array, 0).offset = i64::MAX, &["ArrowArray.offset"]);
        assert_array_refused(array, |array| child_of(array, 0).n_buffers = 1, &["ArrowArray.n_buffers"]);
        assert_array_refused(array, |array| child_of(array, 0).null_count = 100, &["ArrowArray.null_count"]);
        assert_array_refused(array, |array| array.length += 1, &["child has", "10 slots"]);
    }
    let own = field("outer", rows().data_type().clone());
    let error = import_edited(&rows(), &own, |array| child_of(array, 0).length = 1).0.unwrap_err();
    assert_eq!(error.column(), Some("a"), "the narrowest column is named");
}

#[test]
fn dictionaries_are_where_the_type_has_one() {
    let dictionary: DictionaryArray<Int8Type> = ["a", "b"].into_iter().collect();
    assert_array_refused(&dictionary, |array| array.dictionary = null_mut(), &["ArrowArray.dictionary", "NULL"]);
    assert_array_refused(
        &dictionary,
        |array| array.dictionary = misaligned(array.dictionary),
        &["ArrowArray.dictionary"],
    );
    let (mut other, released) = counted(&Int32Array::from(vec![1]));
    let stray = &raw mut other;
    assert_array_refused(&Int32Array::from(vec![1]), |array| array.dictionary = stray, &["ArrowArray.dictionary"]);
    release(&mut other);
    assert_eq!(released.get(), 1);
}

#[test]
fn nesting_without_end_is_refused() {
    let mut data_type = DataType::Int8;
    for _ in 0..70 {
        data_type = list(data_type, 1);
    }
    assert_array_refused(&random_array(&data_type, 1, 0, &mut Random(1)), |_| (), &["64 levels"]);
}

#[test]
fn null_counts_that_lie_are_not_believed() {
    let array = Int32Array::from(vec![Some(1), None, Some(3), None]);
    for (claimed, nulls) in [(1, 2), (4, 2), (-1, 2)] {
        let (imported, released) =
            import_edited(&array, &field("x", DataType::Int32), |array| array.null_count = claimed);
        let imported = imported.unwrap();
        let error = to_tensor(&imported, &Options::default()).unwrap_err();
        assert!(error.reason().contains(&format!("{nulls} nulls")) && error.row() == Some(1), "{error}");
        let kept = to_tensor(&imported, &Options::default().nulls(NullPolicy::Keep)).unwrap();
        assert_eq!(kept.as_slice::<i32>().unwrap()[2], 3);
        match imported.to_arrow() {
            Ok(arrow) => assert_eq!(arrow.null_count(), nulls),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Invalid),
        }
        drop((imported, kept));
        assert_eq!(released.get(), 1);
    }
}

// What only the contents of host buffers show: found before anyone reads by it.

/// An array whose structs are in order and whose contents are not: refused as arrow-rs' array and as another type.
fn assert_contents_refused(array: &dyn Array, edit: impl FnOnce(&mut ArrowArray), words: &[&str]) {
    let own = field("x", array.data_type().clone());
    let (imported, released) = import_edited(array, &own, edit);
    let imported = imported.unwrap();
    let error = imported.to_arrow().expect_err(&format!("{} {words:?}", array.data_type()));
    assert_eq!((error.kind(), error.column()), (ErrorKind::Invalid, Some("x")), "{error}");
    assert!(words.iter().all(|word| error.to_string().contains(word)), "{error} lacks one of {words:?}");
    assert!(request_field(&imported, &field("x", DataType::Boolean)).is_err());
    drop(imported);
    assert_eq!(released.get(), 1);
}

fn pointer<T>(values: &[T]) -> *const c_void {
    values.as_ptr().cast()
}

#[test]
fn offsets_that_lead_out_of_their_array_are_refused() {
    let large = LargeStringArray::from(vec!["ab", "c", "de"]);
    for offsets in [[0_i32, 2, 2, -1], [0, 2, 1, 5], [-1, 2, 3, 5], [3, 2, 2, 5], [0, i32::MIN, 2, i32::MIN]] {
        assert_contents_refused(&strings(), |array| set_buffer(array, 1, pointer(&offsets)), &[]);
        let offsets = offsets.map(i64::from);
        assert_contents_refused(&large, |array| set_buffer(array, 1, pointer(&offsets)), &[]);
    }
    for offsets in [[0_i32, 2, 2, -1], [0, 2, 1, 3], [0, 2, 2, 4], [-1, 2, 2, 3]] {
        assert_contents_refused(&lists(), |array| set_buffer(array, 1, pointer(&offsets)), &[]);
    }
}

#[test]
fn offsets_that_are_not_aligned_are_refused_or_moved() {
    let offsets: [i32; 5] = [0, 2, 2, 5, 5];
    let bytes: Vec<u8> = std::iter::once(0).chain(offsets.iter().flat_map(|offset| offset.to_ne_bytes())).collect();
    let words: Vec<u64> =
        bytes.chunks(8).map(|chunk| chunk.iter().rev().fold(0, |word, byte| (word << 8) | u64::from(*byte))).collect();
    let start = words.as_ptr().cast::<u8>().wrapping_add(1).cast::<c_void>();
    let own = field("x", DataType::Utf8);
    let (imported, released) = import_edited(&strings(), &own, |array| set_buffer(array, 1, start));
    match imported.unwrap().to_arrow() {
        Ok(array) => assert_eq!(array.to_data(), strings().to_data()),
        Err(error) => assert!(error.reason().contains("aligned"), "{error}"),
    }
    assert_eq!(released.get(), 1);
}

#[test]
fn text_that_is_not_utf8_is_refused() {
    let text = [0xff_u8; 8];
    assert_contents_refused(&strings(), |array| set_buffer(array, 2, pointer(&text)), &["UTF8"]);
}

#[test]
fn string_data_may_be_null_only_where_there_is_none() {
    assert_contents_refused(&strings(), |array| set_buffer(array, 2, null()), &["position 2 is null"]);
    let empty = StringArray::from(vec!["", ""]);
    let (imported, _) = import_edited(&empty, &field("x", DataType::Utf8), |array| set_buffer(array, 2, null()));
    assert_eq!(imported.unwrap().to_arrow().unwrap().to_data(), empty.to_data());
}

#[test]
fn views_that_lead_out_of_their_buffers_are_refused() {
    let long = "a string that is too long to be inlined";
    let strings = StringViewArray::from(vec![long, "short"]);
    let binaries = BinaryViewArray::from(vec![long.as_bytes(), b"short"]);
    for array in [&strings as &dyn Array, &binaries] {
        assert_eq!(counted_buffers(array), 4);
        for lengths in [[-1_i64], [i64::MIN], [3], [i64::MAX]] {
            assert_contents_refused(array, |array| set_buffer(array, 3, pointer(&lengths)), &[]);
        }
        assert_contents_refused(array, |array| set_buffer(array, 3, null()), &["NULL"]);
        assert_contents_refused(array, |array| set_buffer(array, 3, without_provenance_mut(1)), &["aligned"]);
        assert_contents_refused(array, |array| set_buffer(array, 2, null()), &["position 2 is null"]);
        // A view of the second buffer, where there is one only.
        let views = [u128::from(u32::try_from(long.len()).unwrap()) | (1 << 64), 0];
        assert_contents_refused(array, |array| set_buffer(array, 1, pointer(&views)), &[]);
    }
}

/// Counts the buffers, and releases the struct.
fn counted_buffers(array: &dyn Array) -> i64 {
    let (mut exported, _) = counted(array);
    release(&mut exported);
    exported.n_buffers
}

#[test]
fn indices_beyond_their_dictionary_are_refused() {
    let dictionary: DictionaryArray<Int8Type> = ["a", "b"].into_iter().collect();
    for indices in [[0_i8, 2], [-1, 0]] {
        assert_contents_refused(&dictionary, |array| set_buffer(array, 1, pointer(&indices)), &[]);
    }
}

#[test]
fn list_views_that_lead_out_of_their_child_are_refused() {
    let items = Arc::new(Int32Array::from(vec![1, 2, 3]));
    let item = field("item", DataType::Int32);
    let views = ListViewArray::new(item, vec![0, 1].into(), vec![1, 2].into(), items, None);
    for (offsets, sizes) in
        [([0_i32, 2], [1_i32, 2]), ([-1, 1], [1, 2]), ([0, 1], [1, -1]), ([0, i32::MAX], [1, i32::MAX])]
    {
        let edit = |array: &mut ArrowArray| {
            set_buffer(array, 1, pointer(&offsets));
            set_buffer(array, 2, pointer(&sizes));
        };
        assert_contents_refused(&views, edit, &[]);
    }
}

#[test]
fn unions_that_lead_out_of_their_children_are_refused() {
    let fields =
        UnionFields::try_new([3, 5], [Field::new("a", DataType::Int32, true), Field::new("b", DataType::Int8, true)]);
    let children: Vec<ArrayRef> = vec![Arc::new(Int32Array::from(vec![1])), Arc::new(Int8Array::from(vec![2]))];
    let union = UnionArray::try_new(fields.unwrap(), vec![3, 5].into(), Some(vec![0, 0].into()), children).unwrap();
    for ids in [[3_i8, 4], [-1, 3], [127, 5]] {
        assert_contents_refused(&union, |array| set_buffer(array, 0, pointer(&ids)), &[]);
    }
    for offsets in [[0_i32, 1], [-1, 0], [i32::MAX, 0]] {
        assert_contents_refused(&union, |array| set_buffer(array, 1, pointer(&offsets)), &[]);
    }
}

#[test]
fn run_ends_that_do_not_grow_or_do_not_reach_the_length_are_refused() {
    let runs = RunArray::<Int32Type>::try_new(&Int32Array::from(vec![2, 5]), &Int32Array::from(vec![7, 8])).unwrap();
    for ends in [[2_i32, 2], [0, 5], [-1, 5], [5, 2], [2, 4]] {
        assert_contents_refused(&runs, |array| set_buffer(child_of(array, 0), 1, pointer(&ends)), &[]);
    }
}

// Device arrays.

fn import_device(edit: impl FnOnce(&mut ArrowDeviceArray)) -> (Result<DeviceArray>, Count) {
    let (array, released) = counted(&Int32Array::from(vec![1, 2, 3]));
    let mut device =
        ArrowDeviceArray { array, device_id: -1, device_type: 1, sync_event: null_mut(), reserved: [0; 3] };
    edit(&mut device);
    // SAFETY: a valid struct, but for what `edit` breaks on purpose.
    let imported =
        unsafe { DeviceArray::import_device(&raw mut device, field("x", DataType::Int32), release_directly) };
    assert!(device.array.release.is_none());
    (imported, released)
}

#[test]
fn broken_members_of_a_device_array_are_named() {
    let event = without_provenance_mut(0x1000);
    for (edit, word) in [
        ((|array| array.device_id = i64::MAX) as fn(&mut ArrowDeviceArray), "device_id"),
        (|array| array.device_id = i64::MIN, "device_id"),
        (|array| array.array.n_buffers = 1, "n_buffers"),
    ] {
        let (outcome, released) = import_device(edit);
        let error = outcome.unwrap_err();
        assert!(error.reason().contains(word), "{error}");
        assert_eq!(released.get(), 1);
    }
    let (outcome, released) = import_device(|array| array.sync_event = event);
    assert!(outcome.unwrap_err().reason().contains("sync_event"));
    assert_eq!(released.get(), 1);
}

#[test]
fn the_cpus_id_and_reserved_bytes_may_be_anything() {
    for id in [-1, 0, 3] {
        let (imported, _) = import_device(|array| {
            array.device_id = id;
            array.reserved = [i64::MAX, -1, 7];
        });
        let imported = imported.unwrap();
        assert_eq!(to_tensor(&imported, &Options::default()).unwrap().as_slice::<i32>().unwrap(), [1, 2, 3]);
        let mut exported = arrow_dlpack::arrow::export_device_array(&imported).unwrap();
        assert_eq!((exported.device_id, exported.reserved), (-1, [0; 3]));
        release(&mut exported.array);
    }
}

#[test]
fn buffers_on_a_device_are_not_touched() {
    for device_type in [2, 99, -1] {
        let (imported, released) = import_device(|array| {
            (array.device_type, array.device_id) = (device_type, 5);
            array.sync_event = without_provenance_mut(0x1000);
            array.array.null_count = -1;
            set_buffer(&mut array.array, 0, without_provenance_mut(0x1000));
            set_buffer(&mut array.array, 1, without_provenance_mut(0x2000));
        });
        let imported = imported.unwrap();
        assert_eq!((imported.device().device_type().0, imported.device().id()), (device_type, 5));
        assert_eq!(to_tensor(&imported, &Options::default()).unwrap_err().kind(), ErrorKind::Device);
        assert_eq!(imported.to_arrow().unwrap_err().kind(), ErrorKind::Device);
        assert_eq!(request_field(&imported, &field("x", DataType::Int64)).unwrap_err().kind(), ErrorKind::Device);
        let mut exported = arrow_dlpack::arrow::export_device_array(&imported).unwrap();
        assert_eq!((exported.device_type, exported.device_id, exported.array.null_count), (device_type, 5, -1));
        assert_eq!(exported.sync_event, without_provenance_mut(0x1000));
        release(&mut exported.array);
        drop(imported);
        assert_eq!(released.get(), 1);
    }
}

// Schemas.

/// A schema by hand; what it points to lives as long as the test.
fn schema(format: &str) -> ArrowSchema {
    unsafe extern "C" fn release(_: *mut ArrowSchema) {}
    ArrowSchema {
        format: CString::new(format).unwrap_or_default().into_raw(),
        name: CString::new("x").unwrap_or_default().into_raw(),
        metadata: null(),
        flags: 2,
        n_children: 0,
        children: null_mut(),
        dictionary: null_mut(),
        release: Some(release),
        private_data: null_mut(),
    }
}

fn with_children(format: &str, children: Vec<ArrowSchema>) -> ArrowSchema {
    let n_children = i64::try_from(children.len()).unwrap_or(-1);
    let children: Vec<*mut ArrowSchema> = children.into_iter().map(|child| Box::into_raw(Box::new(child))).collect();
    ArrowSchema { n_children, children: children.leak().as_mut_ptr(), ..schema(format) }
}

fn read(schema: &ArrowSchema) -> Result<FieldRef> {
    // SAFETY: as the C data interface describes it, but for what a test breaks on purpose.
    unsafe { read_schema(schema) }.map(Arc::new)
}

fn assert_schema_refused(schema: &ArrowSchema, words: &[&str]) {
    let error = read(schema).expect_err(&format!("{words:?}"));
    assert!(words.iter().all(|word| error.to_string().contains(word)), "{error} lacks one of {words:?}");
}

#[test]
fn broken_members_of_a_schema_are_named() {
    let text = |bytes: &'static [u8]| bytes.as_ptr().cast::<c_char>();
    assert!(read(&schema("i")).is_ok());
    assert_schema_refused(&ArrowSchema { release: None, ..schema("i") }, &["ArrowSchema was released"]);
    assert_schema_refused(&ArrowSchema { format: null(), ..schema("i") }, &["ArrowSchema.format", "NULL"]);
    assert_schema_refused(
        &ArrowSchema { format: text(b"\xff\xfe\0"), ..schema("i") },
        &["ArrowSchema.format", "UTF-8"],
    );
    assert_schema_refused(&ArrowSchema { name: text(b"\xc3\x28\0"), ..schema("i") }, &["ArrowSchema.name", "UTF-8"]);
    assert_schema_refused(&ArrowSchema { n_children: -1, ..schema("+s") }, &["ArrowSchema.n_children", "-1"]);
    assert_schema_refused(&ArrowSchema { n_children: i64::MAX, ..schema("+s") }, &["ArrowSchema.children", "NULL"]);
    assert_schema_refused(
        &ArrowSchema { n_children: 1, children: misaligned(null_mut()), ..schema("+s") },
        &["misaligned"],
    );
    assert_schema_refused(
        &ArrowSchema { dictionary: misaligned(null_mut()), ..schema("c") },
        &["ArrowSchema.dictionary"],
    );
    for format in ["", "?", "+w", "+w:", "+w:x", "ts?:", "d:", "+ud:x", "w:99999999999999999999", "i ", "+", ":"] {
        let error = read(&schema(format)).err();
        assert!(error.is_some_and(|error| error.column() == Some("x")), "{format:?}");
    }
    let unnamed = ArrowSchema { name: null(), ..schema("i") };
    assert_eq!(read(&unnamed).unwrap().name(), "");
}

#[test]
fn child_counts_must_be_the_formats() {
    let child = || schema("i");
    for (format, right) in [("i", 0), ("+l", 1), ("+w:2", 1), ("+r", 2)] {
        for count in (0..4).filter(|count| *count != right) {
            let children = (0..count).map(|_| child()).collect();
            assert_schema_refused(&with_children(format, children), &["ArrowSchema.n_children", &count.to_string()]);
        }
        assert!(read(&with_children(format, (0..right).map(|_| child()).collect())).is_ok(), "{format}");
    }
    let no_child = with_children("+l", vec![child()]);
    // SAFETY: the array of children has an entry.
    unsafe { no_child.children.write(null_mut()) };
    assert_schema_refused(&no_child, &["ArrowSchema.children", "NULL"]);
    let released = ArrowSchema { release: None, ..child() };
    assert_schema_refused(&with_children("+l", vec![released]), &["ArrowSchema was released"]);
    assert_schema_refused(&with_children("+m", vec![child()]), &["map"]);
}

#[test]
fn deep_and_cyclic_schemas_end() {
    let mut deep = schema("i");
    for _ in 0..1000 {
        deep = with_children("+l", vec![deep]);
    }
    assert_schema_refused(&deep, &["64 levels"]);
    let mut cycle = Box::new(with_children("+s", vec![schema("i"), schema("i")]));
    let own = &raw mut *cycle;
    // SAFETY: the array of children has a second entry.
    unsafe { cycle.children.add(1).write(own) };
    assert_schema_refused(&cycle, &["64 levels"]);
    let mut dictionary = Box::new(schema("c"));
    dictionary.dictionary = &raw mut *dictionary;
    assert_schema_refused(&dictionary, &["64 levels"]);
}

#[test]
fn dictionaries_need_integer_indices() {
    let values = Box::into_raw(Box::new(schema("u")));
    let field = read(&ArrowSchema { dictionary: values, ..schema("c") }).unwrap();
    assert_eq!(*field.data_type(), DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8)));
    for format in ["f", "u", "b", "tdD", "n"] {
        assert_schema_refused(&ArrowSchema { dictionary: values, ..schema(format) }, &["dictionary", "indices"]);
    }
}

#[test]
fn metadata_lengths_are_checked() {
    let metadata = |words: &[&[u8]]| words.concat().leak().as_ptr().cast::<c_char>();
    let count = |value: i32| value.to_ne_bytes();
    let good = metadata(&[&count(2), &count(1), b"k", &count(2), b"vv", &count(0), &count(1), b"\xff"]);
    let field = read(&ArrowSchema { metadata: good, ..schema("i") }).unwrap();
    assert_eq!(field.metadata().get("k").map(String::as_str), Some("vv"));
    assert!(field.metadata().contains_key(""));
    for bad in [
        metadata(&[&count(-1)]),
        metadata(&[&count(i32::MIN)]),
        metadata(&[&count(1), &count(-1)]),
        metadata(&[&count(1), &count(1), b"k", &count(-5)]),
    ] {
        assert_schema_refused(&ArrowSchema { metadata: bad, ..schema("i") }, &["ArrowSchema.metadata"]);
    }
}

#[test]
fn metadata_of_extension_types_is_checked_when_it_is_used() {
    for metadata in ["", "{}", r#"{"shape":[2,2]}"#, r#"{"shape":[-2,-3]}"#, r#"{"shape":[6],"permutation":[1]}"#] {
        let column =
            support::arrow::extension(&field("x", list(DataType::Int8, 6)), "arrow.fixed_shape_tensor", metadata);
        let array = support::arrow::shared(&random_array(column.data_type(), 2, 0, &mut Random(1)), &column);
        let error = to_tensor(&array, &Options::default()).unwrap_err();
        assert!(error.kind() == ErrorKind::Invalid && error.reason().contains("fixed_shape_tensor"), "{error}");
    }
}

#[test]
fn a_schema_and_an_array_that_disagree_are_refused() {
    let array = Int32Array::from(vec![1, 2]);
    for data_type in [
        DataType::Utf8,
        DataType::Null,
        DataType::Struct([Arc::new(Field::new("a", DataType::Int32, true))].into()),
        list(DataType::Int32, 1),
        DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Int32)),
    ] {
        let (outcome, released) = import_edited(&array, &field("x", data_type.clone()), |_| ());
        assert!(outcome.is_err(), "{data_type}");
        assert_eq!(released.get(), 1);
    }
}
