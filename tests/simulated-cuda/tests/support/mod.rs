//! Runs each program in a process of its own, under every schedule, right and with its fault; and a few short words for the driver.

#![allow(dead_code, unused_imports, unused_macros, reason = "no test file uses all of it")]
#![allow(unsafe_code, reason = "calls a C library")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "a test fails by a panic, and its numbers are small"
)]

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use std::{env, fs, ptr};

use cudarc::driver::sys;
use simulated_cuda::api::Simulator;

/// Orders in which a program has to hold.
pub(crate) const SCHEDULES: &[&str] =
    &["lazy", "eager", "random:1", "random:2", "random:3", "random:4", "random:5", "clock"];
/// The exit status of a process with something to report.
const FOUND: i32 = 86;
/// A child that hangs is ended after this long, and has failed.
const PATIENCE: Duration = Duration::from_secs(60);
/// Names the program that a child runs, and whether with its fault.
const CHILD: &str = "SIMULATED_CUDA_TEST";

/// One run of a program, in its own process.
pub(crate) struct Run {
    /// Whether one wait, or whatever it is, is left out.
    pub(crate) fault: bool,
    pub(crate) simulator: Simulator,
}

/// A program that is right, and is found out once its fault is in it: under every schedule a report contains `expected`.
pub(crate) fn proves(name: &str, expected: &str, program: impl Fn(&Run)) {
    with(name, &[], &[(false, None), (true, Some(expected))], program);
}

/// A program that makes its own assertions, and leaves nothing to report.
pub(crate) fn holds(name: &str, switches: &[(&str, &str)], program: impl Fn(&Run)) {
    with(name, switches, &[(false, None)], program);
}

/// Runs the program as the child that it is, or starts a child for each schedule and each of `cases`: fault or not, and its report.
pub(crate) fn with(name: &str, switches: &[(&str, &str)], cases: &[(bool, Option<&str>)], program: impl Fn(&Run)) {
    under(SCHEDULES, name, switches, cases, program);
}

/// A program that makes its own assertions on the virtual clock, and leaves nothing to report.
pub(crate) fn on_clock(name: &str, program: impl Fn(&Run)) {
    under(&["clock"], name, &[], &[(false, None)], program);
}

/// As [`proves`], on the virtual clock alone.
pub(crate) fn proves_on_clock(name: &str, expected: &str, program: impl Fn(&Run)) {
    under(&["clock"], name, &[], &[(false, None), (true, Some(expected))], program);
}

fn under(
    schedules: &[&str],
    name: &str,
    switches: &[(&str, &str)],
    cases: &[(bool, Option<&str>)],
    program: impl Fn(&Run),
) {
    if let Ok(child) = env::var(CHILD) {
        let fault = child == format!("{name} with its fault");
        assert!(fault || child == name, "{child} is another program");
        return program(&Run { fault, simulator: Simulator::load() });
    }
    for schedule in schedules {
        for (fault, expected) in cases {
            let child = if *fault { format!("{name} with its fault") } else { name.to_owned() };
            let (status, log, output) = start(name, &child, schedule, switches);
            let case = format!("{child}, {schedule}: status {status:?}\nlog:\n{log}\n{output}");
            // A report ends the process with a status of its own, whatever its assertions said.
            assert!(!output.contains("panicked"), "{case}");
            match expected {
                None => assert!(status == Some(0) && !reports(&log), "{case}"),
                Some(text) => assert!(status == Some(FOUND) && log.contains(text), "no `{text}` in {case}"),
            }
        }
    }
}

/// Runs a program under each schedule, right and with its fault: the schedule, whether it was with the fault, and the log.
pub(crate) fn logged(name: &str, program: impl Fn(&Run)) -> Vec<(String, bool, String)> {
    if let Ok(child) = env::var(CHILD) {
        program(&Run { fault: child != name, simulator: Simulator::load() });
        return Vec::new();
    }
    let mut logs = Vec::new();
    for schedule in SCHEDULES {
        for child in [name.to_owned(), format!("{name} with its fault")] {
            let (status, log, output) = start(name, &child, schedule, &[]);
            assert!(status.is_some_and(|status| status != 101), "{child}, {schedule}: {log}{output}");
            logs.push(((*schedule).to_owned(), child != name, log));
        }
    }
    logs
}

