//! Releasing memory that came through Python: attached to the interpreter, and not at all once it is going down.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use pyo3::wrap_pyfunction;

use crate::callback;

/// Set when the interpreter starts to exit. The stable ABI of 3.11 has no `Py_IsFinalizing`.
static EXITING: AtomicBool = AtomicBool::new(false);

#[pyfunction]
fn _exiting() {
    EXITING.store(true, Ordering::Release);
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
