//! A bounded channel from a future to a stream of arrays.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::num::NonZero;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::{FieldRef, Schema};
use futures_core::Stream;

use super::DeviceArrayStream;
use crate::arrow::import::DeviceArray;
use crate::arrow::record_batch::field_of;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::stream_order::Interrupts;

/// How long a reader sleeps at most before it looks for signals.
const PATIENCE: Duration = Duration::from_millis(100);

/// Returns the two ends of a channel of record batches: a [`Sender`] for a future, and a stream of host arrays of this
/// schema, which any conversion and the loader read. At most `capacity` batches wait in it.
///
/// Reading the stream blocks its thread until the sender sends. Read it on a thread of its own, such as the loader's,
/// and never on the only thread of the executor that runs the sender.
///
/// ```
/// use std::num::NonZero;
/// use std::sync::Arc;
/// use arrow_dlpack::arrow_array::{ArrayRef, Int32Array, RecordBatch};
/// use arrow_dlpack::{Conversion, DeviceArray, channel};
///
/// let column: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
/// let batch = RecordBatch::try_from_iter([("a", column)]).unwrap();
/// let (mut sender, mut stream) = channel(&batch.schema(), NonZero::<usize>::MIN);
/// // The future is the caller's to run: here on a thread, elsewhere on an executor.
/// let sent = std::thread::spawn(move || {
///     let mut future = Box::pin(async move {
///         sender.send(DeviceArray::try_from(&batch)?).await?;
///         sender.finish();
///         Ok::<_, arrow_dlpack::Error>(())
///     });
///     let mut context = std::task::Context::from_waker(std::task::Waker::noop());
///     while future.as_mut().poll(&mut context).is_pending() {
///         std::thread::yield_now();
///     }
/// });
/// assert_eq!(Conversion::default().read_tensor(&mut stream)?.shape(), [2, 1]);
/// sent.join().unwrap();
/// # Ok::<(), arrow_dlpack::Error>(())
/// ```
#[must_use]
pub fn channel(schema: &Schema, capacity: NonZero<usize>) -> (Sender, DeviceArrayStream) {
    let field = field_of(schema);
    let shared = Arc::new(SharedChannel { capacity: capacity.get(), state: Mutex::default(), sent: Condvar::new() });
    let sender = Sender { shared: shared.clone(), field: field.clone() };
    let receiver = Receiver { shared };
    (sender, DeviceArrayStream::new(field, Device::CPU.device_type(), receiver))
}

/// The end of a channel that sends arrays to a stream. Dropping it before [`Sender::finish`] ends the stream by an error:
/// a future that was cancelled has not sent everything.
pub struct Sender {
    shared: Arc<SharedChannel>,
    field: FieldRef,
}

struct SharedChannel {
    capacity: usize,
    state: Mutex<ChannelState>,
    /// Signals an array or the end.
    sent: Condvar,
}

#[derive(Default)]
struct ChannelState {
    ready: VecDeque<Result<DeviceArray>>,
    /// Whether nothing more is sent.
    ended: bool,
    /// Whether nobody reads any more.
    closed: bool,
    /// The task that waits for room, or for the reader's end.
    waker: Option<Waker>,
}

impl SharedChannel {
    fn lock(&self) -> MutexGuard<'_, ChannelState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the stream, after this error if there is one.
    fn end(&self, error: Option<Error>) {
        let mut state = self.lock();
        if !state.ended {
            state.ended = true;
            if !state.closed {
                state.ready.extend(error.map(Err));
            }
        }
        drop(state);
        self.sent.notify_one();
    }

    /// Returns whether an array can be sent: `None` once nobody reads any more. If not, the task is woken when that
    /// changes.
    fn poll_room(&self, context: &Context<'_>) -> Poll<Option<()>> {
        let mut state = self.lock();
        if state.closed {
            return Poll::Ready(None);
        }
        if state.ready.len() < self.capacity {
            return Poll::Ready(Some(()));
        }
        drop(state);
        // Without the lock: wakers run code of others, and the last one of a task may own the stream.
        let waker = context.waker().clone();
        state = self.lock();
        if state.closed || state.ready.len() < self.capacity {
            // That changed in between, and nobody would wake the task.
            let room = (!state.closed).then_some(());
            drop(state);
            return Poll::Ready(room);
        }
        let before = state.waker.replace(waker);
        drop(state);
        drop(before);
        Poll::Pending
    }

    /// Returns whether nobody reads any more. If somebody does, the task is woken when that ends.
    fn poll_closed(&self, context: &Context<'_>) -> bool {
        let waker = context.waker().clone();
        let mut state = self.lock();
        let closed = state.closed;
        // Without the lock, as in `poll_room`.
        let before = if closed { Some(waker) } else { state.waker.replace(waker) };
        drop(state);
        drop(before);
        closed
    }

