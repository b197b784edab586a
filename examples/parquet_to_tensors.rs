//! Prints what becomes of each column of a Parquet file: the spec, the plan of the first batch, and, once every batch is
//! converted, what was viewed and what was copied.
//!
//! `cargo run --example parquet_to_tensors -- PATH`

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;

use arrow_dlpack::{Conversion, CopyLog, Device, DeviceArray, NullPolicy, Scalar, Selection};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: parquet_to_tensors PATH")?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(File::open(&path)?)?;
    let mut batches = builder.with_batch_size(65_536).build()?;

    // Nulls become 0, and the report says how many.
    let options = Conversion::default().nulls(NullPolicy::Fill(Scalar::Int(0))).select(Selection::Each(None));
    let Some(first) = batches.next().transpose()? else {
        println!("{path} has no rows");
        return Ok(());
    };
    let first = DeviceArray::from_record_batch(&first)?;
    println!("Specs: what any batch of this schema becomes\n\n{}\n", options.explain_type(first.field(), Device::CPU)?);
    let plan = options.explain(&first)?;
    println!("Plan of the first batch, {} rows\n\n{plan}\n", first.len());

    let columns: Vec<String> =
        plan.rows.iter().filter(|row| row.error.is_none()).map(|row| row.column.clone()).collect();
    let chosen = options.clone().select(Selection::Each(Some(columns.clone())));
    let log = CopyLog::new();
    let (mut rows, mut viewed) = (0_usize, BTreeMap::<String, usize>::new());
    let mut convert = |batch: &DeviceArray| -> Result<(), arrow_dlpack::Error> {
        let tensors = log.track(|| chosen.to_tensors(batch))?;
        rows += batch.len();
        for (name, tensor) in tensors.iter().filter(|(_, tensor)| !tensor.is_copied()) {
            *viewed.entry(name.clone()).or_default() += tensor.nbytes();
        }
        Ok(())
    };
    convert(&first)?;
    for batch in batches {
        convert(&DeviceArray::from_record_batch(&batch?)?)?;
    }

    println!("Converted {rows} rows of {} columns", columns.len());
    println!("viewed {:>12} bytes in {} columns", viewed.values().sum::<usize>(), viewed.len());
    println!("copied {:>12} bytes:", log.bytes());
    let mut copied = BTreeMap::<String, usize>::new();
    for entry in log.entries() {
        *copied
            .entry(entry.why.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ').to_owned())
            .or_default() += entry.bytes;
    }
    for (why, bytes) in copied {
        println!("       {bytes:>12} {why}");
    }
    Ok(())
}
