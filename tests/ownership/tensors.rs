//! Managed tensors, in and out.

use arrow_dlpack::Tensor;
use arrow_dlpack::dlpack::{
    export_legacy, export_versioned, import_legacy, import_versioned, import_versioned_guarded,
};
use arrow_dlpack::ffi::arrow_device::ArrowArray;
use arrow_dlpack::ffi::dlpack::{DLPACK_FLAG_BITMASK_IS_COPIED, DLPACK_FLAG_BITMASK_READ_ONLY, DLTensor};
use arrow_schema::DataType;

use crate::column;
use crate::support::arrow::{field, import_guarded};
use crate::support::dlpack::{Memory, int32s};
use crate::support::left_alive;

fn four() -> Tensor {
    Memory::four().import().0.unwrap()
}

#[test]
fn an_imported_tensor_is_deleted_after_its_last_clone() {
    for legacy in [false, true] {
        let (tensor, released) = if legacy { Memory::four().import_legacy(|_| ()) } else { Memory::four().import() };
        let tensor = tensor.unwrap();
        assert_eq!(tensor.is_writable(), !legacy);
        let clone = tensor.clone();
        drop(tensor);
        assert_eq!(released.get(), 0);
        assert_eq!(int32s(&clone), [1, 2, 3, 4]);
        std::thread::spawn(move || drop(clone)).join().unwrap();
        assert_eq!(released.get(), 1);
    }
}

#[test]
fn a_refused_tensor_is_deleted_too() {
    let (refused, released) = Memory::four().import_edited(|managed| managed.version.major = 2);
    assert!(refused.is_err());
    assert_eq!(released.get(), 1);
    for edit in [
        |tensor: &mut DLTensor| tensor.ndim = -1,
        |tensor: &mut DLTensor| tensor.shape = std::ptr::null_mut(),
        |tensor: &mut DLTensor| tensor.data = std::ptr::null_mut(),
        |tensor: &mut DLTensor| tensor.byte_offset = u64::MAX,
        |tensor: &mut DLTensor| tensor.dtype.lanes = 2,
    ] {
        let (refused, released) = Memory::four().import_edited(|managed| edit(&mut managed.dl_tensor));
        assert!(refused.is_err());
        assert_eq!(released.get(), 1);
        let (refused, released) = Memory::four().import_legacy(|managed| edit(&mut managed.dl_tensor));
        assert!(refused.is_err());
        assert_eq!(released.get(), 1);
    }
}

#[test]
fn a_tensor_without_a_deleter_is_used_and_left_alone() {
    let (managed, released) = Memory::four().versioned(|managed| managed.deleter = None);
    left_alive(managed.as_ptr());
    // SAFETY: made by the helper; without a deleter it stays alive.
    let tensor = unsafe { import_versioned(managed) }.unwrap();
    assert_eq!(int32s(&tensor), [1, 2, 3, 4]);
    drop(tensor);
    let (managed, _) = Memory::four().legacy(|managed| managed.deleter = None);
    left_alive(managed.as_ptr());
    // SAFETY: made by the helper; without a deleter it stays alive.
    assert!(unsafe { import_legacy(managed) }.is_ok());
    assert_eq!(released.get(), 0);
}

#[test]
fn a_guard_decides_whether_the_callback_runs() {
    let (managed, released) = Memory::four().versioned(|_| ());
    left_alive(managed.as_ptr());
    // SAFETY: made by the helper; the guard leaks it.
    drop(unsafe { import_versioned_guarded(managed, |_| ()) }.unwrap());
    assert_eq!(released.get(), 0);

    let (array, released) =
        import_guarded(&column(), &field("x", DataType::Int32), |array| left_alive(array.private_data), |_| ());
    drop(array.unwrap());
    assert_eq!(released.get(), 0);
    let broken = |array: &mut ArrowArray| {
        left_alive(array.private_data);
        array.length = -1;
    };
    let (refused, released) = import_guarded(&column(), &field("x", DataType::Int32), broken, |_| ());
    assert!(refused.is_err());
    assert_eq!(released.get(), 0);

    let eager: fn(&mut dyn FnMut()) = |callback| callback();
    let (array, released) = import_guarded(&column(), &field("x", DataType::Int32), |_| (), eager);
    drop(array.unwrap());
    assert_eq!(released.get(), 1);
}

