//! The threads that make batches ahead: each reads some of the lanes, and the consumer takes batches from them in turn.

use std::fmt;
#[cfg(feature = "python")]
use std::sync::TryLockError;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
#[cfg(feature = "async")]
use std::task::Context;
use std::time::{Duration, Instant};

use super::batch::Batch;
use super::prefetch::{Prefetch, Stop, Taken};
use super::producer::{Producer, Turns};
use super::read_log::ReadLog;
use crate::error::{Error, Result};

/// One thread for each reader. All stop together.
pub(super) struct Readers {
    threads: Vec<Prefetch<Batch>>,
    turns: Turns,
    /// The round of the next batch; `None` at the end of the epoch.
    round: Mutex<Option<usize>>,
    turn: BatchTurn,
    log: ReadLog,
}

/// One of several threads that wait for the next batch: the others wait no longer than they want to.
#[derive(Default)]
struct BatchTurn {
    state: Mutex<BatchTurnState>,
    left: Condvar,
}

#[derive(Default)]
struct BatchTurnState {
    is_taken: bool,
    waiting: usize,
}

/// Gives the turn back.
struct BatchTurnGuard<'a>(&'a BatchTurn);

impl BatchTurn {
    fn lock(&self) -> MutexGuard<'_, BatchTurnState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits at most `patience` for the turn; `None` if another thread still has it.
    fn take(&self, patience: Duration) -> Option<BatchTurnGuard<'_>> {
        let mut state = self.lock();
        if state.is_taken {
            state.waiting = state.waiting.saturating_add(1);
            let waited = self.left.wait_timeout_while(state, patience, |state| state.is_taken);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            state.waiting = state.waiting.saturating_sub(1);
        }
        if std::mem::replace(&mut state.is_taken, true) { None } else { Some(BatchTurnGuard(self)) }
    }
}

impl Drop for BatchTurnGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_taken = false;
        let waiting = state.waiting;
        drop(state);
        if waiting > 0 {
            self.0.left.notify_one();
        }
    }
}

impl Readers {
    /// Starts a thread for each producer, which are in the order of the readers' numbers.
    ///
    /// # Errors
    /// If a thread cannot be started. Those that were started are stopped.
    pub(super) fn start(
        producers: Vec<Producer>,
        prefetch: usize,
        turns: Turns,
        log: ReadLog,
        stop: &Stop,
    ) -> Result<Self> {
        let ahead = prefetch.div_ceil(producers.len().max(1));
        let start = |mut producer: Producer| {
            Prefetch::start(ahead, stop.clone(), move || producer.next().transpose()).inspect_err(|_| stop.ask())
        };
        let threads = producers.into_iter().map(start).collect::<Result<_>>()?;
        Ok(Self { threads, turns, round: Mutex::new(Some(0)), turn: BatchTurn::default(), log })
    }

    fn round(&self) -> MutexGuard<'_, Option<usize>> {
        self.round.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn thread(&self, round: usize) -> Result<&Prefetch<Batch>> {
        self.threads.get(self.turns.reader_of(round)).ok_or_else(|| Error::internal("a batch of no reader"))
    }

    pub(super) fn is_in_this_process(&self) -> bool {
        self.threads.iter().all(Prefetch::is_in_this_process)
    }

    /// Returns the next batch, and waits for it at most `patience`. Only in the threads' own process.
    ///
    /// # Errors
    /// On one of the threads, which would wait for itself.
    pub(super) fn take(&self, patience: Duration) -> Result<Taken<Batch>> {
        let begun = Instant::now();
        let mut turn = self.turn.take(Duration::ZERO);
        if turn.is_none() && !patience.is_zero() {
            self.threads.iter().try_for_each(Prefetch::require_another_thread)?;
            turn = self.turn.take(patience);
        }
        let Some(_turn) = turn else { return Ok(Taken::NotYet) };
        self.next(|thread| thread.take(patience.saturating_sub(begun.elapsed())))
    }

