//! Which function of the driver is held: its callers stay in the call, with nothing locked, until a test lets them go.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

struct Held {
    function: Option<String>,
    /// Callers that are held now.
    inside: u64,
}

static HELD: Mutex<Held> = Mutex::new(Held { function: None, inside: 0 });
static LET_GO: Condvar = Condvar::new();

fn lock() -> MutexGuard<'static, Held> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Holds the callers of a function from now on, or lets all go.
pub(crate) fn hold(function: Option<String>) {
    lock().function = function;
    LET_GO.notify_all();
}

/// How many callers are held.
pub(crate) fn inside() -> u64 {
    lock().inside
}

/// Returns when this function is not held, or no more.
pub(crate) fn pass(function: &str) {
    let mut held = lock();
    if held.function.as_deref() != Some(function) {
        return;
    }
    held.inside += 1;
    while held.function.as_deref() == Some(function) {
        held = LET_GO.wait(held).unwrap_or_else(PoisonError::into_inner);
    }
    held.inside -= 1;
}
