//! The position of a loader's iteration.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};
use crate::loader::{Source, State, Terms};

/// Where the latest iteration of a loader stands, or where the next one begins.
#[derive(Debug)]
pub(super) struct Progress(Mutex<Position>);

#[derive(Debug)]
struct Position {
    seed: Option<u64>,
    /// Whether the seed is the caller's word.
    seed_was_passed: bool,
    epoch: u64,
    batches: usize,
    /// Whether an iteration is there, so that the next one is of another epoch.
    begun: bool,
    /// Counts iterations: only the latest one moves the position.
    run: u64,
    source: Source,
    /// What a loaded state asks of the source.
    resumed: Option<Terms>,
}

/// Where an iteration begins.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) seed: Option<u64>,
    pub(super) epoch: u64,
    /// Batches that were handed out before.
    pub(super) batches: usize,
    pub(super) resumed: Option<Terms>,
}

impl Progress {
    /// The start of the first epoch.
    pub(super) fn new(seed: Option<u64>, seed_was_passed: bool) -> Self {
        Self(Mutex::new(Position {
            seed,
            seed_was_passed,
            epoch: 0,
            batches: 0,
            begun: false,
            run: 0,
            source: Source::default(),
            resumed: None,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Position> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The seed that the caller passed.
    pub(super) fn passed_seed(&self) -> Option<u64> {
        let position = self.lock();
        position.seed.filter(|_| position.seed_was_passed)
    }

    /// Where the next iteration begins.
    pub(super) fn next(&self) -> Start {
        let position = self.lock();
        let (seed, epoch) = (position.seed, position.epoch);
        if position.begun {
            return Start { seed, epoch: epoch.saturating_add(1), batches: 0, resumed: None };
        }
        Start { seed, epoch, batches: position.batches, resumed: position.resumed.clone() }
    }

    /// An iteration begins there, over this source; its number.
    pub(super) fn begin(&self, start: &Start, source: Source) -> u64 {
        let mut position = self.lock();
        let run = position.run + 1;
        let (seed, seed_was_passed) = (position.seed, position.seed_was_passed);
        let Start { epoch, batches, .. } = *start;
        *position = Position { seed, seed_was_passed, epoch, batches, begun: true, run, source, resumed: None };
        run
    }

    /// A batch of this iteration was handed out.
    pub(super) fn handed_out(&self, run: u64) {
        let mut position = self.lock();
        if position.run == run {
            position.batches += 1;
        }
    }

    /// This iteration came to the end of its epoch.
    pub(super) fn ended(&self, run: u64) {
        let mut position = self.lock();
        if position.run == run && position.begun {
            (position.epoch, position.batches, position.begun) = (position.epoch.saturating_add(1), 0, false);
        }
    }

    /// The next iteration begins this epoch; one that goes on with it already, by a loaded state, does so still.
    pub(super) fn set_epoch(&self, epoch: u64) {
        let mut position = self.lock();
        if position.begun || position.epoch != epoch {
            (position.epoch, position.batches, position.begun) = (epoch, 0, false);
            (position.run, position.resumed) = (position.run + 1, None);
        }
    }

    /// The state under these terms.
    pub(super) fn state(&self, mut terms: Terms) -> State {
        let position = self.lock();
        let resumed = position.resumed.as_ref().map(|resumed| &resumed.source);
        let known = resumed.unwrap_or(&position.source);
        terms.source.columns = known.columns.clone();
        terms.source.rows = terms.source.rows.or(known.rows);
        State { seed: position.seed, epoch: position.epoch, batches: position.batches, terms }
    }

    /// The next iteration goes on from this state.
    ///
    /// # Errors
    /// When another seed was passed to the loader.
    pub(super) fn load(&self, state: State) -> Result<()> {
        let mut position = self.lock();
        if position.seed_was_passed && position.seed != state.seed {
            let text = |seed: Option<u64>| seed.map_or_else(|| "none".to_owned(), |seed| seed.to_string());
            let (theirs, ours) = (text(state.seed), text(position.seed));
            let reason = format!("the seed of the state is {theirs}, and that of the loader {ours}");
            return Err(Error::argument(reason).remedy_is("pass the seed of the state, or none"));
        }
        (position.seed, position.epoch, position.batches) = (state.seed, state.epoch, state.batches);
        (position.begun, position.run, position.resumed) = (false, position.run + 1, Some(state.terms));
        Ok(())
    }
}
