//! Stream order: what must finish before device memory is read, and before it is freed. Only this room records events
//! and waits for them.
//!
//! Each wait has a number (`Wait`). Nothing here synchronises a device or a context.
#![allow(unsafe_code, reason = "reads the handle of a foreign event")]

mod allocation;
mod behind;
mod callers;
mod capture;
mod check;
mod deferred_free;
mod foreign;
mod host;
mod memory;
mod named;
mod queues;
mod reaper;
mod release;
mod scope;
mod statistics;
mod uses;
mod waits;
mod warm_up;
mod written_again;

use std::ffi::c_void;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use smallvec::SmallVec;

pub(crate) use allocation::check_memory;
pub(crate) use behind::Behind;
#[cfg(feature = "python")]
pub(crate) use capture::captured;
pub(crate) use capture::refuse_capture;
pub(crate) use check::{check_host, is_check_asked};
pub use deferred_free::collect;
pub(crate) use deferred_free::{drain, look};
use foreign::ForeignEvent;
pub use host::host_waits;
#[cfg(feature = "python")]
pub(crate) use host::{Interpreter, wait_beside};
pub(crate) use host::{Interrupts, device, ignore_signals, load_kernels, run_handlers, stay_apart};
pub(crate) use memory::{allocate, allocate_scratch, page_locked, staging_block};
#[cfg(feature = "python")]
pub(crate) use reaper::stop_reaper;
pub(crate) use release::End;
pub(crate) use scope::scoped_stream;
pub use scope::{StreamScope, current_stream, in_stream, stream_scope};
#[cfg(feature = "python")]
pub(crate) use scope::{
    StreamsOfOtherCopy, current_stream_owner, enter_stream, leave_stream, pop_stream, push_stream, streams_elsewhere,
    this_copys_stream,
};
pub use statistics::{DeviceMemory, MemoryStatistics, PageLockedMemory, empty_cache, memory_stats};
pub(crate) use waits::Wait;
pub use warm_up::warm_up;

use crate::alloc::Owner;
use crate::cuda::{
    Called, CudaDevice, Current, Event, EventHandle, Pointer, PooledStream, Stream, is_cuda, is_host_visible,
};
use crate::device::Device;
use crate::error::{Error, ErrorKind, Remedy, Result};
use crate::ffi::dlpack::DLDeviceType;

/// When device memory is written, and which work uses it. Clones refer to the same memory.
#[derive(Clone)]
pub struct Readiness(Arc<Inner>);

struct Inner {
    device: Device,
    /// Unset if the memory is written already, or if this is another name of its only part.
    ready: OnceLock<Ready>,
    /// The pieces of memory, if there are several, or the memory that this is another name of.
    parts: Vec<Readiness>,
    /// What this is a part of: whoever knows the memory by that waits for a later write, too.
    wholes: Mutex<Vec<Weak<Inner>>>,
    /// Whether others may use the memory on streams that we do not know.
    lent: AtomicBool,
    /// Whether our own work uses the memory and its end cannot be known: the memory is never freed then.
    lost: AtomicBool,
    /// The allocation that the driver last named for a part of the memory. It is there as long as the memory.
    allocation: Mutex<Option<Range<usize>>>,
    uses: Mutex<SmallVec<[Use; 1]>>,
}

/// When memory is written.
enum Ready {
    /// When another library's event is complete.
    Foreign(ForeignEvent),
    /// When this event of ours is complete.
    Own(Event),
}

/// Work that must be done before memory is freed.
struct Use {
    /// The device of the stream, which need not be that of host-visible memory.
    ordinal: i32,
    /// The stream, if it may have received more work since, and is not known only to another thread.
    stream: Option<Stream>,
    /// What keeps the stream alive, if that is known.
    owner: Option<Owner>,
    /// `None` if the stream was being captured.
    event: Option<Event>,
    wait: Wait,
}

impl Readiness {
    /// Returns the readiness of device memory that is written; `None` for ordinary host memory, which has no order.
    pub(crate) fn written(device: Device) -> Option<Self> {
        (!device.is_cpu()).then(|| Self::new(device, None, Vec::new()))
    }

    /// Returns the readiness of written memory on a device that is not the CPU.
    pub(crate) fn on_device(device: Device) -> Self {
        Self::new(device, None, Vec::new())
    }

