//! Reads the rows of a lane, one array of one shard at a time.

use std::num::NonZero;
use std::ops::Range;
use std::sync::Arc;

use arrow_schema::FieldRef;

use super::checks::{Checks, OwnRows};
use super::groups::{GroupChunk, Groups};
use super::kept_rows::KeptArray;
use super::prefetch::Stop;
use super::row_hashes::RowHashes;
use super::shards::{ShardLane, ShardPart, Shards, other_schema};
use super::slot::{Ring, Slot};
use crate::arrow::{DeviceArray, DeviceArrayStream};
use crate::column::check_types;
use crate::convert::request_field;
use crate::cuda::{PooledStream, is_cuda};
use crate::device::Device;
use crate::error::{Counted, Error, ErrorKind, Remedy, Result};
use crate::stream_order::{self, Interrupts};
use crate::transfer::{Transfer, array_to_device};

/// The rows of a lane in order. Holds at most one array of one shard.
pub(super) struct SourceRows {
    /// The type of every shard.
    field: FieldRef,
    shards: Shards,
    /// The number of the lane, and its parts that are not read to their end.
    lane: usize,
    parts: ShardLane,
    open: Option<OpenPart>,
    /// A shard that is open already, for the part that needs it.
    ready: Option<(usize, DeviceArrayStream)>,
    /// Rows of the lane that were passed.
    position: usize,
    checks: Checks,
    /// Has room for one row, which is hashed and goes into no batch.
    scratch: Slot,
    stop: Stop,
    /// The check for signals, if the thread that asks for batches makes them.
    interrupts: Option<Interrupts>,
}

/// The part that is read.
struct OpenPart {
    part: ShardPart,
    /// `None` at the shard's end.
    stream: Option<DeviceArrayStream>,
    /// Whether its arrays differ in nullability from those of the first shard.
    is_other: bool,
    current: Option<CurrentArray>,
    /// Rows of the shard that were passed.
    row: usize,
    hashes: RowHashes,
}

/// The array at hand.
struct CurrentArray {
    array: DeviceArray,
    /// Made when rows are taken, so that skipped rows are not read.
    chunk: Option<GroupChunk>,
    /// Whether a row cannot be read, so that the rows of each batch are read by themselves: that row may be of another batch, or rank.
    is_read_by_batch: bool,
    /// What sampled rows of an array in host memory that are skipped are hashed by, read once for all of them.
    skipped: Option<Arc<KeptArray>>,
    /// The rows of it that were passed, and the shard's number of its first row.
    used: usize,
    first: usize,
}

impl SourceRows {
    /// `is_inline`: whether the thread that asks for batches reads the arrays, so that signals end the read.
    ///
    /// # Errors
    /// If a row cannot be in memory.
    pub(super) fn new(
        field: FieldRef,
        shards: Shards,
        (lane, parts): (usize, ShardLane),
        groups: &Groups,
        checks: Checks,
        stop: Stop,
        is_inline: bool,
    ) -> Result<Self> {
        let scratch = Ring::single(groups.layouts(), 1)?;
        let interrupts = is_inline.then(Interrupts::new);
        let (open, ready) = (None, None);
        Ok(Self { field, shards, lane, parts, open, ready, position: 0, checks, scratch, stop, interrupts })
    }

    /// Takes over the stream of a shard.
    pub(super) fn takes_over(&mut self, shard: usize, stream: DeviceArrayStream) {
        self.ready = Some((shard, stream));
    }

    /// Returns the rows that are not read yet, if their number is known: reading finds more or fewer.
    pub(super) fn rows(&self) -> Option<usize> {
        if self.open.is_none() { self.parts.rows() } else { None }
    }

    /// Checks that a shard which was read to the last of its rows has no more.
    ///
    /// # Errors
    /// If it has, and those of reading on.
    pub(super) fn check_end(&mut self, groups: &mut Groups) -> Result<()> {
        let is_read = self.open.as_ref().is_none_or(|open| open.left() == Some(0));
        // Shards without rows may follow.
        let is_last = self.parts.parts.iter().all(|part| part.rows == Some(0));
        if is_read && is_last { self.at_hand(groups).map(drop) } else { Ok(()) }
    }

    /// Returns whether all rows that a state has hashes of are compared.
    pub(super) fn compares_all(&self) -> bool {
        self.checks.all
    }

