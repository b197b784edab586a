//! Columns, matrices, groups and rows with different lengths, and what is computed before training.

use std::num::NonZero;
use std::sync::Arc;

use arrow_array::builder::{Int32Builder, ListBuilder, StringViewBuilder};
use arrow_array::types::Int16Type;
use arrow_array::{
    Array, ArrayRef, Decimal128Array, DictionaryArray, FixedSizeListArray, Float32Array, Int8Array, Int16Array,
    Int64Array, RunArray, StringArray, TimestampMicrosecondArray,
};
use arrow_dlpack::loader::{DistinctValues, Statistic, Statistics};
use arrow_dlpack::{
    Categories, Chunks, Conversion, CopyMode, DType, DecimalMode, DeviceArray, DictionaryMode, Group, MemoryOrder,
    NullPolicy, Pad, Scalar, Selection, Tensor,
};
use arrow_schema::{DataType, TimeUnit};

use crate::failing::{Alone, alone};
use crate::support::arrow::{field, shared};
use crate::{ROWS, RUNS, batch, bits, each, filled, floats, lists, numbers};

fn one(alone: &Alone, name: &str, array: ArrayRef, options: Conversion) {
    let array = shared(array.as_ref(), &field("x", array.data_type().clone()));
    alone.each_fails(name, || options.to_tensor(&array).map(|tensor| vec![tensor]));
}

#[test]
fn of_numbers() {
    let alone = alone();
    one(&alone, "fill", numbers(), filled());
    one(&alone, "cast", numbers(), filled().dtype(DType::Float64));
    one(&alone, "bfloat16", floats(), filled().dtype(DType::BFloat16));
    one(&alone, "bits", bits(), filled());
    one(&alone, "copy", floats(), filled().copy(CopyMode::Always));
    one(&alone, "nan", numbers(), filled().dtype(DType::Float32).nulls(NullPolicy::Nan));
}

#[test]
fn of_columns_that_are_stored_as_something_else() {
    let alone = alone();
    let codes: Int8Array = (0..ROWS).map(|row| each(row).then_some((row % 3) as i8)).collect();
    let dictionary = DictionaryArray::new(codes, Arc::new(Float32Array::from(vec![0.5, 1.5, 2.5])));
    one(&alone, "dictionary", Arc::new(dictionary), filled().dictionary(DictionaryMode::Values));
    let ends = Int16Array::from_iter_values((1..=RUNS).map(|run| run * 9));
    let values = Int64Array::from_iter_values(0..i64::from(RUNS));
    let runs = RunArray::<Int16Type>::try_new(&ends, &values).unwrap();
    one(&alone, "runs", Arc::new(runs), filled());
    let decimals = Decimal128Array::from_iter_values((0..ROWS).map(|row| row as i128)).with_precision_and_scale(20, 2);
    let decimals: ArrayRef = Arc::new(decimals.unwrap());
    one(&alone, "decimals", decimals.clone(), filled().dtype(DType::Float64));
    one(&alone, "unscaled", decimals, filled().decimal(DecimalMode::Unscaled).dtype(DType::Int64));
    let times: ArrayRef =
        Arc::new(TimestampMicrosecondArray::from_iter_values((0..ROWS).map(|row| row as i64 * 1_000_000)));
    one(&alone, "unit", times, filled().unit(TimeUnit::Second));
    let words = ["ab", "c", ""];
    let text: ArrayRef = Arc::new(StringArray::from_iter_values((0..ROWS).map(|row| words[row % 3])));
    let categories = Categories::new(Arc::new(StringArray::from(words.to_vec()))).unwrap();
    one(&alone, "categories", text, filled().categories(categories));
    let pairs = FixedSizeListArray::new(field("item", DataType::Int32), 3, numbers(), None);
    one(&alone, "lists", Arc::new(pairs), filled());
    let mut same = ListBuilder::new(Int32Builder::new());
    (0..ROWS / 2).for_each(|row| same.append_value([Some(row as i32), None]));
    one(&alone, "length", Arc::new(same.finish()), filled().length(2));
}

#[test]
fn of_matrices_and_groups() {
    let alone = alone();
    let rows = batch(vec![("a", numbers()), ("b", floats()), ("c", bits())]);
    for order in [MemoryOrder::C, MemoryOrder::F] {
        let options = filled().memory_order(order);
        alone.each_fails("matrix", || options.to_tensor(&rows).map(|tensor| vec![tensor]));
        let chunks = [rows.clone(), rows.clone()];
        alone.each_fails("chunks", || options.to_tensor(Chunks::new(rows.field(), &chunks)).map(|tensor| vec![tensor]));
    }
    alone.each_fails("validity", || Conversion::default().validity(&rows).map(|tensor| vec![tensor]));
    let all = filled().select(Selection::Each(None));
    let tensors = |made: Vec<(String, Tensor)>| made.into_iter().map(|(_, tensor)| tensor).collect();
    alone.each_fails("each", || all.to_tensors(&rows).map(tensors));
    let x = Group::matrix(["a", "b"]).dtype(DType::Float32).validity("valid");
    let groups = filled().select(Selection::Named(vec![("x".to_owned(), x), ("y".to_owned(), Group::column("c"))]));
    alone.each_fails("groups", || groups.to_tensors(&rows).map(tensors));
}

