//! Waits of the host, each counted.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::cuda::{Called, Current, EventHandle};
use crate::error::Result;

/// Pauses, and fails if the wait must end.
pub(crate) type Pause = fn(Duration) -> Result<()>;

static PAUSE: OnceLock<Pause> = OnceLock::new();
static WAITS: AtomicU64 = AtomicU64::new(0);

/// Queries before the first pause, because most work is done soon.
const SPINS: u32 = 64;
const SHORTEST: Duration = Duration::from_micros(20);
const LONGEST: Duration = Duration::from_millis(2);

/// Sets the function that pauses the host while it waits for a device, and between the arrays of a stream. It lets
/// other threads of an interpreter run, and lets signals end the wait. The first function stays.
#[cfg(feature = "python")]
pub(crate) fn pause_by(pause: Pause) {
    // A second module of the same kind pauses in the same way.
    let _ = PAUSE.set(pause);
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
    PAUSE.get().map_or(Ok(()), |pause| pause(Duration::ZERO))
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

/// Waits until an event is complete.
pub(super) fn wait(current: &Current, event: EventHandle) -> Result<()> {
    wait_until(|| current.is_complete(event))
}

/// Polls a query until it returns true, so that the wait can be interrupted.
pub(super) fn wait_until(is_done: impl Fn() -> Called<bool>) -> Result<()> {
    WAITS.fetch_add(1, Ordering::Relaxed);
    let mut pause = SHORTEST;
    for query in 0_u32.. {
        if is_done()? {
            return Ok(());
        }
        if query < SPINS {
            std::hint::spin_loop();
            continue;
        }
        match PAUSE.get() {
            Some(by) => by(pause)?,
            None => std::thread::sleep(pause),
        }
        pause = (pause * 2).min(LONGEST);
    }
    Ok(())
}