    fn new(device: Device, ready: Option<Ready>, parts: Vec<Self>) -> Self {
        let ready = ready.map_or_else(OnceLock::new, OnceLock::from);
        let whole = Self(Arc::new(Inner {
            device,
            ready,
            parts,
            wholes: Mutex::default(),
            lent: AtomicBool::default(),
            lost: AtomicBool::default(),
            allocation: Mutex::default(),
            uses: Mutex::default(),
        }));
        for part in whole.0.parts.iter().filter(|_| is_cuda(device)) {
            let mut wholes = part.0.wholes.lock().unwrap_or_else(PoisonError::into_inner);
            if wholes.len() == wholes.capacity() {
                wholes.retain(|whole| whole.strong_count() > 0);
            }
            wholes.push(Arc::downgrade(&whole.0));
        }
        whole
    }

    /// Returns the readiness of memory that is written when `sync_event` is complete, or now if it is NULL.
    ///
    /// # Errors
    /// If the pointer is misaligned.
    ///
    /// # Safety
    /// `sync_event` is NULL, or points to a handle of the device's runtime that lives as long as the memory's owner
    /// (<https://arrow.apache.org/docs/format/CDeviceDataInterface.html>).
    pub(crate) unsafe fn imported(device: Device, sync_event: *mut c_void) -> Result<Option<Self>> {
        if is_cuda(device) {
            look();
        }
        if device.is_cpu() || sync_event.is_null() {
            return Ok(Self::written(device));
        }
        let event = sync_event.cast::<EventHandle>();
        // Only the address of another runtime's event is kept.
        if is_cuda(device) && !event.is_aligned() {
            return Err(Error::invalid("ArrowDeviceArray.sync_event is a misaligned pointer"));
        }
        Ok(Some(Self::new(device, Some(Ready::Foreign(ForeignEvent::new(event))), Vec::new())))
    }

    /// Returns the readiness of memory that is written when the work that `stream` has now is done.
    pub(crate) fn recorded(device: Device, current: &Current, stream: Stream, wait: Wait) -> Result<Self> {
        let readiness = Self::new(device, None, Vec::new());
        readiness.written_behind(current, stream, wait)?;
        Ok(readiness)
    }

    /// Sets that the memory is written when the work that `stream` has now is done. Only for memory that nobody else
    /// knows yet.
    pub(crate) fn written_behind(&self, current: &Current, stream: Stream, wait: Wait) -> Result<()> {
        if let [memory] = self.0.parts.as_slice() {
            return memory.written_behind(current, stream, wait);
        }
        if !wait.is_skipped() {
            let event = Event::record(current, stream)?;
            // Memory with an event is not new.
            self.0.ready.set(Ready::Own(event)).map_err(|_| Error::internal("the memory is ordered already"))?;
        }
        Ok(())
    }

