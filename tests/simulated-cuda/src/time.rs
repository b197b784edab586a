//! What time is it on the virtual clock, who waits for which time, and what was done when?
//!
//! The clock moves by the cost of each call of the driver, and to the next time that some thread waits for once every thread of the
//! process waits. It never moves by the time that a test takes. All times are nanoseconds since the driver was first called.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::call::{Call, threads_inside};
use crate::clock::Actor;
use crate::costs::{LEGACY_BARRIER, Touched};
use crate::execute::Action;
use crate::settings::Schedule;
use crate::state::{CHANGED, State};
use crate::threads;

/// How long a thread that waits for the clock sleeps before it asks again whether all others wait.
pub(crate) const PAUSE: Duration = Duration::from_micros(300);
/// After so much time of the processors without a call of the driver the clock moves although a thread computes. Such moves are counted.
const PATIENCE: Duration = Duration::from_secs(3);
/// A call that costs more is on the timeline.
const LONG_CALL: u64 = 10_000;
/// The most that a timeline holds.
const MOST_SPANS: usize = 1 << 20;

/// The clock, and what it is kept for.
#[derive(Debug)]
pub(crate) struct Time {
    pub(crate) now: u64,
    /// Threads that wait, by a number of the wait.
    waiting: BTreeMap<u64, Waiting>,
    waits: u64,
    /// The processors' time when something last happened.
    active: Duration,
    /// How often the clock moved on although a thread computed.
    pub(crate) forced: u64,
    pub(crate) spans: Vec<Span>,
    /// Bytes that the kernel which runs now has touched.
    pub(crate) touched: Touched,
}

/// One thread that waits.
#[derive(Debug)]
struct Waiting {
    thread: i32,
    /// `None` if nothing tells yet.
    until: Option<u64>,
}

/// Something that lasted.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) actor: Actor,
    pub(crate) what: &'static str,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) bytes: u64,
}

impl Default for Time {
    fn default() -> Time {
        Time {
            now: 0,
            waiting: BTreeMap::new(),
            waits: 0,
            active: threads::processor_time(),
            forced: 0,
            spans: Vec::new(),
            touched: Touched::default(),
        }
    }
}

impl Time {
    /// Moves the clock on to a time, if it is not there yet.
    pub(crate) fn advance_to(&mut self, time: u64) {
        self.active = threads::processor_time();
        if time <= self.now {
            return;
        }
        self.now = time;
        if self.is_due() {
            CHANGED.notify_all();
        }
    }

    /// Whether a thread waits for a time that has come.
    fn is_due(&self) -> bool {
        self.waiting.values().any(|waiting| waiting.until.is_some_and(|until| until <= self.now))
    }

    /// Moves the clock on to the next time that is waited for, if every thread waits.
    fn jump(&mut self) -> bool {
        let Some(next) = self.waiting.values().filter_map(|waiting| waiting.until).min() else { return false };
        if self.is_due() || threads_inside() != self.waiting.len() {
            return false;
        }
        let known: Vec<i32> = self.waiting.values().map(|waiting| waiting.thread).collect();
        let all_sleep = threads::all_sleep_but(&known);
        // One that has come since sleeps because this thread has the lock.
        if threads_inside() != self.waiting.len() {
            return false;
        }
        if !all_sleep {
            if threads::processor_time().saturating_sub(self.active) < PATIENCE {
                return false;
            }
            self.forced += 1;
        }
        self.advance_to(next);
        true
    }

    /// Puts what lasted on the timeline.
    pub(crate) fn note(&mut self, span: Span) {
        if span.end > span.start && self.spans.len() < MOST_SPANS {
            self.spans.push(span);
        }
    }
}

impl State {
    /// Whether the virtual clock says when work is done.
    pub(crate) fn has_clock(&self) -> bool {
        self.settings.schedule == Schedule::Clock
    }

