//! What only this driver answers about its virtual clock: more of the functions `simulated_cuda_*`.

#![allow(unreachable_pub, reason = "found by symbol, not by path")]

use crate::call::ask;
use crate::execute::Action;

/// What the virtual clock says, in nanoseconds; `u64::MAX` under a schedule without one.
#[unsafe(no_mangle)]
pub extern "C" fn simulated_cuda_virtual_time() -> u64 {
    ask(|call| if call.has_clock() { call.time.now } else { u64::MAX })
}

/// This thread sleeps for so many nanoseconds of the virtual clock. The answer is 0 under a schedule without one, at once.
#[unsafe(no_mangle)]
pub extern "C" fn simulated_cuda_sleep(nanoseconds: u64) -> i32 {
    ask(|call| {
        let has_clock = call.has_clock();
        if has_clock {
            call.take_time("sleep", nanoseconds);
        }
        i32::from(has_clock)
    })
}

/// This thread has copied so many bytes from memory to memory, for which the virtual clock takes its time now.
#[unsafe(no_mangle)]
pub extern "C" fn simulated_cuda_host_copied(bytes: u64) {
    ask(|call| {
        if call.has_clock() {
            let duration = call.settings.machine.host_copy(bytes);
            call.take_time("host copy", duration);
        }
    });
}

/// Queues work that keeps the kernels of a stream's device busy for so many nanoseconds of the virtual clock, or, under a schedule without
/// one, until a thread waits for what is behind it: queries then say "not ready" for as long. The answer is 0 if there is no such stream.
#[unsafe(no_mangle)]
pub extern "C" fn simulated_cuda_busy(stream: usize, nanoseconds: u64) -> i32 {
    ask(|call| {
        let thread = call.thread;
        let queued =
            call.stream(stream).and_then(|stream| call.submit(thread, stream, Action::Busy(nanoseconds), None));
        i32::from(queued.is_ok())
    })
}

/// How often the clock moved on although a thread computed: then a figure of virtual time is none.
#[unsafe(no_mangle)]
pub extern "C" fn simulated_cuda_forced_moves() -> u64 {
    ask(|call| call.time.forced)
}

/// What lasted so far, as text: its length, and as much of it as there is room for. A line has the start, the end and the bytes of an
/// operation, a wait, a sleep or a long call, what it is, and on which stream or thread, between tabs.
///
/// # Safety
///
/// `buffer` has room for `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn simulated_cuda_timeline(buffer: *mut u8, room: usize) -> usize {
    let text = ask(|call| call.timeline());
    let count = text.len().min(room);
    if count > 0 {
        // SAFETY: as the caller says.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), buffer, count) };
    }
    text.len()
}
