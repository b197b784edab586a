//! Is a matrix its columns, value by value, for any schema, chunks, offsets, nulls, policies, dtypes and orders, and whatever it
//! is written to?

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper that fails is a test that fails"
)]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "the numbers of a test are small"
)]

mod cases;
mod chosen;
mod gaps;
mod outputs;
mod properties;
mod small;
mod streams;
#[path = "../support/mod.rs"]
mod support;
mod threads;
mod validity;
mod views;

use std::sync::Arc;

use arrow_array::{Array, StructArray, make_array};
use arrow_dlpack::{Conversion, DeviceArray, Tensor};
use arrow_schema::{DataType, Field};
use support::arrow::{field, shared};

/// The columns of a column-major matrix of doubles, `stride` elements apart, as a batch over one buffer.
fn of_one_buffer(rows: usize, columns: usize, stride: usize) -> DeviceArray {
    let values: arrow_buffer::Buffer = (0..columns * stride + 8).map(|value| value as f64).collect();
    let column = |index: usize| {
        let data = arrow_data::ArrayData::builder(DataType::Float64).len(rows).offset(index * stride);
        make_array(data.add_buffer(values.clone()).build().unwrap())
    };
    let named =
        (0..columns).map(|index| (Arc::new(Field::new(format!("c{index}"), DataType::Float64, true)), column(index)));
    let array = StructArray::from(named.collect::<Vec<_>>());
    shared(&array, &field("", array.data_type().clone()))
}

fn matrix_of(batch: &DeviceArray, matrix: &Conversion) -> arrow_dlpack::Result<Tensor> {
    matrix.to_tensor(batch)
}
