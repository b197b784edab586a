//! [`CopyLog`]: records every copy with what moved, why, and its bytes.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One copy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Copied {
    /// The column or tensor that was copied.
    pub what: String,
    /// The reasons, in the words of `explain`.
    pub why: String,
    /// Bytes written.
    pub bytes: usize,
}

/// A record of the copies made while it is active. Clones share the record.
#[derive(Clone, Debug, Default)]
pub struct CopyLog(Arc<Mutex<Vec<Copied>>>);

thread_local! {
    static ACTIVE: RefCell<Vec<CopyLog>> = const { RefCell::new(Vec::new()) };
}

impl CopyLog {
    /// Returns an empty, inactive log.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs `work`, and records the copies that this thread makes meanwhile.
    pub fn track<R>(&self, work: impl FnOnce() -> R) -> R {
        struct Deactivate<'a>(&'a CopyLog);
        impl Drop for Deactivate<'_> {
            fn drop(&mut self) {
                self.0.deactivate();
            }
        }
        self.activate();
        let _deactivate = Deactivate(self);
        work()
    }

    /// Starts recording this thread's copies, until [`CopyLog::deactivate`] is called.
    pub fn activate(&self) {
        ACTIVE.with_borrow_mut(|logs| logs.push(self.clone()));
    }

    /// Ends the innermost [`CopyLog::activate`] of this log on this thread. Does nothing if there is none.
    pub fn deactivate(&self) {
        ACTIVE.with_borrow_mut(|logs| {
            if let Some(position) = logs.iter().rposition(|log| Arc::ptr_eq(&log.0, &self.0)) {
                logs.remove(position);
            }
        });
    }

    /// Returns the copies so far, oldest first.
    #[must_use]
    pub fn entries(&self) -> Vec<Copied> {
        self.lock().clone()
    }

    /// Returns the bytes of all copies so far.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.lock().iter().map(|copied| copied.bytes).sum()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Copied>> {
        // A panic elsewhere leaves the record whole, because entries are pushed in one step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds a copy to every log that is active on this thread. Calls `copied` only if there is one.
pub(crate) fn record(copied: impl FnOnce() -> Copied) {
    ACTIVE.with_borrow(|logs| {
        if let Some((last, others)) = logs.split_last() {
            let copied = copied();
            for log in others {
                log.lock().push(copied.clone());
            }
            last.lock().push(copied);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(bytes: usize) {
        record(|| Copied { what: "column".into(), why: "a test".into(), bytes });
    }

    #[test]
    fn logs_nest_and_end() {
        let (outer, inner) = (CopyLog::new(), CopyLog::new());
        copy(1);
        outer.track(|| {
            copy(2);
            inner.track(|| copy(4));
            copy(8);
        });
        copy(16);
        assert_eq!((outer.bytes(), inner.bytes()), (14, 4));
        assert_eq!(outer.entries().len(), 3);
    }

    #[test]
    fn a_panic_ends_the_tracking() {
        let log = CopyLog::new();
        let caught = std::panic::catch_unwind(|| log.clone().track(|| panic!("on purpose")));
        assert!(caught.is_err());
        copy(1);
        assert_eq!(log.bytes(), 0);
    }

    #[test]
    fn other_threads_are_not_recorded() {
        let log = CopyLog::new();
        log.track(|| std::thread::spawn(|| copy(1)).join().unwrap());
        assert_eq!(log.bytes(), 0);
    }
}
