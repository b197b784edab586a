//! Do tensors of a caller's memory share it, release it once, and give back the elements that they hold?

#![allow(unsafe_code, reason = "makes tensors of raw parts")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper that fails is a test that fails"
)]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "the numbers of a test are small"
)]

#[path = "support/mod.rs"]
mod support;

use std::sync::Arc;

use arrow_array::{Array, BooleanArray, Int8Array, Int32Array, TimestampSecondArray};
use arrow_dlpack::ffi::dlpack::DLDeviceType;
use arrow_dlpack::{
    Conversion, CopyLog, CopyMode, DType, Device, DeviceArray, ErrorKind, NullPolicy, Output, Result, Selection,
    Tensor, to_arrow,
};
use arrow_schema::DataType;
use support::arrow::{extension, field};
use support::dlpack::{Memory, tensor_of};
use support::{Count, CountsDrop};

/// Six numbers that count their release.
#[derive(Debug)]
struct Six {
    numbers: [i32; 6],
    _dropped: CountsDrop,
}

impl Six {
    fn new() -> (Self, Count) {
        let count = Count::default();
        (Self { numbers: [1, 2, 3, 4, 5, 6], _dropped: CountsDrop(count.clone()) }, count)
    }
}

impl AsRef<[i32]> for Six {
    fn as_ref(&self) -> &[i32] {
        &self.numbers
    }
}

/// The bytes of each element of a tensor.
fn bytes_of(tensor: &Tensor) -> Vec<Vec<u8>> {
    let bytes = tensor.contiguous().unwrap();
    // SAFETY: the memory is the test's, which does not write to it.
    let bytes = unsafe { bytes.lent_bytes() }.unwrap();
    bytes.chunks(tensor.dtype().itemsize()).map(<[u8]>::to_vec).collect()
}

#[test]
fn a_vector_is_shared_and_writable() {
    let values = vec![1_i16, 2, 3, 4, 5, 6];
    let start = values.as_ptr();
    let tensor = Tensor::from_vec(values, &[2, 3]).unwrap();
    assert_eq!(tensor.as_ptr().cast_const().cast(), start);
    assert_eq!((tensor.dtype(), tensor.shape(), tensor.strides()), (DType::Int16, &[2, 3][..], &[3, 1][..]));
    assert!(tensor.is_writable() && !tensor.is_copied());
    assert_eq!(tensor.as_slice::<i16>().unwrap(), [1, 2, 3, 4, 5, 6]);
    let bools = Tensor::from_bools(vec![true, false], &[2]).unwrap();
    assert_eq!((bools.dtype(), bools.as_bools().unwrap()), (DType::Bool, &[true, false][..]));
    assert_eq!(Tensor::from_vec(vec![7_u8], &[]).unwrap().to_vec::<u8>().unwrap(), [7]);
}

#[test]
fn a_shape_of_other_elements_is_refused() {
    for shape in [&[5][..], &[2, 4], &[], &[0, 6], &[usize::MAX, 2], &[usize::MAX, usize::MAX]] {
        let (six, released) = Six::new();
        let error = Tensor::from_owner(six, shape).unwrap_err();
        assert_eq!((error.kind(), released.get()), (ErrorKind::Argument, 1), "{shape:?}");
        assert!(error.to_string().contains(&format!("6 elements for shape {shape:?}")), "{error}");
        assert!(Tensor::from_vec(vec![0_u8; 6], shape).is_err());
        assert!(Tensor::from_vec(vec![0_u8; 6], &[6]).unwrap().reshape(shape).is_err());
    }
    for shape in [&[0][..], &[7, 0, 3], &[0, 3]] {
        let empty = Tensor::from_vec(Vec::<f64>::new(), shape).unwrap();
        assert!(empty.is_empty() && empty.as_ptr().is_null());
    }
    assert_eq!(Tensor::from_vec(Vec::<f64>::new(), &[0, 3]).unwrap().strides(), [3, 1]);
}

#[test]
fn an_owner_lives_as_long_as_its_last_view() {
    let (six, released) = Six::new();
    let tensor = Tensor::from_owner(six, &[3, 2]).unwrap();
    assert!(!tensor.is_writable());
    let (part, flat) = (tensor.slice(1, 1).unwrap(), tensor.reshape(&[6]).unwrap());
    let arrow = to_arrow(&flat, None, CopyMode::Never).unwrap();
    drop((tensor, flat));
    assert_eq!(part.as_slice::<i32>().unwrap(), [3, 4]);
    drop(part);
    assert_eq!(released.get(), 0);
    assert_eq!(arrow.to_arrow().unwrap().len(), 6);
    drop(arrow);
    assert_eq!(released.get(), 1);
}

