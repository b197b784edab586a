//! Loader batches: rows in page-locked memory, copied from there to a device.

use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::own_memory::{OwnBuffer, host_address, written};
use crate::alloc::{AnyBuffer, ForeignBuffer, Owner, PooledBuffer};
use crate::convert::{RowBlock, RowsPlace};
use crate::cuda::{Called, Current, Stream, thread_sync};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::ffi::dlpack::DLDeviceType;
use crate::stream_order::{self, Behind, End, Readiness, Wait, allocate};
use crate::tensor::Tensor;

/// Allocates page-locked memory of a device, for a pool.
///
/// # Errors
/// If there is no such device, or memory is out.
pub(crate) fn page_locked(device: Device, bytes: usize) -> Result<AnyBuffer> {
    let current = stream_order::enter(device)?;
    let bytes = bytes.max(1);
    let pinned = stream_order::page_locked(&current, bytes)?;
    let start = NonNull::new(pinned.start()).ok_or_else(|| Error::internal("page-locked memory at no address"))?;
    // SAFETY: so many bytes from the start of a page, which are the buffer's alone until it is dropped.
    Ok(AnyBuffer::Foreign(unsafe { ForeignBuffer::new(start, bytes, Arc::new(pinned)) }))
}

/// Page-locked memory that returns to its pool, with the work that still uses it.
///
/// The returning blocks, which the pool's thread checks. Blocks that are left when this is dropped return behind their
/// work, too.
#[derive(Default)]
pub(crate) struct Returning(Mutex<Vec<(PooledBuffer, Behind)>>);

impl Returning {
    /// Returns the blocks that no work uses any more; returns the number of the others. Never waits.
    ///
    /// # Errors
    /// When the driver fails.
    pub(crate) fn collect(&self, current: &Current) -> Called<usize> {
        let mut entries = std::mem::take(&mut *self.lock());
        let mut outcome = Ok(());
        let free: Vec<_> = entries
            .extract_if(.., |(_, behind)| match outcome {
                Ok(()) => behind.is_done(current).unwrap_or_else(|status| {
                    outcome = Err(status);
                    false
                }),
                Err(_) => false,
            })
            .collect();
        let mut lock = self.lock();
        lock.append(&mut entries);
        let left = lock.len();
        drop(lock);
        free.iter().for_each(|(memory, _)| thread_sync::receive(memory.as_ptr().addr()));
        // Without the lock, and in order, so that the least recently used block is used first.
        drop(free);
        outcome.map(|()| left)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(PooledBuffer, Behind)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, memory: PooledBuffer, behind: Behind) {
        thread_sync::send(memory.as_ptr().addr());
        self.lock().push((memory, behind));
    }
}

impl Drop for Returning {
    fn drop(&mut self) {
        for (memory, behind) in std::mem::take(self.0.get_mut().unwrap_or_else(PoisonError::into_inner)) {
            free_behind(memory, behind);
        }
    }
}

/// Returns page-locked memory when its work is done, on whichever thread finds that.
fn free_behind(memory: PooledBuffer, behind: Behind) {
    thread_sync::send(memory.as_ptr().addr());
    behind.then(
        memory.len(),
        Box::new(move || {
            thread_sync::receive(memory.as_ptr().addr());
            drop(memory);
        }),
    );
}

impl fmt::Debug for Returning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Returning").finish_non_exhaustive()
    }
}

/// Returns the rows as a tensor in their page-locked memory, which returns to the pool behind the work that used it.
///
/// # Errors
/// If the shape exceeds 64 bits.
pub(crate) fn in_page_locked(block: RowBlock, device: Device, returning: &Arc<Returning>) -> Result<Tensor> {
    let place = |memory: PooledBuffer| {
        let (data, readiness) = (memory.as_ptr(), Readiness::on_device(device));
        thread_sync::send(data.addr());
        let owner =
            PageLocked { memory: Some(memory), readiness: readiness.clone(), returning: Arc::downgrade(returning) };
        Ok(RowsPlace { data, device, owner: Arc::new(owner), readiness: Some(readiness) })
    };
    // SAFETY: the rows stay in the block, which `PageLocked` keeps and nobody else has.
    unsafe { block.into_tensor_by(place) }
}

/// Tells the driver that this thread takes over what another one has packed.
pub(crate) fn taken_over(tensor: &Tensor) {
    if tensor.device().device_type() == DLDeviceType::CUDA_HOST {
        thread_sync::receive(tensor.as_ptr().addr());
    }
}

/// Page-locked memory of a tensor.
struct PageLocked {
    memory: Option<PooledBuffer>,
    readiness: Readiness,
    returning: Weak<Returning>,
}

impl Drop for PageLocked {
    fn drop(&mut self) {
        let Some(memory) = self.memory.take() else { return };
        match (self.readiness.end(), self.returning.upgrade()) {
            (End::Now, _) => drop(memory),
            (End::Behind(behind), Some(returning)) => returning.push(memory, behind),
            (End::Behind(behind), None) => free_behind(memory, behind),
            (End::Never, _) => std::mem::forget(memory),
        }
    }
}

/// Returns the rows as a tensor on a device, copied in the order of `stream` from their page-locked memory, which
/// returns to the pool when the copy is done.
///
/// # Errors
/// If an allocation or the driver fails; nothing uses the rows' memory then. If the shape exceeds 64 bits.
pub(crate) fn to_device(
    block: RowBlock,
    current: &Current,
    stream: Stream,
    device: Device,
    returning: &Returning,
) -> Result<Tensor> {
    let bytes = block.len();
    let place = |memory: PooledBuffer| {
        if bytes == 0 {
            let readiness = Readiness::on_device(device);
            return Ok(RowsPlace {
                data: std::ptr::null_mut(),
                device,
                owner: Arc::new(()),
                readiness: Some(readiness),
            });
        }
        let buffer = allocate(current, bytes, stream)?;
        let start = buffer.start();
        let data = std::ptr::without_provenance_mut::<u8>(host_address(start)?);
        // SAFETY: as many bytes as the block has rows for, written, and not written again before the copy is done; the buffer
        // was made for them.
        let copied = unsafe { current.copy_from_host(start, memory.as_ptr().expose_provenance(), bytes, stream) };
        let recorded = copied
            .map_err(Error::from)
            .and_then(|()| written(device, current, stream, Wait::BatchCopied))
            .and_then(|readiness| Ok((readiness, Behind::recorded(current, stream, Wait::BatchMemory)?)));
        let (readiness, behind) = match recorded {
            Ok(recorded) => recorded,
            Err(error) => {
                // The copy may still run. If that cannot be known, both are left to it.
                if stream_order::settle(current, stream).is_err() {
                    std::mem::forget((buffer, memory));
                }
                return Err(error);
            }
        };
        returning.push(memory, behind);
        let owner: Owner = Arc::new(OwnBuffer::new(buffer, readiness.clone()));
        Ok(RowsPlace { data, device, owner, readiness: Some(readiness) })
    };
    // SAFETY: all bytes of the rows are copied to memory of our own, behind which the order is.
    unsafe { block.into_tensor_by(place) }
}
