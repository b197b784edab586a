//! What only this driver answers: the functions `simulated_cuda_*`, for tests. A driver call that is missing them is a real driver's.

#![allow(unreachable_pub, reason = "found by symbol, not by path")]

use std::ffi::{CStr, c_char};

use crate::call::ask;
use crate::execute::Action;
use crate::kernel::{Kernel, KernelFunction};
use crate::race::{Access, Kind, only};
use crate::state::CHANGED;

/// What is asked here and how: raised when either changes.
pub(crate) const VERSION: u32 = 5;

/// # Safety
///
/// A C string.
unsafe fn text(pointer: *const c_char) -> String {
    // SAFETY: as the caller says.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}

/// The version of these functions.
#[unsafe(no_mangle)]
pub extern "C" fn simulated_cuda_version() -> u32 {
    VERSION
}

/// How many races, uses after free and faults were reported.
#[unsafe(no_mangle)]
pub extern "C" fn simulated_cuda_races() -> u64 {
    ask(|call| call.reports.texts.len() as u64)
}

/// How often the host waited, or may have: what asked for it, and what waits by itself.
#[unsafe(no_mangle)]
pub extern "C" fn simulated_cuda_host_waits() -> u64 {
    ask(|call| call.reports.explicit_waits + call.reports.implicit_waits)
}

/// How many objects of a kind are alive; `u64::MAX` for a kind that there is not.
///
/// # Safety
///
/// `kind` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn simulated_cuda_live(kind: *const c_char) -> u64 {
    // SAFETY: as the caller says.
    let kind = unsafe { text(kind) };
    ask(|call| call.live(&kind)).unwrap_or(u64::MAX)
}

/// All reports and counts as text: its length, and as much of it as there is room for.
///
/// # Safety
///
/// `buffer` has room for `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn simulated_cuda_report(buffer: *mut u8, room: usize) -> usize {
    let summary = ask(|call| call.summary());
    let count = summary.len().min(room);
    if count > 0 {
        // SAFETY: as the caller says.
        unsafe { std::ptr::copy_nonoverlapping(summary.as_ptr(), buffer, count) };
    }
    summary.len()
}

/// How often a function of the driver was called; `*` asks for all calls.
///
/// # Safety
///
/// `function` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn simulated_cuda_calls(function: *const c_char) -> u64 {
    // SAFETY: as the caller says.
    let function = unsafe { text(function) };
    ask(|call| call.injection.calls(&function))
}

/// How often this thread called functions of the driver.
#[unsafe(no_mangle)]
pub extern "C" fn simulated_cuda_thread_calls() -> u64 {
    crate::call::counted_calls()
}

/// Lets the `nth` call from now of a function fail with `code`.
///
/// # Safety
///
/// `function` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn simulated_cuda_fail(function: *const c_char, nth: u64, code: u32) {
    // SAFETY: as the caller says.
    let function = unsafe { text(function) };
    ask(|call| call.injection.add(&function, nth, false, code));
}

/// Lets the `nth` call from now of a function fail with `code`, and all after it.
///
/// # Safety
///
/// `function` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn simulated_cuda_fail_from(function: *const c_char, nth: u64, code: u32) {
    // SAFETY: as the caller says.
    let function = unsafe { text(function) };
    ask(|call| call.injection.add(&function, nth, true, code));
}

/// Lets the `nth` call from now of a function have its effect, and return `code` as that of an earlier asynchronous launch.
///
/// # Safety
///
/// `function` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn simulated_cuda_fail_late(function: *const c_char, nth: u64, code: u32) {
    // SAFETY: as the caller says.
    let function = unsafe { text(function) };
    ask(|call| call.injection.add_late(&function, nth, code));
}

/// Lets nothing fail any more that was told to.
#[unsafe(no_mangle)]
pub extern "C" fn simulated_cuda_fail_nothing() {
    ask(|call| call.injection.clear());
}

