//! Offsets, lengths and views that lead anywhere: refused before anyone reads by them, by every way that would, and the
//! memory released once.

use std::ffi::c_void;

use arrow_array::types::Int32Type;
use arrow_array::{
    Array, Int8Array, Int32Array, Int64Array, LargeListViewArray, LargeStringArray, ListArray, ListViewArray,
    StringArray, StringViewArray,
};
use arrow_dlpack::ffi::arrow_device::ArrowArray;
use arrow_dlpack::ffi::dlpack::DLDeviceType;
use arrow_dlpack::{Conversion, CopyLog, CopyMode, DType, ErrorKind, Ragged, Tensor};

use crate::support::arrow::{field, import_edited, set_buffer};
use crate::support::dlpack::Memory;
use crate::{PAD, keep, positions, values};

fn pointer<T>(values: &[T]) -> *const c_void {
    values.as_ptr().cast()
}

/// An array whose structs are in order and whose contents are not.
fn assert_refused(array: &dyn Array, row: Option<usize>, edit: impl Fn(&mut ArrowArray)) {
    let own = field("x", array.data_type().clone());
    for options in [Conversion::default(), keep()] {
        let (imported, released) = import_edited(array, &own, &edit);
        let imported = imported.unwrap();
        let error = options.ragged(&imported).expect_err(&array.data_type().to_string());
        assert_eq!((error.kind(), error.column()), (ErrorKind::Invalid, Some("x")), "{error}");
        assert!(row.is_none() || error.row() == row, "{error}");
        let error = options.dtype(DType::Int64).padded(&imported, PAD).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        drop(imported);
        assert_eq!(released.get(), 1);
    }
}

fn lists() -> ListArray {
    ListArray::from_iter_primitive::<Int32Type, _, _>(
        [vec![1, 2], vec![], vec![3]].map(|row| Some(row.into_iter().map(Some))),
    )
}

#[test]
fn offsets_that_lead_out_of_their_elements_are_refused() {
    for (offsets, row) in [
        ([0_i32, 2, 2, -1], 2),
        ([0, 2, 1, 3], 1),
        ([0, 2, 2, 4], 2),
        ([-1, 2, 2, 3], 0),
        ([3, 2, 2, 3], 0),
        ([0, i32::MAX, 2, 3], 0),
        ([i32::MIN, 0, 0, 0], 0),
    ] {
        assert_refused(&lists(), Some(row), |array| set_buffer(array, 1, pointer(&offsets)));
    }
    let text = StringArray::from(vec!["ab", "", "c"]);
    let large = LargeStringArray::from(vec!["ab", "", "c"]);
    for offsets in [[0_i32, 2, 2, -1], [0, 2, 1, 3], [-1, 2, 2, 3], [0, i32::MAX, 2, 3]] {
        assert_refused(&text, None, |array| set_buffer(array, 1, pointer(&offsets)));
        let offsets = offsets.map(i64::from);
        assert_refused(&large, None, |array| set_buffer(array, 1, pointer(&offsets)));
    }
    let far = [0_i64, 2, 2, i64::MAX];
    assert_refused(&large, None, |array| set_buffer(array, 1, pointer(&far)));
    assert_refused(&text, None, |array| set_buffer(array, 2, std::ptr::null()));
}

#[test]
fn views_that_lead_out_of_their_elements_are_refused() {
    let rows = || [Some(vec![Some(1), Some(2)]), Some(vec![Some(3)])];
    let views = ListViewArray::from_iter_primitive::<Int32Type, _, _>(rows());
    let large = LargeListViewArray::from_iter_primitive::<Int32Type, _, _>(rows());
    for (offsets, lengths, row) in [
        ([0_i32, 4], [2_i32, 0], 1),
        ([0, 3], [2, 1], 1),
        ([-1, 2], [1, 1], 0),
        ([0, 2], [-1, 1], 0),
        ([0, i32::MAX], [2, i32::MAX], 1),
        ([1, 2], [i32::MAX, 1], 0),
    ] {
        assert_refused(&views, Some(row), |array| {
            set_buffer(array, 1, pointer(&offsets));
            set_buffer(array, 2, pointer(&lengths));
        });
    }
    let (offsets, lengths) = ([0, i64::MAX], [2, i64::MAX]);
    assert_refused(&large, Some(1), |array| {
        set_buffer(array, 1, pointer(&offsets));
        set_buffer(array, 2, pointer(&lengths));
    });
}

