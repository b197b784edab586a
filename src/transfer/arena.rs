//! The arena: one block of memory for everything that one call moves, and the copies that fill it.

use std::num::NonZero;
use std::ops::Range;
use std::sync::Arc;

use super::own_memory::{PinnedOwner, device_address, host_address, owned, require_free, written};
use super::path::elsewhere;
use super::request::Transfer;
use super::staging::{self, Moving, SharedMemory};
use crate::alloc::{ALIGNMENT, HostBuffer, Owner, fallible};
use crate::convert::for_each_part;
use crate::cuda::{Current, Stream, thread_sync};
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::ffi::dlpack::DLDeviceType;
use crate::stream_order::{self, Readiness, Wait, allocate, page_locked};

/// From this size on, memory of `CUDA_HOST` is copied directly; smaller pieces share a staging buffer.
const COPIED_APART: usize = 64 << 10;

/// The pieces, with their places.
#[derive(Debug, Default)]
pub(super) struct Arena {
    pieces: Vec<Moving>,
    bytes: usize,
}

/// The memory of the copies.
pub(super) struct Placed {
    pub(super) start: *mut u8,
    pub(super) owner: Owner,
    /// When it is written; `None` for ordinary host memory.
    pub(super) readiness: Option<Readiness>,
}

impl Arena {
    /// Reserves a place for this number of bytes.
    pub(super) fn place(&mut self, bytes: usize) -> Result<usize> {
        let too_large = || Error::new(ErrorKind::Memory, "the data is larger than memory can be");
        let at = self.bytes.checked_next_multiple_of(ALIGNMENT).ok_or_else(too_large)?;
        self.bytes = at.checked_add(bytes).filter(|end| isize::try_from(*end).is_ok()).ok_or_else(too_large)?;
        Ok(at)
    }

    /// Returns the bytes of all places so far, with the gaps between them.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds bytes of the source. Their provenance is exposed if the host may read them.
    pub(super) fn push(&mut self, address: usize, at: usize, bytes: usize) {
        if bytes > 0 {
            self.pieces.push(Moving { address, at, bytes });
        }
    }

    /// Copies the pieces, and `scratch`, to their places.
    ///
    /// # Safety
    /// The clause `pieces`: they are memory of `own` that is written as `readiness` says. It is alive during this call; on a
    /// device, until the work that `readiness` knows to use it is done.
    pub(super) unsafe fn copy(
        &self,
        own: Device,
        readiness: Option<&Readiness>,
        scratch: &[(usize, Vec<u8>)],
        transfer: &Transfer<'_>,
    ) -> Result<Placed> {
        let job = Job { arena: self, own, readiness, scratch, transfer };
        match (own.device_type(), transfer.device.device_type()) {
            // SAFETY: `pieces` is promised, in the same words.
            (_, DLDeviceType::CUDA) => unsafe { job.to_cuda() },
            // SAFETY: `pieces` is promised, in the same words.
            (_, DLDeviceType::CPU) => unsafe { job.to_host() },
            // SAFETY: `pieces` is promised, of ordinary memory, as `own` is the CPU.
            (DLDeviceType::CPU, _) => unsafe { job.pinned() },
            // SAFETY: `pieces` is promised; memory that is neither the CPU's nor ordered by a readiness is refused
            // there.
            _ => unsafe { job.to_pinned() },
        }
    }
}

struct Job<'a> {
    arena: &'a Arena,
    own: Device,
    readiness: Option<&'a Readiness>,
    scratch: &'a [(usize, Vec<u8>)],
    transfer: &'a Transfer<'a>,
}