    /// Joins several pieces of memory into one, which is written when each piece is.
    ///
    /// # Errors
    /// If they are on different devices, or the driver fails.
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
            return Err(different_devices(device, other.0.device));
        }
        if parts.len() == 1 {
            return Ok(parts.pop());
        }
        if !is_cuda(device) {
            return Self::joined_opaque(device, parts).map(Some);
        }
        if parts.iter().all(Self::is_written) {
            return Ok(Some(Self::new(device, None, Wait::JoinedParts.kept(parts))));
        }
        let current = enter(device)?;
        let mut stream = PooledStream::idle(&current)?;
        for ready in parts.iter().filter_map(Self::ready).filter(|_| !Wait::Joined.is_skipped()) {
            match ready {
                Ready::Foreign(event) => stream = event.waited_for(&current, stream)?,
                Ready::Own(event) => current.stream_waits(stream.stream(), *event.handle())?,
            }
        }
        let event = Event::record(&current, stream.stream())?;
        Ok(Some(Self::new(device, Some(Ready::Own(event)), Wait::JoinedParts.kept(parts))))
    }

    /// Like [`Readiness::joined`], for devices whose runtime is unknown here: all pieces with an event must have the
    /// same one.
    fn joined_opaque(device: Device, parts: Vec<Self>) -> Result<Self> {
        let mut events = parts.iter().filter(|part| !part.is_written()).map(Self::exported_event);
        let first = events.next();
        if events.any(|event| Some(event) != first) {
            let reason = format!("the data on {device} has several events, and its runtime is not known here");
            return Err(Error::new(ErrorKind::Device, reason).remedy_is("synchronise the data first, or pass it apart"));
        }
        let event = first.map(|event| Ready::Foreign(ForeignEvent::new(event.cast_const().cast())));
        Ok(Self::new(device, event, parts))
    }

    /// Returns the readiness of the same memory under another device that reaches it.
    pub(crate) fn relabelled(&self, device: Device) -> Self {
        Self::new(device, None, Wait::RelabelledParts.kept(vec![self.clone()]))
    }

    /// Sets who owns the memory, and with it another library's event: clones of this may outlive both.
    pub(crate) fn owned_by(&self, owner: Owner) {
        if let Some(Ready::Foreign(event)) = self.0.ready.get() {
            event.owned_by(&owner);
        }
    }

    /// When the memory is written; `None` if it is.
    fn ready(&self) -> Option<&Ready> {
        match self.0.parts.as_slice() {
            [memory] => memory.ready(),
            _ => self.0.ready.get(),
        }
    }

    /// Returns the device of the memory.
    #[must_use]
    pub fn device(&self) -> Device {
        self.0.device
    }

    /// Returns the ordinal of the device that is used where the memory is waited for and freed. Page-locked memory is every device's, and
    /// what it is labelled with may be a device that this process does not use: then it is the one that writes it.
    fn home(&self) -> i32 {
        match self.ready() {
            Some(Ready::Own(event)) if self.0.device.device_type() == DLDeviceType::CUDA_HOST => {
                event.device().ordinal()
            }
            _ => self.0.device.id(),
        }
    }

    /// Makes the primary context of a device current that the memory is waited for on.
    ///
    /// # Errors
    /// If the device is not reached through CUDA, or not at all.
    pub(crate) fn enter(&self) -> Result<Current> {
        enter(Device::new(self.0.device.device_type(), self.home()))
    }

    /// Returns whether both are of the same memory.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns whether there is no event to wait for.
    fn is_written(&self) -> bool {
        self.ready().is_none()
    }

    /// Returns the event to wait for. Only called when the device's runtime is present.
    fn event(&self) -> Option<EventHandle> {
        match self.ready()? {
            Ready::Foreign(event) => event.handle(),
            Ready::Own(event) => Some(*event.handle()),
        }
    }

    /// Refuses another library's event that it recorded in a stream under capture.
    fn refuse_captured_event(&self, current: &Current) -> Result<()> {
        match self.ready() {
            Some(Ready::Foreign(event)) => event.refuse_captured(current),
            _ => Ok(()),
        }
    }

    /// Returns whether the memory is known to be written. Never waits.
    ///
    /// # Errors
    /// If only a graph that is being captured writes the memory, or the driver fails.
    pub fn is_complete(&self) -> Result<bool> {
        if self.is_written() {
            return Ok(true);
        }
        if self.is_known_complete() {
            return Ok(true);
        }
        let current = self.enter()?;
        self.refuse_captured_event(&current)?;
        Ok(self.ask_complete(current.device())?)
    }

    /// Returns whether an event of ours was seen complete. Another library may record its own again, so that is asked for each
    /// time.
    fn is_known_complete(&self) -> bool {
        matches!(self.ready(), Some(Ready::Own(event)) if event.is_known_complete())
    }

    /// Asks the driver whether the memory is written, unless that is known. The device's context is current in this thread.
    fn ask_complete(&self, entered: &'static CudaDevice) -> Called<bool> {
        match self.ready() {
            Some(Ready::Own(event)) => event.is_complete_here(),
            _ => self.event().map_or(Ok(true), |event| entered.is_complete(event)),
        }
    }

    /// Returns the `sync_event` of an export, which must keep this readiness and the memory's owner alive. NULL if the
    /// memory is written.
    pub(crate) fn exported_event(&self) -> *mut c_void {
        let event = match self.ready() {
            Some(Ready::Foreign(event)) => event.address(),
            Some(Ready::Own(event)) => std::ptr::from_ref(event.handle()),
            None => std::ptr::null(),
        };
        if Wait::ExportedEvent.is_skipped() { std::ptr::null_mut() } else { event.cast_mut().cast() }
    }

    /// Makes `stream`, a stream of `device`, wait until the memory is written. `device` is the memory's or another that
    /// reaches it.
    ///
    /// # Errors
    /// If the stream belongs to another device or context, or is being captured while the memory is not written yet.
    pub(crate) fn wait_on_stream(&self, device: Device, stream: Stream, wait: Wait) -> Result<()> {
        if self.is_written() && (stream.is_default() || !is_cuda(device)) {
            return Ok(());
        }
        if self.is_ordered_unguarded(device, stream, wait)? {
            return Ok(());
        }
        let current = enter(device)?;
        current.require_own(stream)?;
        self.wait_in(&current, stream, wait)
    }

    /// Like [`Readiness::wait_on_stream`], for a stream of the current context.
    pub(crate) fn wait_in(&self, current: &Current, stream: Stream, wait: Wait) -> Result<()> {
        let Some(event) = self.event().filter(|_| !wait.is_skipped()) else { return Ok(()) };
        self.refuse_captured_event(current)?;
        if current.is_capturing(stream)? {
            // A wait for work outside the capture would make it invalid.
            if self.ask_complete(current.device())? {
                return Ok(());
            }
            let why = "what writes the data is not done";
            return Err(capture::captured_with(current, stream, why, |device| Remedy::WrittenBeforeCapture { device }));
        }
        Ok(current.stream_waits(stream, event)?)
    }

    /// Waits on the host until the memory is written.
    ///
    /// # Errors
    /// If the driver fails, or the wait is interrupted.
    pub(crate) fn wait_on_host(&self, wait: Wait) -> Result<()> {
        if self.is_written() || wait.is_skipped() {
            return Ok(());
        }
        // Enters the device before the event is read, because without its runtime an event is only a number.
        let current = self.enter()?;
        self.refuse_captured_event(&current)?;
        let entered = current.device();
        if self.ask_complete(entered)? {
            return Ok(());
        }
        host::wait(&current, || self.ask_complete(entered))
    }

    /// Marks the memory as lent: others may use it on streams that we do not know, and it is freed behind their work.
    pub(crate) fn lend(&self, wait: Wait) {
        if wait.is_skipped() {
            return;
        }
        self.0.lent.store(true, Ordering::Release);
        for part in self.0.parts.iter().filter(|_| !Wait::LentParts.is_skipped()) {
            part.lend(wait);
        }
    }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readiness")
            .field("device", &self.0.device)
            .field("is_written", &self.is_written())
            .finish_non_exhaustive()
    }
}

