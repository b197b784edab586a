//! Attaches to the interpreter, and no more once it exits: memory that came through Python is not released then.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;

use super::capsule::{attached_with_exception_aside, with_exception_aside};
use crate::callback;

/// Set when the interpreter starts to exit. The stable ABI of 3.11 has no `Py_IsFinalizing`.
static EXITING: AtomicBool = AtomicBool::new(false);

/// Set just before that, when what is still running is ended.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// Runs `end` when the interpreter begins to exit: no thread that runs Python may be started from now on, and when `end` is done
/// nothing attaches any more.
pub(super) fn exit<R>(end: impl FnOnce() -> R) -> R {
    BEGUN.store(true, Ordering::Release);
    let ended = end();
    EXITING.store(true, Ordering::Release);
    ended
}

/// Whether the interpreter has started to exit, so that no thread may be started that runs Python.
pub(super) fn has_begun() -> bool {
    BEGUN.load(Ordering::Acquire)
}

/// Whether the interpreter is so far down that no thread may attach to it.
pub(super) fn is_exiting() -> bool {
    EXITING.load(Ordering::Acquire)
}

/// Runs a foreign release callback attached to Python, whatever the thread, with a pending exception put aside. Memory
/// is leaked on purpose when the interpreter is going down: its owner may be gone.
pub(super) fn release_attached(release: &mut dyn FnMut()) {
    if is_exiting() {
        return;
    }
    if callback::is_running() {
        // Another library called us, perhaps after it let go of the interpreter: PyO3's count of attachments would still
        // say that this thread has it (torch drops tensors like that).
        attached_with_exception_aside(release);
    } else {
        Python::try_attach(|py| with_exception_aside(py, release));
    }
}

/// A value of Python's that any thread may drop: [`release_attached`] does so.
pub(super) struct ReleasedAttached<T>(Option<T>);

impl<T> ReleasedAttached<T> {
    pub(super) const fn new(value: T) -> Self {
        Self(Some(value))
    }

    /// The value, which is there as long as this is.
    pub(super) const fn get(&self) -> Option<&T> {
        self.0.as_ref()
    }
}

impl<T> Drop for ReleasedAttached<T> {
    fn drop(&mut self) {
        let mut value = self.0.take();
        release_attached(&mut || drop(value.take()));
        // The interpreter is going down: it keeps the value.
        std::mem::forget(value);
    }
}

/// What Python raised, as the cause of an error.
pub(super) struct Raised {
    error: ReleasedAttached<PyErr>,
    text: String,
}

impl Raised {
    pub(super) fn new(_: Python<'_>, error: PyErr) -> Self {
        let text = error.to_string();
        Self { error: ReleasedAttached::new(error), text }
    }

    /// What was raised, to be raised again.
    pub(super) fn again(&self, py: Python<'_>) -> Option<PyErr> {
        self.error.get().map(|error| error.clone_ref(py))
    }
}

impl fmt::Debug for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Raised").field(&self.text).finish()
    }
}

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Raised {}

/// As [`release_attached`], for what has an answer; `None` when the interpreter is going down.
pub(super) fn attached<R>(work: impl FnOnce(Python<'_>) -> R) -> Option<R> {
    let (mut work, mut answer) = (Some(work), None);
    release_attached(&mut || answer = work.take().map(Python::attach));
    answer
}
