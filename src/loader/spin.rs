//! Whether a thread spins before it sleeps.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// To wake a thread that sleeps takes about as long, and small batches are made in less.
const SHORT: Duration = Duration::from_micros(50);

/// The waits of one side of a queue: a wait begins with spinning if the last one in which the thread slept was short.
#[derive(Debug)]
pub(super) struct Spin {
    was_short: AtomicBool,
}

/// A wait that has begun.
#[derive(Debug)]
pub(super) struct SpinWait<'a> {
    spin: &'a Spin,
    begun: Instant,
}

impl Spin {
    pub(super) fn new() -> Self {
        Self { was_short: AtomicBool::new(true) }
    }

    /// Begins a wait, and spins until it is over, for a short time at most.
    pub(super) fn wait(&self, is_over: impl Fn() -> bool) -> SpinWait<'_> {
        let begun = Instant::now();
        if self.was_short.load(Ordering::Relaxed) {
            while !is_over() && begun.elapsed() < SHORT {
                std::thread::yield_now();
            }
        }
        SpinWait { spin: self, begun }
    }
}

impl SpinWait<'_> {
    /// Notes the end of a wait in which the thread slept. One that was over before that was short.
    pub(super) fn end(self) {
        self.spin.was_short.store(self.begun.elapsed() < SHORT, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_wait_spins_until_it_is_over_unless_the_last_one_was_long() {
        let spin = Spin::new();
        let asked = Cell::new(0);
        let third = || {
            asked.set(asked.get() + 1);
            asked.get() == 3
        };
        let wait = spin.wait(third);
        // A machine that stops here for longer than a short time has asked fewer times.
        assert!((1..=3).contains(&asked.get()));
        SpinWait { spin: &spin, begun: wait.begun.checked_sub(SHORT).unwrap() }.end();
        let never = || panic!("spins after a long wait");
        spin.wait(never);
        // Ended at once, in a time that the clock does not show.
        SpinWait { spin: &spin, begun: Instant::now() + SHORT }.end();
        asked.set(2);
        spin.wait(third).end();
        assert_eq!(asked.get(), 3);
    }
}
