//! [`Runner`]: what runs the last step of a conversion, which moves its bytes.

use crate::error::{Error, Result};

/// Bytes of plain columns that are packed in some microseconds.
const QUICK: usize = 1 << 18;

/// Runs the last step of a conversion, which moves so many bytes: without the interpreter, say.
pub(crate) type Runner<'a> = dyn Fn(usize, &mut (dyn FnMut() + Send)) + 'a;

/// Runs a step at once.
pub(crate) fn run_here(_bytes: usize, step: &mut (dyn FnMut() + Send)) {
    step();
}

/// Returns what `step` returns, which `runner` calls.
pub(crate) fn run_step<R: Send>(
    runner: &Runner<'_>,
    bytes: usize,
    step: impl FnOnce() -> Result<R> + Send,
) -> Result<R> {
    let (mut step, mut result) = (Some(step), None);
    runner(bytes, &mut || result = step.take().map(|step| step()));
    result.unwrap_or_else(|| Err(Error::internal("the conversion was not run")))
}

/// As [`run_step`], for plain columns: few bytes of them are packed while an interpreter would be let go of and taken back.
pub(crate) fn run_unless_quick<R: Send>(
    runner: &Runner<'_>,
    bytes: usize,
    step: impl FnOnce() -> Result<R> + Send,
) -> Result<R> {
    if bytes < QUICK { step() } else { run_step(runner, bytes, step) }
}
