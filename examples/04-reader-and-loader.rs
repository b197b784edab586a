//! A reader of record batches as one matrix, and as shuffled training batches.
//!
//! `cargo run --example 04-reader-and-loader`

#![allow(clippy::print_stdout, clippy::indexing_slicing, reason = "it prints, and knows what it made")]

use std::error::Error;
use std::num::NonZero;
use std::sync::Arc;

use arrow_dlpack::arrow_array::{ArrayRef, Float32Array, RecordBatch, RecordBatchIterator, RecordBatchReader};
use arrow_dlpack::loader::{Batches, LoadOptions, Place, Sharding, Shuffle};
use arrow_dlpack::{Conversion, DeviceArrayStream};

/// A reader of five batches of two rows each, as one of Parquet or of a query would be.
fn reader() -> Result<impl RecordBatchReader + Send + 'static, Box<dyn Error>> {
    let column = |first: f32| -> ArrayRef { Arc::new(Float32Array::from(vec![first, first + 1.0])) };
    let batch = |index: u8| RecordBatch::try_from_iter([("x", column(f32::from(index) * 2.0))]);
    let batches = (0..5).map(batch).collect::<Result<Vec<_>, _>>()?;
    let schema = batches[0].schema();
    Ok(RecordBatchIterator::new(batches.into_iter().map(Ok), schema))
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    // One matrix of all rows, packed while the stream is read.
    let matrix = Conversion::default().read_tensor(&mut DeviceArrayStream::from_reader(reader()?))?;
    assert_eq!(matrix.shape(), [10, 1]);

    // Batches of four rows, in an order that the seed and the epoch fix, packed on a thread.
    let mut options = LoadOptions::new(Sharding::new(4, false, 0, 1)?);
    options.shuffle = Some(Shuffle::new(NonZero::<usize>::MIN.saturating_add(9), 42));
    let batches =
        Batches::new(DeviceArrayStream::from_reader(reader()?), &Conversion::default(), &options, &Place::start(0))?;
    let mut rows = 0;
    for batch in batches {
        let batch = batch?;
        println!("{:?}", batch.tensors[0].to_vec::<f32>()?);
        rows += batch.rows;
    }
    assert_eq!(rows, 10);
    Ok(())
}
