//! Does a tensor survive the way to Arrow and back, and is each way the view or the copy that was promised?

#![allow(unsafe_code, reason = "writes codes to a tensor's memory as its consumer")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper that fails is a test that fails"
)]

mod support;

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int8Type;
use arrow_array::{
    Array, ArrayRef, DictionaryArray, FixedSizeListArray, Int32Array, StructArray, TimestampMicrosecondArray,
};
use arrow_buffer::NullBuffer;
use arrow_dlpack::{
    Conversion, CopyLog, CopyMode, DType, DeviceArray, ErrorKind, NullPolicy, Tensor, to_arrow, to_arrow_as,
};
use arrow_schema::{DataType, FieldRef};
use support::arrow::{extension, field, import_edited, list, random_array, shared};
use support::dlpack::Memory;
use support::reference::{positions, read, read_bools};
use support::{Count, Random};

/// A layout of a tensor over memory of `items` elements: shape, strides and the first element's number.
type Layout = (&'static [i64], &'static [i64], usize);

/// Layouts that Arrow can hold as they are.
const VIEWS: [Layout; 12] = [
    (&[], &[], 0),
    (&[], &[], 5),
    (&[7], &[1], 0),
    (&[7], &[1], 3),
    (&[1], &[-9], 2),
    (&[4, 3], &[3, 1], 1),
    (&[2, 2, 3], &[6, 3, 1], 0),
    (&[2, 2, 3], &[6, 1, 2], 2),
    (&[2, 2, 1, 3], &[6, 1, 77, 2], 0),
    (&[2, 3, 2, 2], &[12, 1, 6, 3], 0),
    (&[1, 3, 2], &[99, 1, 3], 0),
    (&[3, 1], &[1, 55], 0),
];

/// Layouts whose elements must move.
const COPIES: [Layout; 10] = [
    (&[4], &[2], 0),
    (&[4], &[-1], 3),
    (&[4], &[0], 6),
    (&[3, 4], &[1, 3], 0),
    (&[3, 4], &[6, 1], 0),
    (&[3, 4], &[4, -1], 3),
    (&[3, 4], &[-4, 1], 8),
    (&[2, 3], &[0, 1], 4),
    (&[2, 3, 2], &[2, 4, 1], 0),
    (&[2, 2, 3], &[12, 1, 4], 0),
];

/// Layouts of no elements.
const EMPTY: [Layout; 5] =
    [(&[0], &[1], 0), (&[0], &[-7], 0), (&[0, 3], &[3, 1], 0), (&[3, 0], &[5, 1], 0), (&[2, 0, 4], &[0, 0, 0], 0)];

fn tensor(dtype: DType, (shape, strides, first): Layout) -> (Tensor, Vec<Vec<u8>>, Count) {
    let mut random = Random(3);
    let bytes: Vec<u8> = (0..24 * dtype.itemsize())
        .map(|_| random.next().to_le_bytes()[0])
        .map(|byte| if dtype == DType::Bool { byte & 1 } else { byte })
        .collect();
    let expected = positions(shape, strides)
        .into_iter()
        .map(|position| {
            let element = usize::try_from(position + i64::try_from(first).unwrap()).unwrap();
            bytes[element * dtype.itemsize()..][..dtype.itemsize()].to_vec()
        })
        .collect();
    let (tensor, released) = Memory::new(&bytes, dtype, shape, strides, first).import();
    (tensor.unwrap(), expected, released)
}

/// Every dtype; under Miri bool and two more, of other sizes.
fn dtypes() -> impl Iterator<Item = DType> {
    DType::ALL.iter().copied().step_by(if cfg!(miri) { 11 } else { 1 })
}

/// What asks for a tensor's own dtype: complex numbers are pairs of floats unless asked for.
fn own(dtype: DType) -> Conversion {
    let complex = matches!(dtype, DType::Complex64 | DType::Complex128);
    if complex { Conversion::default().dtype(dtype) } else { Conversion::default() }
}

/// There and back again; returns the bytes that moved on the way there.
fn assert_round_trip(dtype: DType, layout: Layout, copy: CopyMode) -> usize {
    let (tensor, expected, released) = tensor(dtype, layout);
    assert_eq!(read(&tensor), expected, "the import itself");
    let log = CopyLog::new();
    let array = log.track(|| to_arrow(&tensor, None, copy)).unwrap();
    let rows = layout.0.first().copied().unwrap_or(1);
    assert_eq!(i64::try_from(array.len()).unwrap(), rows);
    let back = own(dtype).to_tensor(&array).unwrap();
    let shape = if layout.0.is_empty() { &[1] } else { layout.0 };
    assert_eq!((back.dtype(), back.shape()), (dtype, shape), "{layout:?}");
    assert_eq!(read(&back), expected, "{dtype} {layout:?} {copy:?}");
    assert!(!back.is_copied(), "what came from a tensor is one again without a copy");
    assert_eq!(log.bytes() == 0, tensor.is_empty() || back.as_ptr() == tensor.as_ptr());
    drop(tensor);
    assert_eq!(read(&back), expected, "the result keeps its memory");
    drop((array, back));
    assert_eq!(released.get(), 1);
    log.bytes()
}

