//! Makes one batch after the other from the rows of the lanes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::batch::Batch;
use super::byte_budget::ByteBudget;
use super::checks::OwnRows;
use super::draws::Draws;
use super::groups::Groups;
use super::kept_memory::MemoryUse;
use super::kept_rows::KeptRow;
use super::options::LoadOptions;
use super::place::Place;
use super::prefetch::Stop;
use super::read_log::ReadLog;
use super::sharding::Sharding;
use super::shuffle::ShuffleBuffer;
use super::slot::{Ring, Slot};
use super::source_rows::SourceRows;
use super::target::BatchTarget;
use crate::alloc::BlockPool;
use crate::copy_log::CopyLog;
use crate::error::{Error, Result};

/// The most unused blocks that a group's ring keeps: if more are released, they were many, and are rarely needed all at once.
const MOST_WAITING: usize = 32;

/// The batches of one epoch for one rank, or those that one reader of it makes.
pub(super) struct Producer {
    /// By their numbers.
    lanes: BTreeMap<usize, LaneRows>,
    groups: Groups,
    ring: Ring,
    /// Where packed batches go.
    target: BatchTarget,
    sharding: Sharding,
    place: Place,
    /// The next round of which this makes a batch, counted from the place.
    round: usize,
    turns: Turns,
    /// The number of rounds, and the rows that are in none, if the numbers of rows are known.
    rounds: Option<(usize, usize)>,
    log: ReadLog,
    stop: Stop,
}

/// Which rounds a reader makes a batch of: those whose number mod `period`, mod `readers`, is its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turns {
    pub(super) reader: usize,
    pub(super) readers: usize,
    /// The number of lanes that the rank has batches of: they take turns.
    pub(super) period: usize,
}

impl Turns {
    /// The only reader makes every batch.
    #[cfg(feature = "async")]
    pub(super) fn of_one() -> Self {
        Self { reader: 0, readers: 1, period: 1 }
    }

    /// Returns the reader of a round's batch.
    pub(super) fn reader_of(&self, round: usize) -> usize {
        round % self.period % self.readers
    }
}

/// The rows of a lane in the order of its batches.
pub(super) struct LaneRows {
    feed: SourceRows,
    shuffle: Option<ShuffleBuffer>,
    /// Rows that were passed.
    position: usize,
    /// The rows that a state says were taken, and of which no batch is made; `None` once they were passed.
    resumed: Option<Resumed>,
}

/// What is known of a lane that an iteration goes on with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resumed {
    /// Rows that were taken.
    pub(super) taken: usize,
    /// Rows of a full batch of the loader that took them.
    pub(super) batch_size: usize,
    /// The rows of the lane, if they are known.
    pub(super) rows: Option<usize>,
    /// Those of the taken rows that the state must have hashes of.
    pub(super) own: OwnRows,
    /// Whether the lane has a further batch.
    pub(super) goes_on: bool,
}

impl LaneRows {
    /// Returns the rows of a lane in an epoch.
    ///
    /// # Errors
    /// When an allocation fails.
    pub(super) fn new(
        feed: SourceRows,
        lane: usize,
        place: &Place,
        options: &LoadOptions,
        groups: &Groups,
        budget: &ByteBudget,
        resumed: Resumed,
    ) -> Result<Self> {
        let shuffle = match options.shuffle {
            Some(shuffle) => {
                let draws = Draws::of_rows(shuffle.seed, lane, place.epoch());
                let (most, memory) = (place.buffer(shuffle.buffer), &options.memory);
                let rows = (most, feed.rows());
                Some(ShuffleBuffer::new(draws, rows, groups, lane, memory, budget.clone())?)
            }
            None => None,
        };
        Ok(Self { feed, shuffle, position: 0, resumed: (resumed.taken > 0).then_some(resumed) })
    }

    /// Passes the rows that a state says were taken.
    fn replay(&mut self, groups: &mut Groups) -> Result<()> {
        let Some(resumed) = self.resumed.take() else { return Ok(()) };
        match (&mut self.shuffle, resumed.rows) {
            (Some(buffer), Some(rows)) => {
                self.position = buffer.replay(&mut self.feed, groups, resumed.taken, rows)?;
            }
            _ => _ = self.pass_to(resumed.taken, groups, &mut [])?,
        }
        // A last batch that was not full counts as full.
        if self.position.saturating_add(resumed.batch_size) > resumed.taken {
            return self.feed.check_cover(&resumed.own);
        }
        let (taken, found) = (resumed.taken, self.position);
        let reason = format!("the state is after row {taken} of an epoch, and the source has {found}");
        Err(Error::argument(reason).remedy_is("load the state into a loader of the source that it was taken from"))
    }

    /// Compares the rows that a state took of a lane without a further batch, if all are compared.
    fn verify(&mut self, groups: &mut Groups) -> Result<()> {
        if !self.feed.compares_all() {
            return Ok(());
        }
        let Some(resumed) = self.resumed.take_if(|resumed| !resumed.goes_on) else { return Ok(()) };
        let buffer = self.shuffle.as_ref().map_or(0, ShuffleBuffer::most);
        self.feed.skip(resumed.taken.saturating_add(buffer), groups)?;
        self.feed.check_cover(&resumed.own)
    }

    fn take(&mut self, count: usize, groups: &mut Groups, slot: &mut Slot) -> Result<usize> {
        let rows = match &mut self.shuffle {
            Some(buffer) => buffer.take(&mut self.feed, groups, count, slot)?,
            None => self.feed.take(count, groups, slot)?,
        };
        self.position += rows;
        Ok(rows)
    }

