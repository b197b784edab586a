//! Memory that is allocated in stream order, and the pools that keep it.

use std::collections::HashSet;

use crate::block::{Life, NewBlock, Place};
use crate::call::Call;
use crate::clock::{Clock, Moment};
use crate::costs::of_growth;
use crate::error::{Error, Outcome};
use crate::execute::Action;
use crate::race::Log;
use crate::state::State;

/// One pool.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) device: usize,
    /// Whether it is the device's own, which cannot be destroyed.
    pub(crate) is_default: bool,
    /// Destroyed: it lives on until its last block is freed.
    pub(crate) destroyed: bool,
    /// Devices that may use its blocks.
    access: HashSet<usize>,
    /// Bytes that a synchronisation leaves in the pool.
    pub(crate) threshold: u64,
    /// The attributes 1 to 3: which kinds of reuse are allowed.
    pub(crate) reuse: [i32; 3],
    /// Bytes in blocks, and the most that it ever was.
    pub(crate) used: u64,
    pub(crate) used_high: u64,
    /// Bytes of freed blocks that the pool keeps.
    pub(crate) kept: u64,
    pub(crate) reserved_high: u64,
    /// Freed blocks that may be given out again, the last one last.
    again: Vec<Again>,
    /// Frees that the host has not synchronised with: the stream and its tick, and the bytes.
    unseen: Vec<(usize, u64, u64)>,
}

/// A freed block that may be given out again: the stream on which it was freed, and when.
#[derive(Clone, Debug)]
struct Again {
    stream: usize,
    base: u64,
    at: Moment,
}

/// Why a block may be given out again, in the order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reuse {
    /// On the same stream, or on one that has waited for the free: `REUSE_FOLLOW_EVENT_DEPENDENCIES`.
    Ordered,
    /// The free has run, which the stream may not know: `REUSE_ALLOW_OPPORTUNISTIC`.
    Done,
    /// The driver has the stream wait for the free: `REUSE_ALLOW_INTERNAL_DEPENDENCIES`.
    Waits,
}

impl Pool {
    pub(crate) fn new(device: usize, is_default: bool) -> Pool {
        Pool {
            device,
            is_default,
            destroyed: false,
            access: HashSet::from([device]),
            threshold: 0,
            reuse: [1; 3],
            used: 0,
            used_high: 0,
            kept: 0,
            reserved_high: 0,
            again: Vec::new(),
            unseen: Vec::new(),
        }
    }

    pub(crate) fn is_accessible_from(&self, device: usize) -> bool {
        self.access.contains(&device)
    }

    /// Grants or takes a device's access. The pool's own device always has it.
    pub(crate) fn set_access(&mut self, device: usize, granted: bool) -> Outcome {
        match (granted, device == self.device) {
            (true, _) => self.access.insert(device),
            (false, false) => self.access.remove(&device),
            (false, true) => return Err(Error::INVALID_VALUE),
        };
        Ok(())
    }

    /// A block was freed: the pool keeps its bytes for now.
    pub(crate) fn freed(&mut self, room: u64) {
        self.used -= room;
        self.kept += room;
    }

    /// Keeps at most so many bytes of freed blocks.
    pub(crate) fn keep(&mut self, bytes: u64) {
        self.kept = self.kept.min(bytes);
    }

    /// Whether a block that is not there yet fits into what is kept, and what it takes from the device beyond that.
    fn take(&mut self, room: u64) {
        self.kept -= self.kept.min(room);
        self.used += room;
        self.used_high = self.used_high.max(self.used);
        self.reserved_high = self.reserved_high.max(self.used + self.kept);
    }
}

impl State {
    /// The default pool of a device.
    pub(crate) fn default_pool(&mut self, device: usize) -> Outcome<usize> {
        if !self.settings.pools {
            return Err(Error::NOT_SUPPORTED);
        }
        if let Some(pool) = self.devices[device].default_pool {
            return Ok(pool);
        }
        let handle = self.handle();
        self.pools.insert(handle, Pool::new(device, true));
        self.devices[device].default_pool = Some(handle);
        Ok(handle)
    }

    /// The pool that a handle stands for.
    pub(crate) fn pool(&mut self, handle: usize) -> Outcome<&mut Pool> {
        if !self.settings.pools {
            return Err(Error::NOT_SUPPORTED);
        }
        self.pools.get_mut(&handle).filter(|pool| !pool.destroyed).ok_or(Error::INVALID_VALUE)
    }

    /// Takes bytes of a device for a block. What `clock` knows to be freed by then counts as free.
    pub(crate) fn take_memory(&mut self, device: usize, size: u64, pool: Option<usize>, clock: &Clock) -> Outcome {
        let Some(room) = size.checked_next_multiple_of(512) else { return Err(Error::OUT_OF_MEMORY) };
        let kept_by_others: u64 = self
            .pools
            .iter()
            .filter(|(handle, of)| of.device == device && Some(**handle) != pool)
            .map(|(_, of)| of.kept)
            .sum();
        let own = pool.and_then(|pool| self.pools.get(&pool)).map_or(0, |pool| pool.kept.saturating_sub(room));
        let wanted = self.devices[device].used.saturating_add(room) + kept_by_others + own;
        if wanted > self.settings.memory {
            let freed: u64 = self
                .memory
                .iter()
                .filter(|block| block.device == device && block.freeing && block.life != Life::Freed)
                .filter(|block| block.log.is_freed_before(clock))
                .map(|block| block.room)
                .sum();
            if wanted - freed.min(wanted) > self.settings.memory {
                return Err(Error::OUT_OF_MEMORY);
            }
        }
        self.devices[device].used += room;
        if let Some(pool) = pool.and_then(|pool| self.pools.get_mut(&pool)) {
            pool.take(room);
        }
        Ok(())
    }

