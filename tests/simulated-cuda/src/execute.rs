//! What an operation does to memory when it runs, and which bytes it will touch.

use std::ffi::c_void;
use std::ptr;

use crate::block::Life;
use crate::clock::Moment;
use crate::copy::{Copy, Source};
use crate::error::{Error, Outcome};
use crate::kernel::Launch;
use crate::memory::Memory;
use crate::race::{Access, Kind, Ranges, Rule, only};
use crate::state::State;

/// What a stream can be asked to do.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Nothing: a point to wait for, or a wait.
    Marker,
    /// Gives the block at this address its bytes.
    Allocate(u64),
    Free(u64),
    Copy(Copy),
    Fill(Fill),
    Kernel(Launch),
    Host {
        function: unsafe extern "C" fn(*mut c_void),
        data: usize,
    },
    /// Blocks the stream until a test opens it.
    Gate(u64),
    /// Keeps the device's kernels busy for so many nanoseconds of the virtual clock; without one, until a thread waits for what is behind.
    Busy(u64),
}

/// A pattern of 1, 2 or 4 bytes, over and over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fill {
    pub(crate) address: u64,
    pub(crate) pattern: [u8; 4],
    pub(crate) width: u64,
    pub(crate) count: u64,
}

impl Action {
    /// What reports call it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Action::Marker => "marker",
            Action::Allocate(_) => "allocation",
            Action::Free(_) => "free",
            Action::Copy(_) => "copy",
            Action::Fill(_) => "fill",
            Action::Kernel(_) => "kernel",
            Action::Host { .. } => "host function",
            Action::Gate(_) => "gate",
            Action::Busy(_) => "kernel of a test",
        }
    }

    /// The bytes that are known to be touched before it runs: of a kernel none are.
    pub(crate) fn touches(&self, memory: &Memory) -> Vec<(Ranges, Kind)> {
        match self {
            Action::Allocate(base) => whole(memory, *base, Kind::Allocate),
            Action::Free(base) => whole(memory, *base, Kind::Free),
            Action::Fill(fill) => {
                let range = fill.address..fill.address + fill.width * fill.count;
                vec![(only(range), Kind::Write)]
            }
            Action::Copy(copy) => copy.touches(),
            Action::Marker | Action::Kernel(_) | Action::Host { .. } | Action::Gate(_) | Action::Busy(_) => Vec::new(),
        }
    }
}

fn whole(memory: &Memory, base: u64, kind: Kind) -> Vec<(Ranges, Kind)> {
    memory.get(base).map(|block| (only(block.whole()), kind)).into_iter().collect()
}

impl State {
    /// Logs an access, and reports what it conflicts with. Memory that the driver does not know of has no log.
    pub(crate) fn log(&mut self, access: Access) {
        let Some(block) = self.memory.find(access.span().start) else { return };
        let (base, id) = (block.base, block.id);
        let Some((rule, other)) = self.memory.log(base, access.clone()) else { return };
        let (new, old) = (self.describe(base, &access), self.describe(base, &other));
        self.report(match rule {
            Rule::Race => format!("race: {new} and {old} of block {id}: no wait orders them"),
            Rule::UseAfterFree => format!("use after free: {new} of block {id}, after {old}"),
        });
    }

    fn describe(&self, base: u64, access: &Access) -> String {
        let (what, actor, tick) = (access.what, &self.actors[access.at.actor], access.at.tick);
        let (span, count) = (access.span(), access.ranges.len());
        let (start, end) = (span.start - base, span.end - base);
        let rows = if count > 1 { format!(" in {count} rows") } else { String::new() };
        let kind = match access.kind {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Allocate => "allocate",
            Kind::Free => "free",
        };
        format!("{what} #{tick} on {actor} ({kind} bytes {start}..{end}{rows})")
    }

