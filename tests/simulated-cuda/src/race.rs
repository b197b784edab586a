//! Who else touched these bytes: the accesses of one block, and whether a wait orders each new one with those before.

use std::ops::Range;
use std::sync::Arc;

use crate::clock::{Clock, Moment};
use crate::pages::page;

/// What an operation does to bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    Allocate,
    Free,
}

/// Bytes apart from each other, in order: no range is empty.
pub(crate) type Ranges = Arc<Vec<Range<u64>>>;

/// The bytes of one range.
pub(crate) fn only(range: Range<u64>) -> Ranges {
    Arc::new(std::iter::once(range).collect())
}

/// One access, by an operation of a stream or by a host thread.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) ranges: Ranges,
    pub(crate) kind: Kind,
    pub(crate) at: Moment,
    /// What made it, for reports.
    pub(crate) what: &'static str,
    /// Whether a host thread made it, not a stream.
    pub(crate) by_host: bool,
    /// Whether it has happened; a queued operation's has not.
    pub(crate) done: bool,
}

/// What is wrong with an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// No chain of waits orders the two, and one of them is not a read.
    Race,
    /// It is ordered, after the block was freed.
    UseAfterFree,
}

/// Adds bytes to ranges, which stay in order and apart from each other: those that touch become one.
fn insert(ranges: &mut Vec<Range<u64>>, new: Range<u64>) {
    let first = ranges.partition_point(|range| range.end < new.start);
    let behind = ranges.partition_point(|range| range.start <= new.end);
    let touching = ranges.drain(first..behind);
    let joined = touching.fold(new, |joined, range| joined.start.min(range.start)..joined.end.max(range.end));
    ranges.insert(first, joined);
}

impl Access {
    /// From the first to the last of its bytes.
    pub(crate) fn span(&self) -> Range<u64> {
        match &self.ranges[..] {
            [] => 0..0,
            [first, .., last] => first.start..last.end,
            [only] => only.clone(),
        }
    }

    fn overlaps(&self, other: &Access) -> bool {
        let (few, many) = if self.ranges.len() < other.ranges.len() { (self, other) } else { (other, self) };
        few.ranges.iter().any(|range| {
            let next = many.ranges.partition_point(|candidate| candidate.end <= range.start);
            many.ranges.get(next).is_some_and(|candidate| candidate.start < range.end)
        })
    }

    fn covers(&self, other: &Access) -> bool {
        other.ranges.iter().all(|range| {
            let next = self.ranges.partition_point(|candidate| candidate.end < range.end);
            self.ranges.get(next).is_some_and(|candidate| candidate.start <= range.start && range.end <= candidate.end)
        })
    }

    /// Whether whatever conflicts with `earlier`, and is not ordered after it, conflicts with `self` too.
    fn stands_for(&self, earlier: &Access) -> bool {
        let kinds = match (self.kind, earlier.kind) {
            (Kind::Read, kind) => kind == Kind::Read,
            (Kind::Write, kind) => kind != Kind::Free,
            (Kind::Allocate | Kind::Free, _) => true,
        };
        kinds && !earlier.at.is(&self.at) && earlier.at.known_to(&self.at.clock) && self.covers(earlier)
    }
}

/// The accesses of one block that later ones are still compared with.
#[derive(Debug, Default)]
pub(crate) struct Log(Vec<Access>);

impl Log {
    /// Adds an access; the answer is what it conflicts with, if anything.
    pub(crate) fn add(&mut self, access: Access) -> Option<(Rule, Access)> {
        let conflict = self.conflict(&access);
        if access.by_host {
            // Only the first access after a call of the driver is seen, so one for each page is as good as all.
            let page = |access: &Access| access.span().start / page();
            self.0.retain(|other| {
                !(other.by_host && other.at.actor == access.at.actor && other.kind == access.kind)
                    || page(other) != page(&access)
            });
        }
        if access.done {
            self.0.retain(|earlier| !access.stands_for(earlier));
        }
        if !self.extend(&access) {
            self.0.push(access);
        }
        conflict
    }

    /// Adds an access to one that the same operation made just now, as a kernel that goes from value to value does.
    fn extend(&mut self, access: &Access) -> bool {
        let recent = self.0.iter_mut().rev().take_while(|other| other.at.is(&access.at));
        let mut alike = recent.filter(|other| other.kind == access.kind && other.done && access.done);
        // Those of the host are kept page by page.
        let Some(other) = alike.next().filter(|_| !access.by_host) else { return false };
        if !other.covers(access) {
            let ranges = Arc::make_mut(&mut other.ranges);
            access.ranges.iter().for_each(|range| insert(ranges, range.clone()));
        }
        true
    }

