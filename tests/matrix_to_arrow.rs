//! Are the columns of a batch those of the matrix that it was made of, whatever the layout of the matrix, and is it a view
//! where it can be one?

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper that fails is a test that fails"
)]

mod support;

use std::num::NonZero;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, DictionaryArray, FixedSizeListArray, Int64Array, StringArray, TimestampMicrosecondArray};
use arrow_dlpack::{
    ColumnOptions, Conversion, CopyLog, CopyMode, DType, DecimalMode, DeviceArray, DictionaryMode, ErrorKind,
    MemoryOrder, PerColumn, Tensor, explain_matrix_to_arrow, matrix_to_arrow, to_arrow,
};
use arrow_schema::{DataType, Field, TimeUnit};
use proptest::prelude::*;
use proptest::sample::select;
use support::Random;
use support::arrow::{field, list};
use support::dlpack::{Memory, tensor_of};
use support::reference::{read, read_bools};

/// Names of so many columns.
fn names(columns: usize) -> Vec<String> {
    (0..columns).map(|column| format!("c{column}")).collect()
}

/// A column as a tensor of the elements that it stores.
fn column(batch: &DeviceArray, index: usize, dtype: DType) -> Tensor {
    let options = Conversion::default().decimal(DecimalMode::Unscaled).dictionary(DictionaryMode::Codes);
    options.dtype(PerColumn::All(dtype.component().map(|_| dtype))).to_tensor(&batch.column(index).unwrap()).unwrap()
}

/// The elements of a column of a matrix that are in `elements`, row by row.
fn expected(elements: &[Vec<u8>], columns: usize, inner: usize, column: usize) -> Vec<Vec<u8>> {
    elements.chunks(columns * inner).flat_map(|row| row[column * inner..][..inner].to_vec()).collect()
}

/// A row-major matrix whose elements are their own bytes, counted.
fn matrix(dtype: DType, rows: usize, columns: usize) -> (Tensor, Vec<Vec<u8>>) {
    let [rows, columns] = [rows, columns].map(|extent| i64::try_from(extent).unwrap());
    tensor_of(dtype, &[(rows, columns), (columns, 1)], 0, 7)
}

