//! Contexts: which is current, in this thread.

use super::{Out, driver};
use crate::error::Error;

driver! {
    /// Makes a context current, above the one that is.
    fn cuCtxPushCurrent_v2(context: usize) |call| {
        if !call.contexts.contains_key(&context) {
            return Err(Error::INVALID_CONTEXT);
        }
        let thread = call.thread;
        call.threads[thread].contexts.push(context);
        Ok(())
    }

    /// Takes the current context away; the one below is current again.
    fn cuCtxPopCurrent_v2(context: Out<usize>) |call| {
        let thread = call.thread;
        let popped = call.threads[thread].contexts.pop().ok_or(Error::INVALID_CONTEXT)?;
        context.set_if_wanted(popped);
        Ok(())
    }

    /// Puts a context in the place of the current one.
    fn cuCtxSetCurrent(context: usize) |call| {
        if context != 0 && !call.contexts.contains_key(&context) {
            return Err(Error::INVALID_CONTEXT);
        }
        let thread = call.thread;
        let contexts = &mut call.threads[thread].contexts;
        contexts.pop();
        if context != 0 {
            contexts.push(context);
        }
        Ok(())
    }

    /// The current context, or null.
    fn cuCtxGetCurrent(context: Out<usize>) |call| {
        let thread = call.thread;
        context.set(call.threads[thread].contexts.last().copied().unwrap_or(0))
    }

    /// The device of the current context.
    fn cuCtxGetDevice(device: Out<i32>) |call| {
        let current = call.current_device()?;
        device.set(current as i32)
    }

    /// The flags of the current context.
    fn cuCtxGetFlags(flags: Out<u32>) |call| {
        call.context()?;
        flags.set(0)
    }

    /// The version that a context was made for.
    fn cuCtxGetApiVersion(context: usize, version: Out<u32>) |call| {
        if context == 0 {
            call.context()?;
        } else {
            call.check_context(context)?;
        }
        version.set(3020)
    }

    /// The priorities that streams may have.
    fn cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) |call| {
        call.context()?;
        least.set_if_wanted(0);
        greatest.set_if_wanted(-5);
        Ok(())
    }

    /// Makes a context beside the primary one, and makes it current.
    fn cuCtxCreate_v2(context: Out<usize>, _flags: u32, device: i32) |call| {
        let device = call.device(device)?;
        let handle = call.add_context(device, false);
        let thread = call.thread;
        call.threads[thread].contexts.push(handle);
        context.set(handle)
    }

    /// Destroys a context that was made.
    fn cuCtxDestroy_v2(context: usize) |call| {
        let primary = call.contexts.get(&context).map(|context| context.primary);
        if primary != Some(false) {
            return Err(Error::INVALID_CONTEXT);
        }
        if call.contexts[&context].retained == 0 {
            return Err(Error::CONTEXT_IS_DESTROYED);
        }
        call.end_context(context);
        let thread = call.thread;
        let contexts = &mut call.threads[thread].contexts;
        if contexts.last() == Some(&context) {
            contexts.pop();
        }
        Ok(())
    }

    /// Waits for all that is queued in the current context.
    fn cuCtxSynchronize() |call| {
        let context = call.context()?;
        call.refuse_captures_in(context)?;
        call.unsafe_while_capturing()?;
        call.count_explicit_wait();
        call.wait_for_context(context)
    }

    /// Lets kernels of the current context use another context's memory.
    fn cuCtxEnablePeerAccess(peer: usize, flags: u32) |call| {
        let current = call.context()?;
        call.check_context(peer)?;
        if flags != 0 {
            return Err(Error::INVALID_VALUE);
        }
        if call.contexts[&peer].device == call.contexts[&current].device {
            return Err(Error::INVALID_DEVICE);
        }
        let added = call.contexts.get_mut(&current).expect("the current one").peers.insert(peer);
        if added { Ok(()) } else { Err(Error::PEER_ACCESS_ALREADY_ENABLED) }
    }

    /// Takes back what [`cuCtxEnablePeerAccess`] gave.
    fn cuCtxDisablePeerAccess(peer: usize) |call| {
        let current = call.context()?;
        let removed = call.contexts.get_mut(&current).expect("the current one").peers.remove(&peer);
        if removed { Ok(()) } else { Err(Error::PEER_ACCESS_NOT_ENABLED) }
    }
}
