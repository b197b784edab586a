//! What was found: races and faults, waits of the host, and what is still alive.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::block::{Life, Origin, Place};
use crate::call::Call;
use crate::capture::Mode;
use crate::state::State;

/// The exit status of a process that had something to report.
const FOUND: i32 = 86;

/// What was found so far.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    pub(crate) texts: Vec<String>,
    pub(crate) explicit_waits: u64,
    pub(crate) implicit_waits: u64,
    /// How often each kernel was launched, by name.
    pub(crate) launches: BTreeMap<String, u64>,
    log: Option<PathBuf>,
}

impl Reports {
    pub(crate) fn new(log: Option<PathBuf>) -> Reports {
        Reports { log, ..Reports::default() }
    }

    /// Adds a line to the log, where one is kept. One write, so that processes do not mix their lines.
    fn line(&self, text: &str) {
        let Some(path) = &self.log else { return };
        let file = OpenOptions::new().create(true).append(true).open(path);
        if file.and_then(|mut file| file.write_all(format!("{text}\n").as_bytes())).is_err() {
            eprintln!("simulated CUDA: {} cannot be written", path.display());
            std::process::abort();
        }
    }
}

/// The kinds of objects that are counted, and whether one that is left at exit is a leak. Primary contexts are meant to stay.
pub(crate) const KINDS: &[(&str, bool)] = &[
    ("device", true),
    ("pinned", true),
    ("managed", true),
    ("registered", true),
    ("reservations", true),
    ("physical", true),
    ("imported", true),
    ("streams", true),
    ("events", true),
    ("contexts", true),
    ("primary contexts", false),
    ("pools", true),
    ("modules", true),
    ("graphs", true),
    ("captures", true),
];

impl State {
    /// Reports what a program must not do.
    pub(crate) fn report(&mut self, text: String) {
        self.reports.line(&text);
        self.reports.texts.push(text);
    }

    /// How many objects of a kind are alive.
    pub(crate) fn live(&self, kind: &str) -> Option<u64> {
        let blocks = |place: Place| {
            let live = |block: &&crate::block::Block| block.place == place && !block.freeing && !block.is_nobodys();
            self.memory.iter().filter(live).filter(|block| matches!(block.origin, Origin::Driver)).count()
        };
        let of_origin = |is_it: fn(&Origin) -> bool| {
            self.memory.iter().filter(|block| block.life != Life::Freed && is_it(&block.origin)).count()
        };
        let contexts = |primary: bool| {
            let of_kind = self.contexts.values().filter(move |context| context.primary == primary);
            of_kind.map(|context| context.retained as usize).sum()
        };
        let count: usize = match kind {
            "device" => blocks(Place::Device),
            "pinned" => blocks(Place::Pinned),
            "managed" => blocks(Place::Managed),
            "registered" => blocks(Place::Registered),
            "reservations" => of_origin(|origin| matches!(origin, Origin::Reserved(_))),
            "imported" => of_origin(|origin| matches!(origin, Origin::Imported { .. })),
            "physical" => self.live_physical(),
            "streams" => self.stream_handles.len(),
            "events" => self.events.len(),
            "contexts" => contexts(false),
            "primary contexts" => contexts(true),
            "pools" => self.pools.values().filter(|pool| !pool.is_default && !pool.destroyed).count(),
            "modules" => self.modules.len(),
            "cubins" => self.modules.values().filter(|module| module.is_cubin).count(),
            "graphs" => self.graphs.len() + self.executables.len(),
            "captures" => self.streams.iter().filter(|stream| stream.capture.is_some()).count(),
            _ => return None,
        };
        Some(count as u64)
    }

    /// All that was found and counted, as text.
    pub(crate) fn summary(&self) -> String {
        let mut text = self.reports.texts.join("\n");
        if !text.is_empty() {
            text.push('\n');
        }
        for (kind, _) in KINDS {
            text.push_str(&format!("live: {kind} {}\n", self.live(kind).unwrap_or_default()));
        }
        let (explicit, implicit) = (self.reports.explicit_waits, self.reports.implicit_waits);
        text.push_str(&format!("waits: explicit {explicit}, implicit {implicit}\n"));
        let modes = self.threads.iter().filter(|thread| thread.capture_mode != Mode::Global).count();
        let contexts: usize = self.threads.iter().map(|thread| thread.contexts.len()).sum();
        for (kernel, count) in &self.reports.launches {
            text.push_str(&format!("launched: {kernel} {count}\n"));
        }
        text.push_str(&format!("left in threads: contexts {contexts}, capture modes {modes}\n"));
        text
    }
}

impl Call {
    /// The host waits because the program asked it to.
    pub(crate) fn count_explicit_wait(&mut self) {
        self.reports.explicit_waits += 1;
        self.reports.line(&format!("wait: explicit {}", self.name));
    }

    /// The host waits, or may, because of what the call is.
    pub(crate) fn count_implicit_wait(&mut self) {
        self.reports.implicit_waits += 1;
        self.reports.line(&format!("wait: implicit {}", self.name));
    }

    /// Arranges for the end of the driver when the process exits, and for the report before it.
    pub(crate) fn report_at_exit(&mut self) {
        static ARRANGED: AtomicBool = AtomicBool::new(false);
        if !ARRANGED.swap(true, Ordering::Relaxed) {
            // SAFETY: a function without arguments, in a library that stays loaded.
            let failed = unsafe { libc::atexit(at_exit) };
            assert_eq!(failed, 0, "the report at exit is arranged");
        }
    }
}

/// Runs what is still queued, so that it is checked, reports, and fails the process where something was found.
extern "C" fn at_exit() {
    if crate::call::is_fork() {
        return;
    }
    let found = crate::call::ask(|call| {
        if !call.settings.report_at_exit {
            return false;
        }
        call.run_without_host_functions();
        for (kind, leak) in KINDS {
            let count = call.live(kind).unwrap_or_default();
            if *leak && count > 0 {
                call.reports.line(&format!("leak: {kind} {count}"));
                eprintln!("simulated CUDA: leak: {kind} {count}");
            }
        }
        for text in &call.reports.texts {
            eprintln!("simulated CUDA: {text}");
        }
        call.memory.open_all();
        !call.reports.texts.is_empty()
    });
    crate::call::close();
    if found {
        // SAFETY: flushes what the process wrote, as its exit would have.
        unsafe { libc::fflush(std::ptr::null_mut()) };
        // SAFETY: ends the process. What else was to run at exit does not: a report must not be lost behind it.
        unsafe { libc::_exit(FOUND) };
    }
}
