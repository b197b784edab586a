//! When is memory written that others know already, and that is written once more?

use std::sync::{PoisonError, Weak};

use super::{Readiness, Ready, Wait};
use crate::cuda::{Called, Current, Event, PooledStream, Stream};
use crate::error::{Error, Result};

impl Readiness {
    /// Sets that memory which others know is written again, by the work that `stream` has now. The stream must have
    /// waited for the previous write.
    ///
    /// # Errors
    /// If the event is another library's, or the driver fails.
    pub(crate) fn written_again(&self, current: &Current, stream: Stream, wait: Wait) -> Result<()> {
        self.require_own_event()?;
        match (self.0.ready.get(), self.0.parts.as_slice()) {
            _ if wait.is_skipped() => return Ok(()),
            // The same memory under another device's name: whoever knows it by its first name waits, too.
            (_, [memory]) => return memory.written_again(current, stream, wait),
            (None, _) => self.written_behind(current, stream, wait)?,
            // Holders of its handle, such as an array with it as `sync_event`, wait for the later work from now on.
            (Some(Ready::Own(event)), _) => record_again(event, current, stream)?,
            (Some(Ready::Foreign(..)), _) => return Err(Error::internal("another library's event was let through")),
        }
        self.wholes_written_again(current, stream, wait)
    }

    /// Sets that what this is a part of is written when the work that `stream` has now is done, which wrote this part.
    ///
    /// # Errors
    /// If the driver fails.
    fn wholes_written_again(&self, current: &Current, stream: Stream, wait: Wait) -> Result<()> {
        let wholes: Vec<_> = self.0.wholes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for whole in wholes.iter().filter_map(Weak::upgrade).map(Self) {
            match (whole.0.ready.get(), whole.0.parts.as_slice()) {
                // It has the part's event.
                (_, [_]) => {}
                (None, _) => whole.written_behind(current, stream, wait)?,
                (Some(Ready::Own(event)), _) => {
                    // Its other parts may not be written yet.
                    current.stream_waits(stream, *event.handle())?;
                    record_again(event, current, stream)?;
                }
                (Some(Ready::Foreign(..)), _) => {}
            }
            whole.wholes_written_again(current, stream, wait)?;
        }
        Ok(())
    }

    /// Refuses memory whose event is another library's, before it is written.
    ///
    /// # Errors
    /// If it is.
    pub(crate) fn require_own_event(&self) -> Result<()> {
        match (self.0.ready.get(), self.0.parts.as_slice()) {
            (_, [memory]) => memory.require_own_event(),
            (Some(Ready::Foreign(..)), _) => {
                Err(Error::argument("memory whose event is another library's cannot be written"))
            }
            _ => Ok(()),
        }
    }
}

/// Records an event once more, behind the work that `stream`, of the current context, has now. Others know the event's handle, so it
/// stays, also where another device than the event's writes the memory.
fn record_again(event: &Event, current: &Current, stream: Stream) -> Called {
    let own = event.device();
    if own.ordinal() == current.device().ordinal() {
        return event.record_again(current, stream);
    }
    // Only streams of its own device record an event; they may wait for those of others.
    let written = Event::record(current, stream)?;
    let there = own.enter_unchecked()?;
    let waiting = PooledStream::idle(&there)?;
    there.stream_waits(waiting.stream(), *written.handle())?;
    event.record_again(&there, waiting.stream())
}
