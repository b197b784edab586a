//! Allocates device and page-locked memory; on out-of-memory frees caches and retries once.

use std::time::Duration;

use super::capture::captured_with;
use super::deferred_free::retire;
use super::{Wait, drain, host, reaper, settle};
use crate::cuda::{
    Called, Current, DeviceBuffer, Event, MemorySource, NoMemory, PinnedBlock, PinnedBuffer, Stream, free_pinned,
    free_unpooled, memory_source, trim_pool,
};
use crate::error::{Error, ErrorKind, Remedy, Result};

/// The longest that an allocation waits for memory that the reaper is releasing.
const LONGEST_RELEASE: Duration = Duration::from_secs(1);

/// The remedy when memory is out.
pub(super) const FREE_SOME: &str = "let go of results, call empty_cache(), or work on smaller batches";

/// Allocates memory for a result with this thread's allocator, for work that `stream` gets from now on. `bytes` is not
/// 0.
///
/// # Errors
/// If memory is out, or an allocator fails or returns unusable memory. Everything stays usable.
pub(crate) fn allocate(current: &Current, bytes: usize, stream: Stream) -> Result<DeviceBuffer> {
    allocate_from(&memory_source(), current, bytes, stream)
}

/// Like [`allocate`], for scratch memory, which always comes from the pool.
pub(crate) fn allocate_scratch(current: &Current, bytes: usize, stream: Stream) -> Result<DeviceBuffer> {
    allocate_from(&MemorySource::Pool, current, bytes, stream)
}

fn allocate_from(source: &MemorySource, current: &Current, bytes: usize, stream: Stream) -> Result<DeviceBuffer> {
    let made = DeviceBuffer::new(source, current, bytes, stream, retire).or_else(|why| match why {
        NoMemory::Exhausted(_) => {
            give_back(current);
            DeviceBuffer::new(source, current, bytes, stream, retire)
        }
        NoMemory::Failed(_) => Err(why),
    });
    let (buffer, behind) = made.map_err(|why| match why {
        NoMemory::Exhausted(said) => exhausted(current, bytes, said),
        NoMemory::Failed(error) => error,
    })?;
    if let Some(behind) = behind {
        wait_behind(current, stream, behind)?;
    }
    Ok(buffer)
}

/// Frees the caches of a device. The host may wait.
fn give_back(current: &Current) {
    drain_and_wait();
    // If the driver refuses, the allocation fails again, and that is the error. Blocks freed just now become available
    // after a moment.
    let _ = settle(current, current.free_stream());
    free_detached(current, trim_pool);
    free_detached(current, free_unpooled);
}

/// Releases the blocks that nothing uses any more, and waits a while for those that the reaper is releasing just now: a release
/// may need the interpreter's lock, which this thread may hold.
fn drain_and_wait() {
    drain();
    // A release that takes longer leaves the allocation to fail.
    let _ = host::detached(|| {
        reaper::wait_for_releases(Some(LONGEST_RELEASE));
        Ok(())
    });
}

/// Frees a cache of a device. The host may wait inside the driver, and does so without the interpreter's lock.
fn free_detached(current: &Current, free: fn(&Current) -> Called<u64>) {
    let device = current.device();
    if let Ok(waits) = host::detached(|| Ok(free(&device.enter_unchecked()?)?)) {
        host::count(waits);
    }
}

/// Makes `stream` wait for the work on the stream whose order another library's memory follows, because that work may
/// still use the memory.
fn wait_behind(current: &Current, stream: Stream, behind: Stream) -> Result<()> {
    if Wait::AllocatorStream.is_skipped() {
        return Ok(());
    }
    current.require_own(behind)?;
    // An event on a captured stream would belong to the graph, and a wait for it would draw our stream in.
    if current.is_capturing(behind)? {
        let why = "memory is allocated on it";
        return Err(captured_with(current, behind, why, |device| Remedy::BeforeCaptureOrPlain { device }));
    }
    let event = Event::record(current, behind)?;
    Ok(current.stream_waits(stream, *event.handle())?)
}

fn exhausted(current: &Current, bytes: usize, said: Option<String>) -> Error {
    let device = current.device();
    let used = device.pool_use().map_or(0, |pool| pool.used);
    let used = used + (device.unpooled_use().0 + device.foreign_use()) as u64;
    let said = said.map_or_else(String::new, |said| format!(" (the allocator: {said})"));
    let reason = format!(
        "cuda:{} has no memory for {bytes} bytes: {used} bytes are in use by this package{said}",
        device.ordinal()
    );
    Error::new(ErrorKind::Memory, reason).remedy_is(FREE_SOME)
}

/// Allocates page-locked host memory for a result. `bytes` is not 0.
///
/// # Errors
/// If memory is out. Everything stays usable.
pub(crate) fn page_locked(current: &Current, bytes: usize) -> Result<PinnedBuffer> {
    let status = match PinnedBuffer::new(current, bytes) {
        Err(status) if status.is_out_of_memory() => status,
        made => return Ok(made?),
    };
    drain_and_wait();
    free_detached(current, free_pinned);
    match PinnedBuffer::new(current, bytes) {
        Err(again) if again.is_out_of_memory() => {
            let reason =
                format!("the host has no page-locked memory for {bytes} bytes: {}", Error::from(status).reason());
            Err(Error::new(ErrorKind::Memory, reason).remedy_is(FREE_SOME))
        }
        made => Ok(made?),
    }
}

/// Returns a staging buffer; `None` if there are as many as `ARROW_DLPACK_PINNED_BYTES` allows and all are in use. A
/// caller that holds some then waits for its oldest; a caller that holds none calls [`PinnedBlock::take`].
///
/// # Errors
/// If page-locked memory is out, or the environment variable is invalid.
pub(crate) fn staging_block(current: &Current) -> Result<Option<PinnedBlock>> {
    if let Some(block) = PinnedBlock::idle() {
        return Ok(Some(block));
    }
    drain();
    match PinnedBlock::idle() {
        Some(block) => Ok(Some(block)),
        None => PinnedBlock::new_within_limit(current),
    }
}
