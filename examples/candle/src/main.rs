//! Record batches as candle tensors, and candle tensors as record batches. Run by `make examples`, or here:
//!
//! ```text
//! cargo run --locked
//! ```
//!
//! - **A batch to candle**: candle's CPU memory is always a `Vec` of its own, and never another library's. So a conversion packs the
//!   columns into that `Vec` in one pass, and candle takes it over without a second one.
//! - **A column to candle**: a column over a `Vec` that nobody else shares gives the `Vec` back: no copy.
//! - **A candle tensor to Arrow**: a view, through an `unsafe` function. candle lends its elements only under a lock, which a view
//!   cannot hold, and `slice_set`, `Var::set` and in-place operations write to memory that other tensors share.
//! - **CUDA** (`src/cuda.rs`, feature `cuda`, which needs nvcc): one copy on the device in each direction, in stream order.

#[cfg(feature = "cuda")]
mod cuda;

use std::error::Error;
use std::sync::Arc;

use arrow_dlpack::arrow_array::cast::AsArray;
use arrow_dlpack::arrow_array::types::Float32Type;
use arrow_dlpack::arrow_array::{ArrayRef, Float32Array, Int16Array, RecordBatch};
use arrow_dlpack::{ColumnOptions, Conversion, CopyMode, Device, Native, NullPolicy, Output, Tensor, matrix_to_arrow};
use candle_core::Storage;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Returns the columns of a batch as a candle tensor of shape `(rows, columns)`, in one pass over them. NaN stands for nulls.
fn to_candle(batch: &RecordBatch) -> Result<candle_core::Tensor> {
    let (rows, columns) = (batch.num_rows(), batch.num_columns());
    let mut values = vec![0_f32; rows * columns];
    let conversion = Conversion::default().nulls(NullPolicy::Nan);
    conversion.write(batch, &mut Output::from_slice(&mut values, &[rows, columns])?)?;
    Ok(candle_core::Tensor::from_vec(values, (rows, columns), &candle_core::Device::Cpu)?)
}

/// Returns a column without nulls as a candle tensor: its own memory, if that is a `Vec` which nobody else shares, else a copy.
fn column_to_candle(column: Float32Array) -> Result<candle_core::Tensor> {
    let rows = column.len();
    let (_, values, nulls) = column.into_parts();
    if nulls.is_some_and(|nulls| nulls.null_count() > 0) {
        return Err("candle has no nulls: fill them first, as to_candle does".into());
    }
    Ok(candle_core::Tensor::from_vec(Vec::from(values), rows, &candle_core::Device::Cpu)?)
}

/// Returns a read-only view of a candle tensor in CPU memory, with its strides.
///
/// # Errors
/// If the tensor is of another dtype than `T`, or not in CPU memory.
///
/// # Safety
/// Until the view and everything made of it is dropped, nobody writes to the tensor's memory: no `slice_set`, `Var::set` or
/// in-place operation on this tensor or one that shares its memory.
unsafe fn view_of_candle<T: Native + candle_core::WithDType>(tensor: &candle_core::Tensor) -> Result<Tensor> {
    let (storage, layout) = tensor.storage_and_layout();
    let Storage::Cpu(values) = &*storage else { return Err("the tensor is not in CPU memory".into()) };
    let values: &[T] = values.as_slice()?;
    let first = values.get(layout.start_offset()..).ok_or("the tensor begins beyond its memory")?;
    let extents =
        |of: &[usize]| of.iter().map(|&extent| i64::try_from(extent)).collect::<std::result::Result<Vec<_>, _>>();
    let (shape, strides) = (extents(layout.dims())?, extents(layout.stride())?);
    let data = first.as_ptr().cast_mut().cast();
    // SAFETY: candle's layout reaches initialised elements of its `Vec` alone, of the type `T`. The owner is a tensor that shares the
    // `Vec`, whose length candle never changes. The caller promises that nobody writes; the view is read-only.
    Ok(unsafe {
        Tensor::from_raw_parts(
            data,
            Device::CPU,
            <T as Native>::DTYPE,
            &shape,
            Some(&strides),
            Arc::new(tensor.clone()),
            false,
        )
    }?)
}

fn main() -> Result<()> {
    let price: ArrayRef = Arc::new(Float32Array::from(vec![1.5, 2.5, 4.0]));
    let count: ArrayRef = Arc::new(Int16Array::from(vec![Some(3), None, Some(5)]));
    let batch = RecordBatch::try_from_iter([("price", price), ("count", count)])?;

    // A batch as a matrix for candle, which computes with it.
    let matrix = to_candle(&batch)?;
    assert_eq!(matrix.dims(), [3, 2]);
    let means = matrix.narrow(1, 0, 1)?.mean_all()?.to_scalar::<f32>()?;
    assert_eq!(means, 8.0 / 3.0);

    // The same address before and after: candle took the memory of the column.
    let column = Float32Array::from(vec![1.0, 2.0, 3.0]);
    let address = column.values().as_ptr();
    let moved = column_to_candle(column)?;
    // SAFETY: nobody writes to `moved`.
    let view = unsafe { view_of_candle::<f32>(&moved) }?;
    assert_eq!(view.as_slice::<f32>()?, [1.0, 2.0, 3.0]);
    assert_eq!(view.as_slice::<f32>()?.as_ptr(), address);

    // A result of candle as a record batch. Its transpose is column-major, so that each column is a view.
    let scores = candle_core::Tensor::new(&[[0.1_f32, 0.2, 0.3], [1.0, 2.0, 3.0]], &candle_core::Device::Cpu)?.t()?;
    // SAFETY: nobody writes to `scores`.
    let view = unsafe { view_of_candle::<f32>(&scores) }?;
    let address = view.as_ptr();
    let options = ColumnOptions::default().copy(CopyMode::Never);
    let back = matrix_to_arrow(&view, &["score", "weight"], &options)?.to_record_batch()?;
    // The batch keeps candle's memory alive.
    drop((view, scores));
    let score = back.column(0).as_primitive::<Float32Type>().values();
    assert_eq!((score.as_ref(), score.as_ptr()), ([0.1, 0.2, 0.3].as_slice(), address.cast_const().cast()));
    assert_eq!(back.column(1).as_primitive::<Float32Type>().values(), &[1.0, 2.0, 3.0]);

    // A tensor of another dtype is an error.
    // SAFETY: nobody writes to `moved`.
    assert!(unsafe { view_of_candle::<i64>(&moved) }.is_err());
    println!("{:?} to candle, {} rows back", matrix.dims(), back.num_rows());

    #[cfg(feature = "cuda")]
    cuda::round_trip(&batch)?;
    Ok(())
}