    /// As [`Checks::check_cover`], after the rows that the state took: by then it is known where the shards end that do not tell it.
    pub(super) fn check_cover(&self, own: &OwnRows) -> Result<()> {
        if !self.checks.all {
            return Ok(());
        }
        self.checks.log.lane(self.lane).map_or(Ok(()), |lane| self.checks.check_cover(&lane, own))
    }

    /// The rows that were passed.
    pub(super) fn position(&self) -> usize {
        self.position
    }

    /// Returns the shards.
    pub(super) fn shards(&self) -> &Shards {
        &self.shards
    }

    /// Fails if the loader was closed.
    pub(super) fn check_stop(&self) -> Result<()> {
        self.stop.check()
    }

    /// Runs the pending handlers of signals, on the thread that asks for batches, unless it did so a moment ago.
    ///
    /// # Errors
    /// If a handler raises.
    pub(super) fn check_signals(&mut self) -> Result<()> {
        self.interrupts.as_mut().map_or(Ok(()), Interrupts::check)
    }

    /// Reads the arrays on another thread than the one that asks for batches.
    #[cfg(feature = "async")]
    pub(super) fn leave_thread(&mut self) {
        self.interrupts = None;
    }

    /// Returns the rows left in the current array, or in the next one that has any; 0 at the end.
    pub(super) fn at_hand(&mut self, groups: &mut Groups) -> Result<usize> {
        loop {
            self.check_stop()?;
            let Some(open) = &mut self.open else {
                match self.open_next()? {
                    true => continue,
                    false => return Ok(0),
                }
            };
            let left = open.left();
            if let Some(current) = &open.current {
                let rows = current.array.len() - current.used;
                if open.row < open.part.skip {
                    let before = rows.min(open.part.skip - open.row);
                    self.hash_skipped(before, groups)?;
                    self.pass(before, false)?;
                    continue;
                }
                match left {
                    Some(0) => return Err(self.lies("more")),
                    Some(left) => return Ok(rows.min(left)),
                    None => return Ok(rows),
                }
            }
            // Of a shard's last part, the end is read too: the shard may have more rows than it told.
            if left == Some(0) && !open.part.is_last() {
                self.open = None;
                continue;
            }
            self.interrupts.as_mut().map_or(Ok(()), Interrupts::check)?;
            match open.stream.as_mut().and_then(Iterator::next) {
                Some(Ok(array)) if array.is_empty() => {}
                Some(array) => {
                    let array = array.and_then(|array| match open.is_other {
                        true => of_first(&array, &self.field),
                        // Groups take their columns by position.
                        false => check_types(&self.field, std::slice::from_ref(&array)).map(|()| array),
                    });
                    match array {
                        Ok(array) => open.current = Some(CurrentArray::new(array, open.row)),
                        Err(error) => {
                            let error = self.shards.name(error, open.part.shard);
                            self.end();
                            return Err(error);
                        }
                    }
                }
                None => self.end_part()?,
            }
        }
    }

    /// Opens the next part; returns false if there is none.
    fn open_next(&mut self) -> Result<bool> {
        let Some(part) = self.parts.parts.pop_front() else { return Ok(false) };
        let stream = match self.ready.take_if(|(shard, _)| *shard == part.shard) {
            Some((_, stream)) => stream,
            None => self.shards.open(part.shard, &|| self.stop.check())?,
        };
        self.open_part(part, stream)?;
        Ok(true)
    }

    /// Closes the open part, whose stream has ended, and checks the rows that it had.
    ///
    /// # Errors
    /// When they are fewer than the shard told, or others than those of a state.
    fn end_part(&mut self) -> Result<()> {
        let Some(open) = &mut self.open else { return Ok(()) };
        open.stream = None;
        if open.left().is_some_and(|left| left > 0) {
            let found = open.row.to_string();
            return Err(self.lies(&found));
        }
        let mut ended = open.hashes.end(open.row);
        if self.shards.len() == 1 {
            ended = ended.and_then(|()| self.checks.check_rows(open.row));
        }
        let shard = open.part.shard;
        self.open = None;
        ended.map_err(|error| self.shards.name(error, shard))
    }

    /// Releases the source.
    fn end(&mut self) {
        (self.open, self.ready) = (None, None);
        self.parts = ShardLane::default();
    }

