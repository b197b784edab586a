//! An asynchronous stream of record batches as training batches, which are an asynchronous stream again. Any executor
//! runs both ends; the few lines of `block_on` stand for one.
//!
//! `cargo run --example 07-async --features async`

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use std::error::Error;
use std::future::{Future, poll_fn};
use std::num::NonZero;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use arrow_dlpack::arrow_array::{ArrayRef, Float32Array, RecordBatch};
use arrow_dlpack::loader::{Batches, LoadOptions, Place, Sharding};
use arrow_dlpack::{Conversion, channel};
use futures_core::Stream;

/// A source as a query engine has: record batches, each when it is asked for.
struct Query(Vec<RecordBatch>);

impl Stream for Query {
    type Item = Result<RecordBatch, std::io::Error>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.0.pop().map(Ok))
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread.
fn block_on<F: Future>(future: F) -> F::Output {
    let (waker, mut future) = (Waker::from(Arc::new(Unpark(thread::current()))), pin!(future));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            Poll::Pending => thread::park(),
        }
    }
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let column: ArrayRef = Arc::new(Float32Array::from(vec![1.0, 2.0, 3.0]));
    let batch = RecordBatch::try_from_iter([("x", column)])?;

    // The channel's stream is a source like any other. Two batches at most wait in it.
    let (sender, stream) = channel(&batch.schema(), NonZero::<usize>::MIN.saturating_add(1));
    // Where there is an executor: spawn(sender.forward(query)).
    let query = Query(vec![batch; 4]);
    let forwarding = thread::spawn(move || block_on(sender.forward(query)));

    // A thread reads the stream and packs the batches. A poll takes one that is ready, and never waits.
    let options = LoadOptions::new(Sharding::new(5, false, 0, 1)?);
    let mut batches = Batches::new(stream, &Conversion::default(), &options, &Place::start(0))?.into_stream()?;
    let rows = block_on(async {
        let mut rows = 0;
        while let Some(batch) = poll_fn(|context| Pin::new(&mut batches).poll_next(context)).await {
            rows += batch?.rows;
        }
        Ok::<_, arrow_dlpack::Error>(rows)
    })?;
    println!("{rows} rows");
    assert_eq!(rows, 12);
    forwarding.join().map_err(|_| "the forwarding thread panicked")?;
    Ok(())
}
