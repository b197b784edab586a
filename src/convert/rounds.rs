//! Cuts passes over many rows into rounds, between which signals are looked for.

use std::cell::Cell;
use std::ops::Range;

use super::pack::NON_TEMPORAL_FROM;
use crate::error::Result;
use crate::stream_order::Interrupts;

/// Bytes of a round on one thread, beside which a look costs nothing: as many as the smallest result has that is written past the cache. Few
/// in unit tests, so that small arrays take several rounds.
const ROUND: usize = if cfg!(any(test, miri)) { 1 << 10 } else { NON_TEMPORAL_FROM };

/// Bytes of a round that several threads, or many columns, share: many times what it takes to start them.
const SHARED_ROUND: usize = 256 << 20;

/// The bytes that a plain pass writes while one value is looked up, compared or hashed.
pub(crate) const LOOK_UP: usize = 64;

/// Calls `work` with ranges that make up `rows` of so many bytes each, and looks for signals between them. Each range but the last is a
/// multiple of 64 rows. Rows that take longer than to write their bytes count as more bytes.
///
/// # Errors
/// The error of the first range that fails; [`crate::ErrorKind::Interrupted`] when a signal's handler raises.
pub(crate) fn in_rounds(rows: usize, row_bytes: usize, work: impl FnMut(Range<usize>) -> Result<()>) -> Result<()> {
    cut(ROUND, rows, row_bytes, work)
}

/// As [`in_rounds`], for rounds that prepare many columns.
///
/// # Errors
/// As [`in_rounds`].
pub(super) fn in_shared_rounds(
    rows: usize,
    row_bytes: usize,
    work: impl FnMut(Range<usize>) -> Result<()>,
) -> Result<()> {
    cut(SHARED_ROUND, rows, row_bytes, work)
}

/// As [`in_rounds`], for rounds that start so many threads.
///
/// # Errors
/// As [`in_rounds`].
pub(super) fn in_rounds_on(
    threads: usize,
    rows: usize,
    row_bytes: usize,
    work: impl FnMut(Range<usize>) -> Result<()>,
) -> Result<()> {
    cut(if threads > 1 { SHARED_ROUND } else { ROUND }, rows, row_bytes, work)
}

fn cut(bytes: usize, rows: usize, row_bytes: usize, mut work: impl FnMut(Range<usize>) -> Result<()>) -> Result<()> {
    let round = bytes.checked_div(row_bytes).map_or(rows, |round| round.max(1).next_multiple_of(64));
    let mut one = |rows: Range<usize>| {
        look_for_signals(rows.len().saturating_mul(row_bytes))?;
        work(rows)
    };
    if rows <= round {
        return one(0..rows);
    }
    (0..rows).step_by(round).try_for_each(|start| one(start..start.saturating_add(round).min(rows)))
}

/// Looks for signals, if this thread has written many bytes since it did so, with the `bytes` that it is about to write: also those of
/// many small chunks. Only the main thread runs handlers.
///
/// # Errors
/// [`crate::ErrorKind::Interrupted`] when a signal's handler raises.
pub(crate) fn look_for_signals(bytes: usize) -> Result<()> {
    thread_local! {
        static WRITTEN: Cell<usize> = const { Cell::new(0) };
        static INTERRUPTS: Cell<Option<Interrupts>> = const { Cell::new(None) };
    }
    let written = WRITTEN.get().saturating_add(bytes);
    if written < ROUND {
        WRITTEN.set(written);
        return Ok(());
    }
    WRITTEN.set(0);
    // A handler may convert something itself, and then counts by its own clock.
    let mut interrupts = INTERRUPTS.take().unwrap_or_else(Interrupts::new);
    let checked = interrupts.check();
    INTERRUPTS.set(Some(interrupts));
    checked
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn rounds_make_up_all_rows_and_stop_at_the_first_error() {
        for (rows, row_bytes, expected) in
            [(0, 8, 1), (1000, 8, 1), (64, usize::MAX, 1), (65, SHARED_ROUND, 2), (200, 1 << 23, 4)]
        {
            let (mut next, mut rounds) = (0, 0);
            in_shared_rounds(rows, row_bytes, |round| {
                assert_eq!(round.start, next);
                (next, rounds) = (round.end, rounds + 1);
                Ok(())
            })
            .unwrap();
            assert_eq!((next, rounds), (rows, expected), "{rows} rows of {row_bytes} bytes");
        }
        let failing = in_rounds(200, ROUND, |round| Err(Error::invalid("round").at_row(round.start)));
        assert_eq!(failing.unwrap_err().row(), Some(0));
    }
}
