//! Splits rows over threads that live for one conversion: without a pool, a fork loses nothing.

use std::any::Any;
use std::num::NonZero;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, ScopedJoinHandle, available_parallelism, scope};

use super::pack::Isa;
use crate::cuda::thread_sync;
use crate::error::{Error, Result};
use crate::stream_order::stay_apart;

/// A thread with fewer bytes to write takes longer to start than it saves.
const WORTH_A_THREAD: usize = if cfg!(miri) { 1 << 8 } else { 1 << 20 };

/// How many threads write `bytes`: as many as asked for, else as `ARROW_DLPACK_THREADS` says, else one a core; but none
/// for less than 1 MiB.
pub(crate) fn threads(asked: Option<usize>, bytes: usize) -> usize {
    let most = bytes / WORTH_A_THREAD;
    if most <= 1 {
        return 1;
    }
    let named = environment().as_ref().ok().copied().flatten().map(NonZero::get);
    asked.or(named).unwrap_or_else(cores).clamp(1, most)
}

/// Returns the number of cores that this process may run on.
fn cores() -> usize {
    /// 0 before they were asked for, which reads files. No lock: a fork would leave one locked that another thread holds.
    static CORES: AtomicUsize = AtomicUsize::new(0);
    match CORES.load(Ordering::Relaxed) {
        0 => {
            let cores = available_parallelism().map_or(1, NonZero::get);
            CORES.store(cores, Ordering::Relaxed);
            cores
        }
        cores => cores,
    }
}

/// Refuses environment variables that say nothing.
///
/// # Errors
/// When `ARROW_DLPACK_THREADS` is neither empty nor a positive number; as [`Isa::check_environment`].
pub(crate) fn check_environment() -> Result<()> {
    Isa::check_environment()?;
    environment().as_ref().map(drop).map_err(|value| {
        Error::argument(format!("ARROW_DLPACK_THREADS is {value:?}, not a number of threads"))
            .remedy_is("set it to 1 or more, or leave it out for one thread a core")
    })
}

/// The number in `ARROW_DLPACK_THREADS`, read once; the error is the variable's text.
fn environment() -> &'static Result<Option<NonZero<usize>>, String> {
    static NAMED: OnceLock<Result<Option<NonZero<usize>>, String>> = OnceLock::new();
    NAMED.get_or_init(|| count_of(&std::env::var_os("ARROW_DLPACK_THREADS").unwrap_or_default().to_string_lossy()))
}

fn count_of(text: &str) -> Result<Option<NonZero<usize>>, String> {
    match text.trim() {
        "" => Ok(None),
        number => number.parse().map(Some).map_err(|_| text.to_owned()),
    }
}

/// Runs `work` on ranges that make up `rows`, each but the last a multiple of `multiple`, on so many threads.
///
/// # Errors
/// The error of the first range that fails, whichever thread failed first.
pub(crate) fn for_each_part<E: From<Error> + Send>(
    threads: usize,
    rows: usize,
    multiple: usize,
    work: impl Fn(Range<usize>) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let multiple = multiple.max(1);
    let part = rows.div_ceil(threads.max(1)).div_ceil(multiple).saturating_mul(multiple);
    if threads <= 1 || part >= rows {
        return work(0..rows);
    }
    let work = &work;
    let token = std::ptr::from_ref(work).addr();
    // For the simulated CUDA driver: what this thread did happens before the others start, and what they did before this one goes on.
    thread_sync::send(token);
    let result = scope(|scope| {
        let start = |first: usize| {
            let rows = first..first.saturating_add(part).min(rows);
            let name = "arrow-dlpack".to_owned();
            match Builder::new().name(name).spawn_scoped(scope, {
                let rows = rows.clone();
                move || {
                    stay_apart();
                    thread_sync::receive(token);
                    let done = work(rows);
                    thread_sync::send(token);
                    done
                }
            }) {
                Ok(thread) => ThreadPart::Running(thread),
                // The system starts no more threads: this one does the work.
                Err(_) => ThreadPart::Left(rows),
            }
        };
        let parts: Vec<ThreadPart<'_, E>> = (part..rows).step_by(part).map(start).collect();
        let mut result = work(0..part);
        for part in parts {
            let found = match part {
                ThreadPart::Running(thread) => {
                    thread.join().unwrap_or_else(|panic| Err(panicked(panic.as_ref()).into()))
                }
                ThreadPart::Left(rows) => work(rows),
            };
            result = result.and(found);
        }
        result
    });
    thread_sync::receive(token);
    result
}

/// The rows of one thread.
enum ThreadPart<'scope, E> {
    Running(ScopedJoinHandle<'scope, Result<(), E>>),
    Left(Range<usize>),
}

fn panicked(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Error::unsupported(format!("a thread that converts rows stopped: {}", text.unwrap_or("no message")))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn every_row_is_in_one_part() {
        for (threads, rows, multiple) in
            [(1, 10, 3), (2, 0, 4), (3, 10, 1), (2, 10, 3), (7, 10, 4), (64, 5, 1), (2, 9, 0)]
        {
            let parts = Mutex::new(Vec::new());
            for_each_part::<Error>(threads, rows, multiple, |part| {
                parts.lock().unwrap().push(part);
                Ok(())
            })
            .unwrap();
            let mut parts = parts.into_inner().unwrap();
            parts.sort_by_key(|part| part.start);
            assert!(parts.len() <= threads, "{parts:?}");
            assert!(parts.iter().all(|part| part.start % multiple.max(1) == 0), "{parts:?}");
            let covered: Vec<usize> = parts.into_iter().flatten().collect();
            assert_eq!(covered, (0..rows).collect::<Vec<_>>(), "{threads} {rows} {multiple}");
        }
    }

    #[test]
    fn the_first_rows_error_wins_whenever_it_comes() {
        let failing = |late: usize| {
            for_each_part(4, 40, 1, |part| {
                if part.start == late {
                    std::thread::sleep(std::time::Duration::from_millis(30));
                }
                if part.start == 0 { Ok(()) } else { Err(Error::invalid("part").at_row(part.start)) }
            })
        };
        for late in [10, 30] {
            assert_eq!(failing(late).unwrap_err().row(), Some(10));
        }
    }

    #[test]
    fn a_panic_on_a_thread_is_an_error() {
        let result: Result<()> =
            for_each_part(2, 2, 1, |part| if part.start == 1 { panic!("on purpose") } else { Ok(()) });
        assert!(result.unwrap_err().reason().ends_with("on purpose"));
    }

    #[test]
    fn only_positive_numbers_are_counts() {
        assert_eq!((count_of(""), count_of(" 3 ")), (Ok(None), Ok(NonZero::new(3))));
        for text in ["0", "-1", "two", "1.5", "99999999999999999999"] {
            assert_eq!(count_of(text), Err(text.to_owned()));
        }
    }

    #[test]
    fn little_work_takes_one_thread() {
        assert_eq!((threads(None, WORTH_A_THREAD), threads(Some(8), WORTH_A_THREAD - 1)), (1, 1));
        assert_eq!(
            (threads(Some(8), 1 << 30), threads(Some(8), 3 * WORTH_A_THREAD), threads(Some(0), 1 << 30)),
            (8, 3, 1)
        );
        assert!(threads(None, 1 << 30) >= 1);
    }
}
