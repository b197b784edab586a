//! Copies ordinary host memory to and from a device through staging buffers, because the driver's own copy would block.
//! Threads fill and empty the buffers.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::own_memory::device_address;
use crate::alloc::ALIGNMENT;
use crate::convert::{for_each_part, threads};
use crate::cuda::{Current, PinnedBlock, Stream, virtual_time};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::stream_order::{self, Readiness, Wait};

/// Bytes to be moved.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moving {
    /// Where they are.
    pub(super) address: usize,
    /// Their place, counted from the start of the result's memory.
    pub(super) at: usize,
    pub(super) bytes: usize,
}

impl Moving {
    /// Extends these bytes to the end of `next`, if it is as far behind them as in the result, and less than 64 bytes lie between. Returns
    /// whether it did.
    pub(super) fn joins(&mut self, next: &Self) -> bool {
        let apart = next.at.checked_sub(self.at);
        let is_parallel = apart.is_some() && apart == next.address.checked_sub(self.address);
        let padding = apart.and_then(|apart| apart.checked_sub(self.bytes));
        match (is_parallel, padding.and_then(|padding| padding.checked_add(next.bytes))) {
            (true, Some(more)) if padding < Some(ALIGNMENT) => {
                self.bytes = self.bytes.saturating_add(more);
                true
            }
            _ => false,
        }
    }
}

/// The bytes of one staging buffer: adjacent in the arena, anywhere on the other side.
#[derive(Debug)]
struct StagedLoad {
    /// Their start in the arena, and their number, including gaps between parts.
    at: usize,
    bytes: usize,
    parts: Vec<StagedPart>,
}

/// Bytes of one piece of memory.
#[derive(Clone, Copy, Debug)]
struct StagedPart {
    address: usize,
    /// Where they are in the block.
    within: usize,
    bytes: usize,
}

/// Larger gaps are not copied.
const LARGEST_GAP: usize = 256;

/// Groups the pieces, in the order of their places, into loads. A gap is not copied if one of `others`, in the same
/// order, has its place there.
fn loads(pieces: &[Moving], others: &[Moving]) -> Vec<StagedLoad> {
    let is_free = |gap: Range<usize>| {
        let before = others.partition_point(|other| other.at < gap.end);
        let last = before.checked_sub(1).and_then(|index| others.get(index));
        last.is_none_or(|last| last.at.saturating_add(last.bytes) <= gap.start)
    };
    let mut loads: Vec<StagedLoad> = Vec::new();
    for piece in pieces {
        let mut done = 0;
        while done < piece.bytes {
            let at = piece.at + done;
            let joined = loads.last_mut().filter(|load| {
                let end = load.at + load.bytes;
                at >= end && at - end <= LARGEST_GAP && at - load.at < PinnedBlock::BYTES && is_free(end..at)
            });
            let load = match joined {
                Some(load) => load,
                None => {
                    loads.push(StagedLoad { at, bytes: 0, parts: Vec::new() });
                    let Some(load) = loads.last_mut() else { break };
                    load
                }
            };
            let within = at - load.at;
            let bytes = (piece.bytes - done).min(PinnedBlock::BYTES - within);
            load.parts.push(StagedPart { address: piece.address.wrapping_add(done), within, bytes });
            load.bytes = within + bytes;
            done += bytes;
        }
    }
    loads
}

/// A thread needs two loads to be worth its start: to a device, three threads took 1.3 x the time of one for 4 MB, on a machine
/// with an H100. Copies from a device, which were not measured, have as many.
const LOADS_OF_A_THREAD: usize = 2;

/// Returns the number of threads that copy loads. Each thread has a per-thread default stream of its own, so that the caller alone copies on its one.
fn workers(asked: Option<usize>, loads: &[StagedLoad], stream: Stream) -> usize {
    if stream == Stream::PER_THREAD {
        return 1;
    }
    let bytes = loads.iter().fold(0_usize, |sum, load| sum.saturating_add(load.bytes));
    threads(asked, bytes).min(loads.len() / LOADS_OF_A_THREAD).max(1)
}

/// Runs `work` on each load, on several threads.
fn each_load<W>(
    device: Device,
    threads: usize,
    loads: &[StagedLoad],
    start: impl Fn() -> W + Sync,
    work: impl Fn(&Current, &mut W, &StagedLoad) -> Result<()> + Sync,
    end: impl Fn(&Current, W, Result<()>) -> Result<()> + Sync,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    for_each_part(threads, threads, 1, |_| {
        let current = stream_order::enter(device)?;
        let mut state = start();
        let mut outcome = Ok(());
        while outcome.is_ok() {
            let Some(load) = loads.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
            outcome = work(&current, &mut state, load);
        }
        if outcome.is_err() {
            // Nobody goes on.
            next.store(loads.len(), Ordering::Relaxed);
        }
        end(&current, state, outcome)
    })
}