#[test]
fn an_empty_view_may_start_where_the_elements_end() {
    let views = ListViewArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), Some(2)]), Some(vec![])]);
    let (offsets, lengths) = ([0_i32, 2], [2_i32, 0]);
    let own = field("x", views.data_type().clone());
    let (imported, _) = import_edited(&views, &own, |array| {
        set_buffer(array, 1, pointer(&offsets));
        set_buffer(array, 2, pointer(&lengths));
    });
    let ragged = Conversion::default().ragged(&imported.unwrap()).unwrap();
    assert_eq!(values(&ragged).as_slice::<i32>().unwrap(), [1, 2]);
}

#[test]
fn views_of_strings_that_lead_out_of_their_buffers_are_refused() {
    let array = StringViewArray::from(vec!["longer than twelve bytes", "x"]);
    let view = |length: i32, buffer: i32, offset: i32| {
        let mut view = [0; 16];
        view[..4].copy_from_slice(&length.to_ne_bytes());
        view[8..12].copy_from_slice(&buffer.to_ne_bytes());
        view[12..].copy_from_slice(&offset.to_ne_bytes());
        u128::from_ne_bytes(view)
    };
    let good = view(1, 0, 0);
    for bad in [
        view(-1, 0, 0),
        view(13, 1, 0),
        view(13, -1, 0),
        view(13, 0, 12),
        view(13, 0, -1),
        view(25, 0, 0),
        view(i32::MAX, 0, i32::MAX),
    ] {
        let views = [good, bad];
        assert_refused(&array, Some(1), |array| set_buffer(array, 1, pointer(&views)));
    }
    let sizes = [-1_i64];
    assert_refused(&array, None, |array| set_buffer(array, 3, pointer(&sizes)));
    assert_refused(&array, None, |array| set_buffer(array, 2, std::ptr::null()));
}

#[test]
fn misaligned_offsets_are_moved() {
    let mut memory = [0_u8; 20];
    let skip = (0..4).find(|skip| memory.as_ptr().wrapping_add(*skip).addr() % 4 == 1).unwrap();
    memory[skip..skip + 16].copy_from_slice(&[0_i32, 2, 2, 3].map(i32::to_ne_bytes).concat());
    let own = field("x", lists().data_type().clone());
    let (imported, _) =
        import_edited(&lists(), &own, |array| set_buffer(array, 1, memory.as_ptr().wrapping_add(skip).cast()));
    let imported = imported.unwrap();
    let log = CopyLog::new();
    let ragged = log.track(|| Conversion::default().ragged(&imported)).unwrap();
    assert_eq!((positions(ragged.offsets()), values(&ragged).len()), (vec![0, 2, 2, 3], 3));
    assert!(log.entries()[0].why.contains("realigned"), "{:?}", log.entries());
    let error = Conversion::default().copy(CopyMode::Never).ragged(&imported).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Copy);
}

fn tensor(array: &dyn Array) -> Tensor {
    Conversion::default().to_tensor(array).unwrap()
}