#[test]
fn raw_parts_have_any_strides_and_release_their_owner_once() {
    let of = |shape: &[i64], strides: Option<&[i64]>, first: usize, writable| -> (Result<Tensor>, Count) {
        let (six, released) = Six::new();
        let owner = Arc::new(six);
        let data = owner.numbers.as_ptr().wrapping_add(first).cast_mut().cast();
        // SAFETY: the shapes and strides below reach the six numbers of the owner alone, and nobody writes to them.
        let made = unsafe { Tensor::from_raw_parts(data, Device::CPU, DType::Int32, shape, strides, owner, writable) };
        (made, released)
    };
    for (shape, strides, first, expected) in [
        (&[2, 3][..], None, 0, &[1, 2, 3, 4, 5, 6][..]),
        (&[3, 2], Some(&[1, 3][..]), 0, &[1, 4, 2, 5, 3, 6]),
        (&[6], Some(&[-1]), 5, &[6, 5, 4, 3, 2, 1]),
        (&[2, 2], Some(&[0, 4]), 1, &[2, 6, 2, 6]),
        (&[], None, 2, &[3]),
        (&[0], None, 0, &[]),
    ] {
        let (made, released) = of(shape, strides, first, false);
        let tensor = made.unwrap();
        assert_eq!(tensor.to_vec::<i32>().unwrap(), expected);
        assert_eq!((released.get(), tensor.is_writable()), (0, false));
        drop(tensor);
        assert_eq!(released.get(), 1);
    }
    for (shape, strides) in [(&[-1][..], None), (&[-2, -3], None), (&[2], Some(&[1, 1][..])), (&[2], Some(&[i64::MAX]))]
    {
        let (refused, released) = of(shape, strides, 0, true);
        assert!(refused.is_err(), "{shape:?}");
        assert_eq!(released.get(), 1);
    }
    let (six, released) = Six::new();
    let rocm = Device::new(DLDeviceType::ROCM, 0);
    // SAFETY: nothing here reads memory of that device.
    let tensor =
        unsafe { Tensor::from_raw_parts(16 as _, rocm, DType::Int32, &[6], None, Arc::new(six), true) }.unwrap();
    assert!(tensor.is_writable() && tensor.readiness().is_some());
    for error in [tensor.to_vec::<i32>().unwrap_err(), tensor.as_slice::<i32>().unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Device);
        assert_eq!(error.remedy().as_deref(), Some("copy it to the CPU with the library that made it"));
    }
    assert_eq!(tensor.slice(1, 2).unwrap().as_ptr().addr(), 20);
    drop(tensor);
    assert_eq!(released.get(), 1);
}

#[test]
fn bools_are_checked_and_never_borrowed_from_lent_memory() {
    let lent = |byte| Memory::new(&[1, 0, byte], DType::Bool, &[3], &[1], 0).import().0.unwrap();
    assert_eq!(lent(1).to_bools().unwrap(), [true, false, true]);
    let lent_error = lent(1).as_bools().unwrap_err();
    assert!(lent_error.to_string().contains("lent"), "{lent_error}");
    let error = lent(2).to_bools().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("element 2 of a bool tensor has the byte 2"), "{error}");
    let bytes: Arc<[u8; 2]> = Arc::new([1, 255]);
    let data = bytes.as_ptr().cast_mut();
    // SAFETY: two live bytes; that one is no bool is what is to be found, before anyone takes it for one.
    let hostile = unsafe { Tensor::from_raw_parts(data, Device::CPU, DType::Bool, &[2], None, bytes, false) }.unwrap();
    assert!(hostile.as_bools().unwrap_err().to_string().contains("the byte 255"));
    assert!(hostile.to_bools().is_err());
    assert_eq!(hostile.slice(0, 1).unwrap().as_bools().unwrap(), [true]);
    let bytes = Tensor::from_vec(vec![1_u8], &[1]).unwrap();
    assert!(bytes.as_bools().is_err() && bytes.to_bools().is_err());
}

