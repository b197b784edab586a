//! When do deferred frees come back by themselves? A thread waits for the work behind them.
//!
//! It starts with the first deferred free, and sleeps while there is none. If all of them wait for one stream, it waits in the
//! driver for the first event, which takes one call. Nothing ends such a wait early, so a second thread, which the first free
//! behind another stream starts, looks after the other streams meanwhile: one thread at a time is on duty, and asks for the
//! first entry of each stream, less and less often. No lock of ours is held during a wait or a release.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::Wait;
use super::behind::{Awaited, Behind};
use super::host;
use super::queues::{Look, Queues};
use crate::callback;
use crate::cuda::{Current, Event, at_exit, is_forked, thread_sync, virtual_time};

/// Frees memory, or returns it to its owner.
pub(super) type Release = Box<dyn FnOnce() + Send>;

/// A deferred free.
pub(super) struct Waiting {
    pub(super) behind: Behind,
    /// Bytes of our own memory; other owners count theirs.
    pub(super) bytes: usize,
    pub(super) release: Release,
}

struct ReaperState {
    queues: Queues<Waiting>,
    /// Threads that were started.
    threads: usize,
    /// Threads that sleep because there is nothing for them to do, those just started among them.
    asleep: usize,
    /// Whether a thread looks at the entries.
    is_on_duty: bool,
    /// Set when the interpreter or the process ends: then no thread releases anything more.
    is_stopped: bool,
    /// Whether the thread on duty has taken entries that it has not released yet.
    is_releasing: bool,
    /// The stream that a thread waits for inside the driver. That thread is not on duty.
    blocked_at: Option<Awaited>,
}

static SHARED: Mutex<ReaperState> = Mutex::new(ReaperState {
    queues: Queues::new(),
    threads: 0,
    asleep: 0,
    is_on_duty: false,
    is_stopped: false,
    is_releasing: false,
    blocked_at: None,
});
/// Told, for threads that sleep, that one is needed on duty, and of the end.
static NEEDED: Condvar = Condvar::new();
/// Told, for the thread on duty, that another is back from a wait, and of the end.
static BACK: Condvar = Condvar::new();
/// Told when a thread has released what it took, or is back from a wait.
static RELEASED: Condvar = Condvar::new();
/// Entries that are not released yet, readable without the lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Whether threads look at every queue by themselves.
static ATTENDS: AtomicBool = AtomicBool::new(false);
/// Deferred frees that threads here have released.
static REAPED: AtomicU64 = AtomicU64::new(0);
/// Deferred frees that any thread has released.
static FREED: AtomicU64 = AtomicU64::new(0);
/// From so many entries on, calls of ours look at them too: a thread here may be waiting for an interpreter that is busy.
static MANY: AtomicUsize = AtomicUsize::new(FEW);

thread_local! {
    static IS_REAPER: Cell<bool> = const { Cell::new(false) };
}

const NAME: &str = "arrow-dlpack-reaper";
/// One that waits in the driver, and one on duty.
const MOST_THREADS: usize = 2;
const SHORTEST: Duration = Duration::from_micros(50);
const LONGEST: Duration = Duration::from_millis(10);
/// The reaper pauses for the time since its last release divided by this, so that a release is at most that much late.
const PAUSE_DIVISOR: u32 = 4;
/// Up to so many deferred frees are left to the reaper. Imports and exports release some of them, too, where there are more.
const FEW: usize = 16;
/// After so many waits that end at once, the reaper also queries the other events of borrowed memory, so that one attachment to Python
/// releases all of it. Those of our own memory are not queried: a free is one call of the driver, and a query another.
const AT_ONCE: u32 = 2;
/// A wait for work that was done before it.
const NO_WAIT: Duration = Duration::from_micros(50);
/// The longest that the end of the process waits for a release, and a call for a wait that is about to end.
const LAST_RELEASE: Duration = Duration::from_secs(1);

fn lock() -> MutexGuard<'static, ReaperState> {
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

/// Returns how many deferred frees threads here have released.
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

/// Releases memory when its work is done. Starts a thread if one is needed.
pub(super) fn defer(entry: Waiting) {
    let Some(place) = entry.behind.place() else { return (entry.release)() };
    thread_sync::send(token());
    // Before the entry is visible, because a concurrent release would uncount it before it was counted.
    COUNT.fetch_add(1, Ordering::AcqRel);
    let mut shared = lock();
    shared.queues.push(place, entry);
    if shared.is_needed() && shared.asleep == 0 && shared.threads < MOST_THREADS && !shared.is_stopped && is_wanted() {
        let is_started = start();
        let more = usize::from(is_started);
        (shared.threads, shared.asleep) = (shared.threads + more, shared.asleep + more);
        // Without a thread, calls of ours look at the entries.
        ATTENDS.store(is_started, Ordering::Release);
    }
    let is_needed = shared.is_needed();
    drop(shared);
    if is_needed {
        NEEDED.notify_one();
    }
}

