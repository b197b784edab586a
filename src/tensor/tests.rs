//! Does a tensor reach exactly the elements that its shape and strides name, whatever it was made of and is viewed as?
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "extents and positions of tests are small"
)]

use std::sync::atomic::{AtomicUsize, Ordering};

use super::construct::dims_of;
use super::*;
use crate::ffi::dlpack::DLDeviceType;

/// Returns a tensor of int32 over an array that outlives its readers.
pub(super) fn tensor(data: *mut u8, shape: &[i64], strides: &[i64]) -> Result<Tensor> {
    let layout = (Dims::from_slice(shape), Dims::from_slice(strides));
    let parts = TensorParts::of_host(data, DType::Int32, layout, Arc::new(()));
    // SAFETY: tests read elements only of tensors over a live array.
    unsafe { Tensor::from_parts(parts) }
}

#[test]
fn odd_strides_of_short_dimensions_are_normalised() {
    let start = std::ptr::dangling_mut::<u32>().cast();
    assert_eq!(tensor(start, &[1, 4], &[i64::MIN, 1]).unwrap().strides(), [4, 1]);
    assert_eq!(tensor(start, &[0, 4], &[i64::MAX, -7]).unwrap().strides(), [4, 1]);
    assert!(tensor(std::ptr::null_mut(), &[0, 4], &[0, 0]).unwrap().as_ptr().is_null());
}

#[test]
fn layouts_that_cannot_be_are_refused() {
    let start = std::ptr::dangling_mut::<u32>().cast();
    for (shape, strides) in [
        (&[-1_i64][..], &[1_i64][..]),
        (&[2, -3, 0], &[1, 1, 1]),
        (&[2], &[1, 1]),
        (&[2], &[i64::MAX]),
        (&[2], &[i64::MIN]),
        (&[2], &[-2]),
        (&[i64::MAX], &[1]),
        (&[i64::MAX, 2], &[0, 0]),
        (&[2, 2, 2, 2], &[i64::MIN, i64::MIN, i64::MAX, i64::MAX]),
        (&[i64::MAX, i64::MAX, 0], &[0, 0, 0]),
    ] {
        assert!(tensor(start, shape, strides).is_err(), "{shape:?} {strides:?}");
    }
    assert!(tensor(std::ptr::null_mut(), &[1], &[1]).is_err());
    assert!(tensor(std::ptr::null_mut(), &[], &[]).is_err());
}

/// Returns the addresses of the elements in row-major order, in elements from `start`.
fn reached(tensor: &Tensor, start: *const u8) -> Vec<i64> {
    let mut offsets = vec![0_i64];
    for (extent, stride) in tensor.shape().iter().zip(tensor.strides()) {
        offsets = offsets.iter().flat_map(|offset| (0..*extent).map(move |at| offset + at * stride)).collect();
    }
    let first = tensor.data.addr().wrapping_sub(start.addr()) as i64 / 4;
    offsets.iter().map(|offset| offset + first).collect()
}

