//! A lazy query of polars as tensors and as training batches, while polars' streaming engine runs it. Run by `make examples`, or here:
//!
//! ```text
//! cargo run --locked
//! ```
//!
//! The streaming engine calls back with each frame of the result. Here the frames go through a bounded channel: the query waits while
//! nobody reads them, and ends when the reader has gone. The whole result is never in memory.
//!
//! `LazyFrame::collect_batches` of polars-lazy's feature `async` is such an iterator, too. If its query panics, it ends as if the result
//! were complete; here that is an error.

use std::error::Error;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{self, JoinHandle};

use arrow_dlpack::loader::{Batches, LoadOptions, Place, Sharding};
use arrow_dlpack::{Conversion, DType, ErrorKind, polars};
use polars_core::prelude::{DataFrame, DataType, PolarsError, PolarsResult, SchemaRef, df};
use polars_lazy::prelude::{Engine, IntoLazy, LazyFrame, PlanCallback, col, lit};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A query that runs on threads of polars.
struct Running {
    schema: SchemaRef,
    frames: Receiver<PolarsResult<DataFrame>>,
    /// How many frames the query has made.
    made: Arc<AtomicUsize>,
    thread: JoinHandle<()>,
}

/// Starts a query whose result comes in frames of so many rows, two of which may wait.
fn start(mut query: LazyFrame, rows: NonZero<usize>) -> PolarsResult<Running> {
    let schema = query.collect_schema()?;
    let (sender, frames) = sync_channel(2);
    let (made, failed) = (Arc::new(AtomicUsize::new(0)), sender.clone());
    let counter = made.clone();
    let each = PlanCallback::new(move |frame: DataFrame| {
        counter.fetch_add(1, Ordering::Relaxed);
        // True ends the query: nobody reads its frames any more.
        Ok(sender.send(Ok(frame)).is_err())
    });
    let query = query.sink_batches(each, true, Some(rows))?;
    let thread = thread::spawn(move || {
        // A query that panics is an error. Without this the reader would take the frames so far for all.
        let done = catch_unwind(AssertUnwindSafe(|| query.collect_with_engine(Engine::Streaming)));
        let error = match done {
            Ok(Ok(_)) => return,
            Ok(Err(error)) => error,
            Err(_) => PolarsError::ComputeError("the query panicked".into()),
        };
        // If nobody reads, nobody asks why the query ended.
        let _ = failed.send(Err(error));
    });
    Ok(Running { schema, frames, made, thread })
}

fn main() -> Result<()> {
    const ROWS: i32 = 1_000_000;
    const KEPT: i64 = 500_000;
    let rows = NonZero::new(1000).ok_or("zero rows")?;
    let table = df!("id" => (0..ROWS).collect::<Vec<_>>(), "value" => vec![0.5_f32; 1_000_000])?.lazy();
    let query = table
        .clone()
        .filter(col("id").gt_eq(lit(ROWS / 2)))
        .select([col("id"), (col("value") * lit(2.0_f32)).alias("doubled")]);

    // The whole result as one matrix: the conversion packs each frame as it comes.
    let Running { schema, frames, made, thread } = start(query.clone(), rows)?;
    let mut stream = polars::try_stream(&schema, frames)?;
    let matrix = Conversion::default().dtype(DType::Float32).read_tensor(&mut stream)?;
    thread.join().map_err(|_| "the query's thread panicked")?;
    assert_eq!((matrix.shape(), made.load(Ordering::Relaxed)), ([KEPT, 2].as_slice(), 500));
    let last = matrix.slice(usize::try_from(KEPT)? - 1, 1)?;
    assert_eq!(last.as_slice::<f32>()?, [999_999.0, 1.0]);

    // Training batches of 600 rows. Three of them, and the loader's two ahead, take a few frames of the query's 500.
    let Running { schema, frames, made, thread } = start(query, rows)?;
    let stream = polars::try_stream(&schema, frames)?;
    let options = LoadOptions::new(Sharding::new(600, false, 0, 1)?);
    let conversion = Conversion::default().dtype(DType::Float32);
    let mut batches = Batches::new(stream, &conversion, &options, &Place::start(0))?;
    for batch in 0_i16..3 {
        let taken = batches.next().ok_or("the query has more rows")??;
        let ids = taken.tensors[0].as_slice::<f32>()?.iter().step_by(2);
        assert!(ids.eq(
            (0..600).map(|row| 500_000.0 + f32::from(batch) * 600.0 + f32::from(row as i16)).collect::<Vec<_>>().iter()
        ));
    }
    // Leaving ends the query, wherever it is.
    drop(batches);
    thread.join().map_err(|_| "the query's thread panicked")?;
    let made = made.load(Ordering::Relaxed);
    assert!(made < 20, "{made} frames were made for 1800 rows");

    // An error of the query is the reader's, with polars' error as its source.
    let wrong = table.select([(col("id").cast(DataType::Int64) * lit(10_000_i64)).strict_cast(DataType::Int32)]);
    let Running { schema, frames, thread, .. } = start(wrong, rows)?;
    let mut stream = polars::try_stream(&schema, frames)?;
    let error = Conversion::default().read_tensor(&mut stream).err().ok_or("the values do not fit int32")?;
    assert_eq!(error.kind(), ErrorKind::Producer);
    assert!(error.source().is_some_and(|source| source.is::<PolarsError>()), "{error:?}");
    thread.join().map_err(|_| "the query's thread panicked")?;

    println!("{} rows; {made} frames for a consumer that left after three batches", matrix.shape()[0]);
    Ok(())
}
