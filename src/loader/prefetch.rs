//! Makes items ahead of their consumer on one thread.

use std::any::Any;
use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
#[cfg(feature = "async")]
use std::task::{Context, Waker};
use std::thread::{Builder, JoinHandle, ThreadId, current};
use std::time::{Duration, Instant};

use super::spin::Spin;
use crate::error::{Error, ErrorKind, Remedy, Result};
use crate::stream_order::ignore_signals;

/// At most 15 bytes, because Linux shows no more.
const NAME: &str = "dlpack-loader";

thread_local! {
    /// Whether this thread is a loader's.
    static IS_LOADER: Cell<bool> = const { Cell::new(false) };
}

/// Threads that a loader's thread told to stop, with their process. Loader threads do not wait for each other.
static LEFT: Mutex<LeftThreads> = Mutex::new(Vec::new());

type LeftThreads = Vec<(u32, JoinHandle<()>)>;

/// Returns these threads; `None` while another thread has them.
fn left_threads() -> Option<MutexGuard<'static, LeftThreads>> {
    match LEFT.try_lock() {
        Ok(left) => Some(left),
        Err(TryLockError::Poisoned(left)) => Some(left.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Waits at most `patience` for threads that nobody has joined yet. Returns whether none is left.
pub(super) fn join_left(patience: Duration) -> bool {
    let (this_process, until) = (std::process::id(), Instant::now() + patience);
    loop {
        let is_over = Instant::now() >= until;
        let is_one_left = match left_threads() {
            Some(mut left) => {
                let ended = left.extract_if(.., |(process, thread)| *process == this_process && thread.is_finished());
                let ended: Vec<_> = ended.collect();
                let is_one_left = left.iter().any(|(process, _)| *process == this_process);
                left.shrink_to_fit();
                drop(left);
                // Their panics were caught and reported.
                ended.into_iter().for_each(|(_, thread)| _ = thread.join());
                is_one_left
            }
            // A lock held for so long belongs to a thread that a fork left behind, and guards nothing of this process.
            None => !is_over,
        };
        if is_over || !is_one_left {
            return !is_one_left;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Asks work to stop. Clones share the request.
#[derive(Clone, Debug, Default)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    pub(super) fn ask(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(super) fn is_asked(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Fails once it was asked.
    pub(super) fn check(&self) -> Result<()> {
        if self.is_asked() { Err(Error::argument("the loader was closed")) } else { Ok(()) }
    }
}

/// The answer to a request for the next item.
pub(super) enum Taken<T> {
    Item(T),
    /// It is still being made.
    NotYet,
    /// Making it failed.
    Failed(Error),
    /// There are no more.
    End,
    /// There are no more items: making one failed, or the thread was told to stop.
    Cut,
}

/// A thread that makes a given number of items ahead.
pub(super) struct Prefetch<T> {
    shared: Arc<PrefetchQueue<T>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    id: ThreadId,
    /// The process of the thread. After a fork, the other process has only this memory, in whatever state it was.
    process: u32,
}

struct PrefetchQueue<T> {
    ahead: usize,
    stop: Stop,
    /// The number of ready items, or the greatest number after the end, for threads that spin: they do not take the lock.
    count: AtomicUsize,
    state: Mutex<QueueState<T>>,
    /// The waits of the thread for room, and of those who take items.
    maker: Spin,
    takers: Spin,
    /// Signals that an item was made, or that none will be any more.
    made: Condvar,
    /// Signals that there is room for more, or that the thread is to stop.
    room: Condvar,
}

struct QueueState<T> {
    ready: VecDeque<T>,
    failure: Option<Error>,
    /// Whether a failure was told.
    failed: bool,
    /// Whether the thread has dropped everything it held.
    ended: bool,
    takers_wait: usize,
    thread_waits: bool,
    /// The task that waits for an item.
    #[cfg(feature = "async")]
    waker: Option<Waker>,
}

impl<T> QueueState<T> {
    /// Returns what wakes the task that waits for an item, if one does.
    fn wake(&mut self) -> impl FnOnce() + use<T> {
        #[cfg(feature = "async")]
        let waker = self.waker.take();
        move || {
            #[cfg(feature = "async")]
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

impl<T> PrefetchQueue<T> {
    fn lock(&self) -> MutexGuard<'_, QueueState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells threads that spin how many items are ready.
    fn tell_count(&self, state: &QueueState<T>) {
        self.count.store(if state.ended { usize::MAX } else { state.ready.len() }, Ordering::Relaxed);
    }

    /// Waits until there is room; returns false once the thread is to stop.
    fn wait_for_room(&self) -> bool {
        let wait = self.maker.wait(|| self.count.load(Ordering::Relaxed) < self.ahead || self.stop.is_asked());
        let mut state = self.lock();
        if state.ready.len() >= self.ahead {
            while state.ready.len() >= self.ahead && !self.stop.is_asked() {
                state.thread_waits = true;
                state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            wait.end();
        }
        state.thread_waits = false;
        !self.stop.is_asked()
    }

    /// Adds an item, or drops it once the thread is to stop: [`Prefetch::stop`] asks for that before it locks and drops the ready items, so
    /// nobody takes an item that was made after dropped ones.
    fn push(&self, item: T) {
        let mut state = self.lock();
        if self.stop.is_asked() {
            drop(state);
            return drop(item);
        }
        state.ready.push_back(item);
        self.tell_count(&state);
        let (wanted, wake) = (state.takers_wait > 0, state.wake());
        drop(state);
        wake();
        if wanted {
            self.made.notify_one();
        }
    }

    fn end(&self, mut failure: Option<Error>) {
        let mut state = self.lock();
        // Errors after a stop are of no interest.
        if !self.stop.is_asked() {
            state.failure = failure.take();
        }
        state.ended = true;
        self.tell_count(&state);
        let wake = state.wake();
        drop(state);
        wake();
        self.made.notify_all();
    }
}

impl<T: Send + 'static> Prefetch<T> {
    /// Starts a thread that calls `make` until it returns no more items, an error, or `stop` is asked. At most `ahead`
    /// items are ready or in progress. Only the thread runs `make`, and drops it at the end.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(super) fn start(
        ahead: usize,
        stop: Stop,
        make: impl FnMut() -> Option<Result<T>> + Send + 'static,
    ) -> Result<Self> {
        let state = QueueState {
            ready: VecDeque::new(),
            failure: None,
            failed: false,
            ended: false,
            takers_wait: 0,
            thread_waits: false,
            #[cfg(feature = "async")]
            waker: None,
        };
        let (made, room) = (Condvar::new(), Condvar::new());
        let shared = Arc::new(PrefetchQueue {
            ahead: ahead.max(1),
            stop,
            count: AtomicUsize::new(0),
            state: Mutex::new(state),
            maker: Spin::new(),
            takers: Spin::new(),
            made,
            room,
        });
        let theirs = shared.clone();
        let run = move || {
            IS_LOADER.set(true);
            ignore_signals();
            // The work's half-done state is dropped, and never read.
            let failure = catch_unwind(AssertUnwindSafe(|| work(&theirs, make)));
            let failure = failure.unwrap_or_else(|panic| Some(panicked(panic.as_ref())));
            theirs.end(failure);
        };
        let thread = Builder::new().name(NAME.to_owned()).spawn(run).map_err(|error| {
            Error::new(ErrorKind::Memory, format!("no thread could be started: {error}")).remedy_is(Remedy::NoPrefetch)
        })?;
        join_left(Duration::ZERO);
        let id = thread.thread().id();
        Ok(Self { shared, thread: Mutex::new(Some(thread)), id, process: std::process::id() })
    }
}

impl<T> Prefetch<T> {
    /// Returns whether the thread belongs to this process.
    pub(super) fn is_in_this_process(&self) -> bool {
        self.process == std::process::id()
    }

    /// Refuses to wait on the thread itself, for itself.
    pub(super) fn require_another_thread(&self) -> Result<()> {
        let reason = "the source asks the loader that reads it for a batch";
        if self.id == current().id() { Err(Error::argument(reason)) } else { Ok(()) }
    }

    /// Returns the next item, and waits for it at most `patience`. Only in the thread's own process.
    ///
    /// # Errors
    /// On the thread itself, which would wait for itself.
    pub(super) fn take(&self, patience: Duration) -> Result<Taken<T>> {
        let is_over = || patience.is_zero() || self.shared.count.load(Ordering::Relaxed) > 0;
        let wait = self.shared.takers.wait(is_over);
        let mut state = self.shared.lock();
        if let Some(item) = state.ready.pop_front() {
            return Ok(Taken::Item(self.hand_over(state, item)));
        }
        if !state.ended && !patience.is_zero() {
            self.require_another_thread()?;
            // `None` where no clock goes so far.
            let until = Instant::now().checked_add(patience);
            state.takers_wait += 1;
            while state.ready.is_empty() && !state.ended {
                let left = until.map_or(Some(patience), |until| until.checked_duration_since(Instant::now()));
                let Some(left) = left else { break };
                state = self.shared.made.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            }
            state.takers_wait -= 1;
            wait.end();
            if let Some(item) = state.ready.pop_front() {
                return Ok(Taken::Item(self.hand_over(state, item)));
            }
        }
        if !state.ended {
            return Ok(Taken::NotYet);
        }
        if let Some(failure) = state.failure.take() {
            state.failed = true;
            return Ok(Taken::Failed(failure));
        }
        Ok(if state.failed || self.shared.stop.is_asked() { Taken::Cut } else { Taken::End })
    }

    /// Returns the next item if it is ready. If not, the task is woken when that may have changed.
    #[cfg(feature = "async")]
    pub(super) fn poll(&self, context: &Context<'_>) -> Result<Taken<T>> {
        // Without the lock: wakers run code of others.
        let waker = context.waker().clone();
        let mut state = self.shared.lock();
        if state.ready.is_empty() && !state.ended {
            let before = state.waker.replace(waker);
            drop(state);
            drop(before);
            return Ok(Taken::NotYet);
        }
        drop(state);
        self.take(Duration::ZERO)
    }

    /// Releases the lock, wakes the thread if it waits for room, and returns the item.
    fn hand_over(&self, mut state: MutexGuard<'_, QueueState<T>>, item: T) -> T {
        let wake = std::mem::take(&mut state.thread_waits);
        self.shared.tell_count(&state);
        drop(state);
        if wake {
            self.shared.room.notify_one();
        }
        item
    }

    /// Returns the next item if it is ready; `None` also at the end.
    #[cfg(feature = "python")]
    pub(super) fn take_ready(&self) -> Option<T> {
        let mut state = self.shared.lock();
        let item = state.ready.pop_front()?;
        Some(self.hand_over(state, item))
    }

    /// Asks the thread to stop, drops the ready items and a failure that nobody was told of, and waits at most
    /// `patience`. Returns whether the thread has ended.
    pub(super) fn stop(&self, patience: Duration) -> bool {
        if !self.is_in_this_process() {
            return true;
        }
        self.shared.stop.ask();
        let mut state = self.shared.lock();
        let dropped = (std::mem::take(&mut state.ready), state.failure.take());
        // To drop them may take the interpreter's lock, which a thread that waits for ours holds.
        drop(state);
        self.shared.room.notify_one();
        drop(dropped);
        state = self.shared.lock();
        if !state.ended && !patience.is_zero() {
            state = self
                .shared
                .made
                .wait_timeout_while(state, patience, |state| !state.ended)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        state.ended
    }

    /// Stops the thread without waiting for it.
    pub(super) fn abandon(&self) {
        self.stop(Duration::ZERO);
        drop(self.thread.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Stops the thread and waits for its end, unless this is a loader's thread: two of them could wait for each other.
    pub(super) fn close(&self) {
        if !self.is_in_this_process() {
            return;
        }
        self.stop(Duration::ZERO);
        let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        if IS_LOADER.get() {
            if let Some(mut left) = left_threads() {
                left.push((self.process, thread));
            }
            return;
        }
        // Its panics were caught and reported.
        _ = thread.join();
    }
}

impl<T> Prefetch<T> {
    /// As [`Prefetch::close`], and waits at most `patience`. Returns whether the thread has ended, or is not waited for.
    #[cfg(feature = "python")]
    pub(super) fn close_within(&self, patience: Duration) -> bool {
        let is_over = IS_LOADER.get() || self.stop(patience);
        if is_over {
            self.close();
        }
        is_over
    }
}

impl<T> Drop for Prefetch<T> {
    fn drop(&mut self) {
        if self.is_in_this_process() {
            self.close();
        } else {
            // The thread and its memory belong to the other process: here nobody unlocks, joins or releases.
            let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(thread.take());
            std::mem::forget(self.shared.clone());
        }
    }
}

impl<T> fmt::Debug for Prefetch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prefetch").field("ahead", &self.shared.ahead).finish_non_exhaustive()
    }
}

/// Makes items until there are no more; returns the error, if one ended it. `make` is dropped by then.
fn work<T>(shared: &PrefetchQueue<T>, mut make: impl FnMut() -> Option<Result<T>>) -> Option<Error> {
    while shared.wait_for_room() {
        match make()? {
            Ok(item) => shared.push(item),
            Err(error) => return Some(error),
        }
    }
    None
}

/// A panic as an error.
pub(super) fn panicked(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Error::unsupported(format!("the loader could not go on: {}", text.unwrap_or("no message")))
}

#[cfg(test)]
mod tests;