#[test]
fn of_threads_that_pack() {
    let alone = alone();
    let rows = batch(["a", "b", "c", "d", "e", "f", "g", "h", "i"].map(|name| (name, numbers())).to_vec());
    let options = filled().threads(NonZero::new(3)).dtype(DType::Float64);
    let own = lists();
    let column = shared(&own, &field("x", own.data_type().clone()));
    for order in [MemoryOrder::C, MemoryOrder::F] {
        let options = options.clone().memory_order(order);
        alone.each_fails("threads", || options.to_tensor(&rows).map(|tensor| vec![tensor]));
        let chunks = [rows.clone(), rows.clone()];
        alone.each_fails("chunks", || options.to_tensor(Chunks::new(rows.field(), &chunks)).map(|tensor| vec![tensor]));
    }
    alone.each_fails("validity", || options.validity(&rows).map(|tensor| vec![tensor]));
    let pad = Pad::new(Scalar::Int(0)).length(40);
    alone.each_fails("padded", || options.padded(&column, pad).map(|(matrix, valid)| vec![matrix, valid]));
}

#[test]
fn of_what_packing_threads_need_for_themselves() {
    let alone = alone();
    // Rows longer than a cache line, so many that each thread writes past the caches.
    let rows = if cfg!(miri) { 600 } else { 120_000 };
    let column: ArrayRef = Arc::new(Float32Array::from_iter_values((0..rows).map(|row| row as f32)));
    let rows = batch(WIDE.map(|name| (name, column.clone())).to_vec());
    let options = filled().threads(NonZero::new(2));
    alone.each_fails("rows", || options.to_tensor(&rows).map(|tensor| vec![tensor]));
}

const WIDE: [&str; 19] =
    ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s"];

#[test]
fn of_rows_with_different_lengths() {
    let alone = alone();
    let own = lists();
    let column = shared(&own, &field("x", own.data_type().clone()));
    let ragged = |array: &DeviceArray, options: &Conversion| {
        let made = options.ragged(array)?;
        Ok(made.values().as_tensor().into_iter().chain([made.offsets()]).cloned().collect())
    };
    alone.each_fails("ragged", || ragged(&column, &filled().copy(CopyMode::Always)));
    let text: ArrayRef =
        Arc::new(StringArray::from_iter_values((0..ROWS).map(|row| if row % 2 == 0 { "ab" } else { "c" })));
    let text = shared(&text, &field("x", DataType::Utf8));
    alone.each_fails("text", || ragged(&text, &filled().copy(CopyMode::Always)));
    let mut views = StringViewBuilder::new();
    (0..ROWS).for_each(|row| views.append_value(if row % 2 == 0 { "ab" } else { "a string that is not inlined" }));
    let views: ArrayRef = Arc::new(views.finish());
    let views = shared(&views, &field("x", DataType::Utf8View));
    alone.each_fails("views", || ragged(&views, &filled()));
    for length in [Some(3), None] {
        let pad = Pad::new(Scalar::Int(0)).length(length);
        alone.each_fails("padded", || filled().padded(&column, pad).map(|(matrix, valid)| vec![matrix, valid]));
    }
}

#[test]
fn of_what_is_computed_before_training() {
    let alone = alone();
    let count = if cfg!(miri) { 1000 } else { 9000 };
    let distinct: ArrayRef = Arc::new(Int64Array::from_iter_values((0..ROWS as i64).map(|row| row % count)));
    let rows = batch(vec![("a", distinct), ("b", floats())]);
    let made = || {
        let mut values = DistinctValues::new(rows.field(), &["a".to_owned()], usize::MAX)?;
        values.add(&rows)?;
        values.finish()
    };
    alone.each_fails_of("vocabulary", made, |found| found[0].1.values().len());
    let modes =
        [("a".to_owned(), Statistic::of_name("mode").unwrap()), ("b".to_owned(), Statistic::of_name("mean").unwrap())];
    let made = || {
        let mut found = Statistics::new(rows.field(), &modes, usize::MAX)?;
        found.add(&rows)?;
        found.finish()
    };
    alone.each_fails_of("statistics", made, |found| found);
    let words: ArrayRef = Arc::new(StringArray::from_iter_values((0..count).map(|word| format!("word {word}"))));
    alone.each_fails_of("categories", || Categories::new(words.clone()), |found| found.values().len());
}
