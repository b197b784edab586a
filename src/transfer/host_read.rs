//! Reads device bitmaps and offsets that the host needs, with one wait for all of them.

use std::ops::Range;

use super::own_memory::device_address;
use super::path::is_read_in_place;
use crate::alloc::fallible;
use crate::cuda::{Current, PinnedBlock, PooledStream, Stream};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::stream_order::{self, Readiness, Wait};

/// The staging buffers that one wait is for; more bytes need more waits.
const BLOCKS: usize = 32;

/// Bytes that were read, by their device addresses.
#[derive(Debug, Default)]
pub(crate) struct HostRead(Vec<(usize, Vec<u8>)>);

impl HostRead {
    /// Returns the bytes at an address, if they were read.
    pub(crate) fn get(&self, address: usize, bytes: usize) -> Option<&[u8]> {
        self.0.iter().find_map(|(start, read)| {
            let before = address.checked_sub(*start)?;
            read.get(before..before.checked_add(bytes)?)
        })
    }

    /// Like [`HostRead::get`], for bytes that the caller requested.
    ///
    /// # Errors
    /// If they were not read.
    pub(crate) fn require(&self, address: usize, bytes: usize) -> Result<&[u8]> {
        self.get(address, bytes).ok_or_else(|| Error::internal("bytes of a device that were not read"))
    }
}

/// Reads pieces of device memory, once they are written, with one wait for all, unless they are large. Asks the driver
/// whether each is memory of this device.
///
/// # Errors
/// If the device is not reached through CUDA, the memory is another device's, the driver fails, the wait is
/// interrupted, or an allocation fails.
pub(crate) fn read_to_host(readiness: &Readiness, ranges: &[Range<usize>]) -> Result<HostRead> {
    let ranges = ranges.iter().filter(|range| !range.is_empty());
    let mut pieces = Vec::new();
    for range in ranges.clone() {
        if !pieces.iter().any(|(start, read): &(usize, Vec<u8>)| *start == range.start && read.len() >= range.len()) {
            pieces.push((range.start, fallible::zeroed(range.len())?));
        }
    }
    if pieces.is_empty() {
        return Ok(HostRead::default());
    }
    let current = readiness.enter()?;
    for (start, bytes) in &pieces {
        readiness.check_part_in(&current, &(*start..start.saturating_add(bytes.len())))?;
    }
    if is_read_in_place(readiness.device())? {
        readiness.wait_on_host(Wait::HostRead)?;
        for (start, bytes) in &mut pieces {
            let start = std::ptr::with_exposed_provenance::<u8>(*start);
            // SAFETY: the driver says that host-visible memory is there, of so many bytes, and it is written.
            unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(start, bytes.len()) };
        }
        return Ok(HostRead(pieces));
    }
    let stream = PooledStream::idle(&current)?;
    readiness.wait_in(&current, stream.stream(), Wait::CopySource)?;
    let mut rest = parts(&pieces);
    while !rest.is_empty() {
        rest = Round::default().read(readiness, &current, stream.stream(), &mut pieces, rest)?;
    }
    Ok(HostRead(pieces))
}

/// Some bytes of a piece, at most a staging buffer of them.
#[derive(Clone, Copy)]
struct ReadPart {
    piece: usize,
    at: usize,
    length: usize,
}

/// Cuts the pieces to the size of a staging buffer.
fn parts(pieces: &[(usize, Vec<u8>)]) -> std::collections::VecDeque<ReadPart> {
    let cut = |(piece, (_, bytes)): (usize, &(usize, Vec<u8>))| {
        let length = bytes.len();
        (0..length).step_by(PinnedBlock::BYTES).map(move |at| ReadPart {
            piece,
            at,
            length: (length - at).min(PinnedBlock::BYTES),
        })
    };
    pieces.iter().enumerate().flat_map(cut).collect()
}

/// Copies that one wait is for.
#[derive(Default)]
struct Round {
    blocks: Vec<PinnedBlock>,
    /// Bytes of the last block in use.
    filled: usize,
    /// Each part, with its block and its position there.
    started: Vec<(ReadPart, usize, usize)>,
}

impl Round {
    /// Copies as many parts as fit; returns the others.
    fn read(
        mut self,
        readiness: &Readiness,
        current: &Current,
        stream: Stream,
        pieces: &mut [(usize, Vec<u8>)],
        mut parts: std::collections::VecDeque<ReadPart>,
    ) -> Result<std::collections::VecDeque<ReadPart>> {
        let mut outcome = Ok(());
        while let Some(part) = parts.pop_front() {
            let start = pieces.get(part.piece).map_or(0, |(start, _)| *start);
            match self.start(current, stream, start, part) {
                Ok(true) => {}
                Ok(false) => {
                    parts.push_front(part);
                    break;
                }
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        let waited = stream_order::wait_for_stream(current, stream, Wait::CopiedToHost);
        if outcome.is_ok() && waited.is_ok() {
            self.finish(pieces);
        }
        match waited {
            Ok(()) => self.blocks.into_iter().for_each(PinnedBlock::give_back),
            // The copies may still run, so the source and the blocks are left to them.
            Err(_) => {
                readiness.used_by(current, stream)?;
                let blocks = Readiness::on_device(Device::new(
                    crate::ffi::dlpack::DLDeviceType::CUDA,
                    current.device().ordinal(),
                ));
                blocks.used_by(current, stream)?;
                let taken = self.blocks;
                blocks.release(move || taken.into_iter().for_each(PinnedBlock::give_back));
            }
        }
        outcome.and(waited).map(|()| parts)
    }

    /// Starts a copy; returns false if this round has no room for it.
    fn start(&mut self, current: &Current, stream: Stream, start: usize, part: ReadPart) -> Result<bool> {
        if self.blocks.is_empty() || PinnedBlock::BYTES - self.filled < part.length {
            if self.blocks.len() >= BLOCKS {
                return Ok(false);
            }
            let block = match stream_order::staging_block(current)? {
                Some(block) => block,
                None if self.blocks.is_empty() => PinnedBlock::take(current)?,
                None => return Ok(false),
            };
            self.blocks.push(block);
            self.filled = 0;
        }
        let Some(block) = self.blocks.last() else { return Ok(false) };
        let source = device_address(start.wrapping_add(part.at))?;
        // SAFETY: `read_to_host` has checked the range, which the order's memory has until it is released, behind this copy; the block
        // has room, and is read when the copy is done.
        unsafe { current.copy_to_pinned(block, self.filled, source, part.length, stream) }?;
        self.started.push((part, self.blocks.len() - 1, self.filled));
        self.filled += part.length;
        Ok(true)
    }

    /// Takes the bytes out of the blocks.
    fn finish(&self, pieces: &mut [(usize, Vec<u8>)]) {
        for (part, block, at) in &self.started {
            let target =
                pieces.get_mut(part.piece).and_then(|(_, bytes)| bytes.get_mut(part.at..part.at + part.length));
            let (Some(target), Some(block)) = (target, self.blocks.get(*block)) else { continue };
            // SAFETY: the copy to this part of the block is done, and nothing else uses the block.
            unsafe { target.as_mut_ptr().copy_from_nonoverlapping(block.start().wrapping_add(*at), part.length) };
        }
    }
}
