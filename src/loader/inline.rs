//! Makes batches on the thread that asks for them, without prefetching.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::batch::Next;
use super::prefetch::{Stop, panicked};
use super::producer::Producer;
use crate::error::{Error, Result};

/// A producer that one thread at a time may use.
pub(super) struct Inline {
    stage: Mutex<Stage>,
    stop: Stop,
    /// The process that the source was opened in.
    process: u32,
}

enum Stage {
    Ready(Box<Producer>),
    /// A thread makes a batch.
    Making,
    Ended,
    /// Ended by an error, or from outside.
    Cut,
}

impl Inline {
    pub(super) fn new(producer: Producer, stop: Stop) -> Self {
        Self { stage: Mutex::new(Stage::Ready(Box::new(producer))), stop, process: std::process::id() }
    }

    pub(super) fn is_in_this_process(&self) -> bool {
        self.process == std::process::id()
    }

    /// The next batch.
    ///
    /// # Errors
    /// If another thread makes a batch, or as [`Producer::next`].
    pub(super) fn next(&self) -> Result<Next> {
        let mut stage = self.lock();
        let mut producer = match std::mem::replace(&mut *stage, Stage::Making) {
            Stage::Ready(producer) => producer,
            Stage::Making => {
                let error = Error::argument("a batch of this loader is being made already");
                return Err(error.remedy_is("ask in one thread at a time, or prefetch batches to ask in several"));
            }
            Stage::Ended => {
                *stage = Stage::Ended;
                return Ok(Next::End);
            }
            Stage::Cut => {
                *stage = Stage::Cut;
                return Ok(Next::Cut);
            }
        };
        // Not held while the producer runs, because the source may run code that asks for a batch.
        drop(stage);
        let made = catch_unwind(AssertUnwindSafe(|| producer.next()));
        let made = made.unwrap_or_else(|panic| Err(panicked(panic.as_ref())));
        let mut stage = self.lock();
        *stage = match made {
            _ if self.stop.is_asked() => Stage::Cut,
            Ok(Some(_)) => Stage::Ready(producer),
            Ok(None) => Stage::Ended,
            Err(_) => Stage::Cut,
        };
        drop(stage);
        Ok(match made? {
            Some(batch) => Next::Batch(batch),
            None if self.stop.is_asked() => Next::Cut,
            None => Next::End,
        })
    }

    /// Returns the producer, to be run on a thread; `None` after the end.
    #[cfg(feature = "async")]
    pub(super) fn into_producer(mut self) -> Option<(Box<Producer>, Stop)> {
        let stage = self.stage.get_mut().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(stage, Stage::Ended) {
            Stage::Ready(mut producer) => {
                producer.leave_thread();
                Some((producer, self.stop.clone()))
            }
            _ => None,
        }
    }

    /// Releases the source. If a thread is making a batch, that thread releases it afterwards.
    pub(super) fn close(&self) {
        if !self.is_in_this_process() {
            return;
        }
        self.stop.ask();
        let mut stage = self.lock();
        if matches!(*stage, Stage::Making) {
            return;
        }
        if matches!(*stage, Stage::Ended) {
            return;
        }
        let producer = std::mem::replace(&mut *stage, Stage::Cut);
        drop(stage);
        drop(producer);
    }

    fn lock(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inline {
    fn drop(&mut self) {
        if !self.is_in_this_process() {
            // The source belongs to the other process, and this one must not release it too.
            let stage = self.stage.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(std::mem::replace(stage, Stage::Ended));
        }
    }
}

impl fmt::Debug for Inline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inline").finish_non_exhaustive()
    }
}