#[test]
fn a_slice_has_the_rows_that_it_names() {
    let tensor = Tensor::from_vec((0..6_i64).collect(), &[3, 2]).unwrap();
    for (offset, length) in [(0, 3), (1, 2), (2, 1), (3, 0), (0, 0)] {
        let rows = tensor.slice(offset, length).unwrap();
        assert_eq!(
            rows.to_vec::<i64>().unwrap(),
            (2 * offset as i64..2 * (offset + length) as i64).collect::<Vec<_>>()
        );
        assert_eq!(rows.shape(), [length as i64, 2]);
    }
    for (offset, length) in
        [(0, 4), (4, 0), (2, 2), (usize::MAX, 1), (1, usize::MAX), (i64::MAX as usize, i64::MAX as usize)]
    {
        assert_eq!(tensor.slice(offset, length).unwrap_err().kind(), ErrorKind::Argument, "{offset} {length}");
    }
    assert!(Tensor::from_vec(vec![1_u8], &[]).unwrap().slice(0, 0).is_err());
}

#[test]
fn a_view_keeps_the_type_that_it_came_from_only_if_it_still_is_that() {
    let times = TimestampSecondArray::from(vec![1, 2, 3, 4]);
    let tensor = Conversion::default().to_tensor(&times).unwrap();
    let back = to_arrow(&tensor.slice(1, 2).unwrap(), None, CopyMode::Never).unwrap().to_arrow().unwrap();
    assert_eq!(back.as_ref(), &TimestampSecondArray::from(vec![2, 3]) as &dyn Array);
    assert!(tensor.reshape(&[4]).unwrap().field().is_some());
    let matrix = tensor.reshape(&[2, 2]).unwrap();
    assert!(matrix.field().is_none());
    let back = to_arrow(&matrix, None, CopyMode::Never).unwrap();
    assert!(matches!(back.field().data_type(), DataType::FixedSizeList(_, 2)));
}

#[test]
fn copies_are_recorded_and_views_are_none() {
    let log = CopyLog::new();
    let tensor = Tensor::from_vec(vec![1_i32, 2, 3, 4], &[2, 2]).unwrap();
    log.track(|| {
        assert_eq!(tensor.contiguous().unwrap().as_ptr(), tensor.as_ptr());
        tensor.slice(1, 1).unwrap().reshape(&[2, 1]).unwrap();
    });
    assert_eq!(log.bytes(), 0);
    let (strided, expected) = tensor_of(DType::Int32, &[(2, 1), (3, 2)], 0, 1);
    assert_eq!(log.track(|| bytes_of(&strided)), expected);
    assert_eq!((log.bytes(), log.entries()[0].why.as_str()), (24, "strided elements made contiguous"));
    log.track(|| strided.to_vec::<i32>()).unwrap();
    assert_eq!((log.bytes(), log.entries()[1].why.as_str()), (48, "elements copied to a vector"));
    assert!(strided.contiguous().unwrap().is_writable());
}

#[test]
fn more_elements_than_memory_are_an_error() {
    let huge: Arc<[u8; 1]> = Arc::new([1]);
    let data = huge.as_ptr().cast_mut();
    let extents = [1 << 62];
    // SAFETY: every element is the one byte.
    let broadcast =
        unsafe { Tensor::from_raw_parts(data, Device::CPU, DType::UInt8, &extents, Some(&[0]), huge, false) }.unwrap();
    assert_eq!(broadcast.to_vec::<u8>().unwrap_err().kind(), ErrorKind::Memory);
    assert_eq!(broadcast.contiguous().unwrap_err().kind(), ErrorKind::Memory);
    assert_eq!(broadcast.slice(1 << 61, 2).unwrap().to_vec::<u8>().unwrap(), [1, 1]);
}

/// The shapes that a reshape could ask for.
const SHAPES: &[&[usize]] = &[
    &[24],
    &[2, 12],
    &[12, 2],
    &[4, 6],
    &[2, 3, 4],
    &[1, 24],
    &[24, 1, 1],
    &[3, 1, 8],
    &[2, 2, 2, 3],
    &[8, 3],
    &[6, 4],
];

