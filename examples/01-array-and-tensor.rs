//! An array to a tensor and back, as views; a vector as a tensor; and a copy, with its reason.
//!
//! `cargo run --example 01-array-and-tensor`

#![allow(clippy::print_stdout, clippy::indexing_slicing, reason = "it prints, and knows what it made")]

use arrow_dlpack::arrow_array::{Float32Array, Int64Array};
use arrow_dlpack::{Conversion, CopyLog, CopyMode, DType, NullPolicy, Result, Tensor, to_arrow};

pub(crate) fn main() -> Result<()> {
    // A view: the tensor shares the array's memory, and is read-only like it.
    let prices = Float32Array::from(vec![1.5, 2.5, 4.0, 8.0]);
    let tensor = Conversion::default().copy(CopyMode::Never).to_tensor(&prices)?;
    assert_eq!(tensor.as_slice::<f32>()?.as_ptr(), prices.values().as_ptr());
    assert!(!tensor.is_writable());

    // Rows of it, and another shape, are views too.
    assert_eq!(tensor.slice(1, 2)?.to_vec::<f32>()?, [2.5, 4.0]);
    assert_eq!(tensor.reshape(&[2, 2])?.shape(), [2, 2]);

    // Nulls need a policy and a dtype that can hold the result, so this is a copy. The log has its reason.
    let counts = Int64Array::from(vec![Some(3), None]);
    let log = CopyLog::new();
    let copied = {
        let _scope = log.scope();
        Conversion::default().dtype(DType::Float64).nulls(NullPolicy::Nan).to_tensor(&counts)?
    };
    assert!(copied.as_slice::<f64>()?[1].is_nan());
    println!("copied: {}", log.entries()[0].why);

    // A vector becomes a tensor, and the tensor an array, without a copy.
    let owned = Tensor::from_vec(vec![1_i32, 2, 3, 4, 5, 6], &[3, 2])?;
    let array = to_arrow(&owned, None, CopyMode::Never)?;
    println!("{} rows of {}", array.len(), array.field().data_type());
    Ok(())
}
