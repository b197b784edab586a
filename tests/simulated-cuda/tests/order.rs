//! Streams and events: what orders work, and that nothing else does.

#![allow(unsafe_code, reason = "calls a C library")]

mod support;

use cudarc::driver::sys;
use support::{copy, device, enter, fill, finish, open, pinned, proves, read, stream, wait};

const BYTES: usize = 4096;

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
fn a_wait_of_another_thread_orders_nothing_here() {
    proves("a_wait_of_another_thread_orders_nothing_here", "race: ", |run| {
        let context = open(0) as usize;
        let (first, second, data, back) = (stream(false), stream(false), device(BYTES), pinned(BYTES));
        fill(data, 7, BYTES, first);
        let (first, second, back) = (first as usize, second as usize, back as usize);
        // It waits before the other thread goes on, but nobody said that the other thread relies on it.
        std::thread::scope(|threads| {
            threads.spawn(|| {
                enter(context);
                finish(first as sys::CUstream);
                run.simulator.hand_over_send(1);
            });
        });
        std::thread::scope(|threads| {
            threads.spawn(|| {
                enter(context);
                if !run.fault {
                    run.simulator.hand_over_receive(1);
                }
                copy(back as u64, data, BYTES, second as sys::CUstream);
                finish(second as sys::CUstream);
                assert_eq!(read(back as *const u8), 7, "the wait hides the fault from the values");
            });
        });
    });
}