    /// Returns the next batch if it is ready. If not, the task is woken when that may have changed. Only in the threads' own
    /// process.
    ///
    /// # Errors
    /// On one of the threads.
    #[cfg(feature = "async")]
    pub(super) fn poll(&self, context: &Context<'_>) -> Result<Taken<Batch>> {
        self.next(|thread| thread.poll(context))
    }

    /// Asks the thread of the next batch, and the other threads too once that one has come to the end of the epoch: shards of their
    /// lanes may have more rows than they told.
    fn next(&self, ask: impl Fn(&Prefetch<Batch>) -> Result<Taken<Batch>>) -> Result<Taken<Batch>> {
        let mut next = self.round();
        // The threads were stopped at the end: they no longer tell it from a cut.
        let Some(round) = *next else { return Ok(Taken::End) };
        let taken = ask(self.thread(round)?)?;
        match taken {
            Taken::Item(_) => *next = round.checked_add(1),
            Taken::End => {
                // Every batch was taken, so that each thread ends without waiting for room.
                for thread in &self.threads {
                    match ask(thread)? {
                        Taken::End => {}
                        Taken::Item(_) => return Err(Error::internal("a batch after the last one")),
                        other => return Ok(other),
                    }
                }
                let lie = self.log.take_lie();
                if lie.is_none() {
                    *next = None;
                }
                return Ok(lie.map_or(Taken::End, Taken::Failed));
            }
            _ => {}
        }
        Ok(taken)
    }

    /// Returns the next batch if it is ready; `None` also at the end. Waits for no thread.
    #[cfg(feature = "python")]
    pub(super) fn take_ready(&self) -> Option<Batch> {
        let _turn = self.turn.take(Duration::ZERO)?;
        let mut next = match self.round.try_lock() {
            Err(TryLockError::WouldBlock) => return None,
            Err(TryLockError::Poisoned(next)) => next.into_inner(),
            Ok(next) => next,
        };
        let round = (*next)?;
        let batch = self.thread(round).ok()?.take_ready()?;
        *next = round.checked_add(1);
        Some(batch)
    }

    /// Asks the threads to stop, and waits at most `patience`. Returns whether all have ended.
    pub(super) fn stop(&self, patience: Duration) -> bool {
        // Each thread is asked before one is waited for.
        self.threads.iter().for_each(|thread| {
            thread.stop(Duration::ZERO);
        });
        self.each_within(patience, Prefetch::stop)
    }

    /// As [`Readers::close`], and waits at most `patience`. Returns whether all have ended.
    #[cfg(feature = "python")]
    pub(super) fn close_within(&self, patience: Duration) -> bool {
        self.stop(Duration::ZERO);
        self.each_within(patience, Prefetch::close_within)
    }

    /// Returns whether all threads end within `patience`.
    fn each_within(&self, patience: Duration, ends: impl Fn(&Prefetch<Batch>, Duration) -> bool) -> bool {
        let begun = Instant::now();
        self.threads.iter().all(|thread| ends(thread, patience.saturating_sub(begun.elapsed())))
    }

    /// Stops the threads without waiting for them.
    pub(super) fn abandon(&self) {
        self.threads.iter().for_each(Prefetch::abandon);
    }

    /// Stops the threads and waits for their end.
    pub(super) fn close(&self) {
        self.stop(Duration::ZERO);
        self.threads.iter().for_each(Prefetch::close);
    }
}

impl fmt::Debug for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readers").field("threads", &self.threads).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_no_patience_does_not_wait_for_another_ones_turn() {
        let turn = BatchTurn::default();
        let taken = turn.take(Duration::ZERO).unwrap();
        assert!(turn.take(Duration::ZERO).is_none() && turn.take(Duration::from_millis(1)).is_none());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| turn.take(Duration::MAX).is_some());
            while turn.lock().waiting == 0 {
                std::thread::yield_now();
            }
            drop(taken);
            assert!(waiting.join().unwrap());
        });
        assert!(turn.take(Duration::ZERO).is_some());
    }
}
