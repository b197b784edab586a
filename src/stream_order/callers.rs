//! The waits and events that Rust callers ask for; Python callers ask through the protocols.

use super::{Readiness, Wait, current_stream, enter};
use crate::cuda::Stream;
use crate::error::Result;

impl Readiness {
    /// Has a stream wait until the memory is written, and says that it is lent out: what the stream is given from now on may
    /// read it. `None` is this thread's stream.
    ///
    /// Work on a stream that does not wait for the legacy default stream has to be joined before the memory is let go, or the
    /// stream named by [`Readiness::record_stream`].
    ///
    /// # Errors
    /// When the stream is another device's or context's, or is being captured while the memory is not written yet.
    pub fn make_stream_wait(&self, stream: Option<Stream>) -> Result<()> {
        self.lend();
        self.wait_on_stream(self.device(), stream.unwrap_or_else(current_stream), Wait::DlpackStream)
    }

    /// Has the host wait until the memory is written.
    ///
    /// # Errors
    /// When the driver fails, or the wait is interrupted.
    pub fn synchronize(&self) -> Result<()> {
        self.wait_on_host(Wait::ExportedOnHost)
    }

    /// Says that the memory, which was just imported without an event, is written when the work is done that `stream` has now.
    ///
    /// # Errors
    /// When the stream is another device's or context's, an event was there already, or the driver fails.
    pub fn record_written(&self, stream: Stream) -> Result<()> {
        let current = enter(self.device())?;
        current.require_own(stream)?;
        self.written_behind(&current, stream, Wait::DlpackImport)
    }
}