proptest! {
    #[test]
    fn any_matrix_becomes_its_columns(
        dtype in select(DType::ALL),
        (rows, row_stride) in (0..40_i64, -70..70_i64),
        (columns, column_stride) in (0..20_i64, -70..70_i64),
        inner in prop_oneof![Just(None), (0..4_i64, -9..9_i64).prop_map(Some)],
        copy in select(&[CopyMode::IfNeeded, CopyMode::Never, CopyMode::Always][..]),
        seed: u64,
    ) {
        let axes: Vec<_> = [(rows, row_stride), (columns, column_stride)].into_iter().chain(inner).collect();
        let (tensor, elements) = tensor_of(dtype, &axes, 0, seed);
        let count = usize::try_from(columns).unwrap();
        let log = CopyLog::new();
        let options = ColumnOptions::default().copy(copy);
        let batch = match log.track(|| matrix_to_arrow(&tensor, &names(count), &options)) {
            Ok(batch) => batch,
            Err(error) => {
                prop_assert_eq!((error.kind(), copy), (ErrorKind::Copy, CopyMode::Never), "{}", error);
                return Ok(());
            }
        };
        prop_assert_eq!(batch.len(), usize::try_from(rows).unwrap());
        prop_assert_eq!(batch.columns().len(), count);
        let inner = usize::try_from(inner.map_or(1, |(extent, _)| extent)).unwrap();
        let mut moved = 0;
        for index in 0..count {
            let found = column(&batch, index, dtype);
            prop_assert_eq!(found.shape(), [&[rows], &tensor.shape()[2..]].concat());
            if tensor.is_empty() {
                continue;
            }
            prop_assert_eq!(read(&found), expected(&elements, count, inner, index), "column {}", index);
            let step = isize::try_from(column_stride).unwrap() * dtype.itemsize().cast_signed();
            let own = tensor.as_ptr().wrapping_offset(step * index.cast_signed());
            // A matrix of one column has no stride there.
            moved += usize::from(count > 1 && found.as_ptr() != own);
        }
        let bytes = if tensor.is_empty() || (count > 1 && moved == 0) { 0 } else { tensor.nbytes() };
        if count > 1 {
            prop_assert_eq!(log.bytes(), bytes);
            prop_assert!(moved == 0 || moved == count || tensor.is_empty());
            prop_assert!(copy != CopyMode::Never || moved == 0);
            prop_assert!(copy != CopyMode::Always || moved == count || tensor.is_empty());
        }
    }

    #[test]
    fn validity_of_elements_becomes_bitmaps(
        (rows, columns) in (1..90_i64, 1..12_i64),
        column_major: bool,
        seed: u64,
    ) {
        let axes = if column_major { [(rows, 1), (columns, rows + 3)] } else { [(rows, columns + 2), (columns, 1)] };
        let (valid, bools) = tensor_of(DType::Bool, &axes, 0, seed);
        let (count, length) = (usize::try_from(columns).unwrap(), usize::try_from(rows).unwrap());
        let (values, elements) = matrix(DType::Int16, length, count);
        let options = ColumnOptions::default().validity(valid);
        let batch = matrix_to_arrow(&values, &names(count), &options).unwrap();
        for index in 0..count {
            let array = batch.column(index).unwrap();
            let found = Conversion::default().validity(&array).unwrap();
            let expected_bools: Vec<bool> = expected(&bools, count, 1, index).iter().map(|bool| bool[0] == 1).collect();
            prop_assert_eq!(read_bools(&found), expected_bools.clone());
            let nulls = expected_bools.iter().filter(|valid| !**valid).count();
            prop_assert_eq!(array.to_arrow().unwrap().null_count(), nulls);
            let options = Conversion::default().nulls(arrow_dlpack::NullPolicy::Keep);
            prop_assert_eq!(read(&options.to_tensor(&array).unwrap()), expected(&elements, count, 1, index));
        }
    }
}

#[test]
fn large_matrices_are_split_by_any_number_of_threads() {
    // Miri starts threads for fewer bytes.
    const FEWER: usize = if cfg!(miri) { 4096 } else { 1 };
    for (dtype, rows, columns) in [
        (DType::UInt8, 150_001, 33),
        (DType::Float16, 60_007, 21),
        (DType::Float32, 30_011, 40),
        (DType::Complex128, 15_973, 17),
    ]
    .into_iter()
    .step_by(if cfg!(miri) { 2 } else { 1 })
    {
        let (rows, size) = (rows / FEWER, dtype.itemsize());
        let bytes: Vec<u8> = (0..rows * columns * size).map(|index| (index * 7 % 251).to_le_bytes()[0]).collect();
        let shape = [rows, columns].map(|extent| i64::try_from(extent).unwrap());
        let tensor = Memory::new(&bytes, dtype, &shape, &[shape[1], 1], 0).import().0.unwrap();
        assert!(tensor.nbytes() > (2 << 20) / FEWER);
        for threads in [1, 2, 5] {
            let log = CopyLog::new();
            let options = ColumnOptions::default().threads(NonZero::new(threads).unwrap());
            let batch = log.track(|| matrix_to_arrow(&tensor, &names(columns), &options)).unwrap();
            assert_eq!(log.entries().len(), 1);
            assert_eq!((log.bytes(), log.entries()[0].why.as_str()), (tensor.nbytes(), "rows split into columns"));
            for index in 0..columns {
                let found = column(&batch, index, dtype);
                let expected = bytes.chunks(columns * size).flat_map(|row| &row[index * size..][..size]);
                assert_eq!(found.as_ptr().addr() % 64, 0);
                assert!(found.as_bytes().unwrap().iter().eq(expected), "{dtype} {threads} {index}");
            }
        }
    }
}