/// A program that a signal ends.
pub(crate) fn killed(name: &str, signal: i32, program: impl Fn()) {
    use std::os::unix::process::ExitStatusExt;
    if env::var(CHILD).is_ok() {
        return program();
    }
    let status = Command::new(env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env("LD_LIBRARY_PATH", library_folder())
        .env(CHILD, name)
        .stderr(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    assert_eq!(status.signal(), Some(signal), "{status}");
}

fn reports(log: &str) -> bool {
    log.lines().any(|line| ["race", "use after", "fault", "out of"].iter().any(|start| line.starts_with(start)))
}

fn start(name: &str, child: &str, schedule: &str, switches: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.log", std::process::id()));
    let _ = fs::remove_file(&log);
    let mut variables: BTreeMap<String, String> = [("SCHEDULE", schedule), ("REPORT_AT_EXIT", "1")]
        .iter()
        .chain(switches)
        .map(|(name, value)| (format!("SIMULATED_CUDA_{name}"), (*value).to_owned()))
        .collect();
    variables.insert("SIMULATED_CUDA_LOG".into(), log.display().to_string());
    variables.insert("LD_LIBRARY_PATH".into(), library_folder().display().to_string());
    variables.insert(CHILD.into(), child.into());
    let out = log.with_extension("out");
    let file = fs::File::create(&out).unwrap();
    let mut process = Command::new(env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .envs(variables)
        .stdout(file.try_clone().unwrap())
        .stderr(file)
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = process.try_wait().unwrap() {
            break status.code();
        }
        if begun.elapsed() > PATIENCE {
            process.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let text = fs::read_to_string(&out).unwrap_or_default();
    let _ = fs::remove_file(&out);
    assert!(!text.contains("running 0 tests"), "{name} is not the name of a test");
    let lines = fs::read_to_string(&log).unwrap_or_default();
    let _ = fs::remove_file(&log);
    (status, lines, text)
}

/// A folder with the library that cargo built beside this test, under the names of the driver.
pub(crate) fn library_folder() -> &'static Path {
    // Once in each process: its tests run side by side, and give the same name to what they rename.
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(link_library)
}

fn link_library() -> PathBuf {
    let test = env::current_exe().unwrap();
    let library = test.with_file_name("libsimulated_cuda.so");
    assert!(library.exists(), "{} was not built", library.display());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libraries");
    fs::create_dir_all(&folder).unwrap();
    for name in ["libcuda.so", "libcuda.so.1"] {
        let link = folder.join(name);
        if fs::read_link(&link).ok().as_ref() != Some(&library) {
            let own = folder.join(format!("{name}-{}", std::process::id()));
            std::os::unix::fs::symlink(&library, &own).unwrap();
            fs::rename(own, link).unwrap();
        }
    }
    folder
}

/// Calls the driver.
macro_rules! call {
    ($name:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: every pointer among the arguments is of memory that the test keeps, or is one that the driver has to refuse.
        unsafe { cudarc::driver::sys::$name($($argument),*) }
    };
}
pub(crate) use call;

/// Calls the driver, and asserts that it succeeds.
macro_rules! ok {
    ($name:ident($($argument:expr),* $(,)?)) => {
        assert_eq!(support::call!($name($($argument),*)), cudarc::driver::sys::CUresult::CUDA_SUCCESS)
    };
}
pub(crate) use ok;

/// Calls the driver, and asserts that it answers with an error.
macro_rules! refused {
    ($error:ident, $name:ident($($argument:expr),* $(,)?)) => {
        assert_eq!(support::call!($name($($argument),*)), cudarc::driver::sys::CUresult::$error)
    };
}
pub(crate) use refused;

// The macros name this module as test files do.
use crate::support;

/// Initialises the driver, and makes the primary context of a device current.
pub(crate) fn open(device: i32) -> sys::CUcontext {
    let mut context = ptr::null_mut();
    ok!(cuInit(0));
    ok!(cuDevicePrimaryCtxRetain(&mut context, device));
    ok!(cuCtxSetCurrent(context));
    context
}

/// Makes a context current in this thread, which another thread opened.
pub(crate) fn enter(context: usize) {
    ok!(cuCtxSetCurrent(context as sys::CUcontext));
}

/// A stream of the current context.
pub(crate) fn stream(blocking: bool) -> sys::CUstream {
    let mut stream = ptr::null_mut();
    ok!(cuStreamCreate(&mut stream, u32::from(!blocking)));
    stream
}

/// An event of the current context.
pub(crate) fn event() -> sys::CUevent {
    let mut event = ptr::null_mut();
    ok!(cuEventCreate(&mut event, 2));
    event
}

/// Device memory.
pub(crate) fn device(bytes: usize) -> u64 {
    let mut pointer = 0;
    ok!(cuMemAlloc_v2(&mut pointer, bytes));
    pointer
}

/// Device memory, in the order of a stream.
pub(crate) fn device_in(stream: sys::CUstream, bytes: usize) -> u64 {
    let mut pointer = 0;
    ok!(cuMemAllocAsync(&mut pointer, bytes, stream));
    pointer
}

/// Page-locked host memory.
pub(crate) fn pinned(bytes: usize) -> *mut u8 {
    let mut pointer: *mut c_void = ptr::null_mut();
    ok!(cuMemHostAlloc(&mut pointer, bytes, 0));
    pointer.cast()
}

/// Queues a fill with a byte.
pub(crate) fn fill(address: u64, value: u8, bytes: usize, stream: sys::CUstream) {
    ok!(cuMemsetD8Async(address, value, bytes, stream));
}

/// Queues a copy between any two addresses.
pub(crate) fn copy(to: u64, from: u64, bytes: usize, stream: sys::CUstream) {
    ok!(cuMemcpyAsync(to, from, bytes, stream));
}

/// Has `second` wait for all that is queued on `first`.
pub(crate) fn wait(second: sys::CUstream, first: sys::CUstream) {
    let event = event();
    ok!(cuEventRecord(event, first));
    ok!(cuStreamWaitEvent(second, event, 0));
    ok!(cuEventDestroy_v2(event));
}

/// Waits on the host for a stream.
pub(crate) fn finish(stream: sys::CUstream) {
    ok!(cuStreamSynchronize(stream));
}

/// Reads host memory as a program would: at once, where it is.
pub(crate) fn read(pointer: *const u8) -> u8 {
    // SAFETY: a byte that the test allocated.
    unsafe { pointer.read_volatile() }
}

/// Writes host memory as a program would.
pub(crate) fn write(pointer: *mut u8, value: u8) {
    // SAFETY: a byte that the test allocated.
    unsafe { pointer.write_volatile(value) };
}