#[test]
fn dense_rows_are_views_both_ways() {
    for dtype in dtypes() {
        for layout in VIEWS.into_iter().chain(EMPTY) {
            assert_eq!(assert_round_trip(dtype, layout, CopyMode::Never), 0);
            assert_eq!(assert_round_trip(dtype, layout, CopyMode::IfNeeded), 0);
        }
    }
}

#[test]
fn other_layouts_are_gathered_or_refused() {
    for dtype in dtypes() {
        for layout in COPIES {
            let (tensor, expected, _released) = tensor(dtype, layout);
            let bytes = expected.len() * dtype.itemsize();
            assert_eq!(assert_round_trip(dtype, layout, CopyMode::IfNeeded), bytes, "{layout:?}");
            let error = to_arrow(&tensor, None, CopyMode::Never).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Copy, "{layout:?}");
            assert!(
                error.reason().contains(&format!("{bytes} bytes")) && error.reason().contains("gathered"),
                "{error}"
            );
        }
    }
}

#[test]
fn a_copy_on_request_is_made_of_every_layout() {
    for dtype in dtypes() {
        for layout in VIEWS.into_iter().chain(COPIES) {
            let elements: i64 = layout.0.iter().product();
            let bytes = usize::try_from(elements).unwrap() * dtype.itemsize();
            assert_eq!(assert_round_trip(dtype, layout, CopyMode::Always), bytes, "{layout:?}");
        }
        for layout in EMPTY {
            assert_eq!(assert_round_trip(dtype, layout, CopyMode::Always), 0);
        }
    }
}

#[test]
fn misaligned_elements_move() {
    for layout in [VIEWS[2], VIEWS[7]] {
        let bytes: Vec<u8> = (0..100).collect();
        let (shape, strides, first) = layout;
        let memory = Memory::new(&bytes, DType::Int32, shape, strides, first);
        let (tensor, _released) = memory.import_edited(|managed| managed.dl_tensor.byte_offset += 1);
        let tensor = tensor.unwrap();
        assert_eq!(to_arrow(&tensor, None, CopyMode::Never).unwrap_err().kind(), ErrorKind::Copy);
        let back = Conversion::default().to_tensor(&to_arrow(&tensor, None, CopyMode::IfNeeded).unwrap()).unwrap();
        assert!(back.is_aligned());
        assert_eq!(read(&back), read(&tensor), "{layout:?}");
    }
}

