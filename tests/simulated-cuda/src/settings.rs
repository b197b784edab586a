//! The switches: environment variables, read when the driver is first called.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use crate::costs::{MACHINES, Machine};
use crate::inject::Failure;

/// When queued work runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Schedule {
    /// Not before something ordered after it asks for it.
    Lazy,
    /// At once.
    Eager,
    /// At random points that the order allows.
    Random(u64),
    /// At once, and it is done when the virtual clock says so.
    Clock,
}

impl Schedule {
    /// Whether work runs as soon as nothing is in its way.
    pub(crate) fn is_eager(self) -> bool {
        matches!(self, Schedule::Eager | Schedule::Clock)
    }
}

/// When the source of an asynchronous copy out of pageable memory is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pageable {
    Immediate,
    Deferred,
    /// As the schedule: at once, when the copy runs, or either.
    Scheduled,
}

/// Everything that can be set from outside.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) schedule: Schedule,
    /// Whose costs the virtual clock goes by.
    pub(crate) machine: &'static Machine,
    pub(crate) pageable: Pageable,
    pub(crate) devices: usize,
    /// The bytes that each device has.
    pub(crate) memory: u64,
    /// Whether a block that was freed on a stream is given out again at once on that stream, and handles too.
    pub(crate) reuse: bool,
    pub(crate) pools: bool,
    pub(crate) concurrent_managed: bool,
    /// The compute capability of every device: major, minor.
    pub(crate) capability: (u32, u32),
    pub(crate) failures: Vec<Failure>,
    pub(crate) log: Option<PathBuf>,
    pub(crate) report_at_exit: bool,
}

impl Settings {
    /// Reads the environment. A switch that is not understood stops the process: ignored, it would make a test prove nothing.
    pub(crate) fn read() -> Settings {
        let schedule = parsed("SCHEDULE", Schedule::Lazy, |text| match text.split_once(':') {
            None if text == "lazy" => Some(Schedule::Lazy),
            None if text == "eager" => Some(Schedule::Eager),
            None if text == "clock" => Some(Schedule::Clock),
            Some(("random", seed)) => seed.parse().ok().map(Schedule::Random),
            _ => None,
        });
        let pageable = parsed("PAGEABLE", Pageable::Scheduled, |text| match text {
            "immediate" => Some(Pageable::Immediate),
            "deferred" => Some(Pageable::Deferred),
            _ => None,
        });
        Settings {
            schedule,
            machine: parsed("MACHINE", &MACHINES[0], |text| MACHINES.iter().find(|machine| machine.name == text)),
            pageable,
            devices: parsed("DEVICES", 2, |text| text.parse().ok().filter(|count| *count <= 64)),
            memory: parsed("MEMORY", 1 << 30, |text| text.parse().ok()),
            reuse: parsed("REUSE", false, flag),
            pools: !parsed("NO_POOLS", false, flag),
            concurrent_managed: !parsed("NO_CONCURRENT_MANAGED", false, flag),
            capability: parsed("COMPUTE_CAPABILITY", (9, 0), |text| {
                let (major, minor) = text.split_once('.')?;
                Some((major.parse().ok()?, minor.parse().ok()?))
            }),
            failures: parsed("FAIL", Vec::new(), |text| text.split(',').map(Failure::parse).collect()),
            log: variable("LOG").map(PathBuf::from),
            report_at_exit: parsed("REPORT_AT_EXIT", false, flag),
        }
    }
}

/// How long a call of any thread but the first waits before it begins and before it returns, at most. It is asked for without the lock.
pub(crate) fn slow_threads() -> Duration {
    static MICROSECONDS: OnceLock<u64> = OnceLock::new();
    Duration::from_micros(*MICROSECONDS.get_or_init(|| parsed("SLOW_THREADS", 0, |text| text.parse().ok())))
}

/// The bytes that are watched together: `system`, the bytes of a page, or as many as a page of another system has.
pub(crate) fn page_bytes(system: u64) -> u64 {
    parsed("PAGE", system, |text| text.parse().ok().filter(|bytes: &u64| bytes.is_power_of_two() && *bytes >= system))
}

fn flag(text: &str) -> Option<bool> {
    match text {
        "1" => Some(true),
        "0" => Some(false),
        _ => None,
    }
}

fn variable(name: &str) -> Option<OsString> {
    env::var_os(format!("SIMULATED_CUDA_{name}")).filter(|value| !value.is_empty())
}

fn parsed<T>(name: &str, default: T, parse: impl Fn(&str) -> Option<T>) -> T {
    let Some(value) = variable(name) else { return default };
    match value.to_str().and_then(parse) {
        Some(value) => value,
        None => {
            eprintln!("simulated CUDA: SIMULATED_CUDA_{name}={} is not understood", value.display());
            std::process::abort();
        }
    }
}
