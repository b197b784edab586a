//! The position of a loader's iteration.

use std::collections::BTreeSet;
use std::num::NonZero;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::place::Place;
use super::read_log::ReadLog;
use super::sharding::{OfOthers, Sharding};
use super::state::{Hashes, SourceState, State, Terms};
use crate::error::{Error, Result};

/// Where the latest iteration of a loader stands, or where the next one begins.
#[derive(Debug)]
pub(crate) struct Progress {
    sharding: Sharding,
    /// Rows of the shuffle buffer.
    buffer: Option<NonZero<usize>>,
    position: Mutex<Position>,
}

#[derive(Debug)]
struct Position {
    seed: Option<u64>,
    /// Whether the seed is the caller's word.
    seed_was_passed: bool,
    /// Where the iteration began, or begins, and how many batches it handed out since, without a gap.
    place: Place,
    rounds: usize,
    /// Batches that were handed out before an earlier one, by number.
    early: BTreeSet<usize>,
    /// Rows of the batches before that place.
    batch_size: usize,
    /// Which of them, the last ones, other workers make.
    of_others: OfOthers,
    /// Whether an iteration is there, so that the next one is of another epoch.
    begun: bool,
    /// Counts iterations: only the latest one moves the position.
    run: u64,
    source: SourceState,
    /// What a loaded state asks of the source.
    resumed: Option<Terms>,
    /// Of the rows before `place`, and of the dictionaries of codes that were read last.
    hashes: Hashes,
    /// What the iteration reads.
    log: Option<ReadLog>,
    /// Of the epoch that ended last.
    ended: Option<Ended>,
}

/// What an epoch was, once it has ended.
#[derive(Clone, Debug, Default)]
struct Ended {
    left_out: Option<usize>,
    hashes: Hashes,
}

/// Where an iteration begins.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) seed: Option<u64>,
    pub(crate) place: Place,
    /// Rows of the batches that were handed out before.
    pub(crate) batch_size: usize,
    /// Which of them, the last ones, other workers make.
    pub(crate) of_others: OfOthers,
    pub(crate) resumed: Option<Terms>,
    /// Of the rows before.
    pub(crate) hashes: Hashes,
}

impl Progress {
    /// The start of the first epoch.
    pub(crate) fn new(
        (seed, seed_was_passed): (Option<u64>, bool),
        sharding: Sharding,
        buffer: Option<NonZero<usize>>,
        first: Place,
    ) -> Self {
        let position = Mutex::new(Position {
            seed,
            seed_was_passed,
            place: first,
            rounds: 0,
            early: BTreeSet::new(),
            batch_size: sharding.batch_size(),
            of_others: OfOthers::default(),
            begun: false,
            run: 0,
            source: SourceState::default(),
            resumed: None,
            hashes: Hashes::default(),
            log: None,
            ended: None,
        });
        Self { sharding, buffer, position }
    }

    fn lock(&self) -> MutexGuard<'_, Position> {
        self.position.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The seed that the caller passed.
    pub(crate) fn passed_seed(&self) -> Option<u64> {
        let position = self.lock();
        position.seed.filter(|_| position.seed_was_passed)
    }

    /// The start of the first epoch.
    pub(crate) fn first_place(&self) -> Place {
        self.lock().place.start_of(0)
    }

    /// The epoch of the current iteration, or of the next one.
    pub(crate) fn epoch(&self) -> u64 {
        self.lock().place.epoch()
    }

    /// What is known of the source of an epoch that has begun, and has not ended.
    pub(crate) fn begun_source(&self) -> Option<SourceState> {
        let position = self.lock();
        position.begun.then(|| position.source.clone())
    }

    /// How many rows of the last epoch that ended are in no batch.
    pub(crate) fn left_out(&self) -> Option<usize> {
        self.lock().ended.as_ref().and_then(|ended| ended.left_out)
    }

    /// Where the next iteration begins.
    ///
    /// # Errors
    /// If there is no further epoch.
    pub(crate) fn next(&self) -> Result<Start> {
        let position = self.lock();
        let seed = position.seed;
        if position.begun {
            let place = position.place.next_epoch()?;
            let batch_size = self.sharding.batch_size();
            let hashes = position.read(|_| None).without_rows();
            return Ok(Start { seed, place, batch_size, of_others: OfOthers::default(), resumed: None, hashes });
        }
        Ok(Start {
            seed,
            place: position.place.clone(),
            batch_size: position.batch_size,
            of_others: position.of_others,
            resumed: position.resumed.clone(),
            hashes: position.hashes.clone(),
        })
    }

    /// An iteration begins there, over this source, with these hashes to go on with; its number.
    pub(crate) fn begin(&self, start: Start, source: SourceState, hashes: Hashes, log: ReadLog) -> u64 {
        let mut position = self.lock();
        position.run += 1;
        (position.place, position.rounds) = (start.place, 0);
        (position.batch_size, position.of_others) = (start.batch_size, start.of_others);
        position.early.clear();
        (position.begun, position.source, position.resumed) = (true, source, None);
        (position.hashes, position.log) = (hashes, Some(log));
        position.run
    }

