//! Do chunks become one series, each under the field's own schema?

use std::sync::Arc;

use arrow_array::types::Int8Type;
use arrow_array::{
    Array, ArrayRef, DictionaryArray, Int8Array, Int32Array, Int64Array, ListArray, RecordBatch,
    TimestampMillisecondArray, TimestampSecondArray,
};
use arrow_buffer::OffsetBuffer;
use arrow_dlpack::{Conversion, CopyMode, DeviceArray, ErrorKind, Tensor, polars};
use arrow_schema::{DataType, Field, FieldRef, TimeUnit};

type Rows<'a> = &'a [&'a [&'a str]];

/// Lists of categories.
fn lists(rows: Rows<'_>, field: &FieldRef) -> DeviceArray {
    let DataType::List(item) = field.data_type() else { panic!("lists") };
    let words: DictionaryArray<Int8Type> = rows.iter().flat_map(|row| row.iter().copied()).collect();
    let offsets = OffsetBuffer::from_lengths(rows.iter().map(|row| row.len()));
    let lists = ListArray::new(item.clone(), offsets, Arc::new(words), None);
    DeviceArray::from_arrow(&lists, field.clone()).unwrap()
}

#[test]
fn chunks_of_lists_of_categories_without_items_keep_all_rows() {
    let words = DataType::Dictionary(DataType::Int8.into(), DataType::Utf8.into());
    let field: FieldRef = Field::new("tags", DataType::new_list(words, true), true).into();
    let cases: [&[Rows<'_>]; 4] = [
        &[&[&["a"]], &[&[]], &[&["b"]]],
        &[&[&[]], &[&["a"]]],
        &[&[&[], &[]], &[&["a"], &["b"]]],
        &[&[&["a"]], &[&[]], &[&["b", "c"]], &[&["d"]]],
    ];
    for case in cases {
        let chunks: Vec<_> = case.iter().map(|rows| lists(rows, &field)).collect();
        let series = polars::to_series(&field, &chunks, CopyMode::IfNeeded).unwrap();
        let expected: Vec<_> = case.iter().copied().flatten().copied().collect();
        assert_eq!((series.len(), series.null_count()), (expected.len(), 0));
        let (_, back) = polars::from_series(&series).unwrap();
        let lengths = back.iter().flat_map(|chunk| {
            let array = chunk.to_arrow().unwrap();
            let lists = arrow_array::cast::AsArray::as_list::<i64>(&array).clone();
            lists.offsets().lengths().collect::<Vec<_>>()
        });
        assert_eq!(lengths.collect::<Vec<_>>(), expected.iter().map(|row| row.len()).collect::<Vec<_>>());
        let texts: Vec<_> = (0..series.len()).map(|row| format!("{}", series.get(row).unwrap())).collect();
        for (text, row) in texts.iter().zip(expected) {
            assert!(row.iter().all(|word| text.contains(word)), "{texts:?}");
        }
    }
}

fn batch(names: [&str; 2]) -> DeviceArray {
    let columns: [ArrayRef; 2] = [Arc::new(Int32Array::from(vec![1])), Arc::new(Int32Array::from(vec![2]))];
    DeviceArray::from_record_batch(&RecordBatch::try_from_iter(names.into_iter().zip(columns)).unwrap()).unwrap()
}

#[test]
fn chunks_of_other_columns_are_refused_as_by_conversions() {
    for other in [["b", "a"], ["z", "b"], ["a", "z"]] {
        let chunks = [batch(["a", "b"]), batch(other)];
        let error = polars::to_frame(chunks[0].field(), &chunks, CopyMode::IfNeeded).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(Conversion::default().to_tensor(&chunks).is_err());
    }
    let chunks = [batch(["a", "b"]), batch(["a", "b"])];
    assert_eq!(polars::to_frame(chunks[0].field(), &chunks, CopyMode::IfNeeded).unwrap().shape(), (2, 2));
}

#[test]
fn chunks_of_another_type_are_refused_and_not_read_in_its_unit() {
    let field: FieldRef = Field::new("t", DataType::Timestamp(TimeUnit::Second, None), true).into();
    let other = |array: ArrayRef| {
        let own = Field::new("t", array.data_type().clone(), true);
        DeviceArray::from_arrow(&array, own.into()).unwrap()
    };
    for chunk in [
        other(Arc::new(Int8Array::from(vec![1]))),
        other(Arc::new(Int64Array::from(vec![1]))),
        other(Arc::new(TimestampMillisecondArray::from(vec![1]))),
    ] {
        let error = polars::to_series(&field, &[chunk], CopyMode::IfNeeded).unwrap_err();
        assert_eq!((error.kind(), error.column()), (ErrorKind::Invalid, Some("t")), "{error}");
    }
}

#[test]
fn the_row_of_an_error_is_that_of_all_chunks() {
    let field: FieldRef = Field::new("t", DataType::Timestamp(TimeUnit::Second, None), true).into();
    let chunk = |values: Vec<i64>| DeviceArray::from_arrow(&TimestampSecondArray::from(values), field.clone()).unwrap();
    let chunks = [chunk(vec![1, 2, 3]), chunk(vec![4, i64::MAX])];
    let error = polars::to_series(&field, &chunks, CopyMode::IfNeeded).unwrap_err();
    assert_eq!((error.column(), error.row()), (Some("t"), Some(4)), "{error}");
}

#[test]
fn rows_of_no_items_are_an_error_and_no_panic() {
    let tensor = |shape: &[usize]| Tensor::from_vec(Vec::<f32>::new(), shape).unwrap();
    for shape in [&[2, 0][..], &[2, 0, 3], &[2, 3, 0]] {
        let error = polars::tensor_to_series("x", &tensor(shape), CopyMode::IfNeeded).unwrap_err();
        assert_eq!((error.kind(), error.column()), (ErrorKind::Unsupported, Some("x")), "{error}");
        assert!(error.reason().contains("without items"), "{error}");
    }
    assert_eq!(polars::tensor_to_series("x", &tensor(&[0, 0]), CopyMode::IfNeeded).unwrap().len(), 0);
}

#[test]
fn a_value_that_is_no_category_of_an_enum_is_an_error_and_no_null() {
    let words: DictionaryArray<Int8Type> = [Some("a"), Some("b"), None, Some("a")].into_iter().collect();
    let series = |categories: &str| {
        let metadata = [("_PL_ENUM_VALUES2".to_owned(), categories.to_owned())].into();
        let field: FieldRef = Arc::new(Field::new("x", Array::data_type(&words).clone(), true).with_metadata(metadata));
        let array = DeviceArray::from_arrow(&words, field.clone()).unwrap();
        polars::to_series(&field, &[array.clone(), array], CopyMode::IfNeeded)
    };
    let whole = series("1;a1;b1;c").unwrap();
    assert_eq!((whole.len(), whole.null_count()), (8, 2));
    let error = series("1;a").unwrap_err();
    assert!(error.kind() == ErrorKind::Cast && error.column() == Some("x") && error.remedy().is_some(), "{error}");
}

#[test]
fn null_lists_of_categories_are_no_values_that_became_null() {
    let words: DictionaryArray<Int8Type> = [Some("a"), None, Some("b")].into_iter().collect();
    let field = Arc::new(Field::new("item", Array::data_type(&words).clone(), true));
    let offsets = OffsetBuffer::from_lengths([2, 0, 1]);
    let lists = ListArray::new(field, offsets, Arc::new(words), Some(vec![true, false, true].into()));
    let array =
        DeviceArray::from_arrow(&lists, Field::new("x", Array::data_type(&lists).clone(), true).into()).unwrap();
    let series = polars::to_series(array.field(), &[array.clone()], CopyMode::IfNeeded).unwrap();
    assert_eq!((series.len(), series.null_count()), (3, 1));
}
