//! Streams and events: what orders work, and that nothing else does.

#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "calls a C library")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "a test fails by a panic, and its numbers are small"
)]

mod support;

use std::ptr::null_mut;
use std::sync::Barrier;

use cudarc::driver::sys::{self, CUstream};
use support::{copy, device, enter, event, fill, finish, holds, ok, open, pinned, proves, read, refused, stream, wait};

const BYTES: usize = 4096;
/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: CUstream = 2 as CUstream;

#[test]
fn event_wait_between_streams() {
    proves("event_wait_between_streams", "race: ", |run| {
        open(0);
        let (first, second, data, back) = (stream(false), stream(false), device(BYTES), pinned(BYTES));
        fill(data, 7, BYTES, first);
        if !run.fault {
            wait(second, first);
        }
        copy(back as u64, data, BYTES, second);
        finish(second);
        assert!(run.fault || read(back.wrapping_add(BYTES - 1)) == 7);
    });
}

#[test]
fn a_device_is_busy_until_a_thread_waits() {
    holds("a_device_is_busy_until_a_thread_waits", &[], |run| {
        open(0);
        let (busy, beside, data, back) = (stream(false), stream(false), device(BYTES), pinned(BYTES));
        run.simulator.busy(busy as usize, 1_000_000_000);
        fill(data, 7, BYTES, busy);
        copy(back as u64, data, BYTES, busy);
        // Waiting for another stream, or asking, ends nothing.
        finish(beside);
        let done = |stream| support::call!(cuStreamQuery(stream));
        assert!((0..10).all(|_| done(busy) == sys::CUresult::CUDA_ERROR_NOT_READY));
        finish(busy);
        assert_eq!((done(busy), read(back)), (sys::CUresult::CUDA_SUCCESS, 7));
        // Somebody who asks again and again waits, too.
        run.simulator.busy(busy as usize, 1);
        assert!((0..1000).any(|_| done(busy) == sys::CUresult::CUDA_SUCCESS));
    });
}

#[test]
fn read_before_a_later_write() {
    proves("read_before_a_later_write", "race: ", |run| {
        open(0);
        let (reader, writer, data, back) = (stream(false), stream(false), device(BYTES), pinned(BYTES));
        fill(data, 7, BYTES, reader);
        wait(writer, reader);
        copy(back as u64, data, BYTES, reader);
        if !run.fault {
            wait(writer, reader);
        }
        fill(data, 8, BYTES, writer);
        finish(writer);
        finish(reader);
        assert!(run.fault || read(back) == 7);
    });
}

#[test]
fn a_chain_of_waits_over_devices() {
    proves("a_chain_of_waits_over_devices", "race: ", |run| {
        open(0);
        let (first, data, back) = (stream(false), device(BYTES), pinned(BYTES));
        fill(data, 7, BYTES, first);
        open(1);
        let middle = stream(false);
        wait_across(middle, first, 0);
        open(0);
        let last = stream(false);
        if !run.fault {
            wait_across(last, middle, 1);
        }
        copy(back as u64, data, BYTES, last);
        finish(last);
        assert!(run.fault || read(back) == 7);
    });
}

/// Has `second` wait for `first`, a stream of another device, and goes back to the device that is current.
fn wait_across(second: CUstream, first: CUstream, device: i32) {
    let mut current = null_mut();
    ok!(cuCtxGetCurrent(&mut current));
    open(device);
    let event = event();
    ok!(cuEventRecord(event, first));
    enter(current as usize);
    ok!(cuStreamWaitEvent(second, event, 0));
}

#[test]
fn a_wait_of_another_thread_orders_nothing_here() {
    proves("a_wait_of_another_thread_orders_nothing_here", "race: ", |run| {
        let context = open(0) as usize;
        let (first, second, data, back) = (stream(false), stream(false), device(BYTES), pinned(BYTES));
        fill(data, 7, BYTES, first);
        let (first, second, back) = (first as usize, second as usize, back as usize);
        // One waits before the other goes on, but nobody said that the other relies on it. The driver knows both from the start.
        let (known, waited) = (Barrier::new(2), Barrier::new(2));
        std::thread::scope(|threads| {
            threads.spawn(|| {
                enter(context);
                known.wait();
                finish(first as CUstream);
                run.simulator.hand_over_send(1);
                waited.wait();
            });
            threads.spawn(|| {
                enter(context);
                known.wait();
                waited.wait();
                if !run.fault {
                    run.simulator.hand_over_receive(1);
                }
                copy(back as u64, data, BYTES, second as CUstream);
                finish(second as CUstream);
                assert_eq!(read(back as *const u8), 7, "the wait hides the fault from the values");
            });
        });
    });
}

#[test]
fn the_legacy_stream_waits_for_blocking_streams_alone() {
    proves("the_legacy_stream_waits_for_blocking_streams_alone", "race: ", |run| {
        open(0);
        let (other, data, back) = (stream(!run.fault), device(BYTES), pinned(BYTES));
        fill(data, 7, BYTES, other);
        copy(back as u64, data, BYTES, null_mut());
        finish(null_mut());
        assert!(run.fault || read(back) == 7);
    });
}

#[test]
fn blocking_streams_wait_for_the_legacy_stream() {
    proves("blocking_streams_wait_for_the_legacy_stream", "race: ", |run| {
        open(0);
        let (other, data, back) = (stream(!run.fault), device(BYTES), pinned(BYTES));
        fill(data, 7, BYTES, null_mut());
        copy(back as u64, data, BYTES, other);
        finish(other);
        assert!(run.fault || read(back) == 7);
    });
}

