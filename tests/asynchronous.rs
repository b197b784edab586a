//! Do futures feed streams, and streams batches to futures, without a runtime, and does everything end when one side does?

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper that fails is a test that fails"
)]

#[path = "support/mod.rs"]
mod support;

use std::error::Error as _;
use std::future::Future;
use std::num::NonZero;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_dlpack::loader::{Batch, BatchStream, Batches, LoadOptions, Place, Sharding};
use arrow_dlpack::{Conversion, CopyLog, DeviceArray, DeviceArrayStream, Error, ErrorKind, Sender, channel};
use futures_core::Stream;
use support::{Count, CountsDrop};

/// Wakes a thread, and counts how often.
struct Parked(Thread, AtomicUsize);

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.unpark();
    }
}

/// Runs a future to its end on this thread, which sleeps between its polls.
fn block_on<F: Future>(future: F) -> F::Output {
    let parked = Arc::new(Parked(thread::current(), AtomicUsize::new(0)));
    let (waker, mut future) = (Waker::from(parked), pin!(future));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(done) => return done,
            Poll::Pending => thread::park(),
        }
    }
}

/// Polls once.
fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// The next item of a stream.
async fn next<S: Stream + Unpin>(stream: &mut S) -> Option<S::Item> {
    std::future::poll_fn(|context| Pin::new(&mut *stream).poll_next(context)).await
}

/// All batches of a stream.
async fn collect(mut stream: BatchStream) -> Result<Vec<Batch>, Error> {
    let mut batches = Vec::new();
    while let Some(batch) = next(&mut stream).await {
        batches.push(batch?);
    }
    Ok(batches)
}

/// A batch of the numbers of a range.
fn numbers(range: std::ops::Range<i64>) -> RecordBatch {
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(range));
    RecordBatch::try_from_iter([("x", column)]).unwrap()
}

/// A stream of ten batches of three rows that wakes itself before each, and may fail at one. Counts its drop.
struct Source {
    next: i64,
    is_awake: bool,
    fails_at: i64,
    polls: Arc<AtomicUsize>,
    _dropped: CountsDrop,
}

impl Source {
    fn new(fails_at: i64) -> (Self, Count, Arc<AtomicUsize>) {
        let (count, polls) = (Count::default(), Arc::new(AtomicUsize::new(0)));
        let dropped = CountsDrop(count.clone());
        (Self { next: 0, is_awake: false, fails_at, polls: polls.clone(), _dropped: dropped }, count, polls)
    }
}

impl Stream for Source {
    type Item = Result<RecordBatch, std::io::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.polls.fetch_add(1, Ordering::SeqCst);
        self.is_awake = !self.is_awake;
        if self.is_awake {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let at = self.next;
        self.next += 1;
        Poll::Ready(match at {
            _ if at == self.fails_at => Some(Err(std::io::Error::other("no network"))),
            10 => None,
            _ => Some(Ok(numbers(3 * at..3 * at + 3))),
        })
    }
}

/// A source that never has a batch.
struct Never(CountsDrop);

impl Stream for Never {
    type Item = Result<RecordBatch, std::io::Error>;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let _ = &self.0;
        Poll::Pending
    }
}

fn channel_of(capacity: usize) -> (Sender, DeviceArrayStream) {
    channel(&numbers(0..1).schema(), NonZero::new(capacity).unwrap())
}

/// The numbers of a stream's arrays.
fn read(stream: &mut DeviceArrayStream) -> Result<Vec<i64>, Error> {
    Conversion::default().read_tensor(stream)?.to_vec::<i64>()
}

fn batches(stream: DeviceArrayStream, prefetch: usize) -> Batches {
    let mut load = LoadOptions::new(Sharding::new(4, false, 0, 1).unwrap());
    load.prefetch = prefetch;
    Batches::new(stream, &Conversion::default(), &load, &Place::start(0)).unwrap()
}

fn stream_of(rows: std::ops::Range<i64>) -> (DeviceArrayStream, Count) {
    let array = DeviceArray::try_from(numbers(rows)).unwrap();
    let (field, count) = (array.field().clone(), Count::default());
    let (device, dropped) = (array.device().device_type(), CountsDrop(count.clone()));
    let arrays = std::iter::repeat_n(array, 100).map(move |array| {
        let _ = &dropped;
        Ok(array)
    });
    (DeviceArrayStream::new(field, device, arrays), count)
}

