//! When do deferred frees come back by themselves? One thread waits for the work behind them.
//!
//! The thread starts with the first deferred free, and sleeps while there is none. If all of them wait for one stream, it
//! waits in the driver for the first event, which takes one call; else it asks for the first of each stream, less and less
//! often. Where that would be late, calls of ours look too. It holds no lock of ours while it waits or releases.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::behind::{Awaited, Behind};
use super::host;
use super::queues::{Look, Queues};
use crate::callback;
use crate::cuda::{Called, Current, Event, at_exit, is_forked, thread_sync};

/// Frees memory, or returns it to its owner.
pub(super) type Release = Box<dyn FnOnce() + Send>;

/// A deferred free.
pub(super) struct Waiting {
    pub(super) behind: Behind,
    /// Bytes of our own memory; other owners count theirs.
    pub(super) bytes: usize,
    pub(super) release: Release,
}

struct Shared {
    queues: Queues<Waiting>,
    is_started: bool,
    /// Set when the interpreter or the process ends: then the thread releases nothing more.
    is_stopped: bool,
    /// Whether the thread has taken entries that it has not released yet.
    is_releasing: bool,
    /// The stream that the thread waits for inside the driver.
    blocked_at: Option<Awaited>,
}

static SHARED: Mutex<Shared> = Mutex::new(Shared {
    queues: Queues::new(),
    is_started: false,
    is_stopped: false,
    is_releasing: false,
    blocked_at: None,
});
/// Told of new entries, and of the end.
static NEWS: Condvar = Condvar::new();
/// Told when the thread has released what it took, or is back from a wait.
static RELEASED: Condvar = Condvar::new();
/// Entries that are not released yet, readable without the lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Whether the thread looks at every queue by itself.
static ATTENDS: AtomicBool = AtomicBool::new(false);
/// Deferred frees that the thread has released.
static REAPED: AtomicU64 = AtomicU64::new(0);
/// Deferred frees that any thread has released.
static FREED: AtomicU64 = AtomicU64::new(0);
/// From so many entries on, calls of ours look at them too: the thread may be waiting for an interpreter that is busy.
static MANY: AtomicUsize = AtomicUsize::new(FEW);

thread_local! {
    static IS_REAPER: Cell<bool> = const { Cell::new(false) };
}

const NAME: &str = "arrow-dlpack-reaper";
const SHORTEST: Duration = Duration::from_micros(50);
const LONGEST: Duration = Duration::from_millis(10);
/// A pause is this part of the time since the last release, by which the next one is late at most.
const PART: u32 = 4;
/// The most entries that are left to the thread alone.
const FEW: usize = 16;
/// Waits that end at once, after which the thread asks behind borrowed memory for what else is done: then one attachment
/// releases all of it. Behind our own memory, which takes a call to free, a question in vain would be a third call.
const AT_ONCE: u32 = 2;
/// A wait for work that was done before it.
const NO_WAIT: Duration = Duration::from_micros(50);
/// The longest that the end of the process waits for a release, and a call for a wait that is about to end.
const LAST_RELEASE: Duration = Duration::from_secs(1);

fn lock() -> MutexGuard<'static, Shared> {
    SHARED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The name of the lock for the simulated driver.
fn token() -> usize {
    (&raw const SHARED).addr()
}

/// Returns the number of deferred frees that are not released yet.
pub(super) fn waiting() -> usize {
    COUNT.load(Ordering::Acquire)
}

/// Returns how many deferred frees the thread has released.
pub(super) fn reaped() -> u64 {
    REAPED.load(Ordering::Relaxed)
}

/// Returns how many deferred frees were released.
pub(super) fn freed() -> u64 {
    FREED.load(Ordering::Acquire)
}

/// Returns whether every entry is looked at without a call of ours.
pub(super) fn attends() -> bool {
    ATTENDS.load(Ordering::Acquire) && waiting() < MANY.load(Ordering::Relaxed)
}

/// Folds over the entries that nobody releases yet.
pub(super) fn fold<R>(start: R, step: impl FnMut(R, &Waiting) -> R) -> R {
    lock().queues.iter().fold(start, step)
}