#[test]
fn a_column_major_matrix_is_a_view_and_keeps_its_source() {
    let bytes: Vec<u8> = (0..24_i32).flat_map(i32::to_ne_bytes).collect();
    let memory = Memory::new(&bytes, DType::Int32, &[5, 4], &[1, 6], 0);
    let (tensor, released) = memory.import();
    let tensor = tensor.unwrap();
    let log = CopyLog::new();
    let options = ColumnOptions::default().copy(CopyMode::Never);
    let batch = log.track(|| matrix_to_arrow(&tensor, &names(4), &options)).unwrap();
    assert!(log.entries().is_empty());
    let last = batch.column(3).unwrap();
    let start = tensor.as_ptr();
    drop((tensor, batch));
    assert_eq!(released.get(), 0);
    let values = Conversion::default().to_tensor(&last).unwrap();
    assert_eq!(values.as_ptr(), start.wrapping_add(18 * 4));
    assert_eq!(values.as_slice::<i32>().unwrap(), [18, 19, 20, 21, 22]);
    assert!(!values.is_writable());
    drop(last);
    assert_eq!(released.get(), 0);
    drop(values);
    assert_eq!(released.get(), 1);
}

#[test]
fn a_split_matrix_lets_go_of_its_source_and_of_a_refused_one_too() {
    let two = || Memory::new(&[1, 2, 3, 4, 5, 6], DType::Int8, &[3, 2], &[2, 1], 0).import();
    let (tensor, released) = two();
    let batch = matrix_to_arrow(&tensor.unwrap(), &["a", "b"], &ColumnOptions::default()).unwrap();
    assert_eq!(released.get(), 1);
    assert_eq!(column(&batch, 1, DType::Int8).as_slice::<i8>().unwrap(), [2, 4, 6]);
    let (tensor, released) = two();
    let refused = matrix_to_arrow(&tensor.unwrap(), &["a", "b"], &ColumnOptions::default().copy(CopyMode::Never));
    assert_eq!((refused.unwrap_err().kind(), released.get()), (ErrorKind::Copy, 1));
}

#[test]
fn misaligned_columns_are_moved_once_to_where_they_are_aligned() {
    let bytes: Vec<u8> = [0].into_iter().chain((0..12_i32).flat_map(i32::to_ne_bytes)).collect();
    for (strides, last, why) in [
        ([1, 6], [6, 7, 8, 9, 10, 11], "values not aligned for int32 realigned"),
        ([2, 1], [1, 3, 5, 7, 9, 11], "rows split into columns"),
    ] {
        let memory = || Memory::new(&bytes, DType::Int32, &[6, 2], &strides, 0);
        let tensor = memory().import_edited(|managed| managed.dl_tensor.byte_offset = 1).0.unwrap();
        let log = CopyLog::new();
        let batch = log.track(|| matrix_to_arrow(&tensor, &["a", "b"], &ColumnOptions::default())).unwrap();
        assert_eq!(column(&batch, 1, DType::Int32).as_slice::<i32>().unwrap(), last);
        let copied: Vec<_> = log.entries().into_iter().map(|copied| (copied.why, copied.bytes)).collect();
        assert_eq!(copied, [(why.to_owned(), 48)]);
        let never = ColumnOptions::default().copy(CopyMode::Never);
        assert_eq!(matrix_to_arrow(&tensor, &["a", "b"], &never).unwrap_err().kind(), ErrorKind::Copy);
    }
}

#[test]
fn columns_of_a_split_matrix_are_a_constant_step_apart() {
    // So that the way back to a column-major matrix can be a view.
    let large = if cfg!(miri) { [(100, 3), (64, 6)] } else { [(1000, 3), (1024, 20)] };
    for (rows, columns) in [(3, 5)].into_iter().chain(large) {
        let (tensor, _) = matrix(DType::Float32, rows, columns);
        let batch = matrix_to_arrow(&tensor, &names(columns), &ColumnOptions::default()).unwrap();
        let starts: Vec<_> = (0..columns).map(|index| column(&batch, index, DType::Float32).as_ptr().addr()).collect();
        let steps: Vec<_> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(steps.iter().all(|step| *step == steps[0]), "{steps:?}");
    }
}

