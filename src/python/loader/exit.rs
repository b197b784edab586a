//! The live loaders: their threads must end before the interpreter exits, because a source may run Python.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use pyo3::prelude::*;

use super::iterator::PATIENCE;
use crate::loader::{Batches, wait_for_threads};

static ALIVE: Mutex<Vec<Weak<Batches>>> = Mutex::new(Vec::new());

/// Remembers an iteration until it is gone.
pub(super) fn remember(batches: &Arc<Batches>) {
    let mut alive = ALIVE.lock().unwrap_or_else(PoisonError::into_inner);
    alive.retain(|batches| batches.strong_count() > 0);
    alive.push(Arc::downgrade(batches));
}

/// Removes iterations and threads that have ended.
pub(in crate::python) fn forget_ended() {
    _ = wait_for_threads(Duration::ZERO);
    let mut alive = ALIVE.lock().unwrap_or_else(PoisonError::into_inner);
    alive.retain(|batches| batches.strong_count() > 0);
    alive.shrink_to_fit();
}

/// Ends every iteration of this process and waits for its thread.
///
/// # Errors
/// When a signal's handler raises: then the wait is over, for good.
pub(in crate::python) fn close_all(py: Python<'_>) -> PyResult<()> {
    let alive = std::mem::take(&mut *ALIVE.lock().unwrap_or_else(PoisonError::into_inner));
    let alive: Vec<_> = alive.iter().filter_map(Weak::upgrade).filter(|batches| batches.is_in_this_process()).collect();
    py.detach(|| {
        for batches in &alive {
            batches.stop(Duration::ZERO);
        }
    });
    for batches in &alive {
        while !py.detach(|| batches.stop(PATIENCE)) {
            if let Err(interrupt) = py.check_signals() {
                alive.iter().for_each(|batches| batches.abandon());
                return Err(interrupt);
            }
        }
    }
    while !py.detach(|| wait_for_threads(PATIENCE)) {
        py.check_signals()?;
    }
    Ok(())
}