/// Copies ordinary memory to device memory from `target` on, in the order of `stream`. On return, the host memory is
/// read. Bytes between pieces may be written too, but not those of `others`, which another copy writes.
///
/// # Errors
/// If the driver fails, or page-locked memory is out. Started copies stay on the stream.
///
/// # Safety
/// The pieces are readable memory of the host, in the order of their places, and `target` has room for them on `stream`.
pub(super) unsafe fn upload(
    device: Device,
    target: u64,
    pieces: &[Moving],
    others: &[Moving],
    stream: Stream,
    asked: Option<usize>,
) -> Result<()> {
    let loads = loads(pieces, others);
    let work = |current: &Current, blocks: &mut Blocks, load: &StagedLoad| {
        let block = blocks.next(current)?;
        let mut end = 0;
        for part in &load.parts {
            let start = block.start();
            // SAFETY: gaps are inside the block, as parts are, and nothing else uses it now.
            unsafe { start.wrapping_add(end).write_bytes(0, part.within - end) };
            let source = std::ptr::with_exposed_provenance::<u8>(part.address);
            // SAFETY: `part.bytes` of a piece, readable memory of the host; `loads` puts parts inside the block, which
            // nothing else uses now.
            unsafe { start.wrapping_add(part.within).copy_from_nonoverlapping(source, part.bytes) };
            end = part.within + part.bytes;
        }
        virtual_time::copied(load.bytes);
        let place = target.wrapping_add(u64::try_from(load.at).unwrap_or(u64::MAX));
        // SAFETY: `target` has room for the load's bytes; the block is used again behind the copy.
        let copied = unsafe { current.copy_from_pinned(place, &block, load.bytes, stream) };
        // The error may be that of earlier work.
        let is_started = !copied.is_err_and(|status| status.refused_the_call());
        blocks.sent(current, block, stream, is_started)?;
        Ok(copied?)
    };
    let end = |current: &Current, blocks: Blocks, outcome: Result<()>| {
        blocks.leave(current, stream);
        outcome
    };
    each_load(device, workers(asked, &loads, stream), &loads, Blocks::default, work, end)
}

/// The staging buffers that one thread's copies read, the oldest first.
#[derive(Default)]
struct Blocks(VecDeque<(Readiness, PinnedBlock)>);

impl Blocks {
    /// A block that nothing uses.
    fn next(&mut self, current: &Current) -> Result<PinnedBlock> {
        if let Some((readiness, _)) = self.0.front()
            && readiness.is_complete()?
            && let Some((_, block)) = self.0.pop_front()
        {
            return Ok(block);
        }
        if let Some(block) = stream_order::staging_block(current)? {
            return Ok(block);
        }
        // All staging buffers are in use: this thread's oldest is next, or one more if it has none.
        let Some((readiness, _)) = self.0.front() else { return Ok(PinnedBlock::take(current)?) };
        readiness.wait_on_host(Wait::BlockCopied)?;
        self.0.pop_front().map(|(_, block)| block).ok_or_else(|| Error::internal("a block was lost"))
    }

    /// Keeps a block until its copy, if one was started, is done.
    fn sent(&mut self, current: &Current, block: PinnedBlock, stream: Stream, is_started: bool) -> Result<()> {
        if !is_started {
            block.give_back();
            return Ok(());
        }
        let device = Device::new(crate::ffi::dlpack::DLDeviceType::CUDA, current.device().ordinal());
        match Readiness::recorded(device, current, stream, Wait::BlockCopied) {
            Ok(readiness) => {
                self.0.push_back((readiness, block));
                Ok(())
            }
            Err(error) => {
                // If that cannot be known either, the block is left to the copy.
                if stream_order::settle(current, stream).is_ok() {
                    block.give_back();
                }
                Err(error)
            }
        }
    }

    /// Recycles the blocks behind their copies.
    fn leave(self, current: &Current, stream: Stream) {
        if self.0.is_empty() {
            return;
        }
        let device = Device::new(crate::ffi::dlpack::DLDeviceType::CUDA, current.device().ordinal());
        let uses = Readiness::on_device(device);
        // If this fails, only the blocks are lost, to the copies.
        let _ = uses.used_by(current, stream);
        uses.release(move || self.0.into_iter().for_each(|(_, block)| block.give_back()));
    }
}

