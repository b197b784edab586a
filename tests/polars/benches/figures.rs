//! How long do conversions from polars take, next to the same ones from a batch of arrow-rs, and to polars' own `to_ndarray`?
//!
//! `cargo bench` prints the figures of docs/benchmarks.md. The routes take turns; a figure is the median of its turns, and a ratio the
//! median of the ratios of turns.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use arrow_array::{ArrayRef, Float32Array, RecordBatch};
use arrow_dlpack::{Conversion, CopyMode, Tensor};
use arrow_dlpack_polars::{Convert, numbers};
use polars_core::prelude::{Float32Type, IndexOrder, NamedFrom, Series};

const COLUMNS: usize = 64;
const ROWS: usize = 250_000;
const TURNS: usize = 31;

fn main() {
    // `cargo test --benches` runs it once, to see that it works.
    let turns = if std::env::args().any(|argument| argument == "--bench") { TURNS } else { 1 };
    matrices(turns);
    views(turns);
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn seconds<R>(route: impl FnOnce() -> R) -> f64 {
    let start = Instant::now();
    let result = black_box(route());
    let time = start.elapsed().as_secs_f64();
    drop(result);
    time
}

fn matrices(turns: usize) {
    let frame = numbers(COLUMNS, ROWS);
    let column = |index: usize| -> (String, ArrayRef) {
        let values = frame.columns()[index].f32().expect("float32").cont_slice().expect("one chunk").to_vec();
        (format!("c{index}"), Arc::new(Float32Array::from(values)))
    };
    let batch = RecordBatch::try_from_iter((0..COLUMNS).map(column)).expect("columns of one length");
    let conversion = Conversion::default();
    let from_frame = || conversion.tensor(&frame).expect("a matrix");
    let from_batch = || conversion.tensor(&batch).expect("a matrix");
    let own = || frame.to_ndarray::<Float32Type>(IndexOrder::C).expect("a matrix");
    let expected = own();
    for matrix in [from_frame(), from_batch()] {
        assert_eq!(matrix.as_slice::<f32>().expect("dense"), expected.as_slice().expect("dense"));
    }
    let (mut frames, mut batches, mut owns) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..turns {
        frames.push(seconds(from_frame));
        batches.push(seconds(from_batch));
        owns.push(seconds(own));
    }
    let ratio = |others: &[f64]| median(frames.iter().zip(others).map(|(frame, other)| other / frame).collect());
    println!("{COLUMNS} float32 columns of {ROWS} rows to a row-major matrix:");
    println!("  a DataFrame               {:8.2} ms", median(frames.clone()) * 1e3);
    println!(
        "  a RecordBatch             {:8.2} ms, {:.3} of the time of the DataFrame",
        median(batches.clone()) * 1e3,
        ratio(&batches)
    );
    println!(
        "  DataFrame::to_ndarray(C)  {:8.2} ms, {:.2} times the time of the DataFrame",
        median(owns.clone()) * 1e3,
        ratio(&owns)
    );
}

fn views(turns: usize) {
    const CALLS: usize = 10_000;
    let series = Series::new("x".into(), vec![0.5_f64; 1_000]);
    let conversion = Conversion::default().copy(CopyMode::Never);
    let tensor = Tensor::from_vec(vec![0.5_f64; 1_000], &[10, 100]).expect("a matrix");
    let (mut of_series, mut of_tensor) = (Vec::new(), Vec::new());
    for _ in 0..turns {
        let calls = || (0..CALLS).for_each(|_| drop(black_box(conversion.tensor(black_box(&series)).expect("a view"))));
        of_series.push(seconds(calls) / CALLS as f64);
        let calls =
            || (0..CALLS).for_each(|_| drop(black_box(black_box(&tensor).as_ndarray::<f64>().expect("a view"))));
        of_tensor.push(seconds(calls) / CALLS as f64);
    }
    println!("a view, of any size:");
    println!("  Series to Tensor          {:8.0} ns", median(of_series) * 1e9);
    println!("  Tensor to ndarray         {:8.0} ns", median(of_tensor) * 1e9);
}
