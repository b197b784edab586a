//! Which of the entries that wait in order for streams are done?

use std::collections::VecDeque;

use super::behind::Awaited;

/// Entries in the order in which they came, by what they wait for.
pub(super) struct Queues<T> {
    queues: Vec<Queue<T>>,
    /// Entries of lost contexts, which are kept for ever.
    lost: Vec<T>,
}

struct Queue<T> {
    place: Awaited,
    entries: VecDeque<T>,
}

/// What a look at an entry found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// It waits for nothing any more.
    Done,
    /// It waits for this.
    At(Awaited),
    /// Its context is lost: nothing tells any more whether it is done.
    Lost,
}

impl<T> Queues<T> {
    pub(super) const fn new() -> Self {
        Self { queues: Vec::new(), lost: Vec::new() }
    }

    /// Returns whether no entry waits for anything that can still happen.
    pub(super) fn is_idle(&self) -> bool {
        self.queues.is_empty()
    }

    /// Adds an entry behind those that wait for the same.
    pub(super) fn push(&mut self, place: Awaited, entry: T) {
        match self.queues.iter_mut().find(|queue| queue.place == place) {
            Some(queue) => queue.entries.push_back(entry),
            None => self.queues.push(Queue { place, entries: VecDeque::from([entry]) }),
        }
    }

    /// Returns the place that all entries wait at, and the first of them, if there is one such place.
    pub(super) fn alone(&self) -> Option<(Awaited, &T)> {
        match self.queues.as_slice() {
            [queue] => Some((queue.place, queue.entries.front()?)),
            _ => None,
        }
    }

    /// What entries wait for, each place once.
    pub(super) fn places(&self) -> impl Iterator<Item = Awaited> {
        self.queues.iter().map(|queue| queue.place)
    }

    /// Removes and returns the entries that are done. Looks at each queue in order, and stops at the first entry that still
    /// waits for the same. An entry that waits for something else by now joins the queue of that.
    pub(super) fn take_done(&mut self, mut look: impl FnMut(&mut T) -> Look) -> Vec<T> {
        let (mut done, mut moved) = (Vec::new(), Vec::new());
        for Queue { place, entries } in &mut self.queues {
            while let Some(front) = entries.front_mut() {
                let found = look(front);
                if found == Look::At(*place) {
                    if let Awaited::Unknown(_) = place {
                        // Another one is asked for the next time, because this one may never be known.
                        entries.rotate_left(1);
                    }
                    break;
                }
                let Some(entry) = entries.pop_front() else { break };
                match found {
                    Look::Done => done.push(entry),
                    Look::At(place) => moved.push((place, entry)),
                    Look::Lost => self.lost.push(entry),
                }
            }
        }
        self.queues.retain(|queue| !queue.entries.is_empty());
        for (place, entry) in moved {
            self.push(place, entry);
        }
        done
    }

    /// All entries, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.queues.iter().flat_map(|queue| &queue.entries).chain(&self.lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::{Stream, StreamIdentity};

    const FIRST: Awaited = Awaited::Stream(StreamIdentity::of_every_thread(0, Stream::LEGACY));
    const SECOND: Awaited = Awaited::Stream(StreamIdentity::of_every_thread(0, Stream::PER_THREAD));
    const UNKNOWN: Awaited = Awaited::Unknown(0);

    fn queues(entries: &[(Awaited, u32)]) -> Queues<u32> {
        let mut queues = Queues::new();
        entries.iter().for_each(|(place, entry)| queues.push(*place, *entry));
        queues
    }

    fn left(queues: &Queues<u32>) -> Vec<u32> {
        queues.iter().copied().collect()
    }

    #[test]
    fn a_queue_is_looked_at_up_to_the_first_entry_that_waits() {
        let mut queues = queues(&[(FIRST, 1), (FIRST, 2), (FIRST, 3), (FIRST, 4), (SECOND, 5)]);
        let mut looked = Vec::new();
        let done = queues.take_done(|entry| {
            looked.push(*entry);
            match entry {
                1 | 2 | 4 => Look::Done,
                3 => Look::At(FIRST),
                _ => Look::At(SECOND),
            }
        });
        assert_eq!((done, looked), (vec![1, 2], vec![1, 2, 3, 5]));
        assert_eq!(left(&queues), [3, 4, 5]);
    }

    #[test]
    fn an_entry_that_waits_for_something_else_is_in_nobodys_way() {
        let mut queues = queues(&[(FIRST, 1), (FIRST, 2), (SECOND, 3)]);
        assert_eq!(queues.alone(), None);
        let done = queues.take_done(|entry| if *entry == 2 { Look::Done } else { Look::At(SECOND) });
        assert_eq!(done, [2]);
        assert_eq!(queues.alone(), Some((SECOND, &3)));
        assert_eq!(left(&queues), [3, 1]);
        assert_eq!(queues.take_done(|_| Look::Done), [3, 1]);
        assert!(queues.is_idle());
    }

    #[test]
    fn an_entry_that_is_never_known_holds_up_no_other_of_its_kind() {
        let mut queues = queues(&[(FIRST, 1), (FIRST, 2)]);
        assert!(queues.take_done(|_| Look::At(UNKNOWN)).is_empty());
        let look = |entry: &mut u32| if *entry == 2 { Look::Done } else { Look::At(UNKNOWN) };
        assert!(queues.take_done(look).is_empty());
        assert_eq!(queues.take_done(look), [2]);
        assert_eq!(left(&queues), [1]);
    }

    #[test]
    fn entries_of_a_lost_context_are_kept_and_not_looked_at_again() {
        let mut queues = queues(&[(FIRST, 1), (SECOND, 2)]);
        assert!(queues.take_done(|_| Look::Lost).is_empty());
        assert!(queues.is_idle());
        assert!(queues.take_done(|_| unreachable!("it is lost")).is_empty());
        assert_eq!(left(&queues), [1, 2]);
    }
}
