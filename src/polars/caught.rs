//! Polars' panics as errors.

use crate::callback;
use crate::error::{Error, Result};

/// Runs a function of polars, whose panic is an error.
pub(super) fn caught<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    // Nothing reads the half-done state of the work: it owns its values, and they are dropped.
    let panicked = |panic: Box<dyn std::any::Any + Send>| {
        let text = callback::panic_message(&*panic);
        Err(Error::unsupported(format!("polars cannot take or give these values: {text}"))
            .remedy_is("cast the column to another dtype with polars first"))
    };
    callback::caught(work, panicked)
}
