//! The rows of the source, one array at a time.

use super::ahead::Stop;
use super::groups::{Chunk, Groups};
use super::slot::Slot;
use crate::arrow::{DeviceArray, DeviceArrayStream};
use crate::error::{Error, Result};

/// The rows of a stream in their order. At most one of its arrays is held at a time.
pub(super) struct Feed {
    /// `None` at the end.
    stream: Option<DeviceArrayStream>,
    current: Option<Current>,
    /// Rows that were passed.
    position: usize,
    stop: Stop,
}

/// The array at hand.
struct Current {
    array: DeviceArray,
    /// Made when rows are taken: those that are skipped need not be looked at.
    chunk: Option<Chunk>,
    /// Rows of it that were passed, and the number of its first one in the source.
    used: usize,
    first: usize,
}

impl Feed {
    pub(super) fn new(stream: DeviceArrayStream, stop: Stop) -> Self {
        Self { stream: Some(stream), current: None, position: 0, stop }
    }

    /// Rows that are left of the array at hand, or of the next one that has any; 0 at the end.
    pub(super) fn at_hand(&mut self) -> Result<usize> {
        loop {
            if self.stop.is_asked() {
                return Err(Error::argument("the loader was closed"));
            }
            if let Some(current) = &self.current {
                return Ok(current.array.len() - current.used);
            }
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

    /// Passes `count` rows, or as many as there are; how many there were.
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

    /// Appends `count` rows, or as many as there are, to the slot; how many there were.
    pub(super) fn take(&mut self, count: usize, groups: &mut Groups, slot: &mut Slot) -> Result<usize> {
        let mut taken = 0;
        while taken < count {
            let rows = self.at_hand()?.min(count - taken);
            let Some(current) = self.current.as_mut() else { break };
            let chunk = match &mut current.chunk {
                Some(chunk) => chunk,
                none => none.insert(groups.chunk(&current.array)?),
            };
            slot.reserve(rows)?;
            groups.append(chunk, &(current.used..current.used + rows), current.first, slot.blocks())?;
            self.pass(rows)?;
            taken += rows;
        }
        Ok(taken)
    }

    /// Passes rows of the array at hand, which is released after its last one.
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
