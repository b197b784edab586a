//! Who may open the source of a loader: one thread at a time, and one epoch alone where the source can be read once.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::iterator::PATIENCE;
use crate::loader::StopCheck;

/// How long a waiting thread sleeps before it looks again.
const NAP: Duration = Duration::from_millis(1);

/// Nobody opens the source.
const FREE: u64 = 0;
/// The source can be read once, and was.
const SPENT: u64 = u64::MAX;

/// The turns of the threads that open a source: [`FREE`], [`SPENT`], or who has the turn, as [`this_thread`]. There is no lock: a fork
/// would leave one locked that another thread holds.
#[derive(Debug, Default)]
pub(super) struct SourceTurns(AtomicU64);

/// The turn of this thread, until it is dropped.
#[derive(Debug)]
pub(super) struct SourceTurn<'a> {
    turns: &'a SourceTurns,
    next: u64,
}

/// Returns this thread of this process: the process in the upper half, so that none is [`FREE`] or [`SPENT`].
fn this_thread() -> u64 {
    static THREADS: AtomicU32 = AtomicU32::new(1);
    thread_local! {
        static NUMBER: u32 = THREADS.fetch_add(1, Ordering::Relaxed);
    }
    u64::from(std::process::id()) << 32 | u64::from(NUMBER.with(|number| *number))
}

/// Returns the process of a thread that has the turn.
fn process_of(thread: u64) -> u64 {
    thread >> 32
}

impl SourceTurns {
    /// Waits until no other thread opens the source. The interpreter is free meanwhile, and signals are seen.
    ///
    /// # Errors
    /// `ValueError` for a source that can be read once, and was, and for one that begins an iteration while it is opened; what the
    /// handler of a signal raises; what `stop` says: the thread that has the turn may wait for the end of this thread's iteration.
    pub(super) fn take(&self, py: Python<'_>, stop: StopCheck<'_>) -> PyResult<SourceTurn<'_>> {
        let own = this_thread();
        loop {
            let state = self.0.load(Ordering::Acquire);
            if state == SPENT {
                return Err(read_already());
            }
            if state == own {
                return Err(PyValueError::new_err("the source begins an iteration of the loader that opens it"));
            }
            if let Some(turn) = self.try_take(own) {
                return Ok(turn);
            }
            py.check_signals()?;
            stop()?;
            // A turn may have begun since it was free.
            if state != FREE {
                py.detach(|| self.wait(state));
            }
        }
    }

    /// The turn of this thread, if nobody has it. A fork leaves the turn of a thread that the new process does not have.
    fn try_take(&self, own: u64) -> Option<SourceTurn<'_>> {
        let is_free = |state| state == FREE || state != SPENT && process_of(state) != process_of(own);
        let take = |state| is_free(state).then_some(own);
        self.0.fetch_update(Ordering::Acquire, Ordering::Acquire, take).ok()?;
        Some(SourceTurn { turns: self, next: FREE })
    }

    /// Whether the source can be read once, and was.
    pub(super) fn is_spent(&self) -> bool {
        self.0.load(Ordering::Acquire) == SPENT
    }

    /// Waits for the end of a thread's turn, for a while.
    fn wait(&self, turn: u64) {
        let start = Instant::now();
        while self.0.load(Ordering::Relaxed) == turn && start.elapsed() < PATIENCE {
            std::thread::sleep(NAP);
        }
    }
}

impl SourceTurn<'_> {
    /// Ends the turn; whoever comes next is told that the source was read.
    pub(super) fn spend(mut self) {
        self.next = SPENT;
    }
}

impl Drop for SourceTurn<'_> {
    fn drop(&mut self) {
        self.turns.0.store(self.next, Ordering::Release);
    }
}

/// The error for a source that can be read once, and was.
pub(super) fn read_already() -> PyErr {
    PyValueError::new_err(
        "the source is a stream, which can be read once, and was; pass a callable that opens it anew for each epoch",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_of_one_thread_and_spent_for_all() {
        let turns = SourceTurns::default();
        let (own, other) = (this_thread(), std::thread::spawn(this_thread).join().unwrap());
        assert!(own != other && process_of(own) == process_of(other));
        let turn = turns.try_take(own).unwrap();
        assert!(turns.try_take(other).is_none() && !turns.is_spent());
        drop(turn);
        // A turn of another process, which a fork left.
        turns.0.store(own ^ 1 << 32, Ordering::Relaxed);
        drop(turns.try_take(own).unwrap());
        turns.try_take(other).unwrap().spend();
        assert!(turns.is_spent() && turns.try_take(own).is_none());
    }
}
