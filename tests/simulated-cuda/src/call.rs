//! What every call of the driver goes through: is it initialised, is this call told to fail, which thread is it.

use std::cell::{Cell, RefCell};
use std::ops::{Deref, DerefMut};
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use crate::clock::Moment;
use crate::context::Thread;
use crate::costs::of_call;
use crate::error::{Error, Outcome};
use crate::inject::Told;
use crate::settings::{Schedule, slow_threads};
use crate::state::{CHANGED, State, lock};

/// The process that called `cuInit`, readable without the lock: after a fork some other thread may hold it for ever.
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// Set when the process exits: the driver answers nothing any more.
static CLOSED: AtomicBool = AtomicBool::new(false);
/// How many threads hold the lock, wait for it, or wait inside.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
/// What the next late thread takes for a random number.
static DRAWN: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The number of this thread, and the generation of the driver that gave it.
    static THREAD: Cell<Option<(u64, usize)>> = const { Cell::new(None) };
    /// Whether this thread holds the lock: what it touches now, the simulator touches.
    static HOLDS: Cell<bool> = const { Cell::new(false) };
    /// Whether the calls of this thread are a test's own, which neither count nor are told to fail.
    static EXEMPT: Cell<bool> = const { Cell::new(false) };
    /// How many calls of this thread were counted.
    static COUNTED: Cell<u64> = const { Cell::new(0) };
    /// The operation that this thread runs as a host function.
    static HOST_FUNCTION: RefCell<Option<Moment>> = const { RefCell::new(None) };
}

/// A call in progress: the locked state, and the thread that calls.
#[derive(Debug)]
pub(crate) struct Call {
    guard: Option<MutexGuard<'static, State>>,
    pub(crate) thread: usize,
    pub(crate) name: &'static str,
    /// Whether this call has waited for the virtual clock.
    pub(crate) waited: bool,
}

impl Deref for Call {
    type Target = State;

    fn deref(&self) -> &State {
        self.guard.as_ref().expect("held but while waiting")
    }
}

impl DerefMut for Call {
    fn deref_mut(&mut self) -> &mut State {
        self.guard.as_mut().expect("held but while waiting")
    }
}

impl Call {
    /// Locks the driver for this thread, without any of the checks of a driver call.
    fn begin(name: &'static str, watch: bool) -> Call {
        INSIDE.fetch_add(1, Ordering::SeqCst);
        let guard = lock();
        HOLDS.set(true);
        let mut call = Call { guard: Some(guard), thread: 0, name, waited: false };
        call.thread = match THREAD.get() {
            Some((generation, number)) if generation == call.generation => number,
            _ => {
                let number = call.threads.len();
                let actor = call.actor(format!("host thread {number}"));
                call.threads.push(Thread::new(actor));
                THREAD.set(Some((call.generation, number)));
                number
            }
        };
        if watch {
            call.memory.watch_opened();
        }
        call
    }

    /// Counts a call, unless this thread is exempt.
    fn told_to_fail(&mut self, name: &'static str) -> Option<Told> {
        if EXEMPT.get() {
            return None;
        }
        COUNTED.set(COUNTED.get() + 1);
        self.injection.count(name)
    }

    /// The code of a call that is told to fail.
    fn fail(&mut self, told: Told) -> Error {
        if told.code.is_sticky() {
            self.lose_context(told.code);
        }
        told.code
    }

    /// Blocks this thread until the operation `tick` of a stream has run, and until the thread knows it.
    pub(crate) fn wait_for(&mut self, stream: usize, tick: u64) {
        if self.has_clock() {
            return self.wait_on_clock("wait", |state| state.end_of(stream, tick));
        }
        // The package's own thread waits so for what it releases, which must not end what keeps the device busy.
        let awaited = usize::from(self.name != "cuEventSynchronize");
        self.awaited += awaited;
        while !self.run_to(stream, tick) {
            self.pause(Duration::from_millis(1));
        }
        self.awaited -= awaited;
    }

