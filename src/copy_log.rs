//! [`CopyLog`]: records every copy with what moved, why, and its bytes.

use std::cell::RefCell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::error::Counted;

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

/// Names the rows of a column, for [`Copied::what`]: `column "a": 2 rows of Int64`. An array by itself may have no name.
pub(crate) fn rows_of(column: &str, rows: usize, data_type: &dyn fmt::Display) -> String {
    let rows = Counted(rows, "row");
    if column.is_empty() {
        format!("{rows} of {data_type}")
    } else {
        format!("column {column:?}: {rows} of {data_type}")
    }
}

/// Names the validity of a column's rows, for [`Copied::what`].
pub(crate) fn validity_of(column: &str, rows: usize) -> String {
    let rows = Counted(rows, "row");
    if column.is_empty() { format!("validity of {rows}") } else { format!("validity of column {column:?}: {rows}") }
}

/// A record of the copies made while it is active. Clones share the record.
#[derive(Clone, Debug, Default)]
pub struct CopyLog(Arc<Mutex<Vec<Copied>>>);

thread_local! {
    static ACTIVE: RefCell<Vec<CopyLog>> = const { RefCell::new(Vec::new()) };
}

/// A scope in which a log records this thread's copies. It ends when this is dropped.
#[derive(Debug)]
#[must_use = "the scope ends when this is dropped"]
pub struct LogScope {
    log: CopyLog,
    /// It is this thread's.
    not_send: PhantomData<*mut ()>,
}

impl Drop for LogScope {
    fn drop(&mut self) {
        self.log.deactivate();
    }
}

impl CopyLog {
    /// Returns an empty, inactive log.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs `work`, and records the copies that this thread makes meanwhile.
    pub fn track<R>(&self, work: impl FnOnce() -> R) -> R {
        let _scope = self.scope();
        work()
    }

    /// Records this thread's copies until the returned scope is dropped, also by `?`. Scopes of several logs can be
    /// nested, and each ends by itself.
    ///
    /// A scope is not [`Send`], so that a future which holds one across an `.await` does not go to another thread.
    /// Where it could, and where one thread polls several futures, use [`CopyLog::track_future`].
    ///
    /// ```
    /// use arrow_dlpack::{CopyLog, Tensor};
    ///
    /// let log = CopyLog::new();
    /// let scope = log.scope();
    /// Tensor::from_vec(vec![1_u8, 2], &[2])?.to_vec::<u8>()?;
    /// drop(scope);
    /// assert_eq!(log.bytes(), 2);
    /// # Ok::<(), arrow_dlpack::Error>(())
    /// ```
    pub fn scope(&self) -> LogScope {
        self.activate();
        LogScope { log: self.clone(), not_send: PhantomData }
    }

    /// Returns a future that records the copies which a future makes, on whichever thread it is polled.
    pub fn track_future<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        let (log, mut future) = (self.clone(), Box::pin(future));
        poll_fn(move |context| log.track(|| future.as_mut().poll(context)))
    }

    /// Starts recording this thread's copies, until [`CopyLog::deactivate`] is called.
    pub(crate) fn activate(&self) {
        // A thread that is ending makes no copies any more.
        let _ = ACTIVE.try_with(|logs| logs.borrow_mut().push(self.clone()));
    }

    /// Ends the innermost [`CopyLog::activate`] of this log on this thread. Does nothing if there is none.
    pub(crate) fn deactivate(&self) {
        let _ = ACTIVE.try_with(|logs| {
            let mut logs = logs.borrow_mut();
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

/// The logs of another copy of this crate in the process.
#[derive(Clone, Copy)]
#[cfg_attr(not(feature = "python"), allow(dead_code, reason = "only the Python package is another copy's"))]
pub(crate) struct LogsOfOtherCopy {
    /// Whether one is active on this thread.
    pub(crate) is_tracking: fn() -> bool,
    pub(crate) record: fn(&Copied),
}

static ELSEWHERE: OnceLock<LogsOfOtherCopy> = OnceLock::new();

/// Has copies recorded in the logs of another copy of this crate, too. The first ones stay.
#[cfg(feature = "python")]
pub(crate) fn record_elsewhere(logs: LogsOfOtherCopy) {
    // Both are of the one package.
    let _ = ELSEWHERE.set(logs);
}

/// Returns whether a log of this copy is active on this thread.
#[cfg(feature = "python")]
pub(crate) fn is_tracking() -> bool {
    ACTIVE.try_with(|logs| !logs.borrow().is_empty()).unwrap_or(false)
}

/// Adds a copy to every log that is active on this thread. Calls `copied` only if there is one.
pub(crate) fn record(copied: impl FnOnce() -> Copied) {
    let elsewhere = ELSEWHERE.get().filter(|logs| (logs.is_tracking)());
    // A thread that is ending has no logs any more.
    let _ = ACTIVE.try_with(|logs| {
        let logs = logs.borrow();
        if logs.is_empty() && elsewhere.is_none() {
            return;
        }
        let copied = copied();
        if let Some(logs) = elsewhere {
            (logs.record)(&copied);
        }
        if let Some((last, others)) = logs.split_last() {
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
    fn a_scope_ends_by_itself_wherever_its_block_is_left() {
        let (outer, inner) = (CopyLog::new(), CopyLog::new());
        let work = || -> Result<(), ()> {
            let _scope = outer.scope();
            copy(1);
            Err(())?;
            copy(2);
            Ok(())
        };
        assert!(work().is_err());
        let (first, second) = (outer.scope(), inner.scope());
        drop(first);
        copy(4);
        drop(second);
        copy(8);
        assert_eq!((outer.bytes(), inner.bytes()), (1, 4));
    }

    #[test]
    fn a_tracked_future_records_its_own_copies_alone() {
        let (log, mut polls) = (CopyLog::new(), 0);
        let mut future = Box::pin(log.track_future(poll_fn(move |_| {
            polls += 1;
            copy(polls);
            if polls == 2 { std::task::Poll::Ready(polls) } else { std::task::Poll::Pending }
        })));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(future.as_mut().poll(&mut context).is_pending());
        copy(8);
        assert_eq!(future.as_mut().poll(&mut context), std::task::Poll::Ready(2));
        assert_eq!(log.bytes(), 3);
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