#[test]
fn parts_that_do_not_fit_each_other_are_refused() {
    let items = || tensor(&Int32Array::from(vec![1, 2, 3]));
    let int32 = |values: &[i32]| tensor(&Int32Array::from(values.to_vec()));
    for offsets in [&[][..], &[0, 4], &[2, 1], &[-1, 2], &[0, 3, i32::MIN], &[i32::MAX]] {
        let error = Ragged::new(items(), int32(offsets), None, None, None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Argument, "{offsets:?}: {error}");
    }
    for (offsets, lengths) in
        [(&[0][..], &[4][..]), (&[3], &[1]), (&[-1], &[1]), (&[0], &[-1]), (&[0], &[1, 1]), (&[i32::MAX], &[i32::MAX])]
    {
        let error = Ragged::new(items(), int32(offsets), Some(int32(lengths)), None, None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Argument, "{offsets:?} {lengths:?}: {error}");
    }
    let wide = tensor(&Int64Array::from(vec![0, i64::MAX]));
    assert!(Ragged::new(items(), wide.clone(), None, None, None).is_err());
    assert!(Ragged::new(items(), int32(&[0]), Some(tensor(&Int64Array::from(vec![1]))), None, None).is_err());
    assert!(Ragged::new(items(), tensor(&Int8Array::from(vec![0, 1])), None, None, None).is_err());
    let flags = |values: Vec<bool>| tensor(&arrow_array::BooleanArray::from(values));
    assert!(Ragged::new(items(), int32(&[0, 3]), None, None, Some(flags(vec![true, false]))).is_err());
    assert!(Ragged::new(items(), int32(&[0, 3]), None, None, Some(int32(&[1]))).is_err());
    assert!(Ragged::new(items(), int32(&[0, 3]), None, Some(int32(&[3])), None).is_err(), "one dimension");
    let shapes = |extents: Vec<i32>| {
        let pairs = extents.chunks(2).map(|pair| Some(pair.iter().copied().map(Some).collect::<Vec<_>>()));
        tensor(&arrow_array::FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>(pairs, 2))
    };
    assert!(Ragged::new(items(), int32(&[0, 3]), None, Some(shapes(vec![3, 1])), None).is_ok());
    for extents in [vec![2, 1], vec![-1, -3], vec![i32::MAX, i32::MAX], vec![3, 1, 0, 0]] {
        assert!(
            Ragged::new(items(), int32(&[0, 3]), None, Some(shapes(extents.clone())), None).is_err(),
            "{extents:?}"
        );
    }
    let wide = || tensor(&Int64Array::from(vec![0, 3]));
    let of_shape = |tensor: Tensor, shape: &[usize]| tensor.reshape(shape).unwrap();
    for (values, offsets, lengths, with_shapes, words) in [
        (items(), int32(&[0]), Some(int32(&[3])), true, "no lengths"),
        (items(), wide(), None, true, "int32 offsets"),
        (of_shape(items(), &[3, 1]), int32(&[0, 3]), None, true, "1-d values"),
        (of_shape(int32(&[1]), &[]), int32(&[0, 1]), None, false, "at least one dimension"),
        (items(), of_shape(int32(&[0, 3]), &[2, 1]), None, false, "offsets must be"),
    ] {
        let shapes = with_shapes.then(|| shapes(vec![3, 1]));
        let error = Ragged::new(values, offsets, lengths, shapes, None).unwrap_err();
        assert!(error.kind() == ErrorKind::Argument && error.reason().contains(words), "{error}");
    }
    let far = Memory::new(&[1], DType::Bool, &[1], &[1], 0)
        .import_edited(|managed| managed.dl_tensor.device.device_type = DLDeviceType::ROCM);
    for (validity, words) in
        [(of_shape(flags(vec![true]), &[1, 1]), "validity must be"), (far.0.unwrap(), "their validity on")]
    {
        let error = Ragged::new(items(), int32(&[0, 3]), None, None, Some(validity)).unwrap_err();
        assert!(error.kind() == ErrorKind::Argument && error.reason().contains(words), "{error}");
    }
    // Rows of rows are bounded by rows.
    let inner = Ragged::new(items(), int32(&[0, 1, 3]), None, None, None).unwrap();
    assert!(Ragged::new(inner.clone(), int32(&[0, 3]), None, None, None).is_err());
    let outer = Ragged::new(inner, int32(&[0, 2]), None, None, None).unwrap();
    assert_eq!(outer.to_arrow(CopyMode::Never).unwrap().to_arrow().unwrap().len(), 1);
}
