//! Reads the source's rows, one array at a time.

use std::num::NonZero;
use std::ops::Range;

use super::groups::{GroupChunk, Groups};
use super::prefetch::Stop;
use super::row_hashes::RowHashes;
use super::slot::{Ring, Slot};
use crate::arrow::{DeviceArray, DeviceArrayStream};
use crate::cuda::{PooledStream, is_cuda};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::stream_order::{self, Interrupts};
use crate::transfer::{Transfer, array_to_device};

/// The rows of a stream in order. Holds at most one of its arrays.
pub(super) struct SourceRows {
    /// `None` at the end.
    stream: Option<DeviceArrayStream>,
    current: Option<Current>,
    /// Rows that were passed.
    position: usize,
    hashes: RowHashes,
    /// Has room for one row, which is hashed and goes into no batch.
    scratch: Slot,
    stop: Stop,
    /// The check for signals, if the thread that asks for batches makes them.
    interrupts: Option<Interrupts>,
}

/// The array at hand.
struct Current {
    array: DeviceArray,
    /// Made when rows are taken, so that skipped rows are not read.
    chunk: Option<GroupChunk>,
    /// The rows of it that were passed, and the source's number of its first row.
    used: usize,
    first: usize,
}

impl SourceRows {
    /// `is_inline`: whether the thread that asks for batches reads the arrays, so that signals end the read.
    ///
    /// # Errors
    /// If a row cannot be in memory.
    pub(super) fn new(
        stream: DeviceArrayStream,
        groups: &Groups,
        hashes: RowHashes,
        stop: Stop,
        is_inline: bool,
    ) -> Result<Self> {
        let scratch = Ring::new(groups.layouts(), 1, 0, || None)?.slot();
        let interrupts = is_inline.then(Interrupts::new);
        Ok(Self { stream: Some(stream), current: None, position: 0, hashes, scratch, stop, interrupts })
    }

    /// The rows that were passed.
    pub(super) fn position(&self) -> usize {
        self.position
    }

    /// Fails if the loader was closed.
    pub(super) fn check_stop(&self) -> Result<()> {
        if self.stop.is_asked() { Err(Error::argument("the loader was closed")) } else { Ok(()) }
    }

    /// Reads the arrays on another thread than the one that asks for batches.
    #[cfg(feature = "async")]
    pub(super) fn leave_thread(&mut self) {
        self.interrupts = None;
    }

    /// Returns the rows left in the current array, or in the next one that has any; 0 at the end.
    pub(super) fn at_hand(&mut self) -> Result<usize> {
        loop {
            self.check_stop()?;
            if let Some(current) = &self.current {
                return Ok(current.array.len() - current.used);
            }
            self.interrupts.as_mut().map_or(Ok(()), Interrupts::check)?;
            match self.stream.as_mut().and_then(Iterator::next) {
                Some(Ok(array)) if array.is_empty() => {}
                Some(Ok(array)) => {
                    self.current = Some(Current { array, chunk: None, used: 0, first: self.position });
                }
                Some(Err(error)) => {
                    self.stream = None;
                    return Err(error);
                }
                None => {
                    self.stream = None;
                    return self.hashes.end(self.position).map(|()| 0);
                }
            }
        }
    }

    /// Skips `count` rows, or all that are left; returns their number.
    pub(super) fn skip(&mut self, count: usize, groups: &mut Groups) -> Result<usize> {
        let mut passed = 0;
        while passed < count {
            let rows = self.at_hand()?.min(count - passed);
            if rows == 0 {
                break;
            }
            self.hash_skipped(rows, groups)?;
            self.pass(rows)?;
            passed += rows;
        }
        Ok(passed)
    }

    /// Appends `count` rows, or all that are left, to the slot; returns their number.
    pub(super) fn take(&mut self, count: usize, groups: &mut Groups, slot: &mut Slot) -> Result<usize> {
        let mut taken = 0;
        while taken < count {
            let rows = self.at_hand()?.min(count - taken);
            let Some(current) = self.current.as_mut() else { break };
            let chunk = match &mut current.chunk {
                Some(chunk) => chunk,
                none => {
                    if !current.array.device().is_cpu() {
                        current.array = on_host(&current.array, groups.threads())?;
                    }
                    none.insert(groups.chunk(&current.array)?)
                }
            };
            slot.reserve(rows)?;
            let first = slot.rows();
            groups.append(chunk, &(current.used..current.used + rows), current.first, slot.blocks())?;
            while self.hashes.next_row() - self.position < rows {
                let hash = slot.row_hash(first + self.hashes.next_row() - self.position)?;
                self.hashes.add(hash, |hash| groups.fold_dictionaries(hash))?;
            }
            self.pass(rows)?;
            taken += rows;
        }
        Ok(taken)
    }

    /// Hashes the sampled rows among the next ones of the current array, which go into no batch.
    fn hash_skipped(&mut self, rows: usize, groups: &mut Groups) -> Result<()> {
        while self.hashes.next_row() - self.position < rows {
            let Some(current) = &self.current else { return Ok(()) };
            let at = current.used + self.hashes.next_row() - self.position;
            self.scratch.truncate(0);
            // Another rank may have to tell an error of this row, at its own batch.
            let hash = match pack_row(current, at..at + 1, groups, &mut self.scratch) {
                Ok(()) => self.scratch.row_hash(0)?,
                Err(_) => 0,
            };
            self.hashes.add(hash, |hash| groups.fold_dictionaries(hash))?;
        }
        Ok(())
    }

    /// Skips rows of the current array, which is released after its last row.
    fn pass(&mut self, rows: usize) -> Result<()> {
        let Some(current) = self.current.as_mut() else { return Ok(()) };
        current.used += rows;
        if current.used >= current.array.len() {
            self.current = None;
        }
        self.position = self
            .position
            .checked_add(rows)
            .ok_or_else(|| Error::invalid("the source has more rows than can be counted"))?;
        Ok(())
    }
}

/// Packs one row of an array, and reads no other one.
fn pack_row(current: &Current, row: Range<usize>, groups: &mut Groups, slot: &mut Slot) -> Result<()> {
    slot.reserve(1)?;
    if let Some(chunk) = &current.chunk {
        return groups.append(chunk, &row, current.first, slot.blocks());
    }
    let mut array = current.array.clipped(&row);
    if !array.device().is_cpu() {
        array = on_host(&array, groups.threads())?;
    }
    let chunk = groups.chunk(&array)?;
    groups.append(&chunk, &(0..1), current.first.saturating_add(row.start), slot.blocks())
}

/// Copies an array of a device to host memory, where rows are packed. The copy runs on a stream of ours that waits only
/// for the write of the array; this thread waits for the copy.
fn on_host(array: &DeviceArray, threads: Option<NonZero<usize>>) -> Result<DeviceArray> {
    let copies = match is_cuda(array.device()) {
        true => Some(PooledStream::idle(&stream_order::enter(array.device())?)?),
        false => None,
    };
    let why = "read by a loader, which packs rows on the host";
    let stream = copies.as_ref().map(PooledStream::stream);
    array_to_device(array, &Transfer { device: Device::CPU, stream, threads, why })
}
