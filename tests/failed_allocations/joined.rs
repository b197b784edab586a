//! Streams whose batches are joined, in buffers that grow: blocks that are copied, and pages that are mapped and moved.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array};
use arrow_dlpack::{DType, DeviceArray, Group, MemoryOrder, Result, Selection, Tensor};

use crate::failing::{LARGE, alone};
use crate::support::arrow::{field, shared};
use crate::{batch, bits, filled, floats, numbers, stream};

fn tensors(made: Result<Vec<(String, Tensor)>>) -> Result<Vec<Tensor>> {
    made.map(|made| made.into_iter().map(|(_, tensor)| tensor).collect())
}

#[test]
fn of_streams_that_are_joined() {
    let alone = alone();
    let rows = batch(vec![("a", numbers()), ("b", floats()), ("c", bits())]);
    for order in [MemoryOrder::C, MemoryOrder::F] {
        let options = filled().memory_order(order);
        alone.each_fails("matrix", || {
            options.read_tensor(&mut stream(vec![rows.clone(); 3])).map(|tensor| vec![tensor])
        });
    }
    let x = Group::matrix(["a", "b"]).dtype(DType::Float32).validity("valid");
    let groups = filled().select(Selection::Named(vec![("x".to_owned(), x), ("y".to_owned(), Group::column("c"))]));
    alone.each_fails("groups", || tensors(groups.read_tensors(&mut stream(vec![rows.clone(); 3]))));
    let each = filled().select(Selection::Each(None));
    alone.each_fails("each", || tensors(each.read_tensors(&mut stream(vec![rows.clone(); 3]))));
    for array in [numbers(), bits()] {
        let column = shared(array.as_ref(), &field("x", array.data_type().clone()));
        alone.each_fails("column", || {
            filled().read_tensor(&mut stream(vec![column.clone(); 3])).map(|tensor| vec![tensor])
        });
    }
}

/// The bytes of a huge page, of which Miri makes a small one.
const HUGE: usize = if cfg!(miri) { 4 << 10 } else { 2 << 20 };

/// One and a half huge pages: two of them are a block of huge pages.
fn large() -> DeviceArray {
    let rows = HUGE * 3 / 2 / size_of::<f64>();
    let array: ArrayRef = Arc::new(Float64Array::from_iter_values((0..rows).map(|row| row as f64)));
    batch(vec![("a", array)])
}

/// The bytes of a tensor of floats: to read one by one so many takes long.
fn first_and_sum(tensor: &Tensor) -> (usize, f64) {
    let values = tensor.as_slice::<f64>().unwrap();
    (values.len(), values.iter().sum())
}

#[test]
fn of_pages_that_are_mapped_and_moved() {
    let mut alone = alone();
    let rows = large();
    for limit in [LARGE, HUGE] {
        alone.limit = limit;
        alone.each_fails_of(
            "mapped",
            || filled().read_tensor(&mut stream(vec![rows.clone(); 5])),
            |made| first_and_sum(&made),
        );
    }
}

#[test]
fn of_results_in_huge_pages() {
    let alone = alone();
    let rows = large();
    let column = rows.column(0).unwrap();
    alone.each_fails_of(
        "copies",
        || Ok((filled().copy(arrow_dlpack::CopyMode::Always).to_tensor(&column)?, filled().to_tensor(&rows)?)),
        |(one, other)| (first_and_sum(&one), first_and_sum(&other)),
    );
}
