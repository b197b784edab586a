//! What is queued where, in which order it may run, and when it does.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::call::Call;
use crate::capture::Captured;
use crate::clock::{Actor, Clock, Moment};
use crate::error::{Error, Outcome};
use crate::execute::Action;
use crate::race::Access;
use crate::settings::Schedule;
use crate::state::State;

/// How often a query of something unfinished says so before it makes it finish, unless the schedule is random.
const PATIENCE: u32 = 3;
/// So many times as often, it makes what keeps the device busy finish, too: a thread that polls may wait for it.
const LONG_PATIENCE: u32 = 20;

/// A queue of work.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) actor: Actor,
    /// What the caller knows the stream by.
    pub(crate) handle: usize,
    pub(crate) context: usize,
    /// Whether the legacy default stream and this one wait for each other.
    pub(crate) blocking: bool,
    pub(crate) priority: i32,
    /// Not yet destroyed. What is queued runs all the same.
    pub(crate) alive: bool,
    queue: VecDeque<Operation>,
    pub(crate) submitted: u64,
    pub(crate) done: u64,
    /// The last operation that the host is known to have synchronised with; what it learns by a query does not count.
    pub(crate) synchronised: u64,
    /// When each operation that has run is done on the virtual clock, in their order.
    ends: Vec<u64>,
    /// What the last operation comes after.
    pub(crate) clock: Arc<Clock>,
    polls: u32,
    /// Queries that would have made something finish, if nothing had kept the device busy.
    vain_polls: u32,
    pub(crate) capture: Option<Captured>,
}

/// One queued operation.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) at: Moment,
    /// Streams, and how far each must have come.
    waits: Vec<(usize, u64)>,
    /// Whether the legacy default stream makes it wait.
    pub(crate) is_barrier: bool,
    /// When it was queued on the virtual clock.
    pub(crate) queued: u64,
    pub(crate) action: Action,
    /// Whether it is a host function that runs on its thread now.
    started: bool,
}

impl Stream {
    /// The last operation, as a point of the partial order.
    pub(crate) fn last(&self) -> Moment {
        Moment { actor: self.actor, tick: self.submitted, clock: self.clock.clone() }
    }

    /// The first operation that has not run.
    pub(crate) fn front(&self) -> Option<&Operation> {
        self.queue.front()
    }

    /// When an operation that has run is done on the virtual clock.
    pub(crate) fn end_of(&self, tick: u64) -> u64 {
        let index = tick.checked_sub(1).map(|index| index as usize);
        index.and_then(|index| self.ends.get(index)).copied().unwrap_or_default()
    }

    /// When all that has run is done on the virtual clock.
    pub(crate) fn last_end(&self) -> u64 {
        self.ends.last().copied().unwrap_or_default()
    }
}

impl Operation {
    /// Streams that it waits for, and how far each must have come.
    pub(crate) fn waits(&self) -> &[(usize, u64)] {
        &self.waits
    }
}

impl State {
    /// A new stream of `context`.
    pub(crate) fn add_stream(&mut self, context: usize, name: &str, blocking: bool, priority: i32) -> usize {
        let handle = match self.old_streams.pop() {
            Some(handle) if self.settings.reuse => handle,
            _ => self.handle(),
        };
        let number = self.streams.len();
        let device = self.contexts[&context].device;
        let actor = self.actor(format!("{name} stream {number} of device {device}"));
        self.streams.push(Stream {
            actor,
            handle,
            context,
            blocking,
            priority,
            alive: true,
            queue: VecDeque::new(),
            submitted: 0,
            done: 0,
            synchronised: 0,
            ends: Vec::new(),
            clock: Arc::default(),
            polls: 0,
            vain_polls: 0,
            capture: None,
        });
        number
    }

    /// Queues an operation after everything that the stream, the thread and `after` know.
    pub(crate) fn submit(
        &mut self,
        thread: usize,
        stream: usize,
        action: Action,
        after: Option<&Moment>,
    ) -> Outcome<Moment> {
        self.submit_behind(thread, stream, action, after, None)
    }

