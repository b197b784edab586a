//! Device and managed memory, and what a pointer is.

use std::ffi::c_void;

use super::{In, Out, driver};
use crate::block::{Life, NewBlock, Origin, Place};
use crate::call::Call;
use crate::clock::Clock;
use crate::error::{Error, Outcome};
use crate::execute::Action;
use crate::fault;
use crate::pointer::{Answer, unknown};

/// `CU_MEM_ATTACH_GLOBAL` and `CU_MEM_ATTACH_HOST`; attaching to one stream is not simulated.
const ATTACH: std::ops::RangeInclusive<u32> = 1..=2;

fn free(call: &mut Call, base: u64) -> Outcome {
    call.context()?;
    call.unsafe_while_capturing()?;
    let block = call.memory.get_mut(base).ok_or(Error::INVALID_VALUE)?;
    let is_ours = matches!(block.place, Place::Device | Place::Managed) && matches!(block.origin, Origin::Driver);
    if block.freeing || block.is_nobodys() || !is_ours {
        return Err(Error::INVALID_VALUE);
    }
    let (context, pool) = (block.context, block.pool);
    call.count_implicit_wait();
    // Memory of a pool is taken to be out of use: whoever frees it has to have waited.
    if pool.is_none() {
        call.wait_for_context(context)?;
    }
    call.log_free(base);
    call.memory.get_mut(base).expect("looked at just now").freeing = true;
    call.free_now(base)
}

fn put(out: *mut c_void, answer: Answer) -> Outcome {
    if out.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    let bytes = answer.value.to_ne_bytes();
    // SAFETY: the caller has room for a value of the attribute that it named.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), out.cast(), answer.bytes) };
    Ok(())
}

driver! {
    /// Allocates device memory.
    fn cuMemAlloc_v2(pointer: Out<u64>, size: usize) |call| {
        call.context()?;
        call.unsafe_while_capturing()?;
        let base = call.allocate(size as u64)?;
        pointer.set(base)
    }

    /// Frees device or managed memory, once all work of the context is done.
    fn cuMemFree_v2(pointer: u64) |call| {
        if pointer == 0 {
            call.context()?;
            return Ok(());
        }
        free(call, pointer)
    }

    /// Allocates memory that the host and every device see at the same address.
    fn cuMemAllocManaged(pointer: Out<u64>, size: usize, flags: u32) |call| {
        let context = call.context()?;
        call.unsafe_while_capturing()?;
        if size == 0 || !ATTACH.contains(&flags) {
            return Err(Error::INVALID_VALUE);
        }
        fault::watch();
        let (size, device) = (size as u64, call.contexts[&context].device);
        call.take_memory(device, size, None, &Clock::default())?;
        let new = NewBlock { size, place: Place::Managed, context, device, pool: None, flags, life: Life::Live };
        let base = call.memory.add(new, None)?;
        pointer.set(base)
    }

    /// Moves managed memory ahead of its use: nothing moves here.
    fn cuMemPrefetchAsync(pointer: u64, size: usize, device: i32, stream: usize) |call| {
        let stream = call.stream(stream)?;
        if device != -1 {
            call.device(device)?;
        }
        let block = call.memory.find_usable(pointer).filter(|block| block.place == Place::Managed);
        if block.is_none_or(|block| pointer + size as u64 > block.base + block.size) {
            return Err(Error::INVALID_VALUE);
        }
        let thread = call.thread;
        call.submit(thread, stream, Action::Marker, None)?;
        Ok(())
    }

    /// How much memory the device of the current context has, and has left.
    fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) |call| {
        let device = call.current_device()?;
        let kept: u64 = call.pools.values().filter(|pool| pool.device == device).map(|pool| pool.kept).sum();
        let memory = call.settings.memory;
        free.set_if_wanted(memory.saturating_sub(call.devices[device].used + kept) as usize);
        total.set_if_wanted(memory as usize);
        Ok(())
    }

    /// The block that a pointer points into.
    fn cuMemGetAddressRange_v2(base: Out<u64>, size: Out<usize>, pointer: u64) |call| {
        call.context()?;
        let block = call.memory.find_usable(pointer).ok_or(Error::NOT_FOUND)?;
        // Of reserved addresses, the part that is mapped together.
        let whole = match block.origin {
            Origin::Reserved(_) => block.mapping(pointer).map(|mapping| mapping.range.clone()).ok_or(Error::NOT_FOUND)?,
            Origin::Driver | Origin::Imported { .. } => block.base..block.base + block.size,
        };
        base.set_if_wanted(whole.start);
        size.set_if_wanted((whole.end - whole.start) as usize);
        Ok(())
    }

    /// One attribute of a pointer.
    fn cuPointerGetAttribute(data: *mut c_void, attribute: u32, pointer: u64) |call| {
        let answer = call.pointer_attribute(attribute, pointer)?;
        put(data, answer)
    }

    /// Several attributes of a pointer. What is not known of it is null or zero, and no error.
    fn cuPointerGetAttributes(count: u32, attributes: In<u32>, data: In<*mut c_void>, pointer: u64) |call| {
        for index in 0..count as usize {
            let attribute = attributes.get(index)?;
            let nothing = unknown(attribute)?;
            put(data.get(index)?, call.pointer_attribute(attribute, pointer).unwrap_or(nothing))?;
        }
        Ok(())
    }
}