    /// Runs one operation. What goes wrong loses the context, as on a device.
    pub(crate) fn execute(&mut self, stream: usize, at: Moment, action: &Action) {
        let bases: Vec<u64> = action
            .touches(&self.memory)
            .iter()
            .filter_map(|(ranges, _)| self.memory.find(ranges.first()?.start).map(|block| block.base))
            .collect();
        let outcome = match action {
            Action::Marker | Action::Host { .. } | Action::Gate(_) | Action::Busy(_) => Ok(()),
            Action::Allocate(base) => {
                self.memory.get_mut(*base).expect("a block is never forgotten").fill_fresh();
                Ok(())
            }
            Action::Free(base) => {
                self.memory.get_mut(*base).expect("a block is never forgotten").freed_at(&at);
                self.free_now(*base)
            }
            Action::Copy(copy) => self.run_copy(copy),
            Action::Fill(fill) => self.run_fill(fill),
            Action::Kernel(launch) => self.run_kernel(stream, &at, launch),
        };
        self.memory.done(&bases, &at);
        if let Err(error) = outcome {
            let (name, actor) = (action.name(), self.actors[at.actor].clone());
            self.report(format!("fault: {name} #{} on {actor} ended with error {}", at.tick, error.0));
            let context = self.streams[stream].context;
            self.contexts.get_mut(&context).expect("of a stream").sticky.get_or_insert(error);
        }
    }

    /// Frees a block, and tells its pool.
    pub(crate) fn free_now(&mut self, base: u64) -> Outcome {
        let block = self.memory.get(base).ok_or(Error::ILLEGAL_ADDRESS)?;
        if block.life == Life::Freed {
            return Err(Error::ILLEGAL_ADDRESS);
        }
        let (pool, room) = (block.pool, block.room);
        self.release(base);
        if let Some(pool) = pool.and_then(|pool| self.pools.get_mut(&pool)) {
            pool.freed(room);
        }
        Ok(())
    }

    fn run_fill(&mut self, fill: &Fill) -> Outcome {
        let bytes = fill.width * fill.count;
        let first = self.memory.bytes(fill.address, bytes)?;
        // SAFETY: `bytes` answered for all of them, and nothing else holds them.
        let filled = unsafe { std::slice::from_raw_parts_mut(first, bytes as usize) };
        for unit in filled.chunks_exact_mut(fill.width as usize) {
            unit.copy_from_slice(&fill.pattern[..fill.width as usize]);
        }
        Ok(())
    }

    fn run_copy(&mut self, copy: &Copy) -> Outcome {
        let mut row = vec![0u8; copy.width as usize];
        for index in 0..copy.height {
            match &copy.source {
                Source::Snapshot(bytes) => {
                    let start = (index * copy.width) as usize;
                    row.copy_from_slice(&bytes[start..start + copy.width as usize]);
                }
                Source::Pageable(address) => read_pageable(address + index * copy.source_pitch, &mut row)?,
                Source::Known(address) => {
                    let source = self.memory.bytes(address + index * copy.source_pitch, copy.width)?;
                    // SAFETY: `bytes` answered for as many bytes as the row has.
                    unsafe { ptr::copy_nonoverlapping(source, row.as_mut_ptr(), row.len()) };
                }
            }
            let address = copy.destination + index * copy.destination_pitch;
            let destination =
                if copy.to_pageable { address as *mut u8 } else { self.memory.bytes(address, copy.width)? };
            // SAFETY: `bytes` answered for as many, or the caller of the copy, who waits for it, did.
            unsafe { ptr::copy_nonoverlapping(row.as_ptr(), destination, row.len()) };
        }
        Ok(())
    }
}

/// Reads memory that may be gone by now, which is then an error and not a crash.
pub(crate) fn read_pageable(address: u64, row: &mut [u8]) -> Outcome {
    let local = libc::iovec { iov_base: row.as_mut_ptr().cast(), iov_len: row.len() };
    let remote = libc::iovec { iov_base: address as *mut c_void, iov_len: row.len() };
    let process = std::process::id() as libc::pid_t;
    // SAFETY: the system checks the remote range; the local one is the row.
    let read = unsafe { libc::process_vm_readv(process, &raw const local, 1, &raw const remote, 1, 0) };
    if read == row.len() as isize { Ok(()) } else { Err(Error::ILLEGAL_ADDRESS) }
}