    fn open_part(&mut self, part: ShardPart, stream: DeviceArrayStream) -> Result<()> {
        if let Some(error) = other_schema(stream.field(), &self.field) {
            return Err(self.shards.name(error, part.shard));
        }
        let is_other = stream.field().data_type() != self.field.data_type();
        let log = self.checks.log.of(self.lane, part.shard);
        let hashes = RowHashes::new(log, self.checks.expected.get(&part.shard).copied());
        self.open = Some(OpenPart { part, stream: Some(stream), is_other, current: None, row: 0, hashes });
        Ok(())
    }

    /// The error of a shard whose number of rows is another one than it told.
    fn lies(&mut self, found: &str) -> Error {
        let part = self.open.as_ref().map(|open| open.part);
        self.end();
        let Some((part, told)) = part.and_then(|part| Some((part, part.told?))) else {
            return Error::internal("a shard that told no rows");
        };
        self.shards.name(other_rows(told, found), part.shard)
    }

    /// Skips `count` rows, or all that are left; returns their number. Does not open shards of which no row is needed.
    pub(super) fn skip(&mut self, count: usize, groups: &mut Groups) -> Result<usize> {
        let mut passed = 0;
        while passed < count {
            if let (None, Some(part)) = (&self.open, self.parts.parts.front())
                && let Some(rows) = part.rows.filter(|rows| *rows <= count - passed)
                && !self.checks.opens(part.shard)
            {
                self.parts.parts.pop_front();
                self.count(rows)?;
                passed += rows;
                continue;
            }
            let rows = self.at_hand(groups)?.min(count - passed);
            if rows == 0 {
                break;
            }
            self.hash_skipped(rows, groups)?;
            self.pass(rows, true)?;
            passed += rows;
        }
        Ok(passed)
    }

    /// Appends `count` rows, or all that are left, to the slot; returns their number.
    pub(super) fn take(&mut self, count: usize, groups: &mut Groups, slot: &mut Slot) -> Result<usize> {
        let mut taken = 0;
        while taken < count {
            let rows = self.at_hand(groups)?.min(count - taken);
            let Some(open) = self.open.as_mut().filter(|_| rows > 0) else { break };
            let shard = open.part.shard;
            let taking = open.take(rows, groups, slot).and_then(|()| match groups.dictionaries()? {
                Some(found) => self.checks.check_dictionaries(&found, |hash| groups.had_fewer_dictionaries(hash)),
                None => Ok(()),
            });
            taking.map_err(|error| self.shards.name(error, shard))?;
            self.pass(rows, true)?;
            taken += rows;
        }
        Ok(taken)
    }

    /// Hashes the sampled rows among the next ones of the current array, which go into no batch.
    fn hash_skipped(&mut self, rows: usize, groups: &mut Groups) -> Result<()> {
        let Some(open) = &mut self.open else { return Ok(()) };
        while open.hashes.next_row() - open.row < rows {
            let Some(current) = &mut open.current else { return Ok(()) };
            let at = current.used + open.hashes.next_row() - open.row;
            // Another rank may have to tell an error of this row, at its own batch.
            let hash = match pack_row(current, at..at + 1, groups, &mut self.scratch) {
                Ok(()) => self.scratch.row_hash(0, groups.varied())?,
                Err(error) if error.is_of_data() => 0,
                Err(error) => return Err(self.shards.name(error, open.part.shard)),
            };
            self.scratch.truncate(0);
            let added = open.hashes.add(hash, |hash| groups.fold_dictionaries(hash));
            added.map_err(|error| self.shards.name(error, open.part.shard))?;
        }
        Ok(())
    }

    /// Skips rows of the current array, which is released after its last row. `of_lane`: whether they are rows of the lane.
    fn pass(&mut self, rows: usize, of_lane: bool) -> Result<()> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let Some(current) = open.current.as_mut() else { return Ok(()) };
        current.used += rows;
        if current.used >= current.array.len() {
            open.current = None;
        }
        open.row = open.row.checked_add(rows).ok_or_else(uncountable)?;
        if of_lane { self.count(rows) } else { Ok(()) }
    }

    fn count(&mut self, rows: usize) -> Result<()> {
        self.position = self.position.checked_add(rows).ok_or_else(uncountable)?;
        // Rows of the shard's next lane are not read.
        if self.open.as_ref().is_some_and(|open| open.left() == Some(0) && !open.part.is_last()) {
            self.open = None;
        }
        Ok(())
    }
}

impl CurrentArray {
    fn new(array: DeviceArray, first: usize) -> Self {
        Self { array, chunk: None, is_read_by_batch: false, skipped: None, used: 0, first }
    }