    /// Skips rows up to this number, beside the rows of a batch in progress; returns whether there are as many.
    fn pass_to(&mut self, position: usize, groups: &mut Groups, batch: &mut [KeptRow]) -> Result<bool> {
        let count = position.saturating_sub(self.position);
        let rows = match &mut self.shuffle {
            Some(buffer) => buffer.skip(&mut self.feed, groups, count, batch)?,
            None => self.feed.skip(count, groups)?,
        };
        self.position += rows;
        Ok(rows == count)
    }
}

impl Producer {
    /// Returns the batches of an epoch after this place, made of these lanes.
    ///
    /// # Errors
    /// When an allocation fails.
    #[allow(clippy::too_many_arguments, reason = "each is kept as it is")]
    pub(super) fn new(
        lanes: BTreeMap<usize, LaneRows>,
        groups: Groups,
        options: &LoadOptions,
        place: Place,
        turns: Turns,
        rounds: Option<(usize, usize)>,
        log: ReadLog,
        stop: Stop,
    ) -> Result<Self> {
        // A loop holds one batch, and for a moment the next one too. One more place serves a second thread.
        let (rows, waiting) = (options.sharding.batch_size(), options.prefetch.saturating_add(3));
        let target = BatchTarget::new(options.device, groups.layouts().count(), options.prefetch)?;
        let waiting = waiting.min(MOST_WAITING);
        let pools = match target.source() {
            None => {
                options.memory.pools(MemoryUse::Batches { reader: turns.reader }, groups.layouts().count(), waiting)?
            }
            // Page-locked memory goes with its iteration.
            Some(_) => groups.layouts().map(|_| Arc::new(BlockPool::new(waiting, target.source()))).collect(),
        };
        let ring = Ring::new(groups.layouts(), rows, pools)?;
        let sharding = options.sharding;
        Ok(Self { lanes, groups, ring, target, sharding, place, round: 0, turns, rounds, log, stop })
    }

    /// Makes batches on another thread than the one that asks for them, where signals end no read.
    #[cfg(feature = "async")]
    pub(super) fn leave_thread(&mut self) {
        self.lanes.values_mut().for_each(|lane| lane.feed.leave_thread());
    }

    /// Returns the next batch; `None` after the last one.
    ///
    /// # Errors
    /// The errors of the source, and of converting the batch's rows. No batch can be made after one.
    pub(super) fn next(&mut self) -> Result<Option<Batch>> {
        while self.turns.reader_of(self.round) != self.turns.reader {
            self.round += 1;
        }
        if self.stop.is_asked() {
            return Ok(None);
        }
        // Before the first batch.
        if self.round == self.turns.reader {
            self.lanes.values_mut().try_for_each(|lane| lane.verify(&mut self.groups))?;
        }
        if let Some((rounds, left_out)) = self.rounds
            && self.round >= rounds
        {
            return self.end(left_out);
        }
        let (number, first) = self.place.batch(self.first_batch(), self.sharding.batch_size());
        let lane = self.lanes.get_mut(&number).ok_or_else(|| Error::internal("a batch of a lane that is not read"))?;
        lane.replay(&mut self.groups)?;
        if !lane.pass_to(first, &mut self.groups, &mut [])? {
            return self.end_of_rows();
        }
        self.target.collect(&self.stop)?;
        let mut slot = self.ring.slot();
        let rows = lane.take(self.sharding.batch_size(), &mut self.groups, &mut slot)?;
        // All ranks have the same number of batches: this batch counts only if those of the other ranks exist.
        let needed = match self.rounds {
            Some(_) => 0,
            None => first_of(&self.place).saturating_add(self.sharding.rows_needed(self.round)),
        };
        if rows == 0 || !lane.pass_to(needed, &mut self.groups, slot.kept())? {
            return self.end_of_rows();
        }
        let number = self.round;
        self.round += 1;
        let (blocks, kept) = slot.into_parts();
        let tensors = self.groups.tensors(blocks, &self.target)?;
        let log = CopyLog::new();
        let varied = log.track(|| {
            let varied = self.groups.varied().convert(&kept);
            let varied = varied.map_err(|(error, shard)| lane.feed.shards().name(error, shard))?;
            varied.into_iter().map(|made| self.target.varied(made)).collect::<Result<_>>()
        })?;
        Ok(Some(Batch { tensors, varied, rows, number, copies: log.entries() }))
    }

    /// The number of this rank's batch of the round, counted from the place.
    fn first_batch(&self) -> usize {
        self.round.saturating_mul(self.sharding.stride()).saturating_add(self.sharding.first())
    }

    /// At the end of the only lane, whose number of rows was not known.
    fn end_of_rows(&mut self) -> Result<Option<Batch>> {
        if self.rounds.is_some() {
            return Err(Error::internal("a lane ended before its rows"));
        }
        let position = self.lanes.values().map(|lane| lane.position).sum::<usize>();
        let batches = self.round.saturating_mul(self.sharding.round_rows());
        self.end(position.saturating_sub(first_of(&self.place).saturating_add(batches)))
    }

    /// Notes how many rows are in no batch, and checks that the shards of lanes that were read to their end have no more rows.
    fn end(&mut self, left_out: usize) -> Result<Option<Batch>> {
        for (number, lane) in &mut self.lanes {
            match lane.feed.check_end(&mut self.groups) {
                Ok(()) => {}
                // The consumer takes the end of the first reader, so that an error of this one may never be asked for.
                Err(error) if self.turns.readers > 1 => {
                    self.log.lies(*number, error);
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
        }
        self.log.end(left_out);
        Ok(None)
    }
}

/// The rows of the first lane before the place.
fn first_of(place: &Place) -> usize {
    place.taken().first().copied().unwrap_or_default()
}
