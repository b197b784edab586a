//! Who may open the source of a loader: one thread at a time, and one epoch alone where the source can be read once.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{ThreadId, current};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::iterator::PATIENCE;

/// The turns of the threads that open a source. No Python code runs while the state is locked.
#[derive(Debug, Default)]
pub(super) struct SourceTurns {
    state: Mutex<State>,
    /// Signals the end of a turn.
    ended: Condvar,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Free,
    /// This thread of this process opens the source.
    Taken(ThreadId, u32),
    /// The source can be read once, and was.
    Spent,
}

/// The turn of this thread, until it is dropped.
#[derive(Debug)]
pub(super) struct SourceTurn<'a> {
    turns: &'a SourceTurns,
    next: State,
}

impl SourceTurns {
    /// Waits until no other thread opens the source. The interpreter is free meanwhile, and signals are seen.
    ///
    /// # Errors
    /// `ValueError` for a source that can be read once, and was, and for one that begins an iteration while it is opened; what the
    /// handler of a signal raises.
    pub(super) fn take(&self, py: Python<'_>) -> PyResult<SourceTurn<'_>> {
        let own = State::Taken(current().id(), std::process::id());
        loop {
            let mut state = self.lock();
            match *state {
                State::Spent => return Err(read_already()),
                State::Taken(_, process) if *state != own && process == std::process::id() => {}
                State::Taken(..) if *state == own => {
                    return Err(PyValueError::new_err("the source begins an iteration of the loader that opens it"));
                }
                // A fork leaves the turn of a thread that the new process does not have.
                State::Free | State::Taken(..) => {
                    *state = own;
                    return Ok(SourceTurn { turns: self, next: State::Free });
                }
            }
            drop(state);
            py.check_signals()?;
            py.detach(|| self.wait());
        }
    }

    /// Whether the source can be read once, and was.
    pub(super) fn is_spent(&self) -> bool {
        *self.lock() == State::Spent
    }

    /// Waits for the end of a turn, for a while.
    fn wait(&self) {
        let is_taken = |state: &mut State| matches!(state, State::Taken(..));
        drop(self.ended.wait_timeout_while(self.lock(), PATIENCE, is_taken));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SourceTurn<'_> {
    /// Ends the turn; whoever comes next is told that the source was read.
    pub(super) fn spend(mut self) {
        self.next = State::Spent;
    }
}

impl Drop for SourceTurn<'_> {
    fn drop(&mut self) {
        *self.turns.lock() = self.next;
        self.turns.ended.notify_all();
    }
}

/// The error for a source that can be read once, and was.
pub(super) fn read_already() -> PyErr {
    PyValueError::new_err(
        "the source is a stream, which can be read once, and was; pass a callable that opens it anew for each epoch",
    )
}