#[test]
fn the_legacy_stream_is_one_for_each_device() {
    proves("the_legacy_stream_is_one_for_each_device", "race: ", |run| {
        open(0);
        let (other, data, back) = (stream(true), device(BYTES), pinned(BYTES));
        fill(data, 7, BYTES, other);
        if run.fault {
            open(1);
        }
        copy(back as u64, data, BYTES, null_mut());
        finish(null_mut());
        assert!(run.fault || read(back) == 7);
    });
}

#[test]
fn per_thread_streams_are_one_for_each_thread() {
    proves("per_thread_streams_are_one_for_each_thread", "race: ", |run| {
        let context = open(0) as usize;
        let (data, back) = (device(BYTES), pinned(BYTES) as usize);
        fill(data, 7, BYTES, PER_THREAD);
        if !run.fault {
            // The legacy stream waits for every thread's, and every thread's for it.
            fill(device(1), 0, 1, null_mut());
        }
        std::thread::scope(|threads| {
            threads.spawn(|| {
                enter(context);
                copy(back as u64, data, BYTES, PER_THREAD);
                finish(PER_THREAD);
                assert!(run.fault || read(back as *const u8) == 7);
            });
        });
    });
}

#[test]
fn a_wait_is_for_the_record_that_was_last_when_it_was_asked_for() {
    proves("a_wait_is_for_the_record_that_was_last_when_it_was_asked_for", "race: ", |run| {
        open(0);
        let (first, second, data, back) = (stream(false), stream(false), device(BYTES), pinned(BYTES));
        let reused = event();
        ok!(cuEventRecord(reused, first));
        if run.fault {
            ok!(cuStreamWaitEvent(second, reused, 0));
        }
        fill(data, 7, BYTES, first);
        ok!(cuEventRecord(reused, first));
        if !run.fault {
            ok!(cuStreamWaitEvent(second, reused, 0));
        }
        // Recorded elsewhere, it still stands for the first stream in the wait that was asked for.
        ok!(cuEventRecord(reused, stream(false)));
        copy(back as u64, data, BYTES, second);
        finish(second);
        assert!(run.fault || read(back) == 7);
    });
}

#[test]
fn an_event_outlives_its_stream_and_a_wait_its_event() {
    proves("an_event_outlives_its_stream_and_a_wait_its_event", "race: ", |run| {
        open(0);
        let (first, second, data, back) = (stream(false), stream(false), device(BYTES), pinned(BYTES));
        fill(data, 7, BYTES, first);
        let event = event();
        ok!(cuEventRecord(event, first));
        ok!(cuStreamDestroy_v2(first));
        if !run.fault {
            ok!(cuStreamWaitEvent(second, event, 0));
        }
        ok!(cuEventDestroy_v2(event));
        refused!(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(event));
        refused!(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(first));
        copy(back as u64, data, BYTES, second);
        finish(second);
        assert!(run.fault || read(back) == 7);
    });
}

#[test]
fn a_query_that_says_done_is_a_wait() {
    proves("a_query_that_says_done_is_a_wait", "race: ", |run| {
        open(0);
        let (first, data, back) = (stream(false), device(BYTES), pinned(BYTES));
        let event = event();
        fill(data, 7, BYTES, first);
        copy(back as u64, data, BYTES, first);
        ok!(cuEventRecord(event, first));
        while !run.fault && support::call!(cuEventQuery(event)) != sys::CUresult::CUDA_SUCCESS {}
        assert!(read(back) == 7 || run.fault);
    });
}

#[test]
fn nothing_passes_a_gate() {
    holds("nothing_passes_a_gate", &[], |run| {
        let context = open(0) as usize;
        let (first, second, data, back) = (stream(false), stream(false), device(BYTES), pinned(BYTES));
        let gate = run.simulator.gate(first as usize);
        fill(data, 7, BYTES, first);
        wait(second, first);
        copy(back as u64, data, BYTES, second);
        for _ in 0..20 {
            refused!(CUDA_ERROR_NOT_READY, cuStreamQuery(second));
        }
        run.simulator.run_all();
        refused!(CUDA_ERROR_NOT_READY, cuStreamQuery(first));
        let waiter = second as usize;
        std::thread::scope(|threads| {
            let waiting = threads.spawn(move || {
                enter(context);
                finish(waiter as CUstream);
            });
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!waiting.is_finished(), "the host waits for the gate");
            gate.open();
        });
        finish(second);
        assert_eq!(read(back), 7);
    });
}

#[test]
fn work_runs_when_the_schedule_says() {
    support::with("work_runs_when_the_schedule_says", &[], &[(false, None)], |run| {
        use std::ffi::c_void;
        use std::sync::atomic::{AtomicU32, Ordering};
        static RUN: AtomicU32 = AtomicU32::new(0);
        unsafe extern "C" fn count(_: *mut c_void) {
            RUN.fetch_add(1, Ordering::SeqCst);
            let mut devices = 0;
            refused!(CUDA_ERROR_NOT_PERMITTED, cuDeviceGetCount(&mut devices));
        }
        open(0);
        let first = stream(false);
        ok!(cuLaunchHostFunc(first, Some(count), null_mut()));
        match std::env::var("SIMULATED_CUDA_SCHEDULE").unwrap().as_str() {
            // Nothing asks for it.
            "lazy" => assert_eq!(RUN.load(Ordering::SeqCst), 0),
            // On a thread of its own, without any further call.
            "eager" => while RUN.load(Ordering::SeqCst) == 0 {},
            _ => {}
        }
        finish(first);
        assert_eq!(RUN.load(Ordering::SeqCst), 1);
        assert_eq!(run.simulator.host_waits(), 1);
    });
}
