//! The threads that make batches ahead: each reads some of the lanes, and the consumer takes batches from them in turn.

use std::fmt;
#[cfg(feature = "python")]
use std::sync::TryLockError;
use std::sync::{Mutex, MutexGuard, PoisonError};
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
    log: ReadLog,
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
        Ok(Self { threads, turns, round: Mutex::new(Some(0)), log })
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

    /// Returns whether the next batch is not ready.
    #[cfg(feature = "python")]
    pub(super) fn has_to_wait(&self) -> bool {
        // Whoever else has the lock waits for its batch.
        let round = match self.round.try_lock() {
            Err(TryLockError::WouldBlock) => return true,
            Err(TryLockError::Poisoned(round)) => *round.into_inner(),
            Ok(round) => *round,
        };
        round.and_then(|round| self.thread(round).ok()).is_some_and(Prefetch::has_to_wait)
    }

    /// Asks the threads to stop, and waits at most `patience` for each. Returns whether all have ended.
    pub(super) fn stop(&self, patience: Duration) -> bool {
        // Each thread is asked, also after one that has not ended.
        let ended: Vec<bool> = self.threads.iter().map(|thread| thread.stop(patience)).collect();
        ended.into_iter().all(|ended| ended)
    }

    /// As [`Readers::close`], and waits at most `patience` for each thread. Returns whether all have ended.
    #[cfg(feature = "python")]
    pub(super) fn close_within(&self, patience: Duration) -> bool {
        self.stop(Duration::ZERO);
        self.threads.iter().all(|thread| thread.close_within(patience))
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
