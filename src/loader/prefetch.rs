//! Makes items ahead of their consumer on one thread.

use std::any::Any;
use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle, ThreadId, current};
use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind, Remedy, Result};

/// At most 15 bytes, as Linux shows no more.
const NAME: &str = "dlpack-loader";

thread_local! {
    /// Whether this is a thread of a loader.
    static IS_LOADER: Cell<bool> = const { Cell::new(false) };
}

/// Threads that were told to stop by threads of loaders, which do not wait for each other, and their process.
static LEFT: Mutex<Vec<(u32, JoinHandle<()>)>> = Mutex::new(Vec::new());

/// Waits as long as `patience` for threads that nobody has waited for yet; whether there are none left.
pub(super) fn join_left(patience: Duration) -> bool {
    let (this_process, until) = (std::process::id(), Instant::now() + patience);
    loop {
        let is_over = Instant::now() >= until;
        let is_one_left = match LEFT.try_lock() {
            Ok(mut left) => {
                let ended = left.extract_if(.., |(process, thread)| *process == this_process && thread.is_finished());
                let ended: Vec<_> = ended.collect();
                let is_one_left = left.iter().any(|(process, _)| *process == this_process);
                drop(left);
                // Their panics were caught and told.
                ended.into_iter().for_each(|(_, thread)| _ = thread.join());
                is_one_left
            }
            // Locked for so long, it is by a thread that a fork has left behind: it has nothing of this process.
            Err(_) => !is_over,
        };
        if is_over || !is_one_left {
            return !is_one_left;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Asks work to end. Clones ask for the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    pub(super) fn ask(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(super) fn is_asked(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// What came of asking for the next thing.
pub(super) enum Taken<T> {
    Item(T),
    /// It is still being made.
    NotYet,
    /// Making it failed.
    Failed(Error),
    /// There are no more.
    End,
    /// There are no more, since making one failed or the thread was told to stop.
    Cut,
}

/// A thread that makes things, a given number of them ahead.
pub(super) struct Prefetch<T> {
    shared: Arc<Shared<T>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    id: ThreadId,
    /// The process that has the thread. After a fork the other one has only this memory, in whatever state it was.
    process: u32,
}

struct Shared<T> {
    ahead: usize,
    stop: Stop,
    state: Mutex<State<T>>,
    /// Something was made, or nothing will be any more.
    made: Condvar,
    /// There is room for more, or the thread is to stop.
    room: Condvar,
}

struct State<T> {
    ready: VecDeque<T>,
    failure: Option<Error>,
    /// Whether a failure was told.
    failed: bool,
    /// Whether the thread has dropped everything it had.
    ended: bool,
    takers_wait: usize,
    thread_waits: bool,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is room; false once the thread is to stop.
    fn wait_for_room(&self) -> bool {
        let mut state = self.lock();
        while state.ready.len() >= self.ahead && !self.stop.is_asked() {
            state.thread_waits = true;
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.thread_waits = false;
        !self.stop.is_asked()
    }

    fn push(&self, item: T) {
        let mut state = self.lock();
        state.ready.push_back(item);
        let wanted = state.takers_wait > 0;
        drop(state);
        if wanted {
            self.made.notify_one();
        }
    }

    fn end(&self, failure: Option<Error>) {
        let mut state = self.lock();
        state.failure = failure;
        state.ended = true;
        drop(state);
        self.made.notify_all();
    }
}

impl<T: Send + 'static> Prefetch<T> {
    /// Starts a thread that calls `make` until that gives nothing more or an error, or `stop` is asked for, and keeps at
    /// most `ahead` things ready or in the making. The thread alone runs `make`, and drops it at the end.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(super) fn start(
        ahead: usize,
        stop: Stop,
        make: impl FnMut() -> Option<Result<T>> + Send + 'static,
    ) -> Result<Self> {
        let state = State {
            ready: VecDeque::new(),
            failure: None,
            failed: false,
            ended: false,
            takers_wait: 0,
            thread_waits: false,
        };
        let (made, room) = (Condvar::new(), Condvar::new());
        let shared = Arc::new(Shared { ahead: ahead.max(1), stop, state: Mutex::new(state), made, room });
        let theirs = shared.clone();
        let run = move || {
            IS_LOADER.set(true);
            // What the work leaves half-done is dropped, and not looked at again.
            let failure = catch_unwind(AssertUnwindSafe(|| work(&theirs, make)));
            let failure = failure.unwrap_or_else(|panic| Some(panicked(panic.as_ref())));
            // What fails because it is to stop is of no interest.
            theirs.end(failure.filter(|_| !theirs.stop.is_asked()));
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
    /// Whether the thread belongs to this process.
    pub(super) fn is_inline(&self) -> bool {
        self.process == std::process::id()
    }

    /// The next thing, waited for as long as `patience`. Only in the thread's own process.
    ///
    /// # Errors
    /// On the thread itself, which would wait for itself.
    pub(super) fn take(&self, patience: Duration) -> Result<Taken<T>> {
        let mut state = self.shared.lock();
        if let Some(item) = state.ready.pop_front() {
            return Ok(self.thread_sync(state, item));
        }
        if !state.ended && !patience.is_zero() {
            if self.id == current().id() {
                return Err(Error::argument("the source asks the loader that reads it for a batch"));
            }
            let until = Instant::now() + patience;
            state.takers_wait += 1;
            while state.ready.is_empty() && !state.ended {
                let Some(left) = until.checked_duration_since(Instant::now()) else { break };
                state = self.shared.made.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            }
            state.takers_wait -= 1;
            if let Some(item) = state.ready.pop_front() {
                return Ok(self.thread_sync(state, item));
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

    fn thread_sync(&self, mut state: MutexGuard<'_, State<T>>, item: T) -> Taken<T> {
        let wake = std::mem::take(&mut state.thread_waits);
        drop(state);
        if wake {
            self.shared.room.notify_one();
        }
        Taken::Item(item)
    }

    /// Whether there is nothing to be taken at once.
    pub(super) fn has_to_wait(&self) -> bool {
        self.shared.lock().ready.is_empty()
    }

    /// Asks the thread to stop, drops what is ready, and waits as long as `patience`; whether the thread has ended.
    pub(super) fn stop(&self, patience: Duration) -> bool {
        if !self.is_inline() {
            return true;
        }
        self.shared.stop.ask();
        let mut state = self.shared.lock();
        let dropped = std::mem::take(&mut state.ready);
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
        // A thing that was being made meanwhile.
        state.ready.clear();
        state.ended
    }

    /// Stops the thread without ever waiting for it.
    pub(super) fn abandon(&self) {
        self.stop(Duration::ZERO);
        drop(self.thread.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Stops the thread and waits for its end, unless this is a loader's thread: two of them might wait for each other.
    pub(super) fn close(&self) {
        if !self.is_inline() {
            return;
        }
        self.stop(Duration::ZERO);
        let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        if IS_LOADER.get() {
            if let Ok(mut left) = LEFT.try_lock() {
                left.push((self.process, thread));
            }
            return;
        }
        // Its panics were caught and told.
        _ = thread.join();
        self.stop(Duration::ZERO);
    }
}

impl<T> Drop for Prefetch<T> {
    fn drop(&mut self) {
        if self.is_inline() {
            self.close();
        } else {
            // The thread and what it uses belong to the other process: here nobody unlocks, joins or releases.
            let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(thread.take());
            std::mem::forget(self.shared.clone());
        }
    }
}

impl<T> fmt::Debug for Prefetch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ahead").field("ahead", &self.shared.ahead).finish_non_exhaustive()
    }
}

/// Makes things until there are no more; the error, if one ended it. `make` is dropped by then.
fn work<T>(shared: &Shared<T>, mut make: impl FnMut() -> Option<Result<T>>) -> Option<Error> {
    while shared.wait_for_room() {
        match make()? {
            // Nobody wants it any more.
            Ok(_) if shared.stop.is_asked() => break,
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
