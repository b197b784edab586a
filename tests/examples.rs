//! Do the examples that need no GPU run as they are documented?

// It starts cargo, and Miri starts no process.
#![cfg(not(miri))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a helper that fails is a test that fails"
)]

#[path = "../examples/01-array-and-tensor.rs"]
mod array_and_tensor;
#[cfg(feature = "async")]
#[path = "../examples/07-async.rs"]
mod asynchronous;
#[path = "../examples/02-batch-to-matrix.rs"]
mod batch_to_matrix;
#[path = "../examples/03-managed-tensors.rs"]
mod managed_tensors;
#[path = "../examples/04-reader-and-loader.rs"]
mod reader_and_loader;

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, Int32Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;

#[test]
fn the_numbered_examples_run() {
    array_and_tensor::main().unwrap();
    batch_to_matrix::main().unwrap();
    managed_tensors::main().unwrap();
    reader_and_loader::main().unwrap();
    #[cfg(feature = "async")]
    asynchronous::main().unwrap();
}

#[test]
fn parquet_to_tensors() {
    let columns: [(&str, ArrayRef); 3] = [
        ("count", Arc::new(Int32Array::from(vec![1, 2, 3]))),
        ("price", Arc::new(Float64Array::from(vec![Some(1.5), None, Some(2.5)]))),
        ("name", Arc::new(StringArray::from(vec!["a", "b", "c"]))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("example.parquet");
    let mut writer = ArrowWriter::try_new(File::create(&path).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();

    // As `make test-rust` has built the library.
    let has = [("async", cfg!(feature = "async")), ("python,pyo3/abi3-py311", cfg!(feature = "python"))];
    let features: Vec<_> = has.iter().filter(|(_, has)| *has).map(|(feature, _)| *feature).collect();
    let run = |path: &Path| {
        let mut command = Command::new(env!("CARGO"));
        command.args(["run", "--quiet", "--features", &features.join(","), "--example", "parquet_to_tensors", "--"]);
        command.arg(path);
        command.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap()
    };
    let ran = run(&path);
    let (printed, errors) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{errors}");
    assert!(printed.contains("Plan of the first batch, 3 rows"), "{printed}");
    assert!(printed.contains("Converted 3 rows of 2 columns"), "{printed}");
    assert!(!run(&path.with_extension("missing")).status.success());
}