/// From now on calls of a function stay in the driver until another function is named, or NULL; a test's own calls do not.
///
/// # Safety
///
/// `function` is a C string, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn simulated_cuda_hold(function: *const c_char) {
    // SAFETY: as the caller says.
    let function = (!function.is_null()).then(|| unsafe { text(function) });
    crate::hold::hold(function);
}

/// How many calls of the function that is held are in the driver.
#[unsafe(no_mangle)]
pub extern "C" fn simulated_cuda_held() -> u64 {
    crate::hold::inside()
}

/// From now on the calls of this thread neither count nor are told to fail (1), or both (0): a test's own are between the
/// two.
#[unsafe(no_mangle)]
pub extern "C" fn simulated_cuda_exempt(exempt: i32) {
    crate::call::exempt(exempt != 0);
}

/// Queues a gate on a stream, which nothing passes until it is opened. The answer is its number; 0 if there is no such stream.
#[unsafe(no_mangle)]
pub extern "C" fn simulated_cuda_gate(stream: usize) -> u64 {
    ask(|call| {
        let gate = call.gates.len() as u64 + 1;
        call.gates.insert(gate, false);
        let thread = call.thread;
        let queued = call.stream(stream).and_then(|stream| call.submit(thread, stream, Action::Gate(gate), None));
        if queued.is_ok() { gate } else { 0 }
    })
}

/// Opens a gate.
#[unsafe(no_mangle)]
pub extern "C" fn simulated_cuda_open_gate(gate: u64) {
    ask(|call| {
        call.gates.insert(gate, true);
        if call.settings.schedule.is_eager() {
            call.run_all();
        }
    });
    CHANGED.notify_all();
}

/// Runs whatever can run, and moves the virtual clock on to its end. No thread learns of it.
#[unsafe(no_mangle)]
pub extern "C" fn simulated_cuda_run_all() {
    ask(|call| {
        call.run_all();
        call.advance_to_end();
    });
}

/// This thread hands what it knows over to whoever receives the token.
#[unsafe(no_mangle)]
pub extern "C" fn simulated_cuda_hand_over_send(token: u64) {
    ask(|call| {
        let thread = call.thread;
        let known = call.host_moment(thread).clock;
        call.hand_overs.entry(token).or_default().join(&known);
    });
}

/// This thread learns what every sender of the token knew.
#[unsafe(no_mangle)]
pub extern "C" fn simulated_cuda_hand_over_receive(token: u64) {
    ask(|call| {
        let thread = call.thread;
        if let Some(known) = call.hand_overs.get(&token).cloned() {
            call.learn(thread, &known);
        }
    });
}

/// Checks an access by this thread that no page shows: registered memory beside its whole pages, or a system call.
#[unsafe(no_mangle)]
pub extern "C" fn simulated_cuda_host_access(address: u64, bytes: u64, write: i32) {
    ask(|call| {
        let thread = call.thread;
        let at = call.host_moment(thread);
        let kind = if write == 0 { Kind::Read } else { Kind::Write };
        let ranges = only(address..address + bytes);
        call.log(Access { ranges, kind, at, what: "host access", by_host: true, done: true });
    });
}

/// Has a function stand for the kernel of this name, with parameters of these sizes.
///
/// # Safety
///
/// `name` is a C string, and `sizes` leads to `count` sizes. The function may be called until the process ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn simulated_cuda_register_kernel(
    name: *const c_char,
    function: KernelFunction,
    count: usize,
    sizes: *const usize,
) {
    // SAFETY: as the caller says.
    let name = unsafe { text(name) };
    // SAFETY: as the caller says.
    let parameters = unsafe { std::slice::from_raw_parts(sizes, count) }.to_vec();
    ask(|call| call.kernels.insert(name, Kernel { function, parameters }));
}

/// Forgets everything but the registered kernels, and reads the switches again. No other thread may be in the driver.
#[unsafe(no_mangle)]
pub extern "C" fn simulated_cuda_reset() {
    ask(|call| call.reset());
}
