//! How a copy is queued: which ends the driver knows, when pageable memory is read, and who waits.

use std::sync::Arc;

use crate::call::Call;
use crate::error::{Error, Outcome};
use crate::execute::{Action, Fill, read_pageable};
use crate::race::{Kind, Ranges};
use crate::settings::{Pageable, Schedule};
use crate::state::State;

/// Rows of bytes, from one place to another.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    pub(crate) destination: u64,
    pub(crate) destination_pitch: u64,
    pub(crate) to_pageable: bool,
    pub(crate) source: Source,
    pub(crate) source_pitch: u64,
    pub(crate) width: u64,
    pub(crate) height: u64,
}

/// Where the bytes come from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// A block that the driver knows.
    Known(u64),
    /// Pageable memory, read when the copy runs.
    Pageable(u64),
    /// Pageable memory, as it was when the copy was queued.
    Snapshot(Vec<u8>),
}

/// Whether the call that queues work waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// Not by itself.
    No,
    /// The host knows afterwards that it is done.
    Host,
    /// It may, but the driver does not promise it.
    Perhaps,
}

/// The rectangle of a copy, before its ends are looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rectangle {
    pub(crate) destination: u64,
    pub(crate) destination_pitch: u64,
    pub(crate) source: u64,
    pub(crate) source_pitch: u64,
    pub(crate) width: u64,
    pub(crate) height: u64,
    /// Of a copy between two contexts, the devices of its destination and of its source: neither has to reach the other's memory.
    pub(crate) between: Option<(usize, usize)>,
}

impl Rectangle {
    /// One row.
    pub(crate) fn line(destination: u64, source: u64, bytes: usize) -> Rectangle {
        let width = bytes as u64;
        let (destination_pitch, source_pitch) = (width, width);
        Rectangle { destination, destination_pitch, source, source_pitch, width, height: 1, between: None }
    }
}

/// The ranges of rows, joined where nothing lies between them.
fn rows(address: u64, pitch: u64, width: u64, height: u64) -> Ranges {
    let (width, height) = if pitch == width { (width * height, 1) } else { (width, height) };
    Arc::new((0..height).map(|row| address + row * pitch..address + row * pitch + width).collect())
}

impl Copy {
    /// What it reads and writes of memory that the driver knows.
    pub(crate) fn touches(&self) -> Vec<(Ranges, Kind)> {
        let mut touches = Vec::new();
        if let Source::Known(address) = self.source {
            touches.push((rows(address, self.source_pitch, self.width, self.height), Kind::Read));
        }
        if !self.to_pageable {
            let rows = rows(self.destination, self.destination_pitch, self.width, self.height);
            touches.push((rows, Kind::Write));
        }
        touches
    }
}

impl State {
    /// Whether an end of a copy is memory that the driver knows; an error if it is a device pointer to nothing.
    fn known(&self, stream: usize, address: u64, bytes: u64, by: Option<usize>) -> Outcome<bool> {
        let device = self.contexts[&self.streams[stream].context].device;
        let Some(block) = self.memory.find(address) else {
            return if self.memory.is_device_address(address) { Err(Error::INVALID_VALUE) } else { Ok(false) };
        };
        let end = address.checked_add(bytes).ok_or(Error::INVALID_VALUE)?;
        if end > block.base + block.size {
            return Err(Error::INVALID_VALUE);
        }
        if !block.is_mapped(&(address..end), Some(by.unwrap_or(device))) {
            return Err(Error::INVALID_VALUE);
        }
        match block.pool.and_then(|pool| self.pools.get(&pool)) {
            Some(pool) if !pool.is_accessible_from(device) => Err(Error::INVALID_VALUE),
            _ => Ok(true),
        }
    }

    fn reads_pageable_now(&mut self) -> bool {
        match (self.settings.pageable, self.settings.schedule) {
            (Pageable::Immediate, _) | (Pageable::Scheduled, Schedule::Eager | Schedule::Clock) => true,
            (Pageable::Deferred, _) | (Pageable::Scheduled, Schedule::Lazy) => false,
            (Pageable::Scheduled, Schedule::Random(_)) => self.below(2) == 0,
        }
    }
}

impl Call {
    /// Queues a copy, and waits as the driver does.
    pub(crate) fn copy(&mut self, stream: usize, rectangle: Rectangle, waits: Waits) -> Outcome {
        let Rectangle { destination, destination_pitch, source, source_pitch, width, height, between } = rectangle;
        if width == 0 || height == 0 {
            return Ok(());
        }
        let span = |pitch: u64| {
            pitch.checked_mul(height - 1).and_then(|rows| rows.checked_add(width)).ok_or(Error::INVALID_VALUE)
        };
        if height > 1 && (source_pitch < width || destination_pitch < width) {
            return Err(Error::INVALID_VALUE);
        }
        let from_known = self.known(stream, source, span(source_pitch)?, between.map(|(_, from)| from))?;
        let to_known = self.known(stream, destination, span(destination_pitch)?, between.map(|(to, _)| to))?;
        let capturing = self.streams[stream].capture.is_some();
        if capturing && !to_known {
            // The copy would be over only when the call returns.
            return self.refuse_captured(stream);
        }
        let source = match from_known {
            true => Source::Known(source),
            false if !capturing && self.reads_pageable_now() => {
                let mut bytes = vec![0; (width * height) as usize];
                for (row, bytes) in (0..height).zip(bytes.chunks_exact_mut(width as usize)) {
                    read_pageable(source + row * source_pitch, bytes).map_err(|_| Error::INVALID_VALUE)?;
                }
                Source::Snapshot(bytes)
            }
            false => Source::Pageable(source),
        };
        let copy = Copy { destination, destination_pitch, to_pageable: !to_known, source, source_pitch, width, height };
        let thread = self.thread;
        let at = self.submit(thread, stream, Action::Copy(copy), None)?;
        if capturing {
            return Ok(());
        }
        if !from_known {
            // The driver copies to memory of its own first.
            let cost = self.settings.machine.host_copy(width * height);
            self.spend(cost);
        }
        // Into pageable memory the driver returns only when the bytes are there; out of it, when it is done with the source.
        let waits = match waits {
            Waits::No if !to_known => Waits::Host,
            Waits::No if !from_known => Waits::Perhaps,
            waits => waits,
        };
        self.wait_as(stream, &at, waits)
    }

    /// Queues a fill, and waits as the driver does.
    pub(crate) fn fill(&mut self, stream: usize, fill: Fill, waits: Waits) -> Outcome {
        let bytes = fill.width.checked_mul(fill.count).ok_or(Error::INVALID_VALUE)?;
        if fill.count == 0 {
            return Ok(());
        }
        if !fill.address.is_multiple_of(fill.width) || !self.known(stream, fill.address, bytes, None)? {
            return Err(Error::INVALID_VALUE);
        }
        let thread = self.thread;
        let at = self.submit(thread, stream, Action::Fill(fill), None)?;
        self.wait_as(stream, &at, waits)
    }

    fn wait_as(&mut self, stream: usize, at: &crate::clock::Moment, waits: Waits) -> Outcome {
        if waits == Waits::No {
            return Ok(());
        }
        self.count_implicit_wait();
        if waits == Waits::Host { self.wait_for_moment(stream, at) } else { Ok(()) }
    }
}
