//! Streams that are being captured into graphs, and what that forbids.

use std::collections::BTreeSet;

use crate::call::Call;
use crate::error::{Error, Outcome};
use crate::event::{Event, Recorded};
use crate::execute::Action;
use crate::state::State;

/// How far a capture, or a thread, forbids calls that are unsafe while capturing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// In every thread that does not say otherwise.
    Global,
    /// In the thread that began the capture.
    ThreadLocal,
    /// Nowhere.
    Relaxed,
}

impl Mode {
    /// The driver's number of a mode, read.
    pub(crate) fn from_number(number: u32) -> Outcome<Mode> {
        match number {
            0 => Ok(Mode::Global),
            1 => Ok(Mode::ThreadLocal),
            2 => Ok(Mode::Relaxed),
            _ => Err(Error::INVALID_VALUE),
        }
    }

    /// The driver's number of the mode.
    pub(crate) fn number(self) -> u32 {
        match self {
            Mode::Global => 0,
            Mode::ThreadLocal => 1,
            Mode::Relaxed => 2,
        }
    }
}

/// One capture, begun on one stream.
#[derive(Debug)]
pub(crate) struct Capture {
    mode: Mode,
    origin: usize,
    thread: usize,
    active: bool,
    valid: bool,
    actions: Vec<Action>,
    /// For each event that was recorded into it, the operations that the event comes after.
    recorded: Vec<BTreeSet<usize>>,
}

/// A stream's part in a capture.
#[derive(Clone, Debug)]
pub(crate) struct Captured {
    pub(crate) capture: usize,
    /// The operations of the capture that the stream's next one comes after.
    after: BTreeSet<usize>,
}

/// What was captured: operations, in an order that its waits allow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Graph {
    pub(crate) actions: Vec<Action>,
}

/// What `cuStreamIsCapturing` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    None = 0,
    Active = 1,
    Invalidated = 2,
}

impl State {
    /// Whether a stream is being captured, and in which capture.
    pub(crate) fn capture_status(&self, stream: usize) -> Outcome<(Status, usize)> {
        match &self.streams[stream].capture {
            // To ask breaks nothing, unlike using the stream.
            None if self.captured_beside(stream).is_some() => Err(Error::STREAM_CAPTURE_IMPLICIT),
            None => Ok((Status::None, 0)),
            Some(part) if self.captures[part.capture].valid => Ok((Status::Active, part.capture)),
            Some(part) => Ok((Status::Invalidated, part.capture)),
        }
    }

    /// A captured stream that the legacy default stream would have to wait for, if `stream` is that.
    pub(crate) fn captured_beside(&self, stream: usize) -> Option<usize> {
        let context = self.streams[stream].context;
        let captured =
            |other: &crate::stream::Stream| other.context == context && other.blocking && other.capture.is_some();
        let is_legacy = self.contexts[&context].legacy == stream;
        self.streams.iter().position(captured).filter(|_| is_legacy)
    }

    /// The legacy default stream cannot be used beside a captured stream that it waits for: the capture is broken by the attempt.
    pub(crate) fn refuse_beside_capture(&mut self, stream: usize) -> Outcome {
        let Some(other) = self.captured_beside(stream) else { return Ok(()) };
        self.invalidate_capture_of(other);
        Err(Error::STREAM_CAPTURE_IMPLICIT)
    }

    /// Adds an operation to the capture of a stream, instead of queueing it.
    pub(crate) fn capture_action(&mut self, stream: usize, action: Action) -> Outcome<crate::clock::Moment> {
        let part = self.streams[stream].capture.as_mut().expect("asked for a captured stream");
        let capture = &mut self.captures[part.capture];
        if !capture.valid {
            return Err(Error::STREAM_CAPTURE_INVALIDATED);
        }
        part.after.insert(capture.actions.len());
        capture.actions.push(action);
        Ok(self.streams[stream].last())
    }

    /// What a stream's capture was doing is wrong: it ends without a graph.
    pub(crate) fn invalidate_capture_of(&mut self, stream: usize) {
        if let Some(part) = &self.streams[stream].capture {
            self.captures[part.capture].valid = false;
        }
    }

    /// Lets the streams of a capture go.
    fn leave_capture(&mut self, capture: usize) {
        for stream in &mut self.streams {
            if stream.capture.as_ref().is_some_and(|part| part.capture == capture) {
                stream.capture = None;
            }
        }
    }
}