    /// As [`State::submit`]; the driver also has the operation wait for this tick of a stream, which orders nothing for the program.
    pub(crate) fn submit_behind(
        &mut self,
        thread: usize,
        stream: usize,
        action: Action,
        after: Option<&Moment>,
        unseen: Option<(usize, u64)>,
    ) -> Outcome<Moment> {
        if self.streams[stream].capture.is_some() {
            return self.capture_action(stream, action);
        }
        let mut clock = Clock::clone(&self.streams[stream].clock);
        clock.join(&self.threads[thread].clock);
        let mut waits = Vec::new();
        self.refuse_beside_capture(stream)?;
        let queued = self.time.now;
        for other in self.implicitly_before(stream) {
            let last = self.streams[other].last();
            waits.push((other, last.tick));
            clock.join(&last.clock);
        }
        let is_barrier = !waits.is_empty();
        waits.extend(unseen);
        if let Some(moment) = after {
            let other = self.streams.iter().position(|stream| stream.actor == moment.actor);
            waits.push((other.expect("events are recorded on streams"), moment.tick));
            clock.join(&moment.clock);
        }
        let queue = &mut self.streams[stream];
        queue.submitted += 1;
        clock.set(queue.actor, queue.submitted);
        queue.clock = Arc::new(clock);
        let at = queue.last();
        let operation = Operation { at: at.clone(), waits, is_barrier, queued, action: action.clone(), started: false };
        queue.queue.push_back(operation);
        for (ranges, kind) in action.touches(&self.memory) {
            self.log(Access { ranges, kind, at: at.clone(), what: action.name(), by_host: false, done: false });
        }
        match self.settings.schedule {
            Schedule::Lazy => {}
            Schedule::Eager | Schedule::Clock => {
                self.run_to(stream, at.tick);
            }
            Schedule::Random(_) => self.run_some(),
        }
        Ok(at)
    }

    /// The streams that the legacy default stream makes an operation of `stream` wait for.
    fn implicitly_before(&self, stream: usize) -> Vec<usize> {
        let Stream { context, blocking, .. } = self.streams[stream];
        if !blocking {
            return Vec::new();
        }
        let legacy = self.contexts[&context].legacy;
        let waits_for = |other: &usize| {
            let other_stream = &self.streams[*other];
            let either = stream == legacy || *other == legacy;
            either && *other != stream && other_stream.blocking && other_stream.context == context
        };
        (0..self.streams.len()).filter(waits_for).collect()
    }

    /// Runs a stream up to the operation `tick`, and before that whatever it waits for. The answer is whether it came there: a gate
    /// or a host function may be in the way.
    pub(crate) fn run_to(&mut self, stream: usize, tick: u64) -> bool {
        let is_timed = self.has_clock();
        while self.streams[stream].done < tick {
            let Some(next) = self.streams[stream].queue.front() else { return true };
            if next.started {
                return false;
            }
            for (other, until) in next.waits.clone() {
                if !self.run_to(other, until) {
                    return false;
                }
            }
            let next = self.streams[stream].queue.front_mut().expect("only its own stream takes it");
            match &next.action {
                Action::Gate(gate) if !self.gates.get(gate).copied().unwrap_or(true) => return false,
                Action::Busy(_) if !is_timed && self.awaited == 0 => return false,
                Action::Host { function, data } => {
                    next.started = true;
                    let (function, data, at) = (*function, *data, next.at.clone());
                    let ready = self.ready(stream);
                    self.start_host_function((stream, ready), at, function, data);
                    return false;
                }
                _ => {}
            }
            self.finish_front(stream);
        }
        true
    }

    /// Takes the first operation of a stream and runs it.
    pub(crate) fn finish_front(&mut self, stream: usize) {
        let ready = self.ready(stream);
        let operation = self.streams[stream].queue.pop_front().expect("an operation is queued");
        self.execute(stream, operation.at, &operation.action);
        self.streams[stream].done += 1;
        if self.has_clock() {
            let end = self.place(stream, &operation.action, ready);
            self.streams[stream].ends.push(end);
        }
    }