    fn push(&self, array: DeviceArray) {
        let mut state = self.lock();
        // Dropped without the lock: the array may be the last owner of another library's memory.
        let mut unread = Some(Ok(array));
        if !state.closed {
            state.ready.extend(unread.take());
        }
        drop(state);
        drop(unread);
        self.sent.notify_one();
    }
}

impl Sender {
    /// Returns the field of every array: structs of the schema's columns.
    #[must_use]
    pub fn field(&self) -> &FieldRef {
        &self.field
    }

    /// Sends an array, once there is room for it.
    ///
    /// # Errors
    /// If the stream was dropped: nobody reads the array.
    pub fn send(&mut self, array: DeviceArray) -> impl Future<Output = Result<()>> + Send + '_ {
        let mut array = Some(array);
        poll_fn(move |context| match self.shared.poll_room(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(None) => Poll::Ready(Err(Error::argument("the stream that reads this channel was dropped"))),
            Poll::Ready(Some(())) => {
                if let Some(array) = array.take() {
                    self.shared.push(array);
                }
                Poll::Ready(Ok(()))
            }
        })
    }

    /// Ends the stream.
    pub fn finish(self) {
        self.shared.end(None);
    }

    /// Ends the stream by an error, after the arrays that were sent.
    pub fn fail(self, error: Error) {
        self.shared.end(Some(error));
    }

    /// Returns a future that sends the record batches of an asynchronous stream, for the caller to spawn. It polls the
    /// stream only where it is polled itself, and only while there is room. It is done at the stream's end, after an
    /// error of it, which the reader gets with its cause, and when nobody reads any more. The stream is dropped then.
    pub fn forward<S, E>(self, batches: S) -> impl Future<Output = ()>
    where
        S: Stream<Item = Result<RecordBatch, E>>,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (mut batches, mut sender) = (Some(Box::pin(batches)), Some(self));
        poll_fn(move |context| {
            let (Some(source), Some(open)) = (&mut batches, &sender) else { return Poll::Ready(()) };
            let ended = open.forward_some(source.as_mut(), context);
            if let Poll::Ready(error) = ended {
                batches = None;
                if let Some(sender) = sender.take() {
                    sender.shared.end(error);
                }
                return Poll::Ready(());
            }
            Poll::Pending
        })
    }

    /// Sends what is ready, and returns how it ended, if it did.
    fn forward_some<S, E>(&self, mut batches: Pin<&mut S>, context: &mut Context<'_>) -> Poll<Option<Error>>
    where
        S: Stream<Item = Result<RecordBatch, E>>,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        loop {
            match self.shared.poll_room(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(())) => {}
            }
            let Poll::Ready(next) = batches.as_mut().poll_next(context) else {
                // The reader may end while the source is waited for.
                return if self.shared.poll_closed(context) { Poll::Ready(None) } else { Poll::Pending };
            };
            let array = |batch: RecordBatch| DeviceArray::of_stream(&batch, &self.field);
            match next.map(|batch| batch.map_err(Error::producer).and_then(array)) {
                None => return Poll::Ready(None),
                Some(Err(error)) => return Poll::Ready(Some(error)),
                Some(Ok(array)) => self.shared.push(array),
            }
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let reason = "the future that sends this stream's arrays was dropped before it had sent all of them";
        self.shared
            .end(Some(Error::new(ErrorKind::Producer, reason).remedy_is("run it to its end, or call Sender::finish")));
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("field", &self.field).finish_non_exhaustive()
    }
}

/// The end of a channel that a stream reads.
struct Receiver {
    shared: Arc<SharedChannel>,
}

impl Iterator for Receiver {
    type Item = Result<DeviceArray>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut interrupts = Interrupts::new();
        let mut state = self.shared.lock();
        loop {
            if let Some(next) = state.ready.pop_front() {
                let waker = state.waker.take();
                drop(state);
                if let Some(waker) = waker {
                    waker.wake();
                }
                return Some(next);
            }
            if state.ended {
                return None;
            }
            state = self.shared.sent.wait_timeout(state, PATIENCE).unwrap_or_else(PoisonError::into_inner).0;
            if state.ready.is_empty() && !state.ended {
                drop(state);
                if let Err(error) = interrupts.check() {
                    return Some(Err(error));
                }
                state = self.shared.lock();
            }
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.closed = true;
        let (unread, waker) = (std::mem::take(&mut state.ready), state.waker.take());
        drop(state);
        // Without the lock: both may run code of others.
        drop(unread);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
