//! The shuffle buffer: each row that comes replaces a random one, which leaves. docs/loader.md defines it.

use super::byte_budget::ByteBudget;
use super::draws::Draws;
use super::groups::Groups;
use super::kept_memory::{KeptMemory, MemoryUse};
use super::kept_rows::KeptRow;
use super::row_numbers::RowNumbers;
use super::slot::{Ring, Slot};
use super::source_rows::SourceRows;
use crate::alloc::fallible;
use crate::convert::FETCH_AHEAD;
use crate::error::{Counted, Error, Result};

/// The least size of the slots that the buffer is made of, in bytes. The buffer grows by one slot at a time, as rows
/// come. This size gets huge pages, in which rows are found faster.
pub(super) const SEGMENT: usize = if cfg!(miri) { 1 << 10 } else { 4 << 20 };
/// The most segments of which the memory is kept for the next epoch.
const MOST_KEPT: usize = 4096;
/// Rows that come in at once.
const BLOCK: usize = 4096;
/// Rows that leave at once to be skipped, and that come in before others are copied, if they keep memory of their source.
const FEW: usize = 64;
/// In a replay, rows that lie so near each other are packed in one pass.
const GAP: usize = 32;
/// In a replay, draws between two checks whether the loader was closed, and for signals.
const CHECKED: usize = 1 << 20;

/// Packed rows that wait.
pub(super) struct ShuffleBuffer {
    draws: Draws,
    /// The most rows in the buffer, and the present number.
    most: usize,
    waiting: usize,
    filled: bool,
    ring: Ring,
    segments: Vec<Slot>,
    /// A segment has 2^shift rows.
    shift: u32,
    picks: Vec<usize>,
    /// The rows that have not left, by their numbers, once the source is at its end.
    rest: Option<RowNumbers>,
    /// Rows that came since rows that wait were copied out of arrays that are read no more.
    came: usize,
    /// A slot for rows that leave and are skipped.
    scratch: Option<Slot>,
    budget: ByteBudget,
}

impl ShuffleBuffer {
    /// Returns a buffer of at most `most` rows, which is 1 or more, for a lane of so many rows, if they are known: it has no room for more.
    ///
    /// # Errors
    /// When an allocation fails.
    pub(super) fn new(
        draws: Draws,
        (most, rows): (usize, Option<usize>),
        groups: &Groups,
        lane: usize,
        memory: &KeptMemory,
        budget: ByteBudget,
    ) -> Result<Self> {
        let kept = if groups.varied().is_empty() { 0 } else { size_of::<KeptRow>() };
        let widest = groups.layouts().map(|layout| layout.bytes()).max().unwrap_or(0).max(kept);
        let shift = SEGMENT.div_ceil(widest.max(1)).next_power_of_two().ilog2();
        let room = rows.map_or(most, |rows| rows.clamp(1, most));
        let segments = room.div_ceil(1 << shift).min(MOST_KEPT);
        let pools = memory.pools(MemoryUse::Shuffle { lane }, groups.layouts().count(), segments)?;
        let ring = Ring::new(groups.layouts(), room.min(1 << shift), pools)?;
        let scratch = Some(Ring::single(groups.layouts(), BLOCK)?);
        let (segments, picks) = (Vec::new(), Vec::new());
        let (waiting, filled, rest, came) = (0, false, None, 0);
        Ok(Self { draws, most, waiting, filled, ring, segments, shift, picks, rest, came, scratch, budget })
    }

    /// Returns the most rows in the buffer.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Appends the next `count` rows, or all that are left, to the slot; returns their number.
    pub(super) fn take(
        &mut self,
        feed: &mut SourceRows,
        groups: &mut Groups,
        count: usize,
        slot: &mut Slot,
    ) -> Result<usize> {
        self.take_beside(feed, groups, count, slot, &mut [])
    }

    /// As [`take`](Self::take), beside the rows of a batch in progress.
    fn take_beside(
        &mut self,
        feed: &mut SourceRows,
        groups: &mut Groups,
        count: usize,
        slot: &mut Slot,
        batch: &mut [KeptRow],
    ) -> Result<usize> {
        if !self.filled {
            self.fill(feed, groups)?;
        }
        // Before the slot has rows: they hold the arrays, too.
        self.let_go(groups, batch)?;
        let mut taken = 0;
        while taken < count {
            let rows = (count - taken).min(BLOCK);
            let left = match self.exchange(feed, groups, rows, slot)? {
                0 => {
                    let left = self.leave(rows)?;
                    slot.gather(&mut self.segments, self.shift, &self.picks)?;
                    left
                }
                came => came,
            };
            if left == 0 {
                break;
            }
            taken += left;
        }
        Ok(taken)
    }