impl Job<'_> {
    fn stream(&self) -> Stream {
        self.transfer.stream.unwrap_or_else(stream_order::current_stream)
    }

    fn threads(&self) -> Option<usize> {
        self.transfer.threads.map(NonZero::get)
    }

    /// Makes the source's device current, and returns the copies that bring these pieces, after checking that each is its memory.
    fn enter_source(&self, pieces: &[Moving]) -> Result<(Current, Vec<Moving>)> {
        let current = self.readiness.map_or_else(|| stream_order::enter(self.own), Readiness::enter)?;
        let ask = |piece: &Moving| current.checked_allocation(piece.address, piece.bytes, self.own);
        let copies = together(pieces, ask)?;
        Ok((current, copies))
    }

    /// # Safety
    /// As [`Arena::copy`].
    unsafe fn to_cuda(&self) -> Result<Placed> {
        let (target, stream) = (self.transfer.device, self.stream());
        let current = stream_order::enter(target)?;
        require_free(&current, stream)?;
        let (staged, direct) = self.divided(&current, stream)?;
        let buffer = allocate(&current, self.arena.bytes.max(1), stream)?;
        let start = buffer.start();
        if let Some(readiness) = self.readiness {
            readiness.wait_in(&current, stream, Wait::CopySource)?;
        }
        // SAFETY: `pieces`, divided; the buffer was made for them, on this stream.
        let started = unsafe { self.start(&current, start, (staged, direct), stream) };
        // Started copies read the source, and end before the memory is freed, because it is freed on the same stream.
        let used = self.readiness.map_or(Ok(()), |readiness| readiness.used_by(&current, stream));
        started.and(used)?;
        let readiness = written(target, &current, stream, Wait::Moved);
        let (owner, readiness) = owned(buffer, readiness, &current, stream)?;
        let start = std::ptr::without_provenance_mut(host_address(start)?);
        Ok(Placed { start, owner, readiness: Some(readiness) })
    }

    /// Returns the pieces that go through staging buffers, and the copies that bring the others, on `stream` of the current context.
    fn divided(&self, current: &Current, stream: Stream) -> Result<(Vec<Moving>, Vec<Moving>)> {
        if self.own.is_cpu() {
            return Ok((fallible::copied(&self.arena.pieces)?, Vec::new()));
        }
        let is_small = |piece: &Moving| piece.bytes < COPIED_APART;
        let are_staged = self.arena.pieces.iter().any(is_small) && self.may_read_now(current, stream)?;
        let (staged, others): (Vec<_>, Vec<_>) =
            self.arena.pieces.iter().copied().partition(|piece| are_staged && is_small(piece));
        if !staged.is_empty() {
            self.enter_source(&staged)?;
        }
        let (_, direct) = self.enter_source(&others)?;
        Ok((staged, direct))
    }

    /// # Safety
    /// As [`Arena::copy`] of the pieces that `divided` returned; there is room for them from `target` on.
    unsafe fn start(
        &self,
        current: &Current,
        target: u64,
        (mut staged, mut direct): (Vec<Moving>, Vec<Moving>),
        stream: Stream,
    ) -> Result<()> {
        let scratch = self.scratch.iter().filter(|(_, bytes)| !bytes.is_empty());
        staged.extend(scratch.map(|(at, bytes)| Moving {
            address: bytes.as_ptr().expose_provenance(),
            at: *at,
            bytes: bytes.len(),
        }));
        staged.sort_unstable_by_key(|piece| piece.at);
        direct.sort_unstable_by_key(|piece: &Moving| piece.at);
        let mut outcome = Ok(());
        for piece in &direct {
            // SAFETY: `pieces`, of which this brings some, with the padding between them; `target` has room for it at its place.
            outcome = unsafe { self.copy_one(current, target + piece.at as u64, piece, stream) };
            if outcome.is_err() {
                break;
            }
        }
        outcome?;
        // SAFETY: the staged pieces are the host's, whose memory may be read now (`may_read_now`), and the scratch is
        // ours; both are sorted by place, and `target` has room for them.
        unsafe { staging::upload(self.transfer.device, target, &staged, &direct, stream, self.threads()) }
    }

    /// Returns whether the host may read the source at once: page-locked memory that is written, if no stream is named or set that may
    /// have work on it. Page-locked memory that is labelled as the CPU's, as PyTorch labels it, is the CPU's: its owner knows of no copies
    /// under way, and may change it when the call returns.
    fn may_read_now(&self, current: &Current, stream: Stream) -> Result<bool> {
        if self.own.device_type() != DLDeviceType::CUDA_HOST || self.transfer.stream.is_some() {
            return Ok(false);
        }
        let Some(readiness) = self.readiness else { return Ok(false) };
        Ok(readiness.is_complete()? && (stream_order::scoped_stream().is_none() || current.is_idle(stream)?))
    }

    /// # Safety
    /// As [`Arena::copy`]; there is room for the piece at `target`.
    unsafe fn copy_one(&self, current: &Current, target: u64, piece: &Moving, stream: Stream) -> Result<()> {
        let source = device_address(piece.address)?;
        let started = match self.own.device_type() {
            DLDeviceType::CUDA if self.own.id() != current.device().ordinal() => {
                let own = stream_order::device(self.own.id())?;
                // SAFETY: `pieces`, and `target` has room for this one; source and buffer are released behind the
                // copy.
                unsafe { current.copy_from_peer(target, source, own, piece.bytes, stream) }
            }
            // SAFETY: `pieces`, and `target` has room for this one; source and buffer are released behind the copy.
            DLDeviceType::CUDA | DLDeviceType::CUDA_MANAGED => unsafe {
                current.copy_on_device(target, source, piece.bytes, stream)
            },
            // SAFETY: `pieces`, and `target` has room for this one; source and buffer are released behind the copy.
            _ => unsafe { current.copy_from_host(target, piece.address, piece.bytes, stream) },
        };
        Ok(started?)
    }

    /// # Safety
    /// As [`Arena::copy`].
    unsafe fn to_host(&self) -> Result<Placed> {
        let buffer = HostBuffer::uninitialised(self.arena.bytes)?;
        let start = buffer.as_ptr();
        if !self.arena.pieces.is_empty() {
            let Some(readiness) = self.readiness else { return Err(elsewhere(self.own, self.transfer.device)) };
            let ((current, pieces), stream) = (self.enter_source(&self.arena.pieces)?, self.stream());
            require_free(&current, stream)?;
            readiness.wait_in(&current, stream, Wait::CopySourceToHost)?;
            // SAFETY: `pieces`, in memory of a device; the buffer has room for them, and is nobody else's yet.
            let copied = unsafe { staging::download(self.own, start, &pieces, stream, self.threads()) };
            // The source may be released before an interrupted copy is done.
            let used = if copied.is_err() { readiness.used_by(&current, stream) } else { Ok(()) };
            copied.and(used)?;
        }
        // SAFETY: the buffer has the arena's size, and nobody else knows it yet.
        unsafe { self.write_scratch(start) };
        Ok(Placed { start, owner: Arc::new(buffer), readiness: None })
    }

    /// # Safety
    /// As [`Arena::copy`]. The source is ordinary memory.
    unsafe fn pinned(&self) -> Result<Placed> {
        let device = self.transfer.device;
        let current = stream_order::enter(device)?;
        let buffer = page_locked(&current, self.arena.bytes.max(1))?;
        let start = SharedMemory::new(buffer.start());
        let pieces = &self.arena.pieces;
        let threads = crate::convert::threads(self.threads(), self.arena.bytes);
        // Pieces are cut where the threads' parts are.
        thread_sync::send(start.at(0).addr());
        let copied = for_each_part::<Error>(threads, self.arena.bytes, ALIGNMENT, |part| {
            thread_sync::receive(start.at(0).addr());
            for piece in pieces {
                let (first, end) = (piece.at.max(part.start), (piece.at + piece.bytes).min(part.end));
                if first < end {
                    let source = std::ptr::with_exposed_provenance::<u8>(piece.address + (first - piece.at));
                    let place = start.at(first);
                    // SAFETY: `pieces`, of which this is a part; each thread has its own part of the buffer, which
                    // nobody else knows yet.
                    unsafe { place.copy_from_nonoverlapping(source, end - first) };
                }
            }
            thread_sync::send(start.at(0).addr());
            Ok(())
        });
        thread_sync::receive(start.at(0).addr());
        copied?;
        // SAFETY: the buffer has the arena's size, and nobody else knows it yet.
        unsafe { self.write_scratch(start.at(0)) };
        let readiness = Readiness::on_device(device);
        Ok(Placed {
            start: start.at(0),
            owner: Arc::new(PinnedOwner::new(buffer, readiness.clone())),
            readiness: Some(readiness),
        })
    }

    /// # Safety
    /// As [`Arena::copy`]. The source is on CUDA.
    unsafe fn to_pinned(&self) -> Result<Placed> {
        let Some(source) = self.readiness else { return Err(elsewhere(self.own, self.transfer.device)) };
        let ((current, pieces), stream) = (self.enter_source(&self.arena.pieces)?, self.stream());
        require_free(&current, stream)?;
        let buffer = page_locked(&current, self.arena.bytes.max(1))?;
        let start = buffer.start();
        // SAFETY: nobody else knows the buffer yet, and no copy goes to these bytes.
        unsafe { self.write_scratch(start) };
        source.wait_in(&current, stream, Wait::CopySourceToPinned)?;
        let mut outcome = Ok(());
        for piece in &pieces {
            let from = device_address(piece.address)?;
            // SAFETY: `pieces`, of which this brings some, with the padding between them; the buffer has room for it, and is read when
            // the copy is done.
            let started =
                unsafe { current.copy_to_host_memory(start.wrapping_add(piece.at), from, piece.bytes, stream) };
            if let Err(status) = started {
                outcome = Err(Error::from(status));
                break;
            }
        }
        let used = source.used_by(&current, stream);
        let outcome = outcome.and(used);
        match outcome.and_then(|()| written(self.transfer.device, &current, stream, Wait::MovedToPinned)) {
            Ok(readiness) => Ok(Placed {
                start,
                owner: Arc::new(PinnedOwner::new(buffer, readiness.clone())),
                readiness: Some(readiness),
            }),
            Err(error) => {
                // Copies may still run. If that cannot be known, the memory is left to them.
                if stream_order::settle(&current, stream).is_err() {
                    std::mem::forget(buffer);
                }
                Err(error)
            }
        }
    }

    /// # Safety
    /// The memory has room for the arena, and nobody else uses it.
    unsafe fn write_scratch(&self, start: *mut u8) {
        for (at, bytes) in self.scratch {
            // SAFETY: the memory has room for the arena, of which these bytes are a part, and nobody else uses it.
            unsafe { start.wrapping_add(*at).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        }
    }
}