    /// Prepares all rows to be taken, unless one of them cannot be read.
    fn read(&mut self, shard: usize, groups: &mut Groups) -> Result<()> {
        if self.chunk.is_some() || self.is_read_by_batch {
            return Ok(());
        }
        if !self.array.device().is_cpu() {
            self.array = on_host(&self.array, groups.threads())?;
        }
        match groups.chunk(&self.array, shard, self.first) {
            Ok(chunk) => self.chunk = Some(chunk),
            Err(error) if error.row().is_some() => self.is_read_by_batch = true,
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

impl OpenPart {
    /// The rows of the part that were not passed, if their number is known.
    fn left(&self) -> Option<usize> {
        self.part.rows.map(|rows| rows - self.row.saturating_sub(self.part.skip).min(rows))
    }

    /// Appends rows of the current array to the slot.
    fn take(&mut self, rows: usize, groups: &mut Groups, slot: &mut Slot) -> Result<()> {
        let Some(current) = self.current.as_mut() else { return Ok(()) };
        current.read(self.part.shard, groups)?;
        slot.reserve(rows)?;
        let first = slot.rows();
        let taken = current.used..current.used + rows;
        match &current.chunk {
            Some(chunk) => groups.append(chunk, &taken, current.first, slot)?,
            None => {
                let first = current.first.saturating_add(taken.start);
                let chunk = groups.chunk(&current.array.clipped(&taken), self.part.shard, first);
                groups.append(&chunk.map_err(|error| error.behind(first))?, &(0..rows), first, slot)?;
            }
        }
        while self.hashes.next_row() - self.row < rows {
            let hash = slot.row_hash(first + self.hashes.next_row() - self.row, groups.varied())?;
            self.hashes.add(hash, |hash| groups.fold_dictionaries(hash))?;
        }
        Ok(())
    }
}

/// The error of a source that was said to have another number of rows than it was found to have.
pub(crate) fn other_rows(told: usize, found: &str) -> Error {
    let reason = format!("the source was said to have {}, and has {found}", Counted(told, "row"));
    Error::argument(reason).remedy_is(Remedy::ToldRows)
}

fn uncountable() -> Error {
    Error::invalid("the source has more rows than can be counted")
}

/// An array under the field of the first shard: fields that are nullable in one of them alone are those of the first.
fn of_first(array: &DeviceArray, field: &FieldRef) -> Result<DeviceArray> {
    request_field(array, field).map_err(|error| {
        if error.kind() != ErrorKind::Null {
            return error;
        }
        let reason = "the shard has a null in a column that is not nullable in the first one that was opened";
        let column = error.column().unwrap_or_default();
        Error::new(ErrorKind::Null, reason)
            .in_column(column)
            .remedy_is("make the column nullable in every shard's schema")
    })
}

/// Packs one row of an array, and reads no other one.
fn pack_row(current: &mut CurrentArray, row: Range<usize>, groups: &mut Groups, slot: &mut Slot) -> Result<()> {
    slot.reserve(1)?;
    if let Some(chunk) = &current.chunk {
        return groups.append(chunk, &row, current.first, slot);
    }
    let array = current.array.clipped(&row);
    let first = current.first.saturating_add(row.start);
    // The row is hashed and goes into no batch, so that nobody asks for its shard.
    let chunk = if array.device().is_cpu() {
        if current.skipped.is_none() {
            current.skipped = groups.keep(&current.array, 0, current.first)?;
        }
        groups.chunk_of_rows(&array, current.skipped.clone(), row.start)?
    } else {
        groups.chunk(&on_host(&array, groups.threads())?, 0, first)?
    };
    groups.append(&chunk, &(0..1), first, slot)
}

/// Copies an array of a device to host memory, where rows are packed. The copy runs on a stream of ours that waits only
/// for the write of the array; this thread waits for the copy.
pub(super) fn on_host(array: &DeviceArray, threads: Option<NonZero<usize>>) -> Result<DeviceArray> {
    let copies = match is_cuda(array.device()) {
        true => Some(PooledStream::idle(&stream_order::enter(array.device())?)?),
        false => None,
    };
    let why = "read by a loader, which packs rows on the host";
    let stream = copies.as_ref().map(PooledStream::stream);
    array_to_device(array, &Transfer { device: Device::CPU, stream, threads, why })
}
