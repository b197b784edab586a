//! An ETL pipeline that ends on a GPU: the numeric columns of a Parquet file become float32 matrices in memory of a CUDA device,
//! batch by batch. The host decodes the next batch while the one before is copied.
//!
//! `cargo run --release --features cuda --example parquet_to_cuda -- PATH [cuda:0]`

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use std::collections::VecDeque;
use std::error::Error;
use std::fs::File;
use std::time::Instant;

use arrow_dlpack::transfer::{Transfer, tensors_to_device};
use arrow_dlpack::{Conversion, DType, Device, DeviceArray, ErrorKind, NullPolicy, Tensor};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

/// Batches whose copies may be under way while the next one is decoded.
const AHEAD: usize = 2;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: parquet_to_cuda PATH [DEVICE]")?;
    let device: Device = arguments.next().as_deref().unwrap_or("cuda:0").parse()?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(File::open(&path)?)?;
    let numbers: Vec<String> = builder
        .schema()
        .fields()
        .iter()
        .filter(|field| field.data_type().is_numeric())
        .map(|field| field.name().clone())
        .collect();
    let matrix = Conversion::default().columns(numbers.clone()).dtype(DType::Float32).nulls(NullPolicy::Nan);

    let (started, mut rows, mut bytes) = (Instant::now(), 0, 0);
    let mut under_way: VecDeque<Tensor> = VecDeque::new();
    for batch in builder.with_batch_size(65_536).build()? {
        let batch = DeviceArray::from_record_batch(&batch?)?;
        let packed = matrix.to_tensor(&batch)?;
        let moved = match tensors_to_device(&[packed], &Transfer::to(device, "the pipeline's end")) {
            Ok(moved) => moved,
            Err(error) if error.kind() == ErrorKind::Device => {
                println!("{device} is not there, and this example is about it: {error}");
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        for tensor in moved {
            (rows, bytes) = (rows + batch.len(), bytes + tensor.nbytes());
            under_way.push_back(tensor);
        }
        // Here a consumer would take it: `arrow_dlpack::dlpack::export_versioned` has its stream wait, and nothing else.
        if under_way.len() > AHEAD {
            under_way.pop_front();
        }
    }
    println!(
        "{rows} rows of {} columns, {bytes} bytes, to {device} in {:.3} s",
        numbers.len(),
        started.elapsed().as_secs_f64()
    );
    if let Some(last) = under_way.back() {
        println!("the last batch: {} {:?} on {}", last.dtype(), last.shape(), last.device());
    }
    Ok(())
}
