//! Which context is current in which thread, and what a context owns.

use std::collections::{HashMap, HashSet};

use crate::block::{Life, Origin, Place};
use crate::call::Call;
use crate::capture::Mode;
use crate::clock::{Actor, Clock};
use crate::costs::CONTEXT;
use crate::engine::Engine;
use crate::error::{Error, Outcome};
use crate::race::{Access, Kind, only};
use crate::state::State;

/// One host thread that has called the driver.
#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) actor: Actor,
    pub(crate) clock: Clock,
    /// The current context is the last.
    pub(crate) contexts: Vec<usize>,
    pub(crate) capture_mode: Mode,
    /// Its own default stream in each context where it asked for it.
    pub(crate) default_streams: HashMap<usize, usize>,
}

impl Thread {
    /// A thread that knows only itself.
    pub(crate) fn new(actor: Actor) -> Thread {
        let (clock, contexts, default_streams) = (Clock::default(), Vec::new(), HashMap::new());
        Thread { actor, clock, contexts, capture_mode: Mode::Global, default_streams }
    }
}

/// One device.
#[derive(Debug, Default)]
pub(crate) struct Device {
    /// The primary context, once it was first retained.
    pub(crate) primary: Option<usize>,
    pub(crate) default_pool: Option<usize>,
    /// The pool of `cuMemAllocAsync`, if another was set.
    pub(crate) current_pool: Option<usize>,
    /// Bytes of blocks whose free has not run.
    pub(crate) used: u64,
    /// Its parts, each of which does one operation at a time on the virtual clock.
    pub(crate) engines: [Engine; 3],
}

/// One context.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) device: usize,
    pub(crate) primary: bool,
    /// How often the primary context is retained; 1 for another until it is destroyed.
    pub(crate) retained: u32,
    /// The error that lost it.
    pub(crate) sticky: Option<Error>,
    pub(crate) legacy: usize,
    /// Contexts whose memory its kernels may use.
    pub(crate) peers: HashSet<usize>,
}

impl State {
    /// Whether calls in a context may go on.
    pub(crate) fn check_context(&self, context: usize) -> Outcome {
        match self.contexts.get(&context) {
            None => Err(Error::INVALID_CONTEXT),
            Some(context) if context.retained == 0 => Err(Error::CONTEXT_IS_DESTROYED),
            Some(context) => context.sticky.map_or(Ok(()), Err),
        }
    }

    /// The device of an ordinal that a caller passed.
    pub(crate) fn device(&self, ordinal: i32) -> Outcome<usize> {
        usize::try_from(ordinal).ok().filter(|device| *device < self.devices.len()).ok_or(Error::INVALID_DEVICE)
    }

    /// A new context, with its legacy default stream.
    pub(crate) fn add_context(&mut self, device: usize, primary: bool) -> usize {
        let handle = self.handle();
        let context = Context { device, primary, retained: 1, sticky: None, legacy: 0, peers: HashSet::new() };
        self.contexts.insert(handle, context);
        self.give_legacy_stream(handle);
        handle
    }

    fn give_legacy_stream(&mut self, context: usize) {
        let legacy = self.add_stream(context, "legacy default", true, 0);
        self.context_mut(context).legacy = legacy;
    }

    fn context_mut(&mut self, context: usize) -> &mut Context {
        self.contexts.get_mut(&context).expect("a context is never forgotten")
    }

    /// Retains the primary context of a device. After its last release it comes back empty, under the same handle.
    pub(crate) fn retain_primary(&mut self, device: usize) -> usize {
        let Some(context) = self.devices[device].primary else {
            self.spend(CONTEXT);
            let context = self.add_context(device, true);
            self.devices[device].primary = Some(context);
            return context;
        };
        self.context_mut(context).retained += 1;
        if self.contexts[&context].retained == 1 {
            self.context_mut(context).sticky = None;
            self.give_legacy_stream(context);
        }
        context
    }

    /// Releases what a context owns, as its last release does.
    pub(crate) fn destroy_context(&mut self, context: usize) {
        self.context_mut(context).retained = 0;
        for stream in self.streams.iter_mut().filter(|stream| stream.context == context) {
            stream.alive = false;
        }
        let streams = &self.streams;
        self.stream_handles.retain(|_, stream| streams[*stream].alive);
        self.events.retain(|_, event| event.context != context);
        self.modules.retain(|_, module| module.context != context);
        self.functions.retain(|_, function| function.context != context);
        for thread in &mut self.threads {
            thread.default_streams.remove(&context);
        }
        let owned: Vec<u64> = self
            .memory
            .iter()
            .filter(|block| block.context == context && block.life != Life::Freed)
            .filter(|block| block.pool.is_none())
            .map(|block| block.base)
            .collect();
        for base in owned {
            self.release(base);
        }
    }

    /// Lets go of a block at once, wherever it is.
    pub(crate) fn release(&mut self, base: u64) {
        let Some(block) = self.memory.get_mut(base) else { return };
        let (device, id) = (block.device, block.id);
        let size = if matches!(block.origin, Origin::Driver) { block.room } else { 0 };
        if block.place != Place::Device {
            if block.place == Place::Managed {
                self.devices[device].used -= size;
            }
            return self.memory.remove(base);
        }
        let whole = block.bury();
        self.devices[device].used -= size;
        if !whole {
            self.report(format!("out of bounds: the red zone of block {id} was written to"));
        }
    }
}

impl Call {
    /// Destroys a context, once all that is queued in it has run.
    pub(crate) fn end_context(&mut self, context: usize) {
        for stream in 0..self.streams.len() {
            if self.streams[stream].context == context {
                self.wait_for(stream, self.streams[stream].submitted);
            }
        }
        self.destroy_context(context);
    }

    /// A block is freed by this thread, now: whatever uses it must be known to be done.
    pub(crate) fn log_free(&mut self, base: u64) {
        let Some(whole) = self.memory.get(base).map(|block| block.whole()) else { return };
        let (thread, what) = (self.thread, self.name);
        let at = self.host_moment(thread);
        self.log(Access { ranges: only(whole), kind: Kind::Free, at, what, by_host: true, done: true });
    }

    /// The context that is current in this thread.
    pub(crate) fn context(&self) -> Outcome<usize> {
        let current = self.threads[self.thread].contexts.last().copied().ok_or(Error::INVALID_CONTEXT)?;
        self.check_context(current)?;
        Ok(current)
    }

    /// The device of the current context.
    pub(crate) fn current_device(&self) -> Outcome<usize> {
        Ok(self.contexts[&self.context()?].device)
    }

    /// An error that no call recovers from has happened in the current context.
    pub(crate) fn lose_context(&mut self, error: Error) {
        let current = self.threads[self.thread].contexts.last().copied();
        if let Some(context) = current.and_then(|current| self.contexts.get_mut(&current)) {
            context.sticky.get_or_insert(error);
        }
    }
}
