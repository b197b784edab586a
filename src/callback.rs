//! Runs the bodies of the C callbacks that other libraries call, and lets no panic leave them.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The callbacks of a thread that may release owners inside each other, before it is done one after the other.
const DEEPEST: u32 = 16;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// Owners to be released when the thread is back at [`DEEPEST`] callbacks.
    static KEPT: RefCell<Vec<Arc<dyn Send + Sync>>> = const { RefCell::new(Vec::new()) };
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
            let leave = Leave(depth);
            let result = body();
            if depth.get() == DEEPEST {
                release_kept();
            }
            drop(leave);
            result
        })
    };
    caught(counted, on_panic)
}

/// Releases what a callback gives up. Memory that went from one library to another and back many times has an owner for each time, inside
/// the one before: no stack has room for all of their callbacks at once.
#[inline]
pub(crate) fn let_go(owner: Arc<dyn Send + Sync>) {
    if DEPTH.get() <= DEEPEST {
        return drop(owner);
    }
    let mut owner = Some(owner);
    let _ = KEPT.try_with(|kept| kept.borrow_mut().extend(owner.take()));
    // At the end of a thread there is no place to keep it.
    drop(owner);
}

/// Releases the owners that are kept on this thread, unless that is being done.
#[cold]
fn release_kept() {
    thread_local! {
        static IS_RELEASING: Cell<bool> = const { Cell::new(false) };
    }
    if IS_RELEASING.replace(true) {
        return;
    }
    while let Ok(Some(owner)) = KEPT.try_with(|kept| kept.borrow_mut().pop()) {
        // Nobody can be told of a panic, and the others have to be released.
        caught(|| drop(owner), |_| ());
    }
    // Their place is freed, too.
    let _ = KEPT.try_with(RefCell::take);
    IS_RELEASING.set(false);
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
    use std::sync::atomic::{AtomicUsize, Ordering};

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

    /// An owner that is released by a callback of ours, which lets go of the next one.
    struct Link(Option<Arc<dyn Send + Sync>>, Arc<AtomicUsize>);

    impl Drop for Link {
        fn drop(&mut self) {
            self.1.fetch_add(1, Ordering::Relaxed);
            if self.1.load(Ordering::Relaxed) == 50 {
                run(|| panic!("in the middle"), |_| ());
            }
            let next = self.0.take();
            run(|| next.into_iter().for_each(let_go), |_| ());
        }
    }

    #[test]
    fn owners_inside_each_other_are_released_on_a_small_stack() {
        let links = if cfg!(miri) { 200 } else { 50_000 };
        let released = Arc::new(AtomicUsize::new(0));
        let count = released.clone();
        let chain = move || {
            let mut owner: Arc<dyn Send + Sync> = Arc::new(());
            for _ in 0..links {
                owner = Arc::new(Link(Some(owner), count.clone()));
            }
            drop(owner);
        };
        std::thread::Builder::new().stack_size(256 << 10).spawn(chain).unwrap().join().unwrap();
        assert_eq!(released.load(Ordering::Relaxed), links);
    }
}
