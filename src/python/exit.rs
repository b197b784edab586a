//! Releases memory that came through Python: attached to the interpreter, and not at all once it exits.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use pyo3::wrap_pyfunction;

use crate::callback;

/// Set when the interpreter starts to exit. The stable ABI of 3.11 has no `Py_IsFinalizing`.
static EXITING: AtomicBool = AtomicBool::new(false);

/// Set just before that, when what is still running is ended.
static BEGUN: AtomicBool = AtomicBool::new(false);

#[pyfunction]
fn _exiting(py: Python<'_>) -> PyResult<()> {
    BEGUN.store(true, Ordering::Release);
    // Before anything else, as sources may have to be released.
    let closed = super::loader::close_all(py);
    // What is in use still is left to the end of the process.
    crate::stream_order::drain();
    EXITING.store(true, Ordering::Release);
    closed
}

/// Whether the interpreter has started to exit, so that no thread may be started that runs Python.
pub(super) fn has_begun() -> bool {
    BEGUN.load(Ordering::Acquire)
}

/// Asks Python to tell us before it goes down.
pub(super) fn register(py: Python<'_>) -> PyResult<()> {
    py.import("atexit")?.call_method1("register", (wrap_pyfunction!(_exiting, py)?,))?;
    Ok(())
}

/// Runs a foreign release callback attached to Python, whatever the thread, with a pending exception put aside. Memory
/// is leaked on purpose when the interpreter is going down: its owner may be gone.
pub(super) fn release_attached(release: &mut dyn FnMut()) {
    if EXITING.load(Ordering::Acquire) {
        return;
    }
    if callback::is_running() {
        // Another library called us, perhaps after it let go of the interpreter: PyO3's count of attachments would still
        // say that this thread has it (torch drops tensors like that).
        super::capsule::attached_with_exception_aside(release);
    } else {
        Python::try_attach(|py| super::capsule::with_exception_aside(py, release));
    }
}

/// As [`release_attached`], for what has an answer; `None` when the interpreter is going down.
pub(super) fn attached<R>(work: impl FnOnce(Python<'_>) -> R) -> Option<R> {
    let (mut work, mut answer) = (Some(work), None);
    release_attached(&mut || answer = work.take().map(Python::attach));
    answer
}
