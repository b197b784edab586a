//! Makes one batch after the other from the source's rows.

use super::batch::Batch;
use super::draws::Draws;
use super::groups::Groups;
use super::options::LoadOptions;
use super::place::Place;
use super::prefetch::Stop;
use super::read_log::{Digest, ReadLog};
use super::row_hashes::RowHashes;
use super::sharding::Sharding;
use super::shuffle::ShuffleBuffer;
use super::slot::{Ring, Slot};
use super::source_rows::SourceRows;
use super::target::BatchTarget;
use crate::arrow::DeviceArrayStream;
use crate::error::{Error, Result};

/// What is known of a state, besides its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resumed {
    /// Rows of a full batch of the loader that it was taken from.
    pub(crate) batch_size: usize,
    /// The rows of the source, if they are known.
    pub(crate) rows: Option<usize>,
    /// The digest of the source's rows.
    pub(crate) digest: Option<Digest>,
}

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
    /// The round of the next batch, counted from the first one that this producer makes.
    round: usize,
    /// The rows that were taken before that.
    start: usize,
    /// What is known of a state that this goes on from; `None` at the start, and after the rows before it were passed.
    resumed: Option<Resumed>,
    log: ReadLog,
    stop: Stop,
}

impl Producer {
    /// Returns the batches of an epoch after this place, of a source of one lane.
    ///
    /// # Errors
    /// When memory cannot be had; if the place is of more lanes.
    pub(super) fn new(
        stream: DeviceArrayStream,
        groups: Groups,
        options: &LoadOptions,
        place: &Place,
        resumed: Resumed,
        log: &ReadLog,
        stop: Stop,
    ) -> Result<Self> {
        let [start] = *place.taken() else {
            return Err(Error::argument(format!("the place is of {} lanes, and a stream is one", place.taken().len())));
        };
        let shuffle = match options.shuffle {
            Some(shuffle) => {
                let draws = Draws::new(shuffle.seed, place.epoch());
                Some(ShuffleBuffer::new(draws, shuffle.buffer.get(), &groups)?)
            }
            None => None,
        };
        // A loop holds one batch, and for a moment the next one too. One more place serves a second thread.
        let (rows, waiting) = (options.sharding.batch_size(), options.prefetch.saturating_add(3));
        let target = BatchTarget::new(options.device, groups.layouts().count(), options.prefetch)?;
        let ring = Ring::new(groups.layouts(), rows, waiting, || target.source())?;
        let hashes = RowHashes::new(log.clone(), resumed.digest);
        let feed = SourceRows::new(stream, &groups, hashes, stop.clone(), options.prefetch == 0)?;
        Ok(Self {
            feed,
            shuffle,
            groups,
            ring,
            target,
            sharding: options.sharding,
            position: 0,
            round: 0,
            start,
            resumed: (start > 0).then_some(resumed),
            log: log.clone(),
            stop,
        })
    }

    /// Makes batches on another thread than the one that asks for them, where signals end no read.
    #[cfg(feature = "async")]
    pub(super) fn leave_thread(&mut self) {
        self.feed.leave_thread();
    }

    /// Returns the next batch; `None` after the last one.
    ///
    /// # Errors
    /// The errors of the source, and of converting the batch's rows. No batch can be made after one.
    pub(super) fn next(&mut self) -> Result<Option<Batch>> {
        if self.stop.is_asked() {
            return Ok(None);
        }
        self.replay()?;
        if !self.pass_to(self.start.saturating_add(self.sharding.first_row(self.round)))? {
            return self.end();
        }
        self.target.collect(&self.stop)?;
        let mut slot = self.ring.slot();
        let rows = self.take(self.sharding.batch_size(), &mut slot)?;
        // All ranks have the same number of batches: this batch counts only if those of the other ranks exist.
        if rows == 0 || !self.pass_to(self.start.saturating_add(self.sharding.rows_needed(self.round)))? {
            return self.end();
        }
        self.round += 1;
        Ok(Some(Batch { tensors: self.groups.tensors(slot.into_blocks(), &self.target)?, rows }))
    }

    /// Before the first batch: passes the rows that were taken before.
    fn replay(&mut self) -> Result<()> {
        let Some(resumed) = self.resumed.take() else { return Ok(()) };
        match (&mut self.shuffle, resumed.rows) {
            (Some(buffer), Some(rows)) => {
                self.position = buffer.replay(&mut self.feed, &mut self.groups, self.start, rows)?;
            }
            _ => _ = self.pass_to(self.start)?,
        }
        // A last batch that was not full counts as full.
        if self.position.saturating_add(resumed.batch_size) > self.start {
            return Ok(());
        }
        let reason = format!("the state is after row {} of an epoch, and the source has {}", self.start, self.position);
        Err(Error::argument(reason).remedy_is("load the state into a loader of the source that it was taken from"))
    }

    /// At the end: notes how many rows are in no batch.
    fn end(&self) -> Result<Option<Batch>> {
        let batches = self.start.saturating_add(self.sharding.first_row(self.round) - self.sharding.first_row(0));
        self.log.end(self.position.saturating_sub(batches));
        Ok(None)
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
            None => self.feed.skip(count, &mut self.groups)?,
        };
        self.position += rows;
        Ok(rows == count)
    }
}
