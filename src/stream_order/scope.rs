//! The CUDA stream that a thread uses for its results.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::alloc::Owner;
use crate::cuda::Stream;

/// A stream that was set.
struct SetStream {
    /// The number of its scope.
    scope: u64,
    stream: Stream,
    /// What keeps the stream alive, if that is known.
    #[cfg_attr(not(feature = "python"), allow(dead_code, reason = "only Python has an object for it"))]
    owner: Option<Owner>,
}

thread_local! {
    static STREAMS: RefCell<Vec<SetStream>> = const { RefCell::new(Vec::new()) };
}

/// The streams that threads use in another copy of this crate in the process.
#[derive(Clone, Copy)]
#[cfg_attr(not(feature = "python"), allow(dead_code, reason = "only the Python package is another copy's"))]
pub(crate) struct StreamsOfOtherCopy {
    pub(crate) current: fn() -> Option<Stream>,
    /// Starts a scope, and returns its number there; `None` if the stream is refused.
    pub(crate) enter: fn(Stream) -> Option<u64>,
    /// Ends a scope.
    pub(crate) leave: fn(u64),
}

static ELSEWHERE: OnceLock<StreamsOfOtherCopy> = OnceLock::new();

/// Has the scopes of threads kept by another copy of this crate: one thread uses one stream, whichever copy set it.
#[cfg(feature = "python")]
pub(crate) fn streams_elsewhere(streams: StreamsOfOtherCopy) {
    // Both are of the one package.
    let _ = ELSEWHERE.set(streams);
}

/// Returns the stream of the innermost scope that this copy keeps.
pub(crate) fn this_copys_stream() -> Option<Stream> {
    let last = STREAMS.try_with(|streams| streams.borrow().last().map(|set| set.stream));
    // A thread that is ending has no scopes any more.
    last.ok().flatten()
}

/// Returns what keeps this thread's stream alive, if that is known.
#[cfg(feature = "python")]
pub(crate) fn current_stream_owner() -> Option<Owner> {
    STREAMS.try_with(|streams| streams.borrow().last()?.owner.clone()).ok().flatten()
}

/// Returns the stream of this thread's innermost scope, whichever copy of this crate keeps it; `None` outside of scopes.
pub(crate) fn scoped_stream() -> Option<Stream> {
    // This copy keeps scopes that started before it knew of another.
    this_copys_stream().or_else(|| (ELSEWHERE.get()?.current)())
}

/// Returns this thread's stream: the one of the innermost scope, else the legacy default stream.
#[must_use]
pub fn current_stream() -> Stream {
    scoped_stream().unwrap_or(Stream::LEGACY)
}

/// A scope in which this thread uses a stream. It ends when this is dropped.
#[derive(Debug)]
#[must_use = "the scope ends when this is dropped"]
pub struct StreamScope {
    number: u64,
    /// Whether another copy of this crate keeps it.
    is_elsewhere: bool,
    /// It is this thread's.
    not_send: PhantomData<*mut ()>,
}

/// Makes this thread use a stream for its results until the returned scope is dropped, also by `?`. Scopes can be
/// nested, and each ends by itself.
///
/// A scope is not [`Send`], so that a future which holds one across an `.await` does not go to another thread. Where it
/// could, and where one thread polls several futures, use [`in_stream`].
///
/// ```
/// use arrow_dlpack::cuda::Stream;
/// use arrow_dlpack::stream_order::{current_stream, stream_scope};
///
/// let scope = stream_scope(Stream::PER_THREAD);
/// assert_eq!(current_stream(), Stream::PER_THREAD);
/// drop(scope);
/// assert_eq!(current_stream(), Stream::LEGACY);
/// ```
///
/// ```compile_fail
/// use arrow_dlpack::{cuda::Stream, stream_order::stream_scope};
///
/// let scope = stream_scope(Stream::LEGACY);
/// std::thread::spawn(move || drop(scope));
/// ```
pub fn stream_scope(stream: Stream) -> StreamScope {
    let elsewhere = ELSEWHERE.get().and_then(|streams| (streams.enter)(stream));
    let (number, is_elsewhere) = elsewhere.map_or_else(|| (enter_stream(stream), false), |number| (number, true));
    StreamScope { number, is_elsewhere, not_send: PhantomData }
}

impl Drop for StreamScope {
    fn drop(&mut self) {
        match ELSEWHERE.get().filter(|_| self.is_elsewhere) {
            Some(streams) => (streams.leave)(self.number),
            None => leave_stream(self.number),
        }
    }
}

/// Starts a scope that this copy keeps, until [`leave_stream`] of the number that is returned, which is not 0.
pub(crate) fn enter_stream(stream: Stream) -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    set(SetStream { scope: number, stream, owner: None });
    number
}

/// Ends a scope of this thread that this copy keeps. Does nothing for any other number.
pub(crate) fn leave_stream(number: u64) {
    // 0 is that of streams that Python set.
    if number > 0 {
        let _ = STREAMS.try_with(|streams| streams.borrow_mut().retain(|set| set.scope != number));
    }
}

/// Returns a future that uses a stream for its results, on whichever thread it is polled.
pub fn in_stream<F: Future>(stream: Stream, future: F) -> impl Future<Output = F::Output> {
    let mut future = Box::pin(future);
    poll_fn(move |context| {
        let _scope = stream_scope(stream);
        future.as_mut().poll(context)
    })
}

fn set(set: SetStream) {
    let _ = STREAMS.try_with(|streams| streams.borrow_mut().push(set));
}

/// Sets this thread's stream, which `owner` keeps alive, until [`pop_stream`]: for blocks of Python, which have no destructors.
#[cfg(feature = "python")]
pub(crate) fn push_stream(stream: Stream, owner: Owner) {
    set(SetStream { scope: 0, stream, owner: Some(owner) });
}

/// Restores this thread's previous stream. Returns false, and does nothing, if this thread's stream is not `stream`.
#[cfg(feature = "python")]
#[must_use]
pub(crate) fn pop_stream(stream: Stream) -> bool {
    // Its owner is dropped when the streams are not borrowed any more.
    let last = STREAMS.with_borrow_mut(|streams| streams.pop_if(|set| set.stream == stream));
    last.is_some()
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn a_scope_ends_by_itself_wherever_its_block_is_left() {
        let work = || -> Result<(), ()> {
            let _scope = stream_scope(Stream::PER_THREAD);
            Err(())
        };
        assert!(work().is_err());
        assert_eq!(current_stream(), Stream::LEGACY);
        let (outer, inner) = (stream_scope(Stream::LEGACY), stream_scope(Stream::PER_THREAD));
        drop(outer);
        assert_eq!(current_stream(), Stream::PER_THREAD);
        drop(inner);
        assert_eq!(current_stream(), Stream::LEGACY);
    }

    #[test]
    fn a_future_enters_its_stream_at_each_poll() {
        let mut polls = 0;
        let seen = poll_fn(move |_| {
            polls += 1;
            assert_eq!(current_stream(), Stream::PER_THREAD);
            if polls == 2 { Poll::Ready(polls) } else { Poll::Pending }
        });
        let mut future = Box::pin(in_stream(Stream::PER_THREAD, seen));
        let mut context = Context::from_waker(Waker::noop());
        assert!(future.as_mut().poll(&mut context).is_pending());
        assert_eq!(current_stream(), Stream::LEGACY);
        // Another thread goes on with it.
        let polled = std::thread::spawn(move || future.as_mut().poll(&mut Context::from_waker(Waker::noop())));
        assert_eq!(polled.join().unwrap(), Poll::Ready(2));
    }
}