/// Copies device memory to ordinary memory from `target` on, in the order of `stream`. Done on return.
///
/// # Errors
/// If the driver fails, page-locked memory is out, or a wait is interrupted. Started copies may still read then.
///
/// # Safety
/// The pieces are memory of the device, in the order of their places, until `stream` has done what it has when this returns;
/// `target` has room for them, and nobody else uses it.
pub(super) unsafe fn download(
    device: Device,
    target: *mut u8,
    pieces: &[Moving],
    stream: Stream,
    asked: Option<usize>,
) -> Result<()> {
    let (loads, target) = (loads(pieces, &[]), SharedMemory::new(target));
    let work = |current: &Current, pending: &mut Option<PendingLoad>, load: &StagedLoad| {
        // The previous block is emptied while this one is filled.
        // SAFETY: the parts of a load are of the pieces, memory of the device until `stream` is done.
        let started = unsafe { PendingLoad::start(current, load, stream) }?;
        match pending.replace(started) {
            // SAFETY: `target` has room for the load of `before`, whose parts are of the pieces; no other thread has
            // it.
            Some(before) => unsafe { before.finish(current, stream, &target) },
            None => Ok(()),
        }
    };
    let end = |current: &Current, pending: Option<PendingLoad>, outcome: Result<()>| {
        // SAFETY: `target` has room for the last load, whose parts are of the pieces; no other thread has it.
        let last = pending.map_or(Ok(()), |pending| unsafe { pending.finish(current, stream, &target) });
        outcome.and(last)
    };
    each_load(device, workers(asked, &loads, stream), &loads, || None, work, end)
}

/// The memory that threads write, each its own part.
pub(super) struct SharedMemory(*mut u8);

// SAFETY: a shared reference only computes addresses; each write there argues for its own bytes.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    pub(super) fn new(start: *mut u8) -> Self {
        Self(start)
    }

    pub(super) fn at(&self, byte: usize) -> *mut u8 {
        self.0.wrapping_add(byte)
    }
}

/// A running copy to a block.
struct PendingLoad {
    block: PinnedBlock,
    readiness: Readiness,
    at: usize,
    /// The position and length of each part in the block.
    parts: Vec<(usize, usize)>,
}

impl PendingLoad {
    /// # Safety
    /// The load's parts are memory of the device until `stream` has done what it has when this returns.
    unsafe fn start(current: &Current, load: &StagedLoad, stream: Stream) -> Result<Self> {
        let block = PinnedBlock::take(current)?;
        let mut outcome = Ok(());
        for part in &load.parts {
            let source = device_address(part.address)?;
            // SAFETY: each part is memory of the device until `stream` is done; `loads` puts it inside the block, which
            // is read when the copy is done.
            let copied = unsafe { current.copy_to_pinned(&block, part.within, source, part.bytes, stream) };
            if let Err(status) = copied {
                outcome = Err(Error::from(status));
                break;
            }
        }
        let device = Device::new(crate::ffi::dlpack::DLDeviceType::CUDA, current.device().ordinal());
        let recorded = outcome.and_then(|()| Readiness::recorded(device, current, stream, Wait::CopiedToHost));
        match recorded {
            Ok(readiness) => {
                let parts = load.parts.iter().map(|part| (part.within, part.bytes)).collect();
                Ok(Self { block, readiness, at: load.at, parts })
            }
            Err(error) => {
                // If that cannot be known either, the block is left to the copies.
                if stream_order::settle(current, stream).is_ok() {
                    block.give_back();
                }
                Err(error)
            }
        }
    }

