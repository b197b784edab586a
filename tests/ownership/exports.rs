//! Exports that are dropped, moved out by a consumer, or handed over.

use std::sync::Arc;

use arrow_array::Int32Array;
use arrow_dlpack::arrow::{
    DeviceArrayStream, Exported, export_array, export_device_array, export_device_stream, export_schema, export_stream,
};
use arrow_dlpack::dlpack::{export_legacy, export_versioned};
use arrow_dlpack::ffi::arrow_device::{ArrowArray, ArrowArrayStream, ArrowDeviceArray, ArrowDeviceArrayStream};
use arrow_dlpack::ffi::dlpack::{DLDeviceType, DLManagedTensorVersioned};
use arrow_dlpack::{DeviceArray, ErrorKind, Tensor};
use arrow_schema::DataType;

use crate::support::arrow::{field, import_edited, shared};
use crate::support::{Count, CountsDrop};
use crate::{batch, column};

/// An array that counts its release.
fn counted() -> (DeviceArray, Count) {
    let own = field("x", DataType::Int32);
    let (array, released) = import_edited(&column(), &own, |_| ());
    (array.unwrap(), released)
}

/// A stream of one array that counts the release of its iterator.
fn counted_stream() -> (DeviceArrayStream, Count) {
    let (array, count) = (shared(&Int32Array::from(vec![1]), &field("x", DataType::Int32)), Count::default());
    let (own, dropped) = (array.field().clone(), CountsDrop(count.clone()));
    let arrays = std::iter::once(Ok(array)).inspect(move |_| {
        let _ = &dropped;
    });
    (DeviceArrayStream::new(own, DLDeviceType::CPU, arrays), count)
}

/// A tensor that counts the release of its memory.
fn counted_tensor() -> (Tensor, Count) {
    struct Memory(Vec<i32>, #[allow(dead_code, reason = "it is dropped")] CountsDrop);
    impl AsRef<[i32]> for Memory {
        fn as_ref(&self) -> &[i32] {
            &self.0
        }
    }
    let count = Count::default();
    (Tensor::from_owner(Memory(vec![1, 2], CountsDrop(count.clone())), &[2]).unwrap(), count)
}

/// Drops one export, sends one to another thread, and hands one over: each releases once, and never before.
fn releases_once<S: 'static>(made: impl Fn() -> (Exported<S>, Count), release: impl Fn(&mut S)) {
    let (exported, released) = made();
    assert_eq!(released.get(), 0);
    drop(exported);
    assert_eq!(released.get(), 1);

    let (exported, released) = made();
    std::thread::spawn(move || drop(exported)).join().unwrap();
    assert_eq!(released.get(), 1);

    let (exported, released) = made();
    let mut raw = exported.into_raw();
    assert_eq!(released.get(), 0);
    release(&mut raw);
    assert_eq!(released.get(), 1);
}

#[test]
fn dropped_arrays_and_streams_are_released_once() {
    let array = || {
        let (array, released) = counted();
        (export_array(&array).unwrap(), released)
    };
    // SAFETY: handed over by `into_raw`, and released once.
    releases_once(array, |raw: &mut ArrowArray| unsafe { (raw.release.unwrap())(raw) });
    let device_array = || {
        let (array, released) = counted();
        (export_device_array(&array).unwrap(), released)
    };
    // SAFETY: handed over by `into_raw`, and released once.
    releases_once(device_array, |raw: &mut ArrowDeviceArray| unsafe {
        (raw.array.release.unwrap())(&raw mut raw.array);
    });
    let stream = || {
        let (stream, released) = counted_stream();
        (export_stream(stream).unwrap(), released)
    };
    // SAFETY: handed over by `into_raw`, and released once.
    releases_once(stream, |raw: &mut ArrowArrayStream| unsafe { (raw.release.unwrap())(raw) });
    let device_stream = || {
        let (stream, released) = counted_stream();
        (export_device_stream(stream), released)
    };
    // SAFETY: handed over by `into_raw`, and released once.
    releases_once(device_stream, |raw: &mut ArrowDeviceArrayStream| unsafe { (raw.release.unwrap())(raw) });
}

#[test]
fn what_a_consumer_moved_out_is_the_consumers() {
    let (array, released) = counted();
    let mut exported = export_device_array(&array).unwrap();
    drop(array);
    // SAFETY: our own export.
    let imported = unsafe { DeviceArray::import_device(exported.as_mut_ptr(), field("x", DataType::Int32)) }.unwrap();
    assert!(exported.array.release.is_none());
    drop(exported);
    assert_eq!(released.get(), 0);
    drop(imported);
    assert_eq!(released.get(), 1);

    let (stream, released) = counted_stream();
    let mut exported = export_stream(stream).unwrap();
    // SAFETY: our own export.
    let imported = unsafe { DeviceArrayStream::import(exported.as_mut_ptr()) }.unwrap();
    drop(exported);
    assert_eq!(released.get(), 0);
    drop(imported);
    assert_eq!(released.get(), 1);
}

#[test]
fn a_dropped_schema_frees_its_children() {
    // The leak checks of the sanitizers and of Miri find what this leaves behind.
    let exported = export_schema(shared(&batch(), &field("s", DataType::Struct(batch().fields().clone()))).field());
    let exported = exported.unwrap();
    assert_eq!((exported.n_children, exported.release.is_some()), (2, true));
}

#[test]
fn a_dropped_managed_tensor_is_deleted_once() {
    let (tensor, released) = counted_tensor();
    let exports = (export_versioned(&tensor, false).unwrap(), export_legacy(&tensor).unwrap());
    drop(tensor);
    assert_eq!((exports.0.dl_tensor.ndim, exports.1.dl_tensor.ndim), (1, 1));
    drop(exports.0);
    assert_eq!(released.get(), 0);
    let legacy = exports.1;
    std::thread::spawn(move || drop(legacy)).join().unwrap();
    assert_eq!(released.get(), 1);

    let (tensor, released) = counted_tensor();
    let managed = export_versioned(&tensor, false).unwrap();
    drop(tensor);
    let raw: *mut DLManagedTensorVersioned = managed.as_ptr();
    assert_eq!(managed.into_raw().as_ptr(), raw);
    assert_eq!(released.get(), 0);
    // SAFETY: handed over by `into_raw`, so the header is alive.
    let deleter = unsafe { (*raw).deleter }.unwrap();
    // SAFETY: handed over by `into_raw`, and deleted once.
    unsafe { deleter(raw) };
    assert_eq!(released.get(), 1);
}

#[test]
fn an_array_of_a_device_is_no_host_array() {
    let own = field("x", DataType::Int32);
    let (mut exported, _) = (export_device_array(&shared(&column(), &own)).unwrap().into_raw(), Arc::new(()));
    exported.device_type = DLDeviceType::ROCM.0;
    // SAFETY: our own export; nothing here reads its buffers, which are said to be elsewhere.
    let array = unsafe { DeviceArray::import_device(&raw mut exported, own) }.unwrap();
    assert_eq!(export_array(&array).unwrap_err().kind(), ErrorKind::Device);
}