    /// A call costs this much.
    pub(crate) fn spend(&mut self, cost: u64) {
        if self.has_clock() {
            self.time.advance_to(self.time.now + cost);
        }
    }

    /// When the operation `tick` of a stream is done; `None` if a gate or a host function is in the way.
    pub(crate) fn end_of(&mut self, stream: usize, tick: u64) -> Option<u64> {
        self.run_to(stream, tick).then(|| self.streams[stream].end_of(tick))
    }

    /// From when on the first operation of a stream may be done.
    pub(crate) fn ready(&self, stream: usize) -> u64 {
        let Some(operation) = self.streams[stream].front() else { return self.time.now };
        let before = operation.waits().iter().map(|(other, tick)| self.streams[*other].end_of(*tick));
        let ready = before.chain([operation.queued, self.streams[stream].last_end()]).max().unwrap_or_default();
        ready + if operation.is_barrier { LEGACY_BARRIER } else { 0 }
    }

    /// Finds the time of an operation that has run and might be done from `ready` on; the answer is its end.
    pub(crate) fn place(&mut self, stream: usize, action: &Action, ready: u64) -> u64 {
        let touched = std::mem::take(&mut self.time.touched);
        if matches!(action, Action::Gate(_) | Action::Host { .. }) {
            // Open, or back, only now.
            return ready.max(self.time.now);
        }
        let Some(work) = self.work_of(action, touched) else { return ready };
        let (device, now) = (self.contexts[&self.streams[stream].context].device, self.time.now);
        let engine = &mut self.devices[device].engines[work.part as usize];
        let (start, end) = engine.take(ready, work.duration, now);
        let (actor, what, bytes) = (self.streams[stream].actor, action.name(), work.bytes);
        self.time.note(Span { actor, what, start, end, bytes });
        end
    }

    /// Moves the clock on to the end of all that has run.
    pub(crate) fn advance_to_end(&mut self) {
        if self.has_clock() {
            let end = self.streams.iter().map(|stream| stream.last_end()).max().unwrap_or_default();
            self.time.advance_to(end);
        }
    }

    /// The timeline as text: a line for each, with its start, its end, its bytes, what it is and whose it is.
    pub(crate) fn timeline(&self) -> String {
        let line = |Span { actor, what, start, end, bytes }: &Span| {
            format!("{start}\t{end}\t{bytes}\t{what}\t{}\n", self.actors[*actor])
        };
        self.time.spans.iter().map(line).collect()
    }
}

impl Call {
    /// Blocks this thread until the clock has come to the answer of `until`, which is asked again while there is none.
    pub(crate) fn wait_on_clock(&mut self, what: &'static str, mut until: impl FnMut(&mut State) -> Option<u64>) {
        let (thread, start) = (threads::own(), self.time.now);
        self.time.waits += 1;
        let number = self.time.waits;
        loop {
            let until = until(&mut *self);
            if until.is_some_and(|until| until <= self.time.now) {
                break;
            }
            self.time.waiting.insert(number, Waiting { thread, until });
            if !self.time.jump() {
                self.pause(PAUSE);
            }
        }
        self.time.waiting.remove(&number);
        let (actor, end) = (self.threads[self.thread].actor, self.time.now);
        self.time.note(Span { actor, what, start, end, bytes: 0 });
        self.waited = true;
    }

    /// A step of this thread that takes so long.
    pub(crate) fn take_time(&mut self, what: &'static str, duration: u64) {
        let end = self.time.now + duration;
        self.wait_on_clock(what, |_| Some(end));
    }

    /// Puts a call that began at `start` on the timeline, if it cost much by itself.
    pub(crate) fn note_call(&mut self, start: u64) {
        let end = self.time.now;
        if !self.waited && end - start >= LONG_CALL {
            let (actor, what) = (self.threads[self.thread].actor, self.name);
            self.time.note(Span { actor, what, start, end, bytes: 0 });
        }
    }
}