    /// Waits for the copy. If the wait is interrupted, the block is left to the copy until that is done.
    ///
    /// # Safety
    /// `target` has room for the load, and nobody else uses that part of it.
    unsafe fn finish(self, current: &Current, stream: Stream, target: &SharedMemory) -> Result<()> {
        if let Err(error) = self.readiness.wait_on_host(Wait::CopiedToHost) {
            let Self { block, readiness, .. } = self;
            if readiness.used_by(current, stream).is_ok() {
                readiness.release(move || block.give_back());
            }
            return Err(error);
        }
        for (within, bytes) in &self.parts {
            let place = target.at(self.at.wrapping_add(*within));
            // SAFETY: `target` has room for this part; the copy to it in the block is done, and nothing else uses the
            // block.
            unsafe { place.copy_from_nonoverlapping(self.block.start().wrapping_add(*within), *bytes) };
        }
        virtual_time::copied(self.parts.iter().map(|(_, bytes)| bytes).sum());
        self.block.give_back();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moving(address: usize, at: usize, bytes: usize) -> Moving {
        Moving { address, at, bytes }
    }

    #[test]
    fn pieces_that_lie_as_they_will_are_moved_together() {
        let joined = |first: (usize, usize, usize), next: (usize, usize, usize)| {
            let mut moved = moving(first.0, first.1, first.2);
            moved.joins(&moving(next.0, next.1, next.2)).then_some((moved.address, moved.at, moved.bytes))
        };
        assert_eq!(joined((1000, 0, 64), (1064, 64, 8)), Some((1000, 0, 72)));
        assert_eq!(joined((1000, 128, 1), (1064, 192, 8)), Some((1000, 128, 72)));
        // Another distance, a whole line between them, an overlap, and the other order.
        assert_eq!(joined((1000, 0, 60), (1060, 64, 8)), None);
        assert_eq!(joined((1000, 0, 64), (1128, 128, 8)), None);
        assert_eq!(joined((1000, 0, 65), (1064, 64, 8)), None);
        assert_eq!(joined((1064, 64, 8), (1000, 0, 64)), None);
        assert_eq!(joined((1000, 64, 8), (936, 128, 8)), None);
    }

    #[test]
    fn a_thread_has_two_loads_at_least() {
        let workers = |asked: usize, blocks: usize, stream: Stream| {
            workers(Some(asked), &loads(&[moving(4096, 0, blocks * PinnedBlock::BYTES)], &[]), stream)
        };
        let found: Vec<_> = [0, 1, 2, 3, 4, 9, 100].map(|blocks| workers(8, blocks, Stream::LEGACY)).into();
        assert_eq!(found, [1, 1, 1, 1, 2, 4, 8]);
        assert_eq!((workers(3, 100, Stream::LEGACY), workers(8, 100, Stream::PER_THREAD)), (3, 1));
    }

    #[test]
    fn every_byte_is_in_one_load_at_its_place() {
        let block = PinnedBlock::BYTES;
        let cases = [
            vec![moving(1000, 0, 10), moving(5000, 64, 10)],
            vec![moving(1000, 0, block + 5), moving(9_000_000, block + 64, 1)],
            vec![moving(1000, 0, 3 * block)],
            vec![moving(1000, 7, 1), moving(2000, 100_000, 1)],
            vec![moving(1, 0, block - 1), moving(50, block, 10)],
            vec![],
        ];
        for pieces in cases {
            let loads = loads(&pieces, &[]);
            // Where each byte comes from and goes to, as runs: a piece that two loads share is one again.
            let mut found: Vec<(usize, usize, usize)> = Vec::new();
            for load in &loads {
                assert!(load.bytes <= block && !load.parts.is_empty());
                let mut end = 0;
                for part in &load.parts {
                    assert!(part.within >= end && part.within - end <= LARGEST_GAP);
                    end = part.within + part.bytes;
                    assert!(end <= load.bytes);
                    let (address, at) = (part.address, load.at + part.within);
                    match found.last_mut() {
                        Some((from, to, bytes)) if (*from + *bytes, *to + *bytes) == (address, at) => {
                            *bytes += part.bytes
                        }
                        _ => found.push((address, at, part.bytes)),
                    }
                }
                assert_eq!(load.parts[0].within, 0);
            }
            let expected: Vec<_> = pieces.iter().map(|piece| (piece.address, piece.at, piece.bytes)).collect();
            assert_eq!(found, expected);
        }
    }

    /// Returns the bytes that the loads write, including gaps.
    fn written(loads: &[StagedLoad]) -> Vec<(usize, usize)> {
        loads.iter().map(|load| (load.at, load.at + load.bytes)).collect()
    }

    #[test]
    fn a_gap_is_copied_along_only_where_nothing_else_is_put() {
        let ends = [moving(1000, 0, 10), moving(5000, 128, 10), moving(9000, 192, 8)];
        assert_eq!(written(&loads(&ends, &[])), [(0, 200)]);
        // Whatever part of a gap another piece takes, and if it has no bytes of the gap.
        for (at, bytes) in [(10, 1), (64, 8), (64, 64), (127, 1)] {
            assert_eq!(written(&loads(&ends, &[moving(1, at, bytes)])), [(0, 10), (128, 200)], "{at}");
        }
        assert_eq!(written(&loads(&ends, &[moving(1, 200, 64)])), [(0, 200)]);
        assert_eq!(
            written(&loads(&ends, &[moving(1, 64, 1), moving(2, 192 - 1, 1)])),
            [(0, 10), (128, 138), (192, 200)]
        );
        // If two blocks share a piece, the second block starts where the first one ends.
        let block = PinnedBlock::BYTES;
        let (large, small, between) = (moving(1000, 0, block + 8), moving(9, block + 64, 4), moving(1, block + 8, 8));
        let found = written(&loads(&[large, small], &[between]));
        assert_eq!(found, [(0, block), (block, block + 8), (block + 64, block + 68)]);
    }
}