/// Releases memory when its work is done. Starts the thread if there is none.
pub(super) fn defer(entry: Waiting) {
    let Some(place) = entry.behind.place() else { return (entry.release)() };
    thread_sync::send(token());
    // Before the entry is visible, because a concurrent release would uncount it before it was counted.
    COUNT.fetch_add(1, Ordering::AcqRel);
    let mut shared = lock();
    shared.queues.push(place, entry);
    if shared.blocked_at.is_some_and(|blocked| blocked != place) {
        ATTENDS.store(false, Ordering::Release);
    }
    if !shared.is_started && !shared.is_stopped && is_wanted() {
        shared.is_started = start();
        ATTENDS.store(shared.is_started, Ordering::Release);
    }
    drop(shared);
    NEWS.notify_one();
}

/// Returns whether the environment leaves the thread on.
fn is_wanted() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    *WANTED.get_or_init(|| std::env::var_os("ARROW_DLPACK_REAPER").is_none_or(|value| value != "0"))
}

fn start() -> bool {
    static AT_EXIT: Once = Once::new();
    AT_EXIT.call_once(|| at_exit(|| stop_within(Some(LAST_RELEASE))));
    // Without a thread, calls of ours look at the entries.
    thread::Builder::new().name(NAME.to_owned()).spawn(reap).is_ok()
}

/// Releases what is done, on this thread. Never waits.
pub(super) fn release_done() {
    if waiting() == 0 || is_forked() {
        return;
    }
    let mut shared = lock();
    let done = shared.take_done();
    drop(shared);
    release(done);
    // Work that is not done is not asked for at each call.
    MANY.store(waiting().saturating_mul(2).max(FEW), Ordering::Relaxed);
}

/// Waits until the thread has released the entries that it has taken, and has let go of the event of an entry that another
/// thread has released.
pub(super) fn wait_for_releases() {
    if is_forked() || IS_REAPER.get() {
        return;
    }
    let shared = RELEASED.wait_while(lock(), |shared| shared.is_releasing).unwrap_or_else(PoisonError::into_inner);
    let has_event = |shared: &mut Shared| shared.blocked_at.is_some() && shared.queues.is_idle();
    // The wait for a complete event ends at once, unless the context was lost.
    drop(RELEASED.wait_timeout_while(shared, LAST_RELEASE, has_event));
}

/// Ends the thread's releases for good, because the interpreter ends. Waits for the one that it is at.
#[cfg(feature = "python")]
pub(crate) fn stop_reaper() {
    stop_within(None);
}

fn stop_within(limit: Option<Duration>) {
    // A forked process has no such thread, and the lock may be held by one that it does not have.
    if is_forked() || IS_REAPER.get() {
        return;
    }
    let mut shared = lock();
    shared.is_stopped = true;
    ATTENDS.store(false, Ordering::Release);
    NEWS.notify_all();
    let is_releasing = |shared: &mut Shared| shared.is_releasing;
    match limit {
        Some(limit) => drop(RELEASED.wait_timeout_while(shared, limit, is_releasing)),
        None => drop(RELEASED.wait_while(shared, is_releasing)),
    }
}

impl Shared {
    /// Removes the entries that are done, as the driver tells.
    fn take_done(&mut self) -> Vec<Waiting> {
        // Another thread may have seen some of an entry's events complete.
        thread_sync::receive(token());
        let mut entered: Option<Called<Current>> = None;
        let is_in = |entered: &Option<Called<Current>>, ordinal| matches!(entered, Some(Ok(current)) if current.device().ordinal() == ordinal);
        let done = self.queues.take_done(|entry| {
            let behind = &mut entry.behind;
            let ordinal = behind.ordinal();
            if !is_in(&entered, ordinal) {
                // The context before it is restored first.
                entered = None;
                entered = behind.enter();
            }
            let is_done = match &entered {
                Some(Ok(current)) => behind.is_done(current),
                Some(Err(status)) => Err(*status),
                None => Ok(false),
            };
            match is_done {
                Ok(true) => Look::Done,
                Ok(false) => behind.place().map_or(Look::Done, Look::At),
                Err(status) if status.is_final() => Look::Lost,
                Err(_) => Look::At(Awaited::Unknown(ordinal)),
            }
        });
        thread_sync::send(token());
        done
    }

