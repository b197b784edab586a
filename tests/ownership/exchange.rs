//! Tensors that change hands only if both sides agree: offers, adoptions, allocations.

use std::ptr::{NonNull, null_mut};

use arrow_dlpack::dlpack::{Offer, adopt_versioned, allocate_like, import_versioned};
use arrow_dlpack::ffi::dlpack::{DLDataTypeCode, DLDeviceType, DLManagedTensorVersioned, DLTensor};
use arrow_dlpack::{DType, Error, ErrorKind, Tensor};

use crate::support::Count;
use crate::support::dlpack::{Memory, int32s};

/// Calls the deleter, as a consumer does.
fn delete(managed: *mut DLManagedTensorVersioned) {
    // SAFETY: a live struct.
    let deleter = unsafe { (*managed).deleter }.unwrap();
    // SAFETY: the tests call it once for each that they own.
    unsafe { deleter(managed) };
}

/// An offer of the only share of a tensor.
fn offer() -> (Offer, Count) {
    let (tensor, released) = Memory::four().import();
    (Offer::new(&tensor.unwrap()).unwrap(), released)
}

#[test]
fn a_refused_offer_is_freed_once_whether_or_not_its_consumer_ran_the_deleter() {
    for deleted in [false, true] {
        let (offer, released) = offer();
        if deleted {
            delete(offer.as_ptr());
            assert_eq!(released.get(), 0, "the block is still the offer's");
        }
        drop(offer);
        assert_eq!(released.get(), 1);
    }
}

#[test]
fn an_accepted_offer_is_freed_by_the_deleter() {
    let (offer_, released) = offer();
    let managed = offer_.as_ptr();
    offer_.accepted();
    assert_eq!(released.get(), 0);
    // SAFETY: accepted above, imported once.
    let tensor = unsafe { import_versioned(NonNull::new(managed).unwrap()) }.unwrap();
    assert_eq!(int32s(&tensor), [1, 2, 3, 4]);
    drop(tensor);
    assert_eq!(released.get(), 1);

    // A consumer that copies is done before it answers.
    let (offer, released) = offer();
    delete(offer.as_ptr());
    offer.accepted();
    assert_eq!(released.get(), 1);
}

#[test]
fn offers_are_freed_once_by_two_threads() {
    for _ in 0..if cfg!(miri) { 20 } else { 200 } {
        let (offer, released) = offer();
        let address = offer.as_ptr().expose_provenance();
        let consumer = std::thread::spawn(move || delete(std::ptr::with_exposed_provenance_mut(address)));
        offer.accepted();
        consumer.join().unwrap();
        assert_eq!(released.get(), 1);
    }
}

#[test]
fn an_adopted_tensor_is_the_callers_until_all_has_succeeded() {
    let (managed, released) = Memory::four().versioned(|_| ());
    // SAFETY: made by the helper.
    let refused = unsafe {
        adopt_versioned(
            managed,
            |release| release(),
            |tensor| {
                assert_eq!(int32s(&tensor), [1, 2, 3, 4]);
                Err::<(), Error>(Tensor::as_slice::<f64>(&tensor).unwrap_err())
            },
        )
    };
    assert!(refused.is_err());
    assert_eq!(released.get(), 0);
    // SAFETY: what was refused is still ours, and not deleted.
    let tensor = unsafe { adopt_versioned(managed, |release| release(), Ok::<_, Error>) }.unwrap();
    assert_eq!(int32s(&tensor), [1, 2, 3, 4]);
    assert_eq!(released.get(), 0);
    drop(tensor);
    assert_eq!(released.get(), 1);
}

#[test]
fn a_tensor_that_cannot_be_read_is_not_adopted() {
    for edit in [
        |managed: &mut DLManagedTensorVersioned| managed.version.major = 2,
        |managed: &mut DLManagedTensorVersioned| managed.dl_tensor.ndim = -1,
        |managed: &mut DLManagedTensorVersioned| managed.dl_tensor.data = null_mut(),
    ] {
        let (managed, released) = Memory::four().versioned(edit);
        // SAFETY: made by the helper; what `edit` breaks on purpose is what import has to find.
        assert!(unsafe { adopt_versioned(managed, |release| release(), Ok::<_, Error>) }.is_err());
        assert_eq!(released.get(), 0);
        delete(managed.as_ptr());
        assert_eq!(released.get(), 1);
    }
}

#[test]
fn what_is_copied_while_it_is_adopted_is_deleted_at_once() {
    let (managed, released) = Memory::four().versioned(|_| ());
    // SAFETY: made by the helper.
    let values = unsafe { adopt_versioned(managed, |release| release(), |tensor| Ok::<_, Error>(int32s(&tensor))) };
    assert_eq!(values.unwrap(), [1, 2, 3, 4]);
    assert_eq!(released.get(), 1);
}

/// Allocates like a prototype of int32 with this shape, edited.
fn allocate(shape: &mut [i64], edit: impl FnOnce(&mut DLTensor)) -> Result<Tensor, Error> {
    let (managed, _) = Memory::four().versioned(|_| ());
    // SAFETY: a live struct; the copy is changed alone.
    let mut prototype = unsafe { (*managed.as_ptr()).dl_tensor };
    delete(managed.as_ptr());
    // What a prototype need not say.
    (prototype.data, prototype.strides) = (null_mut(), std::ptr::dangling_mut());
    (prototype.ndim, prototype.shape) = (i32::try_from(shape.len()).unwrap(), shape.as_mut_ptr());
    edit(&mut prototype);
    // SAFETY: the shape is there for as many dimensions, or what import has to find is wrong.
    let managed = unsafe { allocate_like(&prototype) }?;
    // SAFETY: ours, imported once.
    unsafe { import_versioned(managed) }
}

#[test]
fn allocated_tensors_are_row_major_zero_and_writable() {
    let tensor = allocate(&mut [2, 3], |_| ()).unwrap();
    assert_eq!((tensor.dtype(), tensor.shape(), tensor.strides()), (DType::Int32, &[2, 3][..], &[3, 1][..]));
    assert_eq!(int32s(&tensor), [0; 6]);
    assert!(tensor.is_writable() && tensor.as_ptr().addr() % 64 == 0);
    assert_eq!(allocate(&mut [], |prototype| prototype.shape = null_mut()).unwrap().len(), 1);
    assert!(allocate(&mut [0, 5], |_| ()).unwrap().is_empty());
}

#[test]
fn prototypes_that_cannot_be_are_refused() {
    let refused = |shape: &mut [i64], edit: fn(&mut DLTensor)| allocate(shape, edit).unwrap_err().kind();
    assert_eq!(refused(&mut [-1], |_| ()), ErrorKind::Invalid);
    assert_eq!(refused(&mut [2], |prototype| prototype.ndim = -1), ErrorKind::Invalid);
    assert_eq!(refused(&mut [2], |prototype| prototype.ndim = 65), ErrorKind::Invalid);
    assert_eq!(refused(&mut [2], |prototype| prototype.shape = null_mut()), ErrorKind::Invalid);
    assert_eq!(refused(&mut [i64::MAX, 2], |_| ()), ErrorKind::Invalid);
    assert_eq!(refused(&mut [1 << 61], |_| ()), ErrorKind::Memory);
    assert_eq!(refused(&mut [1 << 55], |_| ()), ErrorKind::Memory);
    assert_eq!(refused(&mut [2], |prototype| prototype.device.device_type = DLDeviceType::CUDA), ErrorKind::Device);
    assert_eq!(refused(&mut [2], |prototype| prototype.dtype.code = DLDataTypeCode(99)), ErrorKind::Unsupported);
}
