//! Streams.

use std::ffi::c_void;

use super::{Out, driver};
use crate::error::Error;
use crate::event::Recorded;
use crate::execute::Action;

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;

fn create(call: &mut crate::call::Call, stream: Out<usize>, flags: u32, priority: i32) -> crate::error::Outcome {
    let context = call.context()?;
    if flags > NON_BLOCKING {
        return Err(Error::INVALID_VALUE);
    }
    let name = if flags == NON_BLOCKING { "non-blocking" } else { "blocking" };
    let number = call.add_stream(context, name, flags != NON_BLOCKING, priority.clamp(-5, 0));
    let handle = call.streams[number].handle;
    call.stream_handles.insert(handle, number);
    stream.set(handle)
}

driver! {
    /// Makes a stream in the current context.
    fn cuStreamCreate(stream: Out<usize>, flags: u32) |call| { create(call, stream, flags, 0) }

    /// Makes a stream in the current context.
    fn cuStreamCreateWithPriority(stream: Out<usize>, flags: u32, priority: i32) |call| {
        create(call, stream, flags, priority)
    }

    /// Destroys a stream. What is queued runs all the same.
    fn cuStreamDestroy_v2(stream: usize) |call| {
        let number = call.stream(stream)?;
        if call.stream_handles.remove(&stream).is_none() {
            return Err(Error::INVALID_HANDLE);
        }
        call.invalidate_capture_of(number);
        call.streams[number].alive = false;
        call.old_streams.push(stream);
        Ok(())
    }

    /// Waits for all that is queued on a stream.
    fn cuStreamSynchronize(stream: usize) |call| {
        let stream = call.stream(stream)?;
        call.refuse_captured(stream)?;
        call.unsafe_while_capturing()?;
        call.count_explicit_wait();
        call.wait_for_stream(stream)
    }

    /// Whether all that is queued on a stream is done.
    fn cuStreamQuery(stream: usize) |call| {
        let stream = call.stream(stream)?;
        call.refuse_captured(stream)?;
        call.unsafe_while_capturing()?;
        let last = call.streams[stream].last();
        if !call.poll(stream, last.tick) {
            return Err(Error::NOT_READY);
        }
        call.wait_for_moment(stream, &last)
    }

    /// Makes a stream wait for what an event was last recorded after.
    fn cuStreamWaitEvent(stream: usize, event: usize, flags: u32) |call| {
        let stream = call.stream(stream)?;
        let event = call.event(event)?;
        if flags > 1 {
            return Err(Error::INVALID_VALUE);
        }
        if call.wait_captured(stream, &event)? {
            return Ok(());
        }
        if let Recorded::In(_, at) = event.recorded {
            let thread = call.thread;
            call.submit(thread, stream, Action::Marker, Some(&at))?;
        }
        Ok(())
    }

    /// The context of a stream.
    fn cuStreamGetCtx(stream: usize, context: Out<usize>) |call| {
        let stream = call.stream(stream)?;
        context.set(call.streams[stream].context)
    }

    /// The flags of a stream.
    fn cuStreamGetFlags(stream: usize, flags: Out<u32>) |call| {
        let stream = call.stream(stream)?;
        flags.set(u32::from(!call.streams[stream].blocking))
    }

    /// The priority of a stream.
    fn cuStreamGetPriority(stream: usize, priority: Out<i32>) |call| {
        let stream = call.stream(stream)?;
        priority.set(call.streams[stream].priority)
    }

    /// A number that no other stream ever has.
    fn cuStreamGetId(stream: usize, id: Out<u64>) |call| {
        let stream = call.stream(stream)?;
        id.set(stream as u64 + 1)
    }

    /// Queues a function of the host. It may not call the driver.
    fn cuLaunchHostFunc(stream: usize, function: Option<unsafe extern "C" fn(*mut c_void)>, data: *mut c_void) |call| {
        let stream = call.stream(stream)?;
        let function = function.ok_or(Error::INVALID_VALUE)?;
        let thread = call.thread;
        call.submit(thread, stream, Action::Host { function, data: data as usize }, None)?;
        Ok(())
    }
}
