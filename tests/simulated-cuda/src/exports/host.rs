//! Page-locked host memory: the driver's own, and the caller's.

use std::ffi::c_void;

use super::{Out, driver};
use crate::block::{Life, NewBlock, Place};
use crate::call::Call;
use crate::costs::of_pinning;
use crate::error::{Error, Outcome};
use crate::fault;

fn allocate(call: &mut Call, pointer: Out<*mut c_void>, size: usize, flags: u32) -> Outcome {
    let context = call.context()?;
    call.unsafe_while_capturing()?;
    if size == 0 || flags > 7 {
        return Err(Error::INVALID_VALUE);
    }
    fault::watch();
    let device = call.contexts[&context].device;
    let (size, place, life) = (size as u64, Place::Pinned, Life::Live);
    call.spend(of_pinning(size));
    let base = call.memory.add(NewBlock { size, place, context, device, pool: None, flags, life }, None)?;
    pointer.set(base as *mut c_void)
}

/// Waits for all that may use a block of host memory, and lets it go.
fn release(call: &mut Call, pointer: u64, place: Place, otherwise: Error) -> Outcome {
    call.context()?;
    call.unsafe_while_capturing()?;
    let context = call.memory.get(pointer).filter(|block| block.place == place).map(|block| block.context);
    let context = context.ok_or(otherwise)?;
    call.count_implicit_wait();
    call.wait_for_context(context)?;
    call.log_free(pointer);
    call.memory.remove(pointer);
    Ok(())
}

driver! {
    /// Allocates page-locked memory.
    fn cuMemHostAlloc(pointer: Out<*mut c_void>, size: usize, flags: u32) |call| { allocate(call, pointer, size, flags) }

    /// Allocates page-locked memory.
    fn cuMemAllocHost_v2(pointer: Out<*mut c_void>, size: usize) |call| { allocate(call, pointer, size, 0) }

    /// Frees page-locked memory, once all work of the context is done.
    fn cuMemFreeHost(pointer: *mut c_void) |call| {
        release(call, pointer as u64, Place::Pinned, Error::INVALID_VALUE)
    }

    /// Page-locks memory of the caller's.
    fn cuMemHostRegister_v2(pointer: *mut c_void, size: usize, flags: u32) |call| {
        let context = call.context()?;
        call.unsafe_while_capturing()?;
        let (first, size) = (pointer as u64, size as u64);
        if first == 0 || size == 0 || flags > 15 {
            return Err(Error::INVALID_VALUE);
        }
        let end = first.checked_add(size).ok_or(Error::INVALID_VALUE)?;
        if call.memory.overlaps(&(first..end)) {
            return Err(Error::HOST_MEMORY_ALREADY_REGISTERED);
        }
        fault::watch();
        let (device, place) = (call.contexts[&context].device, Place::Registered);
        let new = NewBlock { size, place, context, device, pool: None, flags, life: Life::Live };
        call.memory.add(new, Some(first))?;
        call.spend(of_pinning(size));
        Ok(())
    }

    /// Ends what [`cuMemHostRegister_v2`] began, once all work of the context is done.
    fn cuMemHostUnregister(pointer: *mut c_void) |call| {
        release(call, pointer as u64, Place::Registered, Error::HOST_MEMORY_NOT_REGISTERED)
    }

    /// The address by which a device knows page-locked memory: the same.
    fn cuMemHostGetDevicePointer_v2(device: Out<u64>, pointer: *mut c_void, flags: u32) |call| {
        call.context()?;
        let block = call.memory.find_usable(pointer as u64).filter(|block| block.place != Place::Device);
        if flags != 0 || block.is_none() {
            return Err(Error::INVALID_VALUE);
        }
        device.set(pointer as u64)
    }

    /// The flags with which page-locked memory was allocated.
    fn cuMemHostGetFlags(flags: Out<u32>, pointer: *mut c_void) |call| {
        call.context()?;
        let block = call.memory.find_usable(pointer as u64).filter(|block| block.place == Place::Pinned);
        let found = block.ok_or(Error::INVALID_VALUE)?.flags;
        flags.set(found)
    }
}
