//! Runs the bodies of the C callbacks that other libraries call, and lets no panic leave them.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Runs the body of a C callback whose caller's state is known. A panic must not unwind into C: `on_panic` turns its
/// payload into the callback's result.
#[inline]
pub(crate) fn caught<R>(body: impl FnOnce() -> R, on_panic: impl FnOnce(Box<dyn Any + Send>) -> R) -> R {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(on_panic)
}

/// Like [`caught`], and [`is_running`] returns true during the body.
#[inline]
pub(crate) fn run<R>(body: impl FnOnce() -> R, on_panic: impl FnOnce(Box<dyn Any + Send>) -> R) -> R {
    struct Leave<'a>(&'a Cell<u32>);
    impl Drop for Leave<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get().wrapping_sub(1));
        }
    }
    // One look-up of the thread-local, because every deleter takes this path.
    let counted = || {
        DEPTH.with(|depth| {
            depth.set(depth.get().wrapping_add(1));
            let _leave = Leave(depth);
            body()
        })
    };
    caught(counted, on_panic)
}

/// The text of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message")
}

/// Returns whether this thread is inside a C callback of ours. There, the state that our callers told us (such as
/// whether the thread is attached to an interpreter) may have changed.
#[cfg(any(test, feature = "python"))]
#[must_use]
pub(crate) fn is_running() -> bool {
    DEPTH.get() > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callbacks_nest_and_end_even_by_a_panic() {
        let fail = |_: Box<dyn Any + Send>| panic!("no panic here");
        assert!(!is_running());
        run(
            || {
                run(|| assert!(is_running()), fail);
                assert!(is_running());
            },
            fail,
        );
        assert_eq!(run(|| panic!("on purpose"), |panic| panic_message(&*panic).to_owned()), "on purpose");
        assert_eq!(run(|| panic!("{}", 7), |panic| panic_message(&*panic).to_owned()), "7");
        assert!(!is_running());
    }
}
