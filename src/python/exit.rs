//! Ends what is still running when the interpreter exits.

use pyo3::prelude::*;
use pyo3::wrap_pyfunction;

use super::{attach, loader};
use crate::stream_order;

#[pyfunction]
fn _exiting(py: Python<'_>) -> PyResult<()> {
    attach::exit(|| {
        // Before anything else, as sources may have to be released.
        let closed = loader::close_all(py);
        // Without the interpreter's lock, which a release of the reaper may be waiting for.
        py.detach(stream_order::stop_reaper);
        // Memory that is still in use is left to the end of the process.
        stream_order::drain();
        closed
    })
}

/// Asks Python to tell us before it goes down.
pub(super) fn register(py: Python<'_>) -> PyResult<()> {
    py.import("atexit")?.call_method1("register", (wrap_pyfunction!(_exiting, py)?,))?;
    Ok(())
}