    /// Removes the entries that are known to be done, without a call of the driver, or with one for each if `asks`.
    fn take_seen(&mut self, asks: bool) -> Vec<Waiting> {
        thread_sync::receive(token());
        let done = self.queues.take_done(|entry| {
            let behind = &mut entry.behind;
            let is_done = behind.is_known_done() || asks && behind.is_done_here() == Ok(true);
            // An error is looked into by the next wait.
            if is_done { Look::Done } else { behind.place().map_or(Look::Done, Look::At) }
        });
        thread_sync::send(token());
        done
    }

    /// Returns the event to wait for, if all entries wait for one stream, and whether the memory behind it is borrowed.
    fn event(&self) -> Option<(Awaited, Arc<Event>, bool)> {
        let (place, first) = self.queues.alone()?;
        let event = first.behind.event()?;
        matches!(place, Awaited::Stream(..)).then(|| (place, Arc::clone(event), first.bytes == 0))
    }
}

/// Without the lock, because a release may attach to an interpreter, and may call back into this room.
fn release(entries: Vec<Waiting>) {
    for entry in entries {
        // An allocator's panic must not end the thread, or leave the rest.
        callback::caught(entry.release, |_| ());
        FREED.fetch_add(1, Ordering::AcqRel);
        COUNT.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What the thread does until the process ends.
fn reap() {
    IS_REAPER.set(true);
    // Kept, so that a wait takes one call.
    let mut entered: Option<Current> = None;
    let mut last = Instant::now();
    let mut at_once = 0;
    let mut shared = lock();
    while !shared.is_stopped {
        if shared.queues.is_idle() {
            ATTENDS.store(true, Ordering::Release);
            shared = NEWS.wait(shared).unwrap_or_else(PoisonError::into_inner);
            last = Instant::now();
            continue;
        }
        let waited = shared.event();
        let was_told;
        let done = match waited {
            Some((place, event, is_borrowed)) => {
                shared.blocked_at = Some(place);
                drop(shared);
                let started = Instant::now();
                was_told = wait_for(&event, &mut entered);
                at_once = if started.elapsed() < NO_WAIT { at_once + 1 } else { 0 };
                drop(event);
                shared = lock();
                shared.blocked_at = None;
                RELEASED.notify_all();
                if shared.is_stopped {
                    break;
                }
                ATTENDS.store(true, Ordering::Release);
                // What the driver does not tell by a wait it may tell if it is asked.
                if was_told { shared.take_seen(is_borrowed && at_once >= AT_ONCE) } else { shared.take_done() }
            }
            None => {
                was_told = false;
                shared.take_done()
            }
        };
        if done.is_empty() {
            if !was_told {
                let pause = (last.elapsed() / PART).clamp(SHORTEST, LONGEST);
                shared = NEWS.wait_timeout(shared, pause).unwrap_or_else(PoisonError::into_inner).0;
            }
            continue;
        }
        shared.is_releasing = true;
        drop(shared);
        REAPED.fetch_add(done.len() as u64, Ordering::Relaxed);
        if done.iter().all(|entry| entry.bytes > 0) {
            release(done);
        } else {
            // Once for all of them: each of them attached by itself would wait for the interpreter's lock in turn.
            host::attached(|| release(done));
        }
        last = Instant::now();
        shared = lock();
        shared.is_releasing = false;
        RELEASED.notify_all();
    }
    // The driver may be shutting down: it is not called any more.
    std::mem::forget(entered);
}

/// Waits for an event in the driver; false if that fails.
fn wait_for(event: &Event, entered: &mut Option<Current>) -> bool {
    if entered.is_none() {
        *entered = event.device().enter_unchecked().ok();
    }
    let is_told = entered.is_some() && event.synchronize().is_ok();
    if !is_told {
        // A release of another library may have changed the thread's context.
        *entered = None;
    }
    is_told
}