/// Returns every shape of at most `ndim` of these extents.
fn shapes(extents: &[i64], ndim: usize) -> Vec<Vec<i64>> {
    let mut all = vec![vec![]];
    for _ in 0..ndim {
        let longer = all.iter().flat_map(|shape| extents.iter().map(move |extent| [&shape[..], &[*extent]].concat()));
        all = std::iter::once(vec![]).chain(longer).collect();
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// Calls `check` for tensors of many layouts, in the middle of memory that all of them reach.
fn each_layout(extents: &[i64], strides: &[i64], ndim: usize, mut check: impl FnMut(&Tensor, *const u8)) {
    let ndim = if cfg!(miri) { 2 } else { ndim };
    let mut memory = vec![0_i32; 256];
    let start = memory.as_mut_ptr().cast::<u8>().wrapping_add(128 * 4);
    for shape in shapes(extents, ndim) {
        for strides in shapes(strides, ndim).iter().filter(|strides| strides.len() == shape.len()) {
            check(&tensor(start, &shape, strides).unwrap(), start);
        }
    }
}

#[test]
fn a_slice_reaches_the_elements_of_its_rows() {
    each_layout(&[0, 1, 2, 3], &[-3, 0, 1, 2, 6], 3, |tensor, start| {
        let elements = reached(tensor, start);
        let Some(&rows) = tensor.shape().first() else {
            assert!(tensor.slice(0, 0).is_err());
            return;
        };
        for (offset, length) in (0..5).flat_map(|offset| (0..5).map(move |length| (offset, length))) {
            let slice = tensor.slice(offset, length);
            if (offset + length) as i64 > rows {
                assert!(slice.is_err(), "{length} from {offset} of {rows}");
                continue;
            }
            let slice = slice.unwrap();
            assert_eq!((slice.shape()[0], &slice.shape()[1..]), (length as i64, &tensor.shape()[1..]));
            let row = elements.len().checked_div(rows as usize).unwrap_or(0);
            assert_eq!(reached(&slice, start), elements[offset * row..(offset + length) * row]);
            // Where there is nothing to reach, the address stays that of the memory.
            assert!(!slice.is_empty() || slice.data == tensor.data);
        }
        for (offset, length) in [(usize::MAX, 1), (1, usize::MAX), (i64::MAX as usize, 1), (usize::MAX, usize::MAX)] {
            assert!(tensor.slice(offset, length).is_err());
        }
    });
}

/// Returns whether these elements, in row-major order, have a stride for each dimension of the shape.
fn has_strides(elements: &[i64], shape: &[i64]) -> bool {
    let mut inner = 1;
    let strides: Vec<i64> = shape
        .iter()
        .rev()
        .map(|extent| {
            let stride = if *extent > 1 { elements[inner] - elements[0] } else { 0 };
            inner *= *extent as usize;
            stride
        })
        .collect();
    elements.iter().enumerate().all(|(index, element)| {
        let mut index = index as i64;
        let offset: i64 = shape
            .iter()
            .rev()
            .zip(&strides)
            .map(|(extent, stride)| {
                let at = index % extent;
                index /= extent;
                at * stride
            })
            .sum();
        elements[0] + offset == *element
    })
}

#[test]
fn a_new_shape_reaches_the_same_elements_or_is_refused() {
    let (mut viewed, mut refused) = (0, 0);
    // Miri takes minutes for all of them.
    let (extents, ndim, strides): (&[i64], _, &[i64]) =
        if cfg!(miri) { (&[0, 1, 2, 4], 2, &[-1, 2]) } else { (&[0, 1, 2, 3, 6], 3, &[-1, 1, 2, 6]) };
    let mut check = |tensor: &Tensor, start: *const u8| {
        let elements = reached(tensor, start);
        for shape in shapes(extents, ndim) {
            let wanted: Vec<usize> = shape.iter().map(|extent| *extent as usize).collect();
            let result = tensor.reshape(&wanted);
            if shape.iter().product::<i64>() != elements.len() as i64 {
                assert!(result.is_err());
            } else if elements.is_empty() || has_strides(&elements, &shape) {
                let view = result.unwrap();
                assert_eq!((view.shape(), reached(&view, start)), (&shape[..], elements.clone()));
                viewed += 1;
            } else {
                let error = result.unwrap_err();
                assert!(error.reason().contains("have no strides for shape"), "{error}");
                refused += 1;
            }
        }
    };
    each_layout(&[0, 2], &[0, 1], 3, &mut check);
    each_layout(if cfg!(miri) { &[2] } else { &[1, 2, 3] }, strides, 3, &mut check);
    assert!(viewed > 0 && refused > 0);
}

#[test]
fn a_new_shape_keeps_the_field_of_rows_that_stay_what_they_are() {
    use arrow_schema::{DataType, Field};
    let mut memory = [0_i32; 6];
    let field = Arc::new(Field::new("x", DataType::Int32, true));
    let of = |shape: &[i64], strides: &[i64], memory: &mut [i32; 6]| Tensor {
        field: Some(field.clone()),
        ..tensor(memory.as_mut_ptr().cast(), shape, strides).unwrap()
    };
    let keeps = |tensor: &Tensor, shape: &[usize]| tensor.reshape(shape).unwrap().field().is_some();
    let rows = of(&[2, 3], &[3, 1], &mut memory);
    assert!(keeps(&rows, &[2, 3]) && !keeps(&rows, &[6]) && !keeps(&rows, &[3, 2]) && !keeps(&rows, &[1, 2, 3]));
    let one = of(&[], &[], &mut memory);
    // A tensor without dimensions has no rows.
    assert!(!keeps(&one, &[]) && !keeps(&one, &[1]) && !keeps(&of(&[1], &[1], &mut memory), &[]));
    assert!(keeps(&of(&[1], &[1], &mut memory), &[1]));
    assert!(rows.slice(1, 1).unwrap().field().is_some());
}

#[test]
fn views_of_lent_memory_are_lent() {
    let mut memory = [0_i32; 6];
    let lent = tensor(memory.as_mut_ptr().cast(), &[6], &[1]).unwrap().into_lent();
    assert!(lent.slice(0, 2).unwrap().lent && lent.reshape(&[2, 3]).unwrap().lent);
    assert!(!lent.is_untouched());
}

#[test]
fn what_counts_as_arrow_data_as_it_was_produced() {
    let start = std::ptr::dangling_mut::<u32>().cast();
    let made = || tensor(start, &[6], &[1]).unwrap();
    assert!(made().is_untouched());
    for changed in [Tensor { read_only: false, ..made() }, made().into_lent(), Tensor { copied: true, ..made() }] {
        assert!(!changed.is_untouched());
    }
    let own = made().into_lent().into_own();
    assert!(own.is_writable() && !own.lent && own.is_copied());
    let empty = tensor(start, &[0], &[1]).unwrap();
    assert!(!empty.clone().into_own().is_copied() && Tensor { copied: true, ..empty }.into_own().is_copied());
}

#[test]
fn codes_are_of_their_dictionary_until_somebody_may_write_others() {
    use arrow_array::Int8Array;
    use arrow_schema::{DataType, Field};
    let start = std::ptr::dangling_mut::<u32>().cast();
    let field = |data_type| Arc::new(Field::new("x", data_type, true));
    let codes = |all_valid| {
        let values = DeviceArray::from_arrow(&Int8Array::from(vec![1, 2]), field(DataType::Int8)).unwrap();
        let made = tensor(start, &[6], &[1]).unwrap();
        Tensor { field: Some(field(DataType::Int32)), ..made }.with_dictionary(values, all_valid)
    };
    assert!(!codes(true).codes_may_be_beyond() && codes(false).codes_may_be_beyond());
    assert!(codes(true).into_lent().codes_may_be_beyond());
    assert!(Tensor { read_only: false, ..codes(true) }.codes_may_be_beyond());
    // Without a dictionary there is none to be beyond.
    assert!(!tensor(start, &[6], &[1]).unwrap().into_lent().codes_may_be_beyond());
}

#[test]
fn a_shape_has_the_elements_that_there_are() {
    for (shape, len, fits) in [
        (&[2, 3][..], 6, true),
        (&[2, 3], 5, false),
        (&[2, 3], 7, false),
        (&[], 1, true),
        (&[], 0, false),
        (&[0], 0, true),
        (&[0], 1, false),
        (&[usize::MAX >> 1, 0], 0, true),
        (&[1 << 40, 1 << 40, 0], 0, true),
        (&[1 << 40, 1 << 40], 0, false),
        (&[usize::MAX, 0], 0, false),
        (&[1 << 32, 1 << 32], 0, false),
    ] {
        let dims = dims_of(shape, len);
        assert_eq!(dims.is_ok(), fits, "{shape:?} of {len}");
        assert!(dims.is_err() || dims.unwrap().iter().map(|extent| *extent as usize).eq(shape.iter().copied()));
    }
}

struct Dropped<'a>(&'a AtomicUsize);

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn raw_parts_are_checked_and_their_owner_is_dropped() {
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    let start = std::ptr::dangling_mut::<u64>().cast::<u8>();
    let of = |shape: &[i64], strides: Option<&[i64]>, writable| {
        let owner = Arc::new(Dropped(&DROPPED));
        // SAFETY: nobody reads the elements.
        unsafe { Tensor::from_raw_parts(start, Device::CPU, DType::Int64, shape, strides, owner, writable) }
    };
    let refused = [
        (&[-1][..], None),
        (&[-1, 0], None),
        (&[0, -1], Some(&[1, 1][..])),
        (&[2], Some(&[1, 1])),
        (&[i64::MAX], None),
    ];
    for (count, (shape, strides)) in refused.into_iter().enumerate() {
        assert!(of(shape, strides, true).is_err(), "{shape:?}");
        assert_eq!(DROPPED.load(Ordering::Relaxed), count + 1);
    }
    let made = of(&[2, 0, 3], None, true).unwrap();
    assert_eq!((made.shape(), made.len(), made.is_writable()), (&[2, 0, 3][..], 0, true));
    drop(made);
    let made = of(&[2, 3], None, false).unwrap();
    assert_eq!((made.strides(), made.is_writable(), made.readiness().is_none()), (&[3, 1][..], false, true));
    let copy = made.clone();
    drop(made);
    assert_eq!(DROPPED.load(Ordering::Relaxed), 6);
    drop(copy);
    assert_eq!(DROPPED.load(Ordering::Relaxed), 7);
}

#[test]
fn a_buffer_of_ours_is_as_large_as_its_tensor() {
    for (bytes, extent, fits) in [(8, 2, true), (9, 2, true), (7, 2, false), (4, 2, false), (0, 0, true), (4, 0, true)]
    {
        let mut buffer = HostBuffer::uninitialised(bytes).unwrap();
        buffer.as_uninit_mut().fill(std::mem::MaybeUninit::new(0));
        let (shape, strides) = (Dims::from_slice(&[extent]), Dims::from_slice(&[1]));
        // SAFETY: zeros are elements of int32.
        let made = unsafe { Tensor::from_host_buffer(buffer, DType::Int32, shape, strides, None) };
        assert_eq!(made.is_ok(), fits, "{extent} elements of {bytes} bytes");
        let Ok(made) = made else { continue };
        assert!(made.is_writable());
        assert_eq!(made.is_copied(), bytes > 0);
    }
}

#[test]
fn a_span_goes_from_the_lowest_to_the_highest_element() {
    let at = 1_usize << 20;
    let start = std::ptr::without_provenance_mut(at);
    for (shape, strides, span) in [
        (&[][..], &[][..], (0, 4)),
        (&[3], &[1], (0, 12)),
        (&[3], &[2], (0, 20)),
        (&[3], &[-2], (16, 20)),
        (&[2, 3], &[-5, 2], (20, 40)),
        (&[2, 3], &[0, 0], (0, 4)),
        (&[0, 3], &[-5, 2], (0, 0)),
        (&[1, 1], &[-5, 2], (0, 4)),
    ] {
        assert_eq!(tensor(start, shape, strides).unwrap().span(), Some(span), "{shape:?} {strides:?}");
    }
    // Down to address 0, and up to the last one that an allocation can have, but no further.
    let last = isize::MAX as usize;
    for (at, extent, stride, fits) in
        [(at, 1 + at as i64 / 4, -1, true), (at, 2 + at as i64 / 4, -1, false), (4, 1, 1, true), (last - 7, 1, 1, true)]
    {
        let made = tensor(std::ptr::without_provenance_mut(at), &[extent], &[stride]);
        assert_eq!(made.is_ok(), fits, "{extent} from {at}");
    }
}

#[test]
fn row_major_and_memory_order_are_told_from_strides() {
    let start = std::ptr::dangling_mut::<u32>().cast();
    for (shape, strides, row_major, dense) in [
        (&[][..], &[][..], true, true),
        (&[4], &[1], true, true),
        (&[4], &[2], false, false),
        (&[2, 3], &[3, 1], true, true),
        (&[2, 3], &[1, 2], false, true),
        (&[2, 3], &[4, 1], false, false),
        (&[2, 2], &[0, 1], false, false),
        (&[2, 1, 3], &[3, 7, 1], true, true),
        (&[3, 1, 2], &[1, 9, 3], false, true),
        (&[0, 3], &[9, 9], true, true),
    ] {
        let made = tensor(start, shape, strides).unwrap();
        assert_eq!(made.is_row_major(), row_major, "{shape:?} {strides:?}");
        let flat = made.in_memory_order();
        // Without elements there is no order to keep.
        assert!(made.is_empty() || flat.is_some() == dense, "{shape:?} {strides:?}");
        if let Some(flat) = flat {
            assert_eq!((flat.shape(), flat.strides()), (&[made.len() as i64][..], &[1][..]));
        }
    }
}

#[test]
fn elements_are_aligned_where_their_address_is() {
    for at in 0..8 {
        let made = |extent| tensor(std::ptr::without_provenance_mut(64 + at), &[extent], &[1]).unwrap();
        assert_eq!((made(2).is_aligned(), made(0).is_aligned()), (at % 4 == 0, true));
    }
}

/// Returns a writable tensor on this device, which nobody reads.
fn on(device: Device, at: usize, shape: &[i64], strides: &[i64]) -> Tensor {
    let made = tensor(std::ptr::without_provenance_mut(at), shape, strides).unwrap();
    Tensor { device, read_only: false, ..made }
}

#[test]
fn outputs_are_told_apart_by_device() {
    let device = |device_type| Device::new(device_type, 0);
    for (device_type, writes) in [
        (DLDeviceType::CPU, true),
        (DLDeviceType::CUDA, true),
        (DLDeviceType::CUDA_MANAGED, true),
        (DLDeviceType::CUDA_HOST, false),
        (DLDeviceType::ROCM, false),
    ] {
        let tensor = on(device(device_type), 64, &[2], &[1]);
        // SAFETY: nobody reads or writes the elements.
        let output = unsafe { Output::from_tensor(&tensor) };
        assert_eq!(output.is_ok(), writes, "{device_type:?}");
        let Ok(output) = output else { continue };
        assert_eq!(output.require_host().is_ok(), device_type == DLDeviceType::CPU);
        // No work orders this memory.
        assert!(output.require_device(device(DLDeviceType::CUDA)).is_err());
    }
}

#[test]
fn kernels_write_whole_elements() {
    let cuda = Device::new(DLDeviceType::CUDA, 0);
    // Complex numbers are aligned as their parts are.
    for (at, extent, aligned) in [(64, 2, true), (68, 2, false), (68, 0, true)] {
        let complex = Tensor { dtype: DType::Complex64, ..on(cuda, at, &[extent], &[1]) };
        // SAFETY: nobody reads or writes the elements.
        let output = unsafe { Output::from_tensor(&complex) }.unwrap();
        let error = output.require_device(cuda).unwrap_err();
        assert_eq!(error.reason().contains("not aligned to the 8 bytes"), !aligned, "{error}");
    }
}

#[test]
fn outputs_of_columns_are_told_from_outputs_of_rows() {
    for (shape, strides, is_column_major) in [
        (&[2, 3][..], &[3, 1][..], false),
        (&[2, 3], &[1, 2], true),
        (&[2, 3], &[1, 5], true),
        (&[2, 3], &[2, 8], false),
        (&[1, 3], &[3, 1], false),
        (&[1, 3], &[1, 2], true),
        (&[3, 1], &[1, 1], true),
        (&[3, 1], &[2, 1], false),
        (&[1, 1], &[1, 1], true),
        (&[6], &[1], false),
    ] {
        let tensor = on(Device::CPU, 64, shape, strides);
        // SAFETY: nobody reads or writes the elements.
        let output = unsafe { Output::from_tensor(&tensor) }.unwrap();
        assert_eq!(output.is_column_major(), is_column_major, "{shape:?} {strides:?}");
    }
}

#[test]
fn an_output_spans_its_elements_and_has_one_dtype_and_shape() {
    for (shape, strides, bytes) in
        [(&[2, 3][..], &[3, 1][..], 24), (&[2, 3], &[8, 2], 52), (&[0, 3], &[3, 1], 0), (&[], &[], 4)]
    {
        let tensor = on(Device::CPU, 64, shape, strides);
        // SAFETY: nobody reads or writes the elements.
        let mut output = unsafe { Output::from_tensor(&tensor) }.unwrap();
        let start = output.start().addr();
        assert_eq!(output.span(), start..start + bytes, "{shape:?} {strides:?}");
        assert!(output.require(DType::Int32, shape).is_ok());
        assert!(output.require(DType::Float32, shape).is_err());
        assert!(output.require(DType::Int32, &[shape, &[1]].concat()).is_err());
    }
    let mut memory = [0_i16; 6];
    for (shape, fits) in
        [(&[2, 3][..], true), (&[6], true), (&[5], false), (&[7], false), (&[usize::MAX, 2], false), (&[], false)]
    {
        assert_eq!(Output::from_slice(&mut memory, shape).is_ok(), fits, "{shape:?}");
    }
    assert!(Output::from_slice(&mut [0_i16; 0], &[0]).is_ok());
}

#[test]
fn outputs_whose_elements_share_memory_are_refused() {
    let mut both = [0, 0];
    each_layout(&[1, 2, 3], &[0, 1, 2, 3, 4, 6], 3, |tensor, start| {
        let mut elements = reached(tensor, start);
        elements.sort_unstable();
        let count = elements.len();
        elements.dedup();
        let tensor = Tensor { read_only: false, ..tensor.clone() };
        // SAFETY: nobody reads or writes the elements.
        let is_output = unsafe { Output::from_tensor(&tensor) }.is_ok();
        // Some layouts without overlap are refused too: the check looks at one stride after the other.
        assert!(!is_output || elements.len() == count, "{:?} {:?}", tensor.shape(), tensor.strides());
        let nested = has_nested_strides(tensor.shape(), tensor.strides());
        assert_eq!(is_output, nested, "{:?} {:?}", tensor.shape(), tensor.strides());
        both[usize::from(is_output)] += 1;
    });
    assert!(both[0] > 0 && both[1] > 0);
}

/// Returns whether, from the smallest stride on, each one steps over all elements of those before it.
fn has_nested_strides(shape: &[i64], strides: &[i64]) -> bool {
    let mut axes: Vec<(i64, i64)> =
        strides.iter().copied().zip(shape.iter().copied()).filter(|axis| axis.1 > 1).collect();
    axes.sort_unstable();
    let mut inner = 1;
    axes.iter().all(|(stride, extent)| {
        let nested = *stride >= inner;
        inner = stride * extent;
        nested
    })
}