    /// Unlocks the driver until something changes, or for as long as `longest`.
    pub(crate) fn pause(&mut self, longest: Duration) {
        self.memory.watch();
        let guard = self.guard.take().expect("held but while waiting");
        HOLDS.set(false);
        let (guard, _) = CHANGED.wait_timeout(guard, longest).unwrap_or_else(|poisoned| poisoned.into_inner());
        HOLDS.set(true);
        self.guard = Some(guard);
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.memory.watch();
        HOLDS.set(false);
        INSIDE.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Runs one driver call and answers with its code.
pub(crate) fn enter(name: &'static str, body: impl FnOnce(&mut Call) -> Outcome) -> u32 {
    be_late();
    let outcome = checked(name, body);
    be_late();
    match outcome {
        Ok(()) => 0,
        Err(error) => error.0,
    }
}

fn checked(name: &'static str, body: impl FnOnce(&mut Call) -> Outcome) -> Outcome {
    if CLOSED.load(Ordering::Relaxed) {
        return Err(Error::DEINITIALIZED);
    }
    if is_fork() {
        return Err(Error::NOT_INITIALIZED);
    }
    if HOST_FUNCTION.with_borrow(Option::is_some) {
        return Err(Error::NOT_PERMITTED);
    }
    if !EXEMPT.get() {
        crate::hold::pass(name);
    }
    let mut call = Call::begin(name, true);
    let told = call.told_to_fail(name);
    if let Some(told) = told.filter(|told| !told.late) {
        return Err(call.fail(told));
    }
    if call.process == 0 && !matches!(name, "cuInit" | "cuDriverGetVersion" | "cuGetProcAddress_v2") {
        return Err(Error::NOT_INITIALIZED);
    }
    if matches!(call.settings.schedule, Schedule::Random(_)) {
        call.run_some();
    }
    let start = call.time.now;
    call.spend(of_call(name));
    let outcome = body(&mut call);
    call.note_call(start);
    match told {
        Some(told) if outcome.is_ok() => Err(call.fail(told)),
        _ => outcome,
    }
}

/// How many threads are in the driver, or about to be.
pub(crate) fn threads_inside() -> usize {
    INSIDE.load(Ordering::SeqCst)
}

/// Has a thread that is not the first wait for a while, if that is asked for: what relies on its speed then fails.
fn be_late() {
    let longest = slow_threads();
    if !longest.is_zero() && THREAD.get().is_none_or(|(_, number)| number != 0) {
        // Multiples of an odd number: each is drawn once before one comes again.
        let drawn = DRAWN.fetch_add(0x9E37_79B9, Ordering::Relaxed);
        std::thread::sleep(longest.mul_f64(f64::from(drawn) / f64::from(u32::MAX)));
    }
}

/// Counts a call that needs nothing of the driver, and says whether it is told to fail.
pub(crate) fn fails(name: &'static str) -> bool {
    !CLOSED.load(Ordering::Relaxed) && !is_fork() && ask(|call| call.told_to_fail(name)).is_some()
}

/// How many calls of this thread were counted.
pub(crate) fn counted_calls() -> u64 {
    COUNTED.get()
}

/// From now on the calls of this thread count and may be told to fail, or not.
pub(crate) fn exempt(exempt: bool) {
    EXEMPT.set(exempt);
}

/// Runs a question that only this driver has, which neither counts nor fails.
pub(crate) fn ask<T>(body: impl FnOnce(&mut Call) -> T) -> T {
    body(&mut Call::begin("a question", true))
}

/// Looks at a fault. What other faults opened stays open: one instruction may need more than one page.
pub(crate) fn look<T>(body: impl FnOnce(&mut Call) -> T) -> T {
    body(&mut Call::begin("a fault", false))
}

/// `cuInit` has succeeded in this process.
pub(crate) fn initialised() -> u32 {
    let process = std::process::id();
    PROCESS.store(process, Ordering::Relaxed);
    process
}

/// Whether this process is a fork of the one that initialised the driver.
pub(crate) fn is_fork() -> bool {
    let process = PROCESS.load(Ordering::Relaxed);
    process != 0 && process != std::process::id()
}

/// From now on every call answers that the driver is shutting down.
pub(crate) fn close() {
    CLOSED.store(true, Ordering::Relaxed);
}

/// Whether this thread is inside the driver.
pub(crate) fn inside() -> bool {
    HOLDS.get()
}

/// Runs a host function as the operation at `at`, on the thread made for it.
pub(crate) fn as_host_function(at: Moment, function: impl FnOnce()) {
    HOST_FUNCTION.replace(Some(at));
    function();
    HOST_FUNCTION.replace(None);
}

/// The operation that this thread runs as a host function, if it does.
pub(crate) fn host_function() -> Option<Moment> {
    HOST_FUNCTION.with_borrow(Clone::clone)
}