#[test]
fn without_rows_or_columns_there_is_nothing_to_move() {
    let never = ColumnOptions::default().copy(CopyMode::Never);
    let (tensor, _) = matrix(DType::Float64, 0, 3);
    let batch = matrix_to_arrow(&tensor, &names(3), &never).unwrap();
    let read = batch.to_arrow().unwrap();
    assert_eq!((read.len(), read.as_struct().num_columns()), (0, 3));
    let (tensor, _) = matrix(DType::Float64, 7, 0);
    let read = matrix_to_arrow(&tensor, &names(0), &never).unwrap().to_arrow().unwrap();
    assert_eq!((read.len(), read.as_struct().num_columns()), (7, 0));
}

#[test]
fn what_does_not_fit_is_refused_with_what_to_do() {
    let (tensor, _) = matrix(DType::Int32, 4, 3);
    let none = ColumnOptions::default();
    let (vector, _) = tensor_of(DType::Int32, &[(4, 1)], 0, 1);
    for (result, kind, text) in [
        (matrix_to_arrow(&vector, &["a"], &none), ErrorKind::Argument, "the tensor has the shape [4]; leave names out"),
        (matrix_to_arrow(&tensor, &["a", "b"], &none), ErrorKind::Argument, "2 names for 3 columns"),
        (matrix_to_arrow(&tensor, &["a", "b", "a"], &none), ErrorKind::Argument, "column \"a\": more than one"),
        (
            matrix_to_arrow(&tensor, &names(3), &none.clone().copy(CopyMode::Never)),
            ErrorKind::Copy,
            "a copy of 48 bytes is needed (rows split into columns); pass CopyMode::IfNeeded",
        ),
        (
            matrix_to_arrow(&tensor, &names(3), &none.clone().types(vec![None])),
            ErrorKind::Argument,
            "1 type for 3 columns",
        ),
        (
            matrix_to_arrow(&tensor, &names(3), &none.clone().validity(tensor_of(DType::Bool, &[(5, 1)], 0, 1).0)),
            ErrorKind::Argument,
            "each of the 4 rows",
        ),
        (
            matrix_to_arrow(&tensor, &names(3), &none.clone().validity(matrix(DType::Bool, 4, 2).0)),
            ErrorKind::Argument,
            "of shape (4, 3), and is bool of shape [4, 2]",
        ),
        (
            matrix_to_arrow(&tensor, &names(3), &none.clone().validity(matrix(DType::UInt8, 4, 3).0)),
            ErrorKind::Argument,
            "and is uint8 of shape [4, 3]",
        ),
    ] {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), kind);
        assert!(error.to_string().contains(text), "{error}");
    }
    let strange = none.types(vec![None, Some(field("", DataType::Utf8)), Some(field("", DataType::Int8))]);
    let error = matrix_to_arrow(&tensor, &names(3), &strange).unwrap_err();
    assert_eq!((error.kind(), error.column()), (ErrorKind::Cast, Some("c2")), "{error}");
}

#[test]
fn types_are_those_asked_for_column_by_column() {
    let (tensor, elements) = matrix(DType::Int64, 6, 3);
    let timestamps = DataType::Timestamp(TimeUnit::Millisecond, None);
    let types = vec![None, Some(field("ignored", timestamps.clone())), Some(field("", DataType::Decimal128(30, 0)))];
    let metadata = [("k".to_owned(), "v".to_owned())].into();
    let options = ColumnOptions::default().types(types).metadata(metadata);
    let batch = matrix_to_arrow(&tensor, &names(3), &options).unwrap();
    let found: Vec<_> =
        batch.columns().iter().map(|field| (field.name().as_str(), field.data_type().clone())).collect();
    assert_eq!(found, [("c0", DataType::Int64), ("c1", timestamps), ("c2", DataType::Decimal128(30, 0))]);
    assert_eq!(batch.field().metadata()["k"], "v");
    assert_eq!(read(&column(&batch, 1, DType::Int64)), expected(&elements, 3, 1, 1));
    // Ticks are the same integers: no cast, so no copy.
    let (tensor, _) = tensor_of(DType::Int64, &[(6, 1), (2, 6)], 0, 7);
    let ticks = field("", DataType::Duration(TimeUnit::Second));
    let view = ColumnOptions::default().copy(CopyMode::Never).types(vec![Some(ticks), None]);
    assert_eq!(column(&matrix_to_arrow(&tensor, &names(2), &view).unwrap(), 0, DType::Int64).as_ptr(), tensor.as_ptr());
    let cast = view.types(vec![None, Some(field("", DataType::Float64))]);
    let error = matrix_to_arrow(&tensor, &names(2), &cast).unwrap_err();
    assert_eq!((error.kind(), error.column()), (ErrorKind::Copy, Some("c1")), "{error}");
}