#[test]
fn a_future_feeds_a_stream_in_order_and_is_dropped_once() {
    for capacity in [1, 2, 100] {
        let (sender, mut stream) = channel_of(capacity);
        let (source, released, _) = Source::new(i64::MAX);
        let run = thread::spawn(move || block_on(sender.forward(source)));
        assert_eq!(read(&mut stream).unwrap(), (0..30).collect::<Vec<_>>());
        run.join().unwrap();
        assert_eq!(released.get(), 1);
        assert!(stream.next().is_none());
    }
}

#[test]
fn a_full_channel_stops_the_source() {
    let (sender, mut stream) = channel_of(2);
    let (source, released, polls) = Source::new(i64::MAX);
    let mut future = pin!(sender.forward(source));
    for _ in 0..20 {
        assert!(poll_once(future.as_mut()).is_pending());
    }
    // Two batches, each after a poll that had none.
    assert_eq!(polls.load(Ordering::SeqCst), 4);
    assert_eq!(stream.next().unwrap().unwrap().len(), 3);
    for _ in 0..20 {
        assert!(poll_once(future.as_mut()).is_pending());
    }
    assert_eq!((polls.load(Ordering::SeqCst), released.get()), (6, 0));
}

#[test]
fn a_taken_array_wakes_the_task_that_waits_for_room() {
    let (mut sender, mut stream) = channel_of(1);
    let array = || DeviceArray::try_from(numbers(0..1)).unwrap();
    block_on(sender.send(array())).unwrap();
    let parked = Arc::new(Parked(thread::current(), AtomicUsize::new(0)));
    let waker = Waker::from(parked.clone());
    let mut second = pin!(sender.send(array()));
    assert!(second.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    assert_eq!(parked.1.load(Ordering::SeqCst), 0);
    stream.next().unwrap().unwrap();
    assert_eq!(parked.1.load(Ordering::SeqCst), 1);
    assert!(second.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
}

#[test]
fn an_error_of_the_source_reaches_the_reader_with_its_cause() {
    let (sender, mut stream) = channel_of(1);
    let (source, released, _) = Source::new(2);
    let run = thread::spawn(move || block_on(sender.forward(source)));
    let error = read(&mut stream).unwrap_err();
    run.join().unwrap();
    assert_eq!((error.kind(), released.get()), (ErrorKind::Producer, 1));
    assert_eq!(error.source().unwrap().downcast_ref::<std::io::Error>().unwrap().to_string(), "no network");

    let (sender, mut stream) = channel_of(1);
    sender.fail(Error::producer("no table"));
    assert_eq!(read(&mut stream).unwrap_err().reason(), "no table");
    assert!(stream.next().is_none());
}

#[test]
fn a_source_that_is_dropped_before_its_end_is_an_error() {
    let (sender, mut stream) = channel_of(8);
    let (source, released, _) = Source::new(i64::MAX);
    {
        let mut future = pin!(sender.forward(source));
        for _ in 0..3 {
            assert!(poll_once(future.as_mut()).is_pending());
        }
    }
    assert_eq!(released.get(), 1);
    assert_eq!(stream.next().unwrap().unwrap().len(), 3);
    let error = stream.find_map(Result::err).unwrap();
    assert_eq!(error.kind(), ErrorKind::Producer);
    assert!(error.to_string().contains("was dropped before it had sent all of them"), "{error}");
    let (sender, mut stream) = channel_of(1);
    sender.finish();
    assert!(stream.next().is_none());
}

#[test]
fn a_stream_that_is_dropped_ends_the_future() {
    let (sender, stream) = channel_of(1);
    let count = Count::default();
    let never = Never(CountsDrop(count.clone()));
    let run = thread::spawn(move || block_on(sender.forward(never)));
    drop(stream);
    run.join().unwrap();
    assert_eq!(count.get(), 1);
    let (mut sender, stream) = channel_of(1);
    drop(stream);
    let array = DeviceArray::try_from(numbers(0..1)).unwrap();
    assert_eq!(block_on(sender.send(array)).unwrap_err().kind(), ErrorKind::Argument);
}

#[test]
fn a_batch_of_another_schema_is_an_error() {
    let column: ArrayRef = Arc::new(arrow_array::Float32Array::from(vec![1.0]));
    let other = RecordBatch::try_from_iter([("y", column)]).unwrap();
    let (sender, mut stream) = channel_of(2);
    struct Once(Option<RecordBatch>);
    impl Stream for Once {
        type Item = Result<RecordBatch, std::io::Error>;
        fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            Poll::Ready(self.0.take().map(Ok))
        }
    }
    block_on(sender.forward(Once(Some(other))));
    assert_eq!(stream.next().unwrap().unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn batches_are_an_asynchronous_stream_with_and_without_prefetching() {
    for prefetch in [0, 1, 3] {
        let (sender, stream) = channel_of(2);
        let (source, released, _) = Source::new(i64::MAX);
        let run = thread::spawn(move || block_on(sender.forward(source)));
        let log = CopyLog::new();
        let stream = batches(stream, prefetch).into_stream().unwrap();
        let found = block_on(log.track_future(collect(stream))).unwrap();
        let values: Vec<i64> = found.iter().flat_map(|batch| batch.tensors[0].to_vec::<i64>().unwrap()).collect();
        assert_eq!(values, (0..30).collect::<Vec<_>>());
        assert_eq!(found.iter().map(|batch| batch.rows).collect::<Vec<_>>(), [4, 4, 4, 4, 4, 4, 4, 2]);
        // Logged where they are taken.
        assert_eq!(log.bytes(), 30 * 8);
        run.join().unwrap();
        assert_eq!(released.get(), 1);
    }
}

#[test]
fn a_poll_neither_makes_a_batch_nor_waits_for_one() {
    for prefetch in [0, 2] {
        let (mut sender, stream) = channel_of(1);
        let mut stream = batches(stream, prefetch).into_stream().unwrap();
        let parked = Arc::new(Parked(thread::current(), AtomicUsize::new(0)));
        let waker = Waker::from(parked.clone());
        let mut context = Context::from_waker(&waker);
        // Nothing was sent, so a poll that made a batch would never return.
        assert!(Pin::new(&mut stream).poll_next(&mut context).is_pending());
        block_on(sender.send(DeviceArray::try_from(numbers(0..4)).unwrap())).unwrap();
        let batch = loop {
            match Pin::new(&mut stream).poll_next(&mut context) {
                Poll::Ready(batch) => break batch.unwrap().unwrap(),
                // Returns at once if the thread has woken this one since.
                Poll::Pending => thread::park(),
            }
        };
        assert_eq!((batch.rows, parked.1.load(Ordering::SeqCst)), (4, 1));
        sender.finish();
        assert!(block_on(next(&mut stream)).is_none());
        assert!(block_on(next(&mut stream)).is_none());
    }
}

#[test]
fn an_error_ends_the_batches() {
    for prefetch in [0, 2] {
        let (sender, stream) = channel_of(1);
        sender.fail(Error::producer("no table"));
        let mut stream = batches(stream, prefetch).into_stream().unwrap();
        assert_eq!(block_on(next(&mut stream)).unwrap().unwrap_err().reason(), "no table");
        assert!(block_on(next(&mut stream)).is_none());
    }
}

#[test]
fn a_closed_stream_has_released_its_source_and_a_dropped_one_does_not_wait() {
    for prefetch in [0, 2] {
        let (source, released) = stream_of(0..5);
        let mut stream = batches(source, prefetch).into_stream().unwrap();
        assert_eq!(block_on(next(&mut stream)).unwrap().unwrap().rows, 4);
        stream.close();
        assert_eq!(released.get(), 1);

        // The thread waits for an array that is sent after the drop, which returns before.
        let (mut sender, source) = channel_of(1);
        let mut stream = batches(source, prefetch).into_stream().unwrap();
        assert!(poll_once(pin!(next(&mut stream))).is_pending());
        drop(stream);
        let array = || DeviceArray::try_from(numbers(0..1)).unwrap();
        // The thread takes arrays until it sees that it is to end, and then drops its end of the channel.
        while block_on(sender.send(array())).is_ok() {
            thread::yield_now();
        }
    }
}

/// A source whose poll of this number panics.
struct Panicking {
    source: Source,
    polls_before: usize,
}

impl Stream for Panicking {
    type Item = Result<RecordBatch, std::io::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        assert!(self.polls_before > 0, "on purpose");
        self.polls_before -= 1;
        Pin::new(&mut self.source).poll_next(context)
    }
}

#[test]
fn a_source_that_panics_is_an_error_of_its_reader() {
    // Two polls for each of ten batches, and two for the end.
    for polls_before in 0..22 {
        let (sender, mut stream) = channel_of(100);
        let (source, released, _) = Source::new(i64::MAX);
        let source = Panicking { source, polls_before };
        let run = thread::spawn(move || block_on(sender.forward(source)));
        assert_eq!(run.join().unwrap_err().downcast_ref::<&str>(), Some(&"on purpose"));
        let arrays: Vec<_> = stream.by_ref().collect();
        let (error, whole) = arrays.split_last().unwrap();
        assert_eq!((whole.len(), whole.iter().all(Result::is_ok)), (polls_before / 2, true));
        assert_eq!(error.as_ref().unwrap_err().kind(), ErrorKind::Producer);
        assert_eq!(released.get(), 1);
    }
}

#[test]
fn batches_end_by_an_error_when_their_source_panics() {
    for prefetch in [0, 2] {
        for arrays in 0..3 {
            let (source, released) = stream_of(0..4);
            let (field, device) = (source.field().clone(), source.device_type());
            let panicking = source.enumerate().map(move |(index, array)| {
                assert!(index < arrays, "on purpose");
                array
            });
            let source = DeviceArrayStream::new(field, device, panicking);
            let mut stream = batches(source, prefetch).into_stream().unwrap();
            for _ in 0..arrays {
                assert_eq!(block_on(next(&mut stream)).unwrap().unwrap().rows, 4);
            }
            let error = block_on(next(&mut stream)).unwrap().unwrap_err();
            assert!(error.reason().contains("on purpose"), "{error}");
            assert!(block_on(next(&mut stream)).is_none());
            stream.close();
            assert_eq!(released.get(), 1);
        }
    }
}

/// Tells that it wakes, and panics.
struct Startled(SyncSender<()>);

impl Wake for Startled {
    fn wake(self: Arc<Self>) {
        self.0.send(()).unwrap();
        panic!("on purpose")
    }
}

#[test]
fn a_waker_that_panics_loses_no_batch_and_no_end() {
    let (tell, told) = sync_channel(2);
    let startled = Waker::from(Arc::new(Startled(tell)));
    for prefetch in [0, 2] {
        let (mut sender, source) = channel_of(1);
        let mut stream = batches(source, prefetch).into_stream().unwrap();
        assert!(Pin::new(&mut stream).poll_next(&mut Context::from_waker(&startled)).is_pending());
        block_on(sender.send(DeviceArray::try_from(numbers(0..4)).unwrap())).unwrap();
        // The batch was made before somebody was to be woken for it.
        told.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(block_on(next(&mut stream)).unwrap().unwrap().rows, 4);
        let error = block_on(next(&mut stream)).unwrap().unwrap_err();
        assert!(error.reason().contains("on purpose"), "{error}");
        assert!(block_on(next(&mut stream)).is_none());

        let (sender, source) = channel_of(1);
        let mut stream = batches(source, prefetch).into_stream().unwrap();
        assert!(Pin::new(&mut stream).poll_next(&mut Context::from_waker(&startled)).is_pending());
        sender.finish();
        told.recv_timeout(Duration::from_secs(60)).unwrap();
        assert!(block_on(next(&mut stream)).is_none());
        stream.close();
    }
}

/// A task that owns the stream that it feeds.
struct Owner(#[expect(dead_code, reason = "dropped with the task")] std::sync::Mutex<Option<DeviceArrayStream>>);

impl Wake for Owner {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn the_last_waker_of_a_task_may_own_the_stream() {
    let (mut sender, stream) = channel_of(1);
    let array = || DeviceArray::try_from(&numbers(0..2)).unwrap();
    block_on(sender.send(array())).unwrap();
    let mut full = Box::pin(sender.send(array()));
    let waker = Waker::from(Arc::new(Owner(std::sync::Mutex::new(Some(stream)))));
    assert!(full.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(waker);
    // Another task replaces the waker, whose task and stream end by that.
    let _ = poll_once(full.as_mut());
    assert!(block_on(full).is_err());
}