    /// The batch of this number was handed out. Threads that share an iteration may come with a later one first.
    pub(crate) fn handed_out(&self, run: u64, number: usize) {
        let mut position = self.lock();
        if position.run == run && position.begun {
            position.early.insert(number);
            let next = position.rounds;
            position.rounds = (next..).find(|number| !position.early.remove(number)).unwrap_or(next);
        }
    }

    /// This iteration came to the end of its epoch.
    pub(crate) fn ended(&self, run: u64) {
        let mut position = self.lock();
        if position.run == run && position.begun {
            let hashes = position.read(|_| Some(usize::MAX));
            let left_out = position.log.as_ref().and_then(ReadLog::left_out);
            position.ended = Some(Ended { left_out, hashes });
            // Of the last epoch the position stays at its end.
            if let Ok(place) = position.place.next_epoch() {
                position.move_to(place, (self.sharding.batch_size(), OfOthers::default()));
            }
        }
    }

    /// The next iteration begins this epoch; one that goes on with it already, by a loaded state, does so still.
    pub(crate) fn set_epoch(&self, epoch: u64) {
        let mut position = self.lock();
        if position.begun || position.place.epoch() != epoch {
            let place = position.place.start_of(epoch);
            position.move_to(place, (self.sharding.batch_size(), OfOthers::default()));
            (position.run, position.resumed) = (position.run + 1, None);
        }
    }

    /// The state under these terms.
    pub(crate) fn state(&self, mut terms: Terms) -> State {
        let position = self.lock();
        let resumed = position.resumed.as_ref().map(|resumed| &resumed.source);
        let known = resumed.unwrap_or(&position.source);
        terms.source.columns = known.columns.clone();
        terms.source.rows = terms.source.rows.or(known.rows);
        let (rounds, seed) = (position.rounds, position.seed);
        let place = position.place.after_rounds(rounds, &self.sharding);
        let (batch_size, of_others) = match rounds {
            0 => (position.batch_size, position.of_others),
            _ => (self.sharding.batch_size(), self.sharding.of_others()),
        };
        let buffer = self.buffer.map_or(0, |buffer| position.place.buffer(buffer));
        let hashes = position.read(|lane| position.place.rows_read(lane, rounds, &self.sharding, buffer));
        State { seed, place, batch_size, of_others, terms, hashes }
    }

    /// The state under these terms, with the hashes of the epoch that ended if no other one has begun.
    pub(crate) fn fingerprint(&self, terms: Terms) -> State {
        let state = self.state(terms);
        let position = self.lock();
        match &position.ended {
            Some(ended) if !position.begun => State { hashes: ended.hashes.clone(), ..state },
            _ => state,
        }
    }

    /// The next iteration goes on from this state.
    ///
    /// # Errors
    /// When the state does not fit these terms; when another seed was passed to the loader, or the state is of other lanes.
    pub(crate) fn load(&self, state: State, terms: &Terms) -> Result<()> {
        state.check(terms)?;
        let mut position = self.lock();
        if position.seed_was_passed && position.seed != state.seed {
            let text = |seed: Option<u64>| seed.map_or_else(|| "none".to_owned(), |seed| seed.to_string());
            let (theirs, ours) = (text(state.seed), text(position.seed));
            let reason = format!("the seed of the state is {theirs}, and that of the loader {ours}");
            return Err(Error::argument(reason).remedy_is("pass the seed of the state, or none"));
        }
        let (theirs, ours) = (state.place.taken().len(), position.place.taken().len());
        if theirs != ours {
            let reason = format!("the state has {theirs} lanes, and the loader {ours}");
            return Err(Error::argument(reason).remedy_is("pass the lanes of the loader that the state was taken from"));
        }
        position.seed = state.seed;
        position.move_to(state.place, (state.batch_size, state.of_others));
        position.hashes = state.hashes;
        (position.run, position.resumed, position.ended) = (position.run + 1, Some(state.terms), None);
        Ok(())
    }
}

impl Position {
    /// The next iteration begins at this place.
    fn move_to(&mut self, place: Place, (batch_size, of_others): (usize, OfOthers)) {
        (self.hashes, self.log) = (self.read(|_| None).without_rows(), None);
        (self.place, self.rounds, self.begun) = (place, 0, false);
        (self.batch_size, self.of_others) = (batch_size, of_others);
        self.early.clear();
    }

    /// The hashes of what was read by now: those of the state that the iteration began with, and those in its log, of the first
    /// rows of each lane. `rows` returns how many.
    fn read(&self, rows: impl Fn(usize) -> Option<usize>) -> Hashes {
        let mut hashes = self.hashes.clone();
        for (shard, read) in self.log.iter().flat_map(|log| log.digests(&rows)) {
            let known = hashes.digests.entry(shard).or_default();
            if read.samples > known.samples {
                *known = read;
            }
        }
        // A thread that is ahead may have read them before the first batch was handed out, or not.
        if let Some(log) = self.log.as_ref().filter(|_| self.rounds > 0) {
            let mut found = log.dictionaries();
            found.add(&hashes.dictionaries);
            hashes.dictionaries = found;
        }
        hashes
    }
}
