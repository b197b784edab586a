//! Reads the source's rows, one array at a time.

use std::num::NonZero;

use super::groups::{GroupChunk, Groups};
use super::prefetch::Stop;
use super::slot::Slot;
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
    pub(super) fn new(stream: DeviceArrayStream, stop: Stop, is_inline: bool) -> Self {
        Self { stream: Some(stream), current: None, position: 0, stop, interrupts: is_inline.then(Interrupts::new) }
    }

    /// Returns the rows left in the current array, or in the next one that has any; 0 at the end.
    pub(super) fn at_hand(&mut self) -> Result<usize> {
        loop {
            if self.stop.is_asked() {
                return Err(Error::argument("the loader was closed"));
            }
            if let Some(current) = &self.current {
                return Ok(current.array.len() - current.used);
            }
            self.interrupts.as_mut().map_or(Ok(()), Interrupts::check)?;
            match self.stream.as_mut().and_then(Iterator::next) {
                Some(Ok(array)) if array.is_empty() => {}
                Some(Ok(array)) => {
                    self.current = Some(Current { array, chunk: None, used: 0, first: self.position });
                }
                ended => {
                    self.stream = None;
                    return ended.transpose().map(|_| 0);
                }
            }
        }
    }

    /// Skips `count` rows, or all that are left; returns their number.
    pub(super) fn skip(&mut self, count: usize) -> Result<usize> {
        let mut passed = 0;
        while passed < count {
            let rows = self.at_hand()?.min(count - passed);
            if rows == 0 {
                break;
            }
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
            groups.append(chunk, &(current.used..current.used + rows), current.first, slot.blocks())?;
            self.pass(rows)?;
            taken += rows;
        }
        Ok(taken)
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