    /// Runs some of what is queued, somewhere.
    pub(crate) fn run_some(&mut self) {
        for _ in 0..self.below(3) {
            let stream = self.below(self.streams.len() as u64) as usize;
            if let Some(queue) = self.streams.get(stream) {
                let (done, left) = (queue.done, queue.submitted - queue.done);
                let count = self.below(left + 1);
                self.run_to(stream, done + count);
            }
        }
    }

    /// Runs whatever can run, on every stream.
    pub(crate) fn run_all(&mut self) {
        for stream in 0..self.streams.len() {
            self.run_to(stream, self.streams[stream].submitted);
        }
    }

    /// Runs whatever can run, and passes over host functions: at exit what they belong to may be gone.
    pub(crate) fn run_without_host_functions(&mut self) {
        for stream in &mut self.streams {
            for operation in &mut stream.queue {
                if !operation.started && matches!(operation.action, Action::Host { .. }) {
                    operation.action = Action::Marker;
                }
            }
        }
        self.run_all();
    }

    /// Whether a query finds the operation `tick` finished.
    pub(crate) fn poll(&mut self, stream: usize, tick: u64) -> bool {
        if self.has_clock() {
            return self.end_of(stream, tick).is_some_and(|end| end <= self.time.now);
        }
        if self.streams[stream].done >= tick {
            return true;
        }
        self.streams[stream].polls += 1;
        let run = match self.settings.schedule {
            Schedule::Random(_) => self.below(2) == 0,
            Schedule::Lazy | Schedule::Eager | Schedule::Clock => self.streams[stream].polls > PATIENCE,
        };
        if !run {
            return false;
        }
        self.streams[stream].polls = 0;
        self.streams[stream].vain_polls += 1;
        let awaited = usize::from(self.streams[stream].vain_polls > LONG_PATIENCE);
        self.awaited += awaited;
        let done = self.run_to(stream, tick);
        self.awaited -= awaited;
        if done {
            self.streams[stream].vain_polls = 0;
        }
        done
    }
}

impl Call {
    /// The stream that a handle stands for in this thread and its current context.
    pub(crate) fn stream(&mut self, handle: usize) -> Outcome<usize> {
        let current = self.context()?;
        let stream = match handle {
            0 | 1 => self.contexts[&current].legacy,
            2 => self.per_thread_stream(current),
            _ => self.stream_handles.get(&handle).copied().ok_or(Error::INVALID_HANDLE)?,
        };
        let context = self.streams[stream].context;
        self.check_context(context)?;
        Ok(stream)
    }

    fn per_thread_stream(&mut self, context: usize) -> usize {
        let thread = self.thread;
        if let Some(stream) = self.threads[thread].default_streams.get(&context) {
            return *stream;
        }
        let stream = self.add_stream(context, &format!("default of host thread {thread},"), true, 0);
        self.threads[thread].default_streams.insert(context, stream);
        stream
    }

    /// Waits on the host for all that is queued on a stream.
    pub(crate) fn wait_for_stream(&mut self, stream: usize) -> Outcome {
        let last = self.streams[stream].last();
        self.wait_for_moment(stream, &last)
    }

    /// Waits on the host for one operation. Afterwards this thread, and no other, knows all that it came after.
    pub(crate) fn wait_for_moment(&mut self, stream: usize, at: &Moment) -> Outcome {
        self.wait_for(stream, at.tick);
        let thread = self.thread;
        self.learn(thread, &at.clock);
        if !matches!(self.name, "cuEventQuery" | "cuStreamQuery") {
            for stream in &mut self.streams {
                stream.synchronised = stream.synchronised.max(at.clock.of(stream.actor));
            }
        }
        self.trim_pools();
        self.check_context(self.streams[stream].context)
    }

    /// Waits on the host for all that is queued in a context.
    pub(crate) fn wait_for_context(&mut self, context: usize) -> Outcome {
        for stream in 0..self.streams.len() {
            if self.streams[stream].context == context {
                self.wait_for_stream(stream)?;
            }
        }
        Ok(())
    }
}
