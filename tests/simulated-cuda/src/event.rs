//! What an event was last recorded after.

use crate::call::Call;
use crate::clock::Moment;
use crate::error::{Error, Outcome};

/// `CU_EVENT_DISABLE_TIMING`.
const DISABLE_TIMING: u32 = 2;
/// `CU_EVENT_INTERPROCESS`.
const INTERPROCESS: u32 = 4;

/// Can an event have these flags? One that other processes may open cannot record times.
pub(crate) fn check_flags(flags: u32) -> Outcome {
    if flags > 7 || flags & (INTERPROCESS | DISABLE_TIMING) == INTERPROCESS {
        Err(Error::INVALID_VALUE)
    } else {
        Ok(())
    }
}

/// One event.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) context: usize,
    pub(crate) flags: u32,
    pub(crate) recorded: Recorded,
}

/// What the last record of an event came after.
#[derive(Clone, Debug)]
pub(crate) enum Recorded {
    /// Never recorded: complete, and waits for nothing.
    Never,
    /// By the stream of this number.
    In(usize, Moment),
    /// Into the capture of the first number, as its record of the second.
    Capture(usize, usize),
}

impl Call {
    /// The event that a handle stands for.
    pub(crate) fn event(&mut self, handle: usize) -> Outcome<Event> {
        self.context()?;
        let event = self.events.get(&handle).cloned().ok_or(Error::INVALID_HANDLE)?;
        self.check_context(event.context)?;
        Ok(event)
    }

    /// The milliseconds between two finished events: by the virtual clock, if there is one, else a figure without a meaning.
    pub(crate) fn elapsed(&mut self, start: usize, end: usize) -> Outcome<f32> {
        let mut ticks = [0.0_f64; 2];
        for (handle, tick) in [start, end].into_iter().zip(&mut ticks) {
            let event = self.event(handle)?;
            let Recorded::In(stream, at) = event.recorded else { return Err(Error::INVALID_HANDLE) };
            if event.flags & DISABLE_TIMING != 0 {
                return Err(Error::INVALID_HANDLE);
            }
            if self.has_clock() {
                let end = self.end_of(stream, at.tick).filter(|end| *end <= self.time.now).ok_or(Error::NOT_READY)?;
                *tick = end as f64 / 1e6;
                continue;
            }
            if self.streams[stream].done < at.tick {
                return Err(Error::NOT_READY);
            }
            *tick = at.tick as f64 / 1024.0;
        }
        if self.has_clock() { Ok((ticks[1] - ticks[0]) as f32) } else { Ok((ticks[1] - ticks[0]).abs() as f32) }
    }
}
