//! Makes one batch after the other from the source's rows.

use super::batch::Batch;
use super::draws::Draws;
use super::groups::Groups;
use super::options::LoadOptions;
use super::prefetch::Stop;
use super::sharding::Sharding;
use super::shuffle::ShuffleBuffer;
use super::slot::{Ring, Slot};
use super::source_rows::SourceRows;
use super::target::BatchTarget;
use crate::arrow::DeviceArrayStream;
use crate::error::{Error, Result};

/// The batches of one epoch, for one rank.
pub(super) struct Producer {
    feed: SourceRows,
    shuffle: Option<ShuffleBuffer>,
    groups: Groups,
    ring: Ring,
    /// Where packed batches go.
    target: BatchTarget,
    sharding: Sharding,
    /// The number of rows, in the order of the batches, that were passed.
    position: usize,
    /// The round of the next batch, and that of the first one.
    round: usize,
    start: usize,
    stop: Stop,
}

impl Producer {
    /// Returns the batches of an epoch, without the first `start`, which were handed out before.
    ///
    /// # Errors
    /// When memory cannot be had.
    pub(super) fn new(
        stream: DeviceArrayStream,
        groups: Groups,
        options: &LoadOptions,
        epoch: u64,
        start: usize,
        stop: Stop,
    ) -> Result<Self> {
        let shuffle = match options.shuffle {
            Some(shuffle) => {
                let draws = Draws::new(shuffle.seed, epoch);
                Some(ShuffleBuffer::new(draws, shuffle.buffer.get(), &groups)?)
            }
            None => None,
        };
        // A loop holds one batch, and for a moment the next one too. One more place serves a second thread.
        let (rows, waiting) = (options.sharding.batch_size(), options.prefetch.saturating_add(3));
        let target = BatchTarget::new(options.device, groups.layouts().count(), options.prefetch)?;
        let ring = Ring::new(groups.layouts(), rows, waiting, || target.source())?;
        let feed = SourceRows::new(stream, stop.clone(), options.prefetch == 0);
        Ok(Self {
            feed,
            shuffle,
            groups,
            ring,
            target,
            sharding: options.sharding,
            position: 0,
            round: start,
            start,
            stop,
        })
    }

    /// Returns the next batch; `None` after the last one.
    ///
    /// # Errors
    /// The errors of the source, and of converting the batch's rows. No batch can be made after one.
    pub(super) fn next(&mut self) -> Result<Option<Batch>> {
        if self.stop.is_asked() {
            return Ok(None);
        }
        let resumed = self.round == self.start && self.start > 0;
        if !self.pass_to(self.sharding.first_row(self.round))? {
            return if resumed { self.check_resumed() } else { Ok(None) };
        }
        self.target.collect(&self.stop)?;
        let mut slot = self.ring.slot();
        let rows = self.take(self.sharding.batch_size(), &mut slot)?;
        // All ranks have the same number of batches: this batch counts only if those of the other ranks exist.
        if rows == 0 || !self.pass_to(self.sharding.rows_needed(self.round))? {
            return if resumed { self.check_resumed() } else { Ok(None) };
        }
        self.round += 1;
        Ok(Some(Batch { tensors: self.groups.tensors(slot.into_blocks(), &self.target)?, rows }))
    }

    /// At the end, before any batch was made: checks whether the source has as many batches as were handed out before.
    fn check_resumed(&self) -> Result<Option<Batch>> {
        let batches = self.sharding.batches(self.position);
        if batches >= self.start {
            return Ok(None);
        }
        let reason = format!("the state is after batch {} of an epoch, and the source has {batches}", self.start);
        Err(Error::argument(reason).remedy_is("load the state into a loader of the source that it was taken from"))
    }

    fn take(&mut self, count: usize, slot: &mut Slot) -> Result<usize> {
        let rows = match &mut self.shuffle {
            Some(buffer) => buffer.take(&mut self.feed, &mut self.groups, count, slot)?,
            None => self.feed.take(count, &mut self.groups, slot)?,
        };
        self.position += rows;
        Ok(rows)
    }

    /// Skips rows up to this number; returns whether there are as many.
    fn pass_to(&mut self, position: usize) -> Result<bool> {
        let count = position.saturating_sub(self.position);
        let rows = match &mut self.shuffle {
            Some(buffer) => buffer.skip(&mut self.feed, &mut self.groups, count)?,
            None => self.feed.skip(count)?,
        };
        self.position += rows;
        Ok(rows == count)
    }
}