    fn conflict(&self, access: &Access) -> Option<(Rule, Access)> {
        let others = || self.0.iter().filter(|other| !other.at.is(&access.at) && other.overlaps(access));
        let races = |other: &&Access| {
            (other.kind != Kind::Read || access.kind != Kind::Read) && !other.at.ordered_with(&access.at)
        };
        if let Some(other) = others().find(races) {
            return Some((Rule::Race, other.clone()));
        }
        let given_out_again = |free: &Access| {
            others().any(|other| {
                other.kind == Kind::Allocate && free.at.known_to(&other.at.clock) && other.at.known_to(&access.at.clock)
            })
        };
        let stale = |other: &&Access| {
            other.kind == Kind::Free
                && access.kind != Kind::Allocate
                && other.at.known_to(&access.at.clock)
                && !given_out_again(other)
        };
        others().find(stale).map(|free| (Rule::UseAfterFree, free.clone()))
    }

    /// Marks what the operation at `at` did as done, and forgets what it stands for.
    ///
    /// All that is ordered before an operation has run when it runs, so whatever is logged later is ordered after it or not at all.
    pub(crate) fn done(&mut self, at: &Moment) {
        let mut own = Vec::new();
        for access in self.0.iter_mut().filter(|access| access.at.is(at)) {
            access.done = true;
            own.push(access.clone());
        }
        self.0.retain(|earlier| !own.iter().any(|access| access.stands_for(earlier)));
    }

    /// Whether the block's free is known to `clock`.
    pub(crate) fn is_freed_before(&self, clock: &Clock) -> bool {
        self.0.iter().any(|access| access.kind == Kind::Free && access.at.known_to(clock))
    }

