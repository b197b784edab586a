//! How many bytes the rows that wait in the shuffle buffers of an iteration may hold, and hold now.

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::{Counted, Error, Remedy, Result};

/// The bytes of the rows that wait, of all lanes. Clones count together.
#[derive(Clone, Debug)]
pub(super) struct ByteBudget(Option<Arc<Budget>>);

#[derive(Debug)]
struct Budget {
    most: NonZero<usize>,
    bytes: AtomicUsize,
    rows: AtomicUsize,
}

impl ByteBudget {
    /// Returns a budget of this number of bytes; `None` counts nothing.
    pub(super) fn new(most: Option<NonZero<usize>>) -> Self {
        Self(most.map(|most| Arc::new(Budget { most, bytes: AtomicUsize::new(0), rows: AtomicUsize::new(0) })))
    }

    /// Returns whether bytes are counted.
    pub(super) fn is_limited(&self) -> bool {
        self.0.is_some()
    }

    /// Counts a row that begins to wait.
    ///
    /// # Errors
    /// If the rows would hold more than they may.
    pub(super) fn enter(&self, bytes: usize) -> Result<()> {
        let Some(budget) = &self.0 else { return Ok(()) };
        let held = budget.bytes.fetch_add(bytes, Ordering::Relaxed);
        let rows = budget.rows.fetch_add(1, Ordering::Relaxed);
        let needed = held.saturating_add(bytes);
        if needed <= budget.most.get() {
            return Ok(());
        }
        let most = budget.most;
        let rows = Counted(rows, "row");
        let reason = format!(
            "the shuffle buffer holds {held} bytes in {rows}; with the next row it would hold {needed} bytes, and it \
             may hold {most}"
        );
        Err(Error::argument(reason).remedy_is(Remedy::ShuffleBytes))
    }

    /// Counts a row of these bytes no more.
    pub(super) fn leave(&self, bytes: usize) {
        if let Some(budget) = &self.0 {
            budget.bytes.fetch_sub(bytes, Ordering::Relaxed);
            budget.rows.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_all_lanes_count_together() {
        let budget = ByteBudget::new(NonZero::new(10));
        let other = budget.clone();
        assert!(budget.is_limited());
        budget.enter(6).unwrap();
        other.enter(4).unwrap();
        budget.leave(6);
        other.enter(5).unwrap();
        let error = budget.enter(2).unwrap_err().to_string();
        assert!(error.contains("holds 9 bytes in 2 rows; with the next row it would hold 11 bytes"), "{error}");
        assert!(error.contains("may hold 10"), "{error}");
    }

    #[test]
    fn without_a_limit_nothing_is_counted() {
        let budget = ByteBudget::new(None);
        assert!(!budget.is_limited());
        budget.enter(usize::MAX).unwrap();
        budget.enter(usize::MAX).unwrap();
    }
}
