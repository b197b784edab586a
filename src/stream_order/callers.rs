//! The waits and events that Rust callers ask for; Python callers ask through the protocols.

use super::capture::refuse_capture;
use super::{Readiness, Wait, current_stream, enter};
use crate::cuda::{Current, Stream};
use crate::error::Result;

impl Readiness {
    /// Makes a stream wait until the memory is written, and marks the memory as lent: later work on that stream may
    /// read it. `None` is this thread's stream.
    ///
    /// If the stream does not wait for the legacy default stream, join its work before the memory is released, or name
    /// the stream by [`Readiness::record_stream`].
    ///
    /// # Errors
    /// If the stream belongs to another device or context, or is being captured while the memory is not written yet.
    pub fn make_stream_wait(&self, stream: Option<Stream>) -> Result<()> {
        self.lend(Wait::LentToStream);
        self.wait_on_stream(self.device(), stream.unwrap_or_else(current_stream), Wait::DlpackStream)
    }

    /// Waits on the host until the memory is written.
    ///
    /// # Errors
    /// If the driver fails, or the wait is interrupted.
    pub fn synchronize(&self) -> Result<()> {
        self.wait_on_host(Wait::ExportedOnHost)
    }

    /// Sets when the memory is written, after an import without an event: when the work that `stream` has now is done.
    ///
    /// # Errors
    /// If the stream belongs to another device or context or is being captured, an event was set already, or the driver
    /// fails.
    pub fn record_written(&self, stream: Stream) -> Result<()> {
        let current = enter(self.device())?;
        current.require_own(stream)?;
        self.written_behind_others(&current, stream, Wait::DlpackImport)
    }

    /// Sets that the memory is written when the work is done that a stream of another library's has now.
    ///
    /// # Errors
    /// If the stream is being captured, an event was set already, or the driver fails.
    pub(crate) fn written_behind_others(&self, current: &Current, stream: Stream, wait: Wait) -> Result<()> {
        refuse_capture(current, stream, "an event on it would be a part of the graph")?;
        self.written_behind(current, stream, wait)
    }
}