    /// The accesses by streams: those that the host may have to wait for.
    pub(crate) fn by_streams(&self) -> impl Iterator<Item = &Access> {
        self.0.iter().filter(|access| !access.by_host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    fn access(kind: Kind, range: Range<u64>, actor: usize, tick: u64, known: &[(usize, u64)]) -> Access {
        let mut clock = Clock::default();
        known.iter().for_each(|(other, seen)| clock.set(*other, *seen));
        clock.set(actor, tick);
        let at = Moment { actor, tick, clock: Arc::new(clock) };
        Access { ranges: only(range), kind, at, what: "test", by_host: false, done: true }
    }

    #[test]
    fn rows_overlap_and_cover_row_by_row() {
        let rows = |start: u64, width: u64| Access {
            ranges: Arc::new((0..5).map(|row| start + row * 10..start + row * 10 + width).collect()),
            ..access(Kind::Read, 0..1, 0, 1, &[])
        };
        assert!(!rows(0, 4).overlaps(&rows(4, 6)) && !rows(4, 6).overlaps(&rows(0, 4)));
        assert!(rows(0, 5).overlaps(&rows(4, 6)) && rows(0, 4).overlaps(&access(Kind::Read, 43..44, 0, 1, &[])));
        assert!(!rows(0, 4).overlaps(&access(Kind::Read, 34..40, 0, 1, &[])));
        assert!(rows(0, 4).covers(&rows(1, 3)) && !rows(1, 3).covers(&rows(0, 4)));
        assert!(
            access(Kind::Read, 0..50, 0, 1, &[]).covers(&rows(0, 10))
                && !rows(0, 4).covers(&access(Kind::Read, 0..50, 0, 1, &[]))
        );
        assert_eq!(rows(3, 2).span(), 3..45);
    }

    #[test]
    fn what_a_kernel_touches_value_by_value_is_one_access() {
        let mut log = Log::default();
        for start in (0..1000).step_by(4) {
            log.add(access(Kind::Read, start..start + 4, 0, 1, &[]));
            log.add(access(Kind::Write, 2 * start + 1..2 * start + 2, 0, 1, &[]));
        }
        log.add(access(Kind::Read, 500..504, 0, 1, &[]));
        assert_eq!(log.0.len(), 2);
        assert_eq!((log.0[0].ranges.len(), log.0[1].ranges.len()), (1, 250));
        assert_eq!(log.add(access(Kind::Write, 998..999, 1, 1, &[])).unwrap().0, Rule::Race);
    }

    #[test]
    fn what_a_kernel_touches_in_any_order_is_one_access() {
        let mut log = Log::default();
        // Every second value of 400, from both ends; then, by another operation, some of those between, and a range over most.
        for step in 0..100 {
            for value in [2 * step, 398 - 2 * step] {
                log.add(access(Kind::Write, value * 4..value * 4 + 4, 0, 1, &[]));
            }
        }
        assert_eq!((log.0.len(), log.0[0].ranges.len()), (1, 200));
        assert!(log.add(access(Kind::Read, 804..808, 1, 1, &[])).is_none());
        for value in (1..100).step_by(2) {
            log.add(access(Kind::Write, value * 4..value * 4 + 4, 0, 2, &[(1, 1)]));
        }
        log.add(access(Kind::Write, 2..390, 0, 2, &[(1, 1)]));
        assert_eq!(log.0.last().unwrap().ranges[..2], [2..392, 396..400]);
        assert!(log.add(access(Kind::Read, 392..396, 2, 1, &[(0, 1)])).is_none());
        assert_eq!(log.add(access(Kind::Read, 391..396, 2, 1, &[(0, 1)])).unwrap().0, Rule::Race);
    }

    #[test]
    fn ranges_stay_in_order_and_apart() {
        for (new, expected) in [
            (0..1, vec![0..1, 2..4, 6..8, 20..22]),
            (0..2, vec![0..4, 6..8, 20..22]),
            (3..4, vec![2..4, 6..8, 20..22]),
            (4..5, vec![2..5, 6..8, 20..22]),
            (4..6, vec![2..8, 20..22]),
            (1..9, vec![1..9, 20..22]),
            (5..7, vec![2..4, 5..8, 20..22]),
            (9..10, vec![2..4, 6..8, 9..10, 20..22]),
            (22..23, vec![2..4, 6..8, 20..23]),
        ] {
            let mut ranges = vec![2..4, 6..8, 20..22];
            insert(&mut ranges, new);
            assert_eq!(ranges, expected);
        }
    }

    #[test]
    fn what_the_host_touches_is_kept_page_by_page() {
        let of_host =
            |start: u64, tick| Access { by_host: true, ..access(Kind::Write, start..start + 1, 0, tick, &[]) };
        let mut log = Log::default();
        log.add(of_host(0, 1));
        log.add(of_host(5 * page(), 1));
        log.add(of_host(0, 2));
        let by_stream = access(Kind::Read, 5 * page()..5 * page() + 8, 1, 1, &[]);
        assert_eq!(log.add(by_stream).unwrap().0, Rule::Race);
    }

    #[test]
    fn only_conflicting_unordered_overlaps_are_races() {
        let rule = |second: Access| {
            let mut log = Log::default();
            assert!(log.add(access(Kind::Write, 0..8, 0, 1, &[])).is_none());
            log.add(second).map(|conflict| conflict.0)
        };
        assert_eq!(rule(access(Kind::Read, 7..9, 1, 1, &[])), Some(Rule::Race));
        assert_eq!(rule(access(Kind::Read, 8..9, 1, 1, &[])), None);
        assert_eq!(rule(access(Kind::Read, 7..9, 1, 1, &[(0, 1)])), None);
    }

    #[test]
    fn a_later_logged_access_may_be_the_earlier_one() {
        let mut log = Log::default();
        log.add(access(Kind::Write, 0..8, 1, 1, &[(0, 1)]));
        assert!(log.add(access(Kind::Read, 0..8, 0, 1, &[])).is_none());
    }

    #[test]
    fn a_freed_block_is_used_only_after_it_was_given_out_again() {
        let mut log = Log::default();
        log.add(access(Kind::Free, 0..8, 0, 2, &[]));
        assert_eq!(log.add(access(Kind::Read, 0..8, 0, 3, &[])).unwrap().0, Rule::UseAfterFree);
        let mut log = Log::default();
        log.add(access(Kind::Free, 0..8, 0, 2, &[]));
        assert!(log.add(access(Kind::Allocate, 0..8, 0, 3, &[])).is_none());
        assert!(log.add(access(Kind::Read, 0..8, 0, 4, &[])).is_none());
        assert_eq!(log.0.len(), 2, "the free is forgotten");
    }

    #[test]
    fn what_is_superseded_is_forgotten_and_nothing_else() {
        let mut log = Log::default();
        log.add(access(Kind::Read, 0..8, 0, 1, &[]));
        log.add(access(Kind::Read, 0..8, 1, 1, &[]));
        log.add(access(Kind::Write, 0..8, 0, 2, &[]));
        assert_eq!(log.0.len(), 2, "the unordered read stays");
        log.add(access(Kind::Write, 0..7, 0, 3, &[(1, 1)]));
        assert_eq!(log.0.len(), 3, "the last byte is still its own");
        let mut pending = access(Kind::Write, 0..8, 0, 4, &[(1, 1)]);
        pending.done = false;
        let at = pending.at.clone();
        log.add(pending);
        assert_eq!(log.0.len(), 4, "a queued write supersedes nothing");
        log.done(&at);
        assert_eq!(log.0.len(), 1);
    }
}
