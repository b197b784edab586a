//! Reports the synchronisation of threads by locks and joins to the simulated driver of the tests, which keeps a clock
//! for each thread. Real drivers have no such functions, and nothing is called.

use super::driver::{driver, is_started};

/// Reports that this thread has released `token`.
pub(crate) fn send(token: usize) {
    tell(token, |driver| driver.hand_over_send);
}

/// Reports that this thread has acquired `token`.
pub(crate) fn receive(token: usize) {
    tell(token, |driver| driver.hand_over_receive);
}

fn tell(token: usize, function: impl Fn(&super::driver::Driver) -> Option<unsafe extern "C" fn(u64)>) {
    if !is_started() {
        return;
    }
    if let Some(function) = driver().ok().and_then(function) {
        // SAFETY: the simulated driver's function of this name takes any number.
        unsafe { function(token as u64) };
    }
}