/// Returns the copies that bring these pieces. Pieces that lie in one allocation, at the same distances as in the arena, come in one copy,
/// with the padding between them. `ask` returns the addresses of the allocation of a piece, if they are known.
///
/// # Errors
/// Those of `ask`.
fn together(pieces: &[Moving], ask: impl Fn(&Moving) -> Result<Option<Range<usize>>>) -> Result<Vec<Moving>> {
    let mut copies: Vec<Moving> = fallible::with_room(pieces.len())?;
    let mut allocation: Option<Range<usize>> = None;
    for piece in pieces {
        let end = piece.address.saturating_add(piece.bytes);
        let is_known = allocation.as_ref().is_some_and(|known| known.start <= piece.address && end <= known.end);
        if !is_known {
            allocation = ask(piece)?;
        } else if copies.last_mut().is_some_and(|last| last.joins(piece)) {
            continue;
        }
        copies.push(*piece);
    }
    Ok(copies)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_copied_together_in_one_allocation_alone() {
        let piece = |address: usize, at: usize, bytes: usize| Moving { address, at, bytes };
        let found = |pieces: &[Moving], allocations: &[Range<usize>]| {
            let ask = |piece: &Moving| Ok(allocations.iter().find(|known| known.contains(&piece.address)).cloned());
            let copies = together(pieces, ask).unwrap();
            copies.into_iter().map(|copy| (copy.address, copy.bytes)).collect::<Vec<_>>()
        };
        let pieces = [piece(4096, 0, 60), piece(4160, 64, 64), piece(4224, 128, 8)];
        assert_eq!(found(&pieces, std::slice::from_ref(&(4096..8192))), [(4096, 136)]);
        // Allocations that touch, one that ends inside a piece, and what nobody knows.
        assert_eq!(found(&pieces, &[4096..4160, 4160..8192]), [(4096, 60), (4160, 72)]);
        assert_eq!(found(&pieces, &[4096..4200, 4200..8192]), [(4096, 60), (4160, 64), (4224, 8)]);
        assert_eq!(found(&pieces, &[]), [(4096, 60), (4160, 64), (4224, 8)]);
    }
}
