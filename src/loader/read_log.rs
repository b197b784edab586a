//! What an iteration has read, for whoever takes its state while its threads read on.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use super::dictionary_hashes::DictionaryHashes;
use super::shards::ShardLane;
use crate::error::Error;

/// The hash of the sampled rows of a shard up to one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Digest {
    /// How many rows were sampled.
    pub(crate) samples: usize,
    /// The hash of all of them.
    pub(crate) digest: u64,
}

/// The digests of an iteration. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct ReadLog {
    rows: Arc<Mutex<RowsRead>>,
    /// The process whose threads read: a fork leaves their lock as it was, and nobody to unlock it.
    process: u32,
}

impl Default for ReadLog {
    fn default() -> Self {
        Self { rows: Arc::default(), process: std::process::id() }
    }
}

/// The digests of one shard that is read for one lane.
#[derive(Clone, Debug)]
pub(super) struct ShardLog {
    log: ReadLog,
    lane: usize,
    shard: usize,
}

#[derive(Debug, Default)]
struct RowsRead {
    lanes: Vec<ShardLane>,
    /// By lane and shard: the sampled rows, and the digest after each.
    rows: BTreeMap<(usize, usize), Vec<(usize, u64)>>,
    /// The readers that have not come to the end of the epoch.
    reading: usize,
    left_out: Option<usize>,
    /// The hashes of the dictionaries of codes that were read.
    dictionaries: DictionaryHashes,
    /// A lane with other rows than its shards told, the first of those that were found at the end.
    lying: Option<(usize, Error)>,
}

impl ReadLog {
    /// Returns the log of an epoch of these lanes, before any of so many readers has read anything.
    pub(super) fn new(lanes: Vec<ShardLane>, readers: usize) -> Self {
        let rows = RowsRead { lanes, reading: readers, ..RowsRead::default() };
        Self { rows: Arc::new(Mutex::new(rows)), ..Self::default() }
    }

    fn lock(&self) -> MutexGuard<'_, RowsRead> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was read; `None` in a forked process where a thread of the other one was noting something.
    fn read(&self) -> Option<MutexGuard<'_, RowsRead>> {
        if self.process == std::process::id() {
            return Some(self.lock());
        }
        match self.rows.try_lock() {
            Ok(read) => Some(read),
            Err(TryLockError::Poisoned(read)) => Some(read.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Returns the log of a shard that is read for a lane.
    pub(super) fn of(&self, lane: usize, shard: usize) -> ShardLog {
        ShardLog { log: self.clone(), lane, shard }
    }

    /// Returns a lane, with the rows of its shards that were read to their ends.
    pub(super) fn lane(&self, lane: usize) -> Option<ShardLane> {
        self.lock().lanes.get(lane).cloned()
    }

    /// Returns the digest of each shard, of the sampled rows among the first ones of each lane. `rows` returns how many of a
    /// lane's rows that is.
    #[cfg_attr(not(feature = "python"), allow(dead_code, reason = "states are taken in Python alone"))]
    pub(crate) fn digests(&self, rows: impl Fn(usize) -> Option<usize>) -> BTreeMap<usize, Digest> {
        let mut digests: BTreeMap<usize, Digest> = BTreeMap::new();
        let Some(read) = self.read() else { return digests };
        for (number, lane) in read.lanes.iter().enumerate() {
            for (shard, end, _) in lane.first(rows(number).unwrap_or(0)) {
                let sampled = read.rows.get(&(number, shard)).map_or(&[][..], Vec::as_slice);
                let samples = sampled.partition_point(|(row, _)| *row < end);
                let Some((_, digest)) = samples.checked_sub(1).and_then(|last| sampled.get(last)) else { continue };
                let known = digests.entry(shard).or_default();
                if known.samples < samples {
                    *known = Digest { samples, digest: *digest };
                }
            }
        }
        digests
    }

    /// Notes the hashes of dictionaries of codes.
    pub(super) fn has_dictionaries(&self, hashes: &DictionaryHashes) {
        self.lock().dictionaries.add(hashes);
    }

    /// Returns the hashes of the dictionaries of codes that were read.
    #[cfg_attr(not(feature = "python"), allow(dead_code, reason = "states are taken in Python alone"))]
    pub(crate) fn dictionaries(&self) -> DictionaryHashes {
        self.read().map_or_else(DictionaryHashes::default, |read| read.dictionaries.clone())
    }

    /// Notes that a reader has come to the end of the epoch, and how many rows that left out.
    pub(super) fn end(&self, left_out: usize) {
        let mut read = self.lock();
        read.reading = read.reading.saturating_sub(1);
        read.left_out = Some(left_out);
    }

    /// Notes that a shard of the lane has more rows than it told, which one of several readers found at its end.
    pub(super) fn lies(&self, lane: usize, error: Error) {
        let mut read = self.lock();
        if read.lying.as_ref().is_none_or(|(other, _)| lane < *other) {
            read.lying = Some((lane, error));
        }
    }

    /// Returns the error that one reader of all lanes would have ended with. Each reader must have ended.
    pub(super) fn take_lie(&self) -> Option<Error> {
        self.lock().lying.take().map(|(_, error)| error)
    }

    /// Returns how many rows the epoch left out; `None` before its end.
    pub(crate) fn left_out(&self) -> Option<usize> {
        let read = self.read()?;
        read.left_out.filter(|_| read.reading == 0)
    }
}

impl ShardLog {
    /// Forgets the digests of an earlier reading.
    pub(super) fn begin(&self) {
        self.log.lock().rows.insert((self.lane, self.shard), Vec::new());
    }

    /// Notes how many rows the shard has, at its end.
    pub(super) fn end(&self, rows: usize) {
        if let Some(lane) = self.log.lock().lanes.get_mut(self.lane) {
            lane.found(self.shard, rows);
        }
    }

    /// Notes the digest after a sampled row.
    pub(super) fn add(&self, row: usize, digest: Digest) {
        self.log.lock().rows.entry((self.lane, self.shard)).or_default().push((row, digest.digest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forked_process_waits_for_no_thread_of_the_other() {
        let own = ReadLog::new(Vec::new(), 0);
        let dictionaries = DictionaryHashes { all: Some(7), each: vec![Some(7)] };
        own.has_dictionaries(&dictionaries);
        own.end(3);
        let forked = ReadLog { process: std::process::id().wrapping_add(1), ..own.clone() };
        // What a fork finds while no thread notes anything.
        assert_eq!((forked.dictionaries(), forked.left_out()), (dictionaries, Some(3)));
        let locked = own.lock();
        assert_eq!(
            (forked.digests(|_| Some(1)), forked.dictionaries(), forked.left_out()),
            (BTreeMap::new(), DictionaryHashes::default(), None)
        );
        drop(locked);
    }
}
