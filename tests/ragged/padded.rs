//! Rows padded to a matrix.

use std::num::NonZero;
use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, ListBuilder, StringViewBuilder};
use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, FixedSizeListArray, StringArray, make_array};
use arrow_data::ArrayData;
use arrow_dlpack::{Chunks, Conversion, CopyMode, DType, ErrorKind, NullPolicy, Pad, Scalar, Side};

use crate::{Kind, PAD, ints, keep, lists, one};

#[test]
fn rows_are_padded() {
    let list = lists(Kind::List, &[Some(vec![Some(1), None, Some(3)]), None, Some(vec![]), Some(vec![Some(4)])]);
    let pad = |length, options: &Conversion| options.padded(&one(&list), PAD.length(length));
    let (matrix, valid) = pad(None, &keep()).unwrap();
    assert_eq!((matrix.shape(), valid.shape()), (&[4_i64, 3][..], &[4_i64, 3][..]));
    assert_eq!(matrix.as_slice::<i16>().unwrap(), [1, -1, 3, -1, -1, -1, -1, -1, -1, 4, -1, -1]);
    assert_eq!(valid.as_bytes().unwrap(), [1, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0]);
    let nan = Conversion::default().nulls(NullPolicy::Nan).dtype(DType::Float32);
    let (matrix, valid) = pad(Some(4), &nan).unwrap();
    assert!(matrix.as_slice::<f32>().unwrap()[1].is_nan());
    assert_eq!(matrix.as_slice::<f32>().unwrap()[2..8], [3.0, -1.0, -1.0, -1.0, -1.0, -1.0]);
    assert_eq!(valid.as_bytes().unwrap()[..4], [1, 0, 1, 0]);
    for (error, row, kind) in [
        (pad(Some(2), &keep()).unwrap_err(), 0, ErrorKind::Argument),
        (pad(None, &Conversion::default()).unwrap_err(), 1, ErrorKind::Null),
        (Conversion::default().padded(&one(&list.slice(0, 1)), PAD).unwrap_err(), 0, ErrorKind::Null),
    ] {
        assert_eq!((error.row(), error.kind()), (Some(row), kind), "{error}");
        assert!(error.remedy().is_some());
    }
    assert_eq!(pad(None, &keep().copy(CopyMode::Never)).unwrap_err().kind(), ErrorKind::Copy);
    assert!(pad(None, &keep().dtype(DType::UInt8)).is_err(), "-1 is no uint8");
}

#[test]
fn bits_fixed_size_lists_and_views_of_strings_are_padded() {
    let mut builder = ListBuilder::new(BooleanBuilder::new());
    builder.append_value([Some(true), Some(false), Some(true)]);
    builder.append_value([Some(true)]);
    let bits: ArrayRef = Arc::new(builder.finish());
    let zero = Pad::new(Scalar::Bool(false)).length(3);
    let (matrix, _) = Conversion::default().padded(&one(&bits.slice(0, 2)), zero).unwrap();
    assert_eq!((matrix.dtype(), matrix.as_bytes().unwrap()), (DType::Bool, &[1, 0, 1, 1, 0, 0][..]));
    let as_float = Conversion::default().dtype(DType::Float32);
    let (matrix, _) = as_float.padded(&one(&bits.slice(1, 1)), zero).unwrap();
    assert_eq!(matrix.as_slice::<f32>().unwrap(), [1.0, 0.0, 0.0]);

    let pairs = FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>(
        [[1, 2], [3, 4], [5, 6]].map(|pair| Some(pair.map(Some))),
        2,
    );
    let data = ArrayData::builder(Kind::List.of(pairs.data_type().clone()))
        .len(2)
        .add_buffer(ints(false, &[0, 1, 3]))
        .add_child_data(pairs.to_data());
    let (matrix, valid) = Conversion::default().padded(&one(&make_array(data.build().unwrap())), PAD).unwrap();
    assert_eq!((matrix.shape(), valid.shape()), (&[2_i64, 2, 2][..], &[2_i64, 2][..]));
    assert_eq!(matrix.as_slice::<i32>().unwrap(), [1, 2, -1, -1, 3, 4, 5, 6]);

    let mut views = StringViewBuilder::new();
    views.append_value("longer than twelve bytes");
    views.append_null();
    views.append_value("x");
    let spaces = Pad::new(Scalar::Int(32));
    let (matrix, valid) = keep().padded(&one(&views.finish()), spaces).unwrap();
    assert_eq!(matrix.shape(), [3, 24]);
    assert_eq!(&matrix.as_bytes().unwrap()[..24], b"longer than twelve bytes");
    assert_eq!(&matrix.as_bytes().unwrap()[48..50], b"x ");
    assert_eq!(valid.as_bytes().unwrap().iter().filter(|flag| **flag == 1).count(), 25);
}