#[test]
fn bfloat16_becomes_other_floats_with_its_nulls() {
    let ones: Vec<u8> = [0x3f80_u16, 0x4000, 0x4040, 0x4080].into_iter().flat_map(u16::to_ne_bytes).collect();
    let tensor = Memory::new(&ones, DType::BFloat16, &[2, 2], &[2, 1], 0).import().0.unwrap();
    for valid in
        [Memory::new(&[0, 1], DType::Bool, &[2], &[1], 0), Memory::new(&[0, 0, 1, 1], DType::Bool, &[2, 2], &[2, 1], 0)]
    {
        let options = ColumnOptions::default().validity(valid.import().0.unwrap());
        let options = options.types(vec![Some(field("", DataType::Float64)), None]);
        let batch = matrix_to_arrow(&tensor, &["a", "b"], &options).unwrap();
        let a = batch.column(0).unwrap().to_arrow().unwrap();
        let a: Vec<_> = a.as_primitive::<Float64Type>().iter().collect();
        assert_eq!(a, [None, Some(3.0)]);
        assert_eq!(batch.columns()[1].extension_type_name(), Some("arrow_dlpack.bfloat16"));
    }
}

#[test]
fn columns_of_lists_return_to_the_type_of_their_items() {
    let items = TimestampMicrosecondArray::from(vec![1, 2, 3, 4, 5, 6]);
    let item = Arc::new(Field::new("item", items.data_type().clone(), false));
    let rows = FixedSizeListArray::new(item, 2, Arc::new(items), None);
    let tensor = Conversion::default().to_tensor(&rows).unwrap();
    let batch = matrix_to_arrow(&tensor, &["from", "to"], &ColumnOptions::default()).unwrap();
    assert!(batch.columns().iter().all(|field| *field.data_type() == DataType::Timestamp(TimeUnit::Microsecond, None)));

    let codes = Int64Array::from(vec![0, 1, 1, 0]);
    let words = DictionaryArray::<Int64Type>::new(codes, Arc::new(StringArray::from(vec!["no", "yes"])));
    let item = Arc::new(Field::new("item", words.data_type().clone(), true));
    let rows = FixedSizeListArray::new(item, 2, Arc::new(words), None);
    let tensor = Conversion::default().to_tensor(&rows).unwrap();
    let batch = matrix_to_arrow(&tensor, &["x", "y"], &ColumnOptions::default()).unwrap();
    let y = batch.column(1).unwrap().to_arrow().unwrap();
    let y: Vec<_> = y.as_dictionary::<Int64Type>().downcast_dict::<StringArray>().unwrap().into_iter().collect();
    assert_eq!(y, [Some("yes"), Some("no")]);

    let bits = arrow_array::BooleanArray::from(vec![true, false, true, true]);
    let rows = FixedSizeListArray::new(Arc::new(Field::new("item", DataType::Boolean, true)), 2, Arc::new(bits), None);
    let tensor = Conversion::default().to_tensor(&rows).unwrap();
    let batch = matrix_to_arrow(&tensor, &["x", "y"], &ColumnOptions::default()).unwrap();
    let x = batch.column(0).unwrap().to_arrow().unwrap();
    assert_eq!(x.as_boolean().iter().collect::<Vec<_>>(), [Some(true), Some(true)]);
}

