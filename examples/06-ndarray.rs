//! Tensors as arrays of ndarray and back: `cargo run --features ndarray --example 06-ndarray`.

#![allow(clippy::print_stdout, reason = "it prints what it made")]

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, RecordBatch};
use arrow_dlpack::{Conversion, DeviceArray, MemoryOrder, Tensor};
use ndarray::{Axis, Ix2, arr2};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let x: ArrayRef = Arc::new(Float64Array::from(vec![1.0, 2.0, 3.0]));
    let y: ArrayRef = Arc::new(Float64Array::from(vec![10.0, 20.0, 30.0]));
    let batch = DeviceArray::from_record_batch(&RecordBatch::try_from_iter([("x", x), ("y", y)])?)?;

    // The columns as a matrix, and a view of it with its strides: here those of a column-major matrix.
    let matrix = Conversion::default().memory_order(MemoryOrder::F).to_tensor(&batch)?;
    let view = matrix.as_ndarray::<f64>()?.into_dimensionality::<Ix2>()?;
    println!("strides {:?}, means {:?}", view.strides(), view.mean_axis(Axis(0)));

    // Results go on as tensors, over the memory of the array.
    let centred = &view - &view.mean_axis(Axis(0)).ok_or("no rows")?;
    let start = centred.as_ptr();
    let tensor = Tensor::from_ndarray(centred)?;
    assert_eq!(tensor.as_ptr().cast_const().cast(), start);

    // A view is no owner: it is copied.
    let numbers = arr2(&[[1, 2], [3, 4]]);
    let transposed = Tensor::copy_ndarray(&numbers.t())?;
    assert_eq!(transposed.as_slice::<i32>()?, [1, 3, 2, 4]);
    Ok(())
}