#[test]
fn rows_of_dimensions_are_fixed_shape_tensors() {
    let (tensor, _, _released) = tensor(DType::Int64, (&[2, 2, 3], &[6, 1, 2], 0));
    let array = to_arrow(&tensor, None, CopyMode::Never).unwrap();
    assert_eq!(array.field().extension_type_name(), Some("arrow.fixed_shape_tensor"));
    assert_eq!(array.field().extension_type_metadata(), Some(r#"{"permutation":[1,0],"shape":[3,2]}"#));
    assert_eq!(read(&Conversion::default().to_tensor(&array).unwrap()), read(&tensor));
    // The storage, as someone who ignores the extension reads it: the elements as they lie.
    let storage = array.to_arrow().unwrap();
    let items = storage.as_fixed_size_list().values().to_data().buffers()[0].as_slice().to_vec();
    let lying = Memory::new(&items, DType::Int64, &[12], &[1], 0).import().0.unwrap();
    let (flat, ..) = self::tensor(DType::Int64, (&[12], &[1], 0));
    assert_eq!(read(&lying), read(&flat));
}

#[test]
fn a_validity_becomes_the_bitmap() {
    let valid = [true, false, true, true, false, true, true, false, true, true];
    for (shape, strides) in [(&[10_i64][..], &[1_i64][..]), (&[10, 2], &[2, 1]), (&[10], &[2])] {
        let (values, ..) =
            tensor(DType::Int16, (if shape.len() == 2 { &[10, 2] } else { &[10] }, strides_of(strides), 0));
        let bytes: Vec<u8> = valid.iter().flat_map(|valid| [u8::from(*valid), 9]).collect();
        // A strided validity is read by its strides.
        let (bools, released) = Memory::new(&bytes, DType::Bool, &[10], &[2], 0).import();
        let bools = bools.unwrap();
        let array = to_arrow(&values, Some(&bools), CopyMode::IfNeeded).unwrap();
        drop(bools);
        assert_eq!(released.get(), 1, "the bitmap is ours");
        let arrow = array.to_arrow().unwrap();
        assert_eq!(arrow.null_count(), 3);
        assert_eq!((0..10).map(|row| arrow.is_valid(row)).collect::<Vec<_>>(), valid);
        let repeat = values.len() / 10;
        let expected: Vec<bool> = valid.iter().flat_map(|valid| vec![*valid; repeat]).collect();
        assert_eq!(read_bools(&Conversion::default().validity(&array).unwrap()), expected);
        let kept = Conversion::default().nulls(NullPolicy::Keep).copy(CopyMode::Never).to_tensor(&array).unwrap();
        assert_eq!(read(&kept), read(&values));
    }
}

fn strides_of(strides: &[i64]) -> &'static [i64] {
    match strides {
        [1] => &[1],
        [2] => &[2],
        _ => &[2, 1],
    }
}

#[test]
fn a_validity_without_nulls_gives_a_column_without_nulls_and_one_that_does_not_fit_is_refused() {
    let (values, ..) = tensor(DType::Int16, (&[3], &[1], 0));
    let bools = |bytes: &[u8], dtype, shape: &[i64]| {
        let strides = vec![1; shape.len()];
        Memory::new(bytes, dtype, shape, &strides, 0).import().0.unwrap()
    };
    let all = to_arrow(&values, Some(&bools(&[1, 1, 1], DType::Bool, &[3])), CopyMode::Never).unwrap();
    assert_eq!(all.to_arrow().unwrap().null_count(), 0);
    for wrong in [
        bools(&[1, 1], DType::Bool, &[2]),
        bools(&[1, 1, 1], DType::UInt8, &[3]),
        bools(&[1, 1, 1], DType::Bool, &[3, 1]),
        bools(&[1], DType::Bool, &[]),
    ] {
        let error = to_arrow(&values, Some(&wrong), CopyMode::IfNeeded).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Argument, "{wrong:?}");
        assert!(error.reason().contains("validity"));
    }
}

/// To a tensor and back: the field is the one it came from, and so are the values.
fn assert_returns(array: &ArrayRef, field: &FieldRef, options: &Conversion, copy: CopyMode) -> (Tensor, DeviceArray) {
    let tensor = options.to_tensor(&shared(array, field)).unwrap();
    let back = to_arrow(&tensor, None, copy).unwrap();
    assert_eq!(back.field(), field);
    assert_eq!(back.to_arrow().unwrap().to_data(), array.to_data(), "{field:?} {options:?} {copy:?}");
    (tensor, back)
}

#[test]
fn a_column_returns_to_its_own_type() {
    let zone = Some("Europe/Vienna".into());
    let permuted = r#"{"shape":[1,2,3],"permutation":[2,0,1],"dim_names":["h","w","c"]}"#;
    let bool8 = extension(&field("flag", DataType::Int8), "arrow.bool8", "");
    for field in [
        field("t", DataType::Timestamp(arrow_schema::TimeUnit::Microsecond, zone)),
        field("d", DataType::Date32),
        field("n", list(list(DataType::Duration(arrow_schema::TimeUnit::Second), 3), 2)),
        field("b", DataType::Boolean),
        field("bs", list(DataType::Boolean, 3)),
        extension(&field("p", list(DataType::Int16, 6)), "arrow.fixed_shape_tensor", permuted),
        extension(&field("q", list(DataType::Boolean, 6)), "arrow.fixed_shape_tensor", permuted),
        extension(&field("u", DataType::Int32), "some.extension", "with metadata"),
        field("z", list(DataType::Int32, 0)),
    ] {
        for length in if cfg!(miri) { [0, 9] } else { [0, 19] } {
            let array = random_array(field.data_type(), length, 0, &mut Random(5));
            for options in [Conversion::default(), Conversion::default().copy(CopyMode::Always)] {
                for copy in [CopyMode::IfNeeded, CopyMode::Always] {
                    assert_returns(&array, &field, &options, copy);
                }
            }
        }
    }
    let bools: ArrayRef = Arc::new(arrow_array::Int8Array::from(vec![1, 0, 1]));
    assert_returns(&bools, &bool8, &Conversion::default(), CopyMode::Never);
}

#[test]
fn a_view_returns_as_a_view_of_the_same_memory() {
    let array: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![10, 20, 30]).with_timezone("UTC"));
    let own = field("t", array.data_type().clone());
    let (tensor, back) = assert_returns(&array, &own, &Conversion::default(), CopyMode::Never);
    assert_eq!(back.to_arrow().unwrap().to_data().buffers()[0].as_ptr(), tensor.as_ptr().cast_const());
}