/// Returns whether the environment leaves the threads on.
fn is_wanted() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    *WANTED.get_or_init(|| std::env::var_os("ARROW_DLPACK_REAPER").is_none_or(|value| value != "0"))
}

fn start() -> bool {
    static AT_EXIT: Once = Once::new();
    AT_EXIT.call_once(|| at_exit(|| stop_within(Some(LAST_RELEASE))));
    thread::Builder::new().name(NAME.to_owned()).spawn(reap).is_ok()
}

/// Releases what is done, on this thread. Never waits.
pub(super) fn release_done() {
    if waiting() == 0 || is_forked() {
        return;
    }
    let mut entered = None;
    let done = lock().take_done(&mut entered);
    drop(entered);
    release(done);
    // Work that is not done is not asked for at each call.
    MANY.store(waiting().saturating_mul(2).max(FEW), Ordering::Relaxed);
}

/// Waits until threads here have released the entries that they have taken, at most for as long as `limit`, and have let go of
/// the event of an entry that another thread has released.
pub(super) fn wait_for_releases(limit: Option<Duration>) {
    if is_forked() || IS_REAPER.get() {
        return;
    }
    let shared = released(lock(), limit);
    let has_event = |shared: &mut ReaperState| shared.blocked_at.is_some() && shared.queues.is_idle();
    // The wait for a complete event ends at once, unless the context was lost.
    drop(RELEASED.wait_timeout_while(shared, LAST_RELEASE, has_event));
}

/// Ends the releases of threads here for good, because the interpreter ends. Waits for the one that is under way.
#[cfg(feature = "python")]
pub(crate) fn stop_reaper() {
    stop_within(None);
}

fn stop_within(limit: Option<Duration>) {
    // A forked process has no such threads, and the lock may be held by one that it does not have.
    if is_forked() || IS_REAPER.get() {
        return;
    }
    let mut shared = lock();
    shared.is_stopped = true;
    ATTENDS.store(false, Ordering::Release);
    NEEDED.notify_all();
    BACK.notify_all();
    drop(released(shared, limit));
}

