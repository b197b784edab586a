//! Tests the prefetching thread: order, ends, failures and stops.

use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;

const LONG: Duration = Duration::from_secs(60);

/// Counts things that live.
#[derive(Clone)]
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new() -> (Self, Arc<AtomicUsize>) {
        let alive = Arc::new(AtomicUsize::new(1));
        (Self(alive.clone()), alive)
    }

    fn another(&self) -> Self {
        self.0.fetch_add(1, Ordering::SeqCst);
        Self(self.0.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn item<T>(taken: Result<Taken<T>>) -> T {
    match taken.unwrap() {
        Taken::Item(item) => item,
        Taken::NotYet => panic!("not yet"),
        Taken::Failed(error) => panic!("{error}"),
        Taken::End | Taken::Cut => panic!("the end"),
    }
}

fn is_cut<T>(taken: &Result<Taken<T>>) -> bool {
    matches!(taken, Ok(Taken::Cut))
}

fn is_end<T>(taken: &Result<Taken<T>>) -> bool {
    matches!(taken, Ok(Taken::End))
}

/// A maker of 0, 1, 2, …, each when it is told to.
fn copy_notes() -> (Sender<()>, impl FnMut() -> Option<Result<usize>> + Send + 'static) {
    let (tell, copy_notes): (_, Receiver<()>) = channel();
    let mut made = 0;
    let make = move || {
        copy_notes.recv().ok()?;
        made += 1;
        Some(Ok(made - 1))
    };
    (tell, make)
}

#[test]
fn a_patience_without_end_is_one() {
    let (tell, copy_notes) = copy_notes();
    let ahead = Prefetch::start(1, Stop::default(), copy_notes).unwrap();
    for (number, patience) in [Duration::MAX, Duration::from_secs(u64::MAX)].into_iter().enumerate() {
        std::thread::scope(|scope| {
            let taken = scope.spawn(|| item(ahead.take(patience)));
            std::thread::sleep(Duration::from_millis(20));
            tell.send(()).unwrap();
            assert_eq!(taken.join().unwrap(), number);
        });
    }
    // Its end waits for the thread, which waits to be told.
    drop(tell);
}

#[test]
fn things_come_in_order_then_the_end() {
    for ahead in [1, 2, 7] {
        let mut numbers = 0..100;
        let ahead = Prefetch::start(ahead, Stop::default(), move || numbers.next().map(Ok)).unwrap();
        for number in 0..100 {
            assert_eq!(item(ahead.take(LONG)), number);
        }
        assert!(is_end(&ahead.take(LONG)) && is_end(&ahead.take(LONG)));
    }
}

#[test]
fn no_more_than_asked_for_are_made_ahead() {
    let (thing, alive) = Counted::new();
    let (most, seen) = (Arc::new(AtomicUsize::new(0)), alive.clone());
    let record = most.clone();
    let make = move || {
        let made = thing.another();
        // One is the pattern that they are made of.
        record.fetch_max(seen.load(Ordering::SeqCst) - 1, Ordering::SeqCst);
        Some(Ok(made))
    };
    let ahead = Prefetch::start(3, Stop::default(), make).unwrap();
    for _ in 0..200 {
        drop(item(ahead.take(LONG)));
    }
    drop(ahead);
    // One more may be counted: taken, and not dropped yet when the thread counts.
    assert!((1..=4).contains(&most.load(Ordering::SeqCst)), "{most:?}");
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}

#[test]
fn an_error_comes_after_the_good_things_and_then_the_end() {
    let mut made = 0;
    let make = move || {
        made += 1;
        Some(if made <= 3 { Ok(made) } else { Err(Error::invalid("no fourth")) })
    };
    let ahead = Prefetch::start(8, Stop::default(), make).unwrap();
    for number in 1..=3 {
        assert_eq!(item(ahead.take(LONG)), number);
    }
    assert!(matches!(ahead.take(LONG), Ok(Taken::Failed(error)) if error.reason() == "no fourth"));
    assert!(is_cut(&ahead.take(LONG)));
}

#[test]
fn after_a_stop_nobody_is_told_of_a_failure() {
    let (fail, told) = channel::<()>();
    let make = move || {
        told.recv().ok()?;
        Some(Err::<usize, _>(Error::argument("late")))
    };
    let ahead = Prefetch::start(2, Stop::default(), make).unwrap();
    fail.send(()).unwrap();
    while !ahead.shared.lock().ended {
        std::thread::sleep(Duration::from_millis(1));
    }
    ahead.close();
    assert!(is_cut(&ahead.take(LONG)));
}

#[test]
fn a_panic_is_an_error() {
    let ahead = Prefetch::<()>::start(1, Stop::default(), || panic!("on {}", "purpose")).unwrap();
    assert!(matches!(ahead.take(LONG), Ok(Taken::Failed(error)) if error.reason().ends_with("on purpose")));
    assert!(is_cut(&ahead.take(LONG)));
}

#[test]
fn who_does_not_wait_is_told_that_there_is_nothing_yet() {
    let (tell, make) = copy_notes();
    let ahead = Prefetch::start(1, Stop::default(), make).unwrap();
    assert!(matches!(ahead.take(Duration::ZERO), Ok(Taken::NotYet)));
    assert!(matches!(ahead.take(Duration::from_millis(1)), Ok(Taken::NotYet)));
    tell.send(()).unwrap();
    assert_eq!(item(ahead.take(LONG)), 0);
    drop(tell);
}

#[test]
fn whatever_the_moment_the_end_leaves_nothing() {
    for taken in [0, 1, 5] {
        let (thing, alive) = Counted::new();
        let ahead = Prefetch::start(2, Stop::default(), move || Some(Ok(thing.another()))).unwrap();
        for _ in 0..taken {
            item(ahead.take(LONG));
        }
        if taken == 1 {
            ahead.close();
            assert_eq!(alive.load(Ordering::SeqCst), 0);
            assert!(is_cut(&ahead.take(LONG)));
        }
        drop(ahead);
        assert_eq!(alive.load(Ordering::SeqCst), 0, "after {taken}");
    }
}

#[test]
fn stopping_waits_as_long_as_it_is_told() {
    let (tell, mut make) = copy_notes();
    let (enter, entered) = channel();
    let make = move || {
        enter.send(()).unwrap();
        make()
    };
    let ahead = Prefetch::start(1, Stop::default(), make).unwrap();
    entered.recv().unwrap();
    assert!(!ahead.stop(Duration::from_millis(1)));
    drop(tell);
    assert!(ahead.stop(LONG));
    assert!(is_cut(&ahead.take(LONG)));
}

#[test]
fn a_thread_that_drops_or_asks_itself_does_not_wait() {
    let (give, given) = channel::<Arc<Prefetch<bool>>>();
    let make = move || {
        let own = given.recv().ok()?;
        let refused = own.take(LONG).is_err();
        own.close();
        Some(Ok(refused))
    };
    let ahead = Arc::new(Prefetch::start(1, Stop::default(), make).unwrap());
    give.send(ahead.clone()).unwrap();
    assert!(ahead.stop(LONG));
}

#[test]
fn threads_of_loaders_take_from_each_other_and_leave_each_other_to_be_waited_for() {
    let inner = Prefetch::start(2, Stop::default(), || Some(Ok(7))).unwrap();
    let shared = Arc::downgrade(&inner.shared);
    let mut inner = Some(inner);
    let outer = Prefetch::start(1, Stop::default(), move || Some(Ok(item(inner.take()?.take(LONG))))).unwrap();
    assert_eq!(item(outer.take(LONG)), 7);
    assert!(is_end(&outer.take(LONG)));
    drop(outer);
    while !join_left(LONG) {}
    assert_eq!(shared.strong_count(), 0);
}

#[test]
fn everyone_who_waits_hears_of_the_end() {
    let (tell, make) = copy_notes();
    let ahead = Prefetch::start(1, Stop::default(), make).unwrap();
    std::thread::scope(|scope| {
        let takers: Vec<_> = (0..4).map(|_| scope.spawn(|| matches!(ahead.take(LONG), Ok(Taken::End)))).collect();
        drop(tell);
        assert!(takers.into_iter().all(|taker| taker.join().unwrap()));
    });
}

#[test]
fn what_is_abandoned_is_not_waited_for() {
    let (tell, mut make) = copy_notes();
    let (enter, entered) = channel();
    let make = move || {
        enter.send(()).unwrap();
        make()
    };
    let ahead = Prefetch::start(1, Stop::default(), make).unwrap();
    entered.recv().unwrap();
    ahead.abandon();
    let shared = Arc::downgrade(&ahead.shared);
    drop(ahead);
    drop(tell);
    while shared.strong_count() > 0 {
        std::thread::yield_now();
    }
}

/// As Arrow data of a producer that is written in Python: to drop it takes a lock, whose holder may wait for ours.
struct Late {
    shared: std::sync::Weak<PrefetchQueue<Late>>,
    next: Option<Box<Late>>,
    locked_out: Arc<AtomicUsize>,
}

impl Drop for Late {
    fn drop(&mut self) {
        let Some(shared) = self.shared.upgrade() else { return };
        if shared.state.try_lock().is_err() {
            self.locked_out.fetch_add(1, Ordering::SeqCst);
        }
        // As the thread does with an item that it was making.
        if let Some(next) = self.next.take() {
            shared.push(*next);
        }
    }
}

#[test]
fn a_stop_locks_nobody_out_while_it_drops_items() {
    let (send, items) = channel();
    let ahead = Prefetch::start(2, Stop::default(), move || items.recv().ok().map(Ok)).unwrap();
    let locked_out = Arc::new(AtomicUsize::new(0));
    let late = |next| Late { shared: Arc::downgrade(&ahead.shared), next, locked_out: locked_out.clone() };
    send.send(late(Some(Box::new(late(None))))).unwrap();
    while ahead.shared.lock().ready.is_empty() {
        std::thread::yield_now();
    }
    assert!(!ahead.stop(Duration::ZERO), "the thread still waits for items");
    assert_eq!(locked_out.load(Ordering::SeqCst), 0);
    assert!(ahead.shared.lock().ready.is_empty());
    drop(send);
    ahead.close();
}

#[test]
fn nothing_is_taken_that_was_made_after_dropped_items() {
    let (tell, make) = copy_notes();
    let ahead = Prefetch::start(2, Stop::default(), make).unwrap();
    tell.send(()).unwrap();
    while ahead.shared.lock().ready.is_empty() {
        std::thread::yield_now();
    }
    ahead.stop(Duration::ZERO);
    // As the thread does that had made it when it was told to stop.
    ahead.shared.push(1);
    let taken = ahead.take(Duration::ZERO);
    drop(tell);
    assert!(!matches!(taken, Ok(Taken::Item(_))));
    assert!(is_cut(&ahead.take(LONG)));
}