    /// Gives back what a pool keeps, but for so many bytes, and for blocks with whose free the host has not synchronised.
    pub(crate) fn trim_pool(&mut self, handle: usize, keep: u64) -> Outcome {
        self.pool(handle)?;
        let State { pools, streams, .. } = self;
        let Some(pool) = pools.get_mut(&handle) else { return Err(Error::INVALID_VALUE) };
        pool.unseen.retain(|(stream, tick, _)| streams[*stream].synchronised < *tick);
        // A free that has not run is in use.
        let has_run = |(stream, tick, _): &&(usize, u64, u64)| streams[*stream].done >= *tick;
        let unseen: u64 = pool.unseen.iter().filter(has_run).map(|(_, _, bytes)| bytes).sum();
        pool.keep(keep.saturating_sub(pool.used).max(unseen));
        Ok(())
    }

    /// A synchronisation: each pool gives back what it keeps beyond its threshold.
    pub(crate) fn trim_pools(&mut self) {
        for pool in self.pools.values_mut() {
            pool.keep(pool.threshold);
        }
    }
}

impl Call {
    /// Allocates at once.
    pub(crate) fn allocate(&mut self, size: u64) -> Outcome<u64> {
        if size == 0 {
            return Err(Error::INVALID_VALUE);
        }
        let context = self.context()?;
        let device = self.contexts[&context].device;
        let clock = self.threads[self.thread].clock.clone();
        self.take_memory(device, size, None, &clock)?;
        let new = NewBlock { size, place: Place::Device, context, device, pool: None, flags: 0, life: Life::Live };
        self.memory.add(new, None)
    }

    /// Allocates in the order of a stream.
    pub(crate) fn allocate_async(&mut self, size: u64, pool: usize, stream: usize) -> Outcome<u64> {
        if size == 0 {
            return Err(Error::INVALID_VALUE);
        }
        let device = self.pool(pool)?.device;
        self.refuse_beside_capture(stream)?;
        if self.streams[stream].capture.is_some() {
            return Err(Error::NOT_SUPPORTED);
        }
        let context = self.streams[stream].context;
        let clock = Clock::clone(&self.streams[stream].clock);
        let kept = self.pools[&pool].kept;
        self.take_memory(device, size, Some(pool), &clock)?;
        self.spend(of_growth(size.saturating_sub(kept)));
        let life = Life::Pending;
        let new = NewBlock { size, place: Place::Device, context, device, pool: Some(pool), flags: 0, life };
        let (base, unseen) = match self.take_again(pool, stream, size) {
            Some((again, reuse)) => {
                self.memory.add_again(again.base, new);
                let block = self.memory.get_mut(again.base).expect("given out again just now");
                match reuse {
                    Reuse::Ordered => {}
                    // Whoever used it conflicts with the free already, and with no work that comes now.
                    Reuse::Done => block.log = Log::default(),
                    Reuse::Waits => block.given_out_before(again.at.clone()),
                }
                (again.base, (reuse == Reuse::Waits).then_some((again.stream, again.at.tick)))
            }
            None => (self.memory.add(new, None)?, None),
        };
        self.memory.get_mut(base).expect("given out just now").awaited += 1;
        let thread = self.thread;
        self.submit_behind(thread, stream, Action::Allocate(base), None, unseen)?;
        Ok(base)
    }

    /// A freed block of this size that the pool gives to a stream, on the terms that its attributes allow.
    fn take_again(&mut self, pool: usize, stream: usize, size: u64) -> Option<(Again, Reuse)> {
        let found = &self.pools[&pool];
        let [follows, at_once, waits] = found.reuse.map(|allowed| allowed != 0);
        let mut known = Clock::clone(&self.streams[stream].clock);
        known.join(&self.threads[self.thread].clock);
        let reuse = |again: &Again| {
            let is_known = again.stream == stream || follows && again.at.known_to(&known);
            let is_done = self.streams[again.stream].done >= again.at.tick;
            match (is_known, is_done) {
                (true, _) => Some(Reuse::Ordered),
                (false, true) if at_once => Some(Reuse::Done),
                (false, false) if waits => Some(Reuse::Waits),
                _ => None,
            }
        };
        let fits = |again: &Again| self.memory.get(again.base).is_some_and(|block| block.size == size);
        let candidates = found.again.iter().enumerate().rev().filter(|(_, again)| fits(again));
        let (index, reuse) =
            candidates.filter_map(|(index, again)| Some((index, reuse(again)?))).min_by_key(|(_, reuse)| *reuse)?;
        let pool = self.pools.get_mut(&pool).expect("found just now");
        Some((pool.again.remove(index), reuse))
    }

    /// Frees in the order of a stream.
    pub(crate) fn free_async(&mut self, base: u64, stream: usize) -> Outcome {
        if base == 0 {
            return Ok(());
        }
        self.refuse_beside_capture(stream)?;
        if self.streams[stream].capture.is_some() {
            return Err(Error::NOT_SUPPORTED);
        }
        let block = self.memory.get_mut(base).ok_or(Error::INVALID_VALUE)?;
        if block.freeing || block.is_nobodys() || block.pool.is_none() {
            return Err(Error::INVALID_VALUE);
        }
        block.freeing = true;
        let pool = block.pool;
        let thread = self.thread;
        let at = self.submit(thread, stream, Action::Free(base), None)?;
        let room = self.memory.get(base).map_or(0, |block| block.room);
        if let Some(pool) = pool.and_then(|pool| self.pools.get_mut(&pool)) {
            pool.unseen.push((stream, at.tick, room));
        }
        if self.settings.reuse
            && let Some(pool) = pool.and_then(|pool| self.pools.get_mut(&pool))
        {
            pool.again.push(Again { stream, base, at });
        }
        Ok(())
    }
}
