//! Is what polars cannot mean a clear error, and nothing leaked?

use std::sync::atomic::Ordering;

use arrow_dlpack::{Conversion, ErrorKind, NullPolicy, Selection, polars};
use arrow_dlpack_polars::{Convert, chunked, chunks, counted};
use polars_core::prelude::*;

use crate::dtypes::objects;

/// A column of codes, one of which is beyond its two categories.
fn beyond(codes: impl IntoIterator<Item = Option<u8>>) -> Series {
    let dtype = DataType::from_frozen_categories(FrozenCategories::new(["a", "b"]).unwrap());
    let codes = UInt8Chunked::from_iter_options("x".into(), codes.into_iter());
    // SAFETY: broken on purpose: the codes are not checked, and polars itself does not read their text here.
    unsafe { CategoricalChunked::<Categorical8Type>::from_cats_and_dtype_unchecked(codes, dtype) }.into_series()
}

#[test]
fn a_code_beyond_its_categories_is_an_error_with_its_row() {
    let error = Conversion::default().tensor(&beyond([Some(0), Some(1), Some(2)])).unwrap_err();
    assert_eq!((error.kind(), error.column(), error.row()), (ErrorKind::Invalid, Some("x"), Some(2)));
    assert!(error.reason().contains("beyond the 2 categories"), "{error}");
    // The slot of a null may hold any code.
    let mut hidden = beyond([Some(0), None, Some(1)]);
    let tensor = Conversion::default().nulls(NullPolicy::Keep).tensor(&hidden).unwrap();
    assert_eq!(tensor.shape(), [3]);
    hidden.append(&beyond([Some(7)])).unwrap();
    assert!(Conversion::default().nulls(NullPolicy::Keep).tensor(&hidden).is_err());
}

#[test]
fn a_code_beyond_its_categories_is_found_inside_of_lists_and_structs() {
    let structs = StructChunked::from_series("s".into(), 1, [beyond([Some(9)])].iter()).unwrap().into_series();
    assert!(chunks(&structs).unwrap_err().reason().contains("beyond"));
    let lists = beyond([Some(0), Some(9)]).reshape_array(&[1, 2].map(ReshapeDimension::new)).unwrap();
    assert!(chunks(&lists).unwrap_err().reason().contains("beyond"));
}

#[test]
fn a_column_of_objects_in_a_frame_is_an_error_that_names_it() {
    let (values, released) = counted("x", &[1.0, 2.0]);
    let frame = DataFrame::new_infer_height(vec![values.into_column(), objects().with_name("o".into()).into_column()]);
    let frame = frame.unwrap();
    let refusals = [
        Conversion::default().to_tensor(&frame).unwrap_err(),
        polars::from_frame(&frame).map(drop).unwrap_err(),
        polars::stream([frame.clone()]).map(drop).unwrap_err(),
    ];
    for error in refusals {
        assert_eq!((error.kind(), error.column()), (ErrorKind::Unsupported, Some("o")), "{error}");
        assert!(error.reason().contains("Rust objects") && error.remedy().is_some(), "{error}");
    }
    // The columns beside it convert, and nothing of the refusals keeps their memory.
    let view = Conversion::default().columns(["x"]).to_tensor(&frame.select(["x"]).unwrap()).unwrap();
    drop(frame);
    assert_eq!((view.as_slice::<f32>().unwrap(), released.load(Ordering::SeqCst)), ([1.0, 2.0].as_slice(), 0));
    drop(view);
    assert_eq!(released.load(Ordering::SeqCst), 1);
}

#[test]
fn columns_of_other_lengths_than_the_frame_are_an_error_that_names_them() {
    for (long, short) in [(3, 2), (2, 3)] {
        let (values, released) = counted("b", &[0.0; 3][..short]);
        let columns = vec![Series::new("a".into(), &[1.0_f32; 3][..long]).into_column(), values.into_column()];
        // SAFETY: broken on purpose: the lengths differ.
        let frame = unsafe { DataFrame::_new_unchecked_impl(long, columns) };
        let error = Conversion::default().tensor(&frame).unwrap_err();
        assert_eq!((error.kind(), error.column()), (ErrorKind::Invalid, Some("b")), "{error}");
        assert!(error.reason().contains(&format!("{short} rows in a frame of {long}")), "{error}");
        drop(frame);
        assert_eq!(released.load(Ordering::SeqCst), 1);
    }
}

#[test]
fn columns_of_one_name_are_an_error() {
    let column = || Series::new("a".into(), [1.0_f32]).into_column();
    // SAFETY: broken on purpose: the names are equal.
    let frame = unsafe { DataFrame::_new_unchecked_impl(1, vec![column(), column()]) };
    let error = Conversion::default().select(Selection::Each(None)).tensors(&frame).unwrap_err();
    assert!(error.to_string().contains("\"a\""), "{error}");
    assert!(polars::stream([frame]).unwrap_err().reason().contains("duplicate name"));
}

#[test]
fn chunks_that_end_in_very_many_rows_are_refused_with_what_to_do() {
    // Each column ends its chunks elsewhere: 1100 ends of 1100 columns are more than a million pieces.
    let column = |index: usize| {
        let mut series = Series::new(format!("c{index}").into(), vec![0_u8; index + 1]);
        series.append(&Series::new("".into(), vec![0_u8; 1_200 - index - 1])).unwrap();
        series.into_column()
    };
    let frame = DataFrame::new_infer_height((0..1_100).map(column).collect()).unwrap();
    let error = Conversion::default().tensor(&frame).unwrap_err();
    assert!(error.to_string().contains("frame.align_chunks()"), "{error}");
    let mut aligned = frame;
    aligned.align_chunks();
    assert_eq!(Conversion::default().tensor(&aligned).unwrap().shape(), [1_200, 1_100]);
}

#[test]
fn a_value_that_is_repeated_beyond_memory_is_an_error() {
    let huge = Column::new_scalar("x".into(), Scalar::from(1.5_f64), usize::MAX / 16);
    let frame = DataFrame::new(usize::MAX / 16, vec![huge]).unwrap();
    let error = Conversion::default().tensor(&frame).unwrap_err();
    assert_eq!((error.kind(), error.column()), (ErrorKind::Memory, Some("x")), "{error}");
}

#[test]
fn names_that_c_cannot_hold_are_names_all_the_same() {
    let series = Series::new("a\0b".into(), [1.0_f32]);
    let tensor = Conversion::default().tensor(&series).unwrap();
    assert_eq!(polars::tensor_to_series("a\0b", &tensor, Default::default()).unwrap().name(), "a\0b");
}

#[test]
fn an_error_releases_what_was_read_before_it() {
    let (values, released) = counted("x", &[1.0, 2.0]);
    let frame = DataFrame::new_infer_height(vec![
        values.into_column(),
        beyond([Some(0), Some(5)]).with_name("y".into()).into_column(),
    ])
    .unwrap();
    assert!(Conversion::default().tensor(&frame).is_err());
    drop(frame);
    assert_eq!(released.load(Ordering::SeqCst), 1);
}

#[test]
fn chunks_without_rows_lie_between_others() {
    let a = chunked("a", &[&[], &[1.0], &[], &[2.0], &[]]);
    let b = chunked("b", &[&[3.0, 4.0], &[]]);
    let frame = DataFrame::new_infer_height(vec![a.into_column(), b.into_column()]).unwrap();
    assert_eq!(Conversion::default().tensor(&frame).unwrap().as_slice::<f32>().unwrap(), [1.0, 3.0, 2.0, 4.0]);
}
