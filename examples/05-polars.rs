//! Polars to tensors and back: `cargo run --features polars --example 05-polars`.

#![allow(clippy::print_stdout, reason = "it prints what it made")]

use arrow_dlpack::{Conversion, CopyLog, CopyMode, MemoryOrder, NullPolicy, polars};
use polars_core::df;
use polars_core::prelude::{DataFrame, PolarsError};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let frame = df!("price" => [1.5_f32, 2.5, 4.0], "count" => [Some(3_i16), None, Some(5)])?;

    // A column is a view of its memory. Without permission to copy, anything else is an error.
    let prices = frame.column("price")?.as_materialized_series();
    let view = Conversion::default().copy(CopyMode::Never).to_tensor(prices)?;
    println!("{:?}, {:?}", view.shape(), view.as_slice::<f32>()?);

    // All columns become a matrix, in one pass. The log tells what was copied, and why.
    let log = CopyLog::new();
    let matrix = log.track(|| Conversion::default().nulls(NullPolicy::Nan).to_tensor(&frame))?;
    println!("{:?}, {:?}", matrix.shape(), matrix.as_slice::<f32>()?);
    for copied in log.entries() {
        println!("copied {} bytes: {}", copied.bytes, copied.why);
    }

    // A column-major matrix is a frame without a copy.
    let columns = Conversion::default().nulls(NullPolicy::Nan).memory_order(MemoryOrder::F).to_tensor(&frame)?;
    let back = polars::matrix_to_frame(&columns, &["price", "count"], CopyMode::Never)?;
    assert_eq!((back.height(), back.width()), (3, 2));

    // Frames that a query makes one by one are a stream: of one tensor, or of the loader's batches.
    let frames = (0_i32..3).map(|day| df!("day" => [day, day], "price" => [1.5, 2.5]));
    let schema = df!("day" => [0_i32], "price" => [0.0])?.schema().as_ref().clone();
    let mut stream = polars::try_stream::<PolarsError>(&schema, frames)?;
    let days: DataFrame = polars::matrix_to_frame(
        &Conversion::default().read_tensor(&mut stream)?,
        &["day", "price"],
        CopyMode::IfNeeded,
    )?;
    assert_eq!(days.shape(), (6, 2));
    Ok(())
}
