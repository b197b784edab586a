//! When does a conversion let go of the interpreter?

use pyo3::prelude::*;

/// Conversions that move fewer bytes keep the interpreter: letting go of it and taking it back costs more than they do.
const DETACH_FROM: usize = 1 << 16;

/// Runs the last step of a conversion, without the interpreter where it can take long.
pub(super) fn runner(py: Python<'_>) -> impl Fn(usize, &mut (dyn FnMut() + Send)) {
    move |bytes, step| if bytes < DETACH_FROM { step() } else { py.detach(step) }
}
