//! When does a part of a device do an operation? In the first gap that is long enough, from the moment on at which it may begin.

/// A part of a device, which does one operation at a time.
#[derive(Debug, Default)]
pub(crate) struct Engine {
    /// From when to when it is taken: in order, and apart from each other.
    taken: Vec<(u64, u64)>,
}

impl Engine {
    /// Takes the engine for `duration`, not before `ready`; the answer is from when to when. Nothing will ask for a time before `now`.
    pub(crate) fn take(&mut self, ready: u64, duration: u64, now: u64) -> (u64, u64) {
        self.taken.retain(|(_, end)| *end > now.min(ready));
        let mut start = ready;
        let mut index = 0;
        for (from, to) in &self.taken {
            if start + duration <= *from {
                break;
            }
            start = start.max(*to);
            index += 1;
        }
        let end = start + duration;
        if duration > 0 {
            self.insert(index, start, end);
        }
        (start, end)
    }

    /// Inserts what lies before the interval of this number, joined with its neighbours where nothing lies between.
    fn insert(&mut self, index: usize, start: u64, end: u64) {
        let joins_next = self.taken.get(index).is_some_and(|(from, _)| *from == end);
        let end = if joins_next { self.taken.remove(index).1 } else { end };
        match index.checked_sub(1).and_then(|before| self.taken.get_mut(before)) {
            Some((_, to)) if *to == start => *to = end,
            _ => self.taken.insert(index, (start, end)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_operation_at_a_time_in_the_first_gap_that_fits() {
        let mut engine = Engine::default();
        assert_eq!(engine.take(100, 50, 0), (100, 150));
        // Before it, where there is room; else behind it.
        assert_eq!(engine.take(0, 40, 0), (0, 40));
        assert_eq!(engine.take(10, 70, 0), (150, 220));
        assert_eq!(engine.take(10, 60, 0), (40, 100));
        assert_eq!(engine.taken, [(0, 220)]);
        assert_eq!(engine.take(30, 0, 0), (220, 220));
        assert_eq!(engine.take(500, 1, 400), (500, 501));
        assert_eq!(engine.taken, [(500, 501)]);
    }

    #[test]
    fn a_gap_between_two_operations_stays_until_it_is_filled() {
        let mut engine = Engine::default();
        engine.take(0, 10, 0);
        engine.take(20, 10, 0);
        engine.take(40, 10, 0);
        assert_eq!(engine.take(0, 11, 0), (50, 61));
        assert_eq!(engine.take(5, 10, 0), (10, 20));
        assert_eq!(engine.take(5, 5, 0), (30, 35));
        assert_eq!(engine.taken, [(0, 35), (40, 61)]);
    }
}