impl Call {
    /// A call that is unsafe while capturing: refused, and the captures that forbid it are invalid from now on.
    pub(crate) fn unsafe_while_capturing(&mut self) -> Outcome {
        let (thread, mode) = (self.thread, self.threads[self.thread].capture_mode);
        let forbids = |capture: &&mut Capture| {
            let own = capture.thread == thread && capture.mode != Mode::Relaxed;
            capture.active
                && match mode {
                    Mode::Global => own || capture.mode == Mode::Global,
                    Mode::ThreadLocal => own,
                    Mode::Relaxed => false,
                }
        };
        let mut refused = false;
        for capture in self.captures.iter_mut().filter(forbids) {
            capture.valid = false;
            refused = true;
        }
        if refused { Err(Error::STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }

    /// A call that no captured event takes: it stands for no work of the device. The attempt breaks its capture.
    pub(crate) fn refuse_captured_event(&mut self, event: &Event) -> Outcome {
        let Recorded::Capture(capture, _) = event.recorded else { return Ok(()) };
        self.captures[capture].valid = false;
        Err(Error::CAPTURED_EVENT)
    }

    /// A call that takes all streams of a context: refused while one is captured, and those captures are broken by the attempt.
    pub(crate) fn refuse_captures_in(&mut self, context: usize) -> Outcome {
        let of_context = self.streams.iter().filter(|stream| stream.context == context);
        let captures: BTreeSet<usize> =
            of_context.filter_map(|stream| stream.capture.as_ref().map(|part| part.capture)).collect();
        for capture in &captures {
            self.captures[*capture].valid = false;
        }
        if captures.is_empty() { Ok(()) } else { Err(Error::STREAM_CAPTURE_UNSUPPORTED) }
    }

    /// A call that no captured stream takes.
    pub(crate) fn refuse_captured(&mut self, stream: usize) -> Outcome {
        self.refuse_beside_capture(stream)?;
        if self.streams[stream].capture.is_none() {
            return Ok(());
        }
        self.invalidate_capture_of(stream);
        Err(Error::STREAM_CAPTURE_UNSUPPORTED)
    }

    /// Begins a capture.
    pub(crate) fn begin_capture(&mut self, stream: usize, mode: Mode) -> Outcome {
        let context = self.streams[stream].context;
        if self.contexts[&context].legacy == stream {
            return Err(Error::STREAM_CAPTURE_UNSUPPORTED);
        }
        if self.streams[stream].capture.is_some() {
            return Err(Error::ILLEGAL_STATE);
        }
        let (thread, capture) = (self.thread, self.captures.len());
        let (actions, recorded) = (Vec::new(), Vec::new());
        self.captures.push(Capture { mode, origin: stream, thread, active: true, valid: true, actions, recorded });
        self.streams[stream].capture = Some(Captured { capture, after: BTreeSet::new() });
        Ok(())
    }

    /// Ends a capture on the stream where it began.
    pub(crate) fn end_capture(&mut self, stream: usize) -> Outcome<Graph> {
        let part = self.streams[stream].capture.clone().ok_or(Error::ILLEGAL_STATE)?;
        let thread = self.thread;
        let capture = &mut self.captures[part.capture];
        if capture.origin != stream {
            capture.valid = false;
            return Err(Error::STREAM_CAPTURE_UNMATCHED);
        }
        if capture.mode != Mode::Relaxed && capture.thread != thread {
            return Err(Error::STREAM_CAPTURE_WRONG_THREAD);
        }
        capture.active = false;
        let actions = std::mem::take(&mut capture.actions);
        let valid = capture.valid;
        self.leave_capture(part.capture);
        if !valid {
            return Err(Error::STREAM_CAPTURE_INVALIDATED);
        }
        if part.after.len() < actions.len() {
            return Err(Error::STREAM_CAPTURE_UNJOINED);
        }
        Ok(Graph { actions })
    }

    /// What an event says after it was recorded in a captured stream.
    pub(crate) fn record_captured(&mut self, stream: usize) -> Outcome<Recorded> {
        let part = self.streams[stream].capture.clone().expect("asked for a captured stream");
        let capture = &mut self.captures[part.capture];
        if !capture.valid {
            return Err(Error::STREAM_CAPTURE_INVALIDATED);
        }
        capture.recorded.push(part.after);
        Ok(Recorded::Capture(part.capture, capture.recorded.len() - 1))
    }

    /// Neither the streams nor the events of a broken capture can be used until it ends. The attempt breaks the other one's capture.
    fn refuse_broken_captures(&mut self, stream: usize, event: &Event) -> Outcome {
        let of_event = match event.recorded {
            Recorded::Capture(capture, _) => Some(capture),
            Recorded::Never | Recorded::In(..) => None,
        };
        let of_stream = self.streams[stream].capture.as_ref().map(|part| part.capture);
        let running: Vec<usize> =
            of_event.into_iter().chain(of_stream).filter(|capture| self.captures[*capture].active).collect();
        if running.iter().all(|capture| self.captures[*capture].valid) {
            return Ok(());
        }
        for capture in running {
            self.captures[capture].valid = false;
        }
        Err(Error::STREAM_CAPTURE_INVALIDATED)
    }

    /// A wait in which a capture has a part; the answer is whether it was one.
    pub(crate) fn wait_captured(&mut self, stream: usize, event: &Event) -> Outcome<bool> {
        self.refuse_broken_captures(stream, event)?;
        let (event_capture, record) = match (&event.recorded, &self.streams[stream].capture) {
            (Recorded::Capture(capture, record), _) => (*capture, *record),
            (_, None) | (Recorded::Never, _) => return Ok(false),
            (Recorded::In(..), Some(_)) => {
                self.invalidate_capture_of(stream);
                return Err(Error::STREAM_CAPTURE_ISOLATION);
            }
        };
        if !self.captures[event_capture].active {
            return Err(Error::CAPTURED_EVENT);
        }
        let legacy = self.contexts[&self.streams[stream].context].legacy;
        if stream == legacy {
            self.captures[event_capture].valid = false;
            return Err(Error::STREAM_CAPTURE_IMPLICIT);
        }
        let after = self.captures[event_capture].recorded[record].clone();
        match &mut self.streams[stream].capture {
            Some(part) if part.capture != event_capture => {
                let other = part.capture;
                self.captures[other].valid = false;
                self.captures[event_capture].valid = false;
                return Err(Error::STREAM_CAPTURE_MERGE);
            }
            Some(part) => part.after.extend(after),
            None => self.streams[stream].capture = Some(Captured { capture: event_capture, after }),
        }
        Ok(true)
    }
}
