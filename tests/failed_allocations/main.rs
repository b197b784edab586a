//! Does each allocation that data sizes become an error when it fails, and is everything usable afterwards?

#![allow(unsafe_code, reason = "an allocator that fails when it is told to")]
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
    clippy::cast_precision_loss,
    reason = "the numbers of a test are small"
)]

mod arrow;
mod batches;
mod columns;
mod failing;
mod joined;
#[path = "../support/mod.rs"]
mod support;

use std::num::NonZero;
use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, BooleanArray, Float32Array, Int32Array, ListArray, StructArray};
use arrow_dlpack::{Conversion, DeviceArray, DeviceArrayStream, NullPolicy, Scalar};
use arrow_schema::FieldRef;
use support::arrow::{field, shared};

/// So many that a bit of each is large.
const ROWS: usize = if cfg!(miri) { 2_100 } else { 33_000 };
/// Runs of nine rows, of which the ends are large.
const RUNS: i16 = if cfg!(miri) { 210 } else { 3300 };

fn each(row: usize) -> bool {
    row % 7 != 3
}

fn numbers() -> ArrayRef {
    Arc::new((0..ROWS).map(|row| each(row).then_some((row % 100) as i32)).collect::<Int32Array>())
}

fn floats() -> ArrayRef {
    Arc::new((0..ROWS).map(|row| Some(row as f32)).collect::<Float32Array>())
}

fn bits() -> ArrayRef {
    Arc::new((0..ROWS).map(|row| each(row).then_some(row % 3 == 0)).collect::<BooleanArray>())
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> DeviceArray {
    let fields: Vec<FieldRef> = columns.iter().map(|(name, array)| field(name, array.data_type().clone())).collect();
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    let rows = StructArray::new(fields.into(), arrays, None);
    shared(&rows, &field("", rows.data_type().clone()))
}

fn lists() -> ListArray {
    ListArray::from_iter_primitive::<Int32Type, _, _>(
        (0..ROWS).map(|row| each(row).then(|| (0..row % 3).map(|item| Some(item as i32)).collect::<Vec<_>>())),
    )
}

fn filled() -> Conversion {
    Conversion::default().nulls(NullPolicy::Fill(Scalar::Int(0))).threads(NonZero::new(1))
}

/// A stream of these arrays.
fn stream(arrays: Vec<DeviceArray>) -> DeviceArrayStream {
    let (field, device) = (arrays[0].field().clone(), arrays[0].device().device_type());
    DeviceArrayStream::new(field, device, arrays.into_iter().map(Ok))
}
