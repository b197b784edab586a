//! Events.

use super::{Out, driver};
use crate::call::Call;
use crate::error::{Error, Outcome};
use crate::event::{Event, Recorded, check_flags};
use crate::execute::Action;

fn record(call: &mut Call, event: usize, stream: usize) -> Outcome {
    let stream = call.stream(stream)?;
    let context = call.event(event)?.context;
    if context != call.streams[stream].context {
        return Err(Error::INVALID_HANDLE);
    }
    let recorded = if call.streams[stream].capture.is_some() {
        call.record_captured(stream)?
    } else {
        let thread = call.thread;
        Recorded::In(stream, call.submit(thread, stream, Action::Marker, None)?)
    };
    call.events.get_mut(&event).expect("found just now").recorded = recorded;
    Ok(())
}

driver! {
    /// Makes an event in the current context.
    fn cuEventCreate(event: Out<usize>, flags: u32) |call| {
        let context = call.context()?;
        check_flags(flags)?;
        let handle = call.handle();
        call.events.insert(handle, Event { context, flags, recorded: Recorded::Never });
        event.set(handle)
    }

    /// Destroys an event. Who waits for it waits on.
    fn cuEventDestroy_v2(event: usize) |call| {
        call.event(event)?;
        call.events.remove(&event);
        Ok(())
    }

    /// Has an event stand for all that is queued on a stream by now.
    fn cuEventRecord(event: usize, stream: usize) |call| { record(call, event, stream) }

    /// Has an event stand for all that is queued on a stream by now.
    fn cuEventRecordWithFlags(event: usize, stream: usize, flags: u32) |call| {
        if flags > 1 {
            return Err(Error::INVALID_VALUE);
        }
        record(call, event, stream)
    }

    /// Whether what an event stands for is done.
    fn cuEventQuery(event: usize) |call| {
        let event = call.event(event)?;
        call.refuse_captured_event(&event)?;
        call.unsafe_while_capturing()?;
        let Recorded::In(stream, at) = event.recorded else { return Ok(()) };
        if !call.poll(stream, at.tick) {
            return Err(Error::NOT_READY);
        }
        call.wait_for_moment(stream, &at)
    }

    /// Waits for what an event stands for.
    fn cuEventSynchronize(event: usize) |call| {
        let event = call.event(event)?;
        call.refuse_captured_event(&event)?;
        call.unsafe_while_capturing()?;
        call.count_explicit_wait();
        let Recorded::In(stream, at) = event.recorded else { return Ok(()) };
        call.wait_for_moment(stream, &at)
    }

    /// The time between two events, in milliseconds.
    fn cuEventElapsedTime(milliseconds: Out<f32>, start: usize, end: usize) |call| {
        let elapsed = call.elapsed(start, end)?;
        milliseconds.set(elapsed)
    }
}
