//! Stream order: what must finish before device memory is read, and before it is freed. Only this room records events
//! and waits for them.
//!
//! Each wait has a number ([`Wait`]). Nothing here synchronises a device or a context.
#![allow(unsafe_code, reason = "reads the handle of a foreign event")]

mod callers;
mod check;
mod deferred_free;
mod host;
mod memory;
mod release;
mod statistics;
mod waits;

use std::cell::RefCell;
use std::ffi::c_void;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use smallvec::SmallVec;

pub(crate) use check::{check_host, is_check_asked};
pub use deferred_free::waiting;
pub(crate) use deferred_free::{Behind, drain};
pub(crate) use host::{Interrupts, run_handlers};
pub use host::{Pause, host_waits, pause_by};
pub(crate) use memory::{allocate, allocate_scratch, page_locked, staging_block};
pub(crate) use release::End;
pub use statistics::{DeviceMemory, MemoryStatistics, PageLockedMemory, empty_cache, memory_stats};
pub use waits::Wait;

use crate::cuda::{CudaDevice, Current, Event, EventHandle, Pointer, PooledStream, Stream, is_cuda, is_host_visible};
use crate::device::Device;
use crate::error::{Error, ErrorKind, Remedy, Result};

/// When memory of a device may be read, and who uses it. Clones are the same memory's.
#[derive(Clone)]
pub struct Readiness(Arc<Inner>);

struct Inner {
    device: Device,
    /// Not set where it is written already.
    ready: OnceLock<Ready>,
    /// What this is made of, where it is more than one piece of memory.
    parts: Vec<Readiness>,
    /// Whether others may have put work on the memory that we know nothing of.
    lent: AtomicBool,
    /// Whether work of ours uses the memory and its end cannot be known: it is never freed then.
    lost: AtomicBool,
    uses: Mutex<SmallVec<[Use; 1]>>,
}

// SAFETY: a pointer to a handle that does not change, and a name for an object of the driver.
unsafe impl Send for Ready {}
// SAFETY: as for `Send`.
unsafe impl Sync for Ready {}

/// When memory is written.
enum Ready {
    /// When the event of another library is complete that this points to, alive as long as the memory's owner.
    Foreign(*const EventHandle),
    /// When this event of ours is complete.
    Own(Event),
}

/// Work on memory that has to be done before it is freed.
struct Use {
    /// Where more work may have come since, unless that is only known to another thread.
    stream: Option<Stream>,
    event: Event,
    wait: Wait,
}

impl Readiness {
    /// Memory of a device, written already; `None` for ordinary host memory, which has no order.
    pub(crate) fn written(device: Device) -> Option<Self> {
        (!device.is_cpu()).then(|| Self::new(device, None, Vec::new()))
    }

    /// Memory of a device that is not the CPU, written already.
    pub(crate) fn on_device(device: Device) -> Self {
        Self::new(device, None, Vec::new())
    }

    fn new(device: Device, ready: Option<Ready>, parts: Vec<Self>) -> Self {
        let ready = ready.map_or_else(OnceLock::new, OnceLock::from);
        Self(Arc::new(Inner {
            device,
            ready,
            parts,
            lent: AtomicBool::default(),
            lost: AtomicBool::default(),
            uses: Mutex::default(),
        }))
    }

    /// Memory that is written when the event is complete that `sync_event` points to, if it is not NULL.
    ///
    /// # Errors
    /// When the pointer is misaligned.
    ///
    /// # Safety
    /// `sync_event` is NULL, or points to a handle of the device's runtime that lives as long as the memory's owner
    /// (<https://arrow.apache.org/docs/format/CDeviceDataInterface.html>).
    pub(crate) unsafe fn imported(device: Device, sync_event: *mut c_void) -> Result<Option<Self>> {
        if is_cuda(device) {
            drain();
        }
        if device.is_cpu() || sync_event.is_null() {
            return Ok(Self::written(device));
        }
        let event = sync_event.cast::<EventHandle>();
        // Of another runtime's event only the address is kept.
        if is_cuda(device) && !event.is_aligned() {
            return Err(Error::invalid("ArrowDeviceArray.sync_event is a misaligned pointer"));
        }
        Ok(Some(Self::new(device, Some(Ready::Foreign(event)), Vec::new())))
    }

    /// Memory that is written when the work is done that `stream` has now.
    pub(crate) fn recorded(device: Device, current: &Current, stream: Stream, wait: Wait) -> Result<Self> {
        let readiness = Self::new(device, None, Vec::new());
        readiness.written_behind(current, stream, wait)?;
        Ok(readiness)
    }

