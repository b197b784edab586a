//! A query of DataFusion as tensors and as training batches, on tokio. Run by `make examples`, or here:
//!
//! ```text
//! cargo run --locked
//! ```
//!
//! DataFusion's batches are arrow-rs' own, and a channel of the feature `async` takes them without a copy: [`Sender::forward`] is a
//! future that tokio runs, and the other end is a stream like any other. While the channel is full, the query is not polled.
//!
//! [`Sender::forward`]: arrow_dlpack::Sender::forward

use std::error::Error;
use std::num::NonZero;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use arrow_dlpack::arrow_array::{ArrayRef, Float32Array, Int32Array, RecordBatch};
use arrow_dlpack::loader::{BatchStream, Batches, LoadOptions, Place, Sharding};
use arrow_dlpack::{Conversion, DType, DeviceArrayStream, ErrorKind, channel};
use datafusion::datasource::MemTable;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::{Stream, StreamExt};
use tokio::task::JoinHandle;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const PARTITIONS: i32 = 4;
const BATCHES: i32 = 16;
const ROWS: i32 = 1000;

/// Returns a context with the table `readings`: partitions of batches, as a folder of files has.
fn readings() -> Result<SessionContext> {
    let batch = |first: i32| {
        let sensor: ArrayRef = Arc::new(Int32Array::from_iter_values(first..first + ROWS));
        let value: ArrayRef =
            Arc::new((first..first + ROWS).map(|row| (row % 10 != 0).then_some(0.5)).collect::<Float32Array>());
        RecordBatch::try_from_iter_with_nullable([("sensor", sensor, false), ("value", value, true)])
    };
    let partition = |number: i32| (0..BATCHES).map(|index| batch((number * BATCHES + index) * ROWS)).collect();
    let partitions = (0..PARTITIONS).map(partition).collect::<std::result::Result<Vec<Vec<_>>, _>>()?;
    let schema = partitions[0][0].schema();
    let context = SessionContext::new_with_config(SessionConfig::new().with_batch_size(1000).with_target_partitions(2));
    context.register_table("readings", Arc::new(MemTable::try_new(schema, partitions)?))?;
    Ok(context)
}

/// The batches of a query, which count how many were taken.
struct Counted {
    batches: SendableRecordBatchStream,
    taken: Arc<AtomicUsize>,
}

impl Stream for Counted {
    type Item = std::result::Result<RecordBatch, DataFusionError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let polled = self.batches.poll_next_unpin(context);
        if let Poll::Ready(Some(_)) = polled {
            self.taken.fetch_add(1, Ordering::Relaxed);
        }
        polled
    }
}

/// A query that runs: its rows, the task that forwards them, and the number of batches that it made so far.
struct Running {
    rows: DeviceArrayStream,
    forwarding: JoinHandle<()>,
    taken: Arc<AtomicUsize>,
}

/// Starts a query whose rows are read from a channel for two batches.
async fn start(context: &SessionContext, query: &str) -> Result<Running> {
    let batches = context.sql(query).await?.execute_stream().await?;
    let (sender, rows) = channel(&batches.schema(), NonZero::<usize>::MIN.saturating_add(1));
    let taken = Arc::new(AtomicUsize::new(0));
    let forwarding = tokio::spawn(sender.forward(Counted { batches, taken: taken.clone() }));
    Ok(Running { rows, forwarding, taken })
}

/// Returns training batches of 600 rows, which a thread of the loader makes: it reads the channel, and tokio's threads do not wait.
fn training(rows: DeviceArrayStream) -> Result<BatchStream> {
    let conversion = Conversion::default().dtype(DType::Float32);
    Ok(Batches::new(rows, &conversion, &LoadOptions::new(Sharding::new(600, false, 0, 1)?), &Place::start(0))?
        .into_stream()?)
}

#[tokio::main]
async fn main() -> Result<()> {
    let context = readings()?;
    let kept = "SELECT sensor, value * 2 AS doubled FROM readings WHERE value IS NOT NULL";
    let all = usize::try_from(PARTITIONS * BATCHES * ROWS)? / 10 * 9;

    // The whole result as one matrix. Reading the channel blocks, so it is no work for the threads of the executor.
    let Running { mut rows, forwarding, .. } = start(&context, kept).await?;
    let conversion = Conversion::default().dtype(DType::Float32);
    let matrix = tokio::task::spawn_blocking(move || conversion.read_tensor(&mut rows)).await??;
    forwarding.await?;
    assert_eq!(matrix.shape(), [i64::try_from(all)?, 2]);
    assert!(matrix.as_slice::<f32>()?.chunks(2).all(|row| row[0] % 10.0 != 0.0 && row[1] == 1.0));

    // Training batches, as an asynchronous stream again.
    let Running { rows, forwarding, .. } = start(&context, kept).await?;
    let (mut batches, mut seen) = (training(rows)?, 0);
    while let Some(batch) = batches.next().await {
        seen += batch?.rows;
    }
    forwarding.await?;
    assert_eq!(seen, all);

    // Backpressure: a consumer that stops after one batch stops the query. Two batches wait in the channel, and the loader's two
    // batches and the one that it makes need four more at most.
    let Running { rows, forwarding, taken } = start(&context, kept).await?;
    let mut batches = training(rows)?;
    batches.next().await.ok_or("no batch")??;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let made = taken.load(Ordering::Relaxed);
    assert!(made <= 8, "the query made {made} batches of which nobody took the rows");
    assert!(!forwarding.is_finished());

    // A consumer that leaves in the middle of the query: the task ends by itself, and the query is dropped with it.
    drop(batches);
    tokio::time::timeout(Duration::from_secs(60), forwarding).await??;
    assert_eq!(Arc::strong_count(&taken), 1);

    // A query that is aborted while its rows are read: the reader gets an error, and no short result.
    let Running { mut rows, forwarding, taken } = start(&context, kept).await?;
    while taken.load(Ordering::Relaxed) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    forwarding.abort();
    assert!(forwarding.await.is_err_and(|error| error.is_cancelled()));
    let cut =
        tokio::task::spawn_blocking(move || Conversion::default().dtype(DType::Float32).read_tensor(&mut rows)).await?;
    assert_eq!(cut.map_err(|error| error.kind()).err(), Some(ErrorKind::Producer));

    // An error of the query is the reader's, with DataFusion's error as its source.
    let Running { mut rows, forwarding, .. } =
        start(&context, "SELECT 1 / (sensor - 2500) AS share FROM readings").await?;
    let failed = tokio::task::spawn_blocking(move || Conversion::default().read_tensor(&mut rows)).await?;
    let error = failed.err().ok_or("the query divides by zero")?;
    assert_eq!(error.kind(), ErrorKind::Producer);
    assert!(error.source().is_some_and(|source| source.is::<DataFusionError>()), "{error:?}");
    forwarding.await?;

    println!("{all} rows; {made} batches for a consumer that stopped after the first");
    Ok(())
}