#[test]
fn a_reshape_gives_the_same_elements_or_refuses() {
    let (mut views, mut refused) = (0, 0);
    for axes in [
        &[(24, 1)][..],
        &[(24, 3)],
        &[(24, -2)],
        &[(24, 0)],
        &[(4, 6), (6, 1)],
        &[(4, 12), (6, 2)],
        &[(4, 8), (6, 1)],
        &[(4, 1), (6, 4)],
        &[(2, 1), (3, 8), (4, 2)],
        &[(2, 12), (3, 4), (4, 1)],
        &[(2, 0), (12, 1)],
        &[(2, 12), (1, 99), (12, 1)],
        &[(1, 0), (24, 1)],
        &[(3, -8), (8, -1)],
    ] {
        let (tensor, expected) = tensor_of(DType::UInt16, axes, 3, 7);
        for shape in SHAPES {
            match tensor.reshape(shape) {
                Ok(view) => {
                    assert_eq!(bytes_of(&view), expected, "{axes:?} {shape:?}");
                    assert!(view.shape().iter().map(|extent| *extent as usize).eq(shape.iter().copied()));
                    views += 1;
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Unsupported);
                    // The same elements in a row-major copy have every shape.
                    assert_eq!(bytes_of(&tensor.contiguous().unwrap().reshape(shape).unwrap()), expected);
                    // A shape of the tensor's own dimensions is never refused.
                    assert!(!shape.iter().copied().eq(axes.iter().map(|(extent, _)| *extent as usize)));
                    refused += 1;
                }
            }
        }
    }
    // As many as NumPy's `reshape(copy=False)` gives and refuses.
    assert_eq!((views, refused), (VIEWS, SHAPES.len() * 14 - VIEWS));
}

/// How many of the reshapes above are views in NumPy.
const VIEWS: usize = 120;

#[test]
fn a_tensor_is_converted_as_its_report_says() {
    let whole = [(DType::Int32, &[(2, 3), (3, 1)][..]), (DType::Complex64, &[(3, 1)]), (DType::Bool, &[(4, 1)])];
    let strided = [(DType::Int32, &[(2, 1), (3, 2)][..]), (DType::Complex64, &[(3, -1)]), (DType::Bool, &[(4, 2)])];
    for (dtype, axes) in whole.into_iter().chain(strided) {
        let (tensor, expected) = tensor_of(dtype, axes, 0, 1);
        for copy in [CopyMode::Never, CopyMode::IfNeeded, CopyMode::Always] {
            let conversion = Conversion::default().copy(copy);
            let report = conversion.explain_tensor(&tensor).unwrap();
            let log = CopyLog::new();
            match log.track(|| conversion.convert_tensor(&tensor)) {
                Ok(made) => {
                    assert_eq!(
                        (made.dtype(), made.shape(), bytes_of(&made)),
                        (dtype, tensor.shape(), expected.clone())
                    );
                    // Whether bytes are bools is seen when they are read.
                    if !report.rows[0].at_most {
                        assert_eq!((log.bytes(), made.is_copied()), (report.bytes(), !report.rows[0].view), "{report}");
                    }
                }
                Err(error) => assert_eq!(report.rows[0].error.as_ref(), Some(&error), "{dtype} {axes:?} {copy:?}"),
            }
        }
    }
    let (tensor, _) = tensor_of(DType::Complex64, &[(3, 1)], 0, 1);
    let pairs = Conversion::default().dtype(DType::Float32).convert_tensor(&tensor).unwrap();
    assert_eq!(pairs.shape(), [3, 2]);
    // Before anything is gathered.
    let (strided, _) = tensor_of(DType::Int32, &[(3, 2)], 0, 1);
    for conversion in [Conversion::default().columns(["a"]), Conversion::default().select(Selection::Each(None))] {
        let log = CopyLog::new();
        assert!(log.track(|| conversion.convert_tensor(&strided)).is_err());
        assert!(log.entries().is_empty());
    }
}

#[test]
fn bools_of_the_caller_are_written_as_bools() {
    let mut written = [false; 3];
    let truths = BooleanArray::from(vec![Some(true), None, Some(true)]);
    let filled = Conversion::default().nulls(NullPolicy::Fill(false.into()));
    filled.write(&truths, &mut Output::from_bools(&mut written, &[3]).unwrap()).unwrap();
    assert_eq!(written, [true, false, true]);

    // Bytes that are neither 0 nor 1, and numbers that no bool can hold.
    let bool8 = extension(&field("flag", DataType::Int8), "arrow.bool8", "");
    let flags = DeviceArray::from_arrow(&Int8Array::from(vec![3, 0, -1]), bool8).unwrap();
    Conversion::default().write(&flags, &mut Output::from_bools(&mut written, &[3]).unwrap()).unwrap();
    assert_eq!(written, [true, false, true]);
    let numbers = Int32Array::from(vec![0, 7, 1]);
    let cast = Conversion::default().dtype(DType::Bool);
    cast.write(&numbers, &mut Output::from_bools(&mut written, &[3]).unwrap()).unwrap_err();
    assert!(written.map(u8::from).iter().all(|byte| *byte <= 1));

    let error = Output::from_bools(&mut written, &[2]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Argument);
}