    /// Says that the memory is written when the work is done that `stream` has now; before anyone else knows the memory.
    pub(crate) fn written_behind(&self, current: &Current, stream: Stream, wait: Wait) -> Result<()> {
        if !wait.is_skipped() {
            let event = Event::record(current, stream)?;
            // Of what is set already, the memory is not new.
            self.0.ready.set(Ready::Own(event)).map_err(|_| Error::internal("the memory is ordered already"))?;
        }
        Ok(())
    }

    /// Says that the memory, which others know, is written again, and by the work that `stream` has now: it has waited for what
    /// wrote it before.
    ///
    /// # Errors
    /// When the event is another library's, or the driver fails.
    pub(crate) fn written_again(&self, current: &Current, stream: Stream, wait: Wait) -> Result<()> {
        match self.0.ready.get() {
            _ if wait.is_skipped() => Ok(()),
            None => self.written_behind(current, stream, wait),
            // Whoever has its handle, as the `sync_event` of an array, waits for the later work from now on.
            Some(Ready::Own(event)) => Ok(event.record_again(current, stream)?),
            Some(Ready::Foreign(_)) => {
                Err(Error::argument("memory whose event is another library's cannot be written"))
            }
        }
    }

    /// Several pieces of memory as one, which is written when each is.
    ///
    /// # Errors
    /// When they are on different devices, or the driver fails.
    pub(crate) fn joined(orders: impl IntoIterator<Item = Self>) -> Result<Option<Self>> {
        let mut parts: Vec<Self> = Vec::new();
        for readiness in orders {
            if !parts.iter().any(|part| Arc::ptr_eq(&part.0, &readiness.0)) {
                parts.push(readiness);
            }
        }
        let Some(first) = parts.first() else { return Ok(None) };
        let device = first.0.device;
        if let Some(other) = parts.iter().find(|part| part.0.device != device) {
            let reason = format!("the data is on more than one device: {device} and {}", other.0.device);
            return Err(Error::new(ErrorKind::Device, reason));
        }
        if parts.len() == 1 {
            return Ok(parts.pop());
        }
        if !is_cuda(device) {
            return Self::joined_opaque(device, parts).map(Some);
        }
        if parts.iter().all(Self::is_written) {
            return Ok(Some(Self::new(device, None, parts)));
        }
        let current = enter(device)?;
        let stream = PooledStream::idle(&current)?;
        for event in parts.iter().filter_map(Self::event) {
            if !Wait::Joined.is_skipped() {
                current.stream_waits(stream.stream(), event)?;
            }
        }
        let event = Event::record(&current, stream.stream())?;
        Ok(Some(Self::new(device, Some(Ready::Own(event)), parts)))
    }

    /// As [`Readiness::joined`], where nothing can wait for an event: all that have one must have the same.
    fn joined_opaque(device: Device, parts: Vec<Self>) -> Result<Self> {
        let mut events = parts.iter().filter(|part| !part.is_written()).map(Self::exported_event);
        let first = events.next();
        if events.any(|event| Some(event) != first) {
            let reason = format!("the data on {device} has several events, and its runtime is not known here");
            return Err(Error::new(ErrorKind::Device, reason).remedy_is("synchronise the data first, or pass it apart"));
        }
        Ok(Self::new(device, first.map(|event| Ready::Foreign(event.cast_const().cast())), parts))
    }

    /// The same memory under another device by which it is reached too.
    pub(crate) fn relabelled(&self, device: Device) -> Self {
        let event = self.0.ready.get().map(|_| Ready::Foreign(self.exported_event().cast_const().cast()));
        Self::new(device, event, vec![self.clone()])
    }

    /// The device that the memory is on.
    #[must_use]
    pub fn device(&self) -> Device {
        self.0.device
    }

    /// Whether there is no event to wait for.
    fn is_written(&self) -> bool {
        self.0.ready.get().is_none()
    }

    /// What to wait for; asked only where the device's runtime is there.
    fn event(&self) -> Option<EventHandle> {
        match self.0.ready.get()? {
            Ready::Foreign(event) if event.is_null() => None,
            // SAFETY: the contract of `imported`; whoever has this order has the memory's owner.
            Ready::Foreign(event) => Some(unsafe { event.read() }).filter(|event| !event.is_null()),
            Ready::Own(event) => Some(*event.handle()),
        }
    }

    /// Whether the memory is known to be written by now. Never waits.
    ///
    /// # Errors
    /// When the driver fails.
    pub fn is_complete(&self) -> Result<bool> {
        if self.is_written() {
            return Ok(true);
        }
        let current = enter(self.0.device)?;
        Ok(self.event().map_or(Ok(true), |event| current.is_complete(event))?)
    }

