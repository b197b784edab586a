//! What came before what: vector clocks, one component for every host thread and every stream.

use std::sync::Arc;

/// The component of one host thread or one stream.
pub(crate) type Actor = usize;

/// For every actor, the last of its ticks that is known to have happened.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock(Vec<u64>);

impl Clock {
    /// The last tick of `actor` that is known.
    pub(crate) fn of(&self, actor: Actor) -> u64 {
        self.0.get(actor).copied().unwrap_or(0)
    }

    /// Moves one component forward.
    pub(crate) fn set(&mut self, actor: Actor, tick: u64) {
        if self.0.len() <= actor {
            self.0.resize(actor + 1, 0);
        }
        self.0[actor] = tick;
    }

    /// Learns all that `other` knows.
    pub(crate) fn join(&mut self, other: &Clock) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = (*mine).max(*theirs);
        }
    }
}

/// One point of the partial order: a tick of an actor, with all that it came after.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    pub(crate) actor: Actor,
    pub(crate) tick: u64,
    pub(crate) clock: Arc<Clock>,
}

impl Moment {
    /// Whether `later` is this moment or one that is ordered after it.
    pub(crate) fn known_to(&self, later: &Clock) -> bool {
        later.of(self.actor) >= self.tick
    }

    /// Whether some chain of waits orders the two, or they are the same.
    pub(crate) fn ordered_with(&self, other: &Moment) -> bool {
        self.known_to(&other.clock) || other.known_to(&self.clock)
    }

    /// Whether both are the same tick of the same actor.
    pub(crate) fn is(&self, other: &Moment) -> bool {
        self.actor == other.actor && self.tick == other.tick
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(actor: Actor, tick: u64, known: &[(Actor, u64)]) -> Moment {
        let mut clock = Clock::default();
        for (other, seen) in known {
            clock.set(*other, *seen);
        }
        clock.set(actor, tick);
        Moment { actor, tick, clock: Arc::new(clock) }
    }

    #[test]
    fn order_goes_through_what_was_joined() {
        let first = moment(0, 3, &[]);
        let after = moment(1, 1, &[(0, 3)]);
        let beside = moment(2, 9, &[(0, 2)]);
        assert!(first.known_to(&after.clock) && first.ordered_with(&after) && after.ordered_with(&first));
        assert!(!after.known_to(&first.clock));
        assert!(!first.ordered_with(&beside) && !beside.ordered_with(&after));
    }

    #[test]
    fn a_join_keeps_the_later_of_both() {
        let (mut left, right) = (moment(0, 5, &[(1, 2)]).clock.as_ref().clone(), moment(1, 7, &[(0, 1), (4, 4)]));
        left.join(&right.clock);
        assert_eq!((left.of(0), left.of(1), left.of(4), left.of(9)), (5, 7, 4, 0));
    }
}