/// Waits until no thread has taken entries that it has not released yet, at most for as long as `limit`.
fn released(shared: MutexGuard<'static, ReaperState>, limit: Option<Duration>) -> MutexGuard<'static, ReaperState> {
    let is_releasing = |shared: &mut ReaperState| shared.is_releasing;
    match limit {
        Some(limit) => {
            RELEASED.wait_timeout_while(shared, limit, is_releasing).unwrap_or_else(PoisonError::into_inner).0
        }
        None => RELEASED.wait_while(shared, is_releasing).unwrap_or_else(PoisonError::into_inner),
    }
}

impl ReaperState {
    /// Returns whether a thread should go on duty: none is, and some entry is not behind the stream that another waits for.
    fn is_needed(&self) -> bool {
        !self.is_on_duty && self.queues.places().any(|place| Some(place) != self.blocked_at)
    }

    /// Removes the entries that are done, as the driver tells, but asks nothing of the stream that another thread waits for
    /// if this thread is one of them. `entered` is the device that is current on this thread, and is changed as needed.
    fn take_done(&mut self, entered: &mut Option<Current>) -> Vec<Waiting> {
        // Another thread may have seen some of an entry's events complete.
        thread_sync::receive(token());
        let is_in = |entered: &Option<Current>, ordinal| {
            entered.as_ref().is_some_and(|current| current.device().ordinal() == ordinal)
        };
        let attended = self.blocked_at.filter(|_| IS_REAPER.get());
        let done = self.queues.take_done(|entry| {
            let behind = &mut entry.behind;
            let (ordinal, place) = (behind.ordinal(), behind.place());
            if behind.is_known_done() {
                return Look::Done;
            }
            if attended.is_some() && place == attended {
                return behind.place().map_or(Look::Done, Look::At);
            }
            if !is_in(entered, ordinal) {
                // The context before it is restored first.
                drop(entered.take());
                match behind.enter() {
                    Some(Ok(current)) => *entered = Some(current),
                    Some(Err(status)) if status.is_final() => return Look::Lost,
                    Some(Err(_)) | None => return Look::At(Awaited::Unknown(ordinal)),
                }
            }
            let Some(current) = entered.as_ref() else { return Look::At(Awaited::Unknown(ordinal)) };
            match behind.is_done(current) {
                Ok(true) => Look::Done,
                Ok(false) => behind.place().map_or(Look::Done, Look::At),
                Err(status) if status.is_final() => Look::Lost,
                Err(_) => {
                    // A release of another library may have changed the thread's context.
                    drop(entered.take());
                    Look::At(Awaited::Unknown(ordinal))
                }
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
            let is_known = behind.is_known_done() || Wait::ReaperWaits.is_skipped();
            let is_done = is_known || asks && behind.is_done_here() == Ok(true);
            // An error is looked into by the next wait.
            if is_done { Look::Done } else { behind.place().map_or(Look::Done, Look::At) }
        });
        thread_sync::send(token());
        done
    }

    /// Returns the event to wait for, if all entries wait for one stream, and whether the memory behind it is borrowed.
    fn event(&self) -> Option<(Awaited, Arc<Event>, bool)> {
        if self.blocked_at.is_some() {
            return None;
        }
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

/// What a thread does until the process ends.
fn reap() {
    IS_REAPER.set(true);
    // Kept, so that a wait or a question takes one call.
    let mut entered: Option<Current> = None;
    let mut shared = lock();
    loop {
        let is_idle = |shared: &mut ReaperState| !shared.is_stopped && !shared.is_needed();
        shared = NEEDED.wait_while(shared, is_idle).unwrap_or_else(PoisonError::into_inner);
        if shared.is_stopped {
            break;
        }
        shared.asleep -= 1;
        shared = be_on_duty(shared, &mut entered);
        shared.asleep += 1;
    }
    drop(shared);
    // The driver may be shutting down: it is not called any more.
    std::mem::forget(entered);
}

/// Looks at the entries, and releases those that are done, until none is left that no other thread looks after.
fn be_on_duty(
    mut shared: MutexGuard<'static, ReaperState>,
    entered: &mut Option<Current>,
) -> MutexGuard<'static, ReaperState> {
    // Since the last release, in pauses.
    let (mut paused, mut at_once) = (Duration::ZERO, 0);
    while !shared.is_stopped && shared.is_needed() {
        let mut was_told = false;
        let done = match shared.event() {
            Some((place, event, is_borrowed)) => {
                shared.blocked_at = Some(place);
                drop(shared);
                let started = Instant::now();
                was_told = wait_for(&event, entered);
                at_once = if started.elapsed() < NO_WAIT { at_once + 1 } else { 0 };
                drop(event);
                shared = lock();
                shared.blocked_at = None;
                RELEASED.notify_all();
                if shared.is_stopped || shared.is_on_duty {
                    // It looks at what the wait was for.
                    BACK.notify_one();
                    return shared;
                }
                ATTENDS.store(true, Ordering::Release);
                // What the driver does not tell by a wait it may tell if it is asked.
                if was_told { shared.take_seen(is_borrowed && at_once >= AT_ONCE) } else { shared.take_done(entered) }
            }
            None => shared.take_done(entered),
        };
        shared.is_on_duty = true;
        if !done.is_empty() {
            shared.is_releasing = true;
            drop(shared);
            REAPED.fetch_add(done.len() as u64, Ordering::Relaxed);
            if done.iter().all(|entry| entry.bytes > 0) {
                release(done);
            } else {
                // Once for all of them: each of them attached by itself would wait for the interpreter's lock in turn.
                host::attached(|| release(done));
            }
            paused = Duration::ZERO;
            shared = lock();
            shared.is_releasing = false;
            RELEASED.notify_all();
        } else if !was_told && !shared.is_stopped {
            let pause = (paused / PAUSE_DIVISOR).clamp(SHORTEST, LONGEST);
            shared = wait_a_while(shared, pause);
            paused += pause;
        }
        shared.is_on_duty = false;
    }
    shared
}

/// Waits for so long, or until another thread is back.
fn wait_a_while(shared: MutexGuard<'static, ReaperState>, pause: Duration) -> MutexGuard<'static, ReaperState> {
    if !virtual_time::is_virtual() {
        return BACK.wait_timeout(shared, pause).unwrap_or_else(PoisonError::into_inner).0;
    }
    drop(shared);
    virtual_time::sleep(pause);
    lock()
}

/// Waits for an event in the driver; false if that fails.
fn wait_for(event: &Event, entered: &mut Option<Current>) -> bool {
    if entered.as_ref().is_none_or(|current| current.device().ordinal() != event.device().ordinal()) {
        // The context before it is restored first.
        drop(entered.take());
        *entered = event.device().enter_unchecked().ok();
    }
    let is_told = Wait::ReaperWaits.is_skipped() || entered.is_some() && event.synchronize().is_ok();
    if !is_told {
        // A release of another library may have changed the thread's context.
        *entered = None;
    }
    is_told
}