/// The error for what a device's runtime would have to do.
pub(crate) fn unknown_runtime(device: Device) -> Error {
    Error::new(ErrorKind::Device, format!("the data is on {device}, whose runtime is not known here"))
        .remedy_is("copy it to the CPU or to CUDA with its own library")
}

/// The error for data that is on more than one device.
pub(crate) fn different_devices(first: Device, other: Device) -> Error {
    Error::new(ErrorKind::Device, format!("the data is on more than one device: {first} and {other}"))
}

/// Waits on the host for the work that one of our own streams has now.
///
/// # Errors
/// If the driver fails, or the wait is interrupted.
pub(crate) fn wait_for_stream(current: &Current, stream: Stream, wait: Wait) -> Result<()> {
    if wait.is_skipped() { Ok(()) } else { settle(current, stream) }
}

/// Makes the primary context of the memory's device current.
///
/// # Errors
/// If the device is not reached through CUDA, or not at all.
pub(crate) fn enter(device: Device) -> Result<Current> {
    if !is_cuda(device) {
        return Err(unknown_runtime(device));
    }
    look();
    host::device(device.id())?.enter()
}

/// Returns whether there is a CUDA driver with a device; loads it.
#[must_use]
pub fn is_available() -> bool {
    crate::cuda::driver().is_ok()
}

/// Returns the device that host-visible memory belongs to, as the driver knows from its address, because DLPack names
/// none. Memory that the driver does not know keeps its device.
pub(crate) fn located(device: Device, address: usize) -> Device {
    if !is_host_visible(device) || address == 0 {
        return device;
    }
    let found = Pointer::of(address).ok().and_then(|pointer| pointer.device);
    found.filter(|found| found.device_type() == device.device_type()).unwrap_or(device)
}

/// Waits on the host for the work that a stream has now, if no event could be recorded behind it.
///
/// # Errors
/// If the driver fails, or the wait is interrupted.
pub(crate) fn settle(current: &Current, stream: Stream) -> Result<()> {
    if current.is_idle(stream)? { Ok(()) } else { host::wait_for(current, stream) }
}

#[cfg(test)]
mod tests;