    /// Skips `count` rows, or all that are left, beside the rows of a batch in progress; returns their number.
    pub(super) fn skip(
        &mut self,
        feed: &mut SourceRows,
        groups: &mut Groups,
        count: usize,
        batch: &mut [KeptRow],
    ) -> Result<usize> {
        let mut scratch = self.scratch.take().ok_or_else(lost)?;
        let step = if groups.varied().is_empty() { BLOCK } else { FEW };
        let mut passed = 0;
        let result = loop {
            if self.rest.is_some() && passed < count {
                match self.leave((count - passed).min(step)) {
                    Ok(0) => break Ok(passed),
                    Ok(rows) => passed += rows,
                    Err(error) => break Err(error),
                }
                continue;
            }
            scratch.truncate(0);
            match self.take_beside(feed, groups, (count - passed).min(step), &mut scratch, batch) {
                Ok(0) => break Ok(passed),
                Ok(rows) => passed += rows,
                Err(error) => break Err(error),
            }
        };
        scratch.truncate(0);
        self.scratch = Some(scratch);
        result
    }

    /// Skips the first `count` rows of the order of a source of `rows` rows, or all of them, and returns their number. Packs
    /// only rows that are in the buffer afterwards: the draws do not depend on the data, so these rows are known before.
    ///
    /// # Errors
    /// As [`skip`](Self::skip); if the source has fewer rows, or more where the draws depend on it.
    pub(super) fn replay(
        &mut self,
        feed: &mut SourceRows,
        groups: &mut Groups,
        count: usize,
        rows: usize,
    ) -> Result<usize> {
        let count = count.min(rows);
        let read = rows.min(self.most.saturating_add(count));
        let held = self.held_after(feed, count, rows)?;
        // The position in the buffer of each row, in the order of the source.
        let mut places = fallible::with_room(held.len())?;
        places.extend(0..held.len());
        places.sort_unstable_by_key(|place| held.get(*place));
        let row_of = |places: &[usize], index: usize| {
            places.get(index).and_then(|place| held.get(*place)).copied().ok_or_else(lost)
        };
        let mut scratch = self.scratch.take().ok_or_else(lost)?;
        while self.waiting < places.len() {
            feed.check_signals()?;
            let before = feed.position();
            let first = row_of(&places, self.waiting)?;
            feed.skip(first.saturating_sub(feed.position()), groups)?;
            let end = first.saturating_add(feed.at_hand(groups)?.min(BLOCK));
            if end == first {
                return Err(told_otherwise(rows, &feed.position().to_string()));
            }
            // Rows that lie near each other are packed together with those between them.
            let (mut until, mut last) = (self.waiting, first);
            while until < places.len() {
                let row = row_of(&places, until)?;
                if row >= end || row - last > GAP {
                    break;
                }
                (until, last) = (until + 1, row);
            }
            scratch.truncate(0);
            feed.take(last + 1 - first, groups, &mut scratch)?;
            self.count_bytes(groups, &mut scratch, 0)?;
            for index in self.waiting..until {
                self.hold(&mut scratch, row_of(&places, index)? - first, places.len() - index)?;
            }
            self.came = self.came.saturating_add(feed.position().saturating_sub(before));
            self.let_go(groups, &mut [])?;
        }
        self.put_in_place(&mut places, &mut scratch)?;
        scratch.truncate(0);
        self.scratch = Some(scratch);
        self.filled = true;
        let left = read.saturating_sub(feed.position());
        if feed.skip(left, groups)? < left {
            return Err(told_otherwise(rows, &feed.position().to_string()));
        }
        // The draws were those of a source that ends here: of a longer one some rows would come twice, and others never.
        if read == rows && feed.at_hand(groups)? > 0 {
            return Err(told_otherwise(rows, "more"));
        }
        Ok(count)
    }

    /// Moves a row to the end of the buffer, which takes so many more rows `to_come`, this one included.
    fn hold(&mut self, scratch: &mut Slot, row: usize, to_come: usize) -> Result<()> {
        let (_, place) = self.place(self.waiting);
        if place == 0 {
            fallible::push(&mut self.segments, self.ring.slot())?;
        }
        let segment = self.segments.last_mut().ok_or_else(lost)?;
        if place == 0 {
            segment.reserve((1 << self.shift).min(to_come))?;
        }
        self.budget.enter(scratch.row_bytes(row))?;
        segment.push(scratch, row)?;
        self.waiting += 1;
        Ok(())
    }

    /// Returns which row of the source each row of the buffer is, after the first `count` rows of the order have left.
    fn held_after(&mut self, feed: &mut SourceRows, count: usize, rows: usize) -> Result<Vec<usize>> {
        let most = self.most.min(rows);
        let mut held: Vec<usize> = fallible::with_room(most)?;
        held.extend(0..most);
        for left in 0..count {
            if left % CHECKED == 0 {
                feed.check_stop()?;
                feed.check_signals()?;
            }
            let pick = self.draws.below(held.len());
            if most + left < rows {
                *held.get_mut(pick).ok_or_else(lost)? = most + left;
            } else if pick < held.len() {
                held.swap_remove(pick);
            }
        }
        Ok(held)
    }

    /// Moves each row of the buffer to its place.
    fn put_in_place(&mut self, places: &mut [usize], scratch: &mut Slot) -> Result<()> {
        for index in 0..places.len() {
            loop {
                let place = places.get(index).copied().ok_or_else(lost)?;
                if place == index {
                    break;
                }
                for row in [index, place, index] {
                    let (segment, row) = self.place(row);
                    scratch.swap(0, self.segments.get_mut(segment).ok_or_else(lost)?, row)?;
                }
                places.swap(index, place);
            }
        }
        Ok(())
    }

