//! How long do steps of our own take? The simulated driver of the tests is told, which may have a clock of its own. Real drivers have no
//! such functions, and nothing is called.

use std::time::Duration;

use super::driver::{Driver, driver, is_started};

/// Sleeps, by the clock of the simulated driver if it has one.
pub(crate) fn sleep(duration: Duration) {
    if !slept(duration) {
        std::thread::sleep(duration);
    }
}

/// Returns whether the driver is a simulated one with a clock, by which [`sleep`] sleeps.
pub(crate) fn is_virtual() -> bool {
    slept(Duration::ZERO)
}

/// Says that this thread has copied so many bytes from memory to memory.
pub(crate) fn copied(bytes: usize) {
    if let Some(copied) = simulated().and_then(|driver| driver.host_copied) {
        // SAFETY: the simulated driver's function of this name takes any number.
        unsafe { copied(bytes as u64) };
    }
}

/// Sleeps by the clock of the simulated driver; false at once if there is none.
fn slept(duration: Duration) -> bool {
    let Some(sleep) = simulated().and_then(|driver| driver.sleep) else { return false };
    // SAFETY: the simulated driver's function of this name takes any number.
    unsafe { sleep(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)) != 0 }
}

fn simulated() -> Option<&'static Driver> {
    if is_started() { driver().ok() } else { None }
}
