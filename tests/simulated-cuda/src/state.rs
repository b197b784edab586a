//! All that the driver knows, and the helpers that every part of it uses.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};

use crate::capture::{Capture, Graph};
use crate::clock::{Actor, Clock, Moment};
use crate::context::{Context, Device, Thread};
use crate::event::Event;
use crate::inject::Injection;
use crate::kernel::{Function, Kernel, Module};
use crate::memory::Memory;
use crate::pool::Pool;
use crate::report::Reports;
use crate::settings::Settings;
use crate::stream::Stream;
use crate::time::Time;
use crate::virtual_memory::Physical;

/// Signalled when a gate opened or a host function returned: what was blocked may go on.
pub(crate) static CHANGED: Condvar = Condvar::new();

static STATE: LazyLock<Mutex<State>> = LazyLock::new(|| Mutex::new(State::new(0)));

/// Locks the driver. A panic of an earlier holder has been reported already.
pub(crate) fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The whole driver.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) settings: Settings,
    /// The process that called `cuInit`; 0 before. A fork of it has no driver.
    pub(crate) process: u32,
    /// Counts resets, so that a thread knows that its number is of another life.
    pub(crate) generation: u64,
    /// Names of the clocks' components, for reports.
    pub(crate) actors: Vec<String>,
    pub(crate) threads: Vec<Thread>,
    pub(crate) devices: Vec<Device>,
    pub(crate) contexts: BTreeMap<usize, Context>,
    pub(crate) streams: Vec<Stream>,
    pub(crate) stream_handles: HashMap<usize, usize>,
    /// Handles of destroyed streams, to be given out again if asked to.
    pub(crate) old_streams: Vec<usize>,
    pub(crate) events: HashMap<usize, Event>,
    pub(crate) memory: Memory,
    pub(crate) pools: BTreeMap<usize, Pool>,
    /// Memory without an address, by handle.
    pub(crate) physical: HashMap<u64, Physical>,
    pub(crate) captures: Vec<Capture>,
    pub(crate) graphs: HashMap<usize, Graph>,
    pub(crate) executables: HashMap<usize, Graph>,
    pub(crate) kernels: HashMap<String, Kernel>,
    pub(crate) modules: HashMap<usize, Module>,
    pub(crate) functions: HashMap<usize, Function>,
    /// Whether each gate is open, by number.
    pub(crate) gates: BTreeMap<u64, bool>,
    /// How many threads wait for work, but for those that wait for an event alone.
    pub(crate) awaited: usize,
    /// What was known at each hand-over, by token.
    pub(crate) hand_overs: HashMap<u64, Clock>,
    pub(crate) time: Time,
    pub(crate) injection: Injection,
    pub(crate) reports: Reports,
    random: u64,
    next_handle: usize,
}

impl State {
    /// A driver that nobody has called.
    pub(crate) fn new(generation: u64) -> State {
        let settings = Settings::read();
        let seed = match settings.schedule {
            crate::settings::Schedule::Random(seed) => seed,
            _ => 0,
        };
        State {
            devices: (0..settings.devices).map(|_| Device::default()).collect(),
            injection: Injection::new(settings.failures.clone()),
            reports: Reports::new(settings.log.clone()),
            settings,
            process: 0,
            generation,
            actors: Vec::new(),
            threads: Vec::new(),
            contexts: BTreeMap::new(),
            streams: Vec::new(),
            stream_handles: HashMap::new(),
            old_streams: Vec::new(),
            events: HashMap::new(),
            memory: Memory::default(),
            pools: BTreeMap::new(),
            physical: HashMap::new(),
            captures: Vec::new(),
            graphs: HashMap::new(),
            executables: HashMap::new(),
            kernels: crate::kernel::of_library(),
            modules: HashMap::new(),
            functions: HashMap::new(),
            gates: BTreeMap::new(),
            awaited: 0,
            hand_overs: HashMap::new(),
            time: Time::default(),
            random: (seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            next_handle: 0x5100_0000_0000,
        }
    }

    /// Forgets everything but the kernels that tests registered and those of the library.
    pub(crate) fn reset(&mut self) {
        let mut fresh = State::new(self.generation + 1);
        std::mem::swap(&mut fresh.kernels, &mut self.kernels);
        *self = fresh;
    }

    /// A number that stands for an object; no two kinds of objects share one.
    pub(crate) fn handle(&mut self) -> usize {
        self.next_handle += 64;
        self.next_handle
    }

    /// A new component of the clocks.
    pub(crate) fn actor(&mut self, name: String) -> Actor {
        self.actors.push(name);
        self.actors.len() - 1
    }

    /// A random number below `limit`, the same in every run with the same seed.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) % limit.max(1)
    }

    /// The host thread has waited for something: it knows what that knew.
    pub(crate) fn learn(&mut self, thread: usize, clock: &Clock) {
        self.threads[thread].clock.join(clock);
    }

    /// A moment of a host thread, after all of its moments so far.
    pub(crate) fn host_moment(&mut self, thread: usize) -> Moment {
        let thread = &mut self.threads[thread];
        let tick = thread.clock.of(thread.actor) + 1;
        thread.clock.set(thread.actor, tick);
        Moment { actor: thread.actor, tick, clock: Arc::new(thread.clock.clone()) }
    }
}