#[test]
fn more_dimensions_are_rows_of_the_others() {
    let (tensor, elements) = tensor_of(DType::Float32, &[(4, 12), (2, 6), (3, 2), (2, 1)], 0, 3);
    let batch = matrix_to_arrow(&tensor, &["a", "b"], &ColumnOptions::default()).unwrap();
    assert_eq!(*batch.columns()[0].data_type(), list(DataType::Float32, 6));
    assert_eq!(batch.columns()[1].extension_type_name(), Some("arrow.fixed_shape_tensor"));
    let found = column(&batch, 1, DType::Float32);
    assert_eq!((found.shape(), read(&found)), (&[4, 3, 2][..], expected(&elements, 2, 6, 1)));
    let error = matrix_to_arrow(&tensor, &["a", "b"], &ColumnOptions::default().copy(CopyMode::Never)).unwrap_err();
    assert_eq!((error.kind(), error.column()), (ErrorKind::Copy, Some("a")));
    // Columns one after the other, each dense: views.
    let (tensor, _) = tensor_of(DType::Float32, &[(4, 6), (2, 24), (3, 2), (2, 1)], 0, 3);
    let never = ColumnOptions::default().copy(CopyMode::Never);
    let batch = matrix_to_arrow(&tensor, &["a", "b"], &never).unwrap();
    assert_eq!(column(&batch, 1, DType::Float32).as_ptr(), tensor.as_ptr().wrapping_add(24 * 4));
}

#[test]
fn a_matrix_without_names_stays_an_array_of_rows() {
    let (tensor, _) = matrix(DType::Int8, 3, 2);
    assert_eq!(*to_arrow(&tensor, None, CopyMode::Never).unwrap().field().data_type(), list(DataType::Int8, 2));
}

#[test]
fn many_columns_are_possible() {
    let mut random = Random(5);
    for (rows, columns) in if cfg!(miri) { [(2, 40), (6, 20)] } else { [(2, 4096), (300, 1000)] } {
        let (tensor, elements) = matrix(DType::Float32, rows, columns);
        let batch = matrix_to_arrow(&tensor, &names(columns), &ColumnOptions::default()).unwrap();
        for _ in 0..if cfg!(miri) { 3 } else { 20 } {
            let index = random.below(columns);
            assert_eq!(read(&column(&batch, index, DType::Float32)), expected(&elements, columns, 1, index));
        }
    }
}

#[test]
fn a_report_counts_the_split_of_a_validity() {
    let matrix = Tensor::from_vec((0..12_i32).collect(), &[4, 3]).unwrap();
    let bools = |strides: (i64, i64)| tensor_of(DType::Bool, &[(4, strides.0), (3, strides.1)], 0, 1).0;
    for (valid, steps) in [
        (bools((3, 1)), &["rows split into columns", "validity split into columns", "validity packed to bits"][..]),
        (bools((1, 4)), &["rows split into columns", "validity packed to bits"]),
    ] {
        let options = ColumnOptions::default().validity(valid);
        let report = explain_matrix_to_arrow(&matrix, &["a", "b", "c"], &options, false).unwrap();
        let log = CopyLog::new();
        log.track(|| matrix_to_arrow(&matrix, &["a", "b", "c"], &options)).unwrap();
        assert!(report.rows.iter().all(|row| row.steps == steps), "{report}");
        assert_eq!(report.bytes(), log.bytes());
    }
}

#[test]
fn columns_of_any_length_are_a_column_major_matrix_again() {
    for dtype in [DType::UInt8, DType::Int16, DType::Float32, DType::Float64] {
        for rows in (1..if cfg!(miri) { 20 } else { 300 }).chain([512, 1_000, 4_096]) {
            let tensor = matrix(dtype, rows, 3).0;
            let batch = matrix_to_arrow(&tensor, &names(3), &ColumnOptions::default()).unwrap();
            let again = Conversion::default().memory_order(MemoryOrder::F).copy(CopyMode::Never).to_tensor(&batch);
            let again = again.unwrap_or_else(|error| panic!("{rows} of {dtype}: {error}"));
            assert_eq!(again.as_ptr(), Conversion::default().to_tensor(&batch.column(0).unwrap()).unwrap().as_ptr());
        }
    }
}
