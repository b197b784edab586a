//! A record batch to a row-major matrix and back, and what the conversion would do.
//!
//! `cargo run --example 02-batch-to-matrix`

#![allow(clippy::print_stdout, clippy::indexing_slicing, reason = "it prints, and knows what it made")]

use std::error::Error;
use std::sync::Arc;

use arrow_dlpack::arrow_array::{ArrayRef, Float32Array, Int8Array, RecordBatch};
use arrow_dlpack::{Conversion, DType, NullPolicy, Output};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let height: ArrayRef = Arc::new(Float32Array::from(vec![1.5, 1.75, 2.0]));
    let age: ArrayRef = Arc::new(Int8Array::from(vec![Some(30), None, Some(50)]));
    let batch = RecordBatch::try_from_iter([("height", height), ("age", age)])?;

    // The dtype is the one that all columns promote to, or the one that is asked for.
    let conversion = Conversion::default().columns(["height", "age"]).dtype(DType::Float32).nulls(NullPolicy::Nan);
    println!("{}", conversion.explain(&batch)?);
    let matrix = conversion.to_tensor(&batch)?;
    assert_eq!(matrix.shape(), [3, 2]);
    assert_eq!(matrix.slice(0, 1)?.as_slice::<f32>()?, [1.5, 30.0]);

    // The same values into memory that the caller has.
    let mut memory = [0_f32; 6];
    conversion.write(&batch, &mut Output::from_slice(&mut memory, &[3, 2])?)?;
    assert_eq!(memory[4..], [2.0, 50.0]);
    println!("{memory:?}");
    Ok(())
}