#[test]
fn a_guard_that_calls_twice_releases_once() {
    let twice: fn(&mut dyn FnMut()) = |callback| {
        callback();
        callback();
    };
    let (array, released) = import_guarded(&column(), &field("x", DataType::Int32), |_| (), twice);
    drop(array.unwrap());
    assert_eq!(released.get(), 1);

    let (managed, released) = Memory::four().versioned(|_| ());
    // SAFETY: made by the helper.
    drop(unsafe { import_versioned_guarded(managed, twice) }.unwrap());
    assert_eq!(released.get(), 1);
}

#[test]
fn an_exported_tensor_keeps_its_source_until_its_deleter_runs_on_any_thread() {
    let (tensor, released) = Memory::four().import();
    let tensor = tensor.unwrap();
    let versioned = export_versioned(&tensor, false).unwrap().into_raw();
    let legacy = export_legacy(&tensor).unwrap().into_raw();
    drop(tensor);
    assert_eq!(released.get(), 0);

    let addresses = (versioned.as_ptr() as usize, legacy.as_ptr() as usize);
    let back = std::thread::spawn(move || {
        let (versioned, legacy) = addresses;
        let versioned = std::ptr::NonNull::new(std::ptr::with_exposed_provenance_mut(versioned)).unwrap();
        let legacy = std::ptr::NonNull::new(std::ptr::with_exposed_provenance_mut(legacy)).unwrap();
        // SAFETY: exported above, imported once.
        let versioned = unsafe { import_versioned(versioned) }.unwrap();
        // SAFETY: exported above, imported once.
        let legacy = unsafe { import_legacy(legacy) }.unwrap();
        assert_eq!(int32s(&legacy), [1, 2, 3, 4]);
        drop(legacy);
        versioned
    });
    let versioned = back.join().unwrap();
    assert_eq!(released.get(), 0);
    assert_eq!(int32s(&versioned), [1, 2, 3, 4]);
    drop(versioned);
    assert_eq!(released.get(), 1);
}

#[test]
fn the_deleter_frees_what_it_allocated_whatever_the_consumer_wrote() {
    let (tensor, released) = Memory::four().import();
    let mut managed = export_versioned(&tensor.unwrap(), true).unwrap().into_raw();
    // SAFETY: a live struct that this test owns.
    let managed = unsafe { managed.as_mut() };
    let flags = managed.flags;
    assert_eq!(flags, DLPACK_FLAG_BITMASK_IS_COPIED);
    managed.dl_tensor.ndim = 7;
    managed.dl_tensor.shape = std::ptr::null_mut();
    managed.manager_ctx = std::ptr::dangling_mut();
    // SAFETY: exported above, deleted once.
    unsafe { (managed.deleter.unwrap())(managed) };
    assert_eq!(released.get(), 1);
}

#[test]
fn deleters_take_null() {
    let managed = export_versioned(&four(), false).unwrap().into_raw();
    // SAFETY: a live struct; NULL is what a careless consumer passes, and nothing happens.
    let deleter = unsafe { managed.as_ref() }.deleter.unwrap();
    // SAFETY: `dlpack.h` does not forbid NULL, and ours takes it.
    unsafe { deleter(std::ptr::null_mut()) };
    // SAFETY: exported above, deleted once.
    unsafe { deleter(managed.as_ptr()) };
}

#[test]
fn flags_travel_with_the_memory() {
    for (flags, writable, copied) in
        [(0, true, false), (DLPACK_FLAG_BITMASK_READ_ONLY, false, false), (DLPACK_FLAG_BITMASK_IS_COPIED, true, true)]
    {
        let (tensor, _) = Memory::four().import_edited(|managed| managed.flags = flags);
        let tensor = tensor.unwrap();
        assert_eq!((tensor.is_writable(), tensor.is_copied()), (writable, copied));
        let managed = export_versioned(&tensor, copied).unwrap().into_raw();
        // SAFETY: a live struct.
        assert_eq!(unsafe { managed.as_ref() }.flags, flags);
        // SAFETY: exported above, imported once.
        drop(unsafe { import_versioned(managed) });
    }
}
