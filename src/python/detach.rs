//! When does a conversion let go of the interpreter?

use pyo3::prelude::*;

use crate::error::Result;
use crate::plan::Plan;
use crate::tensor::Tensor;

/// Conversions that move fewer bytes keep the interpreter: letting go of it and taking it back costs more than they do.
const DETACH_FROM: usize = 1 << 16;

/// Runs the last step of columns, without the interpreter where it can take long.
pub(super) fn runner(py: Python<'_>) -> impl Fn(&Plan, &(dyn Fn() -> Result<Tensor> + Sync)) -> Result<Tensor> {
    move |plan, convert| if plan.bytes < DETACH_FROM { convert() } else { py.detach(convert) }
}

/// Runs the last step of matrices, without the interpreter where it can take long.
pub(super) fn worker(py: Python<'_>) -> impl Fn(usize, &mut (dyn FnMut() + Send)) {
    move |bytes, work| if bytes < DETACH_FROM { work() } else { py.detach(work) }
}
