//! [`Worker`]: how the last step of a matrix is run.

use crate::error::{Error, Result};

/// Bytes of plain columns that are packed in some microseconds.
const QUICK: usize = 1 << 18;

/// Runs the last step of a conversion, knowing how many bytes it moves: without the interpreter, say.
pub(crate) type Worker<'a> = dyn Fn(usize, &mut (dyn FnMut() + Send)) + 'a;

/// Runs a conversion at once.
pub(crate) fn work_here(_bytes: usize, work: &mut (dyn FnMut() + Send)) {
    work();
}

/// What `work` gives, which `worker` calls.
pub(crate) fn by<R: Send>(worker: &Worker<'_>, bytes: usize, work: impl FnOnce() -> Result<R> + Send) -> Result<R> {
    let (mut work, mut result) = (Some(work), None);
    worker(bytes, &mut || result = work.take().map(|work| work()));
    result.unwrap_or_else(|| Err(Error::internal("the conversion was not run")))
}

/// As [`by`], for plain columns: few bytes of them are packed while an interpreter would be let go of and taken back.
pub(super) fn unless_quick<R: Send>(
    worker: &Worker<'_>,
    bytes: usize,
    work: impl FnOnce() -> Result<R> + Send,
) -> Result<R> {
    if bytes < QUICK { work() } else { by(worker, bytes, work) }
}
