//! The batches of an iteration as an asynchronous stream.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;

use super::prefetch::Taken;
use super::producer::Turns;
use super::readers::Readers;
use super::{Batch, Batches, Mode};
use crate::error::{Error, Result};

impl Batches {
    /// Returns the batches as an asynchronous stream, of any executor: a thread makes them, and a poll takes one that is
    /// ready or leaves its waker. Without prefetching, the thread makes one batch, and the next when that was taken.
    ///
    /// # Errors
    /// If no thread can be started, or in a process that was forked from the source's.
    pub fn into_stream(self) -> Result<BatchStream> {
        self.require_process()?;
        let Self { mode, copy_notes, log } = self;
        let mode = match mode {
            Mode::Inline(inline) => match inline.into_producer() {
                Some((producer, stop)) => {
                    Mode::Prefetch(Readers::start(vec![*producer], 1, Turns::of_one(), log.clone(), &stop)?)
                }
                None => return Ok(BatchStream { batches: None }),
            },
            ahead => ahead,
        };
        Ok(BatchStream { batches: Some(Self { mode, copy_notes, log }) })
    }
}

/// The batches of one epoch as a [`Stream`]: a poll neither makes a batch nor waits for one. After an error there are
/// none.
///
/// Dropping it does not wait: the thread ends by itself after the source's current array, and releases the source.
/// [`BatchStream::close`] waits for that.
#[derive(Debug)]
#[must_use = "a stream makes batches ahead, and hands them out when it is polled"]
pub struct BatchStream {
    /// `None` at the end.
    batches: Option<Batches>,
}

impl BatchStream {
    /// Ends the iteration: on return the thread has ended and the source is released. This waits for the source's
    /// current array, so it is no call for an executor's thread.
    pub fn close(mut self) {
        if let Some(batches) = self.batches.take() {
            batches.close();
        }
    }
}

impl Stream for BatchStream {
    type Item = Result<Batch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(batches) = &self.batches else { return Poll::Ready(None) };
        let taken = match &batches.mode {
            Mode::Prefetch(ahead) if ahead.is_in_this_process() => ahead.poll(context),
            _ => Err(Error::argument("these batches are made in another process, which this one was forked from")
                .remedy_is("start an iteration in this process")),
        };
        let ended = match taken {
            Ok(Taken::Item(batch)) => {
                batches.hand_over(&batch);
                return Poll::Ready(Some(Ok(batch)));
            }
            Ok(Taken::NotYet) => return Poll::Pending,
            Ok(Taken::End | Taken::Cut) => None,
            Ok(Taken::Failed(error)) | Err(error) => Some(Err(error)),
        };
        self.end();
        Poll::Ready(ended)
    }
}

impl BatchStream {
    /// Leaves the thread to end by itself.
    fn end(&mut self) {
        if let Some(batches) = self.batches.take() {
            batches.abandon();
        }
    }
}

impl Drop for BatchStream {
    fn drop(&mut self) {
        self.end();
    }
}