#[test]
fn bools_are_packed_to_return_to_a_bitmap() {
    let array = random_array(&DataType::Boolean, 19, 0, &mut Random(6));
    let tensor = Conversion::default().to_tensor(&array).unwrap();
    let log = CopyLog::new();
    log.track(|| to_arrow(&tensor, None, CopyMode::IfNeeded)).unwrap();
    assert_eq!(log.bytes(), 3);
    let error = to_arrow(&tensor, None, CopyMode::Never).unwrap_err();
    assert!(error.kind() == ErrorKind::Copy && error.reason().contains("packed"), "{error}");
}

#[test]
fn nulls_make_a_field_nullable() {
    let own = Arc::new(arrow_schema::Field::new("x", DataType::Int16, false));
    let array: ArrayRef = Arc::new(arrow_array::Int16Array::from(vec![1, 2]));
    let tensor = Conversion::default().to_tensor(&shared(&array, &own)).unwrap();
    let valid = Memory::new(&[1, 0], DType::Bool, &[2], &[1], 0).import().0.unwrap();
    let back = to_arrow(&tensor, Some(&valid), CopyMode::IfNeeded).unwrap();
    assert!(back.field().is_nullable() && back.field().name() == "x");
}

#[test]
fn any_slice_of_a_nullable_struct_has_its_own_nulls() {
    let ints: ArrayRef = Arc::new((0..48).map(|row| (row % 5 != 0).then_some(row)).collect::<Int32Array>());
    let fields = vec![Arc::new(arrow_schema::Field::new("a", DataType::Int32, true))];
    let nulls: NullBuffer = (0..48).map(|row| row % 7 != 3 && row != 8 && row != 17).collect();
    let rows = StructArray::new(fields.into(), vec![ints], Some(nulls));
    let column = field("x", rows.data_type().clone());
    let whole = |number: i32| usize::try_from(number).unwrap();
    for start in (0..25_i32).step_by(if cfg!(miri) { 4 } else { 1 }) {
        for length in [0_i32, 1, 8, 12, 23] {
            // Others than arrow-rs slice a struct by its own offset and length, and leave its children whole.
            let (slice, _released) = import_edited(&rows, &column, |array| {
                (array.offset, array.length, array.null_count) = (start.into(), length.into(), -1);
            });
            let (back, expected) = (slice.unwrap().to_arrow().unwrap(), rows.slice(whole(start), whole(length)));
            assert_eq!(back.as_struct(), &expected, "rows {start} to {}", start + length);
        }
    }
}

#[test]
fn a_cast_is_refused_where_no_copy_is_allowed_even_without_rows() {
    for count in [0, 1] {
        let bits: ArrayRef = Arc::new(arrow_array::BooleanArray::from(vec![true; count]));
        let tensor = Conversion::default().to_tensor(&shared(&bits, &field("x", DataType::Boolean))).unwrap();
        let error = to_arrow_as(&tensor, None, &field("x", DataType::Int8), CopyMode::Never).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Copy);
    }
}

#[test]
fn codes_that_a_consumer_wrote_are_compared_with_their_dictionary() {
    let words: DictionaryArray<Int8Type> = ["a", "b"].into_iter().cycle().take(20).collect();
    let words: ArrayRef = Arc::new(words);
    let item = field("item", words.data_type().clone());
    let pairs: ArrayRef = Arc::new(FixedSizeListArray::new(item, 2, words.clone(), None));
    for (column, code, row) in [(words, 9, 9), (pairs, 7, 3)] {
        let own = field("x", column.data_type().clone());
        let codes = Conversion::default().writable(true).to_tensor(&shared(&column, &own)).unwrap();
        assert!(to_arrow(&codes, None, CopyMode::Never).is_ok());
        // SAFETY: an element of writable memory, which nobody reads now.
        unsafe { codes.as_ptr().wrapping_add(code).cast::<i8>().write(7) };
        let valid = |null: usize| {
            let rows = column.len();
            let bytes: Vec<u8> = (0..rows).map(|row| u8::from(row != null)).collect();
            Memory::new(&bytes, DType::Bool, &[i64::try_from(rows).unwrap()], &[1], 0).import().0.unwrap()
        };
        // Nulls of other rows excuse nothing.
        for valid in [None, Some(valid(row - 1)), Some(valid(if row == 9 { 1 } else { 7 }))] {
            let error = to_arrow(&codes, valid.as_ref(), CopyMode::IfNeeded).unwrap_err();
            assert_eq!((error.kind(), error.row(), error.column()), (ErrorKind::Invalid, Some(row), Some("x")));
            assert!(error.reason().contains("7 is beyond the dictionary's 2 values"), "{error}");
        }
        assert!(to_arrow(&codes, Some(&valid(row)), CopyMode::IfNeeded).is_ok());
    }
}
