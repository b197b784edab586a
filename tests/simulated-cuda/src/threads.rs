//! Do all other threads of this process wait? The system knows, whatever they wait for.

use std::fs;
use std::time::Duration;

/// The number by which the system knows this thread.
pub(crate) fn own() -> i32 {
    // SAFETY: has no arguments, and cannot fail.
    unsafe { libc::gettid() }
}

/// What the threads of this process have had of the processors, together.
pub(crate) fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a local that the system sets.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Whether every thread of this process sleeps but those of these numbers and the caller.
///
/// A thread that was just woken counts as one that runs, and so does one that waits for a disk.
pub(crate) fn all_sleep_but(known: &[i32]) -> bool {
    let own = own();
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return false };
    let numbers = threads.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    numbers.filter(|number| *number != own && !known.contains(number)).all(sleeps)
}

/// Whether a thread sleeps, or is gone.
fn sleeps(number: i32) -> bool {
    let Ok(text) = fs::read_to_string(format!("/proc/self/task/{number}/stat")) else { return true };
    // The name before it is in brackets, and may have any character.
    let state = text.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    !matches!(state, Some('R' | 'D') | None)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_thread_that_computes_does_not_sleep_and_one_that_waits_does() {
        let (sender, receiver) = mpsc::channel::<()>();
        static STOP: AtomicBool = AtomicBool::new(false);
        static NUMBERS: [AtomicI32; 2] = [const { AtomicI32::new(0) }; 2];
        let waiting = std::thread::spawn(move || {
            NUMBERS[0].store(own(), Ordering::Relaxed);
            receiver.recv()
        });
        let computing = std::thread::spawn(|| {
            NUMBERS[1].store(own(), Ordering::Relaxed);
            while !STOP.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        while NUMBERS.iter().any(|number| number.load(Ordering::Relaxed) == 0) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let [waiter, computer] = [0, 1].map(|index: usize| NUMBERS[index].load(Ordering::Relaxed));
        while !sleeps(waiter) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!sleeps(computer) && !all_sleep_but(&[]));
        STOP.store(true, Ordering::Relaxed);
        computing.join().unwrap();
        // A thread that was joined is still on its way out for a moment.
        while !sleeps(computer) {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(sender);
        waiting.join().unwrap().unwrap_err();
    }
}
