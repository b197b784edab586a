//! Knows whether this thread is inside a C callback of ours, which another library called in a state of its choosing.

use std::cell::Cell;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Runs the body of a C callback.
pub(crate) fn run<R>(body: impl FnOnce() -> R) -> R {
    struct Leave<'a>(&'a Cell<u32>);
    impl Drop for Leave<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get().wrapping_sub(1));
        }
    }
    // One look-up of the thread's variable: this is on the path of every deleter.
    DEPTH.with(|depth| {
        depth.set(depth.get().wrapping_add(1));
        let _leave = Leave(depth);
        body()
    })
}

/// Whether this thread is inside a C callback of ours. What our callers told us of its state (whether it is attached to
/// an interpreter, say) need not hold any more there.
#[must_use]
pub fn is_running() -> bool {
    DEPTH.get() > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callbacks_nest_and_end_even_by_a_panic() {
        assert!(!is_running());
        run(|| {
            run(|| assert!(is_running()));
            assert!(is_running());
        });
        assert!(std::panic::catch_unwind(|| run(|| panic!("on purpose"))).is_err());
        assert!(!is_running());
    }
}