    /// The `sync_event` of an export, which has to keep this order and the memory's owner: NULL where the memory is written
    /// already.
    pub(crate) fn exported_event(&self) -> *mut c_void {
        let event = match self.0.ready.get() {
            Some(Ready::Foreign(event)) => *event,
            Some(Ready::Own(event)) => std::ptr::from_ref(event.handle()),
            None => std::ptr::null(),
        };
        if Wait::ExportedEvent.is_skipped() { std::ptr::null_mut() } else { event.cast_mut().cast() }
    }

    /// Has `stream`, which must be of `device`, wait until the memory is written: by its own device, or by any other that
    /// reaches it.
    ///
    /// # Errors
    /// When the stream is another device's or context's, or is being captured while the memory is not written yet.
    pub(crate) fn wait_on_stream(&self, device: Device, stream: Stream, wait: Wait) -> Result<()> {
        drain();
        if self.is_written() && (stream.is_default() || !is_cuda(device)) {
            return Ok(());
        }
        let current = enter(device)?;
        current.require_own(stream)?;
        self.wait_in(&current, stream, wait)
    }

    /// As [`Readiness::wait_on_stream`], for a stream of the current context.
    pub(crate) fn wait_in(&self, current: &Current, stream: Stream, wait: Wait) -> Result<()> {
        let Some(event) = self.event().filter(|_| !wait.is_skipped()) else { return Ok(()) };
        if current.is_capturing(stream)? {
            // A wait for work outside would make the capture invalid.
            if current.is_complete(event)? {
                return Ok(());
            }
            let reason = "the stream is being captured, and what writes the data is not done";
            return Err(Error::new(ErrorKind::Device, reason).remedy_is(Remedy::WrittenBeforeCapture));
        }
        Ok(current.stream_waits(stream, event)?)
    }

    /// Has the host wait until the memory is written.
    ///
    /// # Errors
    /// When the driver fails, or the wait is interrupted.
    pub(crate) fn wait_on_host(&self, wait: Wait) -> Result<()> {
        if self.is_written() || wait.is_skipped() {
            return Ok(());
        }
        // Before the event is looked at: without its runtime it is only a number.
        let current = enter(self.0.device)?;
        match self.event() {
            Some(event) if !current.is_complete(event)? => host::wait(&current, event),
            _ => Ok(()),
        }
    }

    /// Says that others may use the memory, on streams that we do not know: it is freed behind their work.
    pub(crate) fn lend(&self) {
        self.0.lent.store(true, Ordering::Release);
        for part in &self.0.parts {
            part.lend();
        }
    }

    /// Has the memory freed behind the work of a stream: what it has now, and what it is given until then.
    ///
    /// # Errors
    /// When the stream is another device's or context's, or the driver fails.
    pub fn record_stream(&self, stream: Stream) -> Result<()> {
        let current = enter(self.0.device)?;
        current.require_own(stream)?;
        // Another thread's default stream has the same number.
        let again = (stream != Stream::PER_THREAD).then_some(stream);
        self.record_use(&current, stream, again, Wait::ReleaseBehindRecorded)
    }

    /// Has the memory freed behind our own work that `stream` has now.
    ///
    /// # Errors
    /// When no event can be recorded, and the host cannot wait for that work either. The memory is never freed then.
    pub(crate) fn used_by(&self, current: &Current, stream: Stream) -> Result<()> {
        if self.record_use(current, stream, None, Wait::ReleaseBehindOurs).is_ok() {
            return Ok(());
        }
        let settled = settle(current, stream);
        if settled.is_err() {
            self.lose();
        }
        settled
    }

    fn lose(&self) {
        self.0.lost.store(true, Ordering::Release);
        self.0.parts.iter().for_each(Self::lose);
    }

    fn record_use(&self, current: &Current, stream: Stream, again: Option<Stream>, wait: Wait) -> Result<()> {
        if self.0.parts.is_empty() {
            let event = Event::record(current, stream)?;
            let mut uses = self.0.uses.lock().unwrap_or_else(PoisonError::into_inner);
            // Memory that is read for long does not gather the events of all its reads.
            let is_done = |used: &Use| current.is_complete(*used.event.handle()) == Ok(true);
            uses.retain(|used| if used.stream.is_some() { used.stream != again } else { !is_done(used) });
            uses.push(Use { stream: again, event, wait });
        }
        self.0.parts.iter().try_for_each(|part| part.record_use(current, stream, again, wait))
    }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Order")
            .field("device", &self.0.device)
            .field("is_written", &self.is_written())
            .finish_non_exhaustive()
    }
}

/// Has the host wait until the work is done that one of our own streams has now.
///
/// # Errors
/// When the driver fails, or the wait is interrupted.
pub(crate) fn wait_for_stream(current: &Current, stream: Stream, wait: Wait) -> Result<()> {
    if wait.is_skipped() { Ok(()) } else { settle(current, stream) }
}