    /// The first rows fill the buffer.
    fn fill(&mut self, feed: &mut SourceRows, groups: &mut Groups) -> Result<()> {
        while self.waiting < self.most {
            // Asked before a segment is allocated, because there may be no more rows.
            let at_hand = feed.at_hand(groups)?;
            if at_hand == 0 {
                break;
            }
            let (_, row) = self.place(self.waiting);
            if row == 0 {
                fallible::push(&mut self.segments, self.ring.slot())?;
            }
            let is_first = self.segments.len() == 1;
            let segment = self.segments.last_mut().ok_or_else(lost)?;
            let room = ((1 << self.shift) - row).min(self.most - self.waiting);
            if row == 0 && !is_first {
                // At once, so that rows do not move. Of the first segment there may be few rows.
                segment.reserve(room)?;
            }
            let came = feed.take(room.min(at_hand), groups, segment)?;
            if self.budget.is_limited() {
                let rows = segment.rows() - came..segment.rows();
                groups.varied().count_bytes(segment.kept().get_mut(rows.clone()).unwrap_or_default())?;
                rows.into_iter().try_for_each(|row| self.budget.enter(segment.row_bytes(row)))?;
            }
            self.waiting += came;
        }
        self.filled = true;
        Ok(())
    }

    /// Takes rows in; each replaces a random row of the buffer, which leaves. Returns their number.
    fn exchange(&mut self, feed: &mut SourceRows, groups: &mut Groups, count: usize, slot: &mut Slot) -> Result<usize> {
        let before = slot.rows();
        self.picks.clear();
        fallible::reserve(&mut self.picks, count)?;
        // New rows are written where the leaving rows go, and swap places with them there.
        let came = feed.take(count, groups, slot)?;
        self.count_bytes(groups, slot, before)?;
        self.picks.extend((0..came).map(|_| self.draws.below(self.waiting)));
        for index in 0..came {
            self.fetch(index + FETCH_AHEAD);
            let (segment, row) = self.place(self.pick(index)?);
            let segment = self.segments.get_mut(segment).ok_or_else(lost)?;
            if self.budget.is_limited() {
                self.budget.leave(segment.row_bytes(row));
                self.budget.enter(slot.row_bytes(before + index))?;
            }
            slot.swap(before + index, segment, row)?;
        }
        self.came = self.came.saturating_add(came);
        Ok(came)
    }

    /// Once as many rows came as wait, copies those that wait out of arrays that are read no more, and those of a batch in progress, which
    /// hold the arrays, too.
    fn let_go(&mut self, groups: &Groups, batch: &mut [KeptRow]) -> Result<()> {
        if self.came >= self.waiting.max(FEW) && !groups.varied().is_empty() {
            self.came = 0;
            groups.varied().compact(self.segments.iter_mut().flat_map(Slot::kept).chain(batch))?;
        }
        Ok(())
    }

    /// Picks the random rows that leave next, after the source's end. Returns their number. They stay where they are: only their
    /// numbers change places.
    fn leave(&mut self, count: usize) -> Result<usize> {
        let rest = match &mut self.rest {
            Some(rest) => rest,
            none => none.insert(RowNumbers::below(self.waiting)?),
        };
        self.picks.clear();
        let left = rest.len();
        fallible::reserve(&mut self.picks, count.min(left))?;
        self.picks.extend((0..count.min(left)).map(|gone| self.draws.below(left - gone)));
        rest.take(&mut self.picks);
        if self.budget.is_limited() {
            for pick in &self.picks {
                let (segment, row) = self.place(*pick);
                self.budget.leave(self.segments.get(segment).ok_or_else(lost)?.row_bytes(row));
            }
        }
        Ok(self.picks.len())
    }

    /// Counts the bytes of the slot's rows from this one on, if they are limited.
    fn count_bytes(&self, groups: &Groups, slot: &mut Slot, from: usize) -> Result<()> {
        if !self.budget.is_limited() {
            return Ok(());
        }
        groups.varied().count_bytes(slot.kept().get_mut(from..).unwrap_or_default())
    }

    fn pick(&self, index: usize) -> Result<usize> {
        self.picks.get(index).copied().ok_or_else(lost)
    }

    /// Prefetches the row of a later draw.
    fn fetch(&self, index: usize) {
        if let Some(pick) = self.picks.get(index) {
            let (segment, row) = self.place(*pick);
            if let Some(segment) = self.segments.get(segment) {
                segment.prefetch(row);
            }
        }
    }

    /// Returns the segment of a row, and its position in it.
    fn place(&self, row: usize) -> (usize, usize) {
        (row >> self.shift, row & ((1 << self.shift) - 1))
    }
}

fn told_otherwise(rows: usize, found: &str) -> Error {
    let reason = format!("the source was said to have {}, and has {found}", Counted(rows, "row"));
    Error::argument(reason).remedy_is("resume with the source that the state was taken from")
}

fn lost() -> Error {
    Error::internal("the shuffle buffer has lost a row")
}
