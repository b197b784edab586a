//! CUDA streams: those that callers name, and our own.

use std::ffi::c_int;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use super::context::{CudaDevice, Current};
use super::driver::{Called, ContextHandle, Status, StreamHandle, is_forked};
use crate::error::{Error, ErrorKind, Remedy, Result};

/// `CU_STREAM_NON_BLOCKING`: does not wait for the legacy default stream.
const NON_BLOCKING: u32 = 1;
/// The most streams of others that each device remembers.
const MOST_KNOWN: usize = 32;
/// The most busy streams that we keep per device; beyond that, one of them is used.
const MOST_BUSY: usize = 32;

/// A CUDA stream, by its DLPack number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream(StreamHandle);

impl Stream {
    /// The legacy default stream, which waits for all blocking streams of its device.
    pub const LEGACY: Self = Self(StreamHandle::LEGACY);
    /// The default stream of the calling thread.
    pub const PER_THREAD: Self = Self(StreamHandle::PER_THREAD);

    /// Returns the stream of a number: 1 is the legacy default stream, 2 the per-thread default stream, above 2 a
    /// handle.
    ///
    /// # Errors
    /// For 0, which DLPack disallows on CUDA, because it could mean either default stream.
    ///
    /// # Safety
    /// A handle is that of a live stream. The stream lives until nothing here uses it any more: the scopes and results
    /// that it was passed to, and memory that [`record_stream`](crate::stream_order::Readiness::record_stream) named it
    /// for.
    pub unsafe fn new(number: usize) -> Result<Self> {
        Self::named(number)
    }

    /// Like [`Stream::new`], for a caller in Python, whose word is all there is.
    pub(crate) fn named(number: usize) -> Result<Self> {
        if number == 0 {
            return Err(Error::argument("stream 0 could mean either default stream, so DLPack disallows it")
                .remedy_is(Remedy::DefaultStream));
        }
        Ok(Self(StreamHandle::from_address(number)))
    }

    pub(super) fn own(handle: StreamHandle) -> Self {
        Self(handle)
    }

    pub(crate) fn handle(self) -> StreamHandle {
        self.0
    }

    /// Returns whether this is one of the two default streams, which each device has.
    pub(crate) fn is_default(self) -> bool {
        self == Self::LEGACY || self == Self::PER_THREAD
    }

    /// Returns the stream's DLPack number.
    #[must_use]
    pub fn number(self) -> usize {
        self.0.address()
    }
}

/// A stream as no other: each device has default streams, by the same numbers, and each thread a per-thread default stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamIdentity {
    ordinal: i32,
    stream: Stream,
    /// 0, unless this is the per-thread default stream of a thread.
    thread: u64,
}

impl StreamIdentity {
    /// Returns that of a stream that does not depend on the thread.
    pub(crate) const fn of_every_thread(ordinal: i32, stream: Stream) -> Self {
        Self { ordinal, stream, thread: 0 }
    }

    pub(crate) fn stream(&self) -> Stream {
        self.stream
    }
}

/// Returns a number of this thread that no other thread has, and that is not 0.
fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        // It has no destructor, so that it is there until the thread ends.
        static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}

impl Current {
    /// Returns which stream this thread means by `stream`, of this device.
    pub(crate) fn identity(&self, stream: Stream) -> StreamIdentity {
        let thread = if stream == Stream::PER_THREAD { this_thread() } else { 0 };
        StreamIdentity { ordinal: self.device().ordinal(), stream, thread }
    }

    /// Returns the stream for frees of memory that no work uses. It has no other work, so frees complete at once.
    pub(crate) fn free_stream(&self) -> Stream {
        let device = self.device();
        // Without one, a stream that has other work serves.
        Stream(*device.free_stream.get_or_init(|| create(device).unwrap_or(StreamHandle::LEGACY)))
    }

    /// Returns whether a stream is of this device's primary context, as far as the driver says.
    #[cfg(feature = "python")]
    pub(crate) fn is_own(&self, stream: Stream) -> bool {
        self.device().knows(stream) || self.require_own(stream).is_ok()
    }

    /// Refuses a stream of another context than this device's primary one.
    pub(crate) fn require_own(&self, stream: Stream) -> Result<()> {
        if stream.is_default() {
            return Ok(());
        }
        let mut context = ContextHandle::NULL;
        // SAFETY: `context` is a local that the driver sets; that the handle is a live stream is the caller's word, and what
        // the driver finds wrong with it is an error.
        unsafe { self.driver().stream_get_context(stream.handle(), &raw mut context) }?;
        if context == self.device().context() {
            self.device().know(stream);
            return Ok(());
        }
        let ordinal = self.device().ordinal();
        let reason = format!("the stream {:#x} is not of the primary context of cuda:{ordinal}", stream.number());
        Err(Error::new(ErrorKind::Device, reason).remedy_is(format!(
            "pass a stream of cuda:{ordinal}; contexts other than the primary one are not supported"
        )))
    }

