//! Waits of the host, each counted.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::cuda::{Called, CudaDevice, Current, Stream, virtual_time};
use crate::error::{Error, Result};

/// What an interpreter has to do with waits of the host.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "python"), allow(dead_code, reason = "Python alone has an interpreter"))]
pub(crate) struct Interpreter {
    /// Runs a wait without the interpreter's lock, which the calling thread may hold.
    pub(crate) detached: fn(&mut (dyn FnMut() + Send)),
    /// Runs releases with the interpreter's lock, which the calling thread does not hold; without it once the interpreter
    /// exits.
    pub(crate) attached: fn(&mut (dyn FnMut() + Send)),
    /// Runs pending signal handlers, if this thread is the one that runs them; fails if a handler raises.
    pub(crate) handlers: fn() -> Result<()>,
}

static INTERPRETER: OnceLock<Interpreter> = OnceLock::new();
static WAITS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Whether this thread is one of ours that never enters an interpreter.
    static IS_APART: Cell<bool> = const { Cell::new(false) };
    /// Whether this thread never runs handlers of signals.
    static IGNORES_SIGNALS: Cell<bool> = const { Cell::new(false) };
}

/// Queries before the first pause, because most work is done soon.
const SPINS: u32 = 64;
const SHORTEST: Duration = Duration::from_micros(20);
const LONGEST: Duration = Duration::from_millis(2);
/// A pause is this part of the time that was slept so far, by which the end of a wait is noticed late at most.
const PART: u32 = 8;

/// Sets the interpreter whose threads wait for devices, and whose signal handlers end waits and reads of streams. The
/// first one stays.
#[cfg(feature = "python")]
pub(crate) fn wait_beside(interpreter: Interpreter) {
    // A second module of the same kind waits in the same way.
    let _ = INTERPRETER.set(interpreter);
}

/// Says that this thread is one of ours that never enters an interpreter: its waits have nothing to do with one.
pub(crate) fn stay_apart() {
    IS_APART.set(true);
}

/// Returns whether this thread is one that [`stay_apart`] was called on.
pub(super) fn is_apart() -> bool {
    IS_APART.get()
}

/// Says that this thread is one of ours, which runs no handlers of signals: to find that out, it would ask for the
/// interpreter's lock.
pub(crate) fn ignore_signals() {
    IGNORES_SIGNALS.set(true);
}

/// A check for signals while a call reads a stream or converts many rows.
#[derive(Debug)]
pub(crate) struct Interrupts {
    checked: Instant,
}

impl Interrupts {
    /// Short enough that a user who presses Ctrl-C sees no delay, and long enough to cost nothing.
    const EVERY: Duration = Duration::from_millis(50);

    /// Counts the time from now on.
    pub(crate) fn new() -> Self {
        Self { checked: Instant::now() }
    }

    /// Runs pending signal handlers, if the last check was a while ago.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Interrupted`] if a handler raises.
    pub(crate) fn check(&mut self) -> Result<()> {
        if self.checked.elapsed() < Self::EVERY {
            return Ok(());
        }
        let checked = run_handlers();
        self.checked = Instant::now();
        checked
    }
}

/// Runs pending signal handlers.
///
/// # Errors
/// [`crate::ErrorKind::Interrupted`] if a handler raises.
pub(crate) fn run_handlers() -> Result<()> {
    let interpreter = interpreter().filter(|_| !IGNORES_SIGNALS.get());
    interpreter.map_or(Ok(()), |interpreter| (interpreter.handlers)())
}

fn interpreter() -> Option<&'static Interpreter> {
    INTERPRETER.get().filter(|_| !IS_APART.get())
}

/// Returns how often the host has waited for a device in this process.
#[must_use]
pub fn host_waits() -> u64 {
    WAITS.load(Ordering::Relaxed)
}

/// Counts driver calls in which the host may have waited.
pub(super) fn count(waits: u64) {
    WAITS.fetch_add(waits, Ordering::Relaxed);
}

/// Waits until a query returns true. It runs on this thread, in which the context of the device is current.
pub(super) fn wait(_: &Current, is_done: impl FnMut() -> Called<bool> + Send) -> Result<()> {
    wait_until(is_done)
}

/// Waits until a stream has done its work.
pub(super) fn wait_for(current: &Current, stream: Stream) -> Result<()> {
    let device = current.device();
    wait_until(move || device.is_idle(stream))
}

/// Polls a query until it returns true: a wait inside the driver could not be ended by a signal. The query runs on this
/// thread, whose context stays current, and without an interpreter from the first pause on.
fn wait_until(mut is_done: impl FnMut() -> Called<bool> + Send) -> Result<()> {
    WAITS.fetch_add(1, Ordering::Relaxed);
    for _ in 0..SPINS {
        if is_done()? {
            return Ok(());
        }
        std::hint::spin_loop();
    }
    detached(|| sleep_until(&mut is_done))
}

/// Runs what takes long without the interpreter's lock, which this thread may hold.
pub(super) fn detached<T: Send>(run: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let Some(interpreter) = interpreter() else { return run() };
    let (mut run, mut outcome) = (Some(run), None);
    (interpreter.detached)(&mut || outcome = run.take().map(|run| run()));
    outcome.unwrap_or_else(|| Err(Error::internal("a wait did not run")))
}

/// Runs releases with the interpreter's lock, if there is an interpreter. Each release decides by itself whether it may still
/// call anything of it.
pub(super) fn attached(run: impl FnOnce() + Send) {
    let Some(interpreter) = interpreter() else { return run() };
    let mut run = Some(run);
    (interpreter.attached)(&mut || run.take().into_iter().for_each(|run| run()));
}

/// Returns a device, which is in use from now on. To start one takes the driver a while.
///
/// # Errors
/// If there is no driver, or no such device.
pub(crate) fn device(ordinal: i32) -> Result<&'static CudaDevice> {
    match CudaDevice::in_use().find(|device| device.ordinal() == ordinal) {
        // This refuses a forked process.
        Some(_) => CudaDevice::get(ordinal),
        None => detached(|| CudaDevice::get(ordinal)),
    }
}

/// Loads the kernels of the current device, if that was not done: the driver compiles them, and the host may wait.
///
/// # Errors
/// If the driver refuses the module, or a function is missing in it.
pub(crate) fn load_kernels(current: &Current) -> Result<()> {
    let device = current.device();
    if device.has_kernels() { Ok(()) } else { detached(|| device.kernels().map(drop)) }
}

fn sleep_until(is_done: &mut impl FnMut() -> Called<bool>) -> Result<()> {
    let (mut slept, mut interrupts) = (Duration::ZERO, Interrupts::new());
    while !is_done()? {
        let pause = (slept / PART).clamp(SHORTEST, LONGEST);
        virtual_time::sleep(pause);
        slept += pause;
        interrupts.check()?;
    }
    Ok(())
}
