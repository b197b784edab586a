//! Recognises Ctrl-C behind errors of other libraries' Python code.

use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError};
use pyo3::intern;
use pyo3::prelude::*;

use super::answers::answer;
use super::package::package;

/// What DuckDB raises, as a `RuntimeError`, in place of the exception of a signal's handler.
const OF_DUCKDB: &str = "Query interrupted";

/// The error of a call into `owner`'s library: `KeyboardInterrupt` where that library has hidden one, caused by the error.
pub(super) fn unhidden(owner: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    let py = owner.py();
    if !error.get_type(py).is(py.get_type::<PyRuntimeError>()) {
        return error;
    }
    match answer(py, is_hidden(owner, &error)) {
        Ok(Some(true)) => {}
        Ok(_) => return error,
        Err(ended) => return ended,
    }
    let interrupt = PyKeyboardInterrupt::new_err(());
    interrupt.set_cause(py, Some(error));
    interrupt
}

/// Whether an error of DuckDB's stands for Ctrl-C. It says so of any handler that raises: it is that of Ctrl-C for sure where
/// Python's own is set for SIGINT, and no other signal has a handler in Python.
fn is_hidden(owner: &Bound<'_, PyAny>, error: &PyErr) -> PyResult<bool> {
    let py = owner.py();
    let library = package(owner.get_type().as_any())?;
    if !matches!(library.as_str(), "duckdb" | "_duckdb") || error.value(py).str()? != OF_DUCKDB {
        return Ok(false);
    }
    let module = py.import(intern!(py, "signal"))?;
    let (handler_of, interrupt) = (module.getattr(intern!(py, "getsignal"))?, module.getattr(intern!(py, "SIGINT"))?);
    if !handler_of.call1((&interrupt,))?.is(&module.getattr(intern!(py, "default_int_handler"))?) {
        return Ok(false);
    }
    for signal in module.call_method0(intern!(py, "valid_signals"))?.try_iter()? {
        let signal = signal?;
        if !signal.eq(&interrupt)? && handler_of.call1((signal,))?.is_callable() {
            return Ok(false);
        }
    }
    Ok(true)
}
