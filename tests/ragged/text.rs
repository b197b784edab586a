//! Strings and binaries as bytes, and back.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, BinaryArray, Int32Array, StringArray, UInt8Array};
use arrow_dlpack::{Conversion, CopyMode, DType, ErrorKind, Ragged};
use arrow_schema::DataType;

use crate::support::arrow::field;
use crate::{one, values};

#[test]
fn strings_give_their_bytes_and_come_back() {
    let text = ["", "abc", "größer", "a string that is longer than a view holds"];
    let plain: ArrayRef = Arc::new(StringArray::from(text.to_vec()));
    for data_type in [
        DataType::Utf8,
        DataType::LargeUtf8,
        DataType::Binary,
        DataType::LargeBinary,
        DataType::Utf8View,
        DataType::BinaryView,
    ] {
        let array = arrow_cast::cast(&plain, &data_type).unwrap();
        let is_view = matches!(data_type, DataType::Utf8View | DataType::BinaryView);
        for (start, length) in [(0, 4), (1, 3), (2, 1), (4, 0)] {
            let array = array.slice(start, length);
            let ragged = Conversion::default().ragged(&one(&array)).unwrap();
            let expected = text[start..start + length].concat();
            assert_eq!(values(&ragged).as_bytes().unwrap(), expected.as_bytes());
            assert_eq!(values(&ragged).is_copied(), is_view && length > 0, "{data_type} {start}");
            let back = ragged.to_arrow(CopyMode::IfNeeded).unwrap();
            assert_eq!(back.to_arrow().unwrap().to_data(), array.to_data(), "{data_type} {start}");
        }
        let never = Conversion::default().copy(CopyMode::Never).ragged(&one(&array));
        assert_eq!(never.is_err(), is_view);
    }
}

#[test]
fn views_hold_strings_of_up_to_twelve_bytes_themselves() {
    for length in (0..20).step_by(if cfg!(miri) { 6 } else { 1 }) {
        let text = &"abcdefghijklmnopqrst"[..length];
        let views = arrow_array::StringViewArray::from(vec![text, "x", text]);
        let ragged = Conversion::default().ragged(&one(&views)).unwrap();
        assert_eq!(values(&ragged).as_bytes().unwrap(), format!("{text}x{text}").as_bytes(), "{length} bytes");
        let (matrix, _) = Conversion::default().dtype(DType::Int16).padded(&one(&views), crate::PAD).unwrap();
        assert_eq!(matrix.shape(), [3, length.max(1) as i64]);
    }
}

#[test]
fn bytes_that_are_no_text_any_more_are_refused() {
    let bytes = Conversion::default().to_tensor(&UInt8Array::from(vec![b'a', 0xc3, 0xb6, b'b'])).unwrap();
    let offsets = |ends: Vec<i32>| Conversion::default().to_tensor(&Int32Array::from(ends)).unwrap();
    let utf8 = field("x", DataType::Utf8);
    let whole = Ragged::new(bytes.clone(), offsets(vec![0, 3, 4]), None, None, None).unwrap();
    let array = whole.to_arrow_as(&utf8, CopyMode::Never).unwrap().to_arrow().unwrap();
    assert_eq!(array.as_string::<i32>().value(0), "aö");
    // The same bytes, cut in the middle of a character.
    let cut = Ragged::new(bytes, offsets(vec![0, 1, 2, 4]), None, None, None).unwrap();
    let error = cut.to_arrow_as(&utf8, CopyMode::Never).unwrap_err();
    assert_eq!((error.kind(), error.row()), (ErrorKind::Cast, Some(1)));
    let binary = cut.to_arrow_as(&field("x", DataType::Binary), CopyMode::Never).unwrap().to_arrow().unwrap();
    assert_eq!(binary.as_ref().as_any().downcast_ref::<BinaryArray>().unwrap().value(2), [0xb6, b'b']);
}

#[test]
fn binaries_are_checked_before_they_are_text() {
    let ragged = Conversion::default().ragged(&one(&BinaryArray::from_vec(vec![b"\xff"]))).unwrap();
    let error = ragged.to_arrow_as(&field("x", DataType::Utf8), CopyMode::Never).unwrap_err();
    assert_eq!((error.kind(), error.row()), (ErrorKind::Cast, Some(0)));
}
