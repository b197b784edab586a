//! Tensors to Arrow, and Arrow to Arrow: copies, other types, bits, bitmaps that are built when an array is exported.

use std::sync::Arc;

use arrow_array::types::Int16Type;
use arrow_array::{
    Array, ArrayRef, DictionaryArray, FixedSizeListArray, Int8Array, Int16Array, Int64Array, LargeStringArray,
    RunArray, StringArray, StringViewArray, StructArray,
};
use arrow_buffer::NullBuffer;
use arrow_dlpack::arrow::{export_array, export_device_array};
use arrow_dlpack::{
    ColumnOptions, Conversion, CopyMode, DType, DeviceArray, Tensor, copy_array, matrix_to_arrow, request_field,
    to_arrow, to_arrow_as,
};
use arrow_schema::{DataType, Field, FieldRef};

use crate::failing::alone;
use crate::support::arrow::{field, shared};
use crate::{ROWS, RUNS, batch, bits, each, filled, lists, numbers};

/// More than arrow-rs allocates in a cast here: memory that is asked for before a cast has a MiB more.
const BEYOND_ARROW_RS: usize = 1 << 20;

fn as_arrow(made: &DeviceArray) -> arrow_data::ArrayData {
    made.to_arrow().unwrap().to_data()
}

fn column(array: &dyn Array) -> DeviceArray {
    shared(array, &field("x", array.data_type().clone()))
}

/// A bool for each row.
fn valid(rows: usize) -> Tensor {
    Tensor::from_bools((0..rows).map(each).collect(), &[rows]).unwrap()
}

fn matrix() -> Tensor {
    filled().to_tensor(&batch(vec![("a", numbers()), ("b", numbers())])).unwrap()
}

#[test]
fn of_tensors_to_arrow() {
    let alone = alone();
    let (matrix, values) = (matrix(), filled().to_tensor(&column(&numbers())).unwrap());
    let bools = filled().to_tensor(&column(&bits())).unwrap();
    alone.each_fails_of("copy", || to_arrow(&matrix, None, CopyMode::Always), |made| as_arrow(&made));
    let valid = valid(ROWS);
    alone.each_fails_of("validity", || to_arrow(&values, Some(&valid), CopyMode::IfNeeded), |made| as_arrow(&made));
    let boolean = field("x", DataType::Boolean);
    for validity in [None, Some(&valid)] {
        alone.each_fails_of(
            "bits",
            || to_arrow_as(&bools, validity, &boolean, CopyMode::IfNeeded),
            |made| as_arrow(&made),
        );
    }
}

#[test]
fn of_matrices_to_arrow() {
    let alone = alone();
    let matrix = matrix();
    let valid = Tensor::from_bools((0..2 * ROWS).map(each).collect(), &[ROWS, 2]).unwrap();
    for options in [
        ColumnOptions::default(),
        ColumnOptions::default().validity(valid.clone()),
        ColumnOptions::default().copy(CopyMode::Always).threads(std::num::NonZero::new(2).unwrap()),
    ] {
        alone.each_fails_of("columns", || matrix_to_arrow(&matrix, &["a", "b"], &options), |made| as_arrow(&made));
    }
}

#[test]
fn of_copies_of_arrays() {
    let alone = alone();
    let words = ["ab", "", "a string that is not inlined"];
    let word = |row: usize| each(row).then_some(words[row % 3]);
    let codes: Int16Array = (0..ROWS).map(|row| each(row).then_some((row % 3) as i16)).collect();
    let dictionary = DictionaryArray::new(codes, Arc::new(StringArray::from(words.to_vec())));
    let ends = Int16Array::from_iter_values((1..=RUNS).map(|run| run * 9));
    let runs = RunArray::<Int16Type>::try_new(&ends, &Int64Array::from_iter_values(0..i64::from(RUNS))).unwrap();
    let arrays: Vec<ArrayRef> = vec![
        numbers(),
        bits(),
        Arc::new(lists()),
        Arc::new((0..ROWS).map(word).collect::<StringArray>()),
        Arc::new((0..ROWS).map(word).collect::<LargeStringArray>()),
        Arc::new((0..ROWS).map(word).collect::<StringViewArray>()),
        Arc::new(dictionary),
        Arc::new(runs),
        Arc::new(FixedSizeListArray::new(field("item", DataType::Int32), 3, numbers(), None)),
    ];
    let all = batch(["a", "b", "c", "d", "e", "f", "g"].into_iter().zip(arrays.iter().cloned()).collect());
    for array in arrays.iter().map(|array| column(array)).chain([all]) {
        let name = format!("copy of {}", array.field().data_type());
        alone.each_fails_of(&name, || copy_array(&array), |made| as_arrow(&made));
        let part = array.slice(3, array.len() - 3).unwrap();
        alone.each_fails_of(&name, || copy_array(&part), |made| as_arrow(&made));
    }
}

#[test]
fn of_requested_types() {
    let mut alone = alone();
    alone.limit = BEYOND_ARROW_RS;
    let small: ArrayRef = Arc::new((0..ROWS).map(|row| each(row).then_some((row % 100) as i8)).collect::<Int8Array>());
    let text: ArrayRef = Arc::new(StringArray::from_iter_values((0..ROWS).map(|row| format!("word {}", row % 90))));
    let cases: [(&dyn Array, DataType); 5] = [
        (&numbers(), DataType::Int64),
        (&small, DataType::Float32),
        (&text, DataType::Utf8View),
        (&text, DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))),
        (&lists(), DataType::LargeList(field("item", DataType::Int64))),
    ];
    for (array, requested) in cases {
        let (array, requested) = (column(array), field("x", requested));
        let name = format!("{} as {}", array.field().data_type(), requested.data_type());
        alone.each_fails_of(&name, || request_field(&array, &requested), |made| as_arrow(&made));
    }
    let values = filled().to_tensor(&column(&numbers())).unwrap();
    let wide = field("x", DataType::Int64);
    alone.each_fails_of(
        "to_arrow(type=)",
        || to_arrow_as(&values, None, &wide, CopyMode::IfNeeded),
        |made| as_arrow(&made),
    );
}

/// A column whose struct has nulls of its own.
fn enclosed() -> DeviceArray {
    let fields: Vec<FieldRef> = vec![Arc::new(Field::new("a", DataType::Int32, true))];
    let nulls = NullBuffer::from_iter((0..ROWS).map(|row| row % 5 != 1));
    let rows = StructArray::new(fields.into(), vec![numbers()], Some(nulls));
    shared(&rows, &field("", rows.data_type().clone())).column(0).unwrap()
}

#[test]
fn of_bitmaps_that_exports_build() {
    let alone = alone();
    let enclosed = enclosed();
    for array in [enclosed.clone(), enclosed.slice(3, ROWS - 9).unwrap()] {
        alone.each_fails_of(
            "array",
            || export_array(&array),
            |mut made| {
                // SAFETY: the struct that was exported, of which only a member is read.
                unsafe { (*made.as_mut_ptr()).null_count }
            },
        );
        alone.each_fails_of("device array", || export_device_array(&array).map(drop), |()| ());
        alone.each_fails_of("read", || array.to_arrow().map(|read| read.to_data()), |read| read);
        alone.each_fails_of("copied", || copy_array(&array), |made| as_arrow(&made));
        alone.each_fails("converted", || {
            Conversion::default()
                .nulls(arrow_dlpack::NullPolicy::Nan)
                .dtype(DType::Float64)
                .to_tensor(&array)
                .map(|tensor| vec![tensor])
        });
    }
}
