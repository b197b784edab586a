//! Are views of ndarray the tensor's own elements, whatever its strides, and owned arrays tensors without a copy?

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_dlpack::dlpack::{export_versioned, import_versioned};
use arrow_dlpack::{CopyLog, DType, Device, Tensor};
use ndarray::{Array, ArrayD, Axis, IxDyn, arr1, arr2, s};

/// A tensor over `values`, from the element `start` on.
fn strided(values: &'static [i32], start: usize, shape: &[i64], strides: &[i64]) -> Tensor {
    let data = values[start..].as_ptr().cast_mut().cast();
    // SAFETY: the tests below pass shapes and strides that stay inside of the values, which are constant.
    unsafe { Tensor::from_raw_parts(data, Device::CPU, DType::Int32, shape, Some(strides), Arc::new(()), false) }
        .unwrap()
}

const NUMBERS: &[i32] = &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];

#[test]
fn a_view_has_the_tensors_address_shape_and_strides() {
    let tensor = Tensor::from_vec((0..24).collect::<Vec<i64>>(), &[2, 3, 4]).unwrap();
    let view = tensor.as_ndarray::<i64>().unwrap();
    assert_eq!(
        (view.as_ptr(), view.shape(), view.strides()),
        (tensor.as_ptr().cast_const().cast(), &[2, 3, 4][..], &[12, 4, 1][..])
    );
    assert_eq!(view[[1, 2, 3]], 23);
    assert_eq!(tensor.to_ndarray::<i64>().unwrap(), view);
}

#[test]
fn strides_of_any_sign_are_views() {
    for (start, shape, strides, expected) in [
        (0, [3, 4], [4, 1], arr2(&[[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]])),
        (0, [4, 3], [1, 4], arr2(&[[0, 4, 8], [1, 5, 9], [2, 6, 10], [3, 7, 11]])),
        (11, [3, 4], [-4, -1], arr2(&[[11, 10, 9, 8], [7, 6, 5, 4], [3, 2, 1, 0]])),
        (3, [3, 4], [4, -1], arr2(&[[3, 2, 1, 0], [7, 6, 5, 4], [11, 10, 9, 8]])),
        (8, [2, 2], [-8, 2], arr2(&[[8, 10], [0, 2]])),
    ] {
        let tensor = strided(NUMBERS, start, &shape, &strides);
        let view = tensor.as_ndarray::<i32>().unwrap();
        assert_eq!(view, expected.clone().into_dyn());
        let own: Vec<i64> = view.strides().iter().map(|stride| *stride as i64).collect();
        assert_eq!((own.as_slice(), view.as_ptr()), (&strides[..], tensor.as_ptr().cast_const().cast()));
        assert_eq!(tensor.to_ndarray::<i32>().unwrap(), expected.into_dyn());
        // A view goes back by a copy, in any order.
        assert_eq!(Tensor::copy_ndarray(&view).unwrap().as_ndarray::<i32>().unwrap(), view);
    }
}

#[test]
fn broadcast_strides_are_views_to_read() {
    let tensor = strided(NUMBERS, 5, &[3, 2], &[0, 1]);
    let view = tensor.as_ndarray::<i32>().unwrap();
    assert_eq!(view, arr2(&[[5, 6], [5, 6], [5, 6]]).into_dyn());
    assert_eq!(view.sum_axis(Axis(0)).into_raw_vec_and_offset().0, [15, 18]);
}

#[test]
fn a_view_that_repeats_elements_is_copied() {
    let row = arr1(&[1.5_f64, 2.5]);
    let log = CopyLog::new();
    let tensor = log.track(|| Tensor::copy_ndarray(&row.broadcast((2, 2)).unwrap())).unwrap();
    assert_eq!(tensor.as_slice::<f64>().unwrap(), [1.5, 2.5, 1.5, 2.5]);
    assert_eq!(log.bytes(), 32);
}

#[test]
fn owned_arrays_keep_their_memory_and_strides() {
    let base = Array::from_shape_vec((3, 4), (0..12).collect::<Vec<i16>>()).unwrap();
    let mut reversed = base.clone();
    reversed.invert_axis(Axis(1));
    for array in [base.clone().into_dyn(), base.clone().reversed_axes().into_dyn(), reversed.into_dyn()] {
        let (expected, start) = (array.clone(), array.as_ptr());
        let tensor = Tensor::from_ndarray(array).unwrap();
        assert_eq!(tensor.as_ptr().cast_const().cast(), start);
        assert!(tensor.is_writable());
        assert_eq!(tensor.as_ndarray::<i16>().unwrap(), expected);
    }
    // A part of an array keeps the whole vector.
    let part = base.slice_move(s![1.., ..;2]);
    let tensor = Tensor::from_ndarray(part).unwrap();
    assert_eq!(tensor.as_ndarray::<i16>().unwrap(), arr2(&[[4, 6], [8, 10]]).into_dyn());
}

#[test]
fn empty_arrays_and_numbers_without_a_dimension() {
    for shape in [&[0_usize][..], &[0, 3], &[3, 0, 2]] {
        let tensor = Tensor::from_ndarray(ArrayD::<f32>::zeros(IxDyn(shape))).unwrap();
        let view = tensor.as_ndarray::<f32>().unwrap();
        assert_eq!((view.shape(), view.len()), (shape, 0));
    }
    let number = Tensor::from_ndarray(ndarray::arr0(2.5_f64)).unwrap();
    assert_eq!((number.shape().len(), number.as_ndarray::<f64>().unwrap().first()), (0, Some(&2.5)));
}

#[test]
fn a_view_asks_for_the_dtype_the_host_and_memory_of_ones_own() {
    let tensor = Tensor::from_vec(vec![1_i32, 2], &[2]).unwrap();
    assert!(tensor.as_ndarray::<f32>().unwrap_err().reason().contains("int32 tensor read as float32"));
    let lent = {
        let exported = export_versioned(&tensor, false).unwrap().into_raw();
        // SAFETY: an export of a live tensor, which is imported once.
        unsafe { import_versioned(exported) }.unwrap()
    };
    let error = lent.as_ndarray::<i32>().unwrap_err();
    assert!(error.reason().contains("lent"), "{error}");
    // SAFETY: nobody writes to the memory.
    assert_eq!(unsafe { lent.lent_ndarray::<i32>() }.unwrap(), arr1(&[1, 2]).into_dyn());
    let misaligned = Tensor::from_vec(vec![0_u8; 9], &[9]).unwrap();
    let data = misaligned.as_ptr().wrapping_add(1);
    let owner = Arc::new(misaligned);
    // SAFETY: eight of the nine bytes, which the owner keeps.
    let misaligned = unsafe { Tensor::from_raw_parts(data, Device::CPU, DType::Int32, &[2], None, owner, false) };
    let error = misaligned.unwrap().as_ndarray::<i32>().unwrap_err();
    assert!(error.to_string().contains("misaligned"), "{error}");
}

struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_view_borrows_and_releases_nothing() {
    let releases = Arc::new(AtomicUsize::new(0));
    let data = NUMBERS.as_ptr().cast_mut().cast();
    let owner = Arc::new(Counted(releases.clone()));
    // SAFETY: constant numbers.
    let tensor = unsafe { Tensor::from_raw_parts(data, Device::CPU, DType::Int32, &[12], None, owner, false) }.unwrap();
    let copy = tensor.as_ndarray::<i32>().unwrap().to_owned();
    assert_eq!(releases.load(Ordering::SeqCst), 0);
    drop(tensor);
    assert_eq!(releases.load(Ordering::SeqCst), 1);
    assert_eq!(copy.sum(), 66);
}
