//! Allocates device and page-locked memory; on out-of-memory frees caches and retries once.

use super::{Wait, drain, host, settle};
use crate::cuda::{
    Current, DeviceBuffer, Event, MemorySource, NoMemory, PinnedBlock, PinnedBuffer, Stream, free_pinned, free_plain,
    memory_source, trim_pool,
};
use crate::error::{Error, ErrorKind, Remedy, Result};

/// What to do where there is no memory.
pub(super) const FREE_SOME: &str = "let go of results, call empty_cache(), or work on smaller batches";

/// Memory for a result, from where this thread's results come, for what `stream` is given from now on. `bytes` is not 0.
///
/// # Errors
/// When there is none, or an allocator fails or gives what cannot be used. Everything stays usable.
pub(crate) fn allocate(current: &Current, bytes: usize, stream: Stream) -> Result<DeviceBuffer> {
    allocate_from(&memory_source(), current, bytes, stream)
}

/// As [`allocate`], of memory that is needed only during a conversion, which is always of the pool.
pub(crate) fn allocate_scratch(current: &Current, bytes: usize, stream: Stream) -> Result<DeviceBuffer> {
    allocate_from(&MemorySource::Pool, current, bytes, stream)
}

fn allocate_from(source: &MemorySource, current: &Current, bytes: usize, stream: Stream) -> Result<DeviceBuffer> {
    let made = DeviceBuffer::new(source, current, bytes, stream).or_else(|why| match why {
        NoMemory::Exhausted(_) => {
            give_back(current);
            DeviceBuffer::new(source, current, bytes, stream)
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

/// Gives back to the device what nothing uses. The host may wait.
fn give_back(current: &Current) {
    drain();
    // Where the driver refuses there is still no memory, which is the error then. What was just freed is so after a moment.
    let _ = settle(current, current.free_stream());
    let _ = trim_pool(current);
    if let Ok(waits) = free_plain(current) {
        host::count(waits);
    }
}

/// Has `stream` wait for what the stream has now that memory of another library is ordered by: that may have been let go with
/// work under way.
fn wait_behind(current: &Current, stream: Stream, behind: Stream) -> Result<()> {
    if Wait::AllocatorStream.is_skipped() {
        return Ok(());
    }
    current.require_own(behind)?;
    // An event there would be one of the graph, and to wait for it would draw our stream in.
    if current.is_capturing(behind)? {
        let reason = "the stream that memory is allocated on is being captured";
        return Err(Error::new(ErrorKind::Device, reason).remedy_is(Remedy::BeforeCapture));
    }
    let event = Event::record(current, behind)?;
    Ok(current.stream_waits(stream, *event.handle())?)
}

fn exhausted(current: &Current, bytes: usize, said: Option<String>) -> Error {
    let device = current.device();
    let used = device.pool_use().map_or(0, |pool| pool.used);
    let used = used + (device.plain_use().0 + device.foreign_use()) as u64;
    let said = said.map_or_else(String::new, |said| format!(" (the allocator: {said})"));
    let reason = format!(
        "cuda:{} has no memory for {bytes} bytes: {used} bytes are in use by this package{said}",
        device.ordinal()
    );
    Error::new(ErrorKind::Memory, reason).remedy_is(FREE_SOME)
}

/// Page-locked memory of the host, for a result. `bytes` is not 0.
///
/// # Errors
/// When there is none. Everything stays usable.
pub(crate) fn page_locked(current: &Current, bytes: usize) -> Result<PinnedBuffer> {
    let status = match PinnedBuffer::new(current, bytes) {
        Err(status) if status.is_out_of_memory() => status,
        made => return Ok(made?),
    };
    drain();
    if let Ok(waits) = free_pinned(current) {
        host::count(waits);
    }
    match PinnedBuffer::new(current, bytes) {
        Err(again) if again.is_out_of_memory() => {
            let reason =
                format!("the host has no page-locked memory for {bytes} bytes: {}", Error::from(status).reason());
            Err(Error::new(ErrorKind::Memory, reason).remedy_is(FREE_SOME))
        }
        made => Ok(made?),
    }
}

/// A page-locked block to copy through; `None` where there are as many as `ARROW_DLPACK_PINNED_BYTES` allows, and copies are under
/// way in all of them: who has some of those waits for the oldest, and who has none takes [`PinnedBlock::take`].
///
/// # Errors
/// When the host has no such memory, or the environment is wrong.
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