#[test]
fn rows_are_cut_and_padded_on_either_side() {
    let words = StringArray::from(vec!["abcd", "", "xy"]);
    let three = Pad::new(Scalar::Int(46)).length(3);
    for (pad, expected) in [
        (three.truncate(Side::Left), b"bcd...xy."),
        (three.truncate(Side::Right), b"abc...xy."),
        (three.truncate(Side::Left).side(Side::Left), b"bcd....xy"),
        (three.truncate(Side::Right).side(Side::Left), b"abc....xy"),
    ] {
        let (matrix, valid) = Conversion::default().padded(&words, pad).unwrap();
        assert_eq!(matrix.as_bytes().unwrap(), expected, "{pad:?}");
        let flags: Vec<u8> = expected.iter().map(|byte| u8::from(*byte != b'.')).collect();
        assert_eq!(valid.as_bytes().unwrap(), flags, "{pad:?}");
    }
    let eight = Pad::new(Scalar::Int(0)).multiple_of(NonZero::new(8).unwrap());
    assert_eq!(Conversion::default().padded(&words, eight).unwrap().0.shape(), [3, 8]);
    for wrong in [eight.length(9), Pad::new(Scalar::Int(0)).truncate(Side::Left)] {
        let error = Conversion::default().padded(&words, wrong).unwrap_err();
        assert_eq!((error.kind(), error.remedy().is_some()), (ErrorKind::Argument, true), "{error}");
        assert!(Conversion::default().explain_padded(&words, wrong).unwrap().rows[0].error.is_some());
    }
    let error = Conversion::default().padded(&words, three).unwrap_err();
    assert!(error.remedy().unwrap().contains("Pad::truncate"), "{error}");
}

#[test]
fn a_null_anywhere_in_an_item_is_one_of_the_item() {
    let pairs = [[None, Some(1)], [Some(2), Some(3)], [Some(4), None], [Some(5), Some(6)], [None, None]];
    let pairs = FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>(pairs.map(Some), 2);
    let data = ArrayData::builder(Kind::List.of(pairs.data_type().clone()))
        .len(2)
        .add_buffer(ints(false, &[0, 2, 5]))
        .add_child_data(pairs.to_data());
    let (matrix, valid) = keep().padded(&one(&make_array(data.build().unwrap())), PAD).unwrap();
    assert_eq!(valid.as_bytes().unwrap(), [0, 1, 0, 0, 1, 0]);
    assert_eq!(matrix.shape(), [2, 3, 2]);
    let items = matrix.as_slice::<i32>().unwrap();
    assert_eq!((&items[2..4], &items[8..10]), (&[2, 3][..], &[5, 6][..]));
}

#[test]
fn rows_that_are_refused_count_over_chunks() {
    let list = |items: &[Option<i16>]| Some(items.to_vec());
    let first = [list(&[Some(1)]), list(&[Some(2)]), list(&[Some(3)])];
    for (second, kind) in [
        (list(&[Some(5), Some(6), Some(7)]), ErrorKind::Argument),
        (list(&[Some(5), None]), ErrorKind::Null),
        (None, ErrorKind::Null),
    ] {
        let chunks = [first.clone(), [list(&[Some(4)]), second, list(&[])]].map(|rows| one(&lists(Kind::List, &rows)));
        let data = || Chunks::new(chunks[0].field(), &chunks);
        let explained = Conversion::default().explain_padded(data(), PAD.length(2));
        let explained = explained.map_or_else(Some, |report| report.rows[0].error.clone());
        let error = Conversion::default().padded(data(), PAD.length(2)).unwrap_err();
        assert_eq!((error.kind(), error.row()), (kind, Some(4)), "{error}");
        assert_eq!(explained, Some(error));
    }
}