/// Makes the primary context of the device current that memory is on.
///
/// # Errors
/// When the device is not reached through CUDA, or not at all.
pub(crate) fn enter(device: Device) -> Result<Current> {
    if !is_cuda(device) {
        let reason = format!("the data is on {device}, whose runtime is not known here");
        return Err(
            Error::new(ErrorKind::Device, reason).remedy_is("copy it to the CPU or to CUDA with its own library")
        );
    }
    drain();
    CudaDevice::get(device.id())?.enter()
}

/// Whether there is a CUDA driver with a device; starts it.
#[must_use]
pub fn is_available() -> bool {
    crate::cuda::driver().is_ok()
}

/// The device that host-visible memory is of, by what the driver knows of its address: DLPack names none. Memory that the
/// driver does not know stays where it was said to be.
pub(crate) fn located(device: Device, address: usize) -> Device {
    if !is_host_visible(device) || address == 0 {
        return device;
    }
    let found = Pointer::of(address).ok().and_then(|pointer| pointer.device);
    found.filter(|found| found.device_type() == device.device_type()).unwrap_or(device)
}

/// Waits on the host for the work that a stream has now: where no event could be recorded behind it.
///
/// # Errors
/// When the driver fails, or the wait is interrupted.
pub(crate) fn settle(current: &Current, stream: Stream) -> Result<()> {
    if current.is_idle(stream)? { Ok(()) } else { host::wait_until(|| current.is_idle(stream)) }
}

/// Refuses memory that is not what its producer says: of another device or kind, of a context that is not the primary one, or
/// shorter. Of devices that are not reached through CUDA nothing is known.
///
/// # Errors
/// What is wrong with it, or that there is no driver to ask.
pub(crate) fn check_memory(device: Device, address: usize, bytes: usize) -> Result<()> {
    if !is_cuda(device) || bytes == 0 {
        return Ok(());
    }
    enter(device)?.check_memory(address, bytes, device)
}

thread_local! {
    static STREAMS: RefCell<Vec<Stream>> = const { RefCell::new(Vec::new()) };
}

/// The stream of this thread: the innermost one that was set, else the legacy default stream.
#[must_use]
pub fn current_stream() -> Stream {
    STREAMS.with_borrow(|streams| streams.last().copied()).unwrap_or(Stream::LEGACY)
}

/// Makes a stream this thread's, until [`pop_stream`].
pub fn push_stream(stream: Stream) {
    STREAMS.with_borrow_mut(|streams| streams.push(stream));
}

/// Makes the stream before it this thread's again; false, and nothing else, where this thread's is not `stream`.
#[must_use]
pub fn pop_stream(stream: Stream) -> bool {
    STREAMS.with_borrow_mut(|streams| streams.pop_if(|last| *last == stream).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::DeviceBuffer;
    use crate::ffi::dlpack::DLDeviceType;

    const BYTES: usize = 1 << 12;

    /// A block that `writer` has just been told to write.
    fn written(current: &Current, writer: &PooledStream) -> (DeviceBuffer, DeviceBuffer, Readiness) {
        let stream = writer.stream();
        let source = allocate_scratch(current, BYTES, stream).unwrap();
        let block = allocate_scratch(current, BYTES, stream).unwrap();
        // SAFETY: both have so many bytes, and are freed behind the copy.
        unsafe { current.copy_on_device(block.start(), source.start(), BYTES, stream) }.unwrap();
        let device = Device::new(DLDeviceType::CUDA, 0);
        let ready = Ready::Own(Event::record(current, stream).unwrap());
        (source, block, Readiness::new(device, Some(ready), Vec::new()))
    }

    #[test]
    #[ignore = "needs a CUDA driver: make test-cuda"]
    fn memory_of_several_parts_is_written_when_each_is() {
        let current = CudaDevice::get(0).unwrap().enter().unwrap();
        let [first, second, reader] = [(); 3].map(|()| PooledStream::idle(&current).unwrap());
        let parts = [written(&current, &first), written(&current, &second)];
        let joined = Readiness::joined(parts.iter().map(|(_, _, readiness)| readiness.clone())).unwrap().unwrap();
        joined.wait_in(&current, reader.stream(), Wait::DlpackStream).unwrap();
        let target = allocate_scratch(&current, BYTES, reader.stream()).unwrap();
        for (_, block, _) in &parts {
            // SAFETY: both have so many bytes until the host has waited for the copy. The simulated driver reports a read
            // that nothing orders behind the write.
            unsafe { current.copy_on_device(target.start(), block.start(), BYTES, reader.stream()) }.unwrap();
        }
        settle(&current, reader.stream()).unwrap();
        assert_eq!(joined.0.parts.len(), 2);
    }
}