    /// Returns whether all work of a stream is done.
    pub(crate) fn is_idle(&self, stream: Stream) -> Called<bool> {
        self.device().is_idle(stream)
    }

    /// Returns whether a stream is being captured into a graph. Of the legacy default stream: whether a stream is that waits for
    /// it, because work or an event on the legacy stream would then break the capture.
    pub(crate) fn is_capturing(&self, stream: Stream) -> Called<bool> {
        self.device().is_capturing(stream)
    }
}

/// Our own non-blocking stream, recycled when this is dropped. It lives as long as the process.
#[derive(Debug)]
pub(crate) struct PooledStream {
    device: &'static CudaDevice,
    handle: StreamHandle,
}

impl PooledStream {
    /// Returns an idle stream, because unfinished work that waits for something else would delay the next work. If very
    /// many are busy, returns the least recently used one. Asks that one alone, because each question is a call of the driver.
    pub(crate) fn idle(current: &Current) -> Called<Self> {
        let device = current.device();
        let mut streams = device.streams.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(first) = streams.pop_front() {
            // SAFETY: a stream of ours, never destroyed.
            let is_idle = unsafe { device.driver.stream_query(first) }.is_ok();
            if is_idle || streams.len() + 1 >= MOST_BUSY {
                return Ok(Self { device, handle: first });
            }
            // Another is asked the next time.
            streams.push_back(first);
        }
        drop(streams);
        Ok(Self { device, handle: create(device)? })
    }

    pub(crate) fn stream(&self) -> Stream {
        Stream::own(self.handle)
    }

    /// Never uses the stream again: a query of a stream under capture would end the capture.
    pub(crate) fn leave_to_graph(self) {
        std::mem::forget(self);
    }
}

/// Creates a stream of a device whose context is current.
fn create(device: &CudaDevice) -> Called<StreamHandle> {
    let mut handle = StreamHandle::NULL;
    // SAFETY: `handle` is a local that the driver sets; the device's context is current.
    unsafe { device.driver.stream_create(&raw mut handle, NON_BLOCKING) }?;
    Ok(handle)
}

impl Drop for PooledStream {
    fn drop(&mut self) {
        // In a forked process the holder of the lock does not exist.
        if is_forked() {
            return;
        }
        self.device.streams.lock().unwrap_or_else(PoisonError::into_inner).push_back(self.handle);
    }
}

impl CudaDevice {
    /// Returns whether a stream of another library was found to be of this device's context before. A destroyed stream's number
    /// may stand for a stream of another context by now, which the driver orders as well.
    pub(crate) fn knows(&self, stream: Stream) -> bool {
        self.known_streams.lock().unwrap_or_else(PoisonError::into_inner).contains(&stream.handle())
    }

    fn know(&self, stream: Stream) {
        let mut known = self.known_streams.lock().unwrap_or_else(PoisonError::into_inner);
        if known.contains(&stream.handle()) {
            return;
        }
        if known.len() >= MOST_KNOWN {
            known.pop_front();
        }
        known.push_back(stream.handle());
    }

    /// As [`Current::is_capturing`], on a thread in which any context may be current if `stream` is no default stream.
    pub(crate) fn is_capturing(&self, stream: Stream) -> Called<bool> {
        let mut status: c_int = 0;
        // SAFETY: `status` is a local that the driver sets; the stream as in `require_own`.
        match unsafe { self.driver.stream_is_capturing(stream.handle(), &raw mut status) } {
            Ok(()) => Ok(status != 0),
            Err(Status { code: Status::CAPTURE_IMPLICIT, .. }) => Ok(true),
            Err(status) => Err(status),
        }
    }

    /// As [`Current::is_idle`], on a thread in which the device's context is current.
    pub(crate) fn is_idle(&self, stream: Stream) -> Called<bool> {
        // SAFETY: the stream as in `require_own`.
        match unsafe { self.driver.stream_query(stream.handle()) } {
            Ok(()) => Ok(true),
            Err(Status { code: Status::NOT_READY, .. }) => Ok(false),
            Err(status) => Err(status),
        }
    }
}
